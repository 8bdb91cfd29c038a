"""Bad chunks of every kind: each gives its own error, on both kernels, and nothing else.

The chunks are laid out by hand, not by the code under test.
"""

import struct
import tracemalloc
import zlib
from dataclasses import dataclass
from typing import Any

import pytest

from ingot.blosc.inspection import inspect
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, UnsupportedError
from tests.kernels import load, on_each_kernel

# LZ4: one literal, a match of 94 bytes from one back, five literals.
HUNDRED_AS = bytes.fromhex("1f 61 0100 4b 50 6161616161")


def chunk(
    body: bytes = b"",
    *,
    version: int = 2,
    versionlz: int = 1,
    flags: int = 0x30,
    typesize: int = 1,
    nbytes: int = 100,
    blocksize: int = 100,
    cbytes: int | None = None,
) -> bytes:
    stored = 16 + len(body) if cbytes is None else cbytes
    fields = (version, versionlz, flags, typesize, nbytes, blocksize, stored)
    return struct.pack("<BBBBiii", *fields) + body


def blocks(starts: list[int], *streams: bytes) -> bytes:
    lengths = (struct.pack("<i", len(stream)) + stream for stream in streams)
    return struct.pack(f"<{len(starts)}i", *starts) + b"".join(lengths)


ONE_BLOCK = blocks([20], HUNDRED_AS)


def one_stream(stream: bytes, flags: int, nbytes: int = 1000) -> bytes:
    return chunk(blocks([20], stream), flags=flags, nbytes=nbytes, blocksize=nbytes)


@dataclass(frozen=True)
class Case:
    name: str
    chunk: bytes
    error: type[IngotError]


HEADERS = [
    Case("no bytes", b"", CorruptionError),
    Case("15 bytes", chunk(ONE_BLOCK)[:15], CorruptionError),
    Case("version 0", chunk(ONE_BLOCK, version=0), FormatError),
    Case("version 7", chunk(ONE_BLOCK, version=7), UnsupportedError),
    Case("version 255", chunk(ONE_BLOCK, version=255), UnsupportedError),
    *(
        Case(f"codec {codec}", chunk(ONE_BLOCK, flags=codec << 5 | 0x10), UnsupportedError)
        for codec in (5, 6, 7)
    ),
    Case("typesize 0", chunk(ONE_BLOCK, typesize=0), FormatError),
    Case("nbytes -1", chunk(ONE_BLOCK, nbytes=-1), FormatError),
    Case("nbytes -2^31", chunk(ONE_BLOCK, nbytes=-(2**31)), FormatError),
    *(
        Case(
            f"2 GiB in 60 bytes of codec {codec}",
            chunk(
                struct.pack("<iiii", 32, 37, 42, 47) + bytes(28),
                flags=codec << 5 | 0x10,
                nbytes=2**31 - 1,
                blocksize=536_866_816,
            ),
            CorruptionError,
        )
        for codec in range(5)
    ),
    Case("blocksize 0", chunk(ONE_BLOCK, blocksize=0), FormatError),
    Case("blocksize -1", chunk(ONE_BLOCK, blocksize=-1), FormatError),
    Case("blocksize above all", chunk(ONE_BLOCK, blocksize=536_866_817), FormatError),
    Case("cbytes 15", chunk(ONE_BLOCK, cbytes=15), FormatError),
    Case("cbytes 0", chunk(ONE_BLOCK, cbytes=0), FormatError),
    Case("cbytes -1", chunk(ONE_BLOCK, cbytes=-1), FormatError),
    Case("cbytes one too many", chunk(ONE_BLOCK, cbytes=17 + len(ONE_BLOCK)), CorruptionError),
    Case("cbytes 2^31 - 1", chunk(ONE_BLOCK, cbytes=2**31 - 1), CorruptionError),
    Case("cbytes one too few", chunk(ONE_BLOCK, cbytes=15 + len(ONE_BLOCK)), FormatError),
    Case("a byte behind the chunk", chunk(ONE_BLOCK) + b"\0", FormatError),
    Case("one byte short", chunk(ONE_BLOCK)[:-1], CorruptionError),
    Case("memcpyed, one byte short", chunk(bytes(99), flags=0x32), CorruptionError),
    Case("memcpyed, one byte more", chunk(bytes(101), flags=0x32), CorruptionError),
    Case(
        "memcpyed, nbytes of foreign memory",
        chunk(bytes(24), flags=2, nbytes=4096),
        CorruptionError,
    ),
    Case("delta in Blosc 1", chunk(ONE_BLOCK, flags=0x38), UnsupportedError),
    Case("both shuffle bits, 31 bytes", chunk(bytes(15), flags=0x35, nbytes=0), CorruptionError),
    Case("no room for the block starts", chunk(ONE_BLOCK, blocksize=10), CorruptionError),
    Case(
        "blocks that cannot be split evenly",
        chunk(
            blocks([20], bytes(128), bytes(128)), flags=0x21, typesize=2, nbytes=257, blocksize=257
        ),
        CorruptionError,
    ),
]

STARTS = [
    *(
        Case(f"a block start of {start}", chunk(blocks([start], HUNDRED_AS)), CorruptionError)
        for start in (-1, -(2**31), 0, 15, 16, 19, 35, 36, 2**31 - 1)
    ),
    Case("a block start just before the end", chunk(blocks([34], HUNDRED_AS)), CorruptionError),
    Case(
        "two blocks in one place",
        chunk(blocks([24, 24], HUNDRED_AS), nbytes=200),
        CorruptionError,
    ),
    Case(
        "ten thousand blocks in one place",
        chunk(blocks([16 + 40_000] * 10_000, HUNDRED_AS), nbytes=10**6),
        CorruptionError,
    ),
    Case(
        "a block inside another",
        chunk(blocks([24, 28], struct.pack("<i", 20) + bytes(30)), nbytes=200),
        CorruptionError,
    ),
]

LENGTHS = [
    Case(
        f"a stream length of {length}",
        chunk(struct.pack("<ii", 20, length) + HUNDRED_AS),
        CorruptionError,
    )
    for length in (0, -1, -65, -(2**31), 12, 100, 101, 2**31 - 1)
]

STREAMS = [
    Case("LZ4: holds less", chunk(ONE_BLOCK, nbytes=101, blocksize=101), CorruptionError),
    Case("LZ4: holds more", chunk(ONE_BLOCK, nbytes=99, blocksize=99), CorruptionError),
    Case("LZ4: cut", one_stream(HUNDRED_AS[:-1], 0x30, 100), CorruptionError),
    Case("LZ4: bytes behind", one_stream(HUNDRED_AS + b"\0", 0x30, 100), CorruptionError),
    Case(
        "LZ4: back too far",
        one_stream(b"\x1f\x61\x02" + HUNDRED_AS[3:], 0x30, 100),
        CorruptionError,
    ),
    Case("LZ4: zeros", one_stream(bytes(50), 0x30), CorruptionError),
    Case("BloscLZ: back too far", one_stream(b"\x00a\xe0\xff\x01\x05", 0x10, 266), CorruptionError),
    Case("BloscLZ: holds less", one_stream(b"\x00a\xe0\xff\x01\x00", 0x10, 267), CorruptionError),
    Case("BloscLZ: holds more", one_stream(b"\x00a\xe0\xff\x01\x00", 0x10, 265), CorruptionError),
    Case("BloscLZ: a length without end", one_stream(b"\x00a\xe0\xff\xff", 0x10), CorruptionError),
    Case("BloscLZ: half a distance", one_stream(b"\x00a\x3f\xff\x00", 0x10, 260), CorruptionError),
    Case("Snappy: another length", one_stream(b"\x64\x00a\xfe\x01\x00", 0x50, 65), CorruptionError),
    Case("Snappy: holds less", one_stream(b"\x64\x00a\xfe\x01\x00", 0x50, 100), CorruptionError),
    Case("Snappy: distance 0", one_stream(b"\x41\x00a\xfe\x00\x00", 0x50, 65), CorruptionError),
    Case("zlib: not zlib", one_stream(b"spam and eggs", 0x70), CorruptionError),
    Case("zlib: holds less", one_stream(zlib.compress(bytes(999)), 0x70), CorruptionError),
    Case("zlib: holds more", one_stream(zlib.compress(bytes(1001)), 0x70), CorruptionError),
    Case("zlib: cut", one_stream(zlib.compress(bytes(1000))[:-1], 0x70), CorruptionError),
    Case(
        "zlib: bytes behind", one_stream(zlib.compress(bytes(1000)) + b"\0", 0x70), CorruptionError
    ),
    Case(
        "zlib: bytes behind that end like the checksum",
        one_stream(zlib.compress(bytes(1000)) + b"??" + zlib.compress(bytes(1000))[-4:], 0x70),
        CorruptionError,
    ),
    Case(
        "zlib: another checksum",
        one_stream(zlib.compress(bytes(1000))[:-1] + b"?", 0x70),
        CorruptionError,
    ),
]


def zstd_frame(nbytes: int, content_size: int | None) -> bytes:
    """Make a frame of one run of ``a``; a run's header has 2 for its kind and 1 for the last."""
    run = (nbytes << 3 | 2 | 1).to_bytes(3, "little") + b"a"
    if content_size is None:
        return bytes.fromhex("28b52ffd 00 58") + run
    return bytes.fromhex("28b52ffd 80 58") + content_size.to_bytes(4, "little") + run


SKIPPABLE = bytes.fromhex("502a4d18 00000000")

ZSTD = [
    Case("claims less", one_stream(zstd_frame(1000, 999), 0x90), CorruptionError),
    Case("claims more", one_stream(zstd_frame(1000, 1001), 0x90), CorruptionError),
    Case("claims 4 GiB", one_stream(zstd_frame(1000, 2**32 - 1), 0x90), CorruptionError),
    Case("holds less", one_stream(zstd_frame(999, 1000), 0x90), CorruptionError),
    Case("holds more", one_stream(zstd_frame(1001, 1000), 0x90), CorruptionError),
    Case("no size, holds less", one_stream(zstd_frame(999, None), 0x90), CorruptionError),
    Case("no size, holds more", one_stream(zstd_frame(1001, None), 0x90), CorruptionError),
    Case("bytes behind", one_stream(zstd_frame(1000, 1000) + b"\0", 0x90), CorruptionError),
    Case("a frame behind", one_stream(zstd_frame(1000, 1000) + SKIPPABLE, 0x90), CorruptionError),
    Case(
        "two frames",
        one_stream(zstd_frame(500, 500) + zstd_frame(500, 500), 0x90),
        CorruptionError,
    ),
    Case("cut", one_stream(zstd_frame(1000, 1000)[:-1], 0x90), CorruptionError),
    Case("only a magic number", one_stream(zstd_frame(1000, 1000)[:4], 0x90), CorruptionError),
    Case("no frame", one_stream(b"spam and eggs", 0x90), CorruptionError),
    Case(
        "version 0.7",
        one_stream(b"\x27" + zstd_frame(1000, 1000)[1:], 0x90),
        UnsupportedError,
    ),
]

EVERY = [*HEADERS, *STARTS, *LENGTHS, *STREAMS, *ZSTD]


@on_each_kernel
@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_a_bad_chunk_gives_its_error(kernel_name: str, case: Case) -> None:
    with pytest.raises(IngotError) as caught:
        load(kernel_name).decompress(case.chunk)
    assert type(caught.value) is case.error, str(caught.value)
    assert len(str(caught.value)) > 20


@on_each_kernel
@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_a_bad_chunk_gives_its_error_into_a_buffer(kernel_name: str, case: Case) -> None:
    with pytest.raises(case.error):
        load(kernel_name).decompress(case.chunk, bytearray(10**6), 2)


@on_each_kernel
@pytest.mark.parametrize("case", [*HEADERS, *STARTS[:-3], *LENGTHS], ids=lambda case: case.name)
def test_a_bad_chunk_gives_its_error_to_a_slice(kernel_name: str, case: Case) -> None:
    with pytest.raises(case.error):
        load(kernel_name).decompress_slice(case.chunk, 0, 1)


@pytest.mark.parametrize("case", [*HEADERS, *STARTS, *LENGTHS], ids=lambda case: case.name)
def test_a_bad_chunk_gives_its_error_when_inspected(case: Case) -> None:
    with pytest.raises(case.error):
        inspect(case.chunk)


@on_each_kernel
@pytest.mark.parametrize("codec", range(5))
def test_a_bomb_is_refused_before_memory_is_taken(kernel_name: str, codec: int) -> None:
    kernel = load(kernel_name)
    bombs = [case for case in HEADERS if case.name == f"2 GiB in 60 bytes of codec {codec}"]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            kernel.decompress(bombs[0].chunk)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@on_each_kernel
def test_a_chunk_above_the_limit_is_refused_before_memory_is_taken(kernel_name: str) -> None:
    kernel = load(kernel_name)
    plain = chunk(bytes(10**7), flags=0x02, nbytes=10**7, blocksize=10**7)
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="10000000 bytes, the limit is 9999999"):
            kernel.decompress(plain, None, 1, 10**7 - 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@on_each_kernel
def test_millions_of_continuation_bytes_do_not_overflow(kernel_name: str) -> None:
    """Summed in 32 bits, the length of this BloscLZ match would turn negative."""
    stream = b"\x00a\xe0" + b"\xff" * 8_450_000 + b"\x00\x00"
    bad = one_stream(stream, 0x10, nbytes=9_000_000)
    with pytest.raises(CorruptionError):
        load(kernel_name).decompress(bad)


LEGAL: list[tuple[str, bytes, bytes]] = [
    ("version 1", chunk(ONE_BLOCK, version=1), b"a" * 100),
    ("any versionlz", chunk(ONE_BLOCK, versionlz=200), b"a" * 100),
    ("blocksize above nbytes", chunk(ONE_BLOCK, blocksize=10**6), b"a" * 100),
    (
        "blocksize no multiple of typesize",
        chunk(
            blocks([24, 24 + 57], b"abc" * 17 + b"ab", b"defg" * 12 + b"d"),
            flags=0x30,
            typesize=3,
            nbytes=53 + 49,
            blocksize=53,
        ),
        b"abc" * 17 + b"ab" + b"defg" * 12 + b"d",
    ),
    ("empty", chunk(nbytes=0, blocksize=1), b""),
    ("empty, any codec", chunk(nbytes=0, blocksize=1, flags=0xF0), b""),
    ("empty, any block size", chunk(nbytes=0, blocksize=-1), b""),
    ("empty and memcpyed", chunk(nbytes=0, blocksize=1, flags=0x32), b""),
    ("memcpyed, any codec", chunk(b"spam", flags=0xF2, nbytes=4, blocksize=4), b"spam"),
    ("memcpyed, delta bit", chunk(b"spam", flags=0x0A, nbytes=4, blocksize=4), b"spam"),
    (
        "memcpyed data were never filtered",
        chunk(b"aAbB", flags=0x03, typesize=2, nbytes=4, blocksize=4),
        b"aAbB",
    ),
    (
        "blocks out of order",
        chunk(blocks([24 + 104, 24], b"b" * 100, b"a" * 100), nbytes=200),
        b"a" * 100 + b"b" * 100,
    ),
    ("a gap before the block", chunk(blocks([24], b"", HUNDRED_AS)), b"a" * 100),
    ("an unused tail", chunk(ONE_BLOCK + b"unused"), b"a" * 100),
    ("a raw stream", chunk(blocks([20], b"ab" * 50)), b"ab" * 50),
    ("Zstandard without content size", one_stream(zstd_frame(1000, None), 0x90), b"a" * 1000),
    ("Snappy", one_stream(b"\x41\x00a\xfe\x01\x00", 0x50, 65), b"a" * 65),
    ("BloscLZ that ends with a match", one_stream(b"\x00a\xe0\xff\x01\x00", 0x10, 266), b"a" * 266),
]


@on_each_kernel
@pytest.mark.parametrize(("name", "good", "data"), LEGAL, ids=[case[0] for case in LEGAL])
def test_an_odd_chunk_that_is_legal_decodes(
    kernel_name: str, name: str, good: bytes, data: bytes
) -> None:
    kernel: Any = load(kernel_name)
    assert kernel.decompress(good) == data
    typesize = good[3]
    items = len(data) // typesize
    assert (
        kernel.decompress_slice(good, items // 2, items)
        == data[items // 2 * typesize : items * typesize]
    )


@on_each_kernel
def test_a_zero_distance_shows_no_memory_of_others(kernel_name: str) -> None:
    """LZ4 knows no distance 0; its library makes zeros of it, but not in every case.

    Where decoding stops inside the match, it leaves whatever the buffer held before.
    """
    kernel: Any = load(kernel_name)
    rest = bytes(range(256)) * 3 + bytes(150)
    stream = b"\x2fab\x00\x00" + bytes([80 - 19]) + b"\xf0\xff\xff\xff\x8a" + rest
    secret = kernel.compress(b"\xee" * 500 + bytes(500), 1, "lz4", 5, "none", 0)
    assert kernel.decompress_slice(secret, 0, 400) == b"\xee" * 400
    chunk = one_stream(stream, 0x30, 2 + 80 + len(rest))
    assert kernel.decompress_slice(chunk, 0, 50) == b"ab" + bytes(48)
    assert kernel.decompress(chunk) == b"ab" + bytes(80) + rest
