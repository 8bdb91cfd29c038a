"""zarr-python with Ingot's codec pipeline beside its own pipelines and zarrs.

    python -m benchmarks.pipeline [--scale 0.25] [--rounds 7]

Each pipeline has a process of its own; the jobs of all of them alternate, and the best time of each
counts. What the system takes to hand out and clear the memory of a full read, and to copy as many
bytes into it, is measured in the same turns. Run it with a Python that has the newest zarr-python,
zarrs and Ingot.
"""

import argparse
import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

PIPELINES = {
    "ingot": "ingot.interop.zarr.IngotCodecPipeline",
    "zarr, fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarr, default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}


def _shape(scale: float) -> tuple[int, int, int]:
    return max(50, int(400 * scale) // 50 * 50), 500, 500


def copied(source: Any, threads: int) -> float:
    """Return the seconds of copying an array into new memory, by so many threads."""
    parts = np.array_split(np.arange(len(source)), threads)
    start = time.perf_counter()
    target = np.empty_like(source)

    def copy(rows: Any) -> None:
        np.copyto(target[rows[0] : rows[-1] + 1], source[rows[0] : rows[-1] + 1])

    if threads == 1:
        copy(parts[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(copy, parts))
    return time.perf_counter() - start


def worker(name: str, folder: str, scale: float) -> None:
    """Run jobs as their names come in on standard input; print the seconds of each."""
    import zarr

    # A pipeline is known once its module is loaded.
    importlib.import_module(PIPELINES[name].rpartition(".")[0])
    zarr.config.set({"codec_pipeline.path": PIPELINES[name]})
    shape = _shape(scale)
    rng = np.random.default_rng(7)
    data = np.cumsum(rng.normal(size=shape).astype("f4"), axis=0).round(2)
    codec = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    arrays = {
        kind: zarr.create_array(
            f"{folder}/{name}-{kind}.zarr", shape=shape, dtype="f4", compressors=codec, **layout
        )
        for kind, layout in {
            "chunks": {"chunks": (50, 125, 125)},
            "shards": {"chunks": (10, 50, 50), "shards": (50, 250, 250)},
        }.items()
    }
    words = np.array([f"word {number % 977}" * (number % 5) for number in range(400_000)], "T")
    shape = {"shape": words.shape, "chunks": (20_000,), "dtype": "string"}
    arrays["text"] = zarr.create_array(f"{folder}/{name}-text.zarr", **shape)
    content = {"chunks": data, "shards": data, "text": words}
    jobs: dict[str, Callable[[Any, Any], Any]] = {
        "write": lambda array, values: array.__setitem__(..., values),
        "full read": lambda array, _: array[...],
        "10^3 box": lambda array, _: array[11:21, 101:111, 101:111],
        "element": lambda array, _: array[13, 17, 19],
        "plane [k]": lambda array, _: array[33],
        "plane [:, :, k]": lambda array, _: array[:, :, 33],
    }
    print("ready", flush=True)
    for line in sys.stdin:
        kind, job = line.strip().split("|")
        count = 1 if job in ("write", "full read") else 20
        best = float("inf")
        for _ in range(count):
            start = time.perf_counter()
            result = jobs[job](arrays[kind], content[kind])
            best = min(best, time.perf_counter() - start)
        if job == "full read" and not np.array_equal(result, content[kind]):
            raise AssertionError(f"{name} reads wrong data")
        print(best, flush=True)


def main() -> None:
    """Compare the pipelines and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        name, folder, scale = given.worker
        worker(name, folder, float(scale))
        return
    folder = tempfile.mkdtemp(prefix="pipeline-")
    children = {}
    for name in PIPELINES:
        command = [sys.executable, "-m", "benchmarks.pipeline"]
        command += ["--worker", name, folder, str(given.scale)]
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert child.stdout is not None
        if child.stdout.readline().strip() == "ready":
            children[name] = child
        else:
            print(f"{name} does not start and is left out", file=sys.stderr)
    jobs = [
        f"{kind}|{job}"
        for kind in ("chunks", "shards")
        for job in ("write", "full read", "10^3 box", "element", "plane [k]", "plane [:, :, k]")
    ]
    jobs += ["text|write", "text|full read"]
    best: dict[tuple[str, str], float] = {}
    source, copies = np.ones(_shape(given.scale), "f4"), {1: float("inf"), 2: float("inf")}
    for _ in range(given.rounds):
        copies = {count: min(least, copied(source, count)) for count, least in copies.items()}
        for job in jobs:
            for name, child in children.items():
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(job + "\n")
                child.stdin.flush()
                seconds = float(child.stdout.readline())
                best[name, job] = min(seconds, best.get((name, job), seconds))
    for child in children.values():
        child.communicate()
    shutil.rmtree(folder)
    others = [name for name in children if name != "ingot"]
    print("| job | " + " | ".join(f"{name} ms" for name in children) + " | best other / ingot |")
    print("|---|" + "--:|" * (len(children) + 1))
    for job in jobs:
        times = [best[name, job] * 1e3 for name in children]
        ratio = min(best[name, job] for name in others) / best["ingot", job]
        cells = " | ".join(f"{value:.3f}" for value in times)
        print(f"| {job.replace('|', ': ')} | {cells} | {ratio:.2f} |")
    times = " and ".join(f"{least * 1e3:.1f} ms by {count}" for count, least in copies.items())
    print(f"\nThe same bytes are copied into new memory in {times} threads.")


if __name__ == "__main__":
    main()
