"""Conversion of values and the lengths of chunks in the bcolz module, against bcolz."""

import numpy as np
import pytest

from ingot.compat.bcolz.arrayprint import human_readable_size
from ingot.compat.bcolz.conversion import calc_chunksize, to_ndarray


@pytest.mark.parametrize("size", [0, 1e-5, 1e-4, 2e-4, 1e-3, 0.01, 0.5, 1, 9.99, 10, 1e3, 1e4, 1e6])
def test_chunks_are_as_long_as_those_of_bcolz(size: float) -> None:
    peer = pytest.importorskip("bcolz")
    assert calc_chunksize(size) == peer.utils.calc_chunksize(size)


@pytest.mark.parametrize("size", [0, 1023, 1024, 10**6, 10**9, 10**12, 10**16])
def test_sizes_read_like_those_of_bcolz(size: int) -> None:
    peer = pytest.importorskip("bcolz")
    assert human_readable_size(size) == peer.utils.human_readable_size(size)


def test_values_become_items_of_a_type() -> None:
    kind = np.dtype("i4")
    assert to_ndarray(3.9, kind).tolist() == [3]
    assert to_ndarray([1, 2], kind, arrlen=2).tolist() == [1, 2]
    assert to_ndarray(np.arange(10)[::2], None).flags.contiguous
    with pytest.raises(ValueError, match="cannot convert"):
        to_ndarray(["x"], kind)
    with pytest.raises(TypeError, match="do not match"):
        to_ndarray(np.broadcast_to(np.float64(1), 5), kind)
