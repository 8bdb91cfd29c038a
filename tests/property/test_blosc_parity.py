"""Both kernels read what either writes, whole and in part, as Blosc 1 and as Blosc 2."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ingot import native
from ingot.blosc import decode
from ingot.blosc.header import MEMCPYED, UNSPLIT, ChunkHeader
from ingot.blosc.inspection import inspect
from ingot.blosc.lazy import LazyChunk
from ingot.errors import IngotError
from ingot.native import Kernel
from tests.kernels import load, needs_native, on_each_kernel, twin_may_refuse
from tests.property import blosc2_strategies
from tests.property.blosc2_strategies import Recipe2
from tests.property.chunk_strategies import Recipe, datas, recipes

constants = st.builds(
    lambda pattern, count: pattern * count,
    st.one_of(
        st.binary(min_size=1, max_size=16),
        st.sampled_from([b"\0", bytes(8), np.float32(np.nan).tobytes(), b"\xff"]),
    ),
    st.integers(1, 500),
)


@dataclass(frozen=True)
class Version:
    """What differs between the versions of Blosc."""

    header_bytes: int
    starts: int
    """So many bytes from the start of a chunk are its header and its first block starts."""
    damaged_writer: str
    recipes: st.SearchStrategy[Any]
    datas: st.SearchStrategy[bytes]


VERSIONS = {
    1: Version(16, 64, "native", recipes, datas),
    2: Version(32, 80, "python", blosc2_strategies.recipes, datas | constants),
}
in_each_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=map(str, VERSIONS))


def items_of(draw: st.DataObject, header: ChunkHeader) -> tuple[int, int]:
    start = draw.draw(st.integers(0, header.item_count))
    return start, draw.draw(st.integers(start, header.item_count))


@on_each_kernel
@in_each_version
@settings(max_examples=150, deadline=None)
@given(draw=st.data())
def test_what_a_kernel_writes_it_reads(
    kernel_name: str, version: Version, draw: st.DataObject
) -> None:
    data, recipe = draw.draw(version.datas), draw.draw(version.recipes)
    kernel = load(kernel_name)
    chunk = recipe.compress(kernel, data)
    assert len(chunk) <= len(data) + version.header_bytes
    assert kernel.decompress(chunk) == data
    header = inspect(chunk).header
    start, stop = items_of(draw, header)
    wanted = data[start * header.typesize : stop * header.typesize]
    assert kernel.decompress_slice(chunk, start, stop) == wanted
    out = bytearray(b"\xaa" * (len(data) + 1))
    assert kernel.decompress(chunk, out, 3) == len(data)
    assert out == data + b"\xaa"


@needs_native
@in_each_version
@settings(max_examples=150, deadline=None)
@given(draw=st.data())
def test_each_kernel_reads_what_the_other_writes(version: Version, draw: st.DataObject) -> None:
    data, recipe = draw.draw(version.datas), draw.draw(version.recipes)
    compiled, python = load("native"), load("python")
    for writer, reader in ((compiled, python), (python, compiled)):
        chunk = recipe.compress(writer, data)
        assert reader.decompress(chunk) == data
        start, stop = items_of(draw, ChunkHeader.parse(chunk))
        assert reader.decompress_slice(chunk, start, stop) == writer.decompress_slice(
            chunk, start, stop
        )


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=recipes)
def test_both_kernels_lay_a_chunk_out_alike(data: bytes, recipe: Recipe) -> None:
    """Their codecs differ in strength, so one may store what the other compresses."""
    compiled = ChunkHeader.parse(recipe.compress(load("native"), data))
    python = ChunkHeader.parse(recipe.compress(load("python"), data))
    assert (compiled.typesize, compiled.nbytes, compiled.blocksize) == (
        python.typesize,
        python.nbytes,
        python.blocksize,
    )
    unlike = 0 if compiled.memcpyed == python.memcpyed else MEMCPYED | UNSPLIT
    assert compiled.flags | unlike == python.flags | unlike


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas | constants, recipe=blosc2_strategies.recipes)
def test_both_kernels_lay_a_chunk_of_blosc2_out_alike(data: bytes, recipe: Recipe2) -> None:
    """Their codecs differ in strength, so one may store what the other compresses."""
    compiled = ChunkHeader.parse(recipe.compress(load("native"), data))
    python = ChunkHeader.parse(recipe.compress(load("python"), data))
    assert compiled.special == python.special
    assert (compiled.typesize, compiled.nbytes) == (python.typesize, python.nbytes)
    if compiled.block_count and python.block_count:
        assert compiled.blocksize == python.blocksize
        assert compiled.pipeline == python.pipeline
        assert compiled.split == python.split


@needs_native
@in_each_version
@settings(max_examples=150, deadline=None)
@given(draw=st.data(), seed=st.integers(0, 10_000))
def test_threads_change_nothing(version: Version, draw: st.DataObject, seed: int) -> None:
    data, recipe = draw.draw(version.datas), draw.draw(version.recipes)
    compiled = load("native")
    chunk = recipe.compress(compiled, data)
    assert compiled.decompress(chunk, None, 2 + seed % 4) == data


@needs_native
@in_each_version
@settings(max_examples=300, deadline=None)
@given(
    data=datas.filter(lambda data: 32 <= len(data) <= 20_000),
    draw=st.data(),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_both_kernels_judge_a_damaged_chunk_alike(
    version: Version, data: bytes, draw: st.DataObject, edits: list[tuple[int, int]]
) -> None:
    recipe = draw.draw(version.recipes)
    chunk = bytearray(recipe.compress(load(version.damaged_writer), data))
    for position, value in edits:
        # Half of the damage goes to the header and the block starts.
        reach = len(chunk) if position % 2 else min(len(chunk), version.starts)
        chunk[position % reach] = value
    found = verdict(load("python"), chunk)
    assume(not isinstance(found, type) or not twin_may_refuse(chunk))
    assert verdict(load("native"), chunk) == found


def verdict(kernel: Kernel, chunk: bytearray) -> bytes | int | type[IngotError]:
    """Return the data, or the class of the error that refuses them."""
    try:
        return kernel.decompress(chunk, None, 1, 10**6)
    except IngotError as error:
        return type(error)


@in_each_version
@settings(max_examples=150, deadline=None)
@given(draw=st.data())
def test_a_lazy_chunk_reads_the_same(version: Version, draw: st.DataObject) -> None:
    data, recipe = draw.draw(version.datas), draw.draw(version.recipes)
    stored = recipe.compress(load("python"), data)

    def read(start: int, length: int) -> bytes:
        return stored[start : start + length]

    chunk = LazyChunk.build(read)
    start, stop = items_of(draw, chunk.header)
    size = chunk.header.typesize
    with mock.patch.object(native, "kernel", return_value=decode):
        assert chunk.read(read, start, stop) == data[start * size : stop * size]
    fetched = chunk.explain(start, stop)
    assert sum(length for _, length in fetched) <= len(stored)
    assert all(first[0] + first[1] < then[0] for first, then in pairwise(fetched))
