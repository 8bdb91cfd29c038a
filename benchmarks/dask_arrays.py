"""Dask on two workers: an array is rechunked and reduced, on Ingot and on zarr.

    python -m benchmarks.dask_arrays --gigabytes 2

The workers are processes of one thread. Both libraries have the same data, in chunks of the same
shape, with their default codecs. Contenders take turns; the best of several turns counts. The
overhead of a chunk is what reading or storing a block of one small chunk costs more than a block of
ones that is dropped, with the synchronous scheduler of Dask and without syncs, which zarr has not.
"""

import argparse
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.verify import require
from ingot.interop import dask as door
from ingot.options import Options

__all__ = ["CHUNKS", "main", "overhead"]

COLUMNS = 8192
CHUNKS = 512, 512
ROW_BLOCKS = 512, COLUMNS
COLUMN_BLOCKS = 8192, 512


def _zarr_array(place: str, blocks: Any) -> Any:
    import dask.array

    return dask.array.from_zarr(place, chunks=blocks)


def _zarr_store(data: Any, place: str) -> None:
    import zarr

    target = zarr.create_array(
        place, shape=data.shape, chunks=CHUNKS, dtype=data.dtype, overwrite=True
    )
    data.to_zarr(target)


def _ingot_array(place: str, blocks: Any) -> Any:
    return door.array(place, chunks=blocks)


def _ingot_store(data: Any, place: str) -> None:
    options = Options(durability="process")  # As zarr, which does not sync.
    door.to_ingot(data, place, chunks=CHUNKS, overwrite=True, options=options)


LIBRARIES: Mapping[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "Ingot": (_ingot_array, _ingot_store),
    "zarr": (_zarr_array, _zarr_store),
}


def _made(rows: int) -> Any:
    """Return smooth data with a little noise, as an array of Dask."""
    import dask.array

    rng = dask.array.random.default_rng(1)
    noise = rng.integers(0, 16, (rows, COLUMNS), dtype="i4", chunks=ROW_BLOCKS)
    ramp = dask.array.arange(COLUMNS, dtype="i4", chunks=COLUMNS)
    return noise + ramp * 3


def _timed(call: Callable[[], object]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def _race(folder: Path, rows: int, turns: int) -> dict[str, dict[str, float]]:
    """Return the seconds of each task by library, the best of its turns."""
    times: dict[str, dict[str, float]] = {name: {} for name in LIBRARIES}
    for _ in range(turns):
        sums = {}
        for name, (read, store) in LIBRARIES.items():
            source, target = str(folder / f"{name}.zarr"), str(folder / f"{name}-turned.zarr")
            tasks: dict[str, Callable[[], Any]] = {
                "store": lambda store=store, source=source: store(_made(rows), source),
                "reduce": lambda read=read, source=source: (
                    read(source, ROW_BLOCKS).mean(axis=0).compute()
                ),
                "rechunk": lambda read=read, store=store, source=source, target=target: store(
                    read(source, ROW_BLOCKS).rechunk(COLUMN_BLOCKS), target
                ),
                "rechunked, reduced": lambda read=read, target=target: (
                    read(target, COLUMN_BLOCKS).sum(axis=0).compute()
                ),
            }
            for task, call in tasks.items():
                spent, found = _timed(call)
                times[name][task] = min(spent, times[name].get(task, spent))
            sums[name] = found
        require(bool((sums["Ingot"] == sums["zarr"]).all()), "both libraries give the same sums")
    return times


def _named(block: np.ndarray, block_id: tuple[int, ...] = ()) -> np.ndarray:
    """Do nothing with a block and its number: what is left is the cost of Dask."""
    made = np.empty((1, 1), object)
    made[0, 0] = block_id
    return made


def overhead(folder: Path, chunks: int = 2000, turns: int = 3) -> dict[str, float]:
    """Return the seconds that Ingot adds to those of Dask, for each chunk read or stored."""
    import dask
    import dask.array

    data = dask.array.ones((chunks, 1000), chunks=(1, 1000), dtype="i8")
    options = Options(durability="process")
    settings = {"chunks": (1, 1000), "options": options}
    places = (str(folder / f"small{number}.zarr") for number in itertools.count())
    stored = door.array(str(door.to_ingot(data, next(places), **settings).path), chunks=(1, 1000))

    def named(given: Any) -> Any:
        return given.map_blocks(_named, dtype=object, chunks=(1, 1), meta=np.empty((0, 0), object))

    calls: dict[str, Callable[[], object]] = {
        "Dask": lambda: named(data).compute(),
        "read": lambda: named(stored).compute(),
        "store": lambda: door.to_ingot(data, next(places), **settings),
    }
    with dask.config.set(scheduler="synchronous"):
        best = {name: min(_timed(call)[0] for _ in range(turns)) for name, call in calls.items()}
    return {name: (best[name] - best["Dask"]) / chunks for name in ("read", "store")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dask_arrays", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args(arguments)
    import distributed

    rows = max(1, round(given.gigabytes * 1e9 / (COLUMNS * 4 * 8192))) * 8192
    folder = Path(tempfile.mkdtemp(prefix="ingot-dask-"))
    try:
        each = overhead(folder)
        print("| a chunk of 8 kB | overhead, ms |\n|---|--:|")
        for name, seconds in each.items():
            print(f"| {name} | {seconds * 1e3:.3f} |")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster),
        ):
            times = _race(folder, rows, given.turns)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n| {rows * COLUMNS * 4 / 1e9:.1f} GB, 2 workers | Ingot, s | zarr, s | ratio |")
    print("|---|--:|--:|--:|")
    for task, ours in times["Ingot"].items():
        theirs = times["zarr"][task]
        print(f"| {task} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
