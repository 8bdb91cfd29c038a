"""Memory that another thread changes while it is encoded: what is stored fits together."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.codecs.zone_maps import zone_map_of
from ingot.formats.bcolz.chunk_file import zone_in
from tests.kernels import needs_native
from tests.storage import identity_of, use_kernel

pytestmark = needs_native


@pytest.fixture(autouse=True)
def native_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel("native", monkeypatch)


@contextmanager
def changing(values: NDArray[Any], *others: NDArray[Any]) -> Iterator[None]:
    """Let a thread copy others over the values, again and again."""
    ended, begun = threading.Event(), threading.Event()

    def change() -> None:
        while not ended.is_set():
            for other in others:
                np.copyto(values, other)
            begun.set()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("codec", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_chunks_of_memory_that_changes_decode(codec: str, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    low, high = (random.integers(0, most, 1 << 17, np.uint8) for most in (4, 256))
    values = low.copy()
    with changing(values, high, low):
        for number in range(5):
            path = tmp_path / f"{number}.blp"
            array = ingot.array(values, path, format="bloscpack", codec=f"blosc:{codec}:5")
            assert array[...].shape == values.shape


def test_zone_maps_of_memory_that_changes_fit_the_chunks(tmp_path: Path) -> None:
    numbers = np.arange(1 << 16)
    values = numbers.copy()
    with changing(values, numbers[::-1].copy(), numbers * -1, numbers + 1000, numbers):
        for number in range(20):
            array = ingot.array(values, tmp_path / f"{number}", format="bcolz", chunks=len(values))
            (cost,) = array.explain().costs
            stored = (tmp_path / f"{number}" / cost.key).read_bytes()
            zone = zone_map_of(array[...])
            assert zone is not None
            assert zone_in(stored, 0, identity_of(tmp_path / f"{number}")) == zone.pack(
                values.dtype
            )
