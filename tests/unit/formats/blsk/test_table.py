"""Tables of blsk: what lies on disk, the example of the proposal, and columns that come and go."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ingot
from ingot.errors import CorruptionError, FormatError, IngotError, UnsafeError, UnsupportedError
from ingot.formats.blsk.table import BlskTableMap
from ingot.stores import MemoryStore
from tests.blsk_reader import read
from tests.storage import Place, content, put
from tests.unit.formats.blsk.test_metadata import ATTRIBUTES, STORAGE


def opened(place: Place, mode: str = "r") -> ingot.Table:
    found = ingot.open(place, mode)
    assert isinstance(found, ingot.Table)
    return found


def columns(rows: int) -> dict[str, Any]:
    return {
        "day": np.arange(rows, dtype="<i4"),
        "price": np.linspace(0, 1, rows, dtype=">f8"),
        "box": np.arange(6 * rows, dtype="<i2").reshape(rows, 3, 2),
        "inner": {
            "name": np.array([f"n{each}" for each in range(rows)], "<U6"),
            "flag": np.arange(rows) % 3 == 0,
        },
    }


def check(path: Path, expected: dict[str, Any]) -> None:
    """Compare a table on disk with columns, by Ingot and by the independent reader."""
    other, table = read(path), opened(path)
    for name, values in expected.items():
        parts = values.items() if isinstance(values, dict) else [(None, values)]
        for inner, column in parts:
            seen = other[name] if inner is None else other[name][inner]
            own = table[name][...] if inner is None else table[f"{name}.{inner}"][...]
            assert seen.dtype == own.dtype
            assert np.array_equal(seen, column)
            assert np.array_equal(own, column)


def test_an_independent_reader_agrees(tmp_path: Path) -> None:
    path, values = tmp_path / "t.blsk", columns(10)
    table = ingot.table(values, path, chunks=4, superchunksize=2)
    assert isinstance(table._handle.value.table, BlskTableMap)
    assert table.format == "blsk"
    check(path, values)
    assert read(path)["price"].dtype == np.dtype(">f8")
    files = [each.relative_to(path).as_posix() for each in path.rglob("*.bin")]
    assert "data/inner/name/__2__.bin" in files
    table.append(columns(3))
    joined = {
        name: (
            {each: np.concatenate([values[name][each], more[each]]) for each in more}
            if isinstance(more, dict)
            else np.concatenate([values[name], more])
        )
        for name, more in columns(3).items()
    }
    check(path, joined)
    assert (path / "meta" / "nrows").read_text() == "13\n"
    table.update("day == 2", {"price": 7.5})
    joined["price"][joined["day"] == 2] = 7.5
    table.delete("(day >= 4) & (day < 9)")
    kept = ~((joined["day"] >= 4) & (joined["day"] < 9))
    left = {
        name: {each: column[kept] for each, column in found.items()}
        if isinstance(found, dict)
        else found[kept]
        for name, found in joined.items()
    }
    check(path, left)
    table.resize(2)
    table.resize(4)
    assert opened(path)["day"][...].tolist() == [0, 1, 0, 0]
    assert opened(path)["box"][3].tolist() == [[0, 0]] * 3


def test_the_example_of_the_proposal_opens_as_it_stands(tmp_path: Path) -> None:
    store = MemoryStore()
    files = {"meta/storage": STORAGE, "meta/attributes": ATTRIBUTES, "meta/nrows": b"300\n"}
    put(store, files)
    table = opened(store, "r+")
    assert (table.names, len(table)) == (("col1", "col2"), 300)
    assert table["col2"].shape == (300, 200)
    assert table["col2"].dtype == np.dtype(">f4")
    assert table.attrs["temperature"] == np.float32(23.5)
    assert table.attrs["ids"].tolist() == [1, 3, 6, 10]
    assert not table["col1"][...].any()
    values = np.arange(60_000, dtype="f4").reshape(300, 200) / 7
    with pytest.warns(UserWarning, match="truncate does not say how many bits"):
        table["col2"][...] = values
    assert np.array_equal(opened(store)["col2"][..., 5], values[:, 5])
    names = sorted(key for key in content(store) if key.startswith("data"))
    # 100 chunks of (30, 20), 10 in a file.
    assert names == sorted(f"data/col2/__{number}__.bin" for number in range(1, 11))
    with pytest.warns(UserWarning, match="truncate"):
        table.append({"col1": np.ones((1, 200)), "col2": np.full((1, 200), 0.1)})
    assert content(store)["meta/nrows"] == b"301\n"
    assert {key: content(store)[key] for key in files if key != "meta/nrows"} == {
        key: data for key, data in files.items() if key != "meta/nrows"
    }
    assert opened(store)["col2"][300, 199] == np.float32(0.1)
    table.attrs["pressure"] = np.float32(1.5)
    assert content(store)["meta/attributes"] == ATTRIBUTES.replace(b"225.5", b"1.5")


def test_columns_come_and_go(tmp_path: Path) -> None:
    path, values = tmp_path / "t", columns(10)
    table = ingot.table(values, path, chunks=4, superchunksize=2, format="blsk")
    table.add_column("extra", np.arange(10.0), position=1)
    table.rename_column("box", "crate")
    table.rename_column("inner", "outer")
    table["outer"].add_column("more", np.arange(10, dtype="u1"))
    table["outer"].rename_column("flag", "mark")
    assert table.names == ("day", "extra", "price", "crate", "outer")
    expected = {
        "day": values["day"],
        "extra": np.arange(10.0),
        "price": values["price"],
        "crate": values["box"],
        "outer": {
            "name": values["inner"]["name"],
            "mark": values["inner"]["flag"],
            "more": np.arange(10, dtype="u1"),
        },
    }
    check(path, expected)
    assert opened(path).names == table.names
    for name in ("day", "crate"):
        table.drop_column(name)
        del expected[name]
    table["outer"].drop_column("mark")
    del expected["outer"]["mark"]
    check(path, expected)
    folders = sorted(each.name for each in (path / "data").iterdir() if any(each.rglob("*.bin")))
    assert folders == ["extra", "outer", "price"]
    with pytest.raises(ValueError, match="already"):
        table.add_column("extra", np.arange(10))
    with pytest.raises(ValueError, match="9 rows"):
        table.add_column("short", np.arange(9))
    check(path, expected)


def test_one_value_for_all_columns_stays_one() -> None:
    store = MemoryStore()
    text = b"""\
dtype: {a: int32, b: int32}  # two
shape: [4]
chunkshape: [2]  # small
superchunksize: 3
fill: 7
"""
    put(store, {"meta/storage": text, "meta/nrows": b"4\n"})
    table = opened(store, "r+")
    table.add_column("c", np.arange(4, dtype="<i4"), chunks=2)
    found = content(store)["meta/storage"]
    assert b"chunkshape: [2]  # small\n" in found
    assert b"shape: [4]\n" in found
    again = opened(store)
    assert again["a"][...].tolist() == [7, 7, 7, 7]
    assert again["c"][...].tolist() == [0, 1, 2, 3]
    assert again["c"].fill == 0


def test_columns_may_have_codecs_of_their_own(tmp_path: Path) -> None:
    given = {"a": np.arange(10.0), "level": np.arange(10)}
    codec = {"a": ["truncate:8", "blosc:zstd:3:bitshuffle"], "level": "blosc:lz4:1:shuffle"}
    table = ingot.table(given, tmp_path / "t", format="blsk", codec=codec)
    for found in (table, opened(tmp_path / "t")):
        assert [stage.name for stage in found["a"].codec] == ["truncate", "blosc"]
        assert found["a"].codec[1].cname == "zstd"
        assert found["level"].codec[0].clevel == 1
        assert found["level"][...].tolist() == list(range(10))


def test_a_table_is_read_by_conditions_and_in_transactions(tmp_path: Path) -> None:
    path, values = tmp_path / "t", columns(1000)
    table = ingot.table(values, path, chunks=64, superchunksize=4, format="blsk")
    reader = opened(path)
    assert reader.read("day", where="(price > 0.5) & (inner.flag)")["day"].tolist() == [
        each for each in range(1000) if each / 999 > 0.5 and each % 3 == 0
    ]
    with table.transaction():
        table["day"][5] = -5
        table.append(columns(10))
        assert len(reader) == 1000
        assert reader["day"][5] == 5
    assert len(reader) == 1010
    assert reader["day"][5] == -5
    try:
        with table.transaction():
            table.resize(3)
            raise KeyError
    except KeyError:
        pass
    assert len(opened(path)) == 1010


@pytest.mark.parametrize("local", [True, False])
def test_a_table_is_read_where_its_chunks_lie_after_a_deletion(tmp_path: Path, local: bool) -> None:
    given = {"a": np.arange(33), "b": np.arange(33) / 2}
    table = ingot.table(given, tmp_path / "t" if local else MemoryStore(), format="blsk", chunks=11)
    assert len(table.read()["a"]) == 33
    table["a"][26:29] = 87
    assert table.delete("(a >= 18) & (a < 38)") == 12
    assert table["a"][...].tolist() == [*range(18), 87, 87, 87]
    assert table.read()["b"].tolist() == [each / 2 for each in (*range(18), 26, 27, 28)]
    table.append({"a": [1], "b": [2]})
    assert table["a"][18:].tolist() == [87, 87, 87, 1]


def test_structures_are_nested_columns(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "<i4"), ("b", [("c", "<f8"), ("d", "S3")])])
    items = np.zeros(5, dtype)
    items["b"]["c"] = np.arange(5)
    ingot.table(items, tmp_path / "t", format="blsk")
    table = opened(tmp_path / "t")
    assert table["b"]["c"][...].tolist() == table["b.c"][...].tolist() == [0, 1, 2, 3, 4]


def test_tables_without_columns_or_rows(tmp_path: Path) -> None:
    table = ingot.table({"a": np.zeros(0, "i4")}, tmp_path / "t", format="blsk")
    table.append({"a": [1, 2]})
    assert opened(tmp_path / "t")["a"][...].tolist() == [1, 2]
    table.drop_column("a")
    assert opened(tmp_path / "t").names == ()


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (b"dtype: {../a: int8}\n", UnsafeError, "leaves the table"),
        (b"dtype: {a/../b: int8}\n", UnsafeError, "leaves the table"),
        (b'dtype: {"a/b": int8, "%a%2Fb": int8}\n', UnsafeError, "have one folder"),
        (b'dtype: {"..": int8}\n', UnsafeError, "column"),
        (b'dtype: {"": int8}\n', UnsafeError, "leaves the table"),
        (b"dtype: {__1__.bin: int8}\n", FormatError, "the name of a super-chunk file"),
        (b"dtype: {a: {}}\n", FormatError, "needs a column"),
        (b"dtype: {a: int8, a: int8}\n", FormatError, "repeated"),
        (b"dtype: {a: int8}\nshape: {b: [3]}\n", FormatError, "a: shape"),
        (b"dtype: {a: int8}\nshape: []\nchunkshape: []\n", FormatError, "needs an axis"),
        (b"dtype: {a: object}\n", IngotError, "a: dtype"),
    ],
)
def test_what_is_refused(text: bytes, error: type[Exception], said: str) -> None:
    store = MemoryStore()
    rest = b"".join(
        line
        for key, line in {
            b"shape:": b"shape: [3]\n",
            b"chunkshape:": b"chunkshape: [3]\n",
            b"superchunksize:": b"superchunksize: 3\n",
        }.items()
        if b"\n" + key not in text
    )
    put(store, {"meta/storage": text + rest, "meta/nrows": b"3\n"})
    with pytest.raises(error, match=said):
        ingot.open(store)


def test_names_that_no_column_can_have(tmp_path: Path) -> None:
    for name in ("../a", ""):
        with pytest.raises((ValueError, IngotError)):
            ingot.table({name: [1]}, tmp_path / "t", format="blsk")
        assert not (tmp_path / "t").exists()
    with pytest.raises(UnsupportedError, match="attributes"):
        ingot.table({"a": [1]}, tmp_path / "t", format="blsk")["a"].attrs["x"] = 1


def test_a_column_in_the_place_of_another_is_noticed() -> None:
    store = MemoryStore()
    given = {"a": np.arange(1, 41), "b": np.arange(2, 42)}
    ingot.table(given, store, format="blsk", chunks=4, superchunksize=5)
    files = content(store)
    put(store, {"data/a/__1__.bin": files["data/a/__2__.bin"]})
    with pytest.raises(CorruptionError, match="this is chunk 5, not 0"):
        opened(store)["a"][0]
    put(store, {"data/a/__1__.bin": files["data/b/__1__.bin"]})
    with pytest.raises(CorruptionError, match="its identity is"):
        opened(store)["a"][0]


def test_dead_bytes_of_all_columns_are_removed(tmp_path: Path) -> None:
    given = {"a": np.arange(1000), "p": {"b": np.arange(1000) / 3}}
    table = ingot.table(given, tmp_path / "t", format="blsk", chunks=100)
    table.update("a < 500", {"a": 7, "p.b": 0.5})
    assert " dead, " in repr(table.info)
    assert not repr(table.info).count("0 bytes dead")
    table.compact()
    assert "0 bytes dead" in repr(table.info)
    found = read(tmp_path / "t")
    assert found["a"].tolist() == [7] * 500 + list(range(500, 1000))
    assert np.array_equal(found["p"]["b"], table["p.b"][...])


def test_columns_keep_their_identities() -> None:
    store = MemoryStore()
    table = ingot.table({"a": [1, 2], "b": [3, 4]}, store, format="blsk")

    def identities() -> dict[str, str]:
        found: dict[str, str] = yaml.safe_load(content(store)["meta/storage"])["x_id"]
        return found

    first = identities()
    assert list(first) == ["a", "b"]
    assert first["a"] != first["b"]
    table.rename_column("a", "z")
    table.append({"z": [5], "b": [6]})
    table.drop_column("b")
    table.add_column("b", [7, 8, 9])
    assert identities()["z"] == first["a"]
    assert identities()["b"] not in first.values()
    assert opened(store).read()["z"].tolist() == [1, 2, 5]


def test_zone_maps_hold_for_the_rows_that_counted(tmp_path: Path) -> None:
    table = ingot.table({"a": np.arange(10)}, tmp_path / "t", format="blsk", chunks=4)

    def zones() -> list[tuple[Any, Any] | None]:
        found = opened(tmp_path / "t")._handle.value.engine("a").zones()
        assert found is not None
        return [
            (found.low[each], found.high[each]) if found.known[each] else None
            for each in range(len(found.known))
        ]

    assert zones() == [(0, 3), (4, 7), (8, 9)]
    table.append({"a": [-5]})
    assert zones() == [(0, 3), (4, 7), (-5, 9)]
    # Another program adds rows without a change of the chunk.
    (tmp_path / "t" / "meta" / "nrows").write_text("12\n")
    assert zones() == [(0, 3), (4, 7), None]
    assert opened(tmp_path / "t").read("a", where="a == 0")["a"].tolist() == [0, 0]


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_conditions_on_chunks_that_are_not_stored(tmp_path: Path, rows: int) -> None:
    values = np.zeros(rows, "<f8")
    values[rows // 2 :: 97] = 5
    table = ingot.table(
        {"a": values, "b": np.arange(rows)}, tmp_path / "t", format="blsk", chunks=8
    )
    for text, mask in [
        ("a == 0", values == 0),
        ("a > 1", values > 1),
        ("(a == 0) & (b > 4)", (values == 0) & (np.arange(rows) > 4)),
        ("(b > 4) & (a < 3)", (values < 3) & (np.arange(rows) > 4)),
    ]:
        for found in (table, opened(tmp_path / "t")):
            assert found.read("b", where=text)["b"].tolist() == np.flatnonzero(mask).tolist()
            assert found.where(text).count() == mask.sum()
    picked = np.array([0, rows - 1, rows // 2])
    assert table["a"][picked].tolist() == values[picked].tolist()
