"""Both kernels judge damaged files alike: the same data, or errors of the same class.

``docs/decisions/0011-kinds-of-errors.md`` is the rule.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, IngotError
from ingot.formats.registry import register, unregister
from tests.contracts.toy.flat import ENTRY, HEAD
from tests.kernels import needs_native
from tests.storage import use_kernel

VALUES = np.repeat(np.arange(300, dtype="<i4") ** 2 % 1009, 6)
ROWS = 600
KEYS: tuple[Any, ...] = (..., slice(3, 9), 5, slice(None, None, 190))
BLOSC = "blosc:lz4:5:shuffle"
LAYOUTS: list[dict[str, Any]] = [
    *({"format": name, "codec": BLOSC} for name in ("zarr0", "zarr1", "zarr2", "zarr3", "bcolz")),
    *(
        {"format": "zarr2", "codec": f"blosc:{codec}"}
        for codec in ("zlib:5:noshuffle", "zstd:3:bitshuffle", "blosclz:5:shuffle")
    ),
    *({"format": "zarr2", "codec": codec} for codec in ("zstd:3", "zlib:3", "lz4", "none")),
    {"format": "zarr2", "codec": BLOSC, "checksum": True},
    {"format": "zarr3", "codec": BLOSC, "checksum": False},
    {"format": "zarr3", "codec": BLOSC, "shards": ROWS, "chunks": 200},
    {"format": "zarr3", "codec": "zstd:3", "shards": ROWS, "chunks": 200, "checksum": False},
    {"format": "bcolz", "codec": "blosc:zlib:5:noshuffle"},
]


FLAT: list[dict[str, Any]] = [
    {"format": "toyflat", "order": order, "chunk_bytes": size, "checksum": checksum}
    for order in "CF"
    for size, checksum in ((2400, "none"), (2402, "none"), (2400, "adler32"), (2401, "sha224"))
]


@pytest.fixture
def toyflat() -> Iterator[None]:
    """Register the format of flat arrays for one test."""
    register(ENTRY)
    yield
    unregister("toyflat")


def damage(content: bytes, choose: random.Random) -> bytes:
    """Return the content with a flipped bit, a changed byte, cut, longer, or as zeros."""
    changed = bytearray(content)
    how = choose.choice(
        ("flip", "flip", "flip in front", "flip in front", "set", "cut", "more", "zeros")
    )
    if how == "cut":
        del changed[choose.randrange(len(changed)) :]
    elif how == "more":
        changed += choose.randbytes(choose.randrange(1, 9))
    elif how == "zeros":
        changed = bytearray(len(changed))
    else:
        place = choose.randrange(len(changed) if how == "flip" else min(len(changed), 90))
        changed[place] = (
            choose.randrange(256) if how == "set" else changed[place] ^ 1 << choose.randrange(8)
        )
    return bytes(changed)


def verdict(path: Path, key: Any, kernel: str) -> list[Any] | int | type[IngotError]:
    """Return the items, or the class of the error."""
    with pytest.MonkeyPatch.context() as patch:
        use_kernel(kernel, patch)
        try:
            with ingot.open(path) as array:
                return array[key].tolist()
        except IngotError as error:
            return type(error)


@needs_native
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(map(str, layout.values())))
def test_both_kernels_judge_a_damaged_file_alike(layout: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a"
    ingot.array(VALUES, path, **{"chunks": ROWS} | layout).close()
    choose = random.Random(12)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
    for _ in range(50):
        file = choose.choice(files)
        sound = file.read_bytes()
        file.write_bytes(damage(sound, choose))
        for key in KEYS:
            ours, twin = (verdict(path, key, kernel) for kernel in ("native", "python"))
            # A part may come from the beginning of a stream that is damaged further on.
            left_early = key is not ... and not isinstance(ours, type) and twin is CorruptionError
            assert ours == twin or left_early, (file, key)
        file.write_bytes(sound)


@needs_native
@pytest.mark.parametrize("layout", FLAT, ids=lambda layout: "-".join(map(str, layout.values())))
def test_both_kernels_judge_damaged_flat_chunks_alike(
    layout: dict[str, Any], tmp_path: Path, toyflat: None
) -> None:
    path = tmp_path / "a"
    ingot.array(VALUES.reshape(-1, 12), path, **layout).close()
    content = path.read_bytes()
    choose = random.Random(12)
    for _ in range(20):
        path.write_bytes(content[:HEAD] + damage(content[HEAD:], choose))
        for key in (*KEYS[:3], (slice(None), 5), ([3, 149], slice(2, 4))):
            ours, twin = (verdict(path, key, kernel) for kernel in ("native", "python"))
            left_early = key is not ... and not isinstance(ours, type) and twin is CorruptionError
            assert ours == twin or left_early, key
