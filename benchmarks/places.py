"""The processes in which libraries run: this one, or a worker under another interpreter.

Starts a worker and sends it requests. Which interpreter to use is decided elsewhere.
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
    """Raised when a worker fails a request or has ended.

    >>> issubclass(WorkerError, Exception)
    True
    """


class Place(Protocol):
    """A process with libraries in it."""

    def libraries(self) -> dict[str, tuple[str, str | None]]:
        """Return every library's label, and why it is missing, if it is."""

    def sampling(self, case: Case) -> AbstractContextManager[Sampler]:
        """Prepare to time a case."""

    def write(self, case: Case) -> None:
        """Write the case's array in parts."""


class Here:
    """This process.

    >>> "hdf5" in Here().libraries()
    True
    """

    def libraries(self) -> dict[str, tuple[str, str | None]]:
        """Return the libraries of this process."""
        return describe_libraries()

    def sampling(self, case: Case) -> AbstractContextManager[Sampler]:
        """Time in this process."""
        return sampling(case)

    def write(self, case: Case) -> None:
        """Write from this process."""
        write_in_parts(case)


class Worker:
    """Another process, under any interpreter with NumPy; it ends with the ``with`` block.

    >>> with Worker(sys.executable) as worker:
    ...     "hdf5" in worker.libraries()
    True
    """

    def __init__(self, python: str) -> None:
        variables = dict(os.environ)
        if os.path.abspath(python) != os.path.abspath(sys.executable):
            # The package paths of one interpreter would mislead another one.
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
        """Close the pipe and wait; a worker that does not end is killed."""
        if self._process.stdin is not None:
            # The worker may have ended already.
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
        """Return the libraries of the worker."""
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
