"""Reading one array from S3 with latency: Ingot, zarr with obstore, tensorstore, blosc2.

python -m benchmarks.objects --rounds 5

The server is SeaweedFS on loopback; a process in front of it adds 10 ms to every request. Every
measurement opens the array anew, as a program does that reads once. Contenders take turns. blosc2
reads a file of its own format, with the same chunks, by s3fs. Ingot is measured twice: as it is by
default, where a read proves that all bytes are of one commit, and told that nothing changes, which
the others take for granted.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import blosc2
import numpy as np
import obstore.store
import tensorstore
import zarr
import zarr.storage

import ingot
from benchmarks.latency import away
from tests import seaweed

SHAPE, CHUNKS = (256, 512, 64), (64, 128, 32)
BUCKET, PATH, FRAME = "reading", "bench/array.zarr", "bench/array.b2nd"
BOX = np.s_[100:110, 200:210, 20:30]


def values() -> Any:
    """Return smooth data with noise, as of an instrument."""
    noise = np.random.default_rng(3).normal(size=SHAPE)
    return (np.cumsum(noise, axis=0) * 100).round().astype("f4")


def readers(server: seaweed.S3Server, endpoint: str) -> dict[str, Callable[[], Any]]:
    """Return what opens the array, by library; the result is indexed like an array."""
    storage = server.storage(endpoint)

    def ours(**more: object) -> Any:
        options = ingot.Options(storage={**storage, **more})
        return ingot.open(f"s3://{BUCKET}/{PATH}", options=options)

    def zarrs() -> Any:
        client = {"allow_http": True}
        store = obstore.store.S3Store(BUCKET, prefix=PATH, client_options=client, **storage)
        return zarr.open_array(zarr.storage.ObjectStore(store, read_only=True), mode="r")

    def tensors() -> Any:
        spec = {
            "driver": "zarr3",
            "kvstore": {
                "driver": "s3",
                "bucket": BUCKET,
                "path": f"{PATH}/",
                "endpoint": endpoint,
                "aws_region": "us-east-1",
                "aws_credentials": {"type": "environment"},
            },
        }
        return _Tensor(tensorstore.open(spec, read=True, open=True).result())

    def frames() -> Any:
        options = {"key": seaweed.KEY, "secret": seaweed.SECRET, "endpoint_url": endpoint}
        return blosc2.open(f"s3://{BUCKET}/{FRAME}", storage_options=options)

    return {
        "Ingot": ours,
        "Ingot, unchanging": partial(ours, unchanging=True, first_bytes=1 << 20),
        "zarr + obstore": zarrs,
        "tensorstore": tensors,
        "blosc2 + s3fs": frames,
    }


def store_frame(data: Any, server: seaweed.S3Server) -> None:
    """Store the file that blosc2 reads."""
    bucket = obstore.store.S3Store(BUCKET, client_options={"allow_http": True}, **server.storage())
    bucket.put(FRAME, blosc2.asarray(data, chunks=CHUNKS).to_cframe())


class _Tensor:
    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> Any:
        return self._array[key].read().result()


def main() -> None:
    """Measure, and print a table of the least milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay", type=float, default=0.010, help="seconds added to a request")
    given = parser.parse_args()
    # tensorstore takes credentials from the environment only.
    os.environ.update(AWS_ACCESS_KEY_ID=seaweed.KEY, AWS_SECRET_ACCESS_KEY=seaweed.SECRET)
    data = values()
    jobs = {"full read": np.s_[:, :, :], "box": BOX, "element": np.s_[130, 300, 40]}
    with seaweed.running() as server, away(server.endpoint, given.delay) as endpoint:
        options = ingot.Options(storage=server.storage())
        ingot.array(data, f"s3://{BUCKET}/{PATH}", chunks=CHUNKS, options=options)
        store_frame(data, server)
        least: dict[tuple[str, str], float] = {}
        contenders = readers(server, endpoint)
        for _ in range(given.rounds):
            for job, key in jobs.items():
                for name, open_array in contenders.items():
                    begin = time.perf_counter()
                    found = open_array()[key]
                    spent = time.perf_counter() - begin
                    assert np.array_equal(found, data[key])
                    least[job, name] = min(spent, least.get((job, name), spent))
    print("| ms, open included |", *(f"{name} |" for name in contenders))
    print("|---|", *("--:|" for _ in contenders))
    for job in jobs:
        print(f"| {job} |", *(f"{1000 * least[job, name]:.1f} |" for name in contenders))


if __name__ == "__main__":
    main()
