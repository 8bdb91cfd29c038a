"""Reports of lost data as programs, run on zarr-python and on Ingot: a table of both.

    python -m attacks.losses                       every program, on every contestant
    python -m attacks.losses shards appends --runs 100
    python -m attacks.losses --s3                  on an S3 server of its own (SeaweedFS)

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
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from attacks.peers_card import in_child, silence
from tests import seaweed

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
    append: Callable[[str, Any], None]
    programs: tuple[str, ...] = ("shards", "appends", "unaligned", "killed")
    """The programs that differ from those of the contestant above."""

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

    store = _zarr_store(place)
    zarr.create_array(store, shape=shape, chunks=chunks, shards=shards, dtype="i8")


def _zarr_store(place: str) -> Any:
    """Return what zarr takes for a place: its path, or a store of obstore for an address."""
    if "://" not in place:
        return place
    import obstore.store
    import zarr.storage

    return zarr.storage.ObjectStore(obstore.store.from_url(place))


def _open_zarr(place: str) -> Any:
    import zarr

    return zarr.open_array(_zarr_store(place), mode="r+")


def _append_zarr(place: str, values: Any) -> None:
    _open_zarr(place).append(values)


def _open_with_pipeline(place: str) -> Any:
    import zarr

    import ingot.interop.zarr  # noqa: F401 - it registers the pipeline

    zarr.config.set({"codec_pipeline.path": "ingot.interop.zarr.IngotCodecPipeline"})
    return _open_zarr(place)


def _append_with_pipeline(place: str, values: Any) -> None:
    _open_with_pipeline(place).append(values)


def _append_by_ingot(place: str, values: Any) -> None:
    import ingot.interop.zarr

    ingot.interop.zarr.append(_open_zarr(place), values)


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


def _append_ingot(place: str, values: Any) -> None:
    _open_ingot(place).append(values)


def _store_ingot(data: Any, place: str) -> None:
    from ingot.interop.dask import store

    store(data, place)


CONTESTANTS: Final = (
    Contestant("zarr", _make_zarr, _open_zarr, _store_by_dask(_open_zarr), _append_zarr),
    Contestant(
        "zarr, pipeline of Ingot",
        _make_zarr,
        _open_with_pipeline,
        _store_by_dask(_open_with_pipeline),
        _append_with_pipeline,
    ),
    Contestant(
        "zarr, append of Ingot",
        _make_zarr,
        _open_zarr,
        _store_by_dask(_open_zarr),
        _append_by_ingot,
        ("appends",),
    ),
    Contestant("Ingot", _make_ingot, _open_ingot, _store_ingot, _append_ingot),
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


def shards(library: Contestant, place: str, rng: random.Random) -> Tally:
    """Let processes write chunks of one shard, each its own."""
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


def appends(library: Contestant, place: str, rng: random.Random) -> Tally:
    """Let processes append batches to one array; a batch has a number of its own."""
    in_child(lambda: library.make(place, (0,), (CHUNK * BATCH,), None))

    def appender(number: int) -> Callable[[], int]:
        def append() -> int:
            done = 0
            for batch in range(BATCHES):
                value = 1 + number * BATCHES + batch
                library.append(place, np.full(BATCH, value, "i8"))
                done += 1
            return done

        return append

    done = sum(_together([appender(number) for number in range(APPENDERS)]))
    found = library.read(place)
    values, counts = np.unique(found, return_counts=True)
    whole = sum(1 for value, count in zip(values, counts, strict=True) if value and count == BATCH)
    return Tally(done - whole, done)


def unaligned(library: Contestant, place: str, rng: random.Random) -> Tally:
    """Let Dask store blocks that do not end where chunks end."""
    rows = 600
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


def killed(library: Contestant, place: str, rng: random.Random) -> Tally:
    """Kill a process that assigns a whole array again and again; mixed values are wrong."""
    in_child(lambda: library.make(place, KILLED, (1, KILLED[1]), None))
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        try:
            silence()
            array, value = library.open(place), 0
            while True:
                value += 1
                array[...] = value
                if value == 1:
                    os.write(send, b"1")
        finally:
            os._exit(1)
    os.close(send)
    begun = os.read(receive, 1)
    if begun:
        time.sleep(rng.random() * 0.3)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(receive)
    if not begun:
        return Tally(0, 0)  # The first assignment ended with an error: nothing was acknowledged.
    found = library.read(place)
    return Tally(int(found.size == 0 or (found != found.flat[0]).any()), 1)


PROGRAMS: Final = {
    "shards": shards,
    "appends": appends,
    "unaligned": unaligned,
    "killed": killed,
}


@contextmanager
def _place(bucket: str | None) -> Iterator[str]:
    """Give a new place: in a temporary folder, or in a bucket."""
    if bucket is not None:
        yield f"{bucket}/{secrets.token_hex(6)}"
        return
    folder = tempfile.mkdtemp(prefix="ingot-losses-")
    try:
        yield os.path.join(folder, "a")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _count(
    name: str, library: Contestant, runs: int, rng: random.Random, bucket: str | None
) -> str:
    """Run a program many times; return how often, and how much, was lost."""
    wrong = lost = of = 0
    for _ in range(runs):
        with _place(bucket) as place:
            found = PROGRAMS[name](library, place, rng)
        wrong += found.wrong > 0
        lost, of = lost + found.wrong, of + found.of
    return f"{wrong} of {runs} | {lost} of {of}"


def on_s3(arguments: Sequence[str]) -> int:
    """Run the programs on a server, in a process that has not used it yet: they fork."""
    with seaweed.running() as server:
        settings = {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": seaweed.KEY,
            "AWS_SECRET_ACCESS_KEY": seaweed.SECRET,
            "AWS_ALLOW_HTTP": "true",
        }
        command = [sys.executable, "-m", "attacks.losses", *arguments, "--at", "s3://crashes"]
        return subprocess.run(command, env={**os.environ, **settings}, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each program and contestant."""
    parser = argparse.ArgumentParser(prog="python -m attacks.losses", description=__doc__)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help="which programs")
    parser.add_argument("--runs", type=int, default=20, help="how often each is run")
    parser.add_argument("--only", help="the name of one contestant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--s3", action="store_true", help="start an S3 server, and run on it")
    parser.add_argument("--at", help="the address of a bucket that the environment gives access to")
    given = parser.parse_args(arguments)
    if given.s3:
        chosen = sys.argv[1:] if arguments is None else arguments
        return on_s3([each for each in chosen if each != "--s3"])
    print("| program | library | runs with losses | lost of what was acknowledged |")
    print("|---|---|--:|--:|")
    for name in given.programs or PROGRAMS:
        for library in CONTESTANTS:
            if given.only in (None, library.name) and name in library.programs:
                rng = random.Random(given.seed)
                found = _count(name, library, given.runs, rng, given.at)
                print(f"| {name} | {library.name} | {found} |")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
