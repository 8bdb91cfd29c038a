"""Zarr version 2 arrays of three writers, and damaged ones, give what a right reader gives.

``zarr2.tar.xz`` is never regenerated. Its manifest says of each case what must come out: the data,
an error, or anything but a crash.
"""

import io
import json
import math
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.errors import IngotError, UnsafeError
from ingot.formats.format import ArrayNode, GroupNode
from ingot.formats.zarr2 import Zarr2Format
from ingot.stores import MemoryStore
from ingot.stores.store import Extent, Store

ARCHIVE = Path(__file__).with_name("zarr2.tar.xz")

Case = dict[str, Any]


@cache
def unpacked() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as tar:
        members = [member for member in tar if member.isfile()]
        return {
            member.name.removeprefix("zarr2/"): tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in members
        }


CASES: list[Case] = json.loads(unpacked()["manifest.json"])


def cases(expectation: str, node: str = "array") -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["expect"] == expectation and case["node"] == node]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["id"])


def store_of(case: Case) -> Store:
    place = case["store"]
    if place.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(unpacked()[place])) as archive:
            return MemoryStore({name: archive.read(name) for name in archive.namelist()})
    prefix = f"{place}/"
    content = unpacked().items()
    return MemoryStore(
        {name.removeprefix(prefix): data for name, data in content if name.startswith(prefix)}
    )


def opened(store: Store, path: str = "") -> ArrayNode:
    node = Zarr2Format().open(store, path)
    assert isinstance(node, ArrayNode)
    return node


def read(node: ArrayNode) -> np.ndarray[Any, Any]:
    """Decode every chunk and put it in its place, by NumPy alone."""
    schema = node.schema
    result = np.empty(schema.shape, schema.dtype)
    for coords in np.ndindex(schema.grid.counts):
        [location] = node.chunks.locate(np.array([coords], np.int64).reshape(1, -1))
        assert isinstance(location, Extent)
        [data] = node.chunks.store.read([location])
        spec = schema.spec(coords)
        chunk = np.empty(spec.shape, spec.dtype)
        if data is None:
            chunk[...] = schema.fill
        else:
            schema.chain.decode(data, spec, chunk)
        place = tuple(
            slice(position * length, (position + 1) * length)
            for position, length in zip(coords, schema.chunks, strict=True)
        )
        result[place] = chunk[tuple(slice(n) for n in schema.grid.valid_shape(coords))]
    return result


def assert_same_items(found: np.ndarray[Any, Any], name: str) -> None:
    """Compare to the last bit, in whichever byte order the answer was noted down."""
    if name.endswith(".npy"):
        expected = np.load(io.BytesIO(unpacked()[name]), allow_pickle=False)
        assert found.shape == expected.shape
        assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert found.astype(expected.dtype).tobytes() == expected.tobytes()
        return
    answer = json.loads(unpacked()[name])
    assert list(found.shape) == answer["shape"]
    items = found.reshape(-1).tolist()
    if answer["kind"].startswith("ragged:"):
        assert {item.dtype for item in items} == {np.dtype(answer["kind"].partition(":")[2])}
        items = [item.tolist() for item in items]
    assert items == answer["values"]


@cases("equal")
def test_an_array_reads_as_its_writer_meant_it(case: Case) -> None:
    node = opened(store_of(case), case["inner"])
    assert_same_items(read(node), case["expected"])
    assert node.schema.attrs == case.get("attrs", {})
    if "chunks" in case:
        assert list(node.schema.chunks) == case["chunks"]


@cases("equal", node="group")
def test_a_group_has_its_members(case: Case) -> None:
    store = store_of(case)
    for path in case["groups"]:
        group = Zarr2Format().open(store, path)
        assert isinstance(group, GroupNode)
        below = [path for path in (*case["groups"], *case["members"]) if path]
        parts = [each.rpartition("/") for each in below]
        assert sorted(group.children) == sorted(name for head, _, name in parts if head == path)
    for path, name in case["members"].items():
        assert_same_items(read(opened(store, path)), name)


@cases("error")
def test_a_broken_array_is_an_error(case: Case) -> None:
    with pytest.raises(IngotError):
        read(opened(store_of(case), case["inner"]))


@cases("any")
def test_a_doubtful_array_is_read_or_refused(case: Case) -> None:
    try:
        found = read(opened(store_of(case), case["inner"]))
    except IngotError:
        return
    assert math.prod(found.shape) == found.size


@cases("open-ok")
def test_an_array_without_a_fill_value_reads_as_zeros_where_it_is_absent(case: Case) -> None:
    store = store_of(case)
    node = opened(store, case["inner"])
    absent = [
        c for c in np.ndindex(node.schema.grid.counts) if store.size("{}.{}".format(*c)) is None
    ]
    assert absent == [(0, 0)]
    assert not read(node)[: node.schema.chunks[0], : node.schema.chunks[1]].any()


def test_pickled_objects_are_refused_by_name() -> None:
    [case] = [case for case in CASES if case["id"] == "v2-zarr2/object_pickle"]
    with pytest.raises(UnsafeError, match="pickle"):
        Zarr2Format().open(store_of(case))


def test_every_expectation_is_tested() -> None:
    assert {case["expect"] for case in CASES} == {"equal", "error", "any", "open-ok"}
    assert len(CASES) == 91
