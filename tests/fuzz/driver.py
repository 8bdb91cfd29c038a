"""What the fuzzers share: a child does the work, and its parent watches it.

The memory of the child is limited to what it has after its imports and one gibibyte more, so that a
crash, a hang or a greedy allocation shows as the death of the child. Every execution follows from
the seed and its number alone. The child leaves the number in a shared file before it starts, and
the parent makes the damaged bytes again from there.
"""

import argparse
import mmap
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

__all__ = [
    "ROOT",
    "SPARE_MEMORY",
    "Finding",
    "count_executions",
    "fuzz_in_child",
    "parser_of",
    "report",
    "run_fuzzer",
    "seconds_of",
    "watch",
]

ROOT = Path(__file__).resolve().parents[2]
SPARE_MEMORY = 1 << 30
PATIENCE = 120.0


@dataclass(frozen=True)
class Finding:
    """An execution that went wrong, and what was seen of it."""

    execution: int
    what: str
    chunk: bytes


def fuzz_in_child(
    module: str,
    damaged: Callable[[int, int], tuple[bytes, random.Random]],
    seed: int,
    executions: int | None,
    seconds: float | None,
    options: Sequence[str] = (),
) -> tuple[int, Finding | None]:
    """Run a fuzzer as a child; return how many executions it did, and what it died of.

    `damaged` makes the bytes of an execution from the seed and its number.
    """
    with tempfile.NamedTemporaryFile() as shared:
        shared.write(bytes(8))
        shared.flush()
        given = [*options, "--seed", str(seed), "--child", shared.name]
        if executions is not None:
            given += ["--executions", str(executions)]
        if seconds is not None:
            given += ["--minutes", str(seconds / 60)]
        child = subprocess.Popen(
            [sys.executable, "-m", module, *given], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        with mmap.mmap(shared.fileno(), 8, access=mmap.ACCESS_READ) as counter:
            message = watch(child, counter)
            (execution,) = struct.unpack("<q", counter[:])
    if not message:
        return execution, None
    return execution, Finding(execution, message, damaged(seed, execution)[0])


def count_executions(
    attempt: Callable[[int], None], executions: int | None, seconds: float, path: str
) -> None:
    """Do one execution after the other in this process, with limited memory.

    The number of each is in the shared file while it runs.
    """
    _limit_memory()
    deadline = time.monotonic() + seconds
    with open(path, "r+b") as shared, mmap.mmap(shared.fileno(), 8) as counter:
        execution = 0
        while time.monotonic() < deadline and (executions is None or execution < executions):
            counter[:] = struct.pack("<q", execution)
            attempt(execution)
            execution += 1
        counter[:] = struct.pack("<q", execution)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that all fuzzers have."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=None, help="how long; 1 by default")
    parser.add_argument("--executions", type=int, default=None, help="how many at most")
    parser.add_argument("--seed", type=int, default=None, help="random by default")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    return parser


def seconds_of(options: argparse.Namespace) -> float | None:
    """Return the seconds that the options name."""
    return None if options.minutes is None else float(60 * options.minutes)


def run_fuzzer(
    text: str | None,
    subject: str,
    attempt: Callable[[int, int], None],
    fuzz: Callable[[int, int | None, float | None], tuple[int, Finding | None]],
    save: Callable[[Finding, int], Path],
) -> int:
    """Parse the options of a fuzzer that has no others, and be the child or its parent.

    `attempt` does an execution, by the seed and its number. Return the exit status.
    """
    options = parser_of(text).parse_args()
    if options.child:
        limits = options.executions, seconds_of(options) or 1e9
        count_executions(partial(attempt, options.seed), *limits, options.child)
        return 0
    return report(subject, options, fuzz, save)


def report(
    subject: str,
    options: argparse.Namespace,
    fuzz: Callable[[int, int | None, float | None], tuple[int, Finding | None]],
    save: Callable[[Finding, int], Path],
) -> int:
    """Fuzz, print what was found, save it, and return the exit status."""
    seed = random.randrange(10**9) if options.seed is None else options.seed
    seconds = seconds_of(options)
    if seconds is None and options.executions is None:
        seconds = 60.0
    print(f"fuzzing {subject} with seed {seed}", flush=True)
    executions, finding = fuzz(seed, options.executions, seconds)
    if finding is None:
        print(f"{executions} executions, nothing found")
        return 0
    print(f"execution {finding.execution} of seed {seed}: {finding.what}")
    print(f"saved as {save(finding, seed).relative_to(ROOT)}")
    return 1


def watch(child: "subprocess.Popen[str]", counter: mmap.mmap) -> str:
    """Wait until the child ends or stands still; return what went wrong, if anything did."""
    seen, since = counter[:], time.monotonic()
    while True:
        try:
            _, errors = child.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            if counter[:] != seen:
                seen, since = counter[:], time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()
                child.communicate()
                return f"no progress for {PATIENCE:.0f} seconds"
        else:
            break
    if child.returncode == 0:
        return ""
    return f"exit status {child.returncode}: {errors.strip()[-2000:]}"


def _limit_memory() -> None:
    """Allow this process one gibibyte more than it has; where systems cannot say, nothing."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    allowed = pages * resource.getpagesize() + SPARE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
