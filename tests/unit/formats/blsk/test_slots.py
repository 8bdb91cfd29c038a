"""Slots: a chunk, its trailer and spare bytes are told apart by what the chunk says of itself."""

import numpy as np
import pytest

from ingot.codecs.codec import ChunkSpec, Raw
from ingot.codecs.compressors import Blosc
from ingot.errors import CorruptionError, IngotError, UnsupportedError
from ingot.formats import trailer
from ingot.formats.blsk.slots import SlotChain, renumbered, split

ITEMS = np.arange(300, dtype="<i4")
CHAIN = SlotChain((), Raw(), (Blosc("lz4", 5, 1, typesize=4),), length=1000, rows=300, across=1)


def spec(number: int) -> ChunkSpec:
    return ChunkSpec((300,), ITEMS.dtype, number=number)


def test_a_trailer_says_how_many_rows_count_and_what_lies_in_them() -> None:
    for number, rows in [(0, 300), (3, 100), (4, 0)]:
        image = CHAIN.encode(ITEMS, number)
        chunk, behind = split(image + bytes(50))
        assert len(chunk) + len(behind) == len(image)
        found = trailer.parse(behind)
        assert (found.number, found.rows) == (number, rows)
        assert bool(found.zone) == (rows > 0)
        if rows:
            assert found.zone[:16] == (0).to_bytes(8, "little") + (rows - 1).to_bytes(8, "little")


@pytest.mark.parametrize("spare", [0, 1, 7, 1000])
def test_spare_bytes_are_no_part_of_a_chunk(spare: int) -> None:
    image = CHAIN.encode(ITEMS, 2)
    assert CHAIN.decode(image + b"\xff" * spare, spec(2)).tolist() == ITEMS.tolist()


def test_a_chunk_without_anything_behind_it_has_no_trailer() -> None:
    chunk, _ = split(CHAIN.encode(ITEMS, 2))
    assert CHAIN.decode(chunk, spec(5)).tolist() == ITEMS.tolist()
    sealed = renumbered(chunk, (2, None), (5, None))
    assert trailer.parse(split(sealed)[1]).rows == 0
    with pytest.raises(CorruptionError, match="bytes behind the chunk are no trailer"):
        CHAIN.decode(bytes(chunk) + bytes(100), spec(2))


def test_another_number_is_another_chunk() -> None:
    image = CHAIN.encode(ITEMS, 2)
    with pytest.raises(CorruptionError, match="this is chunk 2, not 3"):
        CHAIN.decode(image, spec(3))
    moved = renumbered(image, (2, None), (3, None))
    assert CHAIN.decode(moved, spec(3)).tolist() == ITEMS.tolist()
    assert split(moved)[0] == split(image)[0]
    assert trailer.parse(split(moved)[1]).zone == trailer.parse(split(image)[1]).zone


def test_damage_is_noticed_wherever_it_is() -> None:
    image = bytearray(CHAIN.encode(ITEMS, 2))
    for place in range(len(image)):
        image[place] ^= 0x10
        with pytest.raises(IngotError):
            CHAIN.decode(image, spec(2))
        image[place] ^= 0x10
    for length in range(len(image)):
        if length != len(split(image)[0]):
            with pytest.raises(IngotError):
                CHAIN.decode(image[:length], spec(2))


def test_more_rows_than_a_chunk_has_are_refused() -> None:
    chunk, _ = split(CHAIN.encode(ITEMS, 0))
    with pytest.raises(CorruptionError, match="301 rows are claimed, a chunk has 300"):
        CHAIN.decode(bytes(chunk) + trailer.pack(chunk, 0, 301), spec(0))


def test_an_unknown_version_is_said_before_an_impossible_length() -> None:
    image = bytearray(CHAIN.encode(ITEMS, 0))
    image[12:16] = (1 << 20).to_bytes(4, "little")
    with pytest.raises(CorruptionError, match=f"cbytes claims 1048576 bytes, {len(image)} are"):
        CHAIN.decode(image, spec(0))
    image[0] = 200
    with pytest.raises(UnsupportedError, match="version 200"):
        CHAIN.decode(image, spec(0))
