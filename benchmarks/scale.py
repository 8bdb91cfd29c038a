"""What happens at scale: costs of operations, and a simulation of many writers of one array.

    python -m benchmarks.scale                     both
    python -m benchmarks.scale --workers 100 --latency 0.03 --failures 0.05

The costs are measured here, on a local disk. The simulation has no data: it plays the requests of
the commit protocols on object stores (`docs/promise.md`) with a latency and a share of failures,
half of which are answers that get lost after the request took effect.
"""

import argparse
import heapq
import itertools
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

import ingot
from ingot.stores.objects.record import NOTICE

__all__ = ["PROTOCOLS", "Outcome", "main", "measure", "simulate"]

Steps: TypeAlias = "Generator[float, None, bool]"

CHUNK_BYTES: Final = 1 << 20
BATCH: Final = 4
"""Chunks of one commit."""
TIMEOUT: Final = 1.0
"""Seconds until a lost answer is noticed."""
LEAST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 0.25
"""Seconds that a worker waits before it looks again whether the record is free."""


@dataclass
class World:
    """The clock, the requests, and the state of the object store."""

    latency: float
    failures: float
    rng: random.Random
    now: float = 0.0
    requests: int = 0
    retries: int = 0
    wasted: int = 0
    etag: int = 0
    """Of the record: each `If-Match` that succeeds makes a new one."""
    holder: int | None = None
    """The worker that holds the record."""
    _queue: list[tuple[float, int, Steps]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, steps: Steps) -> None:
        """Begin a worker now."""
        heapq.heappush(self._queue, (self.now, next(self._numbers), steps))

    def run(self, seconds: float) -> None:
        """Let the workers work, for so many seconds of the simulated clock."""
        while self._queue and self.now < seconds:
            self.now, _, steps = heapq.heappop(self._queue)
            try:
                wait = next(steps)
            except StopIteration:
                continue
            heapq.heappush(self._queue, (self.now + wait, next(self._numbers), steps))

    def _draw(self) -> float:
        return self.latency * self.rng.uniform(0.7, 1.3)

    def request(self, effect: Callable[[], bool] = lambda: True) -> Steps:
        """Send a request until its answer is known; return whether it had an effect.

        A request that fails is repeated after a pause that doubles. One whose answer is lost took
        effect: its transaction number is read, which is another request.
        """
        pause = self.latency
        while True:
            self.requests += 1
            yield self._draw()
            if self.rng.random() >= self.failures:
                return effect()
            self.retries += 1
            if self.rng.random() < 0.5:
                done = effect()
                yield TIMEOUT
                self.requests += 1
                yield self._draw()
                return done
            yield pause * self.rng.uniform(0.5, 1.5)
            pause = min(2 * pause, 5.0)

    def together(self, count: int, size: int = 0, small: int = 0) -> Steps:
        """Send requests at the same time; the slowest of them counts.

        Each of `count` carries `size` bytes, which are wasted when it has to be sent again; `small`
        more carry none.
        """
        before = self.retries
        longest = max((sum(self.request()) for _ in range(count)), default=0.0)
        self.wasted += (self.retries - before) * size
        yield max([longest, *(sum(self.request()) for _ in range(small))])
        return True


@dataclass(frozen=True)
class Outcome:
    """What a simulation counted."""

    commits: int
    seconds: float
    requests: int
    retries: int
    wasted: int
    times: tuple[float, ...]

    def row(self, name: str, workers: int) -> str:
        """Return the row of a table."""
        rate = self.commits / self.seconds
        times = sorted(self.times) or [0.0]
        late = times[min(len(times) - 1, int(0.99 * len(times)))]
        wasted = self.wasted / max(1, self.commits * BATCH * CHUNK_BYTES)
        return (
            f"| {name} | {workers} | {rate:.1f} | {rate * BATCH:.0f} | "
            f"{self.requests / max(1, self.commits):.1f} | "
            f"{self.retries / max(1, self.commits):.2f} | {100 * wasted:.0f} % | "
            f"{statistics.median(times):.2f} | {late:.2f} |"
        )


def _hold(world: World, number: int) -> Steps:
    """Hold the record: read it, and if no worker holds it, replace it by `If-Match`."""
    pause = LEAST_PAUSE
    while True:
        yield from world.request()
        seen, free = world.etag, world.holder is None

        def take(seen: int = seen) -> bool:
            if world.etag != seen:
                return False
            world.etag, world.holder = world.etag + 1, number
            return True

        if free and (yield from world.request(take)):
            return True
        yield pause * world.rng.uniform(0.5, 1.5)
        pause = min(2 * pause, LONGEST_PAUSE)


def _notice(world: World, held: float) -> Steps:
    """Wait until readers have seen who holds the record."""
    yield max(0.0, held + NOTICE - world.now)
    return True


def _release(world: World) -> Steps:
    """Say that the commit is applied."""

    def release() -> bool:
        world.etag, world.holder = world.etag + 1, None
        return True

    return world.request(release)


def _appending(world: World, number: int, times: list[float]) -> Steps:
    """Append: hold the record, chunks beyond the shape, decide, the metadata, release."""
    while True:
        begun = world.now
        yield from _hold(world, number)
        held = world.now
        yield from world.request()  # Compare the metadata.
        yield from world.together(BATCH, CHUNK_BYTES, 1)  # And the tag of the metadata.
        yield from world.request()  # Decide: the record has the metadata.
        yield from _notice(world, held)
        yield from world.request()  # Put the metadata in its place.
        yield from _release(world)
        times.append(world.now - begun)


def _committing(world: World, number: int, times: list[float]) -> Steps:
    """Change chunks: hold the record, stage them, decide, apply, remove what is staged, release."""
    while True:
        begun = world.now
        yield from world.request()  # The version, for what is encoded before the record is held.
        yield from _hold(world, number)
        held = world.now
        yield from world.request()  # Compare the metadata.
        yield from world.together(BATCH, CHUNK_BYTES, BATCH)  # And the tags of what is replaced.
        yield from world.request()  # Decide.
        yield from _notice(world, held)
        yield from world.together(BATCH - 1, CHUNK_BYTES)
        yield from world.together(1, CHUNK_BYTES)  # The last one is put behind the others.
        yield from world.together(BATCH)  # Remove what was staged.
        yield from _release(world)
        times.append(world.now - begun)


def _staging(world: World, number: int, times: list[float]) -> Steps:
    """Stage chunks for one commit of another process, as `to_ingot` and `store` do."""
    while True:
        begun = world.now
        yield from world.together(BATCH, CHUNK_BYTES)
        times.append(world.now - begun)


PROTOCOLS: Final = {
    "append, a commit each": _appending,
    "change chunks, a commit each": _committing,
    "staged, one commit at the end": _staging,
}


def simulate(
    protocol: str, workers: int, latency: float, failures: float, seconds: float, seed: int = 1
) -> Outcome:
    """Return what happens when workers write one array for so many seconds."""
    world, times = World(latency, failures, random.Random(seed)), list[float]()
    for number in range(workers):
        world.start(PROTOCOLS[protocol](world, number, times))
    world.run(seconds)
    counts = len(times), seconds, world.requests, world.retries, world.wasted
    return Outcome(*counts, tuple(times))


def measure(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield operations on arrays of many chunks on a local disk, with their seconds."""
    options = ingot.Options(durability="process")
    for name, shape, chunk in (("10^6 chunks", 10**9, 1000), ("10^9 rows", 10**9, 10**6)):
        place = folder / name.replace("^", "")
        array = ingot.create(place, shape=shape, dtype="i4", chunks=chunk, options=options)
        array[: 20 * chunk] = 1
        values = np.ones(chunk, "i4")
        operations: dict[str, Callable[[], object]] = {
            "create": lambda shape=shape, chunk=chunk: ingot.create(
                folder / "new", shape=shape, dtype="i4", chunks=chunk, overwrite=True
            ),
            "open": lambda place=place: ingot.open(place),
            "read an item": lambda array=array: array[5],
            "read a chunk": lambda array=array, chunk=chunk: array[:chunk],
            "assign a chunk": lambda array=array, values=values: array.__setitem__(
                slice(0, len(values)), values
            ),
            "append a chunk": lambda array=array, values=values: array.append(values),
        }
        for label, call in operations.items():
            yield f"{name}: {label}", _best(call)


def _best(call: Callable[[], object], turns: int = 30) -> float:
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--latency", type=float, default=0.03, help="seconds of a request")
    parser.add_argument("--failures", type=float, default=0.05, help="share of requests")
    parser.add_argument("--seconds", type=float, default=300, help="of the simulated clock")
    parser.add_argument("--no-costs", action="store_true", help="leave the measured costs out")
    given = parser.parse_args(arguments)
    if not given.no_costs:
        print("| on a local disk | microseconds |\n|---|--:|")
        folder = Path(tempfile.mkdtemp(prefix="ingot-scale-"))
        try:
            for name, seconds in measure(folder):
                print(f"| {name} | {seconds * 1e6:.0f} |", flush=True)
        finally:
            shutil.rmtree(folder)
        print()
    print(
        "| protocol | workers | writes/s | chunks/s | requests a write | retries a write | "
        "wasted bytes | median s | 99 % s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for protocol in PROTOCOLS:
        for workers in given.workers:
            found = simulate(protocol, workers, given.latency, given.failures, given.seconds)
            print(found.row(protocol, workers), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
