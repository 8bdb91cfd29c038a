"""The ctable of the bcolz module: against NumPy, and against bcolz where it is installed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compat import bcolz
from ingot.compat.bcolz.ctable import ctable
from ingot.errors import SelectionError


@pytest.fixture(params=["memory", "disk"])
def rootdir(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "table") if request.param == "disk" else None


def rows(count: int) -> Any:
    made = np.empty(count, [("a", "i8"), ("b", "f8"), ("c", "S4"), ("d", "i4", (2,))])
    numbers = np.arange(count)
    made["a"], made["b"] = numbers % 97, numbers / 3
    made["c"] = [f"x{n % 7}" for n in numbers]
    made["d"] = numbers[:, None]
    return made


def test_rows_are_those_of_the_structured_array(rootdir: str | None) -> None:
    data = rows(1000)
    table = ctable(data, chunklen=64, rootdir=rootdir)
    assert table.dtype == data.dtype
    np.testing.assert_array_equal(table[:], data)
    np.testing.assert_array_equal(table[[5, 1, 5]], data[[5, 1, 5]])
    np.testing.assert_array_equal(table[data["a"] > 90], data[data["a"] > 90])
    assert table[17].tolist()[:3] == data[17].tolist()[:3]
    np.testing.assert_array_equal(table["a > 90"], data[data["a"] > 90])
    assert [row.a for row in table.iter(3, 50, 7)] == data["a"][3:50:7].tolist()


@pytest.mark.parametrize("expression", ["a > 90", "(a == 5) | (b < 10)", "c == b'x3'", "a < 0"])
@pytest.mark.parametrize(("limit", "skip"), [(None, 0), (5, 0), (None, 11), (4, 9)])
def test_where_finds_the_rows_of_numpy(
    expression: str, limit: int | None, skip: int, rootdir: str | None
) -> None:
    data = rows(1000)
    masks = {
        "a > 90": data["a"] > 90,
        "(a == 5) | (b < 10)": (data["a"] == 5) | (data["b"] < 10),
        "c == b'x3'": data["c"] == b"x3",
        "a < 0": data["a"] < 0,
    }
    table = ctable(data, chunklen=64, rootdir=rootdir)
    wanted = np.flatnonzero(masks[expression])[skip : None if limit is None else skip + limit]
    names = ["b", "nrow__"]
    found = list(table.where(expression, names, limit=limit, skip=skip))
    assert found == list(zip(data["b"][wanted].tolist(), wanted.tolist(), strict=True))
    assert all(row.nrow__ == row[1] for row in found)
    mask = masks[expression]
    assert list(table.where(mask, names, limit, skip, out_flavor=tuple)) == found
    fetched = table.fetchwhere(expression, names, limit, skip, out_flavor="numpy")
    assert fetched["nrow__"].tolist() == wanted.tolist()
    made = table.fetchwhere(expression, ["a", "c"], limit, skip)
    np.testing.assert_array_equal(made["c"][:], data["c"][wanted])
    blocks = list(table.whereblocks(expression, blen=10, outcols=["a"], limit=limit, skip=skip))
    assert all(len(block) == 10 for block in blocks[:-1])
    assert [n for block in blocks for n in block["a"].tolist()] == data["a"][wanted].tolist()


def test_random_changes_are_those_of_numpy(rootdir: str | None) -> None:
    choose = random.Random(3)
    data = rows(40)[["a", "b"]].copy()
    table = ctable([data["a"], data["b"]], names=["a", "b"], chunklen=8, rootdir=rootdir)
    for step in range(120):
        kind = choose.choice(["rows", "one", "set", "where", "trim", "grow", "column"])
        more = rows(choose.randrange(1, 30))[["a", "b"]].copy()
        if kind == "rows":
            table.append([more["a"], more["b"]])
            data = np.concatenate([data, more])
        elif kind == "one":
            table.append((step, step / 2))
            data = np.append(data, np.array([(step, step / 2)], data.dtype))
        elif kind == "set" and len(data):
            table[3] = data[3] = (step, -1.0)
        elif kind == "where":
            table["a > 20"] = (step, 0.5)
            data[data["a"] > 20] = (step, 0.5)
        elif kind == "trim" and len(data) > 20:
            table.trim(7)
            data = data[:-7]
        elif kind == "grow":
            table.resize(len(data) + 3)
            data = np.concatenate([data, np.zeros(3, data.dtype)])
        elif kind == "column":
            table["b"] = data["b"] * 2
            data["b"] *= 2
        assert len(table) == len(data)
        np.testing.assert_array_equal(table[:], data)
    if rootdir is not None:
        again = ctable(rootdir=rootdir, mode="r")
        np.testing.assert_array_equal(again[:], data)
        np.testing.assert_array_equal(ingot.open(rootdir)["a"][:], data["a"])


def test_rows_become_visible_in_all_columns_at_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    table = ctable([np.arange(10), np.arange(10.0)], names=["a", "b"], rootdir=folder)
    with pytest.raises(ValueError, match="same length"):
        table.append([np.arange(3), np.arange(4.0)])
    with pytest.raises(ValueError, match="cannot convert"):
        table.append([np.arange(3), ["x", "y", "z"]])
    assert [len(bcolz.open(f"{folder}/{name}", "r")) for name in "ab"] == [10, 10]
    assert len(table) == len(table["a"]) == len(table["b"]) == 10
    table["a"].append(1)
    with pytest.raises(ValueError, match="different numbers of new rows: a 1, b 0"):
        table.flush()


def test_columns_wait_without_auto_flush(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    table = ctable([np.arange(3)], names=["a"], rootdir=folder, auto_flush=False)
    table.append([np.arange(2)])
    assert len(ctable(rootdir=folder, mode="r")) == 3
    with table:
        table.append([[9]])
    assert ctable(rootdir=folder, mode="r")["a"][:].tolist() == [0, 1, 2, 0, 1, 9]


def test_columns_come_and_go(rootdir: str | None) -> None:
    table = ctable([np.arange(5)], names=["a"], rootdir=rootdir)
    table.addcol(np.arange(5.0), name="b", pos=0)
    table.addcol(["x", "yy", "z", "", "w"], name="c", cparams=bcolz.cparams(cname="zlib"))
    assert table.names == ["b", "a", "c"]
    assert table["c"].cparams.cname == "zlib"
    table.delcol("a")
    table.delcol(pos=0)
    assert table["c"][:].tolist() == ["x", "yy", "z", "", "w"]
    if rootdir is not None:
        assert ctable(rootdir=rootdir).names == ["c"]
    with pytest.raises(ValueError, match="already exists"):
        table.addcol(np.arange(5), name="c")


def test_new_rows_hold_the_defaults_of_their_columns(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    table = ctable([[1, 2]], names=["a"], rootdir=folder, dflt=7)
    table.resize(4)
    assert table["a"][:].tolist() == [1, 2, 7, 7]
    again = ctable(rootdir=folder)
    again.resize(5)
    assert again["a"][:].tolist() == [1, 2, 7, 7, 7]


def test_large_columns_are_stored_in_parts(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    count = 3_000_000
    given = [bcolz.arange(count), np.ones(count)]
    table = ctable(given, names=["a", "b"], rootdir=folder)
    assert len(table) == count
    np.testing.assert_array_equal(table["a"][:], np.arange(count))
    assert table["b"].sum() == count


def test_columns_win_over_names_of_the_caller_and_of_the_library() -> None:
    a = 1000
    names = ["a", "limit", "skip", "key", "vm", "os"]
    table = ctable([np.arange(4)] * 6, names=names)
    assert [row.a for row in table.where("(a > 1) & (limit > 2) & (vm + key + os + skip > 0)")] == [
        3
    ]
    assert a == 1000


def test_expressions_run_no_code(tmp_path: Path) -> None:
    table = ctable([np.arange(4)], names=["a"])
    target = tmp_path / "touched"
    for text in (
        f"__import__('pathlib').Path({str(target)!r}).touch()",
        f"a.tofile({str(target)!r})",
        "(lambda: a)() > 1",
        "[x for x in a]",
        "a[0] > 1",
        "f'{a}' == ''",
    ):
        with pytest.raises(SelectionError):
            list(table.where(text))
        with pytest.raises(SelectionError):
            bcolz.eval(text, user_dict={"a": table["a"]})
    assert not target.exists()


def test_data_frames_come_and_go(rootdir: str | None) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "n": [1, 2, 3],
            "x": [1.5, np.nan, 2.5],
            "s": ["a", "bb", "ü"],
            "t": pandas.to_datetime(["2020-01-01", "2021-02-03", None]).as_unit("ns"),
        }
    )
    table = ctable.fromdataframe(frame, rootdir=rootdir)
    assert table["s"].dtype == np.dtype("U2")
    assert table["t"].dtype == np.dtype("M8[ns]")
    again = table.todataframe()
    pandas.testing.assert_frame_equal(again, frame, check_dtype=False)
    assert list(table.todataframe(columns=["x"]).columns) == ["x"]


def test_bcolz_reads_our_tables_and_we_read_its(tmp_path: Path) -> None:
    peer = pytest.importorskip("bcolz")
    data = rows(500)
    ours = ctable(data, chunklen=64, rootdir=str(tmp_path / "ours"))
    ours.append(data[:70])
    ours.attrs["unit"] = "EUR"
    wanted = np.concatenate([data, data[:70]])
    read = peer.open(str(tmp_path / "ours"), mode="r")
    np.testing.assert_array_equal(read[:], wanted)
    assert read.attrs["unit"] == "EUR"
    theirs = peer.ctable(data, chunklen=64, rootdir=str(tmp_path / "theirs"))
    theirs.append(data[:70])
    theirs.attrs["unit"] = "EUR"
    table = ctable(rootdir=str(tmp_path / "theirs"))
    np.testing.assert_array_equal(table[:], wanted)
    assert table.attrs.getall() == {"unit": "EUR"}
    table.append(data[:3])
    np.testing.assert_array_equal(
        peer.open(str(tmp_path / "theirs"), mode="r")[:], np.concatenate([wanted, data[:3]])
    )


@pytest.mark.parametrize(
    "show", [repr, str, lambda table: repr(table.cols), lambda table: str(table["b"])]
)
def test_text_is_that_of_bcolz(show: Any) -> None:
    peer = pytest.importorskip("bcolz")
    data = rows(9)[["a", "c"]].copy()
    data["c"] = b"x"
    columns = {"a": np.arange(9), "b": np.arange(9) * 2, "c": data["c"]}
    ours = ctable(list(columns.values()), names=list(columns))
    theirs = peer.ctable(list(columns.values()), names=list(columns))
    assert show(ours).split() == show(theirs).split()


def test_categories_are_the_numbers_that_are_stored(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"city": pandas.Categorical(["b", None, "a"]), "n": [1, 2, 3]}
    ingot.table(columns, tmp_path / "t")
    table = bcolz.open(str(tmp_path / "t"), mode="r")
    assert table["city"][:].tolist() == [1, -1, 0]
    assert [row.n for row in table.where("city == 0")] == [3]
