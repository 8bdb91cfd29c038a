"""Codec chains: how stages are found, put together and bounded."""

import gzip
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot import dtypes
from ingot.codecs import codec
from ingot.codecs.checksums import Crc32
from ingot.codecs.codec import (
    ChunkSpec,
    CodecChain,
    Compressor,
    NativeCoding,
    Raw,
    assemble,
    find,
    parse_spelling,
    parse_stage,
)
from ingot.codecs.compressors import Blosc, Shuffle, Zlib
from ingot.codecs.filters import Delta, Transpose
from ingot.codecs.text import VlenUtf8
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import FieldReader

INTS = ChunkSpec((6, 5), np.dtype("<i4"))
NUMBERS = np.arange(30, dtype="<i4").reshape(6, 5)

EVERY_NAME = [
    *("blosc", "zlib", "gzip", "bz2", "lzma", "lz4", "zstd", "base64", "shuffle"),
    *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
    *("delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "categorize"),
    *("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "pcodec", "zfpy"),
]


@pytest.mark.parametrize("name", EVERY_NAME)
def test_every_codec_of_zarr_files_is_found(name: str) -> None:
    assert find(name).name == name


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedError, match="'lz5'"):
        parse_stage({"id": "lz5"})


def test_pickle_is_refused_whatever_its_parameters() -> None:
    with pytest.raises(UnsafeError, match="pickle"):
        parse_stage({"id": "pickle", "protocol": 5})


@pytest.mark.parametrize("config", [None, [], "zlib", {}, {"id": 5}, {"level": 1}])
def test_a_codec_must_be_an_object_with_an_id(config: object) -> None:
    with pytest.raises(FormatError, match="id"):
        parse_stage(config)


def test_a_name_can_be_registered_once() -> None:
    class Impostor(Zlib):
        name = "zlib"

    with pytest.raises(ValueError, match="'zlib'"):
        codec.register(Impostor)
    assert find("zlib") is Zlib


def test_a_stage_of_another_package_is_loaded_by_its_entry_point(monkeypatch: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Reverse(Compressor):
        name: ClassVar[str] = "reverse"

        @classmethod
        def parse(cls, fields: FieldReader) -> Self:
            return cls()

        def encode(self, data: Any) -> bytes:
            return bytes(data)[::-1]

        def decode(self, data: Any, size: int | None, limit: int) -> bytes:
            return bytes(data)[::-1]

    class EntryPoint:
        def load(self) -> type[Reverse]:
            return Reverse

    asked = []

    def entry_points(**selection: str) -> list[EntryPoint]:
        asked.append(selection)
        return [EntryPoint()] if selection["name"] == "reverse" else []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    monkeypatch.setattr(codec, "_STAGES", dict(codec._STAGES))
    chain = assemble([parse_stage({"id": "reverse"})], INTS)
    assert chain.encode(NUMBERS) == NUMBERS.tobytes()[::-1]
    assert asked == [{"group": "ingot.codecs", "name": "reverse"}]
    find("reverse")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", ()),
        ("blosc", (Blosc(),)),
        ("blosc:lz4:5:shuffle", (Blosc("lz4", 5, 1),)),
        ("blosc:zstd:9:bitshuffle:65536", (Blosc("zstd", 9, 2, 65536),)),
        ("blosc:lz4hc:1:noshuffle", (Blosc("lz4hc", 1, 0),)),
        ("zlib:-1", (Zlib(-1),)),
        ("crc32", (Crc32(),)),
    ],
)
def test_a_short_spelling(text: str, expected: tuple[object, ...]) -> None:
    assert parse_spelling(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none:1",
        "lz5",
        "blosc:lz5",
        "blosc:lz4:10",
        "blosc:lz4:5:shuffled",
        "zlib:1:2",
        "zlib:x",
    ],
)
def test_a_short_spelling_that_means_nothing(text: str) -> None:
    with pytest.raises((FormatError, UnsupportedError)):
        parse_spelling(text)


def test_stages_find_their_places() -> None:
    delta = Delta(np.dtype("<i4"), np.dtype("<i4"))
    chain = assemble([Transpose(), delta, Shuffle(4), delta, Zlib(1)], INTS)
    assert chain.filters == (Transpose(), delta)
    assert chain.serializer == Raw()
    assert [stage.config()["id"] for stage in chain.compressors] == ["shuffle", "delta", "zlib"]
    assert chain.decode(chain.encode(NUMBERS), INTS).tolist() == NUMBERS.tolist()


def test_a_filter_behind_a_codec_of_varying_size_is_unsupported() -> None:
    delta = Delta(np.dtype("|u1"), np.dtype("|u1"))
    chain = assemble([Zlib(1), delta], INTS)
    with pytest.raises(UnsupportedError, match="delta"):
        chain.decode(chain.encode(NUMBERS), INTS)


def test_the_size_of_items_reaches_blosc() -> None:
    assert assemble([Blosc()], INTS).compressors == (Blosc(typesize=4),)
    narrow = Delta(np.dtype("<i4"), np.dtype("<i2"))
    assert assemble([narrow, Blosc()], INTS).compressors == (Blosc(typesize=2),)
    texts = ChunkSpec((3,), dtypes.TEXT)
    assert assemble([VlenUtf8(), Blosc()], texts).compressors == (Blosc(typesize=1),)
    wide = ChunkSpec((3,), np.dtype("V300"))
    assert assemble([Blosc()], wide).compressors == (Blosc(typesize=1),)


def test_objects_need_a_codec() -> None:
    with pytest.raises(FormatError, match="need a codec"):
        assemble([Blosc()], ChunkSpec((3,), np.dtype(object)))


def test_a_serializer_needs_an_array_of_its_type() -> None:
    with pytest.raises(FormatError, match="variable length"):
        assemble([VlenUtf8()], INTS)
    with pytest.raises(FormatError, match="given bytes"):
        assemble([Zlib(), VlenUtf8()], ChunkSpec((3,), np.dtype("<i4")))


def test_what_is_no_stage_is_refused() -> None:
    with pytest.raises(TypeError, match="not a stage"):
        assemble(["zlib"], INTS)  # type: ignore[list-item]


def test_decoding_goes_to_out() -> None:
    chain = assemble([Transpose(), Zlib(1)], INTS)
    out = np.zeros((6, 5), "<i4")
    assert chain.decode(chain.encode(NUMBERS), INTS, out) is out
    assert out.tolist() == NUMBERS.tolist()


@pytest.mark.parametrize("out", [np.zeros((5, 6), "<i4"), np.zeros((6, 5), "<u4")])
def test_out_must_be_what_is_due(out: Any) -> None:
    chain = CodecChain()
    with pytest.raises(ValueError, match="out is"):
        chain.decode(chain.encode(NUMBERS), INTS, out)


def test_encoded_bytes_do_not_share_the_array() -> None:
    array = NUMBERS.copy()
    stored = CodecChain().encode(array)
    array[:] = 0
    assert stored == NUMBERS.tobytes()


def test_arrays_that_are_not_contiguous_are_stored_in_their_order() -> None:
    assert CodecChain().encode(NUMBERS[::2, ::-1]) == NUMBERS[::2, ::-1].tobytes()
    assert CodecChain().encode(NUMBERS.T) == NUMBERS.T.tobytes()


@pytest.mark.parametrize("stored", [b"", b"\0" * 119, b"\0" * 121, b"\0" * 240])
def test_raw_chunks_of_another_size_are_corrupt(stored: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"120 bytes are due|no bytes are stored"):
        CodecChain().decode(stored, INTS)


def test_a_chunk_above_the_limit_is_refused_before_it_is_parsed() -> None:
    spec = ChunkSpec((2**40,), np.dtype("<i8"))
    with pytest.raises(LimitError, match="limit"):
        CodecChain().decode(b"x", spec)
    with pytest.raises(LimitError, match="limit is 100"):
        CodecChain().decode(bytes(120), INTS, limit=100)
    assert CodecChain().decode(bytes(120), INTS, limit=120).any() == np.False_


def test_a_zero_dimensional_chunk() -> None:
    spec = ChunkSpec((), np.dtype("<f8"))
    chain = assemble([Zlib(1)], spec)
    assert chain.decode(chain.encode(np.array(2.5)), spec).shape == ()
    assert chain.decode(chain.encode(np.array(2.5)), spec) == 2.5


def test_recipes() -> None:
    assert CodecChain().native_coding(INTS) == NativeCoding("raw", axes=(0, 1))
    assert assemble([Transpose()], INTS).native_coding(INTS) == NativeCoding("raw", axes=(1, 0))
    cube = ChunkSpec((2, 3, 4), np.dtype("<f8"))
    turned = assemble([Transpose((1, 2, 0)), Transpose((2, 1, 0)), Zlib(3)], cube)
    assert turned.native_coding(cube) == NativeCoding("zlib", axes=(0, 2, 1), level=3)
    auto = assemble([Blosc("zstd", 7, -1, 4096)], INTS).native_coding(INTS)
    assert auto == NativeCoding("blosc", (0, 1), 7, "zstd", "shuffle", 4, 4096)
    octets = ChunkSpec((4,), np.dtype("u1"))
    found = assemble([Blosc(shuffle=-1)], octets).native_coding(octets)
    assert found is not None
    assert found.shuffle == "bitshuffle"


def test_the_axes_of_a_recipe_are_those_of_the_bytes() -> None:
    cube = ChunkSpec((2, 3, 4), np.dtype("u1"))
    chain = assemble([Transpose((1, 2, 0)), Transpose((2, 1, 0))], cube)
    coding = chain.native_coding(cube)
    assert coding is not None
    array = np.arange(24, dtype="u1").reshape(2, 3, 4)
    assert chain.encode(array) == array.transpose(coding.axes).tobytes()


@pytest.mark.parametrize(
    "stages",
    [
        [Delta(np.dtype("<i4"), np.dtype("<i4"))],
        [Shuffle(4)],
        [Zlib(1), Crc32()],
    ],
)
def test_what_only_python_can_do_has_no_recipe(stages: list[Any]) -> None:
    assert assemble(stages, INTS).native_coding(INTS) is None


def test_what_lies_between_two_compressors_is_bounded() -> None:
    spec = ChunkSpec((100,), np.dtype("u1"))
    chain = CodecChain((), Raw(), (Zlib(9), Zlib(9)))
    assert chain.decode(chain.encode(np.ones(100, "u1")), spec).sum() == 100
    bomb = Zlib(9).encode(bytes(2**24))
    with pytest.raises(LimitError, match="limit"):
        chain.decode(bomb, spec)


def test_far_more_bytes_than_any_encoder_makes_are_corrupt() -> None:
    chain = assemble(parse_spelling("gzip"), INTS)
    members = gzip.compress(b"") * 10_000
    with pytest.raises(CorruptionError, match="200000 bytes are stored for a chunk of 120"):
        chain.decode(members, INTS)
    assert chain.decode(members[:20_000] + chain.encode(NUMBERS), INTS)[5, 4] == 29


@pytest.mark.parametrize("kind", ["blosc", "zlib", "gzip", "bz2", "lzma", "lz4", "zstd"])
def test_damage_never_gives_other_than_ours(kind: str) -> None:
    """Any damage gives the data, other data of the same size, or one of our errors."""
    random = np.random.default_rng(7)
    chain = assemble(parse_spelling(kind), INTS)
    stored = chain.encode(NUMBERS)
    for _ in range(300):
        damaged = bytearray(stored)
        for position in random.integers(0, len(stored), 3):
            damaged[position] = random.integers(0, 256)
        damaged = (
            damaged[: random.integers(0, len(damaged) + 1)] if random.random() < 0.3 else damaged
        )
        try:
            found = chain.decode(damaged, INTS, limit=2**20)
        except IngotError:
            continue
        assert found.shape == INTS.shape


STAGES: list[tuple[str, dict[str, Any]]] = [
    *(("u1", {"id": name}) for name in ("blosc", "zlib", "gzip", "bz2", "lzma", "lz4", "zstd")),
    *(("u1", {"id": name}) for name in ("base64", "crc32", "fletcher32", "jenkins_lookup3")),
    ("?", {"id": "packbits"}),
    ("<i4", {"id": "astype", "encode_dtype": "|S2", "decode_dtype": "<i4"}),
    ("<f8", {"id": "fixedscaleoffset", "scale": 3, "offset": 1, "dtype": "<f8", "astype": "<f2"}),
    ("O", {"id": "vlen-bytes"}),
    ("O", {"id": "vlen-array", "dtype": "<i2"}),
    ("O", {"id": "json2"}),
    ("O", {"id": "msgpack2"}),
    ("T", {"id": "vlen-utf8"}),
    ("T", {"id": "categorize", "labels": ["a", "b"], "dtype": "|O"}),
]


@pytest.mark.parametrize(("kind", "config"), STAGES, ids=[row[1]["id"] for row in STAGES])
@given(data=st.binary(max_size=64))
def test_whatever_is_stored_only_our_errors_come_out(
    kind: str, config: dict[str, Any], data: bytes
) -> None:
    spec = ChunkSpec((2,), dtypes.TEXT if kind == "T" else np.dtype(kind))
    chain = assemble([parse_stage(config)], spec)
    for stored in (data, chain_prefix(config) + data):
        try:
            found = chain.decode(stored, spec, limit=2**20)
        except IngotError:
            continue
        assert found.shape == (2,)
        assert found.dtype == spec.dtype


def chain_prefix(config: dict[str, Any]) -> bytes:
    """Return the beginning of something right, so that damage gets past the first look."""
    array = {"json2": b"[1, 2, ", "msgpack2": b"\x94\x01\x02", "zstd": b"\x28\xb5\x2f\xfd"}
    counts = dict.fromkeys(("vlen-bytes", "vlen-array", "vlen-utf8"), b"\x02\x00\x00\x00")
    heads = {
        "lz4": b"\x02\x00\x00\x00",
        "gzip": b"\x1f\x8b\x08",
        "bz2": b"BZh9",
        "zlib": b"\x78\x01",
    }
    blosc = {"blosc": bytes([2, 1, 0x21, 1, 2, 0, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0])}
    return (array | counts | heads | blosc).get(config["id"], b"")
