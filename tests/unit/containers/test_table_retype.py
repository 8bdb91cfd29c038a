"""Columns that get another type: what is kept, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import ColumnError, ReadOnlyError
from ingot.query import search
from ingot.query.parse import parse
from tests.storage import content


@pytest.fixture
def table(tmp_path: Path) -> ingot.Table:
    columns = {
        "name": np.array(["x", "yy", "z"]),
        "n": np.array([1, 2, 3], "i4"),
        "raw": np.array([b"q", b"", b"r"]),
        "day": np.array(["2024-01-01", "NaT", "1800-01-01"], "M8[s]"),
        "rows": [[1], [2, 3], None],
        "inner": {"n": np.array([1, 2, 3], "u1")},
    }
    made = ingot.table(columns, tmp_path / "t", format="bcolz", codec="blosc:zstd:3")
    made["name"].attrs["unit"] = "m"
    return made


@pytest.mark.usefixtures("kernel")
def test_columns_become_wider(table: ingot.Table, tmp_path: Path) -> None:
    names = table.names
    for name, dtype in [("name", "utf8"), ("n", "i8"), ("raw", "bytes"), ("rows", "list<<f8>")]:
        table.retype(name, dtype)
    table.retype("inner.n", "u2")
    table.retype("day", "M8[ms]")
    table.retype("n", np.int64)
    found = ingot.open(tmp_path / "t", "r+")
    assert found.names == names
    assert list(found["name"]) == ["x", "yy", "z"]
    assert dict(found["name"].attrs) == {"unit": "m"}
    assert (found["n"].dtype, found["n"][:].tolist()) == (np.dtype("i8"), [1, 2, 3])
    assert list(found["raw"]) == [b"q", b"", b"r"]
    assert [None if row is None else row.tolist() for row in found["rows"]] == [[1.0], [2, 3], None]
    assert found["inner.n"].dtype == np.dtype("u2")
    np.testing.assert_array_equal(
        found["day"][:], np.array(["2024-01-01", "NaT", "1800-01-01"], "M8[ms]"), strict=True
    )
    assert "zstd" in repr(found["n"].codec)
    found.append(
        {
            "name": ["Trondheim"],
            "n": [2**40],
            "raw": [b"long"],
            "day": ["2024-01-02"],
            "rows": [[0.5]],
            "inner": {"n": [300]},
        }
    )
    assert found["name"][3] == "Trondheim"
    assert ingot.open(tmp_path / "t").where("n > 3").read("inner.n")["inner.n"].tolist() == [300]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("n", "i2"),
        ("n", "f4"),
        ("n", "utf8"),
        ("n", "U20"),
        ("name", "U1"),
        ("name", "bytes"),
        ("raw", "utf8"),
        ("rows", "list<<i2>"),
        ("rows", "O"),
        ("rows", "utf8"),
        ("day", "M8[ns]"),
        ("n", "O"),
    ],
)
def test_what_could_lose_a_part_of_a_value_is_refused(
    table: ingot.Table, tmp_path: Path, name: str, dtype: str
) -> None:
    if (name, dtype) == ("rows", "list<<i2>"):
        table["rows"][0] = [2**20]
    if name == "day":
        # Years that fit into seconds, and not into nanoseconds.
        table["day"][0] = np.datetime64("9999-01-01")
    before = content(tmp_path)
    with pytest.raises(ValueError, match="column"):
        table.retype(name, dtype)
    # The lock file says when a writer held it last.
    for files in (before, after := content(tmp_path)):
        assert files.pop(next(key for key in files if key.endswith(".lock")))
    assert after == before


def test_nulls_come_along() -> None:
    table = ingot.table({"n": np.ma.MaskedArray(np.array([1, 2], "i2"), [False, True])})
    table.add_column("t", np.ma.MaskedArray(np.array(["a", "b"]), [True, False]))
    table.retype("n", "i8")
    table.retype("t", "utf8")
    assert table["n"][:].tolist() == [1, None]
    assert list(table["t"]) == [None, "b"]
    assert table.names == ("n", "t")
    table.append({"n": [None], "t": ["Trondheim"]})
    assert (table["n"][:].tolist(), list(table["t"])) == ([1, None, None], [None, "b", "Trondheim"])


def test_names_and_modes(table: ingot.Table, tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match="no column 'x'"):
        table.retype("x", "utf8")
    with pytest.raises(ColumnError, match="'inner'"):
        table.retype("inner", "utf8")
    with pytest.raises(ReadOnlyError):
        ingot.open(tmp_path / "t").retype("n", "i8")


WORDS = sorted(f"{n * 7919 % 10007:05d} some longer text {n}" for n in range(600))
WORDS[5:7] = ["", "00035 some longer tex"]
ITEMS = [None if n % 97 == 3 else word for n, word in enumerate(WORDS)]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (f"w == '{WORDS[300]}'", lambda w: w == WORDS[300]),
        (f"w in ('{WORDS[20]}', 'nope')", lambda w: w == WORDS[20]),
        ("startswith(w, '012')", lambda w: w is not None and w.startswith("012")),
        (
            f"startswith(w, '{WORDS[40][:21]}')",
            lambda w: (w or "")[:21] == WORDS[40][:21],
        ),
        ("w > '099'", lambda w: w is not None and w > "099"),
        ("not w > '099'", lambda w: w is None or w <= "099"),
        (
            "w <= '00035 some longer'",
            lambda w: w is not None and w <= "00035 some longer",
        ),
        ("w < ''", lambda w: False),
        ("w != '00035'", lambda w: w is not None),
        ("isnull(w)", lambda w: w is None),
        ("not isnull(w)", lambda w: w is not None),
        ("endswith(w, '99')", lambda w: w is not None and w.endswith("99")),
        ("contains(w, 'longer text 5')", lambda w: w is not None and "longer text 5" in w),
    ],
)
def test_zone_maps_of_text_prune_nothing_that_matches(expression: str, wanted: object) -> None:
    table = ingot.table({"w": ITEMS, "n": np.arange(600)}, format="bcolz", chunks={"w": 7})
    assert callable(wanted)
    expected = [n for n, word in enumerate(ITEMS) if wanted(word)]
    assert table.where(expression).read("n")["n"].tolist() == expected


def test_packs_that_cannot_match_are_skipped() -> None:
    table = ingot.table({"w": ITEMS}, format="bcolz", chunks=10)
    for expression, most in [
        (f"w == '{WORDS[300]}'", 1),
        ("startswith(w, '0123')", 2),
        ("isnull(w)", 7),
        ("w > '0995'", 4),
        ("w > 'a'", 0),
    ]:
        spans = search._candidates(table._state, parse(expression))
        assert sum(span.stop - span.start for span in spans) <= 10 * most, expression
