"""Super-chunk files: heads and indexes that are read, those that are refused, and free space."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.errors import CorruptionError, FormatError, IngotError, UnsupportedError
from ingot.formats.blsk.chunk_file import (
    FreeSpace,
    Head,
    SuperChunk,
    find_capacity,
    pack_entries,
    slots_begin,
)


def packed(offsets: list[int], nchunks: int | None = None, size: int = 500) -> bytes:
    """Return a file of `size` bytes by the drawing of the format."""
    nchunks = len(offsets) if nchunks is None else nchunks
    head = struct.pack("<4sBBHii", b"blsk", 1, 1, 0, 8, nchunks)
    return (head + struct.pack(f"<{len(offsets)}q", *offsets)).ljust(size, b"\0")


def test_the_bytes_are_as_the_format_page_draws_them() -> None:
    assert Head(8, 2).pack() + pack_entries([40, -1]) == packed([40, -1], size=32)
    assert Head(8, 2, trailers=False).pack()[5] == 0
    assert slots_begin(2) == 32


def test_offsets_may_stand_in_any_order() -> None:
    file = SuperChunk.parse(packed([200, -1, 48, 100]), 500, 4, "f")
    assert file.used.tolist() == [0, 2, 3]
    assert file.rooms().tolist() == [300, 0, 52, 100]
    after = file.changed([1, 0], [400, -1], 600, 3)
    assert after.offsets.tolist() == [-1, 400, 48, 100]
    assert after.rooms().tolist() == [0, 200, 52, 300]


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (b"blsk", CorruptionError, "a head needs 16 bytes, 4 are stored"),
        (b"blpk" + bytes(100), FormatError, "begins with b'blpk'"),
        (b"blsk\2" + bytes(100), UnsupportedError, "version 2 is unknown"),
        (b"blsk\1\2" + bytes(100), UnsupportedError, "flags 0x02"),
        (b"blsk\1\1\0\1" + bytes(100), UnsupportedError, "reserved bytes 0x0100"),
        (b"blsk\1\1\0\0" + bytes(100), FormatError, "typesize is 0"),
        (b"blsk\1\1\0\0" + struct.pack("<ii", -8, 0) + bytes(100), FormatError, "typesize is -8"),
        (packed([48] * 4, nchunks=-1), FormatError, "nchunks is -1"),
        (packed([48] * 4, nchunks=5), CorruptionError, "claims 5 chunks, the index has 4"),
        (packed([], nchunks=0, size=40), CorruptionError, "an index of 4 entries ends at byte 48"),
        (packed([47, -1, -1, -1]), CorruptionError, "chunk 0 starts at 47, slots lie from byte 48"),
        (packed([0, -1, -1, -1]), CorruptionError, "chunk 0 starts at 0"),
        (packed([48, -2, -1, -1]), CorruptionError, "chunk 1 starts at -2"),
        (packed([48, 485, -1, -1]), CorruptionError, "chunk 1 starts at 485"),
        (packed([48, 2**62, -1, -1]), CorruptionError, "chunk 1 starts at 4611686018427387904"),
        (packed([48, 48, -1, -1]), CorruptionError, "two chunks start at 48 and 48"),
        (packed([48, 63, -1, -1]), CorruptionError, "two chunks start at 48 and 63"),
        (packed([48, -1, 90, -1], nchunks=2), CorruptionError, "chunk 2 has an offset, nchunks is"),
    ],
)
def test_what_is_refused(data: bytes, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"f: .*{said}"):
        SuperChunk.parse(data, len(data), 4, "f")


def test_the_capacity_without_metadata_is_what_the_index_shows() -> None:
    assert find_capacity(packed([48, 100, -1, -1], nchunks=2), "f") == 4
    assert find_capacity(packed([], nchunks=0, size=16), "f") == 0
    with pytest.raises(CorruptionError, match="claims 9 chunks, 40 bytes are stored"):
        find_capacity(packed([1, 2, 3], nchunks=9, size=40), "f")


@given(st.binary(max_size=80), st.integers(0, 10))
def test_any_bytes_are_an_index_or_an_error(data: bytes, capacity: int) -> None:
    for content in (data, Head(8, 1).pack() + data):
        try:
            file = SuperChunk.parse(content, len(content), capacity, "f")
        except IngotError:
            continue
        assert (file.rooms() >= 0).all()
        assert (file.rooms()[file.used] >= 16).all()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=8), st.data())
def test_free_space_is_given_out_once(slots: list[tuple[int, int]], data: st.DataObject) -> None:
    used = np.zeros(400, bool)
    starts, lengths, at = [], [], 16
    for gap, length in slots:
        starts.append(at + gap)
        lengths.append(length)
        at += gap + length
        used[starts[-1] : at] = True
    used[:16] = True
    end = at + data.draw(st.integers(0, 30))
    space = FreeSpace(starts, lengths, begin=16, end=end)
    assert space.dead == end - used[:end].sum()
    for length in data.draw(st.lists(st.integers(1, 30), max_size=12)):
        runs = "".join("x" if each else "." for each in used[:end]).split("x")
        place = space.take(length)
        assert (place is None) == (max(map(len, runs), default=0) < length)
        if place is not None:
            assert not used[place : place + length].any()
            assert place + length <= end
            used[place : place + length] = True
    assert space.dead == end - used[:end].sum()


def test_slots_that_overlap_are_refused() -> None:
    with pytest.raises(CorruptionError, match="overlap"):
        FreeSpace([100, 120], [30, 10], begin=80, end=200)
    with pytest.raises(CorruptionError, match="overlap"):
        FreeSpace([100], [120], begin=80, end=200)
