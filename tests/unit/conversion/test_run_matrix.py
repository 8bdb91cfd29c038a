"""Every registered format to every other: arrays, tables, items and groups, of many types."""

import json

import numpy as np
import pytest

import ingot
from ingot.errors import UnsupportedError
from ingot.formats.registry import FORMATS

ROWS = 300

ARRAYS = {
    "i1": np.arange(-128, 127, dtype="i1"),
    "<u2": np.arange(2000, dtype="<u2").reshape(50, 40),
    ">i4": np.arange(-600, 600, dtype=">i4").reshape(10, 12, 10),
    "<f4": np.linspace(-1, 1, 300, dtype="<f4"),
    ">f8": np.array([0.0, -0.0, np.nan, np.inf, 5e-324], ">f8"),
    "<c16": np.exp(1j * np.arange(70)).astype("<c16"),
    "?": np.arange(77) % 3 == 0,
    "S5": np.array([b"", b"abc", b"abcde"] * 9, "S5"),
    "<U7": np.array(["", "äöü", "abcdefg"] * 9, "<U7"),
    "<M8[ms]": np.array(["NaT", "2020-02-29", "1969-12-31T23:59:59.999"], "<M8[ms]"),
    "<m8[s]": np.array([5, -7, 2**40], "<m8[s]"),
    "structure": np.array([(1, 2.5), (-3, np.inf)], [("a", "<i2"), ("b", "<f8")]),
    "no axes": np.array(3.5),
    "no items": np.zeros((0, 4), "<i2"),
}
CHUNKS = {1: (13,), 2: (7, 9), 3: (3, 5, 4), 0: ()}


def formats(kind):
    return [name for name, holds in ingot.formats().items() if kind in holds]


def same(found, expected):
    found = np.asarray(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def stored(values, path, format):
    """Return an array in a format, cut as it can be; None where the format cannot hold it."""
    for chunks in (CHUNKS[values.ndim], "auto"):
        try:
            return ingot.array(values, path, format=format, chunks=chunks, attrs={"n": 1})
        except (UnsupportedError, ValueError):
            continue
    return None


@pytest.mark.parametrize("source", formats("array"))
@pytest.mark.parametrize("target", formats("array"))
def test_arrays(kernel, tmp_path, source, target):
    converted = 0
    for number, (name, values) in enumerate(ARRAYS.items()):
        given = stored(values, tmp_path / f"{number}", source)
        if given is None:
            continue
        place = tmp_path / f"{number}-to"
        if stored(values, None, target) is None:
            with pytest.raises(UnsupportedError, match="cannot be converted"):
                ingot.convert(given, place, format=target)
            assert not place.exists(), name
            continue
        made = ingot.convert(given, place, format=target, verify=True)
        assert made.format == target
        assert dict(made.attrs) == {"n": 1}
        same(made[...], values)
        same(ingot.open(place)[...], values)
        converted += 1
    assert converted >= 10


@pytest.mark.parametrize("source", formats("array"))
@pytest.mark.parametrize("target", formats("array"))
def test_attributes_keep_their_order(tmp_path, source, target):
    attrs = {"z": 1, "a": {"y": [{"d": 1, "c": 2}], "b": "text"}, "m": None}
    given = ingot.array(np.arange(5), tmp_path / "a", format=source, attrs=attrs)
    made = ingot.convert(given, tmp_path / "b", format=target)
    made.attrs["k"] = 3
    found = dict(ingot.open(tmp_path / "b").attrs)
    assert json.dumps(found) == json.dumps({**attrs, "k": 3})
    made.append([6])
    assert json.dumps(dict(ingot.open(tmp_path / "b").attrs)) == json.dumps(found)


COLUMNS = {
    "i": np.arange(ROWS, dtype="<i4"),
    "text": np.array([f"row {n}" for n in range(ROWS)]),
    "inner": {
        "f": np.linspace(0, 1, ROWS, dtype="<f8"),
        "pair": np.arange(2 * ROWS, dtype="<i2").reshape(ROWS, 2),
    },
    "flag": np.arange(ROWS) % 2 == 0,
}
LEAVES = {
    "i": COLUMNS["i"],
    "text": COLUMNS["text"],
    "inner.f": COLUMNS["inner"]["f"],
    "inner.pair": COLUMNS["inner"]["pair"],
    "flag": COLUMNS["flag"],
}


@pytest.mark.parametrize("source", formats("table"))
@pytest.mark.parametrize("target", formats("table"))
def test_tables(kernel, tmp_path, source, target):
    given = ingot.table(COLUMNS, tmp_path / "a", format=source, chunks=37, attrs={"z": 1, "a": 2})
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    assert (made.format, made.names, list(made.attrs.items())) == (
        target,
        tuple(COLUMNS),
        [("z", 1), ("a", 2)],
    )
    for name, values in LEAVES.items():
        same(made[name][...], values)
        assert made[name].chunks[0] == 37


@pytest.mark.parametrize("source", formats("table"))
@pytest.mark.parametrize("target", formats("table"))
def test_types_of_data_frames_are_carried(tmp_path, source, target):
    pa = pytest.importorskip("pyarrow")
    rows = pa.table(
        {
            "number": pa.array([1, None, 3] * 30),
            "text": pa.array(["a", None, "äöü"] * 30),
            "flag": pa.array([True, None, False] * 30),
            "list": pa.array([[1, 2], None, []] * 30),
            "category": pa.array(["x", "y", None] * 30).dictionary_encode(),
            "time": pa.array([0, None, 5] * 30, pa.timestamp("us", "Europe/Berlin")),
        }
    )
    given = ingot.table(rows, tmp_path / "a", format=source, chunks=20)
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    assert made.conversion.changes == ()
    found = made.to_arrow()
    assert found.schema == given.to_arrow().schema
    assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("source", formats("table"))
@pytest.mark.parametrize("target", formats("table"))
def test_indexes_of_pandas_are_carried(tmp_path, source, target):
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2020-03-28", periods=3, tz="Europe/Berlin", name="day")
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b", "a"], ordered=True)}, index=index)
    given = ingot.table(frame, tmp_path / "a", format=source)
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    pd.testing.assert_frame_equal(made.to_pandas(), given.to_pandas())
    assert made.to_pandas().index.name == "day"


@pytest.mark.parametrize("source", formats("table"))
@pytest.mark.parametrize("target", [n for n in formats("group") if n not in formats("table")])
def test_tables_become_groups(tmp_path, source, target):
    given = ingot.table(COLUMNS, tmp_path / "a", format=source, chunks=37, attrs={"z": 1})
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    assert dict(made.attrs) == {"z": 1}
    assert made.conversion.changes == ("the table becomes a group of its columns",)
    for name, values in LEAVES.items():
        same(made[name.replace(".", "/")][...], values)


def test_nulls_and_types_of_columns_in_a_group_are_named(tmp_path):
    pa = pytest.importorskip("pyarrow")
    rows = pa.table({"n": pa.array([1, None]), "c": pa.array(["x", "y"]).dictionary_encode()})
    made = ingot.convert(ingot.table(rows, tmp_path / "a.bcolz"), tmp_path / "b.zarr")
    assert made.conversion.changes == (
        "the table becomes a group of its columns",
        "n: nulls are where the array 'n.valid' is false",
        "c: its type is in the attribute 'x_columns'",
    )
    assert made["n.valid"][:].tolist() == [True, False]
    assert made.attrs["x_columns"]["c"]["words"] == ["x", "y"]


@pytest.mark.parametrize("source", formats("group"))
@pytest.mark.parametrize("target", formats("group"))
def test_groups(kernel, tmp_path, source, target):
    given = ingot.group(tmp_path / "a", format=source, attrs={"title": "ours", "by": "us"})
    members = {"x": ARRAYS["<u2"], "y/z": ARRAYS["<f4"], "y/k/l": ARRAYS["?"]}
    for name, values in members.items():
        given.array(name, values, chunks=CHUNKS[values.ndim], attrs={"name": name})
    given.group("empty", attrs={"why": None})
    given.consolidate()
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    assert list(made.attrs.items()) == [("title", "ours"), ("by", "us")]
    assert dict(made["empty"].attrs) == {"why": None}
    assert made.consolidated
    for name, values in members.items():
        same(made[name][...], values)
        assert dict(made[name].attrs) == {"name": name}


def sequence_formats():
    """Return the formats that hold items on their own."""
    names = []
    for name in formats("ragged"):
        if hasattr(FORMATS[name], "create_ragged"):
            names.append(name)
    return names


@pytest.mark.parametrize("source", sequence_formats())
@pytest.mark.parametrize("target", sequence_formats())
@pytest.mark.parametrize(
    ("kind", "items"),
    [
        ("utf8", ["", "äöü", None, "x" * 1000]),
        ("bytes", [b"\0", None, b"", b"y" * 70]),
        ("json", [{"a": [1, None]}, None, "text"]),
        ("<f4", [[1.0, 2.0], [], None, [3.0]]),
    ],
)
def test_items(kernel, tmp_path, source, target, kind, items):
    given = ingot.ragged(items * 50, tmp_path / "a", kind=kind, format=source, attrs={"n": 1})
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    assert dict(made.attrs) == {"n": 1}
    found = [each.tolist() if isinstance(each, np.ndarray) else each for each in made]
    assert found == items * 50


def test_columns_of_items(kernel, tmp_path):
    words = [None if n % 7 == 0 else "w" * (n % 11) for n in range(ROWS)]
    columns = {"n": COLUMNS["i"], "word": words, "rows": [[n, n + 1][: n % 3] for n in range(ROWS)]}
    given = ingot.table(columns, tmp_path / "a.bcolz", chunks=37)
    made = ingot.convert(given, tmp_path / "b.bcolz", chunks=50, verify=True)
    assert list(made["word"]) == words
    assert [each.tolist() for each in made["rows"]] == columns["rows"]
    same(made["n"][...], COLUMNS["i"])
