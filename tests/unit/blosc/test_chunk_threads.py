"""Many threads, and children of a process that has used threads."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ingot.native import Kernel
from tests.kernels import load, on_each_kernel

CODECS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
PATIENCE = 60.0


def data_of(seed: int) -> bytes:
    steps = np.random.default_rng(seed).integers(0, 9, 20_000)
    return np.cumsum(steps).tobytes()


def chunk_of(kernel: Kernel, seed: int) -> bytes:
    return kernel.compress(data_of(seed), 8, CODECS[seed % len(CODECS)], 5, "shuffle", 16 << 10, 2)


@on_each_kernel
def test_eight_threads_decode_different_chunks(kernel_name: str) -> None:
    kernel = load(kernel_name)
    chunks = [chunk_of(kernel, seed) for seed in range(8)]

    def work(seed: int) -> bool:
        data = data_of(seed)
        return all(
            kernel.decompress(chunks[seed], None, 1 + turn % 3) == data
            and kernel.decompress_slice(chunks[seed], 999, 9999) == data[999 * 8 : 9999 * 8]
            for turn in range(6)
        )

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [True] * 8


@on_each_kernel
def test_eight_threads_encode_different_data(kernel_name: str) -> None:
    kernel = load(kernel_name)
    expected = [chunk_of(kernel, seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda seed: chunk_of(kernel, seed), range(8))) == expected


@on_each_kernel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_of_a_process_that_used_threads_decode(kernel_name: str) -> None:
    kernel = load(kernel_name)
    chunk, data = chunk_of(kernel, 1), data_of(1)
    assert kernel.decompress(chunk, None, 4) == data
    sys.stdout.flush()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                whole = kernel.decompress(chunk, None, 4) == data
                again = kernel.compress(data, 8, "lz4", 5, "shuffle", 0, 4)
                status = 0 if whole and kernel.decompress(again, None, 4) == data else 2
            finally:
                os._exit(status)
        children.append(child)
    assert [wait_for(child) for child in children] == [0, 0, 0]
    assert kernel.decompress(chunk, None, 4) == data


def wait_for(child: int) -> int:
    """Return the child's exit status; one that hangs is killed and gives -9."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
