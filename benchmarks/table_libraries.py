"""Table libraries behind one interface: write, open, read in five ways, append, update."""

import shutil
from collections.abc import Mapping, Sequence
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

    def count(self) -> int:
        """Return the number of rows."""

    def close(self) -> None:
        """Close the table."""

    def column(self, name: str) -> NDArray[Any]:
        """Return all of a column."""

    def between(self, low: int, high: int) -> Columns:
        """Return the rows of a range of time."""

    def selective(self, symbol: int, size: int) -> Columns:
        """Return the few rows of a symbol with a larger size."""

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return items of a column by their numbers; None where the library cannot."""

    def rows(self, numbers: NDArray[np.int64]) -> Columns | None:
        """Return rows by their numbers; None where the library cannot."""

    def append(self, columns: Columns) -> bool:
        """Append rows; return False where the library cannot."""

    def update(self, below: int, size: int) -> bool:
        """Give rows with a symbol below a number another size; False where the library cannot."""


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

    def __init__(
        self, durability: Any, format: str | None = None, codec: str | None = None
    ) -> None:
        self.options = ingot.Options(durability=durability)
        self.format = format
        self.codec = codec

    def write(self, columns: Columns, path: Path) -> None:
        ingot.table(columns, path, format=self.format, codec=self.codec, options=self.options)

    def open(self, path: Path) -> Opened:
        return _Ingot(ingot.open(path, "r+", options=self.options))


class _Ingot:
    def __init__(self, table: Any) -> None:
        self.table = table

    def count(self) -> int:
        return len(self.table)

    def close(self) -> None:
        self.table.close()

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

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        found: NDArray[Any] = self.table[name][numbers]
        return found

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        found: Columns = self.table.read(rows=numbers)
        return found

    def append(self, columns: Columns) -> bool:
        self.table.append(columns)
        return True

    def update(self, below: int, size: int) -> bool:
        self.table.update(f"symbol < {below}", {"size": size})
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

    def count(self) -> int:
        return len(self.table)

    def close(self) -> None:
        self.table.flush()

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

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        found: NDArray[Any] = self.table[name][numbers]
        return found

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        found = self.table[numbers]
        return {name: found[name] for name in found.dtype.names}

    def append(self, columns: Columns) -> bool:
        self.table.append(list(columns.values()))
        return True

    def update(self, below: int, size: int) -> bool:
        self.table["size"][self.table["symbol"][:] < below] = size
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

    def count(self) -> int:
        return len(self.table)

    def close(self) -> None:
        self.table.close()

    def column(self, name: str) -> NDArray[Any]:
        return np.asarray(self.table[name][:])

    def between(self, low: int, high: int) -> Columns:
        return self._found(f"(time >= {low}) & (time < {high})")

    def selective(self, symbol: int, size: int) -> Columns:
        return self._found(f"(symbol == {symbol}) & (size > {size})")

    def _found(self, where: str) -> Columns:
        view = self.table.where(where, columns=list(OUTPUT))
        return {name: np.asarray(view[name][:]) for name in OUTPUT}

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self.table[name][numbers])

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        found = self.table.take(numbers)
        return {name: np.asarray(found[name][:]) for name in found.col_names}

    def append(self, columns: Columns) -> bool:
        self.table.extend(dict(columns), validate=False)
        return True

    def update(self, below: int, size: int) -> bool:
        found = np.flatnonzero(np.asarray(self.table["symbol"][:]) < below)
        self.table["size"][found] = np.full(len(found), size, "i4")
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

    def count(self) -> int:
        (found,) = self._asked(f"select count(*) as rows from {self.source}")["rows"]
        return int(found)

    def close(self) -> None:
        self.connection.close()

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

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any] | None:
        found = self._numbered(name, numbers)
        return None if found is None else found[name]

    def rows(self, numbers: NDArray[np.int64]) -> Columns | None:
        return self._numbered("t.*", numbers)

    def _numbered(self, names: str, numbers: NDArray[np.int64]) -> Columns | None:
        import pyarrow

        if not self.changeable:
            return None
        self.connection.register("numbers", pyarrow.table({"number": numbers}))
        return self._asked(
            f"select {names} from t where rowid in (select number from numbers) order by rowid"
        )

    def append(self, columns: Columns) -> bool:
        import pyarrow

        if self.changeable:
            self.connection.register("more", pyarrow.table(dict(columns)))
            self.connection.execute("insert into t select * from more")
        return self.changeable

    def update(self, below: int, size: int) -> bool:
        if self.changeable:
            self.connection.execute(f"update t set size = {size} where symbol < {below}")
        return self.changeable


class PyarrowParquet:
    """A Parquet file, read by pyarrow."""

    packages = ("pyarrow",)

    def write(self, columns: Columns, path: Path) -> None:
        Parquet().write(columns, path)

    def open(self, path: Path) -> Opened:
        return _PyarrowParquet(path)


class _PyarrowParquet:
    def __init__(self, path: Path) -> None:
        import pyarrow.parquet

        self.path = path
        self.file = pyarrow.parquet.ParquetFile(path, memory_map=True)

    def _read(self, names: Sequence[str], filters: Any = None) -> Columns:
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(self.path, columns=list(names), filters=filters)
        return _of_arrow(found)

    def count(self) -> int:
        return int(self.file.metadata.num_rows)

    def close(self) -> None:
        self.file.close()

    def column(self, name: str) -> NDArray[Any]:
        return _of_arrow(self.file.read([name]))[name]

    def between(self, low: int, high: int) -> Columns:
        return self._read(OUTPUT, [("time", ">=", low), ("time", "<", high)])

    def selective(self, symbol: int, size: int) -> Columns:
        return self._read(OUTPUT, [("symbol", "==", symbol), ("size", ">", size)])

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any] | None:
        return None

    def rows(self, numbers: NDArray[np.int64]) -> Columns | None:
        return None

    def append(self, columns: Columns) -> bool:
        return False

    def update(self, below: int, size: int) -> bool:
        return False


class Lance:
    """Lance, with its defaults."""

    packages = ("lance", "pyarrow")

    def write(self, columns: Columns, path: Path) -> None:
        import lance
        import pyarrow

        lance.write_dataset(pyarrow.table(dict(columns)), str(path))

    def open(self, path: Path) -> Opened:
        return _Lance(path)


class _Lance:
    def __init__(self, path: Path) -> None:
        import lance

        self.path = str(path)
        self.table = lance.dataset(self.path)

    def count(self) -> int:
        return int(self.table.count_rows())

    def close(self) -> None:
        del self.table

    def column(self, name: str) -> NDArray[Any]:
        return _of_arrow(self.table.to_table(columns=[name]))[name]

    def between(self, low: int, high: int) -> Columns:
        return self._found(f"time >= {low} and time < {high}")

    def selective(self, symbol: int, size: int) -> Columns:
        return self._found(f"symbol = {symbol} and size > {size}")

    def _found(self, where: str) -> Columns:
        return _of_arrow(self.table.to_table(columns=list(OUTPUT), filter=where))

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        return _of_arrow(self.table.take(numbers, columns=[name]))[name]

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        return _of_arrow(self.table.take(numbers))

    def append(self, columns: Columns) -> bool:
        import lance
        import pyarrow

        self.table = lance.write_dataset(pyarrow.table(dict(columns)), self.path, mode="append")
        return True

    def update(self, below: int, size: int) -> bool:
        self.table.update({"size": str(size)}, where=f"symbol < {below}")
        return True


class Vortex:
    """A file of Vortex, which cannot be changed."""

    packages = ("vortex", "pyarrow")

    def write(self, columns: Columns, path: Path) -> None:
        import pyarrow
        import vortex

        vortex.io.write(pyarrow.table(dict(columns)), str(path))

    def open(self, path: Path) -> Opened:
        return _Vortex(path)


class _Vortex:
    def __init__(self, path: Path) -> None:
        import vortex

        self.file = vortex.open(str(path))

    def _read(self, names: Sequence[str], **wanted: Any) -> Columns:
        return _of_arrow(self.file.scan(list(names), **wanted).read_all().to_arrow_table())

    def count(self) -> int:
        return len(self.file)

    def close(self) -> None:
        del self.file

    def column(self, name: str) -> NDArray[Any]:
        return self._read([name])[name]

    def between(self, low: int, high: int) -> Columns:
        from vortex.expr import column

        return self._read(OUTPUT, expr=(column("time") >= low) & (column("time") < high))

    def selective(self, symbol: int, size: int) -> Columns:
        from vortex.expr import column

        wanted = _int32(symbol), _int32(size)
        return self._read(
            OUTPUT, expr=(column("symbol") == wanted[0]) & (column("size") > wanted[1])
        )

    def items(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        import pyarrow
        import vortex

        return self._read([name], indices=vortex.array(pyarrow.array(numbers.astype("u8"))))[name]

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        import pyarrow
        import vortex

        names = ("time", "price", "amount", "size", "symbol")
        return self._read(names, indices=vortex.array(pyarrow.array(numbers.astype("u8"))))

    def append(self, columns: Columns) -> bool:
        return False

    def update(self, below: int, size: int) -> bool:
        return False


def _int32(value: int) -> Any:
    """Return a value for an expression of Vortex, which compares only what has one type."""
    import vortex.expr

    return vortex.expr.literal(vortex.int_(32, nullable=False), value)


def _of_arrow(table: Any) -> Columns:
    """Return the columns of a table of pyarrow."""
    return {name: table[name].to_numpy() for name in table.column_names}


LIBRARIES: Mapping[str, Library] = {
    "ingot": Ingot("process"),
    "ingot, durability full": Ingot("full"),
    "ingot, codec auto": Ingot("process", codec="auto"),
    "bcolz-zipline": Bcolz(),
    "python-blosc2 CTable": CTable(),
    "DuckDB, its own file": DuckDB(),
    "Parquet + DuckDB": Parquet(),
    "Parquet by pyarrow": PyarrowParquet(),
    "Lance": Lance(),
    "Vortex": Vortex(),
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
