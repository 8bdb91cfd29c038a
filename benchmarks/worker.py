"""A process that times cases for another one: a line of JSON in, a line of JSON out.

It runs under any interpreter with NumPy, so that peers which need a newer Python than Ingot's take
part in the same race. The requests:

    {"do": "libraries"}                    -> {library: [label, why it is missing or null]}
    {"do": "begin", "case": …}             -> the number under which the case can be sampled
    {"do": "sample", "number": 0, "loops": 9} -> seconds
    {"do": "end", "number": 0}             -> null
    {"do": "write", "case": …}             -> null, after writing the array in parts
    {"do": "memory", "case": …}            -> [bytes before, bytes at the peak] of reading the keys
"""

import json
import os
import sys
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.cases import parse, sampling, write_in_parts
from benchmarks.libraries import EVERY
from benchmarks.race import Sampler

__all__ = ["Desk", "describe_libraries", "main", "measure_memory", "peak_memory"]

Begun = tuple[AbstractContextManager[Sampler], Sampler]


class Desk:
    """Answers requests, and holds the cases that have begun.

    >>> Desk().answer({"do": "dance"})
    Traceback (most recent call last):
    ValueError: unknown request 'dance'
    """

    def __init__(self) -> None:
        self._begun: dict[int, Begun] = {}

    def answer(self, request: dict[str, Any]) -> object:
        """Carry out a request and return its result."""
        match request["do"]:
            case "libraries":
                return describe_libraries()
            case "begin":
                return self._begin(request["case"])
            case "sample":
                return self._begun[request["number"]][1](request["loops"])
            case "end":
                manager, _ = self._begun.pop(request["number"])
                manager.__exit__(None, None, None)
                return None
            case "write":
                write_in_parts(parse(request["case"]))
                return None
            case "memory":
                return measure_memory(request["case"])
        raise ValueError(f"unknown request {request['do']!r}")

    def _begin(self, line: str) -> int:
        manager = sampling(parse(line))
        number = max(self._begun, default=-1) + 1
        self._begun[number] = (manager, manager.__enter__())
        return number


def describe_libraries() -> dict[str, tuple[str, str | None]]:
    """Return the label of every library, and why it cannot be used, or None.

    >>> describe_libraries()["zarr2"][0].startswith("zarr")
    True
    """
    found = {}
    for name, library in EVERY.items():
        missing = library.missing()
        found[name] = (name if missing else library.label(), missing)
    return found


def measure_memory(line: str) -> tuple[int, int]:
    """Read a case's keys once; return the resident bytes before, and at the peak."""
    case = parse(line)
    library = EVERY[case.library]
    library.select()
    handle = library.open(case.path)
    before = peak_memory()
    for key in case.keys:
        library.read(handle)(key)
    library.close(handle)
    return before, peak_memory()


def peak_memory() -> int:
    """Return the peak of this process's resident memory so far.

    Linux keeps ``ru_maxrss`` over ``exec``: a child of a large process would seem large from the
    start. ``VmHWM`` begins with the program.

    >>> peak_memory() > 1_000_000
    True
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    # Not on Windows, and only needed where there is no /proc.
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Answer requests until the input ends."""
    # Output that libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    desk = Desk()
    for line in sys.stdin:
        try:
            reply = {"result": desk.answer(json.loads(line))}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
