"""Files that are exported are read by the programs they are for, and come back the same."""

import csv
import json
import os

import numpy as np
import pytest

import ingot
from ingot.errors import ExistsError, FormatError, UnsupportedError
from ingot.interop.files import SUFFIXES, export_file, import_file

VALUES = np.random.default_rng(7).normal(size=(50, 4))
COLUMNS = {
    "day": np.arange(100) + np.datetime64("2026-01-01"),
    "price": np.arange(100) / 8,
    "count": np.arange(100, dtype="i4"),
    "ok": np.arange(100) % 3 == 0,
    "name": np.array(["ape", 'bee, "quoted"\n', "é"] * 33 + ["x"]),
}


@pytest.fixture
def array():
    return ingot.array(VALUES, chunks=(7, 3))


@pytest.fixture
def table():
    return ingot.table(COLUMNS)


def test_numpy_reads_npy(array, table, tmp_path):
    export_file(array, tmp_path / "a.npy")
    assert np.array_equal(np.load(tmp_path / "a.npy"), VALUES)
    export_file(table, tmp_path / "t.npy")
    rows = np.load(tmp_path / "t.npy")
    assert rows["price"][3] == 0.375
    assert rows.dtype["day"] == "M8[D]"
    export_file(ingot.array(np.float32(7)), tmp_path / "b.npy")
    assert np.load(tmp_path / "b.npy") == 7
    export_file(ingot.create(shape=(0, 3), dtype="i2"), tmp_path / "c.npy")
    assert np.load(tmp_path / "c.npy").shape == (0, 3)


def test_numpy_reads_npz(array, table, tmp_path):
    export_file(array, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert np.array_equal(found["value"], VALUES)
    export_file(table, tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as found:
        for name, values in COLUMNS.items():
            assert np.array_equal(found[name], values)
    root = ingot.group()
    root.array("a", VALUES)
    root.array("b", [1, 2])
    export_file(root, tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as found:
        assert found["b"].tolist() == [1, 2]


def test_python_reads_csv(array, table, tmp_path):
    export_file(table, tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == list(COLUMNS)
    assert rows[3] == ["2026-01-04", "0.375", "3", "true", "ape"]
    assert rows[1][4] == 'bee, "quoted"\n'
    export_file(array, tmp_path / "a.csv")
    assert np.array_equal(np.loadtxt(tmp_path / "a.csv", delimiter=","), VALUES)


def test_python_reads_json_lines(array, table, tmp_path):
    export_file(table, tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert rows[3] == {"day": "2026-01-04", "price": 0.375, "count": 3, "ok": True, "name": "ape"}
    export_file(array, tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == VALUES.tolist()
    export_file(ingot.ragged(["ape", None, "b\nb"]), tmp_path / "r.jsonl")
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ["ape", None, "b\nb"]


def test_pyarrow_reads_parquet_and_arrow(table, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    export_file(table, tmp_path / "t.parquet")
    export_file(table, tmp_path / "t.arrow")
    with pyarrow.OSFile(str(tmp_path / "t.arrow")) as file:
        stored = pyarrow.ipc.open_file(file).read_all()
    for found in (parquet.read_table(tmp_path / "t.parquet"), stored):
        assert found.column_names == list(COLUMNS)
        assert found["price"].to_pylist() == COLUMNS["price"].tolist()
        assert found["name"].to_pylist() == COLUMNS["name"].tolist()
        assert found["day"].to_pylist() == COLUMNS["day"].tolist()
    export_file(ingot.ragged(["ape", None]), tmp_path / "r.parquet")
    found = parquet.read_table(tmp_path / "r.parquet")
    assert found["value"].to_pylist() == ["ape", None]


def needed(suffix):
    if suffix in (".csv", ".parquet", ".arrow", ".jsonl"):
        pytest.importorskip("pyarrow")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_comes_back(table, tmp_path, suffix):
    needed(suffix)
    export_file(table, tmp_path / f"t{suffix}")
    back = import_file(tmp_path / f"t{suffix}", tmp_path / "t.bcolz")
    assert isinstance(back, ingot.Table)
    assert list(back.names) == list(COLUMNS)
    for name, values in COLUMNS.items():
        if name == "day" and suffix == ".jsonl":
            continue  # JSON has no dates.
        assert list(back[name][:]) == list(values), name


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".jsonl"])
def test_an_array_comes_back(array, tmp_path, suffix):
    export_file(array, tmp_path / f"a{suffix}")
    layout = {"chunks": (10, 2), "codec": "zstd:3"}
    back = import_file(tmp_path / f"a{suffix}", tmp_path / "a.zarr", **layout)
    assert back.chunks == (10, 2)
    assert np.array_equal(back[...], VALUES)


def test_nulls_and_nested_columns(tmp_path):
    pytest.importorskip("pyarrow")
    prices = np.ma.array([1.5, 2.5, 3.5], mask=[False, True, False])
    nested = ingot.table({"p": prices, "n": {"x": [1, 2, 3]}})
    export_file(nested, tmp_path / "t.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert lines[:2] == [{"p": 1.5, "n.x": 1}, {"p": None, "n.x": 2}]
    export_file(nested, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines() == ["p,n.x", "1.5,1", ",2", "3.5,3"]
    with pytest.raises(UnsupportedError, match="no nulls"):
        export_file(nested, tmp_path / "t.npz")
    back = import_file(tmp_path / "t.csv", tmp_path / "t.bcolz")
    assert back["p"][:].tolist() == [1.5, None, 3.5]


def test_several_arrays_become_a_table_or_a_group(tmp_path):
    np.savez(tmp_path / "t.npz", a=np.arange(3), **{"n.x": np.zeros(3)})
    assert import_file(tmp_path / "t.npz", tmp_path / "t.bcolz")["n.x"].shape == (3,)
    np.savez(tmp_path / "g.npz", a=np.arange(3), b=np.zeros((2, 2)))
    group = import_file(tmp_path / "g.npz", tmp_path / "g.zarr")
    assert sorted(group) == ["a", "b"]
    (tmp_path / "r.jsonl").write_text('"ape"\nnull\n')
    assert list(import_file(tmp_path / "r.jsonl", tmp_path / "r.blv")) == ["ape", None]


def test_nothing_is_replaced_unless_that_is_wanted(array, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(b"precious")
    with pytest.raises(ExistsError, match=r"a\.npy: it exists already; overwrite=True"):
        export_file(array, path)
    assert path.read_bytes() == b"precious"
    export_file(array, path, overwrite=True)
    assert np.load(path).shape == (50, 4)
    with pytest.raises(UnsupportedError, match="the suffix of NumPy"):
        import_file(path, path)
    import_file(path, tmp_path / "a.zarr")
    with pytest.raises(ExistsError):
        import_file(path, tmp_path / "a.zarr")


def test_a_failed_export_leaves_nothing(tmp_path):
    with pytest.raises(UnsupportedError, match="no items of variable length"):
        export_file(ingot.array(["a", "bb"], dtype=str), tmp_path / "a.npy")
    with pytest.raises(UnsupportedError, match="this is a group"):
        export_file(ingot.group(), tmp_path / "a.parquet")
    with pytest.raises(UnsupportedError, match=r"the suffix is none of \.npy"):
        export_file(ingot.array([1]), tmp_path / "a.txt")
    for make in (lambda: ingot.create(shape=(2, 2, 2), dtype="i4"), ingot.group):
        with pytest.raises(UnsupportedError):
            export_file(make(), tmp_path / "a.csv")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("data", [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04rest", b"\x00" * 40])
def test_damaged_files_are_errors_that_name_them(tmp_path, suffix, data):
    needed(suffix)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    if (suffix == ".csv" and data) or (suffix == ".jsonl" and not data):
        return  # Any bytes are a line of names for CSV, and no bytes are no lines of JSON.
    with pytest.raises(ingot.errors.IngotError, match=rf"a\{suffix}"):
        import_file(path, tmp_path / "made")


def test_pickles_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([print], object), allow_pickle=True)
    with pytest.raises(FormatError, match="cannot be read"):
        import_file(tmp_path / "a.npy", tmp_path / "made")


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a\.npy"):
        import_file(tmp_path / "a.npy", tmp_path / "made")
    (tmp_path / "b.npy").mkdir()
    with pytest.raises(FormatError, match="it is no file"):
        import_file(tmp_path / "b.npy", tmp_path / "made")
