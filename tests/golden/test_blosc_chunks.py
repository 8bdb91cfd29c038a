"""Chunks written by the original libraries decode to the bytes that went into them.

``blosc-b1.tar.xz`` holds a sample that is never regenerated: every codec, filter, odd typesize,
odd size and block layout that C-Blosc 1.21 writes, with the SHA-256 of the data. The full vector
set is used as well where it lies beside the checkout, or where ``INGOT_VECTORS`` points.
"""

import hashlib
import json
import lzma
import os
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.blosc.header import ChunkHeader
from ingot.blosc.inspection import inspect
from tests.kernels import load, on_each_kernel

SAMPLE = Path(__file__).with_name("blosc-b1.tar.xz")
VECTORS = Path(
    os.environ.get("INGOT_VECTORS") or Path(__file__).resolve().parents[3] / "shared" / "vectors"
)

Row = dict[str, Any]


@cache
def unpack(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.isfile()]
        return {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def rows_of(manifest: bytes) -> list[Row]:
    return [json.loads(line) for line in manifest.splitlines()]


SAMPLE_ROWS = rows_of(unpack(SAMPLE)["manifest.jsonl"])


def chunk_of(row: Row) -> bytes:
    return unpack(SAMPLE)[row["file"]]


def assert_slices_agree(kernel_name: str, chunk: bytes, data: bytes, seed: int) -> None:
    """Compare slices with the whole: at random, at block borders, empty and full."""
    kernel, header = load(kernel_name), ChunkHeader.parse(chunk)
    size, count = header.typesize, header.item_count
    random = np.random.default_rng(seed)
    ranges = {(0, 0), (count, count), (0, count)}
    ranges |= {tuple(sorted(pair)) for pair in random.integers(0, count + 1, (4, 2)).tolist()}
    border = header.block_bytes // size
    ranges |= {(max(border - 1, 0), min(border + 1, count)), (border, min(border + 1, count))}
    for start, stop in ranges:
        expected = data[start * size : stop * size]
        assert kernel.decompress_slice(chunk, start, stop) == expected
        out = bytearray(b"\xaa" * (len(expected) + 3))
        assert kernel.decompress_slice(chunk, start, stop, out) == len(expected)
        assert out == expected + b"\xaa\xaa\xaa"


@on_each_kernel
@pytest.mark.parametrize("row", SAMPLE_ROWS, ids=lambda row: Path(row["file"]).stem)
def test_a_sampled_chunk_decodes_to_its_data(kernel_name: str, row: Row) -> None:
    chunk = chunk_of(row)
    decoded = load(kernel_name).decompress(chunk)
    assert isinstance(decoded, bytes)
    assert len(decoded) == row["nbytes"]
    assert hashlib.sha256(decoded).hexdigest() == row["sha256"]
    assert_slices_agree(kernel_name, chunk, decoded, seed=row["size"])


@on_each_kernel
@pytest.mark.parametrize("row", SAMPLE_ROWS[::9], ids=lambda row: Path(row["file"]).stem)
def test_a_chunk_decodes_into_a_buffer_with_threads(kernel_name: str, row: Row) -> None:
    out = bytearray(b"\xaa" * (row["nbytes"] + 5))
    assert load(kernel_name).decompress(chunk_of(row), out, 3) == row["nbytes"]
    assert hashlib.sha256(out[: row["nbytes"]]).hexdigest() == row["sha256"]
    assert out[row["nbytes"] :] == b"\xaa" * 5


def test_the_sample_holds_every_codec_filter_and_edge() -> None:
    headers = [ChunkHeader.parse(chunk_of(row)) for row in SAMPLE_ROWS]
    kinds = {(header.codec, header.filter) for header in headers if header.block_count}
    assert len(kinds) == 4 * 3
    assert any(header.split for header in headers if header.block_count)
    assert any(header.nbytes % header.typesize for header in headers if header.block_count)
    assert any(header.blocksize > header.nbytes for header in headers)
    assert any(header.memcpyed and header.nbytes for header in headers)


@pytest.mark.parametrize("row", SAMPLE_ROWS, ids=lambda row: Path(row["file"]).stem)
def test_a_header_is_what_its_writer_was_asked_for(row: Row) -> None:
    chunk = chunk_of(row)
    header = ChunkHeader.parse(chunk)
    assert header.pack() == chunk[:16]
    assert (header.typesize, header.nbytes, header.cbytes) == (
        row["typesize"],
        row["nbytes"],
        row["size"],
    )
    assert header.filter == ("none", "shuffle", "bitshuffle")[row["shuffle"]]
    assert header.codec == row["codec"].removesuffix("hc")


@pytest.mark.parametrize("row", SAMPLE_ROWS, ids=lambda row: Path(row["file"]).stem)
def test_inspecting_accounts_for_every_byte(row: Row) -> None:
    """C-Blosc leaves no gaps: header, block starts and blocks make up the whole chunk."""
    inspection = inspect(chunk_of(row))
    header, blocks = inspection.header, inspection.blocks
    if header.memcpyed:
        assert not blocks
        return
    assert sum(block.nbytes for block in blocks) == row["nbytes"]
    places = sorted((block.offset, block.offset + block.cbytes) for block in blocks)
    assert [start for start, _ in places] == [header.data_start, *(end for _, end in places[:-1])]
    assert places[-1][1] == row["size"]


def vector_rows(archive: str, folder: str) -> list[tuple[Row, bytes]]:
    """Return what the vector set says of each of its single files, with the file."""
    path = VECTORS / archive
    if not path.exists():
        pytest.skip(f"the full vector set is not beside the checkout: no {archive}")
    files = unpack(path)
    names = {
        f"{folder}/{row['file'].removeprefix('compat/')}": row
        for row in rows_of(files[f"{folder}/manifest.jsonl"])
        if row["file"]
    }
    return [(row, files[name]) for name, row in names.items() if name in files]


@on_each_kernel
def test_all_chunks_of_the_vector_set_decode(kernel_name: str) -> None:
    kernel = load(kernel_name)
    cases = [case for case in vector_rows("blosc.tar.xz", "blosc") if "b1/" in case[0]["file"]]
    assert len(cases) == 512
    for row, chunk in cases:
        decoded = kernel.decompress(chunk)
        assert isinstance(decoded, bytes)
        assert hashlib.sha256(decoded).hexdigest() == row["sha256"], row["file"]
        assert_slices_agree(kernel_name, chunk, decoded, seed=row["size"])


@on_each_kernel
def test_all_chunks_that_the_blosc_projects_ship_decode(kernel_name: str) -> None:
    """From Blosc 1.3 on, and the only Snappy chunks that the original library wrote."""
    kernel = load(kernel_name)
    cases = [
        (row, chunk)
        for row, chunk in vector_rows("thirdparty-blosc-compat.tar.xz", "blosc-compat")
        if row["kind"] == "chunk" and row["header"].startswith("02")
    ]
    assert {ChunkHeader.parse(chunk).codec for _, chunk in cases} == {
        "blosclz",
        "lz4",
        "snappy",
        "zlib",
        "zstd",
    }
    for row, chunk in cases:
        decoded = kernel.decompress(chunk)
        assert isinstance(decoded, bytes)
        assert hashlib.sha256(decoded).hexdigest() == row["sha256"], row["file"]
        assert_slices_agree(kernel_name, chunk, decoded, seed=row["size"])


@on_each_kernel
def test_filter_outputs_that_the_blosc_projects_ship_are_undone(kernel_name: str) -> None:
    """Raw filter output: made into a chunk of one raw stream, it decodes like any other."""
    cases = [
        (row, lzma.decompress(packed))
        for row, packed in vector_rows("thirdparty-blosc-compat.tar.xz", "blosc-compat")
        if row["kind"].startswith("raw filter output")
    ]
    assert len(cases) == 2
    for row, filtered in cases:
        flag = 0x04 if "bitshuffle" in row["file"] else 0x01
        header = ChunkHeader(
            flags=0x30 | flag,
            typesize=4,
            nbytes=len(filtered),
            blocksize=len(filtered),
            cbytes=24 + len(filtered),
        )
        lengths = (20).to_bytes(4, "little") + len(filtered).to_bytes(4, "little")
        decoded = load(kernel_name).decompress(header.pack() + lengths + filtered)
        assert isinstance(decoded, bytes)
        assert hashlib.sha256(decoded).hexdigest() == row["sha256"], row["file"]
