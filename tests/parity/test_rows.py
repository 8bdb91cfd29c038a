"""Single rows and comparisons by the native kernel, against NumPy and the Python kernel."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.errors import CorruptionError
from tests.kernels import needs_native
from tests.storage import use_kernel

KINDS = ["i1", "u2", "i4", "u8", "f4", "f8", "?", "M8[ns]", "m8[s]", "S7", "U3", ">i4", "c16", "V5"]
ROWS = 40_000
CHUNK = 15_000


def items(dtype: Any, shape: tuple[int, ...] = (ROWS,), noise: bool = False) -> NDArray[Any]:
    numbers = np.arange(np.prod(shape))
    if noise:
        numbers = np.random.default_rng(3).integers(0, 2**60, len(numbers))
    kind = np.dtype(dtype).kind
    if kind in "SU":
        return (numbers % 997).astype("U3").astype(dtype).reshape(shape)
    if kind == "V":
        return np.frombuffer(numbers.astype("S5").tobytes(), dtype).reshape(shape)
    if kind == "M":
        numbers = np.where(numbers % 11 == 5, np.iinfo("i8").min, numbers)
    with np.errstate(all="ignore"):
        return (numbers % 1000 if kind != "M" else numbers).astype(dtype).reshape(shape)


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kernel(request.param, monkeypatch)
    return str(request.param)


PICKS = {
    "few": [3, 9, 14_999, 15_000, 39_999],
    "in one block": list(range(100, 103)),
    "dense": list(range(100, 9000, 3)),
    "backwards": list(range(39_000, 10, -777)),
    "twice": [7, 7, 8, 39_999, 39_999],
    "none": [],
    "one": [20_000],
}


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("dtype", KINDS)
def test_rows_are_those_of_numpy(pick: str, dtype: str, kernel: str, tmp_path: Path) -> None:
    data = items(dtype)
    array = ingot.array(data, tmp_path / "a", format="bcolz", chunks=CHUNK)
    rows = np.array(PICKS[pick], np.int64)
    np.testing.assert_array_equal(array[rows], data[rows], strict=True)


@pytest.mark.parametrize("codec", ["blosc:lz4:5:shuffle", "blosc:zstd:3:bitshuffle", "blosc:lz4:0"])
@pytest.mark.parametrize("shape", [(2000, 7), (2000, 3, 5)])
def test_rows_with_axes_of_their_own(
    codec: str, shape: tuple[int, ...], kernel: str, tmp_path: Path
) -> None:
    for noise in (False, True):
        data = items("i8", shape, noise)
        array = ingot.array(data, tmp_path / str(noise), format="bcolz", chunks=700, codec=codec)
        for rows in ([0, 699, 700, 1999], list(range(0, 2000, 3))):
            np.testing.assert_array_equal(array[rows], data[rows], strict=True)


@needs_native
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["i1", "i8", "u8", "f4", "f8", "?", "M8[ns]"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.integers(0, ROWS - 1),
    st.booleans(),
    st.data(),
)
def test_comparisons_are_those_of_numpy(
    tables: dict[tuple[str, bool], tuple[ingot.Table, NDArray[Any]]],
    dtype: str,
    operator: str,
    row: int,
    noise: bool,
    draws: st.DataObject,
) -> None:
    table, data = tables[dtype, noise]
    value = data[row].item() if np.dtype(dtype).kind != "M" else data[row]
    spelled = f"datetime64({str(value)!r}, 'ns')" if np.dtype(dtype).kind == "M" else repr(value)
    first = draws.draw(st.integers(0, ROWS))
    text = f"(a {operator} {spelled}) & (row >= {first})"
    expected = eval(f"data {operator} value", {"data": data, "value": value})
    expected[:first] = False
    np.testing.assert_array_equal(table.where(text).rows(), np.flatnonzero(expected))


@pytest.fixture(scope="module")
def tables(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, bool], tuple[ingot.Table, NDArray[Any]]]:
    made = {}
    for dtype in ["i1", "i8", "u8", "f4", "f8", "?", "M8[ns]"]:
        for noise in (False, True):
            data = items(dtype, noise=noise)
            path = tmp_path_factory.mktemp("table") / "t"
            columns = {"a": data, "row": np.arange(ROWS)}
            made[dtype, noise] = ingot.table(columns, path, chunks=CHUNK), data
    return made


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damage_is_found_by_rows_and_comparisons(damage: str, kernel: str, tmp_path: Path) -> None:
    table = ingot.table({"a": items("i8")}, tmp_path / "t", chunks=CHUNK)
    chunk = tmp_path / "t" / "a" / "data" / "__1.blp"
    data = bytearray(chunk.read_bytes())
    if damage == "missing":
        chunk.unlink()
    elif damage == "cut":
        chunk.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 255
        chunk.write_bytes(data)
    assert table["a"][[5, 39_999]].tolist() == [5, 999]
    with pytest.raises(CorruptionError):
        table["a"][np.arange(15_000, 29_999, 50)]
    with pytest.raises(CorruptionError):
        table.where("a == 7").rows()


EXPRESSIONS = [
    "(a >= 20) & (a < 700)",
    "(a >= 20) & (b > 0.25) & (a < 700) & (b <= 0.75)",
    "(20 <= a) and (a != 33) and not (b < 0.5)",
    "(a < 20) | (a > 900) & (b > 0.9)",
    "((a < 20) ^ (b > 0.9)) & (a > 3)",
    "~((a >= 20) & (a < 700)) & (b == b)",
    "(a > 5) & (a in (7, 9, 700)) & (b > 0.1)",
    "(a > 5000) & (b > 0.1)",
    "(a > 2.5) & (a < 10)",
    "(a > 100) & (a < 90)",
    "(a < 20) & (b > 0.9) | (a > 980) & (b < 0.1) | (b == 0.5)",
    "(a in (7, 9, 700)) | (b > 0.99)",
    "((a < 20) | (a > 980)) & ((b < 0.2) | (b > 0.8)) & (a != 7)",
    "~(a in (7, 9, 700)) & (a < 10)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_joined_comparisons_are_those_of_numpy(
    expression: str, kernel: str, tmp_path: Path
) -> None:
    chance = np.random.default_rng(8)
    columns = {"a": chance.integers(0, 1000, ROWS), "b": chance.random(ROWS)}
    columns["b"][::7] = np.nan
    table = ingot.table(columns, tmp_path / "t", chunks=CHUNK)
    plain = expression.replace(" and ", " & ").replace("not ", "~")
    plain = plain.replace("a in (7, 9, 700)", "np.isin(a, (7, 9, 700))")
    expected = eval(plain, {"np": np, **columns})
    np.testing.assert_array_equal(table.where(expression).rows(), np.flatnonzero(expected))
    assert table.where(expression).count() == np.count_nonzero(expected)


COLUMNS = {
    "a": ("i4", 15_000, "blosc:lz4:5:shuffle"),
    "b": ("f8", 7000, "blosc:lz4:5:shuffle"),
    "c": ("u2", 40_000, "blosc:zstd:3:bitshuffle"),
    "d": ("i8", 6000, "blosc:lz4:0"),
    "e": ("u1", 15_000, "blosc:blosclz:5:noshuffle"),
}


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> tuple[ingot.Table, dict[str, Any]]:
    """A table whose columns have chunks, codecs and types of their own."""
    chance = np.random.default_rng(5)
    columns = {
        name: chance.integers(0, 200, ROWS).astype(dtype) for name, (dtype, _, _) in COLUMNS.items()
    }
    # Some chunks are known to match, some not to, without a look.
    columns["b"][20_000:] += 1000
    chunks = {name: length for name, (_, length, _) in COLUMNS.items()}
    codecs = {name: codec for name, (_, _, codec) in COLUMNS.items()}
    path = tmp_path_factory.mktemp("table") / "t"
    return ingot.table(columns, path, chunks=chunks, codec=codecs), columns


@needs_native
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(COLUMNS)),
            st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
            st.sampled_from([0, 1, 100, 198, 199, 1000, 1190]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_columns_of_all_kinds_are_searched_together(
    uneven: tuple[ingot.Table, dict[str, Any]], tests: list[tuple[str, str, int]]
) -> None:
    table, columns = uneven
    text = " & ".join(f"({name} {operator} {value})" for name, operator, value in tests)
    expected = np.ones(ROWS, np.bool_)
    for name, operator, value in tests:
        expected &= eval(f"column {operator} {value}", {"column": columns[name].astype("f8")})
    found = table.where(text)
    np.testing.assert_array_equal(found.rows(), np.flatnonzero(expected))
    assert found.count() == np.count_nonzero(expected)


LISTS = {
    "none": [],
    "one": [7],
    "few": [150, 7, 7, 3],
    "many": [*range(0, 200, 3), 1100],
    "of the other half": [*range(1000, 1200, 7)],
}


@needs_native
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(list(COLUMNS)), st.sampled_from(list(LISTS))),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_of_many_values_in_any_of_several_ways(
    uneven: tuple[ingot.Table, dict[str, Any]], ways: list[list[tuple[str, str]]]
) -> None:
    table, columns = uneven
    expected = np.zeros(ROWS, np.bool_)
    for way in ways:
        held = [np.isin(columns[name], LISTS[values]) for name, values in way]
        expected |= np.logical_and.reduce(held)
    text = " | ".join(
        "(" + " & ".join(f"({name} in {LISTS[values]})" for name, values in way) + ")"
        for way in ways
    )
    found = table.where(text)
    np.testing.assert_array_equal(found.rows(), np.flatnonzero(expected))
    assert found.count() == np.count_nonzero(expected)


NULLABLE = [
    "isnull(n)",
    "not isnull(n) and a < 10",
    "isnull(n) & (a < 10) | (n == 7)",
    "(n in (7, 8)) | isnull(n)",
    "n != 7",
    "day in ('2024-01-03', '2024-03-01') or day < '2024-01-02'",
    "(n < 3 or n > 95) and day >= '2024-02-01'",
]


@pytest.fixture(scope="module")
def nullable(tmp_path_factory: pytest.TempPathFactory) -> tuple[ingot.Table, dict[str, Any]]:
    """A table with nulls in a column of numbers, and with days of which some are NaT."""
    rows = np.arange(ROWS)
    day = np.datetime64("2024-01-01") + rows % 90
    day[::11] = np.datetime64("NaT")
    columns = {"a": rows % 1000, "n": np.ma.array(rows % 100, mask=rows % 9 == 4), "day": day}
    return ingot.table(columns, tmp_path_factory.mktemp("table") / "t", chunks=CHUNK), columns


@pytest.mark.parametrize("expression", NULLABLE)
def test_nulls_and_days_are_searched_by_the_kernel(
    expression: str,
    nullable: tuple[ingot.Table, dict[str, Any]],
    kernel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, columns = nullable
    n, valid = columns["n"].data, ~columns["n"].mask
    a, day = columns["a"], columns["day"]
    days = {text: np.datetime64(text) for text in ("2024-01-02", "2024-01-03", "2024-02-01")}
    expected = {
        NULLABLE[0]: ~valid,
        NULLABLE[1]: valid & (a < 10),
        NULLABLE[2]: ~valid & (a < 10) | (valid & (n == 7)),
        NULLABLE[3]: ~valid | (n == 7) | (n == 8),
        NULLABLE[4]: valid & (n != 7),
        NULLABLE[5]: np.isin(day, [days["2024-01-03"], np.datetime64("2024-03-01")])
        | (day < days["2024-01-02"]),
        NULLABLE[6]: valid & ((n < 3) | (n > 95)) & (day >= days["2024-02-01"]),
    }[expression]
    if kernel == "native":
        # Nothing is left for NumPy to evaluate.
        monkeypatch.delattr("ingot.query.conjunction.matches")
    opened = ingot.open(table.path)
    np.testing.assert_array_equal(opened.where(expression).rows(), np.flatnonzero(expected))
    assert opened.where(expression).count() == np.count_nonzero(expected)


def test_damage_is_found_in_whatever_column_is_needed(kernel: str, tmp_path: Path) -> None:
    numbers = np.arange(ROWS)
    table = ingot.table({"a": numbers, "b": numbers % 90}, tmp_path / "t", chunks=CHUNK)
    chunk = tmp_path / "t" / "b" / "data" / "__1.blp"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 255
    chunk.write_bytes(data)
    if kernel == "native":
        # The other one reads chunks whole, already for their zone maps.
        assert table.where("(a < 10_000) & (b == 7)").rows()[:2].tolist() == [7, 97]
    for ask in (lambda view: view.rows(), lambda view: view.count()):
        for where in ("(a % 1 == 0) & (b == 7)", "(a != 3) & (b == 7)"):
            with pytest.raises(CorruptionError, match="CRC-32C of the block") as caught:
                ask(table.where(where))
            assert any("__1.blp" in note for note in caught.value.__notes__)


def test_a_damaged_zone_map_is_found_where_it_lies(kernel: str, tmp_path: Path) -> None:
    table = ingot.table({"a": items("i8")}, tmp_path / "t", chunks=CHUNK)
    chunk = tmp_path / "t" / "a" / "data" / "__1.blp"
    data = bytearray(chunk.read_bytes())
    data[-20] ^= 255
    chunk.write_bytes(data)
    with pytest.raises(CorruptionError, match="CRC-32C of the trailer") as caught:
        table.where("a == 7").rows()
    texts = [str(caught.value), *getattr(caught.value, "__notes__", ())]
    assert any("__1.blp" in text for text in texts)


def test_a_query_sees_what_was_changed_since_the_last_one(kernel: str, tmp_path: Path) -> None:
    table = ingot.table({"a": np.arange(ROWS), "b": np.arange(ROWS)}, tmp_path / "t", chunks=CHUNK)
    assert len(table.where("a > 50000").rows()) == 0
    table["a"][7] = 60_000
    assert table.where("a > 50000").rows().tolist() == [7]
    table.append({"a": [70_000], "b": [0]})
    assert table.where("a > 50000").rows().tolist() == [7, ROWS]
    other = ingot.open(tmp_path / "t", "r+")
    other.update("b == 9", {"a": 80_000})
    assert table.where("a > 50000").rows().tolist() == [7, 9, ROWS]
    with table.transaction():
        table["a"][20_000] = 90_000
        assert table.where("a > 50000").rows().tolist() == [7, 9, 20_000, ROWS]
    table.delete("a == 80000")
    assert table.where("a > 50000").rows().tolist() == [7, 19_999, ROWS - 1]
