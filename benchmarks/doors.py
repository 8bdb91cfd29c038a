"""Doors of a table: DuckDB on it and on a Parquet file, and all columns as Arrow and as pandas.

Bars: DuckDB on a table within 1.3 of DuckDB on Parquet; `to_arrow` and `to_pandas` within 1.1 of
pyarrow on Parquet. One column is text. Parquet stores it with a dictionary, and DuckDB groups by
the entries of that; text of a table it has to hash row by row.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.packages import installed
from benchmarks.race import race, stopwatch
from benchmarks.settings import Settings
from benchmarks.table import Column, Table
from benchmarks.tables import make_columns
from benchmarks.verify import require

__all__ = ["PACKAGES", "QUERIES", "run"]

ROWS = 5_000_000
PACKAGES = ("duckdb", "pyarrow", "pandas")

QUERIES: Mapping[str, str] = {
    "sum by symbol": "select symbol, sum(size) from {} group by all order by all",
    "three by word": "select word, count(*), max(price) from {} group by all order by all",
    "three by category": "select word, count(*), max(price) from {} group by all order by all",
    "filtered": "select symbol, sum(size) from {} where size > 900 group by all order by all",
}
"""Group-bys, with the place of the table; in "three by category" the word is a category."""

BARS: Mapping[str, float] = {**dict.fromkeys(QUERIES, 1.3), "to_arrow": 1.1, "to_pandas": 1.1}


def run(settings: Settings) -> list[Table]:
    """Ask DuckDB, pyarrow and pandas for the same rows of a table and of a Parquet file."""
    columns = make_columns(max(1000, int(ROWS * settings.scale)))
    titles = (
        Column("door"),
        Column("ingot ms", ".1f"),
        Column("Parquet ms", ".1f"),
        Column("Parquet / ingot", ".2f"),
        Column("bar", ".2f"),
        Column("held"),
    )
    missing = [name for name in PACKAGES if not installed(name)]
    rows: list[tuple[Any, ...]] = []
    if missing:
        rows = [(title, f"no {missing[0]}", None, None, None, None) for title in BARS]
    else:
        folder = settings.folder / "doors"
        folder.mkdir()
        calls = _calls({**columns, "word": _words(columns["symbol"])}, folder)
        for title, (ours, theirs) in calls.items():
            settings.say(title)
            seconds = race(
                {"ingot": stopwatch(ours), "Parquet": stopwatch(theirs)}, settings.effort
            )
            ratio = seconds["Parquet"] / seconds["ingot"]
            held = settings.verdict(ratio >= 1 / BARS[title])
            milliseconds = (each * 1e3 for each in seconds.values())
            rows.append((title, *milliseconds, ratio, 1 / BARS[title], held))
    count = len(columns["time"])
    title = f"DuckDB, Arrow and pandas on {count:,} rows of six columns, one of them text"
    return [Table("doors", title, titles, tuple(rows))]


def _words(symbols: NDArray[Any]) -> NDArray[Any]:
    return np.array([f"symbol {number}" for number in range(500)])[symbols]


def _calls(
    columns: Mapping[str, NDArray[Any]], folder: Path
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    import duckdb
    import pyarrow
    import pyarrow.parquet

    file = folder / "doors.parquet"
    whole = pyarrow.table(dict(columns))
    pyarrow.parquet.write_table(whole, file)
    table = ingot.table(whole, folder / "doors.bcolz")
    connection = duckdb.connect()
    connection.register("ours", table.dataset())
    codes = whole.select(["word", "price"])
    codes = codes.set_column(0, "word", codes["word"].dictionary_encode())
    connection.register("coded", ingot.table(codes, folder / "coded.bcolz").dataset())

    def asked(text: str) -> list[Any]:
        found: list[Any] = connection.sql(text).fetchall()
        return found

    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for title, text in QUERIES.items():
        own = "coded" if title == "three by category" else "ours"
        ours, theirs = text.format(own), text.format(f"read_parquet('{file}')")
        require(asked(ours) == asked(theirs), f"{title}: wrong rows")
        calls[title] = partial(asked, ours), partial(asked, theirs)
    read = partial(pyarrow.parquet.read_table, file)
    for name in ("size", "word"):
        right = table.to_arrow()[name].cast(read()[name].type) == read()[name]
        require(right, f"to_arrow: {name} is wrong")
    calls["to_arrow"] = table.to_arrow, read
    calls["to_pandas"] = table.to_pandas, lambda: read().to_pandas()
    return calls
