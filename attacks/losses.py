"""Reports of lost data as programs, run on zarr-python and on Ingot: a table of both.

    python -m attacks.losses                       every program, on every contestant
    python -m attacks.losses shards appends --runs 100

- `shards`: processes write chunks of one shard, each its own (zarr-python 3682).
- `appends`: processes append batches to one array.
- `unaligned`: Dask stores blocks that do not end where chunks end.
- `killed`: a process that assigns a whole array is killed; the array must hold one value.

A run counts as wrong if anything that was acknowledged is missing, or if values are mixed. Every
call of a library happens in a child, which has no threads of earlier runs.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from attacks.peers_card import in_child, silence

__all__ = ["CONTESTANTS", "PROGRAMS", "Contestant", "Tally", "main"]

WRITERS: Final = 8
ROWS: Final = 2000
"""Rows of a chunk that one writer of a shard writes."""
APPENDERS: Final = 4
BATCHES: Final = 25
BATCH: Final = 10
"""Rows of one append."""
CHUNK: Final = 10
BLOCK: Final = 7
"""Rows of a chunk, and of a block of Dask, where they do not fit."""
KILLED: Final = 64, 16384
"""The shape of the array that is assigned to; each row is a chunk."""

_FORK: Final = multiprocessing.get_context("fork") if hasattr(os, "fork") else None


@dataclass(frozen=True)
class Contestant:
    """How a library makes, opens, appends to, stores with Dask and reads an array of integers."""

    name: str
    make: Callable[[str, tuple[int, ...], tuple[int, ...], tuple[int, ...] | None], None]
    open: Callable[[str], Any]
    store: Callable[[Any, str], None]

    def read(self, place: str) -> np.ndarray:
        """Return all of an array, read in a child."""
        kind, found = in_child(lambda: self.open(place)[...], 60)
        return found if kind == "ok" else np.zeros(0, "i8")


@dataclass(frozen=True)
class Tally:
    """What a program found in one run: how much of the acknowledged data is missing or mixed."""

    wrong: int
    of: int


def _make_zarr(
    place: str, shape: tuple[int, ...], chunks: tuple[int, ...], shards: tuple[int, ...] | None
) -> None:
    import zarr

    zarr.create_array(place, shape=shape, chunks=chunks, shards=shards, dtype="i8")


def _open_zarr(place: str) -> Any:
    import zarr

    return zarr.open_array(place, mode="r+")


def _open_with_pipeline(place: str) -> Any:
    import zarr

    import ingot.interop.zarr  # noqa: F401 - it registers the pipeline

    zarr.config.set({"codec_pipeline.path": "ingot.interop.zarr.IngotCodecPipeline"})
    return zarr.open_array(place, mode="r+")


def _store_by_dask(open_array: Callable[[str], Any]) -> Callable[[Any, str], None]:
    def store(data: Any, place: str) -> None:
        import dask.array

        # What `to_zarr` does, without its check: that refuses what it sees.
        dask.array.store(data, open_array(place), lock=False)

    return store


def _make_ingot(
    place: str, shape: tuple[int, ...], chunks: tuple[int, ...], shards: tuple[int, ...] | None
) -> None:
    import ingot

    more: dict[str, Any] = {} if shards is None else {"shards": shards}
    options = ingot.Options(durability="process")
    ingot.create(place, shape=shape, dtype="i8", chunks=chunks, options=options, **more)


def _open_ingot(place: str) -> Any:
    import ingot

    return ingot.open(place, "r+", options=ingot.Options(durability="process"))


def _store_ingot(data: Any, place: str) -> None:
    from ingot.interop.dask import store

    store(data, place)


CONTESTANTS: Final = (
    Contestant("zarr", _make_zarr, _open_zarr, _store_by_dask(_open_zarr)),
    Contestant(
        "zarr, pipeline of Ingot",
        _make_zarr,
        _open_with_pipeline,
        _store_by_dask(_open_with_pipeline),
    ),
    Contestant("Ingot", _make_ingot, _open_ingot, _store_ingot),
)


def _together(jobs: Sequence[Callable[[], int]]) -> list[int]:
    """Run jobs at the same time, each in a child; return what each of them acknowledges."""
    assert _FORK is not None
    barrier, answers = _FORK.Barrier(len(jobs)), _FORK.Array("q", len(jobs))

    def run(number: int, job: Callable[[], int]) -> None:
        silence()
        barrier.wait()
        answers[number] = job()

    children = [_FORK.Process(target=run, args=pair) for pair in enumerate(jobs)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        child.kill()
    return list(answers)


def shards(library: Contestant, folder: Path, rng: random.Random) -> Tally:
    """Let processes write chunks of one shard, each its own."""
    place = str(folder / "a")
    in_child(lambda: library.make(place, (WRITERS * ROWS,), (ROWS,), (WRITERS * ROWS,)))

    def writer(number: int) -> Callable[[], int]:
        def write() -> int:
            array = library.open(place)
            array[number * ROWS : (number + 1) * ROWS] = number + 1
            return 1

        return write

    done = _together([writer(number) for number in range(WRITERS)])
    found = library.read(place)
    kept = [
        bool((found[number * ROWS : (number + 1) * ROWS] == number + 1).all()) and len(found) > 0
        for number in range(WRITERS)
    ]
    lost = sum(1 for ok, there in zip(done, kept, strict=True) if ok and not there)
    return Tally(lost, sum(done))


def appends(library: Contestant, folder: Path, rng: random.Random) -> Tally:
    """Let processes append batches to one array; a batch has a number of its own."""
    place = str(folder / "a")
    in_child(lambda: library.make(place, (0,), (CHUNK * BATCH,), None))

    def appender(number: int) -> Callable[[], int]:
        def append() -> int:
            done = 0
            for batch in range(BATCHES):
                value = 1 + number * BATCHES + batch
                library.open(place).append(np.full(BATCH, value, "i8"))
                done += 1
            return done

        return append

    done = sum(_together([appender(number) for number in range(APPENDERS)]))
    found = library.read(place)
    values, counts = np.unique(found, return_counts=True)
    whole = sum(1 for value, count in zip(values, counts, strict=True) if value and count == BATCH)
    return Tally(done - whole, done)


def unaligned(library: Contestant, folder: Path, rng: random.Random) -> Tally:
    """Let Dask store blocks that do not end where chunks end."""
    place, rows = str(folder / "a"), 600
    in_child(lambda: library.make(place, (rows, 100), (CHUNK, 100), None))

    def store() -> int:
        import dask
        import dask.array

        data = dask.array.arange(1, rows * 100 + 1, chunks=-1).reshape(rows, 100)
        with dask.config.set(scheduler="threads", num_workers=WRITERS):
            library.store(data.rechunk((BLOCK, 100)), place)
        return rows

    kind, done = in_child(store, 60)
    if kind != "ok":
        return Tally(0, 0)
    found = library.read(place)
    expected = np.arange(1, rows * 100 + 1).reshape(rows, 100)
    same = (found == expected).all(axis=1) if found.shape == expected.shape else np.zeros(rows)
    return Tally(int(rows - same.sum()), done)


def killed(library: Contestant, folder: Path, rng: random.Random) -> Tally:
    """Kill a process that assigns a whole array again and again; mixed values are wrong."""
    place = str(folder / "a")
    in_child(lambda: library.make(place, KILLED, (1, KILLED[1]), None))
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        silence()
        array, value = library.open(place), 0
        while True:
            value += 1
            array[...] = value
            if value == 1:
                os.write(send, b"1")
    os.read(receive, 1)
    time.sleep(rng.random() * 0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(receive)
    os.close(send)
    found = library.read(place)
    return Tally(int(found.size == 0 or (found != found.flat[0]).any()), 1)


PROGRAMS: Final = {
    "shards": shards,
    "appends": appends,
    "unaligned": unaligned,
    "killed": killed,
}


def _count(name: str, library: Contestant, runs: int, rng: random.Random) -> str:
    """Run a program many times; return how often, and how much, was lost."""
    wrong = lost = of = 0
    for _ in range(runs):
        folder = Path(tempfile.mkdtemp(prefix="ingot-losses-"))
        try:
            found = PROGRAMS[name](library, folder, rng)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        wrong += found.wrong > 0
        lost, of = lost + found.wrong, of + found.of
    return f"{wrong} of {runs} | {lost} of {of}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each program and contestant."""
    parser = argparse.ArgumentParser(prog="python -m attacks.losses", description=__doc__)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help="which programs")
    parser.add_argument("--runs", type=int, default=20, help="how often each is run")
    parser.add_argument("--only", help="the name of one contestant")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    print("| program | library | runs with losses | lost of what was acknowledged |")
    print("|---|---|--:|--:|")
    for name in given.programs or PROGRAMS:
        for library in CONTESTANTS:
            if given.only in (None, library.name):
                rng = random.Random(given.seed)
                print(f"| {name} | {library.name} | {_count(name, library, given.runs, rng)} |")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
