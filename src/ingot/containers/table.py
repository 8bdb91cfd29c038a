"""The table: columns of one length, read by name, by row and by expression, changed together.

The query finds rows, `table_state` makes a commit of a change, and the handle knows the committed
state; this module is what a user calls.
"""

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot.codecs.compressors import Blosc
from ingot.containers import table_state, view
from ingot.containers.appender import ROWS, SECONDS, Appender
from ingot.containers.attributes import Attributes
from ingot.containers.column import TableColumn
from ingot.containers.create import Codec, ColumnSpec, validity_schema
from ingot.containers.dataset import Dataset, Mode
from ingot.containers.decoded_column import CategoryColumn, DecodedColumn
from ingot.containers.display import Info
from ingot.containers.handle import HandleProtocol, HandleTurn, TransactionalHandle
from ingot.containers.ingest import (
    Values,
    arrays_of,
    check_lengths,
    columns_of,
    fitted_rows,
    fitted_values,
    flattened,
    is_null,
    retyped_values,
    row_blocks,
    row_dtype,
    spread,
    stream_of,
)
from ingot.containers.ragged import Ragged
from ingot.containers.sharding import Target, split
from ingot.containers.table_explanation import TableExplanation, explained
from ingot.containers.table_state import TableChange, TableState
from ingot.containers.view import View
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    ColumnError,
    SelectionError,
    UnsupportedError,
)
from ingot.formats.format import Format, Kind, TableNode, has_typed_attributes
from ingot.formats.validity import valid_name
from ingot.interop import arrow, duckdb, pandas
from ingot.interop.arrow import BATCH_ROWS
from ingot.logical_types import PLAIN, CategoryType, DecimalType, LogicalArray
from ingot.options import Options
from ingot.query.expr import Expression
from ingot.ragged_array import RaggedArray
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Store

__all__ = ["Table"]


class Table(Dataset[TableState]):
    """Named columns of one length, each stored in compressed chunks.

    Made by `ingot.open` and `ingot.table`. Every call that changes the table has stored the change
    when it returns, in all columns or in none; `transaction` makes one change of many. A table may
    be used from several threads, and as a context manager.

    >>> import ingot
    >>> table = ingot.table({"day": [1, 2, 3], "price": [1.5, 2.5, 4.0]})
    >>> table["price"].mean(), table[1]
    (np.float64(2.6666666666666665), np.void((2, 2.5), dtype=[('day', '<i8'), ('price', '<f8')]))
    >>> table.append({"day": [4, 5], "price": [8.0, 9.5]})
    >>> table.read("day", where="(price > 2) & (price < 9)")
    {'day': array([2, 3, 4])}
    >>> table
    <ingot.Table of 5 rows: day, price; bcolz in memory, r+>
    """

    __slots__ = ("_whole",)

    _WORD = "table"
    _ELSEWHERE: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("iloc", "loc", "iat", "at"), "table[rows], or read"),
        **dict.fromkeys(("fetchwhere", "filter", "query", "whereblocks"), "where"),
        **dict.fromkeys(("groupby", "join", "merge", "sort", "sort_values"), "sql, or to_pandas()"),
        **dict.fromkeys(("describe", "agg", "sum", "mean"), "sql, to_pandas() or table[name]"),
        **dict.fromkeys(("drop", "delcol", "remove_column"), "drop_column"),
        **dict.fromkeys(("to_csv", "to_json", "to_parquet"), "to_pandas(), or ingot export"),
        **dict.fromkeys(("to_dict", "values"), "read"),
        **dict.fromkeys(("to_polars", "to_frame"), "polars.DataFrame(table), or to_pandas()"),
        "addcol": "add_column",
        "cbytes": "stored_bytes",
        "cols": "columns",
        "items": "dict(table).items()",
        "iter": "for row in table",
        "rename": "rename_column",
        "rootdir": "path",
        "size": "len(table)",
        "trim": "resize",
        "type": "dtypes",
    }

    def __init__(
        self,
        format: Format,
        whole: TransactionalHandle[TableState],
        *,
        path: str | None,
        mode: Mode,
        part: HandleProtocol[TableState] | None = None,
    ) -> None:
        super().__init__(format, whole if part is None else part, path=path, mode=mode)
        self._whole = whole

    # What it is ----------------------------------------------------------------------------------

    def _instead_of(self, name: str) -> str:
        is_column = not name.startswith("_") and name in self.names
        return f"; use table[{name!r}]" if is_column else super()._instead_of(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order; a nested table is one of them."""
        return self._state.names

    @property
    def dtypes(self) -> dict[str, DType]:
        """The type of each column; that of a nested table is a structure."""
        return self._handle.read(view.types_of)

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The type of a row."""
        return self._handle.read(lambda state: row_dtype(view.layout_of(state)))

    @property
    def shape(self) -> tuple[int]:
        """The number of rows, as the only axis."""
        return (self._state.rows,)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns, uncompressed; without the contents of variable-length items."""
        state = self._state
        return sum(state.schema(name).nbytes for name in state.leaves)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all stored chunks, counted where they are stored."""
        return self._handle.read(lambda state: sum(state.stored().values()))

    @property
    def attrs(self) -> Attributes:
        """Names and values that describe the table; setting one stores it.

        >>> import ingot
        >>> table = ingot.table({"a": [1]}, attrs={"source": "survey"})
        >>> table.attrs["year"] = 2024
        >>> dict(table.attrs)
        {'source': 'survey', 'year': 2024}
        """
        return Attributes(
            lambda: self._state.attrs,
            self._describing,
            typed=has_typed_attributes(self._format),
        )

    # Reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._state.rows

    def keys(self) -> tuple[str, ...]:
        """Return the names of the columns, so that ``dict(table)`` maps names to columns."""
        return self.names

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as `names`."""
        return self.names

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._state.leaves)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[np.void]:
        pandas.refuse_constructor(sys._getframe(1), "to_pandas()")
        return iter(View(self._handle))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._column(key)
        names = [each for each in key if isinstance(each, str)] if isinstance(key, tuple) else []
        if names:
            raise SelectionError(
                f"columns are chosen by a list, and rows of them by read: table[{names}], "
                f"table.read({names}, rows=...)"
            )
        if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            return View(self._handle, None, key, table=self)

        def build(state: TableState) -> Any:
            rows = view.structures(state, state.leaves, view.numbered(state, key))
            return rows[0] if isinstance(key, int | np.integer) else rows

        return self._handle.read(build)

    def read(
        self,
        columns: str | Sequence[str] | None = None,
        *,
        where: str | Expression | NDArray[np.bool_] | None = None,
        rows: object = None,
        params: Mapping[str, Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return columns as arrays: all or some of them, in all rows or some.

        `where` is an expression such as ``"(ts >= 1) & (ts < 9)"``, or a boolean mask; `rows` is
        what NumPy takes as a key along one axis. With both, the rows of `rows` that match. `params`
        has the values of parameters of the expression, such as ``@first``; see `where`.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2, 3], "b": {"c": [4.0, 5.0, 6.0]}})
        >>> table.read("b.c", where="a != 2"), table.read(["a"], rows=slice(1, None))
        ({'b.c': array([4., 6.])}, {'a': array([2, 3])})
        """
        values = view.named_values(where, params)
        return View(self._handle, where, params=values).read(columns, rows=rows)

    def head(self, rows: int = 5) -> NDArray[np.void]:
        """Return the first rows, as structures.

        >>> import ingot
        >>> ingot.table({"a": [1, 2, 3]}).head(2).tolist()
        [(1,), (2,)]
        """
        return cast(NDArray[np.void], self[: _count(rows)])

    def tail(self, rows: int = 5) -> NDArray[np.void]:
        """Return the last rows, as structures.

        >>> import ingot
        >>> ingot.table({"a": [1, 2, 3]}).tail(2).tolist()
        [(2,), (3,)]
        """

        count = _count(rows)

        def build(state: TableState) -> NDArray[np.void]:
            first = max(0, state.rows - count)
            return view.structures(state, state.leaves, range(first, state.rows))

        return self._handle.read(build)

    def where(
        self,
        expression: str | Expression | NDArray[np.bool_],
        *,
        params: Mapping[str, Any] | None = None,
    ) -> View:
        """Return a view of the rows for which an expression is true; it finds them when it is read.

        Expressions have names (``a.b`` of a nested column, backticks around one that is no Python
        name), numbers, text, bytes, dates as text; arithmetic; comparisons, also chained; ``&``,
        ``|``, ``~``, ``and``, ``or``, ``not``; ``in (1, 2)``; ``isnan``, ``isinf``, ``isfinite``,
        ``isnull``, ``abs``, ``startswith``, ``endswith``, ``contains``, ``datetime64``,
        ``timedelta64``, ``where(condition, a, b)``, and mathematics: ``sqrt``, ``exp``, ``log``,
        ``sin``, ``floor`` and their like. Values are computed as NumPy does; a comparison with a
        null is false. A parameter such as ``@first`` stands for a value of `params`, or, without
        `params`, for the variable of this name where the method is called; it is looked up, no code
        runs. A boolean mask, with an item for each row, may stand for an expression.

        >>> import ingot
        >>> table = ingot.table({"name": ["ape", "bee", "bear"], "kg": [60.0, 1e-4, 300.0]})
        >>> table.where("startswith(name, 'b') and kg > 1")["name"]
        array(['bear'], dtype=StringDType(na_object=None))
        >>> table.where("kg in @some", params={"some": [60, 300]}).rows()
        array([0, 2])
        >>> heavy = 100
        >>> table.where("kg > @heavy").rows()
        array([2])
        """
        values = view.named_values(expression, params)
        return View(self._handle, expression, params=values, table=self)

    def explain(
        self, key: Any = ..., columns: str | Sequence[str] | None = None
    ) -> TableExplanation:
        """Return what reading some rows costs, without reading them, as a text to print.

        `key` is what NumPy takes along one axis. Columns of variable-length items are left out.

        >>> import ingot
        >>> table = ingot.table({"a": range(100), "b": range(100)}, chunks=10)
        >>> found = table.explain(slice(5, 25), "a")
        >>> found.rows, found.columns["a"].chunks
        (20, 3)
        """

        def build(state: TableState) -> TableExplanation:
            rows = view.numbered(state, slice(None) if key is ... else key)
            return explained(state, view.selected(state, columns), rows)

        return self._handle.read(build)

    def to_numpy(self) -> NDArray[np.void]:
        """Return all rows as an array of structures."""
        return View(self._handle).to_numpy()

    def to_pandas(self, *, dtype_backend: str | None = None) -> Any:
        """Return the table as a data frame of pandas; nested columns have names with dots.

        Categories, time zones and the index of a frame that the table was made of come back. With
        `dtype_backend`, "numpy_nullable" or "pyarrow", all columns have types of that kind, also
        those without nulls.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2], "b": ["x", "y"]})
        >>> table.to_pandas(dtype_backend="pyarrow").dtypes.astype(str).to_list()
        ['int64[pyarrow]', 'large_string[pyarrow]']
        """

        def build(state: TableState) -> Any:
            columns = view.gathered(state, state.leaves, range(state.rows))
            if dtype_backend is None:
                return pandas.frame(columns, state.rows)
            return pandas.indexed(pandas.of_arrow(arrow.table(columns), dtype_backend), columns)

        return self._handle.read(build)

    def to_arrow(self) -> Any:
        """Return the table as one of pyarrow; nested columns have names with dots."""
        return View(self._handle).to_arrow()

    def to_batches(self, *, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield all rows as record batches of pyarrow, a window of rows in memory at a time.

        All batches are of one state: if the table changes meanwhile, the next batch raises
        `LockedError`. `snapshot` prevents that.

        >>> import ingot
        >>> table = ingot.table({"a": range(5)})
        >>> [batch.num_rows for batch in table.to_batches(batch_rows=2)]
        [2, 2, 1]
        """
        return View(self._handle).to_batches(batch_rows=batch_rows)

    def dataset(self) -> Any:
        """Return the table as a dataset of pyarrow, which DuckDB and others query.

        They read only the columns that they ask for, and skip chunks that cannot match a filter.

        >>> import ingot
        >>> data = ingot.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}).dataset()
        >>> data.to_table(columns=["b"]).num_rows
        3
        """
        return View(self._handle).dataset()

    def sql(
        self,
        query: str,
        parameters: object = None,
        *,
        tables: Mapping[str, Any] | None = None,
        external: bool = False,
    ) -> Any:
        """Return the rows of a query in SQL, as a table of pyarrow; DuckDB runs it.

        The name of this table is ``t``; `tables` gives names to others, of Ingot or of anything
        else that DuckDB reads. `parameters` are the values of ``?`` and ``$name`` in the query. The
        query reaches no file and no network, unless `external` allows it.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2, 2], "b": [0.5, 1.5, 2.5]})
        >>> table.sql("select a, sum(b) as b from t group by a order by a").to_pydict()
        {'a': [1, 2], 'b': [0.5, 4.0]}
        """
        given = {"t": self, **(tables or {})}
        with self.snapshot():
            found = {name: _scannable(each) for name, each in given.items()}
            return duckdb.query(query, found, parameters, external=external)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return View(self._handle).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return View(self._handle).__arrow_c_schema__()

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """Return the table through the protocol of data frames, by a table of pyarrow."""
        return View(self._handle).__dataframe__(nan_as_null, allow_copy)

    def __narwhals_dataframe__(self) -> Any:
        return View(self._handle).__narwhals_dataframe__()

    def shard(self, count: int, path: Target) -> None:
        """Cut the table by rows into `count` tables at `path`, which open as one again.

        >>> import ingot
        >>> from ingot.stores import MemoryStore
        >>> shards = MemoryStore()
        >>> ingot.table({"a": [1, 2, 3, 4, 5]}, chunks=2).shard(2, shards)
        >>> ingot.open(shards).read(where="a > 3")
        {'a': array([4, 5])}
        """
        with self.snapshot():
            state = self._state
            node = TableNode(table_state.reopened_map(state))
            split(self._format, node, count, path, state.options)

    # Changing ------------------------------------------------------------------------------------

    def append(self, rows: object, *, nan_as_null: bool = False) -> None:
        """Add rows at the end: a mapping of columns, structures, a data frame, a list of rows.

        An iterator yields rows, or data frames and Arrow batches.

        Every column must be given. A value that a column cannot hold exactly is refused. None is a
        null, and so is NaN with `nan_as_null`.

        >>> import ingot
        >>> table = ingot.table({"a": [1], "b": ["x"]})
        >>> table.append([(2, "y"), (3, "z")])
        >>> table.append({"a": 4.5, "b": "!"})
        Traceback (most recent call last):
        ingot.errors.ArgumentError: column 'a' is one value, not an array of them
        >>> table["a"][:]
        array([1, 2, 3])

        A stream of Arrow batches and an iterator are read block by block. One commit adds all of
        their rows, or none if they fail or another writer commits meanwhile.
        """
        handle = self._writable()
        own = isinstance(rows, Table | View) and rows._handle.store is handle.store
        blocks = stream_of(rows.to_arrow() if own else rows)  # type: ignore[attr-defined]
        if blocks is None and isinstance(rows, Iterator):
            blocks = row_blocks(rows)
        if blocks is not None:
            self._append_each(blocks, nan_as_null=nan_as_null)
            return
        state = handle.value
        layout = view.layout_of(state)
        given = flattened(columns_of(rows, tuple(layout)))
        columns = fitted_rows(given, layout, nan_as_null=nan_as_null)
        natively = table_state.rows_change(state, columns)
        if natively is not None and handle.switch(state, *natively):
            return
        with handle.writing() as turn:
            if turn.value is not state and (now := view.layout_of(turn.value)) != layout:
                columns = fitted_rows(given, now, nan_as_null=nan_as_null)
            if any(map(len, columns.values())):
                self._commit(turn, columns, table_state.appended)
            else:
                turn.commit(turn.value, Commit())

    def _append_each(self, blocks: Iterator[Any], *, nan_as_null: bool) -> None:
        first: Any = next(blocks, [])
        second = next(blocks, None)
        if second is None:
            self.append(first, nan_as_null=nan_as_null)
            return
        with self.transaction():
            for block in chain((first, second), blocks):
                self.append(block, nan_as_null=nan_as_null)

    def appender(self, *, rows: int | None = ROWS, seconds: float | None = SECONDS) -> Appender:
        """Return an appender: it takes single rows and stores them in groups, in a ``with`` block.

        A group is stored when it has `rows` rows, when a row is added and the first has waited for
        `seconds`, and at the end of the block.

        >>> import ingot
        >>> table = ingot.table({"a": [0], "b": [0.0]})
        >>> with table.appender(rows=1000) as add:
        ...     for number in range(1, 4):
        ...         add((number, number / 2))
        >>> table["b"][:]
        array([0. , 0.5, 1. , 1.5])
        """
        self._writable()
        return Appender(self.append, rows=rows, seconds=seconds)

    def update(
        self,
        where: object,
        values: Mapping[str, Any],
        *,
        params: Mapping[str, Any] | None = None,
        nan_as_null: bool = False,
    ) -> int:
        """Set columns in some rows; return the number of rows.

        `where` is an expression, in which `params` has the values of parameters such as ``@first``,
        or a key of rows; a value is one for all rows, or one for each. None is a null, and so is
        NaN with `nan_as_null`.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2, 3], "b": [10, 20, 30]})
        >>> table.update("a >= 2", {"b": [0, 1]}), table["b"][:]
        (2, array([10,  0,  1]))
        >>> table.update("a == @this", {"b": 7}, params={"this": 1}), table["b"][0]
        (1, np.int64(7))
        """
        handle = self._writable()
        given = flattened(columns_of(values), leaves=handle.value.leaves)
        layout = handle.read(lambda state: view.layout_of(state, tuple(given)))
        items = fitted_values(given, layout, nan_as_null=nan_as_null)
        key = view.evaluated(where, view.named_values(where, params))
        with handle.writing() as turn:
            rows = view.numbered(turn.value, key)
            now = view.layout_of(turn.value, tuple(given))
            if now != layout:
                items = fitted_values(given, now, nan_as_null=nan_as_null)
            columns = {name: spread(items[name], len(rows), now[name], name) for name in items}
            if len(rows):
                change = partial(table_state.assigned, rows=view.key_of(rows))
                self._commit(turn, columns, change)
            else:
                turn.commit(turn.value, Commit())
            return len(rows)

    def delete(self, where: object, *, params: Mapping[str, Any] | None = None) -> int:
        """Remove some rows, by an expression or a key; return their number.

        `params` has the values of parameters of the expression, such as ``@first``.

        The rows behind them move up: all rows after the first removed one are written again.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2, 3, 4]})
        >>> table.delete("a % 2 == 0"), table["a"][:]
        (2, array([1, 3]))
        """
        handle, key = self._writable(), view.evaluated(where, view.named_values(where, params))
        with handle.writing() as turn:
            rows = np.asarray(view.numbered(turn.value, key), np.int64)
            if bool((rows[1:] <= rows[:-1]).any()):
                rows = np.unique(rows)
            turn.commit(*table_state.deleted(turn.value, rows))
            return len(rows)

    def resize(self, rows: int) -> None:
        """Change the number of rows; new ones hold the fill values of their columns.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2, 3]})
        >>> table.resize(2)
        >>> table.resize(4)
        >>> table["a"][:]
        array([1, 2, 0, 0])
        """
        if (count := _whole(rows)) < 0:
            raise ArgumentError(f"rows is {rows}, at least 0 is needed")
        with self._writable().writing() as turn:
            turn.commit(*table_state.resized(turn.value, count))

    def compact(self) -> None:
        """Write files that have dead bytes anew, of all columns; only blsk has them.

        It is one commit.

        >>> import ingot
        >>> table = ingot.table({"a": [3, 1, 2]}, format="blsk")
        >>> table.update("a == 1", {"a": 1000})
        1
        >>> table.compact()
        """
        with self._writable().writing() as turn:
            turn.commit(*table_state.compacted(turn.value))

    def __setitem__(self, key: Any, values: Any) -> None:
        if isinstance(key, str):
            self._set_column(key, values)
        elif isinstance(values, Mapping):
            self.update(key, values)
        elif isinstance(key, int | np.integer) and isinstance(values, tuple | list):
            self.update(key, columns_of([values], self._state.leaves))
        else:
            self.update(key, columns_of(values, self._state.leaves))

    def __delitem__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"del takes the name of a column, not {name!r}; delete removes rows"
            )
        self.drop_column(name)

    def _set_column(self, name: str, values: Any) -> None:
        """Set all items of a column; a new name adds a column."""
        state = self._state
        leaves = state.leaves
        if name in leaves or any(leaf.startswith(f"{name}.") for leaf in leaves):
            self.update(slice(None), {name: values})
            return
        if not isinstance(values, Mapping) and np.ndim(values) == 0 and not is_null(values):
            values = np.full(state.rows, values)
        self.add_column(name, values)

    def add_column(
        self,
        name: str,
        values: Any,
        *,
        position: int | None = None,
        chunks: int | str = "auto",
        codec: Codec = None,
        fill: object = 0,
        attrs: Mapping[str, object] | None = None,
        nan_as_null: bool = False,
    ) -> None:
        """Add a column, at the end or at a position; a mapping makes a nested table.

        The name "a.b" adds a column to the nested table "a".

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2]})
        >>> table.add_column("b", ["x", "y"], position=0)
        >>> table.names
        ('b', 'a')
        """
        owner, name = self._owner(name)
        columns = arrays_of(
            {name: values}, ragged=Kind.RAGGED in self._format.holds, nan_as_null=nan_as_null
        )
        if not columns:
            raise ArgumentError(f"column {name!r} would be a table without columns")
        with owner._writable().writing() as turn:
            state = turn.value
            check_lengths(columns, state.rows if state.names else None)
            spec = ColumnSpec(chunks, codec, fill, attrs, state.options)
            schema = spec.schema(self._format, columns)
            nulls = schema.get(valid_name(name))
            hidden = nulls if isinstance(nulls, ArraySchema) else None
            stored, notes = table_state.plain_values(columns)
            turn.commit(
                *table_state.added(state, name, schema[name], stored, position, hidden, notes)
            )

    def drop_column(self, name: str) -> None:
        """Remove a column; the name "a.b" is for a column of the nested table "a".

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2], "b": [3, 4]})
        >>> table.drop_column("a")
        >>> table.names
        ('b',)
        """
        owner, own = self._owner(name)
        with owner._writable().writing() as turn:
            turn.commit(*table_state.dropped(turn.value, own))

    def retype(self, name: str, dtype: DTypeLike) -> None:
        """Give a column another type that holds all of its values, in one commit.

        "utf8" and "bytes" are text and bytes of any length. A change that could lose a part of a
        value is refused: of numbers to a type that has less room, of text to a fixed width that is
        shorter, of numbers to text.

        >>> import ingot
        >>> table = ingot.table({"name": np.array(["Oslo"]), "height": np.array([94], "i2")})
        >>> table.retype("name", "utf8")
        >>> table.append({"name": ["Trondheim"], "height": [100]})
        >>> table.retype("height", "int64")
        >>> list(table["name"]), table["height"].dtype
        (['Oslo', 'Trondheim'], dtype('int64'))
        """
        owner, own = self._owner(name)
        with owner._writable().writing() as turn:
            state = turn.value
            if own not in state.leaves:
                raise ColumnError(f"there is no column {name!r} that holds values")
            old = state.schema(own)
            values = retyped_values(view.gathered(state, [own], slice(None))[own], dtype, name)
            if values is None:
                return
            spec = ColumnSpec(codec=_same_codec(old, values), attrs=dict(old.attrs))
            schema = spec.schema(self._format, {own: values})
            nulls = schema.get(valid_name(own))
            hidden = nulls if isinstance(nulls, ArraySchema) else None
            stored, notes = table_state.plain_values({own: values})
            note = replace(state.notes.get(own, PLAIN), type=notes.get(own, PLAIN).type)
            turn.commit(*table_state.retyped(state, own, schema[own], stored, hidden, note))

    def rename_column(self, old: str, new: str) -> None:
        """Give a column another name; its place among the others stays.

        A column of a nested table, "a.b", gets another name there: "a.c".

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2], "b": [3, 4]})
        >>> table.rename_column("a", "c")
        >>> table.names
        ('c', 'b')
        """
        owner, own = self._owner(old)
        outer = old.removesuffix(own)
        if not new.startswith(outer):
            raise ArgumentError(f"{old!r} stays in its table, which has no column {new!r}")
        with owner._writable().writing() as turn:
            turn.commit(*table_state.renamed(turn.value, own, new.removeprefix(outer)))

    # State and display ---------------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes in a block, of any columns.

        The same thread reads its changes inside the block; all other readers see them at the end,
        and none of them after an exception. If another writer has committed since the block began,
        the end raises `LockedError` and changes nothing.

        >>> import ingot
        >>> table = ingot.table({"a": [1, 2]})
        >>> with table.transaction():
        ...     table.append({"a": [3]})
        ...     table["a"][0] = len(table)
        >>> table["a"][:]
        array([3, 2, 3])
        """
        self._writable()
        return self._whole.transaction()

    @property
    def info(self) -> Info:
        """The properties of the table, as a table to print."""
        head = f"{self.format}, mode {self._mode}"
        return self._handle.read(
            lambda state: view.info_of(state, self._path, head, self._unfinished)
        )

    def __repr__(self) -> str:
        try:
            state = self._state
        except ValueError:
            return "<ingot.Table, closed>"
        names = ", ".join(state.names) or "no columns"
        rows = f"{state.rows} row{'' if state.rows == 1 else 's'}"
        return f"<ingot.Table of {rows}: {names}; {self.format} {self._where}, {self._mode}>"

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._state
        if self._handle is not self._whole:
            raise UnsupportedError("a nested table is pickled with the table that it is part of")
        place = self._whole.store, state.table.path, self._path
        return _reopened, (self._format, *place, self._mode, state.options)

    @property
    def _state(self) -> TableState:
        return self._handle.value

    def _column(self, name: str) -> "TableColumn | DecodedColumn | Ragged | Table":
        state = self._state
        place = None if self._path is None else f"{self._path}/{name.replace('.', '/')}"
        if state.within(name) == (name,):
            if isinstance(state.schema(name), RaggedSchema):
                items = table_state.items_handle(self._handle, name)
                return Ragged(self._format, items, path=place, mode=self._mode)
            settings: Any = {"path": place, "mode": self._mode, "owner": self}
            stored = TableColumn(self._format, self._handle, name, **settings)
            kind = state.logical_types.get(name)
            if isinstance(kind, CategoryType):
                return CategoryColumn(stored, self._handle, self, name)
            return (
                DecodedColumn(stored, self._handle, self, name)
                if isinstance(kind, DecimalType)
                else stored
            )
        nested = table_state.nested_handle(self._handle, name)
        return Table(self._format, self._whole, path=place, mode=self._mode, part=nested)

    def _owner(self, name: str) -> "tuple[Table, str]":
        """Return the table, perhaps a nested one, that a column belongs to, and its name there."""
        outer, _, last = name.rpartition(".")
        if name in self.names:
            return self, name
        if not all(name.split(".")):
            raise ArgumentError(f"{name!r} cannot be the name of a column")
        if not outer:
            return self, name
        owner = self._column(outer) if all(name.split(".")) else None
        if not isinstance(owner, Table):
            raise ColumnError(f"{outer!r} is not a nested table, and has no column {last!r}")
        return owner, last

    def _commit(
        self,
        turn: HandleTurn[TableState],
        columns: Mapping[str, Any],
        change: Callable[..., TableChange],
    ) -> None:
        """Commit a change of columns; those that get their first nulls get a place for them."""
        state = turn.value
        stored, notes = table_state.separated(state, columns)

        def changed(state: TableState) -> TableChange:
            return table_state.with_notes(state, change(state, columns=stored), notes)

        lacking = table_state.lacking_nulls(state, stored)
        if not lacking:
            turn.commit(*changed(state))
            return
        design = partial(_validity_schema, self._format, state.options)
        made = table_state.with_first_nulls(state, lacking, design, changed)
        turn.commit(*made, again=True)

    @contextmanager
    def _describing(self) -> Iterator[dict[str, Any]]:
        with self._writable().writing() as turn:
            attrs = dict(turn.value.attrs)
            yield attrs
            turn.commit(*table_state.described(turn.value, attrs))


def _scannable(table: Any) -> Any:
    """Return what DuckDB scans: other threads than that of a transaction do not see its changes."""
    if isinstance(table, Table):
        return table.to_arrow() if table._whole.is_inside() else table.dataset()
    return table.dataset() if isinstance(table, View) else table


def _validity_schema(format: Format, options: Options, schema: ArraySchema) -> ArraySchema:
    return validity_schema(format, schema, options)


def _reopened(
    format: Format, store: Store, inner: str, path: str | None, mode: Mode, options: Options
) -> Table:
    return Table(
        format, table_state.table_handle(format, store, inner, options), path=path, mode=mode
    )


def _same_codec(old: ArraySchema | RaggedSchema, values: Values) -> Codec:
    """Return the codec of a column for values of another type; None for the default one."""
    stages = old.codec.stages if isinstance(old, RaggedSchema) else old.codec
    if len(stages) != 1 or not isinstance(stages[0], Blosc):
        return None
    if isinstance(values, LogicalArray):
        values = values.values
    plain = isinstance(values, RaggedArray) and values.kind.item is None
    stage = Blosc(stages[0].cname, stages[0].clevel)
    return [replace(stage, shuffle=0) if plain else stage]


def _count(rows: int) -> int:
    """Return a number of rows, which may be more than there are; negative ones are none."""
    return max(0, _whole(rows))


def _whole(rows: int) -> int:
    try:
        return operator.index(rows)
    except TypeError:
        raise ArgumentTypeError(f"rows is {rows!r}, not a whole number") from None
