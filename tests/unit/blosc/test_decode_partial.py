"""How many bytes of a chunk's file are read for one item: not more than the item needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import blosc
from tests.kernels import load, needs_native

COUNTERS = Path("/proc/self/io")

pytestmark = [
    needs_native,
    pytest.mark.skipif(not COUNTERS.exists(), reason="this system does not count bytes read"),
]

COUNT, BLOCK, FIRST_READ = 1 << 20, 64 << 10, 4096
SMOOTH = np.arange(COUNT, dtype="<i4") // 3
NOISE = np.random.default_rng(5).integers(0, 2**31, COUNT, dtype="<i4")


def count_read(call: Callable[[], Any]) -> int:
    """Count the bytes that the process reads from files during a call."""

    def total() -> int:
        return int(COUNTERS.read_text().split()[1])

    before = total()
    overhead = total() - before
    before = total()
    call()
    return total() - before - overhead


def read_item(path: Path, item: int) -> tuple[int, int]:
    """Read one item from a chunk's file; return it, and how many bytes that took."""
    kernel: Any = load("native")
    # The array has one chunk, whose key is the name of the file.
    layout = kernel.Layout(
        kernel.Addresses(root=path.parent, names=(path.name, ".", "", ""), leading=0),
        kernel.Coding(kind="blosc", codec="lz4", typesize=4),
        kernel.Grid(shape=(COUNT,), chunk=(COUNT,), order=(0,), fill=bytes(4)),
    )
    out = np.zeros(1, "<i4")
    used = count_read(lambda: layout.read(out, (item,), (1,), 1))
    return int(out[0]), used


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("item", [0, 3, COUNT // 2, COUNT - 1])
def test_chunks_stored_as_they_are_give_single_items(
    tmp_path: Path, version: int, item: int
) -> None:
    chunk = blosc.compress(NOISE.tobytes(), typesize=4, version=version, blocksize=BLOCK)
    assert len(chunk) > NOISE.nbytes
    path = tmp_path / "chunk"
    path.write_bytes(chunk)
    found, used = read_item(path, item)
    assert found == NOISE[item]
    assert used <= FIRST_READ + 4


@pytest.mark.parametrize("filters", [["shuffle"], ["delta", "shuffle"], ["delta"], ["bitshuffle"]])
@pytest.mark.parametrize("item", [0, COUNT // 2, COUNT - 1])
def test_blocks_give_single_items(tmp_path: Path, filters: list[str], item: int) -> None:
    chunk = blosc.compress(
        SMOOTH.tobytes(), typesize=4, version=2, filters=filters, blocksize=BLOCK, level=1
    )
    path = tmp_path / "chunk"
    path.write_bytes(chunk)
    found, used = read_item(path, item)
    assert found == SMOOTH[item]
    # Delta takes the first block and the item's; nothing takes more than a fifth of the chunk.
    assert used <= FIRST_READ + (1 + ("delta" in filters)) * BLOCK
    assert used < len(chunk) / 5
