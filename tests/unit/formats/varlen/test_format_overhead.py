"""What a file of items costs beside its compressed bytes, at the lengths of items of D23."""

import struct
from pathlib import Path

import numpy as np
import pytest
from numcodecs import blosc

import ingot

DIGEST = 4
HEADER = 32
CODEC = "blosc:zstd:5:0"
# Packs of 256 KiB are 2 to 4 % larger than those of C-Blosc: their blocks are shorter, so that
# single items are read faster.
PACKS = 16 << 10, 64 << 10


def texts(mean: int) -> list[bytes]:
    """Return about 400 KB of text with a vocabulary, in items of this mean length."""
    chance = np.random.default_rng(mean)
    words = [bytes(chance.integers(97, 123, size).tolist()) for size in chance.integers(2, 11, 500)]
    drawn = chance.zipf(1.3, 400_000 // 6) % len(words)
    text = b" ".join(words[number] for number in drawn.tolist())[:400_000]
    # Lengths from half the mean to one and a half of it, which add up to what there is.
    lengths = chance.integers(mean // 2, mean + mean // 2 + 1, 2 * len(text) // mean + 2)
    ends = np.cumsum(lengths)
    return [
        text[end - size : end] for end, size in zip(ends, lengths, strict=True) if end <= 400_000
    ]


def reference(items: list[bytes], pack_bytes: int) -> int:
    """Return the bytes of the packs as C-Blosc makes them, with digests and entries."""
    total, at = 0, 0
    while at < len(items):
        stop, size = at + 1, len(items[at])
        while stop < len(items) and size + len(items[stop]) <= pack_bytes:
            size += len(items[stop])
            stop += 1
        lengths = struct.pack(f"<{stop - at}I", *map(len, items[at:stop]))
        total += len(blosc.compress(lengths, b"zstd", 5, 1, 0, 4))
        total += len(blosc.compress(b"".join(items[at:stop]), b"zstd", 5, 0, 0, 1))
        total += 2 * DIGEST + 16
        at = stop
    return total


def cost(items: list[bytes], path: Path, **layout: object) -> tuple[int, int]:
    """Return the bytes of a file, and of its header and metadata."""
    ingot.ragged(items, path, codec=CODEC, checksum="adler32", slots=0, **layout)
    data = path.read_bytes()
    return len(data), HEADER + struct.unpack_from("<i", data, 24)[0]


@pytest.mark.parametrize("mean", [10, 60, 600, 4000, 14_000])
def test_packs_cost_what_the_chunks_of_c_blosc_cost(tmp_path: Path, mean: int) -> None:
    items = texts(mean)
    single, _ = cost(items, tmp_path / "single.blv", packed=False)
    for pack_bytes in PACKS:
        path = tmp_path / f"{pack_bytes}.blv"
        size, front = cost(items, path, packed=True, pack_bytes=pack_bytes)
        # Encoders of other versions of a codec find a few bytes more or less.
        assert size <= 1.005 * (reference(items, pack_bytes) + front)
        assert size < single or mean > pack_bytes / 4


def test_one_chunk_for_each_item_costs_28_bytes_where_none_is_compressed(tmp_path: Path) -> None:
    # The header of Blosc, a digest, an offset: 38.0 bytes for an item of 10 in D23.
    items = [item[:10].ljust(10) for item in texts(10)]
    size, front = cost(items, tmp_path / "single.blv", packed=False)
    assert size - front == 38 * len(items)
