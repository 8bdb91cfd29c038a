"""The public functions, on both kernels: arguments, buffers, promises."""

import array
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import blosc
from ingot.blosc import chunk as chunk_module
from ingot.blosc.chunk import Filter
from ingot.blosc.header import ChunkHeader
from ingot.errors import LimitError, SelectionError, UnsupportedError
from tests.kernels import KERNELS, load, on_each_kernel
from tests.limited import run_limited

DATA = np.arange(5000, dtype=np.int32)
RAW = DATA.tobytes()


@pytest.fixture
def kernel_name() -> str:
    """What the tests that are not parametrised by kernel run on: the one in use."""
    return "chosen"


@pytest.fixture(autouse=True)
def _use_kernel(kernel_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel_name != "chosen":
        monkeypatch.setattr(chunk_module, "_kernel", load(kernel_name))


@on_each_kernel
@pytest.mark.parametrize("codec", blosc.CODECS)
@pytest.mark.parametrize("filters", [(), ("shuffle",), ("bitshuffle",)])
def test_data_come_back(codec: str, filters: tuple[str, ...]) -> None:
    chunk = blosc.compress(RAW, typesize=4, codec=codec, filters=filters)
    assert blosc.decompress(chunk) == RAW
    header = ChunkHeader.parse(chunk)
    assert (header.version, header.typesize, header.nbytes) == (2, 4, len(RAW))
    assert header.codec == codec.removesuffix("hc")
    assert header.filter == (filters[0] if filters else "none")
    assert len(chunk) < len(RAW) or not filters


@on_each_kernel
@pytest.mark.parametrize("level", range(10))
def test_every_level_works_and_0_stores(level: int) -> None:
    chunk = blosc.compress(RAW, typesize=4, level=level)
    assert blosc.decompress(chunk) == RAW
    assert ChunkHeader.parse(chunk).memcpyed == (level == 0)


@on_each_kernel
def test_random_data_grow_by_the_header_only() -> None:
    noise = np.random.default_rng(1).bytes(100_000)
    chunk = blosc.compress(noise)
    assert len(chunk) == len(noise) + 16
    assert chunk[16:] == noise


@on_each_kernel
@pytest.mark.parametrize("nbytes", [0, 1, 15, 16, 31, 32, 33, 127, 128])
def test_short_data(nbytes: int) -> None:
    data = bytes(nbytes)
    chunk = blosc.compress(data, typesize=8)
    header = ChunkHeader.parse(chunk)
    assert header.memcpyed == (nbytes < 32)
    assert header.typesize == 8
    assert blosc.decompress(chunk) == data


@on_each_kernel
@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ({"codec": "blosclz", "filters": []}, "02011203 00000000 01000000 10000000"),
        ({"codec": "lz4"}, "02013303 00000000 01000000 10000000"),
        ({"codec": "lz4hc", "filters": []}, "02013203 00000000 01000000 10000000"),
        ({"codec": "zlib", "filters": ["bitshuffle"]}, "02017603 00000000 01000000 10000000"),
        ({"codec": "zstd"}, "02019303 00000000 01000000 10000000"),
    ],
)
def test_an_empty_chunk_is_the_one_c_blosc_writes(arguments: dict[str, Any], header: str) -> None:
    chunk = blosc.compress(b"", typesize=3, **arguments)
    assert chunk.hex() == header.replace(" ", "")
    assert blosc.decompress(chunk) == b""
    assert blosc.decompress_slice(chunk, 0, 0) == b""


@on_each_kernel
def test_a_typesize_above_255_is_stored_as_1() -> None:
    chunk = blosc.compress(RAW, typesize=256)
    assert ChunkHeader.parse(chunk).typesize == 1
    assert blosc.decompress(chunk) == RAW
    assert ChunkHeader.parse(blosc.compress(RAW, typesize=255)).typesize == 255


@on_each_kernel
@pytest.mark.parametrize(
    ("nbytes", "typesize", "blocksize", "expected"),
    [
        (1 << 20, 1, None, 131072),
        (1 << 20, 3, None, 131064),  # 5461 times 24
        (1 << 20, 255, None, 130560),  # 64 times 2040
        (1 << 20, 8, 1000, 1000),
        (1 << 20, 8, 1001, 1000),
        (1 << 20, 8, 1, 8),
        (1 << 16, 8, 1 << 20, 1 << 16),
        (1000, 8, None, 1000),
    ],
)
def test_the_block_size_is_whole_items(
    nbytes: int, typesize: int, blocksize: int | None, expected: int
) -> None:
    chunk = blosc.compress(bytes(nbytes), typesize=typesize, blocksize=blocksize, codec="zstd")
    assert ChunkHeader.parse(chunk).blocksize == expected
    assert blosc.decompress(chunk) == bytes(nbytes)


@on_each_kernel
@pytest.mark.parametrize(
    ("nbytes", "filters", "expected"),
    [
        (3_125_000, ["shuffle"], 125_000),  # 25 blocks
        (3_125_004, ["shuffle"], 131_072),  # 24 to 27 blocks cannot be equal
        (200_000, ["shuffle"], 100_000),
        (3_125_000, ["bitshuffle"], 131_072),
    ],
)
def test_blocks_that_are_split_are_equal_where_that_costs_little(
    nbytes: int, filters: list[str], expected: int
) -> None:
    raw = np.arange(nbytes // 4, dtype="<u4").tobytes()
    chunk = blosc.compress(raw, typesize=4, codec="lz4", filters=filters)
    assert ChunkHeader.parse(chunk).blocksize == expected
    assert blosc.decompress(chunk) == raw


@on_each_kernel
@pytest.mark.parametrize(
    ("typesize", "codec", "filters", "blocksize", "split"),
    [
        (4, "lz4", ["shuffle"], None, True),
        (4, "blosclz", ["shuffle"], None, True),
        (16, "lz4", ["shuffle"], 2048, True),
        (16, "lz4", ["shuffle"], 2032, False),  # 127 items
        (17, "lz4", ["shuffle"], None, False),
        (1, "lz4", ["shuffle"], None, False),
        (4, "lz4", ["bitshuffle"], None, False),
        (4, "lz4", [], None, False),
        (4, "lz4hc", ["shuffle"], None, True),
        (4, "zlib", ["shuffle"], None, True),
        (4, "zstd", ["shuffle"], None, False),
        (4, "snappy", ["shuffle"], None, False),
    ],
)
def test_blocks_are_split_where_it_pays(
    typesize: int, codec: str, filters: list[str], blocksize: int | None, split: bool
) -> None:
    chunk = blosc.compress(
        bytes(200_000), typesize=typesize, codec=codec, filters=filters, blocksize=blocksize
    )
    header = ChunkHeader.parse(chunk)
    assert bool(header.flags & 0x10) != split
    assert blosc.decompress(chunk) == bytes(200_000)


BUFFERS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: RAW,
    "bytearray": lambda: bytearray(RAW),
    "memoryview": lambda: memoryview(RAW),
    "array": lambda: array.array("i", DATA.tolist()),
    "ndarray": lambda: DATA,
    "2-D": lambda: DATA.reshape(50, 100),
    "big-endian": lambda: DATA.byteswap().view(">i4"),
    "dates": lambda: DATA.astype("i8").view("M8[s]"),
    "records": lambda: DATA.view("i2, u2"),
    "read-only": lambda: np.frombuffer(RAW, np.int32),
    "0-d": lambda: np.array(5.0),
    "no items": lambda: np.empty((0, 3)),
}


@on_each_kernel
@pytest.mark.parametrize("name", BUFFERS)
def test_any_contiguous_buffer_is_taken_and_left_alone(name: str) -> None:
    data = BUFFERS[name]()
    before = bytes(data.tobytes() if hasattr(data, "tobytes") else data)
    chunk = blosc.compress(data, typesize=None)
    assert blosc.decompress(chunk) == before
    assert bytes(data.tobytes() if hasattr(data, "tobytes") else data) == before


@pytest.mark.parametrize(
    ("data", "itemsize"),
    [
        (RAW, 1),
        (array.array("d", [1.0]), 8),
        (DATA, 4),
        (DATA.astype("i8").view("M8[s]"), 8),
        (np.zeros(3, "S17"), 17),
    ],
)
def test_typesize_none_takes_the_buffers_own(data: Any, itemsize: int) -> None:
    assert ChunkHeader.parse(blosc.compress(data, typesize=None)).typesize == itemsize


@on_each_kernel
@pytest.mark.parametrize("kind", ["bytearray", "ndarray", "2-D", "memoryview", "array", "mmap"])
def test_any_writable_contiguous_buffer_can_be_filled(kind: str) -> None:
    out: Any = {
        "bytearray": lambda: bytearray(len(RAW)),
        "ndarray": lambda: np.empty(5000, np.int32),
        "2-D": lambda: np.empty((50, 100), np.float32),
        "memoryview": lambda: memoryview(bytearray(len(RAW))),
        "array": lambda: array.array("i", [0] * 5000),
        "mmap": lambda: mmap.mmap(-1, len(RAW)),
    }[kind]()
    chunk = blosc.compress(RAW, typesize=4)
    assert blosc.decompress(chunk, out) == len(RAW)
    assert bytes(memoryview(out).cast("B")) == RAW
    assert blosc.decompress_slice(chunk, 10, 20, out) == 40
    assert bytes(memoryview(out).cast("B")[:40]) == RAW[40:80]


@on_each_kernel
def test_a_small_out_is_refused_before_anything_is_written() -> None:
    chunk = blosc.compress(RAW, typesize=4)
    out = bytearray(b"\xaa" * (len(RAW) - 1))
    with pytest.raises(ValueError, match=str(len(RAW))):
        blosc.decompress(chunk, out)
    assert out == b"\xaa" * (len(RAW) - 1)
    small = bytearray(b"\xaa" * 39)
    with pytest.raises(ValueError, match="40"):
        blosc.decompress_slice(chunk, 10, 20, small)
    assert small == b"\xaa" * 39


@on_each_kernel
@pytest.mark.parametrize(
    "out",
    [bytes(len(RAW)), memoryview(bytes(len(RAW))), np.empty((100, 200), np.int32)[:, ::2]],
    ids=["bytes", "read-only view", "strided"],
)
def test_an_out_that_cannot_be_filled_is_refused(out: Any) -> None:
    with pytest.raises((ValueError, TypeError, BufferError)):
        blosc.decompress(blosc.compress(RAW), out)


@on_each_kernel
@pytest.mark.parametrize("thing", ["text", 5, None, [1, 2]])
def test_what_is_no_buffer_is_a_type_error(thing: Any) -> None:
    with pytest.raises(TypeError):
        blosc.decompress(thing)
    with pytest.raises(TypeError):
        blosc.compress(thing)


@on_each_kernel
def test_the_limit_holds() -> None:
    chunk = blosc.compress(RAW, typesize=4)
    assert blosc.decompress(chunk, limit=len(RAW)) == RAW
    with pytest.raises(LimitError, match=f"{len(RAW)} bytes, the limit is {len(RAW) - 1}"):
        blosc.decompress(chunk, limit=len(RAW) - 1)
    with pytest.raises(LimitError):
        blosc.decompress_slice(chunk, 0, 1, limit=len(RAW) - 1)


@on_each_kernel
@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 5), (0, 5001), (5, 4), (5001, 5001), (0, 2**40), (-(2**40), 0)]
)
def test_a_range_outside_the_chunk_is_a_selection_error(start: int, stop: int) -> None:
    with pytest.raises(SelectionError):
        blosc.decompress_slice(blosc.compress(RAW, typesize=4), start, stop)


@on_each_kernel
@pytest.mark.parametrize("memcpyed", [False, True])
def test_slices_count_whole_items_only(memcpyed: bool) -> None:
    chunk = blosc.compress(RAW[:-1], typesize=4, level=0 if memcpyed else 5)
    assert blosc.decompress_slice(chunk, 4990, 4999) == RAW[4990 * 4 : 4999 * 4]
    with pytest.raises(SelectionError):
        blosc.decompress_slice(chunk, 4990, 5000)


@on_each_kernel
def test_a_slice_reads_only_the_blocks_that_hold_it() -> None:
    """A damaged block fails the calls that read it, and no others."""
    chunk = bytearray(blosc.compress(RAW, typesize=4, blocksize=4000))
    chunk[16 + 4 * 2 : 16 + 4 * 3] = b"\xff\xff\xff\xff"
    assert blosc.decompress_slice(chunk, 0, 2000) == RAW[:8000]
    assert blosc.decompress_slice(chunk, 3000, 5000) == RAW[12000:]
    with pytest.raises(ingot.errors.CorruptionError):
        blosc.decompress_slice(chunk, 1999, 2001)
    with pytest.raises(ingot.errors.CorruptionError):
        blosc.decompress(chunk)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"codec": "lzma"}, ValueError, "codec is 'lzma', known are blosclz, lz4, lz4hc"),
        ({"level": 10}, ValueError, r"level is 10, it lies in 0\.\.9"),
        ({"level": -1}, ValueError, "level is -1"),
        ({"level": 1.5}, TypeError, r"level is 1\.5, it must be an integer"),
        ({"typesize": 0}, ValueError, "typesize is 0"),
        ({"typesize": "4"}, TypeError, "typesize is '4', it must be an integer"),
        ({"blocksize": 0}, ValueError, "blocksize is 0"),
        ({"blocksize": 2**29}, ValueError, "blocksize is 536870912"),
        ({"filters": ["delta"]}, ValueError, "filter 'delta' is unknown to Blosc 1"),
        ({"filters": ["shuffle", "bitshuffle"]}, ValueError, "one filter at most, 2 are given"),
        ({"filters": "shuffle"}, TypeError, "must be a sequence of names"),
        ({"version": 3}, ValueError, "version is 3, known are 1 and 2"),
        ({"dictionary": b"spam"}, UnsupportedError, "have no dictionary"),
        ({"split": "never"}, UnsupportedError, "split by a rule"),
        ({"version": 2, "codec": "snappy"}, UnsupportedError, "Blosc 2 has no Snappy"),
        ({"version": 2, "filters": ["quantize"]}, ValueError, "'quantize' is unknown to Blosc 2"),
        ({"version": 2, "filters": ["truncate"]}, ValueError, "needs the number of bits"),
        ({"version": 2, "filters": [("truncate", 300)]}, ValueError, "truncate is 300"),
        ({"version": 2, "filters": ["delta", "shuffle", "delta"]}, ValueError, "can be used once"),
        (
            {"version": 2, "filters": ["shuffle", "bitshuffle", "shuffle", "delta"]},
            ValueError,
            "one of the first three filters",
        ),
        ({"version": 2, "filters": "shuffle"}, TypeError, "must be a sequence of names"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        blosc.compress(RAW, **arguments)


def test_data_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="C-contiguous"):
        blosc.compress(DATA[::2])
    with pytest.raises(ValueError, match="C-contiguous"):
        blosc.compress(np.asfortranarray(DATA.reshape(50, 100)))
    with pytest.raises(TypeError, match="Python objects"):
        blosc.compress(np.array([1, "two"], object))


def test_the_public_names_are_there_after_importing_the_package() -> None:
    assert ingot.blosc is blosc
    assert all(hasattr(blosc, name) for name in blosc.__all__)


OBJECTS = """
import numpy as np
from ingot import blosc
out = np.array([object() for _ in range(100)], object)
try:
    blosc.decompress(blosc.compress(bytes(800)), out)
except (TypeError, ValueError):
    print("refused")
"""


@on_each_kernel
def test_an_array_of_objects_is_not_written_over(kernel_name: str) -> None:
    """Bytes written there would be taken for addresses: hence in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-c", OBJECTS],
        env=os.environ | {"INGOT_KERNEL": kernel_name},
        capture_output=True,
        text=True,
    )
    assert (child.returncode, child.stdout) == (0, "refused\n"), child.stderr


PIPELINES: list[tuple[Filter, ...]] = [
    (),
    ("shuffle",),
    ("bitshuffle",),
    ("delta", "shuffle"),
    ("shuffle", "bytedelta"),
    (("shuffle", 2), "delta", "bitshuffle"),
    ("shuffle", "bitshuffle", "delta", "shuffle", "bytedelta", "bitshuffle"),
]


@on_each_kernel
@pytest.mark.parametrize("filters", PIPELINES, ids=str)
@pytest.mark.parametrize("codec", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_data_come_back_from_blosc_2(codec: str, filters: tuple[Filter, ...]) -> None:
    for data in (RAW, RAW[:-3], RAW[:40], b"", b"spam"):
        for blocksize in (None, 1000):
            chunk = blosc.compress(
                data, typesize=4, codec=codec, filters=filters, version=2, blocksize=blocksize
            )
            assert chunk[0] == 5
            assert blosc.decompress(chunk) == data
            stop = len(data) // 4
            assert blosc.decompress_slice(chunk, stop // 3, stop) == data[stop // 3 * 4 : stop * 4]


@on_each_kernel
def test_filters_have_their_numbers_and_metadata() -> None:
    chunk = blosc.compress(
        RAW, typesize=4, version=2, filters=["delta", ("truncate", 9), ("shuffle", 2), "bytedelta"]
    )
    assert ChunkHeader.parse(chunk).pipeline == ((3, 0), (4, 9), (1, 2), (35, 4))


@on_each_kernel
@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_truncation_keeps_so_many_bits(kind: str) -> None:
    values = np.random.default_rng(3).normal(size=3000).astype(kind)
    bits = values.view(f"<u{values.itemsize}")
    cleared = {4: 23, 8: 52}[values.itemsize] - 10
    expected = bits >> cleared << cleared
    for filters in ([("truncate", 10), "shuffle"], [("truncate", 10), "delta", "shuffle"]):
        chunk = blosc.compress(values, typesize=None, version=2, filters=filters, blocksize=4000)
        assert blosc.decompress(chunk) == expected.tobytes()
    assert values.tobytes() == bits.tobytes()


@on_each_kernel
@pytest.mark.parametrize(
    ("data", "typesize", "special", "size"),
    [
        (bytes(1000), 1, "zeros", 32),
        (bytes(1001), 8, "zeros", 32),
        (np.full(100, np.nan), 8, "nan", 32),
        (np.full(100, np.nan, np.float32), 4, "nan", 32),
        (np.full(100, 7, np.int64), 8, "value", 40),
        (b"spam" * 100, 4, "value", 36),
        (b"spam" * 100 + b"s", 4, "none", None),
        (b"spam" * 100, 8, "value", 40),
    ],
)
def test_special_values_are_found(data: Any, typesize: int, special: str, size: int | None) -> None:
    raw = bytes(memoryview(data).cast("B"))
    chunk = blosc.compress(data, typesize=typesize, version=2)
    assert ChunkHeader.parse(chunk).special == special
    assert size is None or len(chunk) == size
    assert blosc.decompress(chunk) == raw


@on_each_kernel
@pytest.mark.parametrize("codec", ["lz4", "lz4hc", "zstd"])
def test_a_dictionary_comes_with_the_chunk(codec: str) -> None:
    words = b"".join(b"%d green bottles hanging on the wall, " % n for n in range(500))
    chunk = blosc.compress(
        words, version=2, codec=codec, filters=[], blocksize=500, dictionary=words[:4000]
    )
    assert blosc.decompress(chunk) == words
    assert blosc.decompress_slice(chunk, 7777, 8888) == words[7777:8888]
    place = blosc.inspect(chunk).dictionary
    assert place is not None
    assert chunk[place.offset : place.stop] == words[:4000]


@on_each_kernel
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_dictionary_is_trained_where_it_pays(codec: str, kernel_name: str) -> None:
    words = b"".join(b"%d green bottles hanging on the wall, " % (n * n) for n in range(3000))
    options: dict[str, Any] = {"version": 2, "codec": codec, "filters": [], "blocksize": 600}
    chunk = blosc.compress(words, dictionary="train", **options)
    assert blosc.decompress(chunk) == words
    if kernel_name == "native":
        assert len(chunk) < 0.9 * len(blosc.compress(words, **options))
    tiny = blosc.compress(b"green bottles" * 3, dictionary="train", **options)
    assert blosc.decompress(tiny) == b"green bottles" * 3


@on_each_kernel
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"filters": [("truncate", 10)], "typesize": 2}, "4 or 8 bytes"),
        ({"filters": [("truncate", 24)], "typesize": 4}, "23"),
        ({"filters": ["shuffle"] * 7}, "7 filters are given, 6 fit"),
        ({"dictionary": b""}, "32768"),
        ({"dictionary": bytes(32769)}, "32768"),
        ({"dictionary": b"spam", "codec": "zlib"}, "zlib uses no dictionary"),
        ({"dictionary": "learn"}, "'train' or bytes"),
        ({"dictionary": "train", "codec": "zlib"}, "zlib uses no dictionary"),
        ({"split": "sometimes"}, "sometimes"),
    ],
)
def test_arguments_that_blosc_2_cannot_use(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        blosc.compress(RAW, version=2, **arguments)


@on_each_kernel
@pytest.mark.parametrize(
    ("value", "nbytes", "size"),
    [
        (b"\0", 1001, 32),
        (bytes(8), 800, 32),
        (np.float64(np.nan), 800, 32),
        (np.float32(np.nan), 400, 32),
        (np.int16(-2), 400, 34),
        (b"spam", 0, 36),
        (bytes(range(200)) * 2, 4000, 432),
    ],
)
def test_a_constant_chunk_holds_its_value_throughout(value: Any, nbytes: int, size: int) -> None:
    raw = value if isinstance(value, bytes) else value.tobytes()
    chunk = blosc.constant(value, nbytes)
    assert len(chunk) == size
    assert blosc.decompress(chunk) == raw * (nbytes // len(raw))


def test_a_constant_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="value has no bytes"):
        blosc.constant(b"", 0)
    with pytest.raises(ValueError, match="no whole number"):
        blosc.constant(b"spam", 6)
    with pytest.raises(ValueError, match="nbytes is -4"):
        blosc.constant(b"spam", -4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_special_chunks_that_claim_much_decode_at_the_speed_of_memory(kernel: str) -> None:
    code = """
for value in (bytes(1), bytes(range(8)), b"abc"):
    chunk = ingot.blosc.constant(value, 3 << 27)
    assert len(chunk) <= 40
    found = np.frombuffer(ingot.blosc.decompress(chunk), "u1")
    assert found[: len(value)].tobytes() == value == found[-len(value) :].tobytes()
    del found
try:
    ingot.blosc.decompress(ingot.blosc.constant(b"abc", 3 * 700_000_000))
except LimitError:
    sys.exit()
raise AssertionError
"""
    run_limited(code, kernel)
