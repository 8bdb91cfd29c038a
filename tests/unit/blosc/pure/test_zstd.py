"""Zstandard in pure Python: every frame that the library writes, and dictionaries."""

import random
from contextlib import suppress

import numpy as np
import pytest
from numcodecs import zstd

from ingot.blosc import streams
from ingot.blosc.inspection import inspect
from ingot.blosc.pure import zstd as zstandard
from ingot.blosc.pure.fse import BitReader, StateTable, SymbolTable
from ingot.errors import CorruptionError, UnsupportedError
from tests.kernels import load, needs_native

RANDOM = np.random.default_rng(8)
TEXT = b"".join(b"%d green bottles hanging on the wall, " % (n // 3) for n in range(3000))
DATAS = {
    "few symbols": RANDOM.integers(0, 4, 30_000, np.uint8).tobytes(),
    "counters": np.cumsum(RANDOM.integers(0, 5, 4000)).tobytes(),
    "text": TEXT,
    "zeros": bytes(200_000),
    "noise": RANDOM.bytes(5000),
    "floats": RANDOM.normal(size=8000).astype("<f4").tobytes(),
    "three bytes": b"abc",
}
# One raw block of ten bytes.
RAW_FRAME = bytes.fromhex("28b52ffd 20 0a 510000") + b"abcdefghij"


@pytest.mark.parametrize("name", DATAS)
@pytest.mark.parametrize("level", [1, 3, 9, 19])
def test_frames_of_the_library_decode(name: str, level: int) -> None:
    data = DATAS[name]
    frame = bytes(zstd.compress(data, level))
    assert zstandard.decode(frame, len(data), b"unused") == data


def test_a_match_reaches_back_into_plain_bytes() -> None:
    """By hand: no literals; one sequence of RLE codes: 6 bytes from 4 back, then 0 literals."""
    # Offset code 2 is 4 + 2 bits, here 3: 7 - 3 = 4 back. Match code 3 is 6 bytes.
    block = bytes([0x00, 1, 0b0101_0100, 0, 2, 3, 0b111])
    head = (len(block) << 3 | 2 << 1 | 1).to_bytes(3, "little")
    frame = bytes.fromhex("28b52ffd 00 00") + head + block
    assert zstandard.decode(frame, 6, b"so much spam") == b"spamsp"
    with pytest.raises(CorruptionError, match="reaches 4 bytes back, 3 are known"):
        zstandard.decode(frame, 6, b"pam")


@pytest.mark.parametrize("place", [1, 2])
def test_repeated_offsets_begin_with_those_of_the_format(place: int) -> None:
    """Offset code 0 (and 1) with no literals before it means the second (third) recent offset."""
    code, bits = ((0, 0b1), (1, 0b10))[place - 1]
    block = bytes([0x00, 1, 0b0101_0100, 0, code, 3, bits])
    head = (len(block) << 3 | 2 << 1 | 1).to_bytes(3, "little")
    frame = bytes.fromhex("28b52ffd 00 00") + head + block
    expected = {1: b"efghef", 2: b"abcdef"}[place]
    assert zstandard.decode(frame, 6, b"abcdefgh") == expected


def test_a_frame_that_wants_another_dictionary_is_refused() -> None:
    frame = bytes.fromhex("28b52ffd 21 07 0a 510000") + b"abcdefghij"
    with pytest.raises(CorruptionError, match="wants dictionary 7, this is 0"):
        zstandard.decode(frame, 10, b"plain")


@pytest.mark.parametrize(("window", "most"), [(0x00, 1024), (0x03, 1408), (0x0A, 2560)])
def test_blocks_are_no_larger_than_the_window(window: int, most: int) -> None:
    """By hand: a run of literals in one block, then nothing; the window's size is in eighths."""
    for size, fits in [(most, True), (most + 1, False)]:
        literals = (size << 4 | 3 << 2 | 1).to_bytes(3, "little") + b"x"
        body = literals + b"\0"
        head = (len(body) << 3 | 2 << 1 | 1).to_bytes(3, "little")
        frame = bytes.fromhex("28b52ffd 00") + bytes([window]) + head + body
        if fits:
            assert zstandard.decode(frame, size, b"plain") == b"x" * size
        else:
            with pytest.raises(CorruptionError, match=f"holds {size} bytes, the most is {most}"):
                zstandard.decode(frame, size, b"plain")


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (b"\x28\xb5\x2f\xfd\x28" + RAW_FRAME[5:], CorruptionError, "reserved bit"),
        (RAW_FRAME[:6] + b"\x57" + RAW_FRAME[7:], CorruptionError, "block of kind 3"),
        (RAW_FRAME[:4] + b"\x00\xb0" + RAW_FRAME[6:], CorruptionError, r"window of 2\*\*32 bytes"),
        (RAW_FRAME[:6] + b"\x49" + RAW_FRAME[7:], CorruptionError, "holds 9, 10 are due"),
    ],
)
def test_bad_frames_are_refused(frame: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        zstandard.decode(frame, 10, b"plain")


def summed(frame: bytes, data: bytes) -> bytes:
    """Add the checksum to a frame, as the library computes it."""
    checksum = bytes(zstd.compress(data, 1, checksum=True))[-4:]
    return frame[:4] + bytes([frame[4] | 4]) + frame[5:] + checksum


@pytest.mark.parametrize("length", [1, 10, 1000, 128 << 10, 300_001])
def test_checksums_are_compared_with_dictionaries_too(length: int) -> None:
    data = (TEXT * 3)[:length]
    frame = summed(bytes(zstd.compress(data, 3)), data)
    assert streams.decode("zstd", frame, length, b"unused") == data
    for at in (-1, -4):
        damaged = bytearray(frame)
        damaged[at] ^= 1
        with pytest.raises(CorruptionError, match="checksum"):
            streams.decode("zstd", bytes(damaged), length, b"unused")


@needs_native
def test_both_kernels_read_summed_frames_of_a_dictionary() -> None:
    data = TEXT[:800]
    native = load("native")
    chunk = native.compress2(data, 1, "zstd", 5, [], 0, "never", TEXT[:500])
    (stream,) = inspect(chunk).blocks[0].streams
    frame = chunk[stream.offset : stream.offset + stream.cbytes]
    assert len(frame) < 100, "the dictionary is not used"
    longer = summed(frame, data)
    resized = (len(chunk) + 4).to_bytes(4, "little")
    size = len(longer).to_bytes(4, "little")
    whole = chunk[:12] + resized + chunk[16 : stream.offset - 4] + size + longer
    for kernel in (native, load("python")):
        assert kernel.decompress(whole) == data
        with pytest.raises(CorruptionError):
            kernel.decompress(whole[:-1] + bytes([whole[-1] ^ 1]))


@pytest.mark.parametrize("cut", [9, 12, 40])
def test_a_trained_dictionary_that_is_cut_is_refused(cut: int) -> None:
    dictionary = bytes.fromhex("37a430ec 01000000 10") + bytes(cut)
    with pytest.raises(CorruptionError):
        zstandard.decode(RAW_FRAME, 10, dictionary[: 8 + cut])


def test_damage_gives_our_errors_or_data_of_the_right_size() -> None:
    choose = random.Random(4)
    for name in ("text", "counters", "few symbols"):
        data = DATAS[name][:3000]
        frame = bytes(zstd.compress(data, 9))
        for _ in range(300):
            damaged = bytearray(frame)
            for _ in range(choose.randrange(1, 4)):
                damaged[choose.randrange(4, len(damaged))] = choose.randrange(256)
            with suppress(CorruptionError, UnsupportedError):
                assert len(streams.decode("zstd", bytes(damaged), 3000, b"plain")) == 3000


def test_bits_come_from_the_end_and_run_out_as_zeros() -> None:
    bits = BitReader(bytes([0b1011_0001, 0b0000_0110]))
    assert bits.left == 10
    assert [bits.read(3), bits.read(4), bits.read(3)] == [0b101, 0b0110, 0b001]
    assert (bits.peek(4), bits.left) == (0, 0)
    assert bits.read(2) == 0
    assert bits.left == -2
    for nothing in (b"", b"\x05\x00"):
        with pytest.raises(CorruptionError, match="no mark"):
            BitReader(nothing)


@pytest.mark.parametrize("counts", [(16, 8, 4, 2, 1, -1), (31, -1), (1,) * 32])
def test_a_state_table_has_as_many_states_as_counts(counts: tuple[int, ...]) -> None:
    table = StateTable.build(counts, 5)
    assert [table.symbols.count(s) for s in range(len(counts))] == [abs(c) for c in counts]
    reached = sorted(
        base + bits
        for symbol, base, width in zip(table.symbols, table.bases, table.widths, strict=True)
        if symbol == 0
        for bits in range(1 << width)
    )
    assert reached == list(range(32))


@pytest.mark.parametrize("described", [bytes([129, 0x31]), bytes([129, 0x22]), bytes([129, 0])])
def test_weights_that_do_not_add_up_are_refused(described: bytes) -> None:
    with pytest.raises(CorruptionError, match="do not add up"):
        SymbolTable.parse(described, 0)


def test_lz4_reaches_back_into_a_dictionary_and_not_behind() -> None:
    # No literal, a match of 95 bytes from four back, five literals.
    stream = bytes.fromhex("0f 0400 4c 50") + b"spams"
    expected = b"spam" * 23 + b"spa" + b"spams"
    assert streams.decode("lz4", stream, 100, b"spam") == expected
    assert streams.decode("lz4", stream, 100, b"eggs and spam" * 2000) == expected
    for short in (b"pam", b"m"):
        with pytest.raises(CorruptionError, match="reaches back over the dictionary"):
            streams.decode("lz4", stream, 100, short)
    with pytest.raises(CorruptionError):
        streams.decode("lz4", stream[:8], 100, b"spam")
