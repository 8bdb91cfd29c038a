"""A damaged chunk whose streams have checksums is never read as other data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from tests.kernels import on_each_kernel
from tests.storage import use_kernel

ROWS = 4000
VALUES = np.repeat(np.arange(ROWS // 80, dtype="<i4") ** 2 % 1009, 80)
KEYS: tuple[Any, ...] = (..., slice(5, 9), slice(1990, 2010), slice(None, 2000, 500))

# The header of a Blosc chunk has no checksum. These bits of it change how items are put back into
# order and not where streams lie, so that every value of them is possible: flags 0x01 and 0x04 (the
# filter), and the size of an item.
UNCOVERED = {(2, 0), (2, 2)} | {(3, bit) for bit in range(8)}


@on_each_kernel
@pytest.mark.parametrize(
    "codec", ["blosc:zlib:5:shuffle", "blosc:zlib:5:noshuffle", "zlib:5", "gzip:5"]
)
def test_no_flipped_bit_of_a_stream_with_a_checksum_is_read(
    kernel_name: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    ingot.array(VALUES, tmp_path / "a", codec=codec, chunks=ROWS, format="zarr2").close()
    assert silent_flips(tmp_path / "a", "0") <= (UNCOVERED if "blosc" in codec else set())


@on_each_kernel
@pytest.mark.parametrize("codec", ["blosc:lz4:5:shuffle", "blosc:zlib:5:shuffle", "none"])
def test_a_checksum_in_zarr2_covers_every_bit(
    kernel_name: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    values, layout = VALUES[:200:5], {"format": "zarr2", "checksum": True}
    ingot.array(values, tmp_path / "a", codec=codec, chunks=len(values), **layout).close()
    assert silent_flips(tmp_path / "a", "0", values, (..., slice(3, 5))) == set()


def silent_flips(
    path: Path, key: str, values: Any = VALUES, keys: tuple[Any, ...] = KEYS
) -> set[tuple[int, int]]:
    """Return the bits, as byte and number, that read as other data when they are flipped."""
    file = path / key
    sound = file.read_bytes()
    assert len(sound) < 500
    found = set()
    with ingot.open(path) as array:
        for at in range(len(sound)):
            for bit in range(8):
                file.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << bit]) + sound[at + 1 :])
                if any(reads_other(array, part, values) for part in keys):
                    found.add((at, bit))
        file.write_bytes(sound)
        assert np.array_equal(array[...], values)
    return found


def reads_other(array: Any, key: Any, values: Any) -> bool:
    try:
        return not np.array_equal(array[key], values[key])
    except (CorruptionError, FormatError, UnsupportedError):
        return False
