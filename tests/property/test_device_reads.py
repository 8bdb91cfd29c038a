"""Reading onto a device against reading without one: any key, format, type, order and codec.

The device is the host: the kernels of a GPU, compiled for one thread.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.device.device import Device
from ingot.errors import SelectionError
from ingot.stores import MemoryStore
from tests.host_device import DEVICES, on_host
from tests.property.array_strategies import Shape, items, layouts
from tests.property.test_selection import cases, orthogonal_cases

onto_each_device = pytest.mark.parametrize("make", DEVICES)

TYPES = ["?", "i1", "<u2", "<i4", ">i4", "<u8", "<f2", ">f4", "<f8", ">f8", "<c8", ">c16"]
CODECS = [
    *("blosc:lz4:5:shuffle", "blosc:lz4:5:bitshuffle", "blosc:blosclz:9:noshuffle"),
    *("blosc:zstd:1:shuffle", "blosc2:lz4:5:shuffle", "zlib:1", "none"),
]
FORMATS = ["zarr2", "zarr3", "bcolz", "blsk", "bloscpack"]
Make = Callable[[], Device]
many = settings(max_examples=100, deadline=None)


def same_items(found: Any, expected: Any) -> bool:
    """Return whether items are equal to the last bit, in the byte order of the machine."""
    native = np.asarray(expected).astype(np.asarray(expected).dtype.newbyteorder("="))
    here = on_host(found)
    return (
        here.dtype == native.dtype
        and here.shape == native.shape
        and here.tobytes() == native.tobytes()
    )


def compressible(dtype: Any, shape: Shape) -> NDArray[Any]:
    """Items with runs among them, so that streams are of every kind."""
    made = items(dtype, shape)
    return made if made.size < 40 else np.where(items("<i4", shape) % 40 < 20, made, made.flat[0])


@onto_each_device
@many
@given(case=cases(), dtype=st.sampled_from(TYPES), draws=st.data())
def test_any_key_is_read_as_without_a_device(
    make: Make, case: tuple[Shape, Any], dtype: Any, draws: st.DataObject
) -> None:
    shape, key = case
    settings = draws.draw(layouts(shape)) | {"codec": draws.draw(st.sampled_from(CODECS[:4]))}
    array = ingot.array(compressible(dtype, shape), MemoryStore(), **settings)
    device = make()
    try:
        expected = array[key]
    except SelectionError:
        with pytest.raises(SelectionError):
            array.read(key, device=device)
        return
    assert same_items(array.read(key, device=device), expected)
    if isinstance(expected, np.ndarray):
        out = device.empty(expected.shape, expected.dtype.newbyteorder("="))
        assert array.read(key, device=device, out=out) is out
        assert same_items(out, expected)


@onto_each_device
@many
@given(case=orthogonal_cases(), dtype=st.sampled_from(TYPES), draws=st.data())
def test_any_format_is_read_as_without_a_device(
    make: Make, case: tuple[Shape, Any], dtype: Any, draws: st.DataObject
) -> None:
    shape, key = case
    kind = draws.draw(st.sampled_from(FORMATS))
    data = compressible(dtype, shape)
    chunks = draws.draw(st.integers(1, max(shape[0], 1))) if shape else None
    try:
        array = ingot.array(data, MemoryStore(), format=kind, chunks=chunks)
    except ingot.errors.IngotError:
        return  # The format has no such arrays.
    device = make()
    assert same_items(array.read(..., device=device), data)
    picked = tuple(each if isinstance(each, slice) else slice(None, None, -2) for each in key)[
        : len(shape)
    ]
    assert same_items(array.read(picked, device=device), data[picked])
    assert same_items(array.read(picked[:1], device=device), data[picked[:1]])


@onto_each_device
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shards", [None, (64, 64)])
@pytest.mark.parametrize("dtype", ["<f4", ">i8", "<u2"])
def test_large_arrays_of_every_codec(
    make: Make, codec: str, shards: tuple[int, ...] | None, dtype: str
) -> None:
    data = np.cumsum(np.arange(200 * 300) % 7).reshape(200, 300).astype(dtype)
    array = ingot.create(
        MemoryStore(), shape=data.shape, dtype=dtype, chunks=(32, 64), shards=shards, codec=codec
    )
    array[:150] = data[:150]
    expected = array[...]
    device = make()
    keys = [..., slice(10, 190, 7), (slice(3, 90), slice(299, 10, -3)), 17, (slice(None), 5)]
    keys += [([5, 199, 5, 0],), (slice(None), [1, 250, 3]), ([1, 150], [299, 0])]
    keys += [expected > 100, (slice(40, 40), slice(None))]
    for key in keys:
        assert same_items(array.read(key, device=device), expected[key])


@onto_each_device
def test_blocks_are_read_ahead(make: Make) -> None:
    data = np.arange(1000).reshape(100, 10)
    array = ingot.array(data, chunks=(9, 10))
    found = np.zeros_like(data)
    for key, block in array.blocks(nbytes=1000, device=make()):
        found[key] = on_host(block)
    assert found.tolist() == data.tolist()
