"""Chunks that C-Blosc2 wrote decode to the bytes that went into them.

``blosc-b2.tar.xz`` holds a sample that is never regenerated: every codec, pipeline, split mode,
special value, dictionary and variable-length layout that C-Blosc2 3.3 writes, with the SHA-256 of
the decoded data. The full vector set is used as well where it lies beside the checkout.
"""

import hashlib
from pathlib import Path

import pytest

from ingot import native
from ingot.blosc.header import ChunkHeader
from ingot.blosc.inspection import inspect
from ingot.blosc.lazy import LazyChunk
from tests.golden.test_blosc_chunks import (
    Row,
    assert_slices_agree,
    rows_of,
    unpack,
    vector_rows,
)
from tests.kernels import load, on_each_kernel

SAMPLE = Path(__file__).with_name("blosc-b2.tar.xz")
SAMPLE_ROWS = rows_of(unpack(SAMPLE)["manifest.jsonl"])
FILTER_NUMBERS = {
    "SHUFFLE": 1,
    "BITSHUFFLE": 2,
    "DELTA": 3,
    "TRUNC_PREC": 4,
    "BYTEDELTA": 35,
    "INT_TRUNC": 36,
}

each_row = pytest.mark.parametrize("row", SAMPLE_ROWS, ids=lambda row: Path(row["file"]).stem)


def chunk_of(row: Row) -> bytes:
    return unpack(SAMPLE)[row["file"]]


def assert_decodes(kernel_name: str, row: Row, chunk: bytes) -> None:
    decoded = load(kernel_name).decompress(chunk)
    assert isinstance(decoded, bytes)
    assert len(decoded) == row["nbytes"]
    assert hashlib.sha256(decoded).hexdigest() == row["sha256"], row["file"]
    assert_slices_agree(kernel_name, chunk, decoded, seed=row["size"])


@on_each_kernel
@each_row
def test_a_sampled_chunk_decodes_to_its_data(kernel_name: str, row: Row) -> None:
    assert_decodes(kernel_name, row, chunk_of(row))


def test_the_sample_holds_every_kind() -> None:
    headers = [ChunkHeader.parse(chunk_of(row)) for row in SAMPLE_ROWS]
    with_blocks = [header for header in headers if header.block_count]
    assert {header.codec for header in with_blocks} == {"blosclz", "lz4", "zlib", "zstd"}
    used = {number for header in with_blocks for number, _ in header.pipeline}
    assert used == set(FILTER_NUMBERS.values())
    assert {header.special for header in headers} == {
        "none",
        "zeros",
        "nan",
        "value",
        "uninitialised",
    }
    assert sum(header.variable for header in headers) == 3
    assert {header.codec for header in headers if header.has_dictionary} == {
        "blosclz",
        "lz4",
        "zstd",
    }
    streams = [
        stream
        for row in SAMPLE_ROWS
        for block in inspect(chunk_of(row)).blocks
        for stream in block.streams
    ]
    assert {stream.kind for stream in streams} == {"raw", "run", "codec"}
    assert any(stream.value for stream in streams)


@each_row
def test_a_header_is_what_its_writer_was_asked_for(row: Row) -> None:
    header = ChunkHeader.parse(chunk_of(row))
    assert header.pack() == chunk_of(row)[:32]
    assert (header.nbytes, header.cbytes) == (row["nbytes"], row["size"])
    if row["file"].startswith("b2/") and header.block_count:
        asked = zip(row["filters"], row["filters_meta"], strict=True)
        expected = [(FILTER_NUMBERS[name], meta) for name, meta in asked if name != "NOFILTER"]
        assert list(header.pipeline) == expected
        assert header.codec == row["codec"].lower().removesuffix("hc")
    if "block_sizes" in row:
        assert [block.nbytes for block in inspect(chunk_of(row)).blocks] == row["block_sizes"]


@each_row
def test_inspecting_accounts_for_every_byte(row: Row) -> None:
    inspection = inspect(chunk_of(row))
    header, blocks = inspection.header, inspection.blocks
    if not blocks:
        assert header.special != "none" or header.memcpyed
        return
    assert sum(block.nbytes for block in blocks) == row["nbytes"]
    places = sorted((block.offset, block.offset + block.cbytes) for block in blocks)
    first = inspection.dictionary.stop if inspection.dictionary else header.data_start
    assert [start for start, _ in places] == [first, *(end for _, end in places[:-1])]
    assert places[-1][1] == row["size"]


@each_row
def test_a_lazy_chunk_gives_the_same_data(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernel", lambda: load("python"))
    stored = chunk_of(row)

    def read(start: int, length: int) -> bytes:
        return stored[start : start + length]

    chunk = LazyChunk.build(read)
    decoded = load("python").decompress(stored)
    assert isinstance(decoded, bytes)
    size, count = chunk.header.typesize, chunk.header.item_count
    for start, stop in ((0, count), (count // 3, count // 2), (count - 1, count)):
        if 0 <= start <= stop:
            assert chunk.read(read, start, stop) == decoded[start * size : stop * size]


@on_each_kernel
def test_all_chunks_of_the_vector_set_decode(kernel_name: str) -> None:
    cases = [
        (row, chunk)
        for row, chunk in vector_rows("blosc.tar.xz", "blosc")
        if row["file"].startswith(("b2/", "special/", "vl/"))
    ]
    assert len(cases) == 801 + 14 + 3
    for row, chunk in cases:
        assert_decodes(kernel_name, row, chunk)


@on_each_kernel
def test_all_chunks_that_the_blosc_projects_ship_decode(kernel_name: str) -> None:
    """Beta chunks with 16 bytes of header, and those of the first stable release."""
    cases = [
        (row, chunk)
        for row, chunk in vector_rows("thirdparty-blosc-compat.tar.xz", "blosc-compat")
        if row["kind"] == "chunk" and not row["header"].startswith("02")
    ]
    assert {chunk[0] for _, chunk in cases} == {4, 5}
    for row, chunk in cases:
        assert_decodes(kernel_name, row, chunk)
