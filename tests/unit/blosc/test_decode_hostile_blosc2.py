"""Bad and odd chunks of Blosc 2, on both kernels: each gives its own error, or its data.

The chunks are laid out by hand, not by the code under test.
"""

import math
import struct
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ingot.blosc.inspection import inspect
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, UnsupportedError
from tests.kernels import load, on_each_kernel

# LZ4: one literal, a match of 94 bytes from one back, five literals.
HUNDRED_AS = bytes.fromhex("1f 61 0100 4b 50 6161616161")
# LZ4: no literal, a match of 95 bytes from four back, five literals.
HUNDRED_OUT_OF_FOUR = bytes.fromhex("0f 0400 4c 50") + b"spams"


def chunk(
    body: bytes = b"",
    *,
    version: int = 5,
    flags: int = 0x35,
    typesize: int = 1,
    nbytes: int = 100,
    blocksize: int = 100,
    filters: Sequence[tuple[int, int]] = (),
    flags2: int = 0,
    blosc2_flags: int = 0,
    cbytes: int | None = None,
) -> bytes:
    numbers = bytes(number for number, _ in filters).ljust(6, b"\0")
    metas = bytes(meta for _, meta in filters).ljust(6, b"\0")
    stored = 32 + len(body) if cbytes is None else cbytes
    fields = (version, 1, flags, typesize, nbytes, blocksize, stored)
    extension = numbers + b"\x01\0" + metas + bytes([flags2, blosc2_flags])
    return struct.pack("<BBBBiii", *fields) + extension + body


def stream(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


def run(value: int, token: bytes = b"\x01") -> bytes:
    return struct.pack("<i", -value) + (token if value else b"")


def blocks(*bodies: bytes, before: bytes = b"") -> bytes:
    """Lay blocks out one behind the other, with their starts in front."""
    at = 32 + 4 * len(bodies) + len(before)
    starts = []
    for body in bodies:
        starts.append(at)
        at += len(body)
    return struct.pack(f"<{len(starts)}i", *starts) + before + b"".join(bodies)


def variable(*bodies: bytes, sizes: Sequence[int], **fields: Any) -> bytes:
    """Lay blocks of variable length out: each has its decoded size in front."""
    described = [struct.pack("<i", size) + body for size, body in zip(sizes, bodies, strict=True)]
    total = fields.pop("nbytes", sum(sizes))
    body = blocks(*described, before=fields.pop("before", b""))
    options = {"version": 6, "flags2": 1} | fields
    return chunk(body, nbytes=total, blocksize=len(bodies), **options)


@dataclass(frozen=True)
class Case:
    name: str
    chunk: bytes
    error: type[IngotError]


ONE = blocks(stream(HUNDRED_AS))
SPAM = stream(b"spam")

FLAGS = [
    Case("lazy", chunk(ONE, blosc2_flags=0x08), FormatError),
    Case("lazy and a run of zeros", chunk(blosc2_flags=0x18), FormatError),
    Case("a codec elsewhere", chunk(ONE, blosc2_flags=0x04), UnsupportedError),
    Case("instrumented", chunk(ONE, blosc2_flags=0x80), UnsupportedError),
    *(
        Case(f"special value {number}", chunk(blosc2_flags=number << 4), UnsupportedError)
        for number in (5, 6, 7)
    ),
    Case("an unknown bit in flags2", chunk(ONE, flags2=0x02), UnsupportedError),
    *(
        Case(f"codec {number}", chunk(ONE, flags=number << 5 | 0x15), UnsupportedError)
        for number in (5, 6, 7)
    ),
    *(
        Case(f"filter {number}", chunk(ONE, filters=[(number, 0)]), UnsupportedError)
        for number in (5, 31, 32, 33, 34, 37, 160, 255)
    ),
    Case("version 7", chunk(ONE, version=7), UnsupportedError),
    Case("cbytes 31", chunk(ONE, cbytes=31), FormatError),
    Case("memcpyed, less than nbytes", chunk(b"spam", flags=0x37, nbytes=5), CorruptionError),
    Case("memcpyed, more than nbytes", chunk(b"spam", flags=0x37, nbytes=3), CorruptionError),
]

SPECIAL = [
    Case("NaN of 2 bytes", chunk(typesize=2, blosc2_flags=0x20), FormatError),
    Case("NaN and a half", chunk(typesize=8, blosc2_flags=0x20), FormatError),
    Case("uninitialised and a half", chunk(typesize=8, blosc2_flags=0x40), FormatError),
    Case("no value", chunk(blosc2_flags=0x30), FormatError),
    Case("a value and a half", chunk(b"abc", blosc2_flags=0x30), FormatError),
    Case("zeros with something behind", chunk(b"abc", blosc2_flags=0x10), FormatError),
    Case("NaN with something behind", chunk(b"abc", typesize=4, blosc2_flags=0x20), FormatError),
]

RUNS = [
    Case("a token of 0", chunk(blocks(run(5, b"\0"))), CorruptionError),
    Case("no token", chunk(blocks(run(5, b""))), CorruptionError),
    Case("a run of 256", chunk(blocks(run(256))), CorruptionError),
    Case("a run of 2^31", chunk(blocks(struct.pack("<i", -(2**31)) + b"\x01")), CorruptionError),
    *(
        Case(f"token {token}", chunk(blocks(run(5, bytes([token])))), UnsupportedError)
        for token in (2, 3, 0x81, 0xFF)
    ),
    Case(
        "an unknown token behind a run and a damaged stream",
        chunk(
            blocks(run(255) + stream(HUNDRED_AS[:4]) + run(5, b"\x02") + run(0)),
            flags=0x25,
            typesize=4,
        ),
        UnsupportedError,
    ),
    Case(
        "two runs in one place",
        chunk(struct.pack("<ii", 40, 40) + run(5), nbytes=200),
        CorruptionError,
    ),
]

DICTIONARIES = [
    Case(
        f"a dictionary of {size}",
        chunk(blocks(stream(HUNDRED_AS), before=struct.pack("<i", size)), blosc2_flags=1),
        CorruptionError,
    )
    for size in (-1, 0, 16, 32769, 2**31 - 1)
] + [
    Case("no room for it", chunk(struct.pack("<i", 36), blosc2_flags=1), CorruptionError),
    Case(
        "a block inside of it",
        chunk(struct.pack("<i", 40) + stream(bytes(20)) + bytes(20), blosc2_flags=1),
        CorruptionError,
    ),
    Case(
        "LZ4: back over it",
        chunk(blocks(stream(HUNDRED_OUT_OF_FOUR), before=stream(b"pam")), blosc2_flags=1),
        CorruptionError,
    ),
    Case(
        "Zstandard: a trained one, cut",
        chunk(
            blocks(
                stream(bytes.fromhex("28b52ffd 80 58 64000000 230300 61")),
                before=stream(bytes.fromhex("37a430ec 01000000 10")),
            ),
            flags=0x95,
            blosc2_flags=1,
        ),
        CorruptionError,
    ),
    Case(
        "Zstandard: another one is wanted",
        chunk(
            blocks(stream(bytes.fromhex("28b52ffd 81 58 07 64000000 230300 61")), before=SPAM),
            flags=0x95,
            blosc2_flags=1,
        ),
        CorruptionError,
    ),
]

SPLITS = [
    Case(
        "blocks that cannot be split evenly",
        chunk(blocks(stream(b"a" * 33)), flags=0x25, typesize=3),
        CorruptionError,
    ),
    Case(
        "zlib claims too much",
        chunk(ONE, flags=0x75, nbytes=10**6, blocksize=10**6),
        CorruptionError,
    ),
]

VARIABLE = [
    Case("and memcpyed", variable(b"spam", sizes=[4], flags=0x37, nbytes=12), FormatError),
    Case("and zeros", chunk(version=6, flags2=1, blosc2_flags=0x10), FormatError),
    Case("sizes below nbytes", variable(b"spam", sizes=[4], nbytes=5), CorruptionError),
    Case("sizes above nbytes", variable(b"spam", sizes=[4], nbytes=3), CorruptionError),
    Case("a negative size", variable(b"spam", b"s", sizes=[-1, 5]), CorruptionError),
    Case("more stored than decoded", variable(b"spam", sizes=[3]), CorruptionError),
    Case("nothing stored", variable(b"", sizes=[4]), CorruptionError),
    Case("a bomb", variable(HUNDRED_AS, sizes=[10**5]), CorruptionError),
    Case("delta", variable(b"spam", b"eggs", sizes=[4, 4], filters=[(3, 0)]), UnsupportedError),
    Case(
        "starts that do not ascend",
        chunk(
            struct.pack("<ii", 48, 40) + stream(b"spam") + stream(b"eggs"),
            version=6,
            flags2=1,
            nbytes=8,
            blocksize=2,
        ),
        CorruptionError,
    ),
    Case(
        "a start twice",
        chunk(
            struct.pack("<ii", 40, 40) + stream(b"spam"), version=6, flags2=1, nbytes=8, blocksize=2
        ),
        CorruptionError,
    ),
    Case("millions of blocks", chunk(ONE, version=6, flags2=1, blocksize=10**7), CorruptionError),
]

INSIDE = ("LZ4: back over it", "Zstandard: a trained one, cut", "Zstandard: another one is wanted")
EVERY = [*FLAGS, *SPECIAL, *RUNS, *DICTIONARIES, *SPLITS, *VARIABLE]


@on_each_kernel
@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_a_bad_chunk_gives_its_error(kernel_name: str, case: Case) -> None:
    kernel = load(kernel_name)
    with pytest.raises(IngotError) as caught:
        kernel.decompress(case.chunk)
    assert type(caught.value) is case.error, str(caught.value)
    with pytest.raises(case.error):
        kernel.decompress(case.chunk, bytearray(10**6), 2)


@pytest.mark.parametrize(
    "case", [case for case in EVERY if case.name not in INSIDE], ids=lambda case: case.name
)
def test_a_bad_chunk_gives_its_error_when_inspected(case: Case) -> None:
    with pytest.raises(case.error):
        inspect(case.chunk)


LEGAL: list[tuple[str, bytes, bytes]] = [
    ("plain", chunk(ONE), b"a" * 100),
    *((f"version {v}", chunk(ONE, version=v), b"a" * 100) for v in (1, 2, 3, 4, 6)),
    ("a big-endian writer", chunk(ONE, blosc2_flags=0x02), b"a" * 100),
    ("empty", chunk(nbytes=0, blosc2_flags=0), b""),
    ("memcpyed, filters set", chunk(b"spam", flags=0x37, nbytes=4, filters=[(3, 0)]), b"spam"),
    ("memcpyed, foreign filter", chunk(b"spam", flags=0x37, nbytes=4, filters=[(200, 0)]), b"spam"),
    ("memcpyed, dictionary flag", chunk(b"spam", flags=0x37, nbytes=4, blosc2_flags=1), b"spam"),
    ("zeros", chunk(typesize=8, blosc2_flags=0x10), bytes(100)),
    ("zeros, foreign codec", chunk(flags=0xD5, filters=[(99, 0)], blosc2_flags=0x10), bytes(100)),
    (
        "NaN of 4 bytes",
        chunk(typesize=4, blosc2_flags=0x20),
        bytes.fromhex("0000c07f") * 25,
    ),
    (
        "NaN of 8 bytes",
        chunk(typesize=8, nbytes=96, blosc2_flags=0x20),
        struct.pack("<d", math.nan) * 12,
    ),
    ("a value", chunk(b"spam", typesize=4, blosc2_flags=0x30), b"spam" * 25),
    ("a value wider than items", chunk(b"0123456789", blosc2_flags=0x30), b"0123456789" * 10),
    (
        "a value longer than a byte tells",
        chunk(b"ab" * 200, nbytes=800, blosc2_flags=0x30),
        b"ab" * 400,
    ),
    ("uninitialised", chunk(typesize=4, blosc2_flags=0x40), bytes(100)),
    ("special and memcpyed", chunk(flags=0x37, blosc2_flags=0x10), bytes(100)),
    ("a run of zeros", chunk(blocks(run(0))), bytes(100)),
    ("a run of 65", chunk(blocks(struct.pack("<I", 0xFFFFFFBF) + b"\x01")), b"A" * 100),
    ("a run of 255", chunk(blocks(run(255))), b"\xff" * 100),
    (
        "a run in each of two streams",
        chunk(blocks(run(1) + run(2)), flags=0x25, typesize=2, filters=[(1, 0)]),
        b"\x01\x02" * 50,
    ),
    (
        "blocks out of order",
        chunk(struct.pack("<ii", 44, 40) + run(0) + run(7), nbytes=200),
        b"\x07" * 100 + bytes(100),
    ),
    (
        "a short last block is not split",
        chunk(blocks(run(1) + run(2), stream(b"xy")), flags=0x25, typesize=2, nbytes=102),
        b"\x01" * 50 + b"\x02" * 50 + b"xy",
    ),
    (
        "shuffle in planes of its metadata",
        chunk(blocks(stream(b"abcdABCD.")), typesize=1, nbytes=9, blocksize=9, filters=[(1, 2)]),
        b"aAbBcCdD.",
    ),
    (
        "delta in the first block and behind it",
        chunk(
            blocks(stream(bytes([1, 3, 1])), stream(bytes([1, 2, 3])), stream(b"\x0b")),
            nbytes=7,
            blocksize=3,
            filters=[(3, 0)],
        ),
        bytes([1, 2, 3, 0, 0, 0, 10]),
    ),
    (
        "delta in 16 bytes of header",
        struct.pack("<BBBBiii", 4, 1, 0x38, 2, 5, 4, 37)
        + struct.pack("<ii", 24, 32)
        + stream(b"\x01\x01\x02\x02")
        + stream(b"\x05"),
        b"\x01\x01\x03\x03\x05",
    ),
    (
        "delta alone in 16 bytes of header",
        struct.pack("<BBBBiii", 4, 1, 0x38, 1, 16, 8, 48)
        + struct.pack("<ii", 24, 36)
        + stream(b"\x01\0\0\0\0\0\0\0")
        + stream(bytes([1, 0, 3, 2, 5, 4, 7, 6])),
        b"\x01" * 8 + bytes(range(8)),
    ),
    (
        "bytedelta in two planes",
        chunk(
            blocks(stream(bytes([1, 1, 255, 7, 0, 250, 9]))),
            nbytes=7,
            blocksize=7,
            filters=[(35, 2)],
        ),
        bytes([1, 2, 1, 7, 7, 1, 9]),
    ),
    (
        "truncation is nothing to undo",
        chunk(blocks(stream(b"spam")), nbytes=4, filters=[(4, 10), (36, 3)]),
        b"spam",
    ),
    (
        "a dictionary",
        chunk(blocks(stream(HUNDRED_OUT_OF_FOUR), before=SPAM), blosc2_flags=1),
        b"spam" * 23 + b"spa" + b"spams",
    ),
    (
        "a dictionary that the codec cannot use",
        chunk(
            blocks(stream(b"\x00a\xe0\x59\x00"), before=SPAM), flags=0x15, blosc2_flags=1, nbytes=99
        ),
        b"a" * 99,
    ),
    (
        "a plain Zstandard dictionary",
        chunk(
            blocks(stream(bytes.fromhex("28b52ffd 80 58 64000000 230300 61")), before=SPAM),
            flags=0x95,
            blosc2_flags=1,
        ),
        b"a" * 100,
    ),
    (
        "blocks of variable length",
        variable(b"spam", HUNDRED_AS, sizes=[4, 100]),
        b"spam" + b"a" * 100,
    ),
    ("an empty block among them", variable(b"spam", b"", b"s", sizes=[4, 0, 1]), b"spams"),
    (
        "variable length, shuffled",
        variable(b"acbd", b"AB", sizes=[4, 2], typesize=2, filters=[(1, 0)]),
        b"abcdAB",
    ),
    (
        "variable length and a dictionary",
        variable(HUNDRED_OUT_OF_FOUR, b"s", sizes=[100, 1], before=SPAM, blosc2_flags=1),
        b"spam" * 23 + b"spa" + b"spamss",
    ),
]


@on_each_kernel
@pytest.mark.parametrize(("name", "good", "data"), LEGAL, ids=[case[0] for case in LEGAL])
def test_an_odd_chunk_that_is_legal_decodes(
    kernel_name: str, name: str, good: bytes, data: bytes
) -> None:
    kernel = load(kernel_name)
    assert kernel.decompress(good) == data
    size = good[3]
    for start in range(0, len(data) // size + 1, max(len(data) // 10, 1)):
        for stop in (start, len(data) // size):
            part = kernel.decompress_slice(good, start, stop)
            assert part == data[start * size : stop * size]
    assert inspect(good).header.nbytes == len(data)


@on_each_kernel
def test_a_chunk_of_zeros_above_the_limit_takes_no_memory(kernel_name: str) -> None:
    kernel = load(kernel_name)
    tracemalloc.start()
    try:
        for bomb in (
            chunk(blosc2_flags=0x10, nbytes=2**31 - 1),
            chunk(blocks(*[run(0)] * 4), nbytes=2**31 - 1, blocksize=536_866_816),
        ):
            with pytest.raises(LimitError):
                kernel.decompress(bomb, None, 1, 10**6)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@on_each_kernel
def test_nothing_uninitialised_shows(kernel_name: str) -> None:
    kernel = load(kernel_name)
    out = np.full(200, 0xEE, np.uint8)
    assert kernel.decompress(chunk(typesize=4, blosc2_flags=0x40), out) == 100
    assert out.tobytes() == bytes(100) + b"\xee" * 100
