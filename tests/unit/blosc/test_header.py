"""The header alone: what it says, what it refuses, what it implies."""

import struct

import pytest

from ingot.blosc.header import ChunkHeader, Extension
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsupportedError,
)


def packed(
    version: int = 2,
    flags: int = 0x31,
    typesize: int = 4,
    nbytes: int = 4000,
    blocksize: int = 2000,
    cbytes: int = 500,
    extension: bytes = b"",
) -> bytes:
    return (
        struct.pack("<BBBBiii", version, 1, flags, typesize, nbytes, blocksize, cbytes) + extension
    )


def test_every_field_is_read_from_its_place() -> None:
    raw = bytes.fromhex("02 07 d4 09 01020304 05060708 11000004")
    header = ChunkHeader(2, 7, 0xD4, 9, 0x04030201, 0x08070605, 0x04000011)
    assert ChunkHeader.parse(raw, stored=0x04000011) == header
    assert header.pack() == raw


@pytest.mark.parametrize(
    ("flags", "codec", "filter_name", "memcpyed"),
    [
        (0x00, "blosclz", "none", False),
        (0x21, "lz4", "shuffle", False),
        (0x54, "snappy", "bitshuffle", False),
        (0x70, "zlib", "none", False),
        (0x91, "zstd", "shuffle", False),
        (0xB0, "reserved", "none", False),
        (0xD0, "user-defined", "none", False),
        (0xF0, "super-chunk", "none", False),
    ],
)
def test_flags_name_codec_and_filter(
    flags: int, codec: str, filter_name: str, memcpyed: bool
) -> None:
    header = ChunkHeader.parse(packed(flags=flags), stored=500)
    assert (header.codec, header.filter, header.memcpyed) == (codec, filter_name, memcpyed)


def test_an_extended_header_is_recognised() -> None:
    extension = bytes([0, 0, 0, 3, 0, 1, 5, 9, 10, 11, 12, 13, 14, 15, 1, 0x81])
    header = ChunkHeader.parse(packed(version=5, flags=0x25, extension=extension), stored=500)
    assert header.extended
    assert header.header_bytes == 32
    assert header.extension == Extension(
        (0, 0, 0, 3, 0, 1), 5, 9, (10, 11, 12, 13, 14, 15), 1, 0x81
    )
    assert header.filter == "none"
    assert header.pack() == packed(version=5, flags=0x25, extension=extension)


def test_a_memcpyed_chunk_has_the_length_of_its_data_and_header() -> None:
    assert ChunkHeader.parse(packed(flags=0x02, cbytes=4016), stored=4016).memcpyed
    extended = packed(version=5, flags=0x07, cbytes=4032, extension=bytes(16))
    assert ChunkHeader.parse(extended, stored=4032).memcpyed
    with pytest.raises(CorruptionError, match="cbytes is 4017, nbytes and header make 4016"):
        ChunkHeader.parse(packed(flags=0x02, cbytes=4017), stored=4017)
    with pytest.raises(CorruptionError, match="make 4032"):
        ChunkHeader.parse(packed(version=5, flags=0x07, cbytes=4016, extension=bytes(16)), 4016)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"version": 0}, FormatError, "format version is 0"),
        ({"version": 7}, UnsupportedError, "format version 7 is unknown"),
        ({"version": 255}, UnsupportedError, "format version 255 is unknown"),
        ({"typesize": 0}, FormatError, "typesize is 0"),
        ({"nbytes": -1}, FormatError, "nbytes is -1"),
        ({"blocksize": 0}, FormatError, "blocksize is 0"),
        ({"blocksize": -5}, FormatError, "blocksize is -5"),
        ({"blocksize": 536_866_817}, FormatError, "blocksize is 536866817"),
        ({"cbytes": 15}, FormatError, "cbytes is 15, the header alone has 16"),
        ({"cbytes": -1}, FormatError, "cbytes is -1, the header alone has 16"),
        ({"flags": 0x25, "extension": bytes(16), "cbytes": 31}, FormatError, "alone has 32"),
        ({"flags": 0x25}, CorruptionError, "announce a header of 32 bytes, 16 are stored"),
        ({"cbytes": 501}, CorruptionError, "cbytes claims 501 bytes, 500 are stored"),
        ({"cbytes": 499}, FormatError, "cbytes claims 499 bytes, 500 are given"),
    ],
)
def test_impossible_fields_are_refused(
    fields: dict[str, int], error: type[IngotError], text: str
) -> None:
    with pytest.raises(error, match=text):
        ChunkHeader.parse(packed(**fields), stored=500)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", range(16))
def test_a_cut_header_is_corruption(length: int) -> None:
    with pytest.raises(CorruptionError, match=f"needs 16 bytes, {length} are stored"):
        ChunkHeader.parse(packed()[:length])


@pytest.mark.parametrize("field", ["version", "versionlz", "flags", "typesize"])
def test_a_header_that_does_not_fit_its_bytes_is_not_made(field: str) -> None:
    with pytest.raises((FormatError, UnsupportedError)):
        ChunkHeader(**{field: 256})
    with pytest.raises((FormatError, UnsupportedError)):
        ChunkHeader(**{field: -1})


def test_an_empty_chunk_may_claim_any_block_size() -> None:
    for blocksize in (1, 0, -1, 2**31 - 1):
        raw = packed(nbytes=0, blocksize=blocksize, cbytes=16)
        header = ChunkHeader.parse(raw)
        header.check_decodable()
        assert (header.block_count, header.item_count) == (0, 0)


@pytest.mark.parametrize(
    ("nbytes", "blocksize", "sizes"),
    [
        (4000, 2000, [2000, 2000]),
        (4001, 2000, [2000, 2000, 1]),
        (3999, 2000, [2000, 1999]),
        (10, 2000, [10]),
        (10, 10, [10]),
        (10, 3, [3, 3, 3, 1]),
    ],
)
def test_blocks_are_equal_but_the_last(nbytes: int, blocksize: int, sizes: list[int]) -> None:
    header = ChunkHeader(flags=0x30, nbytes=nbytes, blocksize=blocksize, cbytes=500)
    assert [header.bytes_of(block) for block in range(header.block_count)] == sizes
    assert header.data_start == 16 + 4 * len(sizes)


@pytest.mark.parametrize(
    ("typesize", "blocksize", "nbytes", "flags", "streams"),
    [
        (4, 512, 1100, 0x21, [4, 4, 1]),  # the last, short block is never split
        (4, 511, 511, 0x21, [1]),  # 127 items and a bit
        (4, 508, 508, 0x21, [1]),  # 127 items
        (16, 2048, 2048, 0x20, [16]),  # the rule does not ask for a filter
        (17, 4096, 4096, 0x21, [1]),  # items too large
        (4, 512, 1024, 0x31, [1, 1]),  # the flag says no
        (4, 9999, 512, 0x21, [4]),  # blocksize above nbytes: the only block is a full one
        (1, 512, 512, 0x21, [1]),
    ],
)
def test_the_split_rule_of_blosc_1(
    typesize: int, blocksize: int, nbytes: int, flags: int, streams: list[int]
) -> None:
    header = ChunkHeader(
        flags=flags, typesize=typesize, nbytes=nbytes, blocksize=blocksize, cbytes=nbytes
    )
    assert [header.streams_of(block) for block in range(header.block_count)] == streams


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"flags": 0x25, "extension": bytes(15) + b"\x08"}, FormatError, "lazy"),
        ({"flags": 0x25, "extension": bytes(15) + b"\x80"}, UnsupportedError, "instrument"),
        ({"flags": 0x25, "extension": bytes(15) + b"\x04"}, UnsupportedError, "codec outside"),
        ({"flags": 0x25, "extension": bytes(15) + b"\x50"}, UnsupportedError, "value 5 is res"),
        ({"flags": 0x25, "extension": bytes(14) + b"\x02\0"}, UnsupportedError, "flags2 is 0x02"),
        ({"flags": 0x25, "extension": b"\x22" + bytes(15)}, UnsupportedError, "filter 34"),
        ({"flags": 0x29}, UnsupportedError, "delta"),
        ({"flags": 0xA1}, UnsupportedError, r"codec 5 \(reserved\)"),
        ({"flags": 0xC1}, UnsupportedError, r"codec 6 \(user-defined\)"),
        ({"flags": 0xE1}, UnsupportedError, r"codec 7 \(super-chunk\)"),
        ({"nbytes": 4001}, LimitError, "nbytes claims 4001 bytes, the limit is 4000"),
        ({"blocksize": 33}, CorruptionError, "122 block starts end at 504, cbytes is 500"),
        ({"blocksize": 2001, "flags": 0x21}, CorruptionError, "cannot be split into 4 equal"),
    ],
)
def test_what_is_not_decodable_says_why(
    fields: dict[str, int], error: type[IngotError], text: str
) -> None:
    header = ChunkHeader.parse(packed(**fields), stored=500)  # type: ignore[arg-type]
    with pytest.raises(error, match=text):
        header.check_decodable(limit=4000)


@pytest.mark.parametrize(
    ("flags", "expansion"), [(0x10, 255), (0x30, 255), (0x50, 255), (0x70, 1032), (0x90, 32768)]
)
def test_a_bomb_is_seen_in_the_header(flags: int, expansion: int) -> None:
    """100 bytes behind the one block start decode to so many bytes at most."""
    most = 100 * expansion
    possible = ChunkHeader(flags=flags, nbytes=most, blocksize=most, cbytes=120)
    possible.check_decodable()
    bomb = ChunkHeader(flags=flags, nbytes=most + 1, blocksize=most + 1, cbytes=120)
    with pytest.raises(CorruptionError, match=f"nbytes claims {most + 1} bytes, 100 bytes of"):
        bomb.check_decodable()


@pytest.mark.parametrize("flags", [0xE2, 0xAA, 0x0A])
def test_codec_and_delta_bits_of_a_stored_chunk_say_nothing(flags: int) -> None:
    header = ChunkHeader(flags=flags, nbytes=3, blocksize=3, cbytes=19)
    header.check_decodable()
    assert header.block_count == 0


@pytest.mark.parametrize(
    ("version", "flags", "extension", "pipeline"),
    [
        (2, 0x30, b"", ()),
        (2, 0x31, b"", ((1, 0),)),
        (4, 0x34, b"", ((2, 0),)),
        (4, 0x39, b"", ((3, 0), (1, 0))),
        (
            5,
            0x35,
            bytes([3, 0, 35, 0, 0, 1, 9, 9, 1, 2, 3, 4, 5, 6, 0, 0]),
            ((3, 1), (35, 3), (1, 6)),
        ),
        (3, 0x35, bytes([3, 0, 0, 0, 0, 1, 9, 9, 1, 2, 3, 4, 5, 6, 0, 0]), ((3, 1),)),
    ],
)
def test_the_pipeline_is_in_the_order_of_its_writer(
    version: int, flags: int, extension: bytes, pipeline: tuple[tuple[int, int], ...]
) -> None:
    raw = packed(version=version, flags=flags, extension=extension)
    assert ChunkHeader.parse(raw, stored=500).pipeline == pipeline


@pytest.mark.parametrize(
    ("typesize", "blocksize", "nbytes", "flags", "streams"),
    [
        (4, 8, 20, 0x21, [4, 4, 1]),  # the flag alone decides, but a short block is never split
        (255, 510, 510, 0x20, [255]),
        (4, 512, 1024, 0x31, [1, 1]),
    ],
)
def test_the_split_rule_of_blosc_2(
    typesize: int, blocksize: int, nbytes: int, flags: int, streams: list[int]
) -> None:
    header = ChunkHeader(
        version=5, flags=flags, typesize=typesize, nbytes=nbytes, blocksize=blocksize, cbytes=nbytes
    )
    assert [header.streams_of(block) for block in range(header.block_count)] == streams


@pytest.mark.parametrize(
    ("blosc2_flags", "special"),
    [(0x00, "none"), (0x10, "zeros"), (0x20, "nan"), (0x32, "value"), (0x40, "uninitialised")],
)
def test_special_values_win_over_everything_else(blosc2_flags: int, special: str) -> None:
    raw = packed(version=5, flags=0x27, cbytes=36, extension=bytes(15) + bytes([blosc2_flags]))
    if special == "none":
        with pytest.raises(CorruptionError, match="make 4032"):
            ChunkHeader.parse(raw, stored=36)
        return
    header = ChunkHeader.parse(raw, stored=36)
    assert (header.special, header.memcpyed, header.block_count) == (special, False, 0)


def test_blocks_of_variable_length_are_counted_by_blocksize() -> None:
    extension = bytes(14) + b"\x01\x01"
    header = ChunkHeader.parse(packed(6, 0x35, 4, 4000, 7, 500, extension), stored=500)
    assert (header.variable, header.block_count, header.split) == (True, 7, False)
    assert header.has_dictionary
