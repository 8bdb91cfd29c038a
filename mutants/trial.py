"""Trials: each mutant lies in a copy of the checkout, where the nearest tests run against it.

A mutant may loop or allocate without end, so tests run with limits: of memory, of processor time,
which other work on the machine does not use up, and, for those that wait for ever, of time.
"""

import difflib
import math
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Copy", "Failure", "Mutant", "Trial", "copy_of", "difference"]

_PATIENCE = 3.0
_LEAST_SECONDS = 20.0
_WAITING = 10.0
"""How much longer than its processor time a run may take."""
_MOST_MEMORY = 8 << 20
"""Of each process, in KiB."""


class Failure(Exception):
    """A run that cannot go on, with the reason."""


@dataclass(frozen=True)
class Mutant:
    """A changed text of a module, which is given by its path below the root of the checkout."""

    path: str
    line: int
    column: int
    operator: str
    text: str


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: `caught` names the first test that failed, or is None."""

    mutant: Mutant
    caught: str | None


@dataclass(frozen=True)
class Copy:
    """A copy of the checkout, and the interpreter that runs its tests."""

    root: Path
    python: str

    def test(self, tests: list[str], limit: float | None = None) -> tuple[int | None, str]:
        """Run tests up to the first failure; return the status, None for a timeout, and output."""
        arguments = ["-q", "-x", "-m", "not slow", "-p", "no:xdist", "-p", "no:cacheprovider"]
        command = [self.python, "-m", "pytest", *arguments, "--tb=no", *tests]
        return self.run(command, limit)

    def run(
        self, command: list[str], limit: float | None = None, **variables: str
    ) -> tuple[int | None, str]:
        """Run a command in the copy, with `limit` seconds of processor time."""
        variables |= {"PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            [*_limited(limit), *command],
            cwd=self.root,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=None if limit is None else limit * _WAITING)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, ""
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None, output
        return process.returncode, output

    def baseline(self, tests: list[str]) -> float:
        """Return how many seconds of the processor the tests may take, which must pass as yet."""
        began = _processor_time()
        status, output = self.test(tests)
        if status != 0:
            raise Failure(f"the tests fail without a mutant:\n{output}")
        return max(_PATIENCE * (_processor_time() - began), _LEAST_SECONDS)

    def try_out(self, mutant: Mutant, tests: list[str], limit: float) -> Trial:
        """Run the tests against a mutant, and put the module back."""
        path = self.root / mutant.path
        original = path.read_bytes()
        try:
            path.write_text(mutant.text, "utf-8")
            return Trial(mutant, self.first_failure(tests, limit))
        finally:
            path.write_bytes(original)

    def first_failure(self, tests: list[str], limit: float) -> str | None:
        """Return the first test that fails, `the time limit` or `an error`; None if all pass."""
        status, output = self.test(tests, limit)
        if status == 0:
            return None
        failed = [_failed(line) for line in output.splitlines() if _names_failure(line)]
        return "the time limit" if status is None else (failed or ["an error"])[0]


@contextmanager
def copy_of(root: Path, python: str) -> Iterator[Copy]:
    """Copy a checkout for the time of a block: all that git knows or would add, and the kernel."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.check_output(listing, cwd=root).decode().split("\0")
    built = [path.relative_to(root).as_posix() for path in (root / "src/ingot").glob("_native*.so")]
    with tempfile.TemporaryDirectory(prefix="ingot-mutants-") as folder:
        for name in {*names, *built, "src/ingot/_build.json"} - {""}:
            if (root / name).is_file():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, Path(folder) / name)
        yield Copy(Path(folder), python)


def difference(mutant: Mutant, original: str) -> list[str]:
    """Return the changed lines, marked with - and +."""
    lines = difflib.unified_diff(original.splitlines(), mutant.text.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _names_failure(line: str) -> bool:
    return line.startswith(("FAILED ", "ERROR "))


def _failed(line: str) -> str:
    return line.split(" ", 1)[1].partition(" - ")[0]


def _limited(seconds: float | None) -> list[str]:
    """Return the beginning of a command that runs the rest of it with limits."""
    limits = f"ulimit -v {_MOST_MEMORY}"
    if seconds is not None:
        limits += f"; ulimit -t {math.ceil(seconds)}"
    return ["sh", "-c", f'{limits}; exec "$@"', "sh"]


def _processor_time() -> float:
    """Return the seconds of the processor that the children which ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
