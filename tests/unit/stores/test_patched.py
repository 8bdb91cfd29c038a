"""A value with ranges over it reads as the bytes that its patches leave."""

import random

import numpy as np
import pytest

from ingot.errors import CorruptionError
from ingot.stores import Extent
from ingot.stores.patched import PatchedValue


def _read(value: PatchedValue, extent: Extent, below: bytes) -> bytes:
    asked = value.below(extent)
    if asked is None:
        return value.over(extent, None)
    assert asked.length is not None
    return value.over(extent, below[asked.start : asked.start + asked.length])


@pytest.mark.parametrize("seed", range(20))
def test_any_patches_and_truncations_act_as_on_a_byte_array(seed: int) -> None:
    chance = random.Random(seed)
    below = chance.randbytes(chance.randrange(60))
    value = PatchedValue("a", len(below)) if seed % 3 else PatchedValue.of(below)
    model = bytearray(below)
    for _ in range(40):
        if chance.random() < 0.2:
            size = chance.randrange(len(model) + 1)
            value, model = value.truncated(size), model[:size]
        else:
            start, data = chance.randrange(len(model) + 1), chance.randbytes(chance.randrange(12))
            value = value.patched(start, data)
            model[start : start + len(data)] = data
        assert value.size == len(model)
        assert sum(len(data) for _, data in value.ranges) == value.held
        for _ in range(6):
            start = chance.randrange(len(model) + 5)
            length = chance.choice((None, 0, 1, 7, 100))
            expected = model[start:] if length is None else model[start : start + length]
            assert _read(value, Extent("a", start, length), below) == expected
        assert _read(value, Extent("a"), below) == model
        pieces = value.pieces(lambda e: below[e.start : e.start + (e.length or 0)], "a")
        assert b"".join(pieces) == model


def test_a_patch_behind_the_end_is_refused() -> None:
    with pytest.raises(CorruptionError, match="holds 4 bytes, a patch starts at 5"):
        PatchedValue("a", 4).patched(5, b"x")


def test_only_what_is_patched_is_held() -> None:
    value = PatchedValue("a", 64 << 20)
    for _ in range(100):
        value = value.patched(1 << 20, b"12345678")
    assert (value.held, value.size) == (8, 64 << 20)


def test_a_key_that_ends_early_ends_the_value_there() -> None:
    value = PatchedValue("a", 10).patched(2, b"xy")
    assert value.over(Extent("a"), b"01234") == b"01xy4"
    assert value.patched(8, b"end").over(Extent("a"), b"01234") == b"01xy4"


def test_bytes_that_can_change_are_copied() -> None:
    data = bytearray(b"abc")
    value = PatchedValue.of(data).patched(0, memoryview(data)[1:])
    data[:] = b"---"
    assert value.over(Extent("a"), None) == b"bcc"


def test_many_patches_read_like_bytes() -> None:
    rng = np.random.default_rng(7)
    expected = bytearray(rng.bytes(2000))
    base = bytes(expected)
    value = PatchedValue("a", len(base))
    for _ in range(400):
        start = int(rng.integers(0, len(expected) + 1))
        data = rng.bytes(int(rng.integers(0, 60)))
        value = value.patched(start, data)
        expected[start : start + len(data)] = data
        if rng.random() < 0.05:
            size = int(rng.integers(len(expected) // 2, len(expected)))
            value = value.truncated(size)
            del expected[size:]
        assert value.size == len(expected)
        assert value.held == sum(len(each) for _, each in value.ranges)
        first = int(rng.integers(0, len(expected)))
        extent = Extent("a", first, int(rng.integers(1, 300)))
        below = value.below(extent)
        data = None if below is None else base[below.start : below.start + (below.length or 0)]
        wanted = bytes(expected[first : first + (extent.length or 0)])
        assert value.over(extent, data) == wanted
