"""The codec of packs, beside packs that were made by hand."""

import struct
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ingot import blosc, native
from ingot.codecs.compressors import Blosc
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError
from ingot.formats.varlen.packs import VarlenPacks, chunk_bytes
from ingot.ragged_array import BYTES, JSON, UTF8, ItemKind, RaggedArray
from tests import varlen_files as by_hand

by_the_native_kernel = pytest.mark.skipif(
    native.choice().name != "native", reason="the twin codes packs one by one"
)

PACKS = VarlenPacks(Blosc(shuffle=0))
SINGLE = VarlenPacks(Blosc(shuffle=0), packed=False)

ITEMS: dict[str, tuple[ItemKind, list[Any]]] = {
    "bytes": (BYTES, [b"", b"ab", None, b"\0\xff" * 50]),
    "utf8": (UTF8, ["", "bé", None, "日本" * 40]),
    "json": (JSON, [{"a": [1, None]}, [], None, "x" * 200]),
    "rows": (ItemKind.of("<i2"), [[], [1, -2], None, list(range(100))]),
}


def plain(items: RaggedArray) -> list[Any]:
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items.to_list()]


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("checksum", ["none", "adler32", "crc32", "sha512"])
@pytest.mark.parametrize("codec", ["lz4", "zstd", "blosclz"])
def test_packs_come_back(name: str, checksum: str, codec: str) -> None:
    kind, values = ITEMS[name]
    packs = VarlenPacks(Blosc(codec, shuffle=1, typesize=2), checksum)
    image = packs.encode(RaggedArray.of(values, kind), 0)
    assert plain(packs.decode(image, kind, 4, 0)) == values
    # What lies behind a pack has no meaning.
    assert plain(packs.decode(image + b"\xff" * 50, kind, 4, 0)) == values
    assert packs.measure(image + bytes(50)) == len(image)


@pytest.mark.parametrize("name", ITEMS)
def test_single_items_come_back(name: str) -> None:
    kind, values = ITEMS[name]
    for value in values:
        image = SINGLE.encode(RaggedArray.of([value], kind), 0)
        assert plain(SINGLE.decode(image, kind, 1, 0)) == [value]
        assert bool(image) == (value is not None)
        assert SINGLE.measure(image) == len(image) if image else True


def test_a_pack_is_two_chunks_with_their_digests() -> None:
    items = [b"ape", None, b"", b"bees" * 100]
    image = PACKS.encode(RaggedArray.of(items, BYTES), 0)
    lengths = chunk_bytes(image)
    assert image[0] == 2
    assert zlib.crc32(image[:lengths]) == int.from_bytes(image[lengths : lengths + 4], "little")
    assert struct.unpack("<4I", blosc.decompress(image[:lengths])) == (3, by_hand.NULL, 0, 400)
    rest = image[lengths + 4 :]
    assert blosc.decompress(rest[:-4]) == b"ape" + b"bees" * 100
    assert zlib.crc32(rest[:-4]) == int.from_bytes(rest[-4:], "little")
    assert blosc.inspect(image[:lengths]).header.typesize == 4


def test_packs_by_hand_are_decoded() -> None:
    items = [b"ape", None, b"", b"bees"]
    assert PACKS.decode(by_hand.pack(items), BYTES, 4, 0).to_list() == items
    assert SINGLE.decode(by_hand.chunk(b"ape"), BYTES, 1, 0).to_list() == [b"ape"]


def test_an_empty_item_is_a_chunk_of_a_header_alone() -> None:
    image = SINGLE.encode(RaggedArray.of([b""], BYTES), 0)
    assert len(image) == 20
    assert image[:4][0] == 2
    assert struct.unpack("<iii", image[4:16])[0::2] == (0, 16)


def damaged(items: list[bytes | None], lengths: list[int]) -> bytes:
    """Return a pack whose lengths are not those of its items."""
    stored = b"".join(item for item in items if item)
    return by_hand.chunk(struct.pack(f"<{len(lengths)}I", *lengths), 4) + by_hand.chunk(stored)


@pytest.mark.parametrize(
    ("data", "kind", "count", "text"),
    [
        (by_hand.pack([b"a"]), BYTES, 2, "lengths: it holds 4 bytes, 8 are due"),
        (by_hand.pack([b"a", b"b"]), BYTES, 1, "lengths: it holds 8 bytes, 4 are due"),
        (damaged([b"abc"], [2]), BYTES, 1, "bytes: it holds 3 bytes, 2 are due"),
        (damaged([b"abc"], [4]), BYTES, 1, "bytes: it holds 3 bytes, 4 are due"),
        (damaged([b"abc"], [2**32 - 2]), BYTES, 1, "add up to 4294967294 bytes"),
        (damaged([b""], [2**31 - 1] * 2), BYTES, 2, "add up to 4294967294 bytes"),
        (by_hand.pack([b"\xc3\xa9"[:1], b"\xa9"]), UTF8, 2, "item 0 is no text"),
        (by_hand.pack([b"a", b"\xff"]), UTF8, 2, "item 1 is no text"),
        (by_hand.pack([b"abc"]), ItemKind.of("<i2"), 1, "item 0 has 3 bytes, no multiple"),
        (b"", BYTES, 1, "needs 16 bytes, 0 are stored"),
        (by_hand.pack([b"a"])[:10], BYTES, 1, "needs 16 bytes, 10 are stored"),
        (by_hand.pack([b"a"])[:21], BYTES, 1, "its room has 21"),
        (by_hand.pack([b"a"])[:-1], BYTES, 1, "its room has 20"),
        (by_hand.pack([b"a"])[:24], BYTES, 1, "needs 16 bytes, 0 are stored"),
    ],
)
def test_wrong_packs_are_refused(data: bytes, kind: ItemKind, count: int, text: str) -> None:
    with pytest.raises(CorruptionError, match=text):
        PACKS.decode(data, kind, count, 0)


def test_a_null_needs_the_word_of_the_metadata() -> None:
    strict = VarlenPacks(Blosc(), nulls=False)
    with pytest.raises(CorruptionError, match="item 1 is null, which no item may be"):
        strict.decode(by_hand.pack([b"a", None]), BYTES, 2, 0)
    assert strict.decode(by_hand.pack([b"a"]), BYTES, 1, 0).to_list() == [b"a"]


def test_chunks_of_blosc_2_are_refused() -> None:
    newer = blosc.compress(b"abc" * 100, version=2)
    image = newer + struct.pack("<I", zlib.crc32(newer))
    with pytest.raises(FormatError, match="Blosc version 5"):
        SINGLE.decode(image, BYTES, 1, 0)


def test_json_has_limits() -> None:
    deep = b"[" * 65 + b"]" * 65
    items = SINGLE.decode(by_hand.chunk(deep), JSON, 1, 0)
    with pytest.raises(LimitError, match="nested more than 64 deep"):
        items.to_list()
    for wrong in (b"", b"{", b"NaN", b"1e999", b"{} {}", b"'a'"):
        with pytest.raises(CorruptionError, match="no JSON"):
            SINGLE.decode(by_hand.chunk(wrong), JSON, 1, 0).to_list()


@pytest.mark.parametrize("packs", [PACKS, SINGLE])
def test_every_byte_counts(packs: VarlenPacks) -> None:
    items = RaggedArray.of(["ape", "bee" * 60], UTF8) if packs.packed else RaggedArray.of(["é"])
    image = packs.encode(items, 0)
    for place in range(len(image)):
        wrong = bytearray(image)
        wrong[place] ^= 0x10
        with pytest.raises(IngotError):
            packs.decode(bytes(wrong), UTF8, len(items), 0)
    for length in range(1, len(image)):
        with pytest.raises(CorruptionError):
            packs.decode(image[:length], UTF8, len(items), 0)


def test_stages_name_codec_and_checksum() -> None:
    assert [stage.name for stage in PACKS.stages] == ["blosc", "digest"]
    assert [stage.name for stage in VarlenPacks(Blosc(), "none").stages] == ["blosc"]


def many(name: str, count: int) -> tuple[RaggedArray, list[int]]:
    kind, values = ITEMS[name]
    items = RaggedArray.of(values * count, kind)
    return items, [0, 1, 4, 5, 4 * count - 2, 4 * count]


@by_the_native_kernel
@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("checksum", ["none", "crc32", "sha256"])
@pytest.mark.parametrize("threads", [1, 3])
def test_many_packs_are_those_of_one_by_one(name: str, checksum: str, threads: int) -> None:
    items, cuts = many(name, 50)
    packs = VarlenPacks(Blosc("zstd", 3, 1, typesize=2), checksum)
    parts = [items[start:stop] for start, stop in pairwise(cuts)]
    images = [packs.encode(part, 0) for part in parts]
    assert packs.encode_many(items, cuts, 0, threads) == images
    # Slices share the buffers of the whole.
    assert packs.encode_many(items[1:5], [0, 3, 4], 0, threads) == images[1:3]
    counts = list(map(len, parts))
    found = packs.decode_many([*images, b""][:-1], items.kind, counts, range(9), threads)
    assert found == items
    room = [image + b"\xff" * 9 for image in images]
    assert packs.decode_many(room, items.kind, counts, range(9), threads) == items


@by_the_native_kernel
def test_many_packs_with_one_that_is_wrong_are_left_to_one_by_one() -> None:
    items, cuts = many("utf8", 9)
    images = PACKS.encode_many(items, cuts, 0, 1)
    assert images is not None
    counts = [stop - start for start, stop in pairwise(cuts)]
    assert PACKS.decode_many(images, UTF8, counts, range(9), 1) == items
    for wrong in (images[2][:-1], images[2][:9], b"", images[3], bytes(100)):
        assert (
            PACKS.decode_many([*images[:2], wrong, *images[3:]], UTF8, counts, range(9), 2) is None
        )
    assert PACKS.decode_many(images, UTF8, [*counts[:-1], 1], range(9), 1) is None
    assert PACKS.decode_many(images, UTF8, [*counts[:-1], 2**40], range(9), 1) is None
    assert VarlenPacks(Blosc(), nulls=False).decode_many(images, UTF8, counts, range(9), 1) is None
    text = by_hand.pack([b"a", b"\xff"])
    assert PACKS.decode_many([text], BYTES, [2], range(9), 1) is not None
    assert PACKS.decode_many([text], UTF8, [2], range(9), 1) is None


def test_single_items_are_not_many_packs() -> None:
    items, cuts = many("utf8", 9)
    assert SINGLE.encode_many(items, cuts, 0, 1) is None
    assert SINGLE.decode_many([b""], UTF8, [1], range(9), 1) is None
