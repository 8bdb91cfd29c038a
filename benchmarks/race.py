"""Fair timing: contenders alternate, and the best turn of each one counts.

Drift of the machine affects all contenders alike because they alternate, A, B, A, B; disturbances
of single turns are dropped by taking the best. Each turn repeats its call until it lasts long
enough for the clock. The garbage collector is off meanwhile.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

__all__ = ["Call", "Effort", "Sampler", "race", "stopwatch"]

Call = Callable[[], object]

Sampler = Callable[[int], float]
"""A function that makes so many calls and returns the seconds of all of them."""

MOST_LOOPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time to spend: turns per contender, the least seconds of a turn, the most of all.

    A contender that has used its ``patience`` takes no more turns, but at least two.

    >>> Effort(repetitions=0)
    Traceback (most recent call last):
    ValueError: repetitions is 0, at least one is needed
    """

    repetitions: int = 7
    seconds: float = 0.02
    patience: float = 20.0

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"repetitions is {self.repetitions}, at least one is needed")


def race(contenders: Mapping[str, Sampler], effort: Effort) -> dict[str, float]:
    """Return the seconds of one call for each contender, the best of its turns.

    >>> times = race({"one": lambda loops: loops * 1.0, "two": lambda loops: loops * 2.0}, Effort())
    >>> times
    {'one': 1.0, 'two': 2.0}
    """
    with _without_collector():
        loops = {name: _count_loops(sampler, effort) for name, sampler in contenders.items()}
        turns: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(effort.repetitions):
            for name, sampler in contenders.items():
                if len(turns[name]) < 2 or sum(turns[name]) < effort.patience:
                    turns[name].append(sampler(loops[name]))
    return {name: min(turns[name]) / loops[name] for name in contenders}


def stopwatch(
    call: Call, prepare: Call | None = None, clock: Callable[[], float] | None = None
) -> Sampler:
    """Return a function that times ``call``; ``prepare`` runs before each call and is not counted.

    The ``clock`` measures elapsed time unless another one is given.

    >>> made = []
    >>> stopwatch(lambda: made.append("cake"), lambda: made.append("dough"))(2) > 0
    True
    >>> made
    ['dough', 'cake', 'dough', 'cake']
    """

    now = clock or (lambda: time.perf_counter())

    def together(loops: int) -> float:
        turns = repeat(None, loops)
        begin = now()
        for _ in turns:
            call()
        return now() - begin

    def apart(loops: int, prepare: Call) -> float:
        seconds = 0.0
        for _ in range(loops):
            prepare()
            begin = now()
            call()
            seconds += now() - begin
        return seconds

    return together if prepare is None else lambda loops: apart(loops, prepare)


def _count_loops(sampler: Sampler, effort: Effort) -> int:
    """Return how many calls make a turn; the first call also warms up."""
    if sampler(1) >= effort.seconds:
        return 1
    once = max(sampler(1), 1e-9)
    return max(1, min(math.ceil(effort.seconds / once), MOST_LOOPS))


@contextmanager
def _without_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
