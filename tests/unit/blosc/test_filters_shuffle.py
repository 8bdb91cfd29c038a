"""The filters against their definitions, written out byte by byte and bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.blosc.filters import bitshuffle, shuffle, unbitshuffle, unshuffle

blocks = st.binary(max_size=600)
sizes = st.one_of(st.integers(1, 20), st.integers(1, 255))


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@given(blocks, sizes)
def test_shuffle_by_its_definition(data: bytes, typesize: int) -> None:
    items = len(data) // typesize
    expected = [data[item * typesize + byte] for byte in range(typesize) for item in range(items)]
    expected += data[items * typesize :]
    assert shuffle(as_array(data), typesize).tolist() == expected


@given(blocks, sizes)
def test_bitshuffle_by_its_definition(data: bytes, typesize: int) -> None:
    items = len(data) // typesize
    if items % 8:
        assert bitshuffle(as_array(data), typesize).tobytes() == data
        return
    expected = bytearray(items * typesize)
    for item in range(items):
        for bit in range(8 * typesize):
            if data[item * typesize + bit // 8] >> bit % 8 & 1:
                expected[bit * (items // 8) + item // 8] |= 1 << item % 8
    assert bitshuffle(as_array(data), typesize).tobytes() == expected + data[items * typesize :]


@given(blocks, sizes)
def test_both_are_undone_and_leave_their_input_alone(data: bytes, typesize: int) -> None:
    block = as_array(data)
    assert unshuffle(shuffle(block, typesize), typesize).tobytes() == data
    assert unbitshuffle(bitshuffle(block, typesize), typesize).tobytes() == data
    assert block.tobytes() == data


@pytest.mark.parametrize("apply", [shuffle, unshuffle, bitshuffle, unbitshuffle])
def test_a_block_shorter_than_an_item_stays_as_it_is(apply: object) -> None:
    assert callable(apply)
    assert apply(as_array(b"abc"), 4).tobytes() == b"abc"
    assert apply(as_array(b""), 4).tobytes() == b""
