"""Table libraries behind one interface: write, column, two queries, scattered rows, append."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.packages import installed

__all__ = ["LIBRARIES", "Columns", "Library", "Opened", "find_missing", "remove"]

Columns = Mapping[str, NDArray[Any]]

OUTPUT = ("time", "price", "size")
"""The columns that both queries return."""


class Opened(Protocol):
    """An open table."""

    def column(self, name: str) -> NDArray[Any]:
        """Return all of a column."""

    def between(self, low: int, high: int) -> Columns:
        """Return the rows of a range of time."""

    def selective(self, symbol: int, size: int) -> Columns:
        """Return the few rows of a symbol with a larger size."""

    def rows(self, numbers: NDArray[np.int64]) -> Columns | None:
        """Return rows by their numbers; None where the library cannot."""

    def append(self, columns: Columns) -> bool:
        """Append rows; return False where the library cannot."""


class Library(Protocol):
    """A library by name, with the package that it needs."""

    packages: tuple[str, ...]

    def write(self, columns: Columns, path: Path) -> None:
        """Write a table completely."""

    def open(self, path: Path) -> Opened:
        """Open it."""


class Ingot:
    """Ingot; `durability` is that of `ingot.Options`, `format` None for the usual one."""

    packages = ()

    def __init__(self, durability: Any, format: str | None = None) -> None:
        self.options = ingot.Options(durability=durability)
        self.format = format

    def write(self, columns: Columns, path: Path) -> None:
        ingot.table(columns, path, format=self.format, options=self.options)

    def open(self, path: Path) -> Opened:
        return _Ingot(ingot.open(path, "r+", options=self.options))


class _Ingot:
    def __init__(self, table: Any) -> None:
        self.table = table

    def column(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self.table[name][:]
        return found

    def between(self, low: int, high: int) -> Columns:
        found: Columns = self.table.read(OUTPUT, where=f"(time >= {low}) & (time < {high})")
        return found

    def selective(self, symbol: int, size: int) -> Columns:
        where = f"(symbol == {symbol}) & (size > {size})"
        found: Columns = self.table.read(OUTPUT, where=where)
        return found

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        found: Columns = self.table.read(rows=numbers)
        return found

    def append(self, columns: Columns) -> bool:
        self.table.append(columns)
        return True


class Bcolz:
    """bcolz-zipline, in the format that Ingot writes."""

    packages = ("bcolz",)

    def write(self, columns: Columns, path: Path) -> None:
        import bcolz

        table = bcolz.ctable(
            list(columns.values()), names=list(columns), rootdir=str(path), mode="w"
        )
        table.flush()

    def open(self, path: Path) -> Opened:
        import bcolz

        return _Bcolz(bcolz.open(str(path), mode="a"))


class _Bcolz:
    def __init__(self, table: Any) -> None:
        self.table = table

    def column(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self.table[name][:]
        return found

    def between(self, low: int, high: int) -> Columns:
        return self._fetched(f"(time >= {low}) & (time < {high})")

    def selective(self, symbol: int, size: int) -> Columns:
        return self._fetched(f"(symbol == {symbol}) & (size > {size})")

    def _fetched(self, where: str) -> Columns:
        found = self.table.fetchwhere(where, outcols=list(OUTPUT))
        return {name: found[name][:] for name in OUTPUT}

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        found = self.table[numbers]
        return {name: found[name] for name in found.dtype.names}

    def append(self, columns: Columns) -> bool:
        self.table.append(list(columns.values()))
        return True


class CTable:
    """The table of python-blosc2."""

    packages = ("blosc2", "pyarrow")

    def write(self, columns: Columns, path: Path) -> None:
        import blosc2
        import pyarrow

        arrow = pyarrow.table(dict(columns))
        table = blosc2.CTable.from_arrow(
            arrow.schema, arrow.to_batches(), urlpath=str(path), capacity_hint=len(arrow)
        )
        table.close()

    def open(self, path: Path) -> Opened:
        import blosc2

        return _CTable(blosc2.CTable.open(str(path), mode="a"))


class _CTable:
    def __init__(self, table: Any) -> None:
        self.table = table

    def column(self, name: str) -> NDArray[Any]:
        return np.asarray(self.table[name][:])

    def between(self, low: int, high: int) -> Columns:
        return self._found(f"(time >= {low}) & (time < {high})")

    def selective(self, symbol: int, size: int) -> Columns:
        return self._found(f"(symbol == {symbol}) & (size > {size})")

    def _found(self, where: str) -> Columns:
        view = self.table.where(where, columns=list(OUTPUT))
        return {name: np.asarray(view[name][:]) for name in OUTPUT}

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        found = self.table.take(numbers)
        return {name: np.asarray(found[name][:]) for name in found.col_names}

    def append(self, columns: Columns) -> bool:
        self.table.extend(dict(columns), validate=False)
        return True


class DuckDB:
    """DuckDB on its own file."""

    packages = ("duckdb", "pyarrow")

    def write(self, columns: Columns, path: Path) -> None:
        import duckdb
        import pyarrow

        path.unlink(missing_ok=True)
        given = pyarrow.table(dict(columns))
        with duckdb.connect(str(path)) as connection:
            connection.register("given", given)
            connection.execute("create table t as select * from given")
            connection.execute("checkpoint")

    def open(self, path: Path) -> Opened:
        import duckdb

        return _DuckDB(duckdb.connect(str(path)), "t", changeable=True)


class Parquet:
    """DuckDB on a Parquet file, which does not support appends."""

    packages = ("duckdb", "pyarrow")

    def write(self, columns: Columns, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(dict(columns)), str(path))

    def open(self, path: Path) -> Opened:
        import duckdb

        return _DuckDB(duckdb.connect(), f"read_parquet('{path}')", changeable=False)


class _DuckDB:
    def __init__(self, connection: Any, source: str, *, changeable: bool) -> None:
        self.connection = connection
        self.source = source
        self.changeable = changeable

    def _asked(self, question: str) -> Columns:
        found: Columns = self.connection.execute(question).fetchnumpy()
        return found

    def column(self, name: str) -> NDArray[Any]:
        return self._asked(f"select {name} from {self.source}")[name]

    def between(self, low: int, high: int) -> Columns:
        names = ", ".join(OUTPUT)
        where = f"time >= {low} and time < {high}"
        return self._asked(f"select {names} from {self.source} where {where}")

    def selective(self, symbol: int, size: int) -> Columns:
        names = ", ".join(OUTPUT)
        where = f"symbol = {symbol} and size > {size}"
        return self._asked(f"select {names} from {self.source} where {where}")

    def rows(self, numbers: NDArray[np.int64]) -> Columns | None:
        import pyarrow

        if not self.changeable:
            return None
        self.connection.register("numbers", pyarrow.table({"number": numbers}))
        return self._asked(
            "select t.* from t where rowid in (select number from numbers) order by rowid"
        )

    def append(self, columns: Columns) -> bool:
        import pyarrow

        if self.changeable:
            self.connection.register("more", pyarrow.table(dict(columns)))
            self.connection.execute("insert into t select * from more")
        return self.changeable


LIBRARIES: Mapping[str, Library] = {
    "ingot": Ingot("process"),
    "ingot, durability full": Ingot("full"),
    "bcolz-zipline": Bcolz(),
    "python-blosc2 CTable": CTable(),
    "DuckDB, its own file": DuckDB(),
    "Parquet + DuckDB": Parquet(),
}


def find_missing(library: Library) -> str | None:
    """Return the package that a library lacks, if any."""
    for package in library.packages:
        if not installed(package):
            return f"no {package}"
    return None


def remove(path: Path) -> None:
    """Remove the table."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
