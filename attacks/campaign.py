"""What an attack is, which attacks exist, and how one is run.

An attack is a function that takes one `Case`. A case has a number, a random generator of its own
and a folder; it reports what did not hold as findings. Cases run one after the other in a child
with limited memory. A child that dies, or a case that takes too long, is a finding; the next child
goes on with the next case. The seed and the number of a case repeat it.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Any, TypeVar

from attacks.findings import Finding, shrink

__all__ = [
    "ATTACKS",
    "CASE_SECONDS",
    "Attack",
    "Case",
    "Skip",
    "Summary",
    "attack",
    "kernels",
    "load",
    "run",
]

ROOT = Path(__file__).resolve().parent.parent
CASE_SECONDS = 10
"""A case that takes longer is a finding of the kind hang."""
GIB = 1 << 30
MODULES = (
    "lives",
    "interrupts",
    "forks",
    "kills",
    "faults",
    "damage",
    "claims",
    "names",
    "peers",
)
"""The modules of this package that define attacks, in the order in which they run."""

Part = TypeVar("Part")


class Skip(Exception):
    """The attack cannot be made here, with the reason."""


@dataclass
class Case:
    """One case of an attack: its generator, its folder, and what it reports."""

    attack: str
    seed: int
    number: int
    kernel: str
    folder: Path
    send: Callable[[dict[str, Any]], None]
    rearm: Callable[[], None] = lambda: None
    """Start the time limit of the case again."""
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.attack}/{self.seed}/{self.number}")

    def announce(self, program: str, subject: str = "") -> None:
        """Name the program that runs next, for the case that the process dies of it."""
        self.send({"program": program, "subject": subject})

    def count(self, name: str, number: int = 1) -> None:
        """Count something that is worth a number in the summary and is no finding."""
        self.send({"count": name, "number": number})

    def find(
        self, kind: str, subject: str, *, expected: str, happened: str, program: str = ""
    ) -> None:
        """Report a promise that did not hold."""
        finding = Finding(
            self.attack,
            self.kernel,
            self.seed,
            self.number,
            kind,
            subject,
            expected,
            happened,
            program,
        )
        self.send({"finding": finding.to_dict()})

    def shrink(
        self, parts: list[Part], fails: Callable[[list[Part]], bool], seconds: float = 3.0
    ) -> list[Part]:
        """Return the fewest parts that still fail, found in the time given."""

        def timed(candidate: list[Part]) -> bool:
            self.rearm()
            return fails(candidate)

        return shrink(parts, timed, seconds)


@dataclass(frozen=True)
class Attack:
    """A named attack."""

    name: str
    function: Callable[[Case], None]
    memory: int = 4 * GIB
    """The most bytes of address space that the child may use."""
    case_seconds: int = CASE_SECONDS

    @property
    def summary(self) -> str:
        """Return the first line of what is documented about it."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


@dataclass
class Summary:
    """What one attack did in one run."""

    attack: str
    kernel: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: str = ""

    @property
    def faults(self) -> list[Finding]:
        """Return the first finding of every distinct fault."""
        return list({finding.fault: finding for finding in reversed(self.findings)}.values())[::-1]

    def __str__(self) -> str:
        start = f"{self.attack:<11}{self.kernel:<8}seed {self.seed:<11}"
        if self.skipped:
            return f"{start}skipped: {self.skipped}"
        text = f"{start}cases {self.cases:<7}{self.seconds:6.1f} s  findings {len(self.findings)}"
        if len(self.faults) < len(self.findings):
            text += f" of {len(self.faults)} faults"
        counts = ", ".join(f"{name} {number}" for name, number in sorted(self.counts.items()))
        return f"{text}  ({counts})" if counts else text


ATTACKS: dict[str, Attack] = {}
"""Every attack by its name."""


def attack(
    name: str, *, memory: int = 4 * GIB, case_seconds: int = CASE_SECONDS
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Register a function as an attack."""

    def register(function: Callable[[Case], None]) -> Callable[[Case], None]:
        ATTACKS[name] = Attack(name, function, memory, case_seconds)
        return function

    return register


def load() -> dict[str, Attack]:
    """Import every module that defines attacks; return the attacks."""
    for module in MODULES:
        importlib.import_module(f"attacks.{module}")
    return ATTACKS


def kernels() -> list[str]:
    """Return the kernels that can run here, the native one first."""
    native = importlib.util.find_spec("ingot._native") is not None
    return ["native", "python"] if native else ["python"]


def scratch() -> str | None:
    """Return the folder for scratch files: memory where the system offers it."""
    shared = "/dev/shm"
    with contextlib.suppress(OSError):
        if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > GIB:
            return shared
    return None


def run(
    subject: Attack,
    *,
    seed: int,
    kernel: str,
    seconds: float | None = None,
    cases: int | None = None,
    only: int | None = None,
    folder: str | None = None,
) -> Summary:
    """Run an attack for some seconds or some cases, or only one case of it."""
    summary = Summary(subject.name, kernel, seed)
    begin = time.monotonic()
    first = 0 if only is None else only
    last = first + 1 if only is not None else cases
    while (last is None or first < last) and not summary.skipped:
        left = None if seconds is None else seconds - (time.monotonic() - begin)
        if left is not None and left <= 0:
            break
        with tempfile.TemporaryDirectory(
            prefix="ingot-attack-", dir=folder or scratch(), ignore_cleanup_errors=True
        ) as name:
            number = None if last is None else last - first
            first = Child(subject, summary, Path(name)).watch(first, number, left)
    summary.seconds = time.monotonic() - begin
    return summary


class Child:
    """The process in which cases run, seen from outside."""

    def __init__(self, subject: Attack, summary: Summary, folder: Path) -> None:
        self.subject = subject
        self.summary = summary
        self.folder = folder
        self.case: int | None = None
        self.program = ""
        self.topic = ""

    def watch(self, first: int, cases: int | None, seconds: float | None) -> int:
        """Let a child run cases from the first on; return the number of the next case."""
        request = {
            "attack": self.subject.name,
            "seed": self.summary.seed,
            "kernel": self.summary.kernel,
            "first": first,
            "cases": cases,
            "seconds": seconds,
            "folder": str(self.folder),
        }
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        variables = {"PYTHONPATH": path, "INGOT_KERNEL": self.summary.kernel, "RUST_BACKTRACE": "0"}
        errors = self.folder / "stderr"
        with errors.open("wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-m", "attacks.worker", json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **variables},
                cwd=ROOT,
                start_new_session=True,
            )
        assert child.stdout is not None
        reached = first
        try:
            for message in self.messages(child.stdout):
                reached = self.take(message, reached)
        finally:
            # The session has its own group, so this ends nothing but what the child started.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.stdout.close()
            status = child.wait()
        if self.case is None:
            if status > 0:
                raise RuntimeError(f"the child of {self.subject.name} failed:\n{tail(errors)}")
            return reached
        self.report_end(status, tail(errors))
        self.summary.cases += 1
        return self.case + 1

    def messages(self, stream: IO[bytes]) -> Iterator[dict[str, Any]]:
        """Yield what the child sends; end when it ends or sends nothing for too long."""
        # A message may have many megabytes: its parts are joined once.
        pending: list[bytes] = []
        # The child ends a case that takes too long by itself; this is for one that cannot.
        patience = 3 * self.subject.case_seconds + 60
        while select.select([stream], [], [], patience)[0]:
            received = os.read(stream.fileno(), 1 << 16)
            if not received:
                return
            pending.append(received)
            if b"\n" in received:
                *lines, rest = b"".join(pending).split(b"\n")
                pending = [rest]
                yield from map(json.loads, lines)

    def take(self, message: dict[str, Any], reached: int) -> int:
        """Enter a message into the summary; return the number of the next case."""
        summary = self.summary
        if "start" in message:
            self.case, self.program, self.topic = message["start"], "", ""
        elif "end" in message:
            summary.cases += 1
            self.case = None
            return int(message["end"]) + 1
        elif "program" in message:
            self.program, self.topic = message["program"], message["subject"]
        elif "finding" in message:
            summary.findings.append(Finding(**message["finding"]))
        elif "count" in message:
            summary.counts[message["count"]] += message["number"]
        elif "skip" in message:
            summary.skipped = message["skip"]
            self.case = None
        return reached

    def report_end(self, status: int, errors: str) -> None:
        """Report a child that ended in the middle of a case."""
        assert self.case is not None
        hang = "Timeout (" in errors
        kind = "hang" if hang else "death" if status < 0 else "error"
        if hang:
            happened = f"it took more than {self.subject.case_seconds} s\n{errors}"
        elif status < 0:
            happened = f"the process died of {signal.Signals(-status).name}\n{errors}"
        else:
            happened = f"the process ended with status {status}\n{errors}"
        finding = Finding(
            self.subject.name,
            self.summary.kernel,
            self.summary.seed,
            self.case,
            kind,
            self.topic or "a case",
            "an answer or an error",
            happened,
            self.program,
        )
        self.summary.findings.append(finding)


def tail(path: Path, size: int = 4000) -> str:
    """Return the end of a text file."""
    data = path.read_bytes() if path.exists() else b""
    return data[-size:].decode("utf-8", "replace")
