"""A column of a table as an array; a column with nulls reads as a masked array.

The values lie in one array, and the booleans that say which of them exist in another, which is made
with the first null. Both are read in one state of the table and change in one commit.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot._lazy import deferred
from ingot.containers import table_state
from ingot.containers.array import Array, OrthogonalIndex
from ingot.containers.create import validity_schema
from ingot.containers.dataset import Mode
from ingot.containers.handle import HandleProtocol
from ingot.containers.ingest import fitted, is_null
from ingot.containers.reductions import Source
from ingot.containers.table_state import TableChange, TableState
from ingot.engine.run import Engine
from ingot.errors import ArgumentError, UnsupportedError
from ingot.formats.format import Format
from ingot.grid import ChunkGrid
from ingot.nullable_array import NullableArray
from ingot.schema import ArraySchema
from ingot.selection import evaluated, parse, parse_orthogonal

if TYPE_CHECKING:
    from ingot.device.device import Device
    from ingot.engine import device as devices
else:
    devices = deferred("ingot.engine.device")

__all__ = ["TableColumn"]


class TableColumn(Array):
    """One column of a table.

    Without nulls it is an array like any other. With nulls, reading gives masked arrays of NumPy;
    None and masked items may be assigned; reductions leave nulls out.

    >>> import ingot
    >>> table = ingot.table({"a": [1, 2, 3]})
    >>> table["a"][1] = None
    >>> table["a"][:], table["a"].sum()
    (masked_array(data=[1, --, 3], mask=[False,  True, False], fill_value=999999), np.int64(4))
    """

    __slots__ = ("_name", "_owner", "_table")

    def __init__(
        self,
        format: Format,
        table: HandleProtocol[TableState],
        name: str,
        *,
        path: str | None,
        mode: Mode,
        owner: Any,
    ) -> None:
        super().__init__(format, table_state.column_handle(table, name), path=path, mode=mode)
        self._table = table
        self._name = name
        self._owner = owner

    def _not_compared(self, sign: str) -> str:
        rows = f'table.where("{self._name} {sign} @value")'
        return f"a column is not compared with values; use {rows}, or column[...] {sign} value"

    @property
    def has_nulls(self) -> bool:
        """Whether an item is null.

        >>> import ingot
        >>> table = ingot.table({"a": [1, None], "b": [1, 2]})
        >>> table["a"].has_nulls, table["b"].has_nulls
        (True, False)
        """
        found: bool = self._read(lambda engine, valid: valid is not None and not _all(valid))
        return found

    def __getitem__(self, key: Any) -> Any:
        return self._selected_items(key, parse)

    def read(self, key: Any = ..., *, out: Any = None, device: "str | Device | None" = None) -> Any:
        """Return what ``column[key]`` does, or fill `out`, which has its shape and type.

        The items of a column with nulls fit only a masked array, and no array of a device.
        """
        if device is not None:
            return super().read(key, out=out, device=device)
        if out is None or self._read(lambda engine, valid: valid is None):
            return super().read(key, out=out)
        if not isinstance(out, np.ma.MaskedArray):
            raise ArgumentError(f"column {self._name!r} has nulls: out must be a masked array")
        out[...] = self[key]
        return out

    def _read_onto(self, device: "Device", key: Any, out: Any) -> Any:
        def read(engine: Engine, valid: Engine | None) -> Any:
            if valid is not None and not _all(valid):
                raise UnsupportedError(
                    f"column {self._name!r} has nulls, which an array of a device cannot express"
                )
            return devices.read(engine, device, key, out)

        return self._read(read)

    @property
    def oindex(self) -> OrthogonalIndex:
        """The same column with keys that select along every axis on its own."""
        return OrthogonalIndex(
            lambda key: self._selected_items(key, parse_orthogonal),
            lambda key, value: self._set(key, value, parse_orthogonal),
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ArgumentError("an ingot.Array becomes a NumPy array only by a copy")
        found = self[...]
        if isinstance(found, np.ma.MaskedArray):
            if found.mask.any() and found.dtype.kind not in "fcmM":
                raise ArgumentError(
                    f"column {self._name!r} has nulls, which {found.dtype} cannot express; "
                    "column[:] gives a masked array"
                )
            missing: Any = np.array("NaT", found.dtype) if found.dtype.kind in "mM" else np.nan
            found = found.filled(missing)
        array = cast(NDArray[Any], found)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __setitem__(self, key: Any, value: object) -> None:
        self._set(key, value, parse)

    def _set(self, key: Any, value: object, select: Callable[..., Any]) -> None:
        handle = self._writable_table()
        plain = type(value) is np.ndarray or isinstance(value, int | float | str | bytes)
        if plain and self._name not in handle.recent().companions:
            self._assign(lambda shape: select(key, shape), value)
            return
        schema = handle.read(lambda state: state.schema(self._name))
        assert isinstance(schema, ArraySchema)
        items = _items(value, schema, self._name)
        if not isinstance(items, NullableArray) and self._name not in handle.value.companions:
            self._assign(lambda shape: select(key, shape), value)
            return
        place = evaluated(key)
        with handle.writing() as turn:

            def change(state: TableState) -> TableChange:
                return _assigned(state, self._name, place, items, select)

            lacking = table_state.lacking_nulls(turn.value, {self._name: items})
            if not lacking:
                turn.commit(*change(turn.value))
                return
            options = turn.value.options
            made = table_state.with_first_nulls(
                turn.value,
                lacking,
                lambda values: validity_schema(self._format, values, options),
                change,
            )
            turn.commit(*made, again=True)

    def _reduced(self, reduce: Callable[..., Any], *arguments: Any) -> Any:
        def build(engine: Engine, validity: Engine | None) -> Any:
            if validity is None:
                return super(TableColumn, self)._reduced(reduce, *arguments)
            return _reduced_valid(engine, validity, reduce, arguments)

        return self._read(build)

    def _selected_items(self, key: Any, select: Callable[..., Any]) -> Any:
        def build(engine: Engine, validity: Engine | None) -> Any:
            values = engine.read(select(key, engine.shape))
            if validity is None:
                return values
            return _masked(values, _validity(validity, key, engine.shape, select))

        return self._read(build)

    def _read(self, use: Callable[[Engine, Engine | None], Any]) -> Any:
        self._handle.recent()  # Raises after the column was closed.
        name = self._name
        return self._table.read(lambda state: use(state.engine(name), state.validity(name)))

    def _writable_table(self) -> HandleProtocol[TableState]:
        self._writable()
        return self._table

    def __reduce__(self) -> tuple[Any, ...]:
        return _column_of, (self._owner, self._name)


def _column_of(table: Any, name: str) -> Any:
    return table[name]


def _all(validity: Engine) -> bool:
    zones = validity.zones()
    if zones is not None and zones.known.all() and zones.low.astype(np.bool_).all():
        return True
    return bool(validity.read(parse(..., validity.shape)).all())


def _validity(
    validity: Engine, key: Any, shape: tuple[int, ...], select: Callable[..., Any]
) -> Any:
    """Return the mask of what a key selects of the values."""
    if len(shape) == 1:
        return validity.read(select(key, shape))
    rows = validity.read(parse(..., validity.shape))
    whole = np.broadcast_to(rows.reshape(-1, *(1,) * (len(shape) - 1)), shape)
    return whole[key] if select is parse else whole[np.ix_(*_ranges(key, shape))]


def _ranges(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the positions along each axis that an orthogonal key selects."""
    given = key if isinstance(key, tuple) else (key,)
    if any(each is None or each is Ellipsis for each in given):
        raise UnsupportedError("a column with nulls and items of several axes: no such oindex key")
    keys = (*given, *[slice(None)] * (len(shape) - len(given)))
    return [
        np.atleast_1d(np.arange(length)[each]) for length, each in zip(shape, keys, strict=True)
    ]


def _masked(values: Any, valid: Any) -> Any:
    if isinstance(values, np.ndarray):
        return np.ma.MaskedArray(values, ~np.asarray(valid).reshape(values.shape))
    return values if valid else np.ma.masked


def _items(value: object, schema: ArraySchema, name: str) -> Any:
    """Return a value to assign, nullable if it has nulls; other values stay as they are."""
    if is_null(value):
        return NullableArray(np.zeros((), schema.dtype), np.zeros((), np.bool_))
    if (
        schema.dtype == np.dtype(object)
        or type(value) is np.ndarray
        or np.ndim(cast(Any, value)) == 0
    ):
        return value
    try:
        found = fitted(value, schema.dtype, schema.shape[1:], name)
    except ValueError:
        return value  # The assignment itself decides what it takes.
    return found if isinstance(found, NullableArray) and found.has_nulls else value


def _assigned(
    state: TableState, name: str, key: Any, items: Any, select: Callable[..., Any]
) -> TableChange:
    """Return the change that assigns values to a column, and says which of them exist."""
    engine, validity = state.engine(name), state.validity(name)
    assert validity is not None, "it was made with the first null"
    shape = engine.shape
    valid: Any = np.True_
    values = items
    if isinstance(items, NullableArray):
        fill = engine.chunks.schema.fill
        values, valid = items.filled(fill).values, items.valid
    place = select(key, shape)
    if len(shape) > 1:
        numbers = np.broadcast_to(np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1)), shape)
        rows = np.unique(numbers[key])
        if isinstance(items, NullableArray) and items.valid.ndim and len(rows) != len(items):
            raise UnsupportedError(f"column {name!r}: nulls are assigned to whole rows")
        chosen = parse(rows, validity.shape)
    else:
        chosen = select(key, shape)
    return table_state.assigned_parts(
        state, {name: (place, values), state.companions[name]: (chosen, valid)}
    )


def _reduced_valid(
    engine: Engine, validity: Engine, reduce: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """Reduce the items that exist: the result is NumPy's for an array of them."""
    schema = engine.chunks.schema
    if len(engine.shape) > 1:
        raise UnsupportedError("items of several axes, some of them null: reduce column[:] instead")
    valid = validity.read(parse(..., validity.shape))
    numbers = np.flatnonzero(valid)

    def read(key: tuple[slice, ...]) -> NDArray[Any]:
        chosen = numbers[key[0]]
        rows = slice(int(chosen[0]), int(chosen[-1]) + 1)
        found: NDArray[Any] = engine.read(parse(rows, engine.shape))[valid[rows]]
        return found

    grid = ChunkGrid((len(numbers),), schema.chunks[:1], padded=True)
    return reduce(Source(grid, schema.dtype, read), *arguments)
