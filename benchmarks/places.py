"""Where a library runs: in this process, or in a worker under another interpreter.

Knows how to start a worker and talk to it. Refuses to know which interpreter is a good one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from benchmarks.cases import Case, pack, sampling, write_in_parts
from benchmarks.race import Sampler
from benchmarks.worker import describe_libraries

__all__ = ["ROOT", "Here", "Place", "Worker", "WorkerError"]

ROOT = Path(__file__).resolve().parents[1]


class WorkerError(Exception):
    """A worker that could not do what it was asked, or is gone.

    >>> issubclass(WorkerError, Exception)
    True
    """


class Place(Protocol):
    """A process with libraries in it."""

    def libraries(self) -> dict[str, tuple[str, str | None]]:
        """Return every library's label, and why it is missing, if it is."""

    def sampling(self, case: Case) -> AbstractContextManager[Sampler]:
        """Get ready to time a case."""

    def write(self, case: Case) -> None:
        """Write the case's array in parts."""


class Here:
    """This process.

    >>> "hdf5" in Here().libraries()
    True
    """

    def libraries(self) -> dict[str, tuple[str, str | None]]:
        """Version around."""
        return describe_libraries()

    def sampling(self, case: Case) -> AbstractContextManager[Sampler]:
        """Time in this process."""
        return sampling(case)

    def write(self, case: Case) -> None:
        """Write from this process."""
        write_in_parts(case)


class Worker:
    """A process of its own, under any interpreter that has NumPy; ends with the ``with`` block.

    >>> with Worker(sys.executable) as worker:
    ...     "hdf5" in worker.libraries()
    True
    """

    def __init__(self, python: str) -> None:
        variables = dict(os.environ)
        if os.path.abspath(python) != os.path.abspath(sys.executable):
            # Paths to the packages of one interpreter lead another one astray.
            for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
                variables.pop(name, None)
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker"],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Hang up and wait; a worker that does not leave is killed."""
        if self._process.stdin is not None:
            # One that is gone already cannot be told.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def ask(self, do: str, **details: object) -> Any:
        """Send one request and return its result."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None:
            raise WorkerError("the worker has no pipes")
        try:
            print(json.dumps({"do": do, **details}), file=pipe_in, flush=True)
            line = pipe_out.readline()
        except OSError as error:
            raise WorkerError(f"the worker is gone: {error}") from error
        if not line:
            raise WorkerError(f"the worker ended with status {self._process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["result"]

    def libraries(self) -> dict[str, tuple[str, str | None]]:
        """Ask it to look around."""
        found: dict[str, list[Any]] = self.ask("libraries")
        return {name: (label, missing) for name, (label, missing) in found.items()}

    @contextmanager
    def sampling(self, case: Case) -> Iterator[Sampler]:
        """Time in the worker: only numbers go through the pipe."""
        number = self.ask("begin", case=pack(case))

        def sample(loops: int) -> float:
            seconds: float = self.ask("sample", number=number, loops=loops)
            return seconds

        try:
            yield sample
        finally:
            with suppress(WorkerError):
                self.ask("end", number=number)

    def write(self, case: Case) -> None:
        """Write from the worker."""
        self.ask("write", case=pack(case))

    def measure_memory(self, case: Case) -> tuple[int, int]:
        """Return the worker's resident bytes before reading the case's keys, and at the peak."""
        before, peak = self.ask("memory", case=pack(case))
        return before, peak
