"""The codecs of new Zarr arrays whose creator names none."""

import secrets

import numpy as np
import pytest

import ingot
from ingot import dtypes
from ingot.codecs.compressors import Blosc
from ingot.codecs.text import VlenUtf8
from ingot.errors import UnsupportedError
from ingot.formats.zarr.defaults import default_stages


def test_objects_have_no_usual_codec() -> None:
    assert default_stages(dtypes.TEXT, remote=False) == (VlenUtf8(), Blosc())
    with pytest.raises(UnsupportedError, match="a codec that says what they are"):
        default_stages(np.dtype(object), remote=False)


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_blocks_are_small_where_chunks_come_over_a_network(format: str) -> None:
    there = f"memory://{secrets.token_hex(6)}/x"
    for place, blocksize in ((None, 0), (there, 32 << 10)):
        array = ingot.create(place, shape=8, dtype="f4", format=format)
        (blosc,) = (each for each in array.codec if isinstance(each, Blosc))
        assert blosc.blocksize == blocksize
