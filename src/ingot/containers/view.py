"""Views: some rows and columns of a table, found when they are read."""

import dataclasses
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from ingot.containers import table_state
from ingot.containers.batches import read_batches
from ingot.containers.display import Info, table_info, view_info
from ingot.containers.handle import HandleProtocol
from ingot.containers.ingest import ColumnType, Layout, row_dtype, rows_of
from ingot.containers.table_explanation import TableExplanation, candidate_rows, explained
from ingot.containers.table_state import ColumnValues, TableState, annotated
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentTypeError,
    ColumnError,
    IngotError,
    SelectionError,
    UnknownNameError,
    UnsupportedError,
)
from ingot.interop import arrow, arrow_dataset, narwhals, pandas
from ingot.interop.arrow import BATCH_ROWS
from ingot.logical_types import LogicalArray, LogicalKind, decoded, decoded_dtype
from ingot.logical_types import spelled as spelled_type
from ingot.nullable_array import NullableArray
from ingot.query import search
from ingot.query.expr import Combine, Expression, column_names, spelled
from ingot.query.parse import parameters, parse
from ingot.query.search import Rows
from ingot.schema import ArraySchema, RaggedSchema
from ingot.selection import evaluated as evaluated_key

__all__ = [
    "View",
    "ViewSource",
    "as_mask",
    "gathered",
    "info_of",
    "key_of",
    "layout_of",
    "named_values",
    "numbered",
    "parsed",
    "read",
    "selected",
    "structures",
    "types_of",
]

Where = str | Expression | None

_BLOCK_ROWS: Final = 65_536
_SHOWN_ROWS: Final = 5


_ELSEWHERE: Final = {
    **dict.fromkeys(("query", "filter"), "where"),
    **dict.fromkeys(("head", "tail", "iloc", "loc", "tolist", "values"), "read() or to_numpy()"),
    **dict.fromkeys(("update", "delete"), "table.update or table.delete, with the condition"),
    "columns": "names",
    "to_polars": "polars.DataFrame(view), or to_pandas()",
}
"""Names that other libraries and tables have, with what to use instead."""


class View:
    """Some rows and columns of a table, found and read by each call.

    Made by `Table.where` and by a list of names. A view holds no rows: each call finds them again,
    in one committed state of the table.

    >>> import ingot
    >>> table = ingot.table({"a": [1, 2, 3, 4], "b": [10.0, 20.0, 30.0, 40.0]})
    >>> view = table.where("(a > 1) & (b < 40)")
    >>> len(view), view["b"], view.rows()
    (2, array([20., 30.]), array([1, 2]))
    >>> view.read()
    {'a': array([2, 3]), 'b': array([20., 30.])}
    """

    __slots__ = ("_columns", "_expression", "_handle", "_mask", "_table")

    def __init__(
        self,
        handle: HandleProtocol[TableState],
        expression: "Where | NDArray[np.bool_]" = None,
        columns: Sequence[str] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        mask: NDArray[np.bool_] | None = None,
        table: Any = None,
    ) -> None:
        self._handle = handle
        given = as_mask(expression)
        self._expression = parsed(expression, params) if given is None else None
        self._mask = given if mask is None else (mask if given is None else mask & given)
        self._columns = None if columns is None else tuple(columns)
        # For pickling alone: it holds the place of the data.
        self._table = table
        handle.read(self._check)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise the error for a name that does not exist; type checkers find it themselves."""
            hint = f"; use {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            raise UnknownNameError(
                f"ingot.View has no attribute {name!r}{hint}", name=name, obj=self
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, those of nested tables as "a.b"."""
        return self._handle.read(self._names)

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The type of a row."""
        return self._handle.read(lambda state: rows_of({}, self._layout(state), 0).dtype)

    def count(self) -> int:
        """Count the rows; only the columns of the expression are read."""
        return self._handle.read(self._count)

    def __len__(self) -> int:
        return self.count()

    def rows(self) -> NDArray[np.int64]:
        """Return the numbers of the rows in the table, ascending."""
        found = self._handle.read(self._rows)
        return np.arange(found.start, found.stop) if isinstance(found, range) else found

    def read(
        self, columns: str | Sequence[str] | None = None, *, rows: object = None
    ) -> dict[str, NDArray[Any]]:
        """Return the values of all columns, or of some.

        `rows` is a key of rows of the table; of these, the rows in the view are read, in the order
        of the key.

        >>> import ingot
        >>> ingot.table({"a": [1, 2, 3]}).where("a > 1").read(rows=[2, 0, 1])
        {'a': array([3, 2])}
        """
        return self._handle.read(lambda state: self._read(state, columns, rows))

    def __getitem__(self, key: Any) -> Any:
        """Return a column, a view of some columns, or rows as structures, counted in the view.

        >>> import ingot
        >>> view = ingot.table({"a": [1, 2, 3, 4]}).where("a > 1")
        >>> view["a"], view[-1].tolist(), view[:2].tolist()
        (array([2, 3, 4]), (4,), [(2,), (3,)])
        """
        if isinstance(key, str):
            found: dict[str, Any] = self.read(key)
            return found.get(key, found)
        if isinstance(key, list | tuple) and key and all(isinstance(name, str) for name in key):
            return View(self._handle, self._expression, key, mask=self._mask, table=self._table)

        def build(state: TableState) -> Any:
            rows = self._rows(state)
            chosen = table_state.numbered(evaluated_key(key), len(rows))
            numbers = np.asarray(rows, np.int64)[key_of(chosen)]
            found = self._structures(numbers, state)
            return found[0] if isinstance(key, int | np.integer) else found

        return self._handle.read(build)

    def explain(self) -> TableExplanation:
        """Return what reading the view costs at most, without reading a row of it.

        Rows that zone maps rule out cost nothing; whether the others match is not known before
        they are read. The columns are those of the expression and of the view.

        >>> import ingot
        >>> table = ingot.table({"a": range(100), "b": range(100)}, chunks=10)
        >>> found = table.where("a >= 95")[["b"]].explain()
        >>> found.rows, list(found.columns), found.columns["b"].chunks
        (10, ['a', 'b'], 1)
        """

        def build(state: TableState) -> TableExplanation:
            asked = () if self._expression is None else column_names(self._expression)
            names = dict.fromkeys((*asked, *self._names(state)))
            rows = candidate_rows(state, self._expression, self._mask)
            return explained(state, tuple(names), rows)

        return self._handle.read(build)

    def where(
        self, expression: "Where | NDArray[np.bool_]", *, params: Mapping[str, Any] | None = None
    ) -> "View":
        """Return a view of the rows of this one for which an expression is true.

        A boolean mask has an item for each row of the table. Parameters such as ``@x`` are as those
        of `ingot.Table.where`.

        >>> import ingot
        >>> ingot.table({"a": [1, 2, 3, 4]}).where("a > 1").where("a < @x", params={"x": 4})["a"]
        array([2, 3])
        """
        given, mask = as_mask(expression), self._mask
        if given is not None:
            mask = given if mask is None else mask & given
            both = self._expression
        else:
            both = parsed(expression, named_values(expression, params))
            if self._expression is not None and both is not None:
                both = Combine("and", (self._expression, both))
        return View(self._handle, both, self._columns, mask=mask, table=self._table)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._table is None:
            raise UnsupportedError("this view knows no table, and cannot be pickled")
        return _view_of, (self._table, self._expression, self._columns, self._mask)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.names)

    def __iter__(self) -> Iterator[np.void]:
        """Iterate over the rows as structures; the rows are found once, at the beginning."""
        pandas.refuse_constructor(sys._getframe(1), "to_pandas()")
        return self._iterated()

    def _iterated(self) -> Iterator[np.void]:
        found = self._handle.read(self._rows)
        for start in range(0, len(found), _BLOCK_ROWS):
            yield from self._handle.read(
                partial(self._structures, found[start : start + _BLOCK_ROWS])
            )

    def to_numpy(self) -> NDArray[np.void]:
        """Return the rows as an array of structures.

        >>> import ingot
        >>> ingot.table({"a": [1, 2]}).where("a > 1").to_numpy()
        array([(2,)], dtype=[('a', '<i8')])
        """
        return self._handle.read(lambda state: self._structures(self._rows(state), state))

    def to_pandas(self, *, dtype_backend: str | None = None) -> Any:
        """Return the rows as a data frame of pandas; their numbers are its index.

        Where the table was made of a frame with an index of its own, this is the index. With
        `dtype_backend`, "numpy_nullable" or "pyarrow", all columns have types of that kind.
        """

        def build(state: TableState) -> Any:
            rows = self._rows(state)
            columns = gathered(state, self._names(state), rows)
            if dtype_backend is None:
                return pandas.frame(columns, len(rows), rows)
            made = pandas.of_arrow(arrow.table(columns), dtype_backend)
            made.index = np.asarray(rows)
            return pandas.indexed(made, columns)

        return self._handle.read(build)

    def to_arrow(self) -> Any:
        """Return the rows as a table of pyarrow."""
        return self._handle.read(
            lambda state: arrow.table(gathered(state, self._names(state), self._rows(state)))
        )

    def to_batches(self, *, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield the rows as record batches of pyarrow, a window of rows in memory at a time.

        All batches are of one state of the table: if it changes meanwhile, the next batch raises
        `LockedError`. `snapshot` prevents that.

        >>> import ingot
        >>> view = ingot.table({"a": [1, 2, 3, 4, 5]}).where("a > 1")
        >>> [batch.num_rows for batch in view.to_batches(batch_rows=3)]
        [3, 1]
        """
        names = self.names
        return self._batches(names, self._schema(names), batch_rows)

    def dataset(self) -> Any:
        """Return the rows as a dataset of pyarrow, which DuckDB and others query.

        They read only the columns that they ask for, and skip chunks that cannot match a filter.

        >>> import ingot
        >>> ingot.table({"a": [1, 2, 3]}).where("a > 1").dataset().count_rows()
        2
        """
        return arrow_dataset.dataset(ViewSource(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        names = self.names
        schema = arrow.requested(self._schema(names), requested_schema)
        return arrow.stream_capsule(arrow.reader(schema, self._batches(names, schema)))

    def __arrow_c_schema__(self) -> object:
        return arrow.schema_capsule(self._schema(self.names))

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """Return the rows through the protocol of data frames, by a table of pyarrow."""
        return self.to_arrow().__dataframe__(nan_as_null, allow_copy)

    def __narwhals_dataframe__(self) -> Any:
        return narwhals.compliant_frame(self.to_arrow())

    def _schema(self, names: Sequence[str]) -> Any:
        """Return the schema of Arrow of some columns."""
        return arrow.schema(self._handle.read(lambda state: layout_of(state, names)))

    def _batches(
        self, names: Sequence[str], schema: Any, batch_rows: int = BATCH_ROWS
    ) -> Iterator[Any]:
        settings: Any = {"batch_rows": batch_rows, "mask": self._mask}
        found = read_batches(self._handle, names, self._expression, **settings)
        return (arrow.batch(columns, schema) for columns in found)

    def __repr__(self) -> str:
        return f"<ingot.View of {', '.join(self.names)} where {self._condition}>"

    def _repr_html_(self) -> str:
        def build(state: TableState) -> Info:
            rows, names = self._rows(state), self._names(state)
            first = gathered(state, names, rows[:_SHOWN_ROWS])
            kinds = {name: _kind_of(state.schema(name)) for name in first}
            return view_info(self._condition, len(rows), kinds, first)

        return self._handle.read(build)._repr_html_()

    @property
    def _condition(self) -> str:
        text = "all rows" if self._expression is None else spelled(self._expression)
        if self._mask is not None:
            text += f" and a mask of {np.count_nonzero(self._mask)} rows"
        return text

    def _check(self, state: TableState) -> None:
        self._names(state)
        if self._expression is not None:
            search.check(state, self._expression)
        self._check_mask(state)

    def _check_mask(self, state: TableState) -> None:
        if self._mask is not None and len(self._mask) != state.rows:
            raise SelectionError(
                f"a mask of {len(self._mask)} items for a table of {state.rows} rows"
            )

    def _names(self, state: TableState) -> tuple[str, ...]:
        return selected(state, self._columns)

    def _layout(self, state: TableState) -> Layout:
        return layout_of(state, self._names(state))

    def _rows(self, state: TableState) -> Rows:
        found: Rows = range(state.rows)
        if self._expression is not None:
            found = search.find(state, self._expression)
        if self._mask is None:
            return found
        self._check_mask(state)
        numbers = np.asarray(found, np.int64)
        return numbers[self._mask[numbers]]

    def _count(self, state: TableState) -> int:
        if self._mask is not None:
            return len(self._rows(state))
        if self._expression is None:
            return state.rows
        return search.count(state, self._expression)

    def _structures(self, rows: Rows, state: TableState) -> NDArray[np.void]:
        return structures(state, self._names(state), rows)

    def _read(
        self, state: TableState, columns: str | Sequence[str] | None, rows: object
    ) -> dict[str, NDArray[Any]]:
        own = self._names(state)
        chosen = own if columns is None else selected(state, columns)
        for name in chosen:
            if name not in own:
                raise ColumnError(f"there is no column {name!r} in this view")
        return read(state, chosen, self._rows(state) if rows is None else self._among(state, rows))

    def _among(self, state: TableState, rows: object) -> Rows:
        chosen = numbered(state, rows)
        if self._expression is None and self._mask is None:
            return chosen
        numbers = np.asarray(chosen)
        return numbers[np.isin(numbers, np.asarray(self._rows(state)))]


class ViewSource:
    """A view as doors to other libraries read it: an `ingot.interop.arrow_dataset.BatchSource`."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def layout(self) -> Layout:
        """Return the types of the columns."""
        view = self._view
        return view._handle.read(view._layout)

    def read_batches(
        self, names: Sequence[str], expression: Expression | None, *, batch_rows: int
    ) -> Iterator[dict[str, ColumnValues]]:
        """Yield the values of columns, in rows of the view that can match; the caller filters."""
        view = self._view
        settings: Any = {"mask": view._mask, "loose": view._expression is None}
        joined = self._joined(expression)
        return read_batches(view._handle, names, joined, batch_rows=batch_rows, **settings)

    def windows(self, expression: Expression | None, nbytes: int) -> list[range]:
        """Return ranges of rows that can match, cut at chunks into about `nbytes`."""
        view = self._view
        return view._handle.read(
            lambda state: list(
                search.windows(state, self._joined(expression), view._names(state), nbytes)
            )
        )

    def read_rows(
        self, names: Sequence[str], expression: Expression | None, rows: range
    ) -> tuple[Rows, dict[str, ColumnValues]] | None:
        """Return the rows of a range that match, and their values; None if it ends too late."""

        def read(state: TableState) -> tuple[Rows, dict[str, ColumnValues]] | None:
            if rows.stop > state.rows:
                return None
            found = search.find_within(state, self._joined(expression), rows)
            return found, gathered(state, names, found)

        return self._view._handle.read(read)

    def _joined(self, expression: Expression | None) -> Expression | None:
        own = self._view._expression
        if own is None or expression is None:
            return expression if own is None else own
        return Combine("and", (own, expression))


def _view_of(
    table: Any,
    expression: Expression | None,
    columns: tuple[str, ...] | None,
    mask: NDArray[np.bool_] | None,
) -> View:
    """Return a view that was pickled with its table."""
    return View(table._handle, expression, columns, mask=mask, table=table)


def named_values(where: object, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the values of the parameters of an expression, for a method that a user calls.

    Without `params` they are the variables with these names where the method is called: local ones
    first, then those of the module. They are looked up by name; no code runs.

    >>> def method(where, params=None):
    ...     return named_values(where, params)
    >>> most = 7
    >>> method("a < @most"), method("a < 7"), method("a < @most", {"most": 1})
    ({'most': 7}, None, {'most': 1})
    >>> method("a < @least")
    Traceback (most recent call last):
    ingot.errors.SelectionError: 'a < @least': there is no variable 'least' where the expression is
    used, and no params with its value
    """
    if params is not None or not isinstance(where, str) or "@" not in where:
        return params
    caller = sys._getframe(2)
    scope = ChainMap(caller.f_locals, caller.f_globals)
    names = parameters(where)
    for name in names:
        if name not in scope:
            raise SelectionError(
                f"{where!r}: there is no variable {name!r} where the expression is used, "
                "and no params with its value"
            )
    return {name: scope[name] for name in names}


def parsed(expression: Any, params: Mapping[str, Any] | None = None) -> Expression | None:
    """Return an expression that may have been given as text, with values for its parameters.

    >>> parsed("a < @most", {"most": 1}).right
    Literal(value=1)
    """
    if isinstance(expression, str):
        return parse(expression, params)
    if params is not None:
        raise ArgumentTypeError("parameters are for an expression that is given as text")
    if expression is not None and not dataclasses.is_dataclass(expression):
        raise ArgumentTypeError(
            f"rows are chosen by an expression or a boolean mask, not by {expression!r}"
        )
    return cast(Expression | None, expression)


def as_mask(value: object) -> NDArray[np.bool_] | None:
    """Return a boolean mask of rows as an array; None for anything else.

    >>> as_mask([True, False]), as_mask("a > 1")
    (array([ True, False]), None)
    """
    if value is None or isinstance(value, str) or dataclasses.is_dataclass(value):
        return None
    if not isinstance(value, np.ndarray | list | tuple) and not hasattr(value, "__array__"):
        return None
    found = np.asarray(value)
    if found.ndim != 1 or (found.dtype != np.bool_ and len(found)):
        raise SelectionError(
            f"a mask has one boolean for each row, not {found.dtype} {found.shape}"
        )
    return found.astype(np.bool_)


def selected(state: TableState, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that names stand for; None for all of them."""
    if columns is None:
        return state.leaves
    names = (columns,) if isinstance(columns, str) else columns
    found = [leaf for name in names for leaf in state.within(name)]
    return tuple(dict.fromkeys(found))


def layout_of(state: TableState, names: Sequence[str] | None = None) -> Layout:
    """Return the types of all columns, or of some, and the shapes of their items."""
    found: dict[str, ColumnType] = {}
    types = state.logical_types
    for name in selected(state, names):
        schema = state.schema(name)
        if isinstance(schema, RaggedSchema):
            found[name] = schema.kind
        elif name in types:
            found[name] = LogicalKind(schema.dtype, schema.shape[1:], types[name])
        else:
            found[name] = schema.dtype, schema.shape[1:]
    return found


def read(state: TableState, names: Sequence[str], rows: Rows | slice) -> dict[str, NDArray[Any]]:
    """Return the values of columns in some rows, as arrays; columns with nulls are masked."""
    columns = gathered(state, names, rows)
    return {name: _as_array(values) for name, values in columns.items()}


def _as_array(values: ColumnValues) -> NDArray[Any]:
    if isinstance(values, LogicalArray):
        values = decoded(values)
    if isinstance(values, np.ndarray):
        return values
    found: NDArray[Any] = (
        values.masked() if isinstance(values, NullableArray) else values.to_numpy()
    )
    return found


def gathered(
    state: TableState, names: Sequence[str], rows: Rows | slice
) -> dict[str, ColumnValues]:
    """Return the values of columns in some rows; variable-length items stay in buffers."""
    return annotated(state, {name: search.gather(state, name, rows) for name in names})


def structures(state: TableState, names: Sequence[str], rows: Rows) -> NDArray[np.void]:
    """Return some rows as an array of structures."""
    return rows_of(read(state, names, rows), layout_of(state, names), len(rows))


def key_of(rows: Rows) -> slice | NDArray[np.int64]:
    """Return rows as a key of NumPy's kind.

    >>> key_of(range(3, -1, -1))
    slice(3, None, -1)
    """
    if not isinstance(rows, range):
        return rows
    # Going down past the first row, a stop of -1 would mean the last one.
    return slice(rows.start, rows.stop if rows.stop >= 0 else None, rows.step)


def evaluated(where: object, params: Mapping[str, Any] | None = None) -> object:
    """Return an expression or a key of rows, so that its own code runs before a lock is taken.

    `params` has the values of parameters of an expression.
    """
    if isinstance(where, str) or params is not None:
        return parsed(where, params)
    return where if dataclasses.is_dataclass(where) else evaluated_key(where)


def numbered(state: TableState, where: object) -> Rows:
    """Return the rows that an expression or a key of NumPy's kind stands for, in its order."""
    if isinstance(where, str):
        where = parse(where)
    if dataclasses.is_dataclass(where):
        return search.find(state, cast(Expression, where))
    return table_state.numbered(where, state.rows)


def info_of(state: TableState, path: str | None, head: str, unfinished: bool = False) -> Info:
    """Return the properties of a table, its first rows included; unreadable ones are masked."""
    schemas = {name: state.schema(name) for name in state.leaves}
    rows = range(min(state.rows, _SHOWN_ROWS))
    first: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name in state.leaves:
        try:
            first.update(read(state, [name], rows))
        except IngotError as error:
            first[name] = np.ma.MaskedArray(np.empty(len(rows), object), mask=True)
            unreadable[name] = str(error).partition("\n")[0]
    facts = schemas, state.stored(), first, state.attrs, state.free(), unfinished
    # Annotations that cannot be read leave every column unreadable.
    types = {} if unreadable else state.logical_types
    meanings = {name: spelled_type(kind) for name, kind in types.items()}
    return table_info(path, head, state.rows, *facts, unreadable, meanings)


def _kind_of(schema: ArraySchema | RaggedSchema) -> object:
    return schema.kind if isinstance(schema, RaggedSchema) else schema.dtype


def types_of(state: TableState) -> dict[str, DType]:
    """Return the type of each column; that of a nested table is a structure."""
    found: dict[str, DType] = {}
    for name in state.names:
        leaves = state.within(name)
        if leaves == (name,):
            kind = layout_of(state, leaves)[name]
            plain = state.schema(name).dtype
            found[name] = decoded_dtype(kind)[0] if isinstance(kind, LogicalKind) else plain
        else:
            found[name] = row_dtype(layout_of(state, leaves))[name]
    return found
