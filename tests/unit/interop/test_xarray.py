"""xarray opens by Ingot's engine what it opens by its own, and the formats that it has none for."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ingot
from ingot.errors import FormatError, LockedError, MemberError, NotFoundError
from ingot.testing.counting import CountingStore

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from xarray.core import indexing  # noqa: E402

from ingot.interop.xarray import IngotBackendEntrypoint, LazyArray, LazyItems  # noqa: E402

SHAPE = (7, 5, 6)
DATA = np.arange(210, dtype="<i4").reshape(SHAPE)


def opened(path: Any, **settings: Any) -> Any:
    return xr.open_dataset(path, engine=IngotBackendEntrypoint, **settings)


def by_zarr(path: Path, **settings: Any) -> Any:
    return xr.open_dataset(path, engine="zarr", **settings)


# What xarray has written --------------------------------------------------------------------------


def plain() -> Any:
    return xr.Dataset(
        {
            "heat": (("time", "place"), np.linspace(0, 1, 12).reshape(4, 3), {"units": "K"}),
            "count": (("time",), np.arange(4, dtype="u2")),
            "wet": (("place",), np.array([True, False, True])),
            "wave": (("place",), np.array([1 + 2j, np.nan, 3])),
            "total": ((), np.int64(42), {"note": "no axes"}),
        },
        coords={"place": ["a", "bb", "c"], "height": ("place", [1.5, 2.5, np.nan])},
        attrs={"title": "plain", "numbers": [1, 2]},
    )


def times() -> Any:
    days = np.array(["2001-01-01", "2001-02-03", "NaT"], "M8[ns]")
    span = np.array([1, 2, 3], "m8[D]").astype("m8[ns]")
    stamps = xr.date_range("2000-01-01", periods=3, freq="6h")
    return xr.Dataset({"day": ("t", days), "span": ("t", span)}, coords={"t": stamps})


def packed() -> Any:
    made = xr.Dataset({"p": ("x", np.array([1.5, np.nan, 3.25])), "q": ("x", [0.0, 7.0, np.nan])})
    made["p"].encoding = {
        "dtype": "i2",
        "scale_factor": 0.25,
        "add_offset": 1.0,
        "_FillValue": -9999,
    }
    made["q"].encoding = {"_FillValue": -1.0}
    return made


def text() -> Any:
    return xr.Dataset(
        {
            "fixed": ("x", np.array(["a", "bcd", ""])),
            "objects": ("x", np.array(["ä", "", "longer text"], object)),
            "raw": ("x", np.array([b"ab", b"", b"c"])),
        }
    )


def bounds() -> Any:
    made = xr.Dataset(
        {"v": (("y", "x"), np.zeros((2, 3)), {"grid_mapping": "crs"}), "crs": ((), np.int32(1))},
        coords={"lat": (("y", "x"), np.ones((2, 3))), "x": [0, 1, 2]},
    )
    made["v"].encoding = {"coordinates": "lat"}
    return made


def empty() -> Any:
    return xr.Dataset({"none": (("x", "y"), np.empty((0, 3), "f4"))})


MADE = {each.__name__: each for each in (plain, times, packed, text, bounds, empty)}
DECODERS = [
    {},
    {"decode_cf": False},
    {"mask_and_scale": False},
    {"decode_times": False},
    {"decode_coords": "all"},
    {"chunks": {}},
]


def written(made: Any, path: Path, version: int, **settings: Any) -> Path:
    with warnings.catch_warnings():
        # zarr-python warns of types, and of consolidated metadata, in version 3.
        warnings.simplefilter("ignore")
        made.to_zarr(path, zarr_format=version, **settings)
    return path


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", MADE)
def test_datasets_of_xarray_are_opened_as_xarray_does(
    name: str, version: int, consolidated: bool, tmp_path: Path
) -> None:
    pytest.importorskip("zarr", reason="zarr-python is not installed")
    path = written(MADE[name](), tmp_path / "a.zarr", version, consolidated=consolidated)
    for decoders in DECODERS:
        if "chunks" in decoders:
            pytest.importorskip("dask.array", reason="dask is not installed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = by_zarr(path, consolidated=consolidated, **decoders)
        ours = opened(path, **decoders)
        xr.testing.assert_identical(ours, theirs)
        assert {n: v.dtype for n, v in ours.variables.items()} == {
            n: v.dtype for n, v in theirs.variables.items()
        }
        for each in ours.variables:
            known = ours[each].encoding.keys() & theirs[each].encoding.keys()
            assert known >= theirs[each].encoding.keys() - {
                *("compressors", "filters", "shards", "serializer")
            }
            for key in known:
                np.testing.assert_equal(ours[each].encoding[key], theirs[each].encoding[key])
        assert ours.chunks == theirs.chunks


@pytest.mark.parametrize("version", [2, 3])
def test_groups_are_a_tree(version: int, tmp_path: Path) -> None:
    pytest.importorskip("zarr", reason="zarr-python is not installed")
    path = written(plain(), tmp_path / "a.zarr", version)
    written(packed(), path, version, group="in/deep", mode="a")
    xr.testing.assert_identical(opened(path, group="in/deep"), by_zarr(path, group="in/deep"))
    xr.testing.assert_identical(opened(path, group="/"), by_zarr(path))
    theirs = xr.open_groups(path, engine="zarr")
    ours = xr.open_groups(path, engine=IngotBackendEntrypoint)
    assert ours.keys() == theirs.keys() == {"/", "/in", "/in/deep"}
    for name, dataset in theirs.items():
        xr.testing.assert_identical(ours[name], dataset)
    tree = xr.open_datatree(path, engine=IngotBackendEntrypoint)
    xr.testing.assert_identical(tree, xr.open_datatree(path, engine="zarr"))
    with pytest.raises(MemberError, match="absent"):
        opened(path, group="absent")


def test_a_fill_value_that_is_not_stated_masks_nothing(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, fill in (("null", None), ("zero", 0)):
        array = root.create_array(name, shape=3, dtype="i4", fill_value=fill)
        array[:] = [0, 1, 2]
        array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    found = opened(tmp_path / "a.zarr")
    assert found["null"].values.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found["zero"].values, [np.nan, 1, 2])
    xr.testing.assert_identical(found, by_zarr(tmp_path / "a.zarr", consolidated=False))
    # The same in an array whose attributes and shape have been changed.
    for name in ("null", "zero"):
        array = ingot.open(tmp_path / "a.zarr" / name, "r+")
        array.attrs["note"] = 1
        array.resize(4)
        assert array.fill_stated == (name == "zero")
    assert opened(tmp_path / "a.zarr")["null"].values.tolist() == [0, 1, 2, 0]


def test_variables_that_are_dropped_are_not_opened(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    root.array("a", [1, 2], dimension_names=["x"])
    root.array("broken", [1, 2])
    (tmp_path / "a.zarr/broken/zarr.json").write_text("{")
    with pytest.raises(FormatError, match="broken"):
        opened(tmp_path / "a.zarr")
    for names in ("broken", ["broken"]):
        assert list(opened(tmp_path / "a.zarr", drop_variables=names)) == ["a"]


def test_dimensions_without_names_get_some(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    root.array("a", DATA, dimension_names=["x", None, "z"])
    root.array("b", [1, 2])
    found = opened(tmp_path / "a.zarr")
    assert found["a"].dims == ("x", "a_dim_1", "z")
    assert found["b"].dims == ("b_dim_0",)


@pytest.mark.parametrize("names", ["x", ["x"], [1, 2], None])
def test_wrong_names_of_dimensions_are_refused(names: Any, tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr", format="zarr2")
    root.array("a", [[1, 2]], attrs={"_ARRAY_DIMENSIONS": names})
    with pytest.raises(FormatError, match="_ARRAY_DIMENSIONS"):
        opened(tmp_path / "a.zarr")


@pytest.mark.parametrize("claim", ["no base 64!", "AAAA", ["AAAA"]])
def test_wrong_missing_values_are_refused(claim: Any, tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    dtype = "c16" if isinstance(claim, list) else "f8"
    root.array("a", np.zeros(2, dtype), dimension_names=["x"], attrs={"_FillValue": claim})
    with pytest.raises(FormatError, match="_FillValue"):
        opened(tmp_path / "a.zarr")


def test_a_missing_value_that_is_a_number_is_one(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    attrs = {"_FillValue": -1.0}
    root.array("a", np.array([-1.0, 2.0]), dimension_names=["x"], attrs=attrs)
    np.testing.assert_array_equal(opened(tmp_path / "a.zarr")["a"].values, [np.nan, 2])


# Other datasets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.zarr", "a.bcolz", "a.b2nd", "a.blp"])
def test_an_array_by_itself_is_one_variable(name: str, tmp_path: Path) -> None:
    formats = {"a.zarr": "zarr2", "a.bcolz": "bcolz", "a.b2nd": "blsk", "a.blp": "bloscpack"}
    ingot.array(DATA, tmp_path / name, format=formats[name])
    found = opened(tmp_path / name)
    assert list(found) == ["a"]
    assert found["a"].dims == ("dim_0", "dim_1", "dim_2")
    assert found["a"].encoding["chunks"] == ingot.open(tmp_path / name).chunks
    values = (
        found["a"].values if name != "a.zarr" else opened(tmp_path / name, decode_cf=False)["a"]
    )
    np.testing.assert_array_equal(values, DATA)
    assert xr.open_dataarray(tmp_path / name, engine=IngotBackendEntrypoint).shape == SHAPE


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_a_table_is_variables_along_one_dimension(format: str, tmp_path: Path) -> None:
    columns = {
        "n": np.arange(1000),
        "v": np.linspace(0, 1, 1000),
        "s": np.arange(1000).astype("S4"),
        "xyz": np.arange(3000).reshape(1000, 3),
    }
    ingot.table(columns, tmp_path / "t", format=format, chunks=100, attrs={"title": "ours"})
    found = opened(tmp_path / "t")
    assert found.attrs == {"title": "ours"}
    assert dict(found.sizes) == {"row": 1000, "xyz_dim_1": 3}
    for name, values in columns.items():
        np.testing.assert_array_equal(found[name].values, values, strict=True)
    assert found["n"].encoding["preferred_chunks"] == {"row": 100}
    np.testing.assert_array_equal(found.isel(row=slice(990, None, -7))["n"], columns["n"][990::-7])
    assert list(opened(tmp_path / "t", drop_variables=["s", "xyz"])) == ["n", "v"]


def test_nulls_keep_all_other_values_exact(tmp_path: Path) -> None:
    large = 2**63 - 1
    columns = {
        "small": np.ma.array([1, 2, 3], "i4", mask=[0, 1, 0]),
        "large": [large, None, 3],
        "real": [1.5, None, 2.5],
        "flag": [True, None, False],
        "text": ["a", None, "c"],
    }
    table = ingot.table(columns, tmp_path / "t.bcolz")
    assert table["small"].dtype == "i4"
    found = opened(tmp_path / "t.bcolz")
    np.testing.assert_array_equal(found["small"].values, [1, np.nan, 3])
    assert found["small"].dtype == "f8"
    assert found["large"].values.tolist() == [large, None, 3]
    np.testing.assert_array_equal(found["real"].values, [1.5, np.nan, 2.5])
    assert found["flag"].values.tolist() == [True, None, False]
    assert found["text"].values.tolist() == ["a", None, "c"]
    assert found["text"][2].item() == "c"
    for name in columns:
        assert found[name].isnull().values.tolist() == [False, True, False]
        assert found[name][[0, 2]].notnull().all()


def test_a_plain_folder_is_a_tree(tmp_path: Path) -> None:
    ingot.array(DATA, tmp_path / "a.b2nd", format="blsk")
    ingot.table({"x": [1, 2, 3]}, tmp_path / "old/prices.bcolz")
    (tmp_path / "note.txt").write_text("no dataset")
    found = opened(tmp_path)
    assert list(found) == ["a.b2nd"]
    assert opened(tmp_path, group="old/prices.bcolz")["x"].values.tolist() == [1, 2, 3]
    groups = xr.open_groups(tmp_path, engine=IngotBackendEntrypoint)
    assert groups.keys() == {"/", "/old", "/old/prices.bcolz"}
    assert groups["/old/prices.bcolz"]["x"].values.tolist() == [1, 2, 3]


def test_the_content_decides_what_can_be_opened(tmp_path: Path) -> None:
    guess = IngotBackendEntrypoint().guess_can_open
    ingot.array([1, 2], tmp_path / "a.zarr")
    ingot.group(tmp_path / "g.anything", format="zarr2")
    ingot.table({"a": [1]}, tmp_path / "t.bcolz")
    ingot.array([1, 2], tmp_path / "a.b2nd", format="blsk")
    for name in ("a.zarr", "g.anything", "t.bcolz", "a.b2nd"):
        assert guess(tmp_path / name)
        assert guess(str(tmp_path / name))
    (tmp_path / "empty.zarr").mkdir()
    (tmp_path / "text.zarr").write_text("no dataset")
    (tmp_path / "a.nc").write_bytes(b"CDF\x01" + bytes(28))
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(28))
    for name in ("empty.zarr", "text.zarr", "a.nc", "a.zip", "absent", "a.nc/below"):
        assert not guess(tmp_path / name)
    for other in ("https://localhost/a.zarr", b"CDF\x01", None, 7):
        assert not guess(other)


def test_a_missing_path_and_a_member_of_no_group(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="absent"):
        opened(tmp_path / "absent")
    ingot.array([1, 2], tmp_path / "a.zarr")
    with pytest.raises(MemberError, match="no group"):
        opened(tmp_path / "a.zarr", group="b")


# Selections ---------------------------------------------------------------------------------------


def test_an_element_reads_one_chunk() -> None:
    store = CountingStore()
    root = ingot.group(store)
    root.array("a", np.arange(10_000), chunks=100, codec="none", dimension_names=["x"])
    found = opened(store)
    store.reset()
    assert found["a"][4321].item() == 4321
    assert store.extents < 10
    one = store.extents
    store.reset()
    assert found["a"].isel(x=xr.DataArray([5, 9995], dims="p")).values.tolist() == [5, 9995]
    assert store.extents <= 2 * one + 2
    store.reset()
    assert found["a"].size == 10_000
    assert store.extents == 0


def test_points_read_only_their_chunks() -> None:
    store = CountingStore()
    data = np.arange(10_000).reshape(100, 100)
    ingot.array(data, store, chunks=(10, 10), codec="none", dimension_names=["y", "x"])
    found = opened(store, decode_cf=False)["array"]
    diagonal = xr.DataArray(np.arange(5, 100, 10), dims="p")
    store.reset()
    np.testing.assert_array_equal(found.isel(x=diagonal, y=diagonal), data[5::10, 5::10].diagonal())
    # Ten chunks lie on the diagonal, of a hundred.
    assert store.extents < 40


def an_index(length: int) -> Any:
    numbers = st.integers(-length, length - 1)
    arrays = st.lists(numbers, max_size=5).map(lambda each: np.array(each, int))
    return st.one_of(numbers, st.slices(length), arrays)


@settings(deadline=None, max_examples=300)
@given(key=st.tuples(*map(an_index, SHAPE)), then=st.none() | st.slices(SHAPE[0]))
def test_outer_selections_are_those_of_numpy(key: Any, then: Any) -> None:
    array = ingot.array(DATA, chunks=(3, 2, 4))
    ours, theirs = variable(array), xr.Variable(tuple("abc"), DATA)
    found, expected = ours[key], theirs[key]
    if then is not None and found.ndim:
        found, expected = found[then], expected[then]
    np.testing.assert_array_equal(found.values, expected.values, strict=True)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_points_are_those_of_numpy(data: Any) -> None:
    axes = data.draw(st.sets(st.sampled_from("abc"), min_size=1), "axes of points")
    shape = data.draw(hnp.array_shapes(max_dims=2, max_side=4), "shape of points")
    key: dict[str, Any] = {}
    for axis, length in zip("abc", SHAPE, strict=True):
        if axis in axes:
            numbers = hnp.arrays(int, shape, elements=st.integers(-length, length - 1))
            key[axis] = xr.Variable(tuple("pq")[: len(shape)], data.draw(numbers))
        else:
            key[axis] = data.draw(an_index(length))
    array = ingot.array(DATA, chunks=(3, 2, 4))
    found, expected = variable(array).isel(key), xr.Variable(tuple("abc"), DATA).isel(key)
    assert found.dims == expected.dims
    np.testing.assert_array_equal(found.values, expected.values, strict=True)


def variable(array: Any) -> Any:
    wrapped = LazyItems(array) if isinstance(array, ingot.Ragged) else LazyArray(array)
    return xr.Variable(tuple("abc")[: len(array.shape)], indexing.LazilyIndexedArray(wrapped))


@settings(deadline=None, max_examples=100)
@given(key=an_index(9), points=hnp.arrays(int, (2, 3), elements=st.integers(-9, 8)))
def test_items_are_selected_as_objects(key: Any, points: Any) -> None:
    words = np.array(["", "a", None, "bb", "ccc", "ä", "x" * 300, None, "z"], object)
    ours = variable(ingot.ragged(list(words)))
    assert ours[key].values.tolist() == np.asarray(words[key], object).tolist()
    where = {"a": xr.Variable(("p", "q"), points)}
    assert ours.isel(where).values.tolist() == words[points].tolist()


def test_indices_out_of_range_are_refused() -> None:
    ours = LazyArray(ingot.array(np.arange(7)))
    for number in (7, -8):
        keys = (
            indexing.BasicIndexer((number,)),
            indexing.OuterIndexer((np.array([0, number]),)),
            indexing.VectorizedIndexer((np.array([[0, number]]),)),
        )
        for key in keys:
            with pytest.raises(IndexError):
                _ = ours[key]


# Changes and processes ----------------------------------------------------------------------------


def test_what_is_appended_is_not_seen_and_what_is_lost_is_an_error() -> None:
    array = ingot.array(np.arange(10), chunks=4)
    ours = variable(array)
    array.append([10, 11])
    assert ours.values.tolist() == list(range(10))
    assert ours[-1].item() == 9
    assert ours[[-1, 0]].values.tolist() == [9, 0]
    array.resize(9)
    with pytest.raises(LockedError, match="changed"):
        _ = ours.values
    assert ours[:9].values.tolist() == list(range(9))


def test_nulls_that_come_later_are_an_error() -> None:
    table = ingot.table({"a": [1, 2, 3]})
    ours = variable(table["a"])
    table["a"][1] = None
    assert ours[::2].values.tolist() == [1, 3]
    with pytest.raises(LockedError, match="nulls"):
        _ = ours.values


def test_items_that_are_lost_are_an_error() -> None:
    items = ingot.ragged(["a", "b", "c"])
    ours = variable(items)
    items.append(["d"])
    assert ours.values.tolist() == ["a", "b", "c"]
    items.resize(1)
    with pytest.raises(LockedError, match="changed"):
        _ = ours.values


def test_datasets_are_pickled_by_their_paths(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    root.array("deep/a", np.arange(100_000), dimension_names=["x"])
    ingot.table({"n": np.arange(1000), "s": ["a"] * 1000}, tmp_path / "t.bcolz")
    for found in (opened(tmp_path / "a.zarr", group="deep"), opened(tmp_path / "t.bcolz")):
        data = pickle.dumps(found)
        assert len(data) < 20_000
        xr.testing.assert_identical(pickle.loads(data), found)


PROGRAM = """
import sys
import threading
import xarray as xr
from ingot.interop.xarray import IngotBackendEntrypoint

if __name__ == "__main__":
    found = xr.open_dataset(sys.argv[1], engine=IngotBackendEntrypoint, chunks={})
    assert found["a"].chunks == ((100,) * 10,)
    print(int(found["a"].sum().compute(scheduler="processes", num_workers=2)))
"""


def test_processes_of_dask_read_by_themselves(tmp_path: Path) -> None:
    pytest.importorskip("dask.array", reason="dask is not installed")
    root = ingot.group(tmp_path / "a.zarr")
    root.array("a", np.arange(1000), chunks=100, dimension_names=["x"])
    (tmp_path / "program.py").write_text(PROGRAM)
    source = str(Path(ingot.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "a.zarr")],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "499500\n", done.stderr


def test_values_are_awaited_without_holding_up_the_event_loop(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    root.array("a", np.arange(12).reshape(3, 4), dimension_names=["x", "y"])
    readers = []

    async def load() -> Any:
        found = opened(tmp_path / "a.zarr")["a"][1:, [0, 2]]
        return (await found.load_async()).values

    def read(lazy: LazyArray, key: Any) -> Any:
        readers.append(threading.current_thread())
        return LazyArray._outer(lazy, key.tuple)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LazyArray, "__getitem__", read)
        assert asyncio.run(load()).tolist() == [[4, 6], [8, 10]]
    assert readers
    assert threading.main_thread() not in readers


def test_opening_writes_nothing(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "a.zarr")
    root.array("a", [1, 2], dimension_names=["x"])
    before = {each: each.stat().st_mtime_ns for each in (tmp_path / "a.zarr").rglob("*")}
    assert opened(tmp_path / "a.zarr")["a"].values.tolist() == [1, 2]
    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "a.zarr").rglob("*")} == before
