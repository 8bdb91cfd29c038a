"""References: zarr-python reads old data where it lies, through fsspec."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import ingot
from ingot.blosc import compress
from ingot.errors import UnsupportedError
from ingot.interop import references
from tests.golden.archive import below, unpacked
from tests.storage import put

fsspec = pytest.importorskip("fsspec")
zarr = pytest.importorskip("zarr")


def read(refs: dict[str, Any]) -> Any:
    """Open references as zarr-python does, with files of this machine."""
    files = fsspec.filesystem("reference", fo=refs, remote_protocol="file")
    return zarr.open(files.get_mapper(""), mode="r", zarr_format=2)


def loaded(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


def early() -> Iterator[tuple[str, dict[str, bytes], Any]]:
    files = unpacked("zarr-early")
    for case in json.loads(files["manifest.json"]):
        if case["expect"] == "equal":
            yield case["id"], below(files, case["store"]), loaded(files[case["expected"]])


def bcolz() -> Iterator[tuple[str, dict[str, bytes], Any]]:
    files = unpacked("bcolz")
    for case in json.loads(files["manifest.json"]):
        folder = case["path"]
        if case["kind"] == "carray" and not folder.startswith("damaged/"):
            expected = json.loads(files[f"{folder}/expected.json"])
            name = f"{folder}/{expected.get('expected', '')}"
            if name in files and name.endswith(".npy"):
                yield case["id"], below(files, f"{folder}/ds"), loaded(files[name])


def bloscpack() -> Iterator[tuple[str, dict[str, bytes], Any]]:
    files = unpacked("bloscpack")
    for case in json.loads(files["manifest.json"]):
        if case.get("must") == "read" and str(case.get("expected")).endswith(".npy"):
            yield case["name"], {"a.blp": files[case["file"]]}, loaded(files[case["expected"]])


@pytest.mark.parametrize("cases", [early, bcolz, bloscpack])
def test_data_of_the_original_libraries_is_read_in_place(cases: Any, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for number, (name, files, expected) in enumerate(cases()):
        put(tmp_path / str(number), files)
        single = len(files) == 1 and "a.blp" in files
        path = tmp_path / str(number) / "a.blp" if single else tmp_path / str(number)
        for inline in (False, True):
            try:
                found = read(references(path, inline=inline))
            except UnsupportedError as error:
                outcomes["inline" if "inline=True" in str(error) else "refused"] += 1
                continue
            except ingot.errors.IngotError:
                continue  # What ingot.open refuses.
            outcomes["read"] += 1
            assert found.dtype == expected.dtype, name
            np.testing.assert_array_equal(found[...], expected, err_msg=name)
            assert found.shape == expected.shape
    assert outcomes["read"] > 20
    assert outcomes["refused"] > 0


def test_tables_and_groups_are_groups(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    rows = {"a": np.arange(60), "b": np.arange(60) * 0.5, "t": np.arange(60).astype("S3")}
    ingot.table(rows, tmp_path / "t.bcolz", chunks=20, attrs={"n": 7})
    refs = references(tmp_path / "t.bcolz")
    assert json.loads(json.dumps(refs)) == refs
    found = read(refs)
    for name, values in rows.items():
        np.testing.assert_array_equal(found[name][...], values)
    assert dict(found.attrs) == {"n": 7}
    assert sorted(references(tmp_path / "t.bcolz", columns=["b"])["refs"]) == [
        *(".zattrs", ".zgroup", "b/.zarray", "b/.zattrs", "b/0", "b/1", "b/2"),
    ]
    files = fsspec.filesystem("reference", fo=refs, remote_protocol="file")
    opened = xarray.open_dataset(
        files.get_mapper(""), engine="zarr", consolidated=False, zarr_format=2
    )
    assert opened["b"].dims == ("row",)
    np.testing.assert_array_equal(opened["b"].values, rows["b"])
    root = ingot.group(tmp_path / "g.zarr", format="zarr2")
    root.array("in/x", np.arange(6).reshape(2, 3), chunks=(2, 2), codec="blosc", order="F")
    np.testing.assert_array_equal(
        read(references(tmp_path / "g.zarr"))["in/x"][...], np.arange(6).reshape(2, 3)
    )


def test_files_may_lie_elsewhere(tmp_path: Path) -> None:
    ingot.array(np.arange(40), tmp_path / "a.blp", chunks=20)
    ingot.array(np.arange(40), tmp_path / "a.bcolz", chunks=20)
    (place, _, _) = references(tmp_path / "a.blp", url="s3://old/a.blp")["refs"]["0"]
    assert place == "s3://old/a.blp"
    (place, start, _) = references(tmp_path / "a.bcolz", url="s3://old/a/")["refs"]["1"]
    assert (place, start) == ("s3://old/a/data/__1.blp", 16)
    (place, _, _) = references(tmp_path / "a.bcolz")["refs"]["0"]
    assert place == str(tmp_path / "a.bcolz/data/__0.blp")


def test_a_short_last_chunk_is_put_into_the_references(tmp_path: Path) -> None:
    values = np.arange(70).reshape(35, 2) * 1.5
    ingot.array(values, tmp_path / "a.bcolz", chunks=20)
    with pytest.raises(UnsupportedError, match="holds 240 bytes, a chunk of Zarr 320; inline=True"):
        references(tmp_path / "a.bcolz")
    refs = references(tmp_path / "a.bcolz", inline=True)
    assert refs["refs"]["1.0"].startswith("base64:")
    np.testing.assert_array_equal(read(refs)[...], values)


def test_chunks_that_are_not_stored_are_filled(tmp_path: Path) -> None:
    array = ingot.create(
        tmp_path / "a", shape=30, dtype="i4", chunks=10, fill=5, format="zarr2", codec="blosc"
    )
    array[10:20] = 1
    refs = references(tmp_path / "a")
    assert "0" not in refs["refs"]
    np.testing.assert_array_equal(read(refs)[...], array[...])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"codec": "zlib:1"}, "codec is zlib, not Blosc"),
        ({"codec": "blosc:snappy"}, "snappy is not read by numcodecs"),
        ({"codec": [numcodecs.Delta("i8"), "blosc"]}, "codec is delta, blosc, not Blosc alone"),
        ({"chunks": 5, "shards": 20, "format": "zarr3"}, "lie in shards"),
    ],
)
def test_what_zarr_cannot_read_is_refused(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    given = {"format": "zarr2", **settings}
    ingot.array(np.arange(40), tmp_path / "a", **given)
    with pytest.raises(UnsupportedError, match=reason):
        references(tmp_path / "a")


def test_every_reason_is_given(tmp_path: Path) -> None:
    rows = {"a": [1, None], "b": ["x", "longer"], "c": [1.5, 2.5]}
    ingot.table(rows, tmp_path / "t.bcolz", chunks=2)
    with pytest.raises(UnsupportedError, match=r"a: it has nulls.*; b: its items are of variable"):
        references(tmp_path / "t.bcolz")
    assert list(read(references(tmp_path / "t.bcolz", columns=["c"]))["c"]) == [1.5, 2.5]
    with pytest.raises(UnsupportedError, match="variable length"):
        references(ingot.ragged(["a", "bb"], tmp_path / "v.varlen").path)


def test_headers_that_lie_are_refused(tmp_path: Path) -> None:
    array = ingot.array(np.arange(40), tmp_path / "a", chunks=20, format="zarr2", codec="blosc")
    file, whole = tmp_path / "a" / "1", compress(np.arange(20, dtype="<i8"), typesize=8)
    assert np.array_equal(read(references(tmp_path / "a"))[...], array[...])
    lies = {
        "cbytes": whole[:12] + (1 << 30).to_bytes(4, "little") + whole[16:],
        "cut": whole[:9],
        "version": b"\x7f" + whole[1:],
        "nbytes": whole[:4] + (1 << 31).to_bytes(4, "little") + whole[8:],
        "empty": b"",
    }
    for name, data in lies.items():
        file.write_bytes(data)
        with pytest.raises(UnsupportedError, match="chunk 1: "):
            references(tmp_path / "a")
        assert name
    file.write_bytes(compress(np.arange(20, dtype="<i8"), typesize=8, version=2))
    with pytest.raises(UnsupportedError, match="Blosc format"):
        references(tmp_path / "a")
    file.unlink()
    assert read(references(tmp_path / "a"))[20:].tolist() == [0] * 20


def test_addresses_are_refused_with_the_reason() -> None:
    ingot.array([1, 2], "memory://references/x.bcolz")
    with pytest.raises(UnsupportedError, match="references are made where the files are"):
        references("memory://references/x.bcolz")
