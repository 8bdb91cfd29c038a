"""Arrays, metadata and names as zarr-python's own tests draw them, both ways.

`zarr.testing.strategies` makes what its authors expect every implementation to manage. Left out is
what the specification does not allow and newer releases no longer draw, chunks without items; dates
of version 2 whose fill value is null, which zarr-python takes for no date and Ingot, as with every
null, for zero; and names that stores of ours refuse, since not every system can have such files.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

import ingot
from ingot.errors import UnsafeError
from ingot.formats.zarr import v2, v3_metadata
from ingot.stores import MemoryStore
from ingot.stores.store import Commit, Put, check_commit
from tests.kernels import on_each_kernel
from tests.storage import use_kernel

zarr = pytest.importorskip("zarr")
theirs = pytest.importorskip("zarr.testing.strategies")
metadata_v2 = pytest.importorskip("zarr.core.metadata.v2")
metadata_v3 = pytest.importorskip("zarr.core.metadata.v3")
default_buffer_prototype = zarr.core.buffer.default_buffer_prototype

some = settings(max_examples=60, deadline=None)
shapes = npst.array_shapes(max_dims=4, min_side=1, max_side=5)


def is_safe(name: str) -> bool:
    """Return whether our stores take a name."""
    try:
        check_commit(MemoryStore(), Commit(publish=(Put(name, b""),)))
    except UnsafeError:
        return False
    return True


names = theirs.short_node_names.filter(is_safe)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


@contextmanager
def quiet_kernel(kernel_name: str) -> Iterator[None]:
    """One kernel at work, and the warnings of others silenced."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        use_kernel(kernel_name, patch)
        warnings.simplefilter("ignore")
        yield


def content(store: Any) -> dict[str, bytes]:
    """Return what a store of zarr-python in memory holds."""
    return {key: value.to_bytes() for key, value in store._store_dict.items()}


def store_of(values: dict[str, bytes]) -> Any:
    """Return a store of zarr-python in memory that holds the same."""
    buffer = default_buffer_prototype().buffer
    return zarr.storage.MemoryStore({key: buffer.from_bytes(data) for key, data in values.items()})


def held(store: MemoryStore) -> dict[str, bytes]:
    """Return what a store of ours holds."""
    return dict(store._values)


def assert_same(found: Any, expected: Any) -> None:
    """Compare to the last bit, in whichever byte order each is held."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype != expected.dtype.newbyteorder(">"):
        assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.astype(expected.dtype).tobytes() == expected.tobytes()


@on_each_kernel
@some
@given(data=st.data())
def test_arrays_that_zarr_draws_are_read(kernel_name: str, data: st.DataObject) -> None:
    with quiet_kernel(kernel_name):
        array = data.draw(
            theirs.arrays(shapes=shapes, paths=st.just("/") | paths, array_names=names)
        )
        assume(array.fill_value is not None or array.dtype.kind not in "mM")
        root = ingot.open(MemoryStore(content(array.store)))
        assert isinstance(root, ingot.Group)
        ours = root[array.path]
        assert isinstance(ours, ingot.Array)
        assert (ours.shape, ours.chunks) == (array.shape, array.chunks)
        assert dict(ours.attrs) == dict(array.attrs)
        assert_same(ours[...], array[...])
        key = data.draw(theirs.basic_indices(shape=array.shape))
        assert_same(ours[key], array[...][key])
        orthogonal, plain = data.draw(theirs.orthogonal_indices(shape=array.shape))
        assert_same(ours.oindex[orthogonal], array[...][plain])


@on_each_kernel
@some
@given(data=st.data())
def test_arrays_that_we_write_are_read_by_zarr(kernel_name: str, data: st.DataObject) -> None:
    values: NDArray[Any] = data.draw(theirs.numpy_arrays(shapes=shapes))
    chunks = data.draw(theirs.chunk_shapes(shape=values.shape))
    version = data.draw(theirs.zarr_formats)
    attrs = data.draw(theirs.attrs) or {}
    path = data.draw(paths)
    layout: dict[str, Any] = {}
    if version == 3:
        pieces = theirs.shard_shapes(shape=values.shape, chunk_shape=chunks)
        layout["shards"] = data.draw(st.none() | pieces)
        layout["dimension_names"] = data.draw(theirs.dimension_names(ndim=values.ndim))
    with quiet_kernel(kernel_name):
        store = MemoryStore()
        root = ingot.group(store, format=f"zarr{version}")
        fill = data.draw(st.just(0) | npst.from_dtype(values.dtype))
        ours = root.create_array(
            path,
            shape=values.shape,
            dtype=values.dtype,
            chunks=chunks,
            fill=fill,
            attrs=attrs,
            **layout,
        )
        key = data.draw(theirs.basic_indices(shape=values.shape))
        ours[key] = values[key]
        array = zarr.open_group(store_of(held(store)), mode="r", zarr_format=version)[path]
        assert (array.shape, array.chunks) == (values.shape, chunks)
        assert dict(array.attrs) == attrs
        if version == 3:
            assert array.shards == layout["shards"]
            axes = layout["dimension_names"]
            assert array.metadata.dimension_names == (None if axes is None else tuple(axes))
        expected = np.full(values.shape, ours.fill, values.dtype)
        expected[key] = values[key]
        assert_same(ours[...], expected)
        assert_same(array[...], expected)


@pytest.mark.filterwarnings("ignore")
@some
@given(metadata=theirs.array_metadata(zarr_formats=st.just(3)))
def test_documents_that_zarr_draws_say_the_same_to_both(metadata: Any) -> None:
    [document] = metadata.to_buffer_dict(default_buffer_prototype()).values()
    ours = v3_metadata.parse(document.to_bytes())
    assert isinstance(ours, v3_metadata.V3ArrayMetadata)
    assert ours.schema.shape == metadata.shape
    assert ours.schema.attrs == (metadata.attributes or {})
    assert ours.schema.dimension_names == metadata.dimension_names
    native = metadata.data_type.to_native_dtype()
    # As zarr itself reads it: not every document has the sign of what is no number.
    theirs_again = metadata_v3.ArrayV3Metadata.from_dict(json.loads(document.to_bytes()))
    assert_same(ours.schema.fill, np.asarray(theirs_again.fill_value, native)[()])
    canonical = v3_metadata.canonical(json.loads(document.to_bytes()))
    again = metadata_v3.ArrayV3Metadata.from_dict({"attributes": {}, **canonical})
    [document_again] = again.to_buffer_dict(default_buffer_prototype()).values()
    assert json.loads(document_again.to_bytes()) == json.loads(document.to_bytes())


@some
@given(metadata=theirs.array_metadata(zarr_formats=st.just(2)))
def test_older_documents_that_zarr_draws_say_the_same_to_both(metadata: Any) -> None:
    document = metadata.to_buffer_dict(default_buffer_prototype())[".zarray"]
    ours = v2.parse_array(document.to_bytes())
    assert (ours.schema.shape, ours.schema.chunks) == (metadata.shape, metadata.chunks)
    assert (ours.schema.order, ours.separator) == (metadata.order, metadata.dimension_separator)
    native = metadata.dtype.to_native_dtype()
    theirs_again = metadata_v2.ArrayV2Metadata.from_dict(json.loads(document.to_bytes()))
    assert_same(ours.schema.fill, np.asarray(theirs_again.fill_value, native)[()])
    canonical = v2.V2ArrayMetadata.of(ours.schema, ours.separator).document
    again = metadata_v2.ArrayV2Metadata.from_dict(dict(canonical))
    document_again = again.to_buffer_dict(default_buffer_prototype())[".zarray"]
    assert json.loads(document_again.to_bytes()) == json.loads(document.to_bytes())


@some
@given(
    wanted=st.lists(paths, unique=True, max_size=5),
    version=theirs.zarr_formats,
    copied=st.booleans(),
)
def test_groups_of_any_names_are_the_same_tree_to_both(
    wanted: list[str], version: int, copied: bool
) -> None:
    store = MemoryStore()
    root = ingot.group(store, format=f"zarr{version}")
    for path in wanted:
        if path not in root:
            root.group(path)
    if copied:
        root.consolidate()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = zarr.open_group(store_of(held(store)), mode="r", zarr_format=version)
        members = dict(found.members(max_depth=None))
    parts = [path.split("/") for path in wanted]
    expected = {"/".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}
    assert set(members) == expected
    assert _all_paths(root) == expected


def _all_paths(group: ingot.Group) -> set[str]:
    found = set()
    for name, member in group.items():
        assert isinstance(member, ingot.Group)
        found |= {name} | {f"{name}/{path}" for path in _all_paths(member)}
    return found
