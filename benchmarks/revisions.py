"""Two revisions of Ingot against each other: ``python -m benchmarks.revisions BEFORE [AFTER]``.

Each argument is a checkout whose kernel is built; the second one is this checkout by default. A job
runs in a child process per revision, in turns, and uses the public API only. The best time of each
revision counts, and the table shows the ratio: above 1.03 the later revision is slower by more than
the noise that is accepted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

__all__ = ["main"]

Job = Callable[[], object]


def jobs(folder: Path, scale: float) -> Iterator[tuple[str, str, Job]]:
    """Yield the group and name of each job, and a function that does it once."""
    import ingot

    rng = np.random.default_rng(7)
    process = ingot.Options(durability="process")
    length = max(50, int(200 * scale))
    field = np.cumsum(rng.normal(size=(length, 250, 250)).astype("f4"), axis=0, dtype="f4")
    path = folder / "field"
    array = ingot.array(field, path, chunks=(50, 125, 125), options=process)
    yield "arrays", "open", lambda: ingot.open(path)
    yield "arrays", "full read", lambda: array[...]
    yield "arrays", "box", lambda: array[20:30, 100:110, 60:70]
    yield "arrays", "element", lambda: array[33, 77, 201]
    yield "arrays", "plane [k]", lambda: array[17]
    yield "arrays", "plane [:, :, k]", lambda: array[:, :, 101]
    written = ingot.open(path, "r+", options=process)
    yield "arrays", "write", lambda: written.__setitem__(..., field)

    grown = ingot.create(
        folder / "grown", shape=(0, 128), dtype="f8", chunks=(64, 128), options=process
    )
    rows = rng.normal(size=(64, 128))
    yield "commits", "append of a chunk, process", lambda: grown.append(rows)
    small = ingot.array(rng.normal(size=4096), folder / "small", chunks=1024, options=process)
    yield "commits", "one element, process", lambda: small.__setitem__(7, 1.0)
    yield "commits", "attribute, process", lambda: small.attrs.update(step=1)
    safe = ingot.array(rng.normal(size=4096), folder / "safe", chunks=1024)
    yield "commits", "one element, full", lambda: safe.__setitem__(7, 1.0)

    count = max(100_000, int(2_000_000 * scale))
    columns = {
        "time": np.arange(count),
        "price": np.round(np.cumsum(rng.normal(size=count)), 2),
        "size": rng.integers(1, 1000, count, dtype="i4"),
        "flag": rng.random(count) < 0.1,
        "code": rng.integers(0, 50, count).astype("S3"),
    }
    place = folder / "table"
    table = ingot.table(columns, place, options=process)
    low, high = count // 2, count // 2 + 1000
    yield "tables", "open", lambda: ingot.open(place)
    yield "tables", "column", lambda: table["price"][:]
    yield "tables", "range query", lambda: table.read(where=f"(time >= {low}) & (time < {high})")
    yield "tables", "selective query", lambda: table.read(["price"], where="size == 77")
    scattered = np.sort(rng.choice(count, 1000, replace=False))
    yield "tables", "1000 random rows", lambda: table.read(rows=scattered)
    changed = ingot.table(
        {name: values[:100_000] for name, values in columns.items()},
        folder / "changed",
        options=process,
    )
    more = {name: values[:1000] for name, values in columns.items()}
    yield "tables", "append of 1000 rows, process", lambda: changed.append(more)

    sharded = ingot.array(
        field, folder / "shards", chunks=(10, 25, 25), shards=(50, 125, 125), options=process
    )
    yield "shards", "full read", lambda: sharded[...]
    yield "shards", "box", lambda: sharded[20:30, 100:110, 60:70]
    yield "shards", "element", lambda: sharded[33, 77, 201]
    yield "shards", "outer index", lambda: sharded.oindex[[3, 30], [7, 70, 200]]

    tiny = ingot.array(
        rng.integers(0, 9, (400, 400), dtype="i2"),
        folder / "many",
        chunks=(4, 4),
        options=process,
    )
    yield "many", "full read of 10 000 chunks", lambda: tiny[...]
    yield "many", "row of chunks", lambda: tiny[5]


def measure(scale: float, seconds: float) -> dict[str, float]:
    """Return the best time of every job, in seconds."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ingot-revisions-") as name:
        for group, title, job in jobs(Path(name), scale):
            job()
            end = time.perf_counter() + seconds
            fastest = float("inf")
            while time.perf_counter() < end:
                start = time.perf_counter()
                job()
                fastest = min(fastest, time.perf_counter() - start)
            best[f"{group}: {title}"] = fastest
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both revisions in turns, print the table, and return 1 when one job got slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.revisions")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each job and round")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(options.scale, options.seconds)))
        return 0
    best: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        for place in order:
            checkout = (options.before, options.after)[place]
            for job, seconds in _child(checkout, options).items():
                times = best.setdefault(job, [float("inf"), float("inf")])
                times[place] = min(times[place], seconds)
    print(f"{'job':40} {'before us':>12} {'after us':>12} {'after/before':>13}")
    slower = 0
    for job, (before, after) in best.items():
        slower += after / before > 1.03
        print(f"{job:40} {before * 1e6:12.1f} {after * 1e6:12.1f} {after / before:13.2f}")
    return 1 if slower else 0


def _child(checkout: Path, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, str(options.before), "--child"]
    command += ["--seconds", str(options.seconds), "--scale", str(options.scale)]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
