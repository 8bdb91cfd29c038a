"""The codec of packs with trailers: both kernels write the same bytes, and damage is found."""

import struct

import numpy as np
import pytest

import ingot
from ingot.codecs.compressors import Blosc
from ingot.codecs.zone_maps import PREFIX, ZoneMap
from ingot.errors import CorruptionError, FormatError
from ingot.formats import trailer
from ingot.formats.format import Pack, Splice
from ingot.formats.packs import TrailedPacks, spliced_length
from ingot.ragged_array import BYTES, JSON, UTF8, ItemKind, ItemTest, RaggedArray
from ingot.schema import RaggedSchema
from ingot.stores import MemoryStore
from tests import pack_files as by_hand
from tests.kernels import needs_native
from tests.limited import run_limited

KINDS = {
    "utf8": RaggedArray.of(["ape", None, "", "bé" * 40, "a very long sentence", "ä"] * 5),
    "bytes": RaggedArray.of([b"\xff" * 30, b"", None, b"x\0", b"x"] * 6),
    "json": RaggedArray.of([{"a": [1, None]}, None, [], "text", 1.5] * 6, "json"),
    "rows": RaggedArray.of([[1, -2, 3], None, [], [7] * 40, [0]] * 6, "<i4"),
    "nulls": RaggedArray.nulls(UTF8, 30),
    "empty": RaggedArray.of([""] * 30),
}
CODEC = TrailedPacks(Blosc(shuffle=0), 12, ((0, 5),))
CUTS = [0, 12, 24, 30]


@needs_native
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", [CODEC, TrailedPacks(Blosc("zstd", 3, 1, 64, 4), 12)])
def test_both_kernels_write_the_same_packs(kind: str, codec: TrailedPacks) -> None:
    items = KINDS[kind]
    single = [codec.encode(items[a:b], 3 + n) for n, (a, b) in enumerate([(0, 12), (12, 24)])]
    single.append(codec.encode(items[24:], 5))
    for number, image in enumerate(single):
        start, stop = CUTS[number : number + 2]
        assert codec.decode(image, items.kind, stop - start, 3 + number) == items[start:stop]
    many = codec.encode_many(items, CUTS, 3, 2)
    if many is not None:
        assert many == single
        assert codec.decode_many(many, items.kind, [12, 12, 6], [3, 4, 5], 2) == items
        # A pack that holds more items than count is decoded alone.
        assert codec.decode_many(many, items.kind, [12, 12, 5], [3, 4, 5], 2) is None
        assert codec.decode_many(many, items.kind, [12, 12, 6], [3, 4, 6], 2) is None
        assert codec.decode_many(many, items.kind, [12, 12, 2**40], [3, 4, 5], 2) is None
        room = [image + bytes(9) for image in many]
        assert codec.decode_many(room, items.kind, [12, 12, 6], [3, 4, 5], 2) == items


@pytest.mark.usefixtures("kernel")
def test_a_pack_holds_at_least_the_items_that_are_due_and_at_most_those_of_a_chunk() -> None:
    image = CODEC.encode(KINDS["utf8"][:5], 0)
    assert CODEC.decode(image, UTF8, 3, 0).to_list() == ["ape", None, ""]
    with pytest.raises(CorruptionError, match="20 bytes of lengths, 6 to 12 items are due"):
        CODEC.decode(image, UTF8, 6, 0)
    with pytest.raises(CorruptionError, match="20 bytes of lengths, 1 to 4 items are due"):
        TrailedPacks(Blosc(shuffle=0), 4, ((0, 5),)).decode(image, UTF8, 1, 0)


def test_packs_state_their_number_and_their_column() -> None:
    image = CODEC.encode(KINDS["utf8"][:5], 2)
    with pytest.raises(CorruptionError, match="this is chunk 2, not 3"):
        CODEC.decode(image, UTF8, 5, 3)
    with pytest.raises(CorruptionError, match="identity"):
        CODEC.identified(6).decode(image, UTF8, 5, 2)
    parts = TrailedPacks(CODEC.blosc, 12, ((0, 4), (7, 5)))
    assert parts.stated(6) == (6, 4)
    assert parts.decode(image, UTF8, 5, 9) == KINDS["utf8"][:5]
    moved = CODEC.moved(image, 2, 11, parts)
    assert parts.decode(moved, UTF8, 5, 11) == KINDS["utf8"][:5]
    assert moved == CODEC.encode(KINDS["utf8"][:5], 4)
    assert CODEC.measure(image + b"\0" * 5) == len(image)


def _stored(lengths: list[int], held: bytes, rows: int | None = None, zone: bytes = b"") -> bytes:
    """Return a pack with these contents, whether they agree or not."""
    pieces = []
    for raw in (struct.pack(f"<{len(lengths)}I", *lengths), held):
        chunk = Blosc(clevel=0).encode(raw)
        count = len(lengths) if rows is None else rows
        pieces += [bytes(chunk), trailer.pack(chunk, 0, count, zone, 5)]
    return b"".join(pieces)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("lengths", "held", "kind", "message"),
    [
        ([2, 2], b"abc", BYTES, "the lengths add up to 4 bytes, the chunk of the bytes holds 3"),
        ([1, 1], b"abc", BYTES, "the lengths add up to 2 bytes, the chunk of the bytes holds 3"),
        ([2**32 - 2, 1], b"abc", BYTES, "the lengths add up to 4294967295 bytes"),
        ([1, 1], "é".encode(), UTF8, "item 0 is no text in UTF-8"),
        ([1, 2], b"a\xff\xff", UTF8, "item 1 is no text in UTF-8"),
        ([4, 3], bytes(7), ItemKind.of("<i4"), "item 1 has 3 bytes, no multiple of the 4"),
    ],
)
def test_lengths_and_bytes_that_contradict_each_other(
    lengths: list[int], held: bytes, kind: ItemKind, message: str
) -> None:
    pack = _stored(lengths, held)
    assert CODEC.decode_many([pack], kind, [2], [0], 1) is None
    with pytest.raises(CorruptionError, match=message):
        CODEC.decode(pack, kind, 2, 0)


@pytest.mark.usefixtures("kernel")
def test_other_claims_of_a_pack() -> None:
    sound = _stored([1, 2], b"abc")
    assert CODEC.decode(sound, BYTES, 2, 0).to_list() == [b"a", b"bc"]
    with pytest.raises(CorruptionError, match="3 rows are claimed, the pack holds 2"):
        CODEC.decode(_stored([1, 2], b"abc", rows=3), BYTES, 2, 0)
    deep = b"[" * 100 + b"]" * 100
    found = CODEC.decode(_stored([len(deep)], deep), JSON, 1, 0)
    with pytest.raises(Exception, match="64"):
        found.to_list()
    newer = bytearray(sound)
    newer[0] = 3
    with pytest.raises((FormatError, CorruptionError)):
        CODEC.decode(bytes(newer), BYTES, 2, 0)


def test_zone_maps_of_both_kernels_are_those_of_the_first_bytes() -> None:
    items = KINDS["utf8"]
    zone = ZoneMap.parse(CODEC.zone_in(CODEC.encode(items[:6], 0), 0), PREFIX)
    assert zone == ZoneMap(np.bytes_(b""), np.bytes_("ä".encode()), 1, False)
    ordered = RaggedArray.of(["a very long sentence", "a very long sentences", "b"])
    zone = ZoneMap.parse(CODEC.zone_in(CODEC.encode(ordered, 0), 0), PREFIX)
    assert zone == ZoneMap(np.bytes_(b"a very long sent"), np.bytes_(b"b"), 0, True)
    fallen = RaggedArray.of(["a very long sentences", "a very long sentence"])
    zone = ZoneMap.parse(CODEC.zone_in(CODEC.encode(fallen, 0), 0), PREFIX)
    assert zone is not None
    assert not zone.ascending
    assert CODEC.zone_in(CODEC.encode(KINDS["json"][:6], 0), 0) == b""


def test_the_length_after_splices() -> None:
    schema = RaggedSchema(10, UTF8, 4, CODEC)
    assert spliced_length(schema, [Splice(0, 1, (Pack(4, b""),))]) == 10
    assert spliced_length(schema, [Splice(1, 3, (Pack(3, b""),))]) == 7
    assert spliced_length(schema, [Splice(3, 3, ())]) == 10


_DAMAGE = """
from ingot.codecs.compressors import Blosc
from ingot.formats.packs import TrailedPacks
from ingot.ragged_array import RaggedArray, UTF8

codec = TrailedPacks(Blosc(shuffle=0), 8, ((0, 77),))
items = RaggedArray.of(["ape", None, "", "bé" * 40, "ape" * 30])
sound = codec.encode(items, 3)
def read(data):
    found = codec.decode_many([data], UTF8, [5], [3], 1)
    return codec.decode(data, UTF8, 5, 3) if found is None else found

assert read(sound) == items
for place in range(len(sound)):
    for bits in (0x01, 0x10, 0x80, 0xFF):
        data = bytearray(sound)
        data[place] ^= bits
        try:
            read(bytes(data))
        except IngotError:
            continue
        raise AssertionError(place)
    try:
        read(sound[:place])
    except IngotError:
        continue
    raise AssertionError(place)
"""


@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "python"])
def test_every_changed_byte_and_every_truncation_is_found(kernel: str) -> None:
    run_limited(_DAMAGE, kernel)


@pytest.mark.usefixtures("kernel")
def test_a_null_of_json_that_is_spelled_out_is_found() -> None:
    parts = by_hand.contents([b"null", b"[1]", None])
    image = by_hand.pack(parts, 0, 3, b"")
    codec = TrailedPacks(Blosc(shuffle=0), 3, ((0, by_hand.IDENTITY),))
    assert codec.decode(image, JSON, 3, 0).to_list() == [None, [1], None]
    files = by_hand.bcolz_files("json", [image], 3, 3)
    packs = ingot.open(MemoryStore(files))._handle.value  # type: ignore[union-attr]
    assert packs.mark(range(3), [ItemTest("isnull")]).tolist() == [True, False, True]
