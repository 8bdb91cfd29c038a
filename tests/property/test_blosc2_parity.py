"""On Blosc 2, too, the kernels are one: each reads what the other writes, whole and in part."""

from itertools import pairwise
from unittest import mock

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ingot import native
from ingot.blosc import decode
from ingot.blosc.header import ChunkHeader
from ingot.blosc.inspection import inspect
from ingot.blosc.lazy import LazyChunk
from tests.kernels import (
    load,
    needs_native,
    on_each_kernel,
    twin_may_refuse,
)
from tests.property.blosc2_strategies import Recipe2, recipes
from tests.property.chunk_strategies import datas
from tests.property.test_blosc_parity import items_of, verdict

constants = st.builds(
    lambda pattern, count: pattern * count,
    st.one_of(
        st.binary(min_size=1, max_size=16),
        st.sampled_from([b"\0", bytes(8), np.float32(np.nan).tobytes(), b"\xff"]),
    ),
    st.integers(1, 500),
)


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas | constants, recipe=recipes, draw=st.data())
def test_what_a_kernel_writes_it_reads(
    kernel_name: str, data: bytes, recipe: Recipe2, draw: st.DataObject
) -> None:
    kernel = load(kernel_name)
    chunk = recipe.compress(kernel, data)
    assert len(chunk) <= len(data) + 32
    assert kernel.decompress(chunk) == data
    header = inspect(chunk).header
    start, stop = items_of(draw.draw, header)
    wanted = data[start * header.typesize : stop * header.typesize]
    assert kernel.decompress_slice(chunk, start, stop) == wanted
    out = bytearray(b"\xaa" * (len(data) + 1))
    assert kernel.decompress(chunk, out, 3) == len(data)
    assert out == data + b"\xaa"


@settings(max_examples=150, deadline=None)
@given(data=datas | constants, recipe=recipes, draw=st.data())
def test_a_lazy_chunk_reads_the_same(data: bytes, recipe: Recipe2, draw: st.DataObject) -> None:
    stored = recipe.compress(load("python"), data)

    def read(start: int, length: int) -> bytes:
        return stored[start : start + length]

    chunk = LazyChunk.build(read)
    start, stop = items_of(draw.draw, chunk.header)
    size = chunk.header.typesize
    with mock.patch.object(native, "kernel", return_value=decode):
        assert chunk.read(read, start, stop) == data[start * size : stop * size]
    fetched = chunk.explain(start, stop)
    assert sum(length for _, length in fetched) <= len(stored)
    assert all(first[0] + first[1] < then[0] for first, then in pairwise(fetched))


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas | constants, recipe=recipes, draw=st.data())
def test_each_kernel_reads_what_the_other_writes(
    data: bytes, recipe: Recipe2, draw: st.DataObject
) -> None:
    compiled, python = load("native"), load("python")
    for writer, reader in ((compiled, python), (python, compiled)):
        chunk = recipe.compress(writer, data)
        assert reader.decompress(chunk) == data
        start, stop = items_of(draw.draw, ChunkHeader.parse(chunk))
        assert reader.decompress_slice(chunk, start, stop) == writer.decompress_slice(
            chunk, start, stop
        )


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas | constants, recipe=recipes)
def test_both_kernels_choose_the_same_layout(data: bytes, recipe: Recipe2) -> None:
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
@settings(max_examples=300, deadline=None)
@given(
    data=datas.filter(lambda data: 32 <= len(data) <= 20_000),
    recipe=recipes,
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_both_kernels_judge_a_damaged_chunk_alike(
    data: bytes, recipe: Recipe2, edits: list[tuple[int, int]]
) -> None:
    chunk = bytearray(recipe.compress(load("python"), data))
    for position, value in edits:
        # Half of the damage goes to the header and the block starts.
        reach = len(chunk) if position % 2 else min(len(chunk), 80)
        chunk[position % reach] = value
    found = verdict(load("python"), chunk)
    assume(found is not None or not twin_may_refuse(chunk))
    assert verdict(load("native"), chunk) == found
