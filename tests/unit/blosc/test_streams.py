"""Streams end where their bytes end and hold what they must, in every codec."""

import tracemalloc
import zlib

import pytest

from ingot.blosc import streams
from ingot.errors import CorruptionError, UnsupportedError

DATA = b"".join(b"%d bottles of beer on the wall, " % number for number in range(99, 0, -1))

FORMATS = ("blosclz", "lz4", "snappy", "zlib", "zstd")


@pytest.mark.parametrize("codec", [*FORMATS, "lz4hc"])
@pytest.mark.parametrize("level", [1, 5, 9])
def test_what_is_encoded_shrinks_and_decodes(codec: str, level: int) -> None:
    encoded = streams.encode(codec, DATA, level)
    assert len(encoded) < len(DATA) * 0.6
    assert streams.decode(codec.removesuffix("hc"), encoded, len(DATA)) == DATA


@pytest.mark.parametrize("codec", FORMATS)
def test_a_stream_of_another_length_is_corruption(codec: str) -> None:
    encoded = streams.encode(codec, DATA, 5)
    for nbytes in (1, len(DATA) - 1, len(DATA) + 1, 2 * len(DATA)):
        with pytest.raises(CorruptionError):
            streams.decode(codec, encoded, nbytes)


@pytest.mark.parametrize("codec", FORMATS)
def test_a_stream_that_is_cut_is_corruption(codec: str) -> None:
    encoded = streams.encode(codec, DATA, 5)
    for length in range(len(encoded)):
        with pytest.raises(CorruptionError):
            streams.decode(codec, encoded[:length], len(DATA))


@pytest.mark.parametrize("codec", FORMATS)
@pytest.mark.parametrize("more", [b"\0", b"\xff", b"junk", bytes(100)])
def test_bytes_behind_a_stream_are_corruption(codec: str, more: bytes) -> None:
    with pytest.raises(CorruptionError):
        streams.decode(codec, streams.encode(codec, DATA, 5) + more, len(DATA))


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_a_second_stream_behind_the_first_is_corruption(codec: str) -> None:
    half = len(DATA) // 2
    both = streams.encode(codec, DATA[:half], 5) + streams.encode(codec, DATA[half:], 5)
    with pytest.raises(CorruptionError):
        streams.decode(codec, both, len(DATA))


@pytest.mark.parametrize(
    ("first_match", "length"),
    [("14 61 {} ", 8), ("1f 61 {} 03", 22), ("1f 61 {} ff 03", 277), ("1f 61 {} ff ff 00", 529)],
)
def test_a_distance_of_0_in_lz4_makes_zeros(first_match: str, length: int) -> None:
    """As the LZ4 library has it; what matters is that no memory of others shows."""
    literals = "f0 ff 1e" + "62" * 300
    good = bytes.fromhex(first_match.format("0100") + "44 63636363 0200" + literals)
    data = b"a" * (1 + length) + b"cccc" + b"c" * 8 + b"b" * 300
    assert streams.decode("lz4", good, len(data)) == data
    bad = good.replace(bytes.fromhex("0100"), b"\0\0", 1)
    assert streams.decode("lz4", bad, len(data)) == b"a" + bytes(length) + data[1 + length :]
    bad = good.replace(bytes.fromhex("0200"), b"\0\0", 1)
    assert streams.decode("lz4", bad, len(data)) == data[: 5 + length] + bytes(8) + b"b" * 300


def test_zlib_checks_its_checksum() -> None:
    encoded = bytearray(zlib.compress(DATA))
    encoded[-1] ^= 1
    with pytest.raises(CorruptionError, match="incorrect data check"):
        streams.decode("zlib", bytes(encoded), len(DATA))


# A Zstandard frame: magic, descriptor, window, blocks of a three-byte header (last block: 1,
# kind: raw 0 or run 2, size times 8) and their content.
RUN_WITHOUT_SIZE = (
    bytes.fromhex("28b52ffd 00 58") + (1000 << 3 | 2 | 1).to_bytes(3, "little") + b"a"
)


def test_a_zstd_frame_without_content_size_decodes() -> None:
    assert streams.decode("zstd", RUN_WITHOUT_SIZE, 1000) == b"a" * 1000


@pytest.mark.parametrize("nbytes", [1, 999, 1001, 100_000])
def test_a_zstd_frame_without_content_size_is_held_to_the_size_due(nbytes: int) -> None:
    with pytest.raises(CorruptionError):
        streams.decode("zstd", RUN_WITHOUT_SIZE, nbytes)


@pytest.mark.parametrize(
    ("header", "claim"),
    [
        ("28b52ffd 20 c8", 200),  # one segment: one byte of size, no window
        ("28b52ffd 40 58 2c01", 556),  # two bytes of size count from 256
        ("28b52ffd 80 58 e8030000", 1000),
        ("28b52ffd c0 58 e803000000000000", 1000),
        ("28b52ffd 60 2c01", 556),
    ],
)
def test_the_content_size_of_a_zstd_frame_is_read(header: str, claim: int) -> None:
    frame = bytes.fromhex(header) + (claim << 3 | 2 | 1).to_bytes(3, "little") + b"a"
    assert streams.decode("zstd", frame, claim) == b"a" * claim
    with pytest.raises(CorruptionError, match=f"the frame claims {claim} bytes, {claim + 1} are"):
        streams.decode("zstd", frame, claim + 1)


def test_a_zstd_frame_that_wants_a_dictionary_is_corruption() -> None:
    frame = bytes.fromhex("28b52ffd 21 07 05") + (5 << 3 | 1).to_bytes(3, "little") + b"hello"
    with pytest.raises(CorruptionError):
        streams.decode("zstd", frame, 5)


def test_an_empty_zstd_frame_behind_the_data_is_corruption() -> None:
    skippable = bytes.fromhex("502a4d18 00000000")
    with pytest.raises(CorruptionError, match="the frame ends at"):
        streams.decode("zstd", streams.encode("zstd", DATA, 3) + skippable, len(DATA))
    with pytest.raises(CorruptionError, match="begins with 50 2a 4d 18"):
        streams.decode("zstd", skippable + streams.encode("zstd", DATA, 3), len(DATA))


def test_a_zstd_frame_from_before_the_format_was_settled_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match=r"version 0\.7"):
        streams.decode("zstd", bytes.fromhex("27b52ffd") + RUN_WITHOUT_SIZE[4:], 1000)


def test_many_zstd_runs_take_no_more_memory_than_the_size_due() -> None:
    """Without a content size a frame of 4 KB can unfold to 128 MB."""
    run = (1 << 20 | 2).to_bytes(3, "little") + b"a"
    bomb = bytes.fromhex("28b52ffd 00 58") + run * 1000 + (8 | 2 | 1).to_bytes(3, "little") + b"a"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            streams.decode("zstd", bomb, 5000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_zlib_bomb_takes_no_more_memory_than_the_size_due() -> None:
    bomb = zlib.compress(bytes(50_000_000), 9)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            streams.decode("zlib", bomb, 60_000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
