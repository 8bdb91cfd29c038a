"""Schemas: what follows for a chunk."""

import numpy as np
import pytest

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain
from ingot.codecs.text import VlenUtf8
from ingot.schema import ArraySchema, Flat

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


def test_chunks_of_a_flat_array_are_whole_rows_as_far_as_they_fit() -> None:
    def rows(shape: tuple[int, ...], order: str, chunk_bytes: int) -> tuple[int, ...]:
        flat = Flat(chunk_bytes)
        return ArraySchema(
            shape, np.dtype("<i2"), (), CodecChain(), 0, order=order, flat=flat
        ).chunks

    assert rows((10, 6), "C", 40) == (3, 6)
    assert rows((10, 6), "F", 40) == (10, 2)
    assert rows((10, 6), "C", 10) == (1, 5)
    assert rows((10, 6), "C", 1) == (1, 1)
    assert rows((2, 3, 4), "C", 17) == (1, 2, 4)
    assert rows((0,), "C", 40) == (20,)
    assert rows((3, 0), "C", 40) == (20, 1)
    assert rows((), "C", 40) == ()


def test_a_flat_array_stores_all_of_its_bytes() -> None:
    schema = ArraySchema((5, 3), np.dtype("<f8"), (), CodecChain(), 0.0, flat=Flat(36))
    assert (schema.padded, schema.sparse, schema.chunk_count) == (False, False, 4)
    payload = schema.payload
    assert (payload.shape, payload.chunks, payload.dtype) == ((30,), (9,), np.dtype("u4"))
    assert payload.grid.stored_shape((3,)) == (3,)
    assert schema.resized((6, 3)).payload.shape == (36,)
    assert schema.described({"a": 1}).flat == Flat(36)
    with pytest.raises(ValueError, match="0 bytes"):
        Flat(0)
