"""Codecs of other packages: what they write is read, and what they would believe is checked."""

import subprocess
import sys
import tracemalloc
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.codecs.codec import ChunkSpec, CodecChain, Compressor, Serializer, assemble, parse_stage
from ingot.codecs.foreign import Lz4, MsgPack2, Zstd
from ingot.errors import CorruptionError, FormatError, LimitError, UnsupportedError

LIMIT = 2**26
TEXT = b"".join(b"%d times %d is %d. " % (n, n, n * n) for n in range(400))
OBJECT = np.dtype(object)

CONFIGS = [
    {"id": "lz4", "acceleration": 1},
    {"id": "lz4", "acceleration": 1000},
    {"id": "zstd", "level": 0, "checksum": False},
    {"id": "zstd", "level": -131072, "checksum": True},
    {"id": "zstd", "level": 22},
]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=str)
each_stage = pytest.mark.parametrize("stage", [Lz4(), Zstd(), Zstd(3, True)], ids=str)


def stage_of(config: dict[str, Any]) -> Compressor:
    stage = parse_stage(config)
    assert isinstance(stage, Compressor)
    return stage


@each_config
@given(data=st.binary(min_size=1, max_size=400))
def test_numcodecs_and_ours_read_each_other(config: dict[str, Any], data: bytes) -> None:
    ours, theirs = stage_of(config), numcodecs.get_codec(config)
    assert theirs.decode(bytes(ours.encode(data * 5))) == data * 5
    for size in (len(data) * 5, None):
        assert bytes(ours.decode(bytes(theirs.encode(data * 5)), size, LIMIT)) == data * 5


@each_config
def test_a_config_reads_back_as_the_same_stage(config: dict[str, Any]) -> None:
    stage = stage_of(config)
    assert parse_stage(stage.config()) == stage
    # A checksum that is not wanted goes without saying: tensorstore does not know the word.
    said = {key: value for key, value in config.items() if (key, value) != ("checksum", False)}
    assert {key: stage.config()[key] for key in said} == said


@each_stage
def test_a_stream_that_is_cut_anywhere_is_corrupt(stage: Compressor) -> None:
    stored = bytes(stage.encode(TEXT[:500]))
    for length in range(1, len(stored)):
        for size in (500, None):
            with pytest.raises(CorruptionError):
                stage.decode(stored[:length], size, LIMIT)


@each_stage
def test_a_stream_of_another_size_is_corrupt(stage: Compressor) -> None:
    stored = bytes(stage.encode(TEXT))
    for size in (0, 1, len(TEXT) - 1, len(TEXT) + 1, 2**40):
        with pytest.raises(CorruptionError):
            stage.decode(stored, size, LIMIT)


@each_stage
def test_a_limit_is_exact(stage: Compressor) -> None:
    stored = bytes(stage.encode(TEXT))
    assert bytes(stage.decode(stored, None, len(TEXT))) == TEXT
    with pytest.raises(LimitError):
        stage.decode(stored, None, len(TEXT) - 1)


@each_stage
@pytest.mark.parametrize("tail", [b"x", b"garbage!" * 4, bytes(100)])
def test_what_follows_a_stream_is_corrupt(stage: Compressor, tail: bytes) -> None:
    stored = bytes(stage.encode(TEXT))
    with pytest.raises(CorruptionError):
        stage.decode(stored + tail, len(TEXT), LIMIT)


def test_lz4_claims_are_held_against_the_bytes() -> None:
    stored = (2**30).to_bytes(4, "little") + bytes(60)
    with pytest.raises(CorruptionError, match="cannot hold"):
        Lz4().decode(stored, 2**30, 2**31)
    with pytest.raises(LimitError):
        Lz4().decode(b"\xff\xff\xff\xff" + bytes(60), None, 2**40)
    assert bytes(Lz4().decode(bytes(4) + b"\x00", 0, LIMIT)) == b""


def raw_block(data: bytes, last: bool) -> bytes:
    return (len(data) << 3 | last).to_bytes(3, "little") + data


def run_block(octet: bytes, length: int, last: bool) -> bytes:
    return (length << 3 | 1 << 1 | last).to_bytes(3, "little") + octet


def frame(*blocks: bytes, size: int | None = None) -> bytes:
    """Return a Zstandard frame by the letter of RFC 8878, with or without its content size."""
    magic = b"\x28\xb5\x2f\xfd"
    if size is None:
        # A window of 1 MiB, no content size.
        return magic + b"\x00\x50" + b"".join(blocks)
    return magic + b"\xe0" + size.to_bytes(8, "little") + b"".join(blocks)


SKIPPABLE = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"


def test_zstd_frames_without_their_size() -> None:
    stored = frame(raw_block(b"spam", False), run_block(b"!", 1000, True))
    for size in (1004, None):
        assert bytes(Zstd().decode(stored, size, LIMIT)) == b"spam" + b"!" * 1000
    for size in (0, 4, 1003, 1005):
        with pytest.raises(CorruptionError):
            Zstd().decode(stored, size, LIMIT)


def test_zstd_frames_in_a_row() -> None:
    known, unknown = frame(raw_block(b"spam", True), size=4), frame(raw_block(b"eggs", True))
    for frames in ([known, known], [known, unknown], [unknown, unknown], [SKIPPABLE, known, known]):
        stored = b"".join(frames)
        data = b"".join(
            b"spam" if each == known else b"eggs" for each in frames if each != SKIPPABLE
        )
        assert bytes(Zstd().decode(stored, 8, LIMIT)) == data
        assert bytes(Zstd().decode(stored, None, LIMIT)) == data
        for size in (4, 7, 9, 12):
            with pytest.raises(CorruptionError):
                Zstd().decode(stored, size, LIMIT)


def test_zstd_of_nothing() -> None:
    assert bytes(Zstd().decode(frame(raw_block(b"", True), size=0), 0, LIMIT)) == b""
    assert bytes(Zstd().decode(frame(raw_block(b"", True)), None, LIMIT)) == b""


@pytest.mark.parametrize("size", [None, 2**33])
def test_a_zstd_bomb_takes_no_memory(size: int | None) -> None:
    runs = [run_block(b"x", 2**17, False)] * 2**16
    bomb = frame(*runs, run_block(b"x", 0, True), size=size)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            Zstd().decode(bomb, 1000, LIMIT)
        with pytest.raises(LimitError):
            Zstd().decode(bomb, None, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_a_zstd_claim_that_its_blocks_cannot_hold() -> None:
    stored = frame(raw_block(b"spam", True), size=2**30)
    with pytest.raises(CorruptionError, match="claim"):
        Zstd().decode(stored, 2**30, 2**31)
    with pytest.raises(CorruptionError, match="claim"):
        Zstd().decode(stored, None, 2**31)


def test_zstd_frames_that_are_none() -> None:
    with pytest.raises(CorruptionError, match="no frame"):
        Zstd().decode(b"\x27\xb5\x2f\xfd" + bytes(20), 10, LIMIT)
    with pytest.raises(UnsupportedError, match="dictionary"):
        Zstd().decode(b"\x28\xb5\x2f\xfd\x21\x04\x07" + raw_block(b"spam", True), 4, LIMIT)
    with pytest.raises(CorruptionError, match="end early"):
        Zstd().decode(b"\x50\x2a\x4d\x18\xff\xff\xff\x7f", 4, LIMIT)


def test_zstd_levels_beyond_the_highest_mean_it() -> None:
    assert parse_stage({"id": "zstd", "level": 100}) == Zstd(22)
    with pytest.raises(FormatError, match="level"):
        parse_stage({"id": "zstd", "level": -131073})


VALUES = [42, "foo", ["bar", None], {"a": 1.5}, b"\xff", True]


def objects(items: list[Any], *shape: int) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


@pytest.mark.parametrize("raw", [False, True])
def test_msgpack_is_laid_out_as_in_numcodecs(raw: bool) -> None:
    config = {"id": "msgpack2", "raw": raw, "use_bin_type": True, "use_single_float": False}
    array, spec = objects(VALUES, 2, 3), ChunkSpec((2, 3), OBJECT)
    stage = parse_stage(config)
    assert isinstance(stage, Serializer)
    assert stage.config() == config
    theirs = numcodecs.get_codec(config)
    stored = bytes(stage.encode(array))
    assert stored == theirs.encode(array)
    if not raw:
        assert stage.decode(stored, spec).tolist() == array.tolist()
    flat = theirs.encode(array.reshape(-1))
    assert stage.decode(flat, ChunkSpec((6,), OBJECT))[1] == (b"foo" if raw else "foo")


@pytest.mark.parametrize(
    "stored",
    [
        b"\xc1",
        b"\x93\x01",
        b"\x93\x01\x02",
        b"\xdd\xff\xff\xff\xff\x01",
        b"\xc6\xff\xff\xff\xff\x01",
        b"\x91" * 10_000,
        b"\x93\x01\xa2|O\x91\x02",
        b"\x93\x01\xa2|O\xc0",
        b"\x93\x01\xa2zz\x91\x01",
        b"\x93\x01\xa2|O\x91\x01junk",
        b"\x80",
    ],
)
def test_msgpack_that_is_no_array_of_that_shape(stored: bytes) -> None:
    with pytest.raises(CorruptionError):
        CodecChain((), MsgPack2()).decode(stored, ChunkSpec((1,), OBJECT))


PACKAGES = {"msgpack2": "msgpack", "pcodec": "pcodec", "zfpy": "zfpy"}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_codec_whose_package_is_missing_says_so(name: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(UnsupportedError, match=f"needs the package '{PACKAGES[name]}'"):
        parse_stage({"id": name})


@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<f8"])
def test_pcodec(dtype: str) -> None:
    pytest.importorskip("pcodec")
    array = np.arange(60).astype(dtype).reshape(3, 4, 5)
    spec = ChunkSpec(array.shape, array.dtype)
    chain = assemble([parse_stage({"id": "pcodec", "level": 5})], spec)
    stored = chain.encode(array)
    assert chain.decode(stored, spec).tobytes() == array.tobytes()
    assert chain.decode(numcodecs.get_codec({"id": "pcodec"}).encode(array), spec).shape == (
        3,
        4,
        5,
    )
    for damaged in (stored[:-1], stored[:10], b"x" * 40):
        with pytest.raises(CorruptionError):
            chain.decode(damaged, spec)
    for count in (59, 61):
        with pytest.raises(CorruptionError, match="exactly"):
            chain.decode(stored, ChunkSpec((count,), array.dtype))
    for other in (np.dtype(dtype).newbyteorder(">"), np.dtype("u1"), OBJECT):
        with pytest.raises(FormatError, match="pcodec"):
            assemble(chain.filters or [chain.serializer], ChunkSpec((3,), other))


ZFP = [
    {"mode": 2, "rate": 16},
    {"mode": 3, "precision": 20},
    {"mode": 4, "tolerance": 0.001},
    {"mode": 4, "tolerance": -1},
]


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize("options", ZFP, ids=str)
def test_zfpy(options: dict[str, Any], dtype: str) -> None:
    pytest.importorskip("zfpy")
    array = np.sin(np.arange(420)).astype(dtype).reshape(5, 6, 2, 7)
    spec = ChunkSpec(array.shape, array.dtype)
    chain = assemble([parse_stage({"id": "zfpy"} | options)], spec)
    stored = chain.encode(array)
    theirs = numcodecs.get_codec({"id": "zfpy"} | options)
    assert stored == theirs.encode(array)
    assert chain.decode(stored, spec).tobytes() == theirs.decode(stored).tobytes()
    assert chain.decode(theirs.encode(array.reshape(-1)), spec).shape == array.shape
    for length in range(0, len(stored) * 3 // 4, 7):
        with pytest.raises(CorruptionError):
            chain.decode(stored[:length], spec)
    for shape in ((5, 6, 2, 8), (419,)):
        with pytest.raises(CorruptionError, match="claims"):
            chain.decode(stored, ChunkSpec(shape, array.dtype))
    with pytest.raises(FormatError, match="zfpy"):
        assemble([chain.serializer], ChunkSpec((3,), np.dtype(">f4")))


def test_numcodecs_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys; from ingot.formats.zarr import v2; from ingot.codecs.codec import parse_stage;"
        "[parse_stage({'id': name}) for name in ('blosc', 'zlib', 'packbits', 'vlen-utf8')];"
        "assert 'numcodecs' not in sys.modules;"
        "parse_stage({'id': 'zstd'}); assert 'numcodecs' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
