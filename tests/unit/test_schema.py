"""Schemas: what follows for a chunk."""

import numpy as np

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain
from ingot.codecs.text import VlenUtf8
from ingot.schema import ArraySchema

NUMBERS = ArraySchema((10, 5), np.dtype("<f4"), (4, 5), CodecChain(), np.float32(7), attrs={"a": 1})


def test_padded_chunks_have_one_size() -> None:
    assert NUMBERS.spec((0, 0)) == NUMBERS.spec((2, 0)) == ChunkSpec((4, 5), np.dtype("<f4"))
    assert NUMBERS.spec((2, 0)).fill == 7
    assert NUMBERS.grid.counts == (3, 1)


def test_short_chunks_are_cut_at_the_edge() -> None:
    short = ArraySchema((10, 5), np.dtype("<f4"), (4, 5), CodecChain(), 0, padded=False)
    assert short.spec((2, 0)).shape == (2, 5)


def test_the_bytes_of_an_array_are_counted_without_overflow() -> None:
    assert NUMBERS.nbytes == 200
    huge = ArraySchema((2**62,), np.dtype("<f8"), (2**20,), CodecChain(), 0)
    assert huge.nbytes == 2**65


def test_text_is_variable() -> None:
    text = ArraySchema((3,), dtypes.TEXT, (3,), CodecChain((), VlenUtf8()), "")
    assert text.variable
    assert not NUMBERS.variable


def test_a_schema_changes_by_copies() -> None:
    larger = NUMBERS.resized((20, 5))
    assert (larger.grid.counts, larger.fill, larger.attrs) == ((5, 1), 7, {"a": 1})
    other = NUMBERS.described({"b": 2})
    assert (other.attrs, other.shape) == ({"b": 2}, (10, 5))
    assert NUMBERS.shape == (10, 5)
    assert NUMBERS.attrs == {"a": 1}
