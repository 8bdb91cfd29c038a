"""Compressors of bytes: what numcodecs writes is read, within bounds, and the other way round."""

import gzip
import lzma
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.codecs.codec import Compressor, parse_stage
from ingot.codecs.compressors import Base64, Blosc, Bz2, Gzip, Lzma, Shuffle, Zlib
from ingot.errors import CorruptionError, FormatError, LimitError

LIMIT = 2**26
TEXT = b"".join(b"%d times %d is %d. " % (n, n, n * n) for n in range(400))

LZMA_RAW = {
    "id": "lzma",
    "format": lzma.FORMAT_RAW,
    "check": -1,
    "preset": None,
    "filters": [{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}],
}
CONFIGS = [
    {"id": "zlib", "level": 1},
    {"id": "zlib", "level": -1},
    {"id": "gzip", "level": 9},
    {"id": "bz2", "level": 2},
    {"id": "lzma"},
    {"id": "lzma", "format": lzma.FORMAT_ALONE, "preset": 1},
    LZMA_RAW,
    {"id": "base64"},
    {"id": "shuffle", "elementsize": 4},
    {"id": "shuffle", "elementsize": 0},
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    {"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 2, "blocksize": 1024},
    {"id": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": 0, "blocksize": 0},
    {"id": "blosc", "cname": "zlib", "clevel": 9, "shuffle": -1, "blocksize": 0},
]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config["id"]))


def stage_of(config: dict[str, Any]) -> Compressor:
    stage = parse_stage(config)
    assert isinstance(stage, Compressor)
    return stage


@each_config
def test_numcodecs_and_ours_read_each_other(config: dict[str, Any]) -> None:
    ours, theirs = stage_of(config), numcodecs.get_codec(config)
    data = TEXT[: len(TEXT) // 4 * 4]
    assert bytes(theirs.decode(bytes(ours.encode(data)))) == data
    assert bytes(ours.decode(bytes(theirs.encode(data)), len(data), LIMIT)) == data
    assert bytes(ours.decode(bytes(theirs.encode(data)), None, LIMIT)) == data


@each_config
@given(data=st.binary(min_size=1, max_size=400))
def test_bytes_come_back(config: dict[str, Any], data: bytes) -> None:
    data = data * 4
    stage = stage_of(config)
    assert bytes(stage.decode(bytes(stage.encode(data)), len(data), LIMIT)) == data


@each_config
def test_a_config_reads_back_as_the_same_stage(config: dict[str, Any]) -> None:
    stage = stage_of(config)
    assert parse_stage(stage.config()) == stage
    assert {key: stage.config()[key] for key in config} == config


STREAMS = [Zlib(1), Gzip(1), Bz2(1), Lzma(), Lzma(format=lzma.FORMAT_ALONE), stage_of(LZMA_RAW)]
each_stream = pytest.mark.parametrize("stage", [*STREAMS, Blosc("zlib")], ids=lambda s: s.name)


@each_stream
def test_a_stream_that_is_cut_anywhere_is_corrupt(stage: Compressor) -> None:
    stored = bytes(stage.encode(TEXT[:500]))
    for length in range(len(stored)):
        with pytest.raises(CorruptionError):
            stage.decode(stored[:length], 500, LIMIT)
        with pytest.raises(CorruptionError):
            stage.decode(stored[:length], None, LIMIT)


@each_stream
@pytest.mark.parametrize("tail", [b"x", b"garbage!" * 4, b"\x00\x00\x00\x01"])
def test_what_follows_a_stream_is_corrupt(stage: Compressor, tail: bytes) -> None:
    stored = bytes(stage.encode(TEXT))
    with pytest.raises(CorruptionError):
        stage.decode(stored + tail, len(TEXT), LIMIT)


@each_stream
def test_a_stream_of_another_size_is_corrupt(stage: Compressor) -> None:
    stored = bytes(stage.encode(TEXT))
    for size in (0, 1, len(TEXT) - 1, len(TEXT) + 1, 2**40):
        with pytest.raises(CorruptionError, match="due"):
            stage.decode(stored, size, LIMIT)


@each_stream
def test_a_limit_is_exact(stage: Compressor) -> None:
    stored = bytes(stage.encode(TEXT))
    assert bytes(stage.decode(stored, None, len(TEXT))) == TEXT
    with pytest.raises(LimitError):
        stage.decode(stored, None, len(TEXT) - 1)


@each_stream
def test_a_bomb_takes_no_memory(stage: Compressor) -> None:
    bomb = bytes(stage.encode(bytes(2**25)))
    assert len(bomb) < 2**18
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            stage.decode(bomb, 1000, LIMIT)
        with pytest.raises(LimitError):
            stage.decode(bomb, None, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An LZMA decoder keeps its dictionary besides: 8 MiB at the usual preset.
    assert peak < (2**24 if stage.name == "lzma" else 2**20)


@pytest.mark.parametrize(
    ("stage", "encode"),
    [(Gzip(1), gzip.compress), (Bz2(1), Bz2(9).encode), (Lzma(), lzma.compress)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_streams_in_a_row_are_one(stage: Compressor, encode: Callable[[bytes], bytes]) -> None:
    parts = [TEXT[:1000], b"", TEXT[1000:70_000] * 20, TEXT[70_000:]]
    data = b"".join(parts)
    stored = b"".join(map(encode, parts))
    assert bytes(stage.decode(stored, len(data), LIMIT)) == data
    assert bytes(numcodecs.get_codec(stage.config()).decode(stored)) == data
    with pytest.raises(CorruptionError, match="holds more"):
        stage.decode(stored, 500, LIMIT)


def test_many_short_members_take_linear_time() -> None:
    member = gzip.compress(b"", 1, mtime=0)
    assert bytes(Gzip().decode(member * 50_000, 0, LIMIT)) == b""


def test_zeros_may_follow_gzip_members() -> None:
    assert bytes(Gzip().decode(gzip.compress(TEXT) + bytes(100), len(TEXT), LIMIT)) == TEXT


def test_zlib_has_one_stream() -> None:
    with pytest.raises(CorruptionError, match="follow the stream"):
        Zlib().decode(zlib.compress(b"a") * 2, 2, LIMIT)


def test_gzip_bytes_depend_on_the_data_alone() -> None:
    assert Gzip(5).encode(TEXT) == gzip.compress(TEXT, 5, mtime=0)


def test_an_lzma_decoder_that_wants_much_memory_is_refused() -> None:
    huge = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]
    with pytest.raises(LimitError, match="dict_size"):
        parse_stage(LZMA_RAW | {"filters": huge})
    small = bytearray(lzma.compress(b"spam", format=lzma.FORMAT_ALONE))
    small[1:5] = (2**31).to_bytes(4, "little")
    with pytest.raises(LimitError, match="memory"):
        Lzma(format=lzma.FORMAT_ALONE).decode(bytes(small), 4, LIMIT)


@pytest.mark.parametrize(
    "filters",
    [[], "x", [5], [{}], [{"id": "x"}], [{"id": 33, "dict_size": -1}], [{"id": 33}] * 5],
)
def test_lzma_filters_that_are_none(filters: object) -> None:
    with pytest.raises(FormatError, match="lzma"):
        parse_stage(LZMA_RAW | {"filters": filters})


def test_lzma_filters_that_lzma_does_not_know() -> None:
    stage = stage_of(LZMA_RAW | {"filters": [{"id": 12345}]})
    with pytest.raises(FormatError, match="cannot decode"):
        stage.decode(b"x", 1, LIMIT)
    with pytest.raises(FormatError, match="cannot encode"):
        stage.encode(b"x")


@pytest.mark.parametrize("text", [b"YWI", b"YW=I", b"Y W I =", b"YWI=\n", b"YWI=YWI="])
def test_base64_that_is_damaged(text: bytes) -> None:
    with pytest.raises(CorruptionError, match="base64"):
        Base64().decode(text, None, LIMIT)


def test_base64_has_a_limit() -> None:
    with pytest.raises(LimitError, match="base64"):
        Base64().decode(b"AAAA" * 1000, None, 100)


def test_shuffle_puts_first_bytes_first() -> None:
    assert bytes(Shuffle(2).encode(b"aAbBcC")) == b"abcABC"
    assert bytes(Shuffle(2).decode(b"abcABC", 6, LIMIT)) == b"aAbBcC"
    with pytest.raises(FormatError, match="not a multiple"):
        Shuffle(4).encode(b"abcde")
    with pytest.raises(CorruptionError, match="not a multiple"):
        Shuffle(4).decode(b"abcde", None, LIMIT)


def test_blosc_keeps_its_word_for_auto() -> None:
    stage = parse_stage({"id": "blosc", "shuffle": -1})
    assert stage.config()["shuffle"] == -1


def test_blosc_chunks_have_the_type_size_and_filter_of_numcodecs() -> None:
    data = np.arange(1000, dtype="<i8")
    for shuffle in (-1, 0, 1, 2):
        for itemsize in (1, 8):
            config = {"id": "blosc", "cname": "lz4", "shuffle": shuffle}
            view = data.view("u1") if itemsize == 1 else data
            theirs = numcodecs.get_codec(config).encode(view)
            ours = stage_of(config).bind(itemsize).encode(data.tobytes())
            assert ours[3] == theirs[3] == itemsize
            assert ours[2] & 0xE5 == theirs[2] & 0xE5


@pytest.mark.parametrize(
    "config",
    [
        {"id": "zlib", "level": 10},
        {"id": "zlib", "level": 1.0},
        {"id": "zlib", "level": True},
        {"id": "gzip", "level": "1"},
        {"id": "bz2", "level": 0},
        {"id": "lzma", "format": 4},
        {"id": "lzma", "preset": -1},
        {"id": "shuffle", "elementsize": -4},
        {"id": "blosc", "cname": "lz5"},
        {"id": "blosc", "cname": None},
        {"id": "blosc", "clevel": 10},
        {"id": "blosc", "shuffle": 3},
        {"id": "blosc", "shuffle": "sideways"},
        {"id": "blosc", "blocksize": -1},
        {"id": "crc32", "location": "middle"},
    ],
    ids=str,
)
def test_parameters_out_of_range(config: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=str(config["id"])):
        parse_stage(config)
