"""The two kernels are one: each reads what the other writes, whole and in part."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.blosc.header import MEMCPYED, UNSPLIT, ChunkHeader
from ingot.blosc.inspection import inspect
from ingot.errors import IngotError
from ingot.native import Kernel
from tests.kernels import load, needs_native, on_each_kernel
from tests.property.chunk_strategies import Recipe, datas, recipes


def items_of(draw: Any, header: ChunkHeader) -> tuple[int, int]:
    start = draw(st.integers(0, header.item_count))
    return start, draw(st.integers(start, header.item_count))


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=recipes, draw=st.data())
def test_what_a_kernel_writes_it_reads(
    kernel_name: str, data: bytes, recipe: Recipe, draw: st.DataObject
) -> None:
    kernel = load(kernel_name)
    chunk = recipe.compress(kernel, data)
    assert len(chunk) <= len(data) + 16
    assert kernel.decompress(chunk) == data
    header = inspect(chunk).header
    start, stop = items_of(draw.draw, header)
    wanted = data[start * header.typesize : stop * header.typesize]
    assert kernel.decompress_slice(chunk, start, stop) == wanted
    out = bytearray(b"\xaa" * (len(data) + 1))
    assert kernel.decompress(chunk, out, 3) == len(data)
    assert out == data + b"\xaa"


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=recipes, draw=st.data())
def test_each_kernel_reads_what_the_other_writes(
    data: bytes, recipe: Recipe, draw: st.DataObject
) -> None:
    native, python = load("native"), load("python")
    for writer, reader in ((native, python), (python, native)):
        chunk = recipe.compress(writer, data)
        assert reader.decompress(chunk) == data
        start, stop = items_of(draw.draw, ChunkHeader.parse(chunk))
        assert reader.decompress_slice(chunk, start, stop) == writer.decompress_slice(
            chunk, start, stop
        )


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=recipes)
def test_both_kernels_lay_a_chunk_out_alike(data: bytes, recipe: Recipe) -> None:
    """Their codecs differ in strength, so one may store what the other compresses."""
    native = ChunkHeader.parse(recipe.compress(load("native"), data))
    python = ChunkHeader.parse(recipe.compress(load("python"), data))
    assert (native.typesize, native.nbytes, native.blocksize) == (
        python.typesize,
        python.nbytes,
        python.blocksize,
    )
    unlike = 0 if native.memcpyed == python.memcpyed else MEMCPYED | UNSPLIT
    assert native.flags | unlike == python.flags | unlike


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=recipes, seed=st.integers(0, 10_000))
def test_threads_change_nothing(data: bytes, recipe: Recipe, seed: int) -> None:
    native = load("native")
    chunk = recipe.compress(native, data)
    assert native.decompress(chunk, None, 2 + seed % 4) == data


@needs_native
@settings(max_examples=300, deadline=None)
@given(
    data=datas.filter(lambda data: 32 <= len(data) <= 20_000),
    recipe=recipes,
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_both_kernels_judge_a_damaged_chunk_alike(
    data: bytes, recipe: Recipe, edits: list[tuple[int, int]]
) -> None:
    chunk = bytearray(recipe.compress(load("native"), data))
    for position, value in edits:
        # Half of the damage goes to the header and the block starts.
        reach = len(chunk) if position % 2 else min(len(chunk), 64)
        chunk[position % reach] = value
    assert verdict(load("native"), chunk) == verdict(load("python"), chunk)


def verdict(kernel: Kernel, chunk: bytearray) -> bytes | int | None:
    """Return the data, or None if they are refused; which of several faults shows is open."""
    try:
        return kernel.decompress(chunk, None, 1, 10**6)
    except IngotError:
        return None
