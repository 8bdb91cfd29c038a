"""Datasets of xarray are stored by `ds.ingot.to`: one commit for each call."""

import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from tests.seaweed import S3Server

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("dask.array")

from ingot.interop.xarray import IngotBackendEntrypoint  # noqa: E402
from ingot.interop.xarray_writing import write  # noqa: E402


def weather(first: str = "2001-01-01", periods: int = 6) -> Any:
    rng = np.random.default_rng(periods)
    return xr.Dataset(
        {
            "heat": (("time", "x"), rng.normal(size=(periods, 5)), {"units": "K"}),
            "rain": (("time",), rng.integers(0, 9, periods)),
            "place": (("x",), np.array(["a", "bb", "", "dddd", "e"])),
            "code": ((), 7),
            "missing": (("x",), [1.5, np.nan, 2.5, np.nan, 0.0]),
        },
        coords={"time": xr.date_range(first, periods=periods), "x": np.arange(5) * 10},
        attrs={"title": "weather"},
    )


def opened(path: Path) -> Any:
    return xr.open_dataset(path, engine=IngotBackendEntrypoint).load()


def version(path: Path) -> Any:
    return ingot.open(path)._handle.store.version().sequence


@pytest.mark.parametrize("chunked", [False, True], ids=["values", "dask"])
def test_a_dataset_is_stored_by_one_commit(tmp_path: Path, chunked: bool) -> None:
    path, given = tmp_path / "w.zarr", weather()
    stored = given.chunk({"time": 4, "x": 2}) if chunked else given
    stored.ingot.to(path)
    xr.testing.assert_identical(opened(path), given)
    xr.testing.assert_identical(xr.open_zarr(path, consolidated=False).load(), given)
    with pytest.raises(ingot.errors.ExistsError, match='mode="w" replaces it'):
        stored.ingot.to(path)
    other = weather(periods=3)
    (other.chunk() if chunked else other).ingot.to(path, mode="w")
    xr.testing.assert_identical(opened(path), other)
    assert not list(tmp_path.rglob(".g-*"))


@pytest.mark.parametrize("chunked", [False, True], ids=["values", "dask"])
@pytest.mark.parametrize("chunks", [2, 4, 100])
def test_values_are_appended_by_one_commit(tmp_path: Path, chunked: bool, chunks: int) -> None:
    path = tmp_path / "w.zarr"
    first, second = weather(), weather("2001-01-07", 5)
    first.ingot.to(path, encoding={"heat": {"chunks": (chunks, 2)}, "rain": {"chunks": (chunks,)}})
    before = version(path)
    with ingot.open(path, "r+") as root, root.transaction():
        root.attrs["title"] = "weather"
        root["heat"].attrs["units"] = "K"
    single = version(path) - before
    before = version(path)
    (second.chunk({"time": 3}) if chunked else second).ingot.to(path, append_dim="time")
    assert version(path) - before == single
    expected = xr.concat([first, second], dim="time", data_vars="minimal")
    xr.testing.assert_identical(opened(path), expected)


def test_appended_values_are_encoded_as_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "w.zarr"
    encoding = {
        "time": {"units": "hours since 2000-01-01", "dtype": "int32"},
        "heat": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -999},
    }
    weather().ingot.to(path, encoding=encoding)
    more = weather("2001-01-07", 2)
    more["heat"][0, 0] = np.nan
    more.ingot.to(path, append_dim="time")
    assert ingot.open(path)["heat"].dtype == np.int16
    assert ingot.open(path)["heat"][6, 0] == -999
    found = opened(path)
    np.testing.assert_allclose(found["heat"][6:], more["heat"], atol=0.006)
    assert found["time"].values[-1] == np.datetime64("2001-01-08")


@pytest.mark.parametrize("chunked", [False, True], ids=["values", "dask"])
def test_regions_are_overwritten_by_one_commit(tmp_path: Path, chunked: bool) -> None:
    path, given = tmp_path / "w.zarr", weather()
    given.ingot.to(path, encoding={"heat": {"chunks": (4, 2)}})
    part = (given[["heat", "rain"]].isel(time=slice(1, 4)) * 3).drop_vars(["x", "time"])
    region = {"time": slice(1, 4)}
    (part.chunk({"time": 1}) if chunked else part).ingot.to(path, region=region)
    expected = weather()
    expected["heat"][1:4] *= 3
    expected["rain"][1:4] *= 3
    xr.testing.assert_identical(opened(path), expected)


def test_further_variables_are_added(tmp_path: Path) -> None:
    path, given = tmp_path / "w.zarr", weather()
    given[["heat"]].ingot.to(path, mode="a")
    given[["rain"]].chunk({"time": 2}).ingot.to(path, mode="a")
    xr.testing.assert_equal(opened(path), given[["heat", "rain"]])
    with pytest.raises(ValueError, match="existing dimension 'time'"):
        given[["rain"]].isel(time=slice(3)).ingot.to(path, mode="a")


def test_wrong_writes_change_nothing(tmp_path: Path) -> None:
    path, given = tmp_path / "w.zarr", weather()
    with pytest.raises(ingot.errors.NotFoundError):
        given.ingot.to(path, append_dim="time")
    given.ingot.to(path)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (given, {"append_dim": "absent"}, "append_dim is 'absent'"),
        (given[["heat"]], {"append_dim": "time"}, "rain would stay shorter"),
        (given.isel(x=slice(2)), {"append_dim": "time"}, "2 items along 'x'"),
        (given, {"region": {"time": slice(0, 6)}}, "leave it out by drop_vars"),
        (given[["rain"]], {"region": {"time": slice(0, 12, 2)}}, "along 'time'"),
        (given, {"append_dim": "time", "region": {}}, "exclude each other"),
        (given, {"mode": "r"}, "mode is 'r'"),
        (given.assign(new=given.rain), {"append_dim": "time"}, "no variable of the dataset"),
        (given.transpose(), {"append_dim": "time"}, "has the dimensions"),
        (given, {"mode": "w", "encoding": {"heat": {"zip": 1}}}, "unexpected encoding"),
    ]
    for dataset, each, message in wrong:
        with pytest.raises(ingot.errors.ArgumentError, match=message):
            dataset.ingot.to(path, **each)
    with pytest.raises(ingot.errors.UnsupportedError, match="bcolz"):
        given.ingot.to(tmp_path / "w.bcolz")
    xr.testing.assert_identical(opened(path), given)


def test_a_block_that_fails_changes_no_variable(tmp_path: Path) -> None:
    def broken(block: Any) -> Any:
        if block.size and block.dtype == np.float64:
            raise RuntimeError("the worker is gone")
        return block

    path, given = tmp_path / "w.zarr", weather()
    bad = given.chunk({"time": 2})
    bad["heat"] = bad["heat"].copy(data=bad["heat"].data.map_blocks(broken, dtype="f8"))
    with pytest.raises(RuntimeError, match="worker is gone"):
        bad.ingot.to(path)
    assert list(tmp_path.iterdir()) == []
    given.ingot.to(path)
    each: Any
    for each in ({"mode": "w"}, {"append_dim": "time"}):
        with pytest.raises(RuntimeError, match="worker is gone"):
            bad.ingot.to(path, **each)
    xr.testing.assert_identical(opened(path), given)


def test_another_writer_is_never_overwritten_unseen(tmp_path: Path) -> None:
    path, given = tmp_path / "w.zarr", weather()

    def meanwhile(block: Any) -> Any:
        if block.size:
            ingot.open(path, "r+").attrs["title"] = "other"
        return block

    given.ingot.to(path)
    late = given.chunk({"time": 2})
    late["rain"] = late["rain"].copy(data=late["rain"].data.map_blocks(meanwhile, dtype="i8"))
    each: Any
    for each in ({"mode": "w"}, {"append_dim": "time"}):
        with pytest.raises(ingot.errors.LockedError, match="nothing was changed"):
            late.ingot.to(path, **each)
    xr.testing.assert_identical(opened(path), given.assign_attrs(title="other"))


def test_values_are_not_appended_to_a_length_of_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, given, real = tmp_path / "w.zarr", weather(), IngotBackendEntrypoint.open_dataset
    given.ingot.to(path)

    def slow(self: Any, *arguments: Any, **more: Any) -> Any:
        found = real(self, *arguments, **more)
        monkeypatch.undo()
        given.ingot.to(path, append_dim="time")
        return found

    monkeypatch.setattr(IngotBackendEntrypoint, "open_dataset", slow)
    with pytest.raises(ingot.errors.LockedError, match="nothing was changed"):
        given.ingot.to(path, append_dim="time")
    assert opened(path).sizes["time"] == 12


def test_the_accessor_writes_what_it_is_told(tmp_path: Path) -> None:
    assert write.__module__ == "ingot.interop.xarray_writing"
    with pytest.raises(ingot.errors.ArgumentTypeError, match="not a string or None"):
        xr.Dataset({3: ("x", [1])}).ingot.to(tmp_path / "w.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chunked", [False, True], ids=["values", "dask"])
def test_settings_of_a_store_are_options(
    chunked: bool, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    options = ingot.Options(storage=s3_server.storage())
    place, given = f"s3://crashes/{secrets.token_hex(6)}/w.zarr", weather()
    data = given.chunk({"time": 4}) if chunked else given
    data.ingot.to(place, options=options)
    data.ingot.to(place, append_dim="time", options=options)
    given[["x"]].assign(more=("x", given["x"].values)).ingot.to(place, mode="a", options=options)
    found = xr.open_dataset(place, engine=IngotBackendEntrypoint, options=options)
    assert found.sizes["time"] == 2 * given.sizes["time"]
    assert found["more"].values.tolist() == given["x"].values.tolist()
