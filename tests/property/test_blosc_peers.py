"""What Ingot writes, the Blosc libraries of others read; and the other way round.

Snappy is left out: no library that can be installed today reads it.
"""

import blosc as python_blosc
import blosc2
import numcodecs.blosc
from hypothesis import assume, given, settings

from ingot.blosc.header import ChunkHeader
from tests.kernels import load, on_each_kernel
from tests.property.chunk_strategies import Recipe, datas, recipes

known_recipes = recipes.filter(lambda recipe: recipe.codec != "snappy")


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=known_recipes)
def test_python_blosc_reads_what_we_write(kernel_name: str, data: bytes, recipe: Recipe) -> None:
    assert python_blosc.decompress(recipe.compress(load(kernel_name), data)) == data


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas.filter(bool), recipe=known_recipes)
def test_numcodecs_reads_what_we_write(kernel_name: str, data: bytes, recipe: Recipe) -> None:
    """Empty chunks are left out: numcodecs refuses even its own."""
    assert bytes(numcodecs.blosc.decompress(recipe.compress(load(kernel_name), data))) == data


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=known_recipes)
def test_blosc2_reads_what_we_write(kernel_name: str, data: bytes, recipe: Recipe) -> None:
    """Bit-shuffled chunks with a broken last item are left out.

    C-Blosc2 does not write those bytes at all, in chunks of C-Blosc 1 neither.
    """
    chunk = recipe.compress(load(kernel_name), data)
    header = ChunkHeader.parse(chunk)
    assume(header.filter != "bitshuffle" or header.nbytes % header.typesize == 0)
    assert blosc2.decompress2(chunk) == data


SHUFFLES = {"none": 0, "shuffle": 1, "bitshuffle": 2}


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas, recipe=known_recipes)
def test_we_read_what_python_blosc_writes(kernel_name: str, data: bytes, recipe: Recipe) -> None:
    assume(recipe.typesize <= 255)
    python_blosc.set_blocksize(recipe.blocksize)
    chunk = python_blosc.compress(
        data, recipe.typesize, recipe.level, SHUFFLES[recipe.filter], recipe.codec
    )
    assert load(kernel_name).decompress(chunk) == data


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(data=datas.filter(bool), recipe=known_recipes)
def test_slices_of_what_numcodecs_writes(kernel_name: str, data: bytes, recipe: Recipe) -> None:
    encoder = numcodecs.blosc.Blosc(
        recipe.codec, recipe.level, SHUFFLES[recipe.filter], recipe.blocksize, recipe.typesize
    )
    chunk = encoder.encode(data)
    kernel, header = load(kernel_name), ChunkHeader.parse(chunk)
    size = header.typesize
    third = header.item_count // 3
    for start, stop in ((0, third), (third, 2 * third), (2 * third, header.item_count)):
        assert kernel.decompress_slice(chunk, start, stop) == data[start * size : stop * size]
