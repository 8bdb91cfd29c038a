"""Metadata sections of Bloscpack files: bytes by hand, spellings of types, and damage."""

import hashlib
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats.bloscpack import metadata
from ingot.formats.bloscpack.header import CHECKSUMS
from ingot.formats.bloscpack.metadata import ArrayDescription, MetadataHead

HEAD = struct.Struct("<8sBBBBIII8s")
TEXT = b'{"a":[1,2],"b":"the quick brown fox the quick brown fox"}'
VALUE = json.loads(TEXT)


def section(document: bytes = TEXT, *, behind: bytes | None = None, **changes: Any) -> bytes:
    """Return a section by hand: 100 bytes of room that is not zero, and an Adler-32."""
    values = {
        "magic": b"JSON",
        "options": 0,
        "checksum": 1,
        "codec": 0,
        "level": 0,
        "size": len(TEXT),
        "room": 100,
        "stored": len(document),
        "user": b"",
        **changes,
    }
    if behind is None:
        behind = struct.pack("<I", zlib.adler32(document))
    return HEAD.pack(*values.values()) + document + b"?" * (100 - len(document)) + behind


def test_a_plain_section() -> None:
    head = MetadataHead.parse(section())
    assert (head.size, head.room, head.stored, head.section_bytes) == (57, 100, 57, 136)
    assert metadata.parse(section()) == VALUE


def test_a_compressed_section() -> None:
    assert metadata.parse(section(zlib.compress(TEXT), codec=1, level=6)) == VALUE


@pytest.mark.parametrize("name", CHECKSUMS)
def test_digests_are_those_of_zlib_and_hashlib(name: str) -> None:
    number = list(CHECKSUMS).index(name)
    known = {
        "none": b"",
        "adler32": struct.pack("<I", zlib.adler32(TEXT)),
        "crc32": struct.pack("<I", zlib.crc32(TEXT)),
    }
    digest = known[name] if name in known else hashlib.new(name, TEXT).digest()
    assert metadata.parse(section(checksum=number, behind=digest)) == VALUE
    if digest:
        wrong = digest[:-1] + bytes([digest[-1] ^ 1])
        with pytest.raises(CorruptionError, match=f"the {name} is {digest.hex()}"):
            metadata.parse(section(checksum=number, behind=wrong))


@pytest.mark.parametrize("magic", [b"JSON    ", b"JSON\0\0\0\0", b"JSON \0\0\0"])
def test_the_magic_is_padded_by_zeros_or_spaces(magic: bytes) -> None:
    assert metadata.parse(section(magic=magic)) == VALUE


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"magic": b"BSON"}, FormatError, "only b'JSON' is known"),
        ({"checksum": 9}, FormatError, "meta_checksum is 9"),
        ({"codec": 2}, FormatError, "meta_codec is 2"),
        ({"room": 56}, FormatError, "meta_comp_size is 57, max_meta_size is 56"),
        ({"room": 2**32 - 1}, CorruptionError, "the section claims 4294967331 bytes, 136 are"),
        ({"room": 101}, CorruptionError, "the section claims 137 bytes, 136 are stored"),
        ({"size": 56}, CorruptionError, "56 bytes are claimed, 57 are stored"),
        ({"codec": 1}, CorruptionError, "zlib"),
        ({"codec": 1, "size": 2**32 - 1}, LimitError, "the limit is 16777216"),
        ({"stored": 56}, CorruptionError, "57 bytes are claimed, 56 are stored"),
    ],
)
def test_claims_that_are_refused(
    changes: dict[str, Any], kind: type[IngotError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        metadata.parse(section(**changes))


@pytest.mark.parametrize("size", [56, 58])
def test_a_stream_of_another_length(size: int) -> None:
    with pytest.raises(CorruptionError, match=f"meta_size claims {size} bytes"):
        metadata.parse(section(zlib.compress(TEXT), codec=1, size=size))


def test_a_stream_that_is_cut() -> None:
    with pytest.raises(CorruptionError):
        metadata.parse(section(zlib.compress(TEXT)[:-1], codec=1))


def test_a_bomb_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(10**7), 9)
    head = MetadataHead("none", "zlib", 6, 100, len(bomb), len(bomb))
    with pytest.raises(CorruptionError, match="claims 100 bytes, the stream holds more"):
        head.decode(bomb, b"")


@pytest.mark.parametrize("text", [b"{", b"", b"{'a': 1}", b"\xff", b'{"a":1,"a":2}', b"[" * 99])
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(IngotError):
        metadata.parse(section(text, size=len(text)))


@pytest.mark.parametrize("length", range(136))
def test_a_section_that_is_cut(length: int) -> None:
    with pytest.raises(CorruptionError):
        metadata.parse(section()[:length])


def test_bare_json_of_development_versions_is_named() -> None:
    with pytest.raises(FormatError) as caught:
        metadata.parse(b'{"dtype": "float64", "shape": [1024], "others": []}')
    assert "development versions of 2012" in caught.value.__notes__[0]


@pytest.mark.parametrize("value", [{}, [1, 2, {"three": 3}], "text", 5, True, {"a": {"b": "é"}}])
def test_any_value_is_packed(value: Any) -> None:
    packed = metadata.pack(value)
    text = json.dumps(value, separators=(",", ":")).encode()
    values = HEAD.unpack_from(packed)
    assert values[0] == b"JSON\0\0\0\0"
    assert values[5:7] == (len(text), 10 * len(text))
    assert metadata.parse(packed) == value


def test_a_long_document_is_compressed() -> None:
    packed = metadata.pack(VALUE, "crc32", room=200)
    head = MetadataHead.parse(packed)
    assert (head.codec, head.size, head.room) == ("zlib", len(TEXT), 200)
    document = packed[32 : 32 + head.stored]
    assert zlib.decompress(document) == TEXT
    assert packed[32 + head.stored : 232] == bytes(200 - head.stored)
    assert packed[232:] == struct.pack("<I", zlib.crc32(document))


def test_what_does_not_fit_is_not_packed() -> None:
    with pytest.raises(LimitError, match="in a room of 10"):
        metadata.pack(VALUE, room=10)
    with pytest.raises(FormatError, match="cannot be written as JSON"):
        metadata.pack({"a": object()})


@pytest.mark.parametrize("name", ["none", "adler32", "sha512"])
def test_another_value_in_the_same_room(name: str) -> None:
    old = metadata.pack(VALUE, name)
    changes = metadata.repack(MetadataHead.parse(old), {"b": 1})
    assert changes is not None
    new = bytearray(old)
    for start, data in changes:
        new[start : start + len(data)] = data
    assert len(new) == len(old)
    assert metadata.parse(new) == {"b": 1}
    assert b"fox" not in new
    head = MetadataHead.parse(new)
    assert new[32 + head.stored : head.digest_start] == bytes(head.room - head.stored)


def test_a_value_that_needs_more_room() -> None:
    head = MetadataHead.parse(metadata.pack(VALUE, room=60))
    noise = hashlib.sha512(b"").hexdigest()
    assert metadata.repack(head, {"noise": noise}) is None


@pytest.mark.parametrize(
    ("spelling", "dtype"),
    [
        ("'<f8'", "<f8"),
        ("u'>i4'", ">i4"),
        ('"|b1"', "?"),
        ("<f8", "<f8"),
        ("|u1", "u1"),
        ("'<M8[D]'", "<M8[D]"),
        ("'|S300'", "S300"),
        ([["", "<f8"]], "<f8"),
        ("[('', '<f8')]", "<f8"),
        ([["a", "<i4"], ["b", "<f8"]], [("a", "<i4"), ("b", "<f8")]),
        ("[('a', '<i4'), ('b', '|S3')]", [("a", "<i4"), ("b", "S3")]),
        ("[('a', '<i4', (2, 3)), ('b', '<i2', (4,))]", [("a", "<i4", (2, 3)), ("b", "<i2", (4,))]),
        (
            [["a", "<i4", [2, 3]], ["b", [["c", "|S3"], ["d", "<f8"]]]],
            [("a", "<i4", (2, 3)), ("b", [("c", "S3"), ("d", "<f8")])],
        ),
        (
            "[('', '|V2'), ('x', '<i2'), ('', '|V4'), ('y', '<f8'), ('', '|V4')]",
            {"names": ["x", "y"], "formats": ["<i2", "<f8"], "offsets": [2, 8], "itemsize": 20},
        ),
        ("[('été', '<i2'), (\"it's\", '<f4')]", [("été", "<i2"), ("it's", "<f4")]),
    ],
)
def test_spellings_of_types(spelling: Any, dtype: Any) -> None:
    assert metadata.parse_dtype(spelling) == np.dtype(dtype)


@pytest.mark.parametrize(
    "spelling",
    ["'<q9'", "", "'", "float64", "__import__('os')", "'<f8', 1", 5, None, {}, [], "[]", "['a']"],
)
def test_what_is_no_type(spelling: Any) -> None:
    with pytest.raises(FormatError):
        metadata.parse_dtype(spelling)


@pytest.mark.parametrize("spelling", ["'|O'", "|O", "[('', '|O')]"])
def test_objects_are_refused(spelling: str) -> None:
    with pytest.raises(UnsafeError):
        metadata.parse_dtype(spelling)


@pytest.mark.parametrize(
    "dtype",
    ["<f8", ">i2", "?", "S5", "<U7", "<c16", "<M8[ns]", "<m8[10s]", "V9", "<f2", "S1000"],
)
def test_types_are_spelled_as_by_bloscpack(dtype: str) -> None:
    expected = np.dtype(dtype)
    assert metadata.dtype_text(expected) == repr(expected.str)
    assert metadata.parse_dtype(metadata.dtype_text(expected)) == expected


def test_fields_are_spelled_as_by_bloscpack() -> None:
    dtype = np.dtype([("a", "<i4"), ("b", [("c", "S3"), ("d", "<f8", (2,))])])
    assert metadata.dtype_text(dtype) == repr(dtype.descr)
    aligned = np.dtype("i1,i8", align=True)
    assert metadata.parse_dtype(metadata.dtype_text(aligned)).fields == aligned.fields


@pytest.mark.parametrize("dtype", [np.dtype(object), np.dtypes.StringDType()])
def test_types_without_a_spelling(dtype: Any) -> None:
    with pytest.raises(UnsupportedError):
        metadata.dtype_text(dtype)


def described(**changes: Any) -> dict[str, Any]:
    values = {"dtype": "'<f8'", "shape": [20, 30], "order": "C", "container": "numpy", **changes}
    return {key: value for key, value in values.items() if value is not Ellipsis}


def test_a_description_of_an_array() -> None:
    found = metadata.parse_description(described(unit="m", order="F"))
    assert found == ArrayDescription((20, 30), np.dtype("<f8"), "F", {"unit": "m"})
    assert found.nbytes == 4800
    assert list(found.document().items()) == list(described(order="F", unit="m").items())


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, 2],
        "order",
        {},
        {"dtype": "float64", "shape": [2500], "others": []},
        {"container": "numpy"},
        {"container": "pandas"},
        described(dtype=...),
        described(shape=...),
        described(order=...),
    ],
)
def test_metadata_of_plain_files(value: Any) -> None:
    assert metadata.parse_description(value) is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"container": "pandas"}, FormatError),
        ({"container": ...}, FormatError),
        ({"container": None}, FormatError),
        ({"order": "K"}, FormatError),
        ({"order": None}, FormatError),
        ({"shape": "1000"}, FormatError),
        ({"shape": 1000}, FormatError),
        ({"shape": [1.5]}, FormatError),
        ({"shape": [-1]}, FormatError),
        ({"shape": [True]}, FormatError),
        ({"shape": [2**62, 2**62]}, FormatError),
        ({"shape": [1] * 33}, LimitError),
        ({"dtype": "'<q9'"}, FormatError),
        ({"dtype": "'|O'"}, UnsafeError),
        ({"dtype": "'|S99999999'"}, LimitError),
    ],
)
def test_descriptions_that_are_refused(changes: dict[str, Any], kind: type[IngotError]) -> None:
    with pytest.raises(kind):
        metadata.parse_description(described(**changes))


@pytest.mark.parametrize("key", metadata.DESCRIPTION)
def test_attributes_do_not_replace_the_description(key: str) -> None:
    array = ArrayDescription((3,), np.dtype("<f8"), attrs={key: 1})
    with pytest.raises(UnsupportedError, match=f"attribute '{key}'"):
        array.document()
