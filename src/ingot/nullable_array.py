"""Nullable arrays: items of a fixed size, some of which are missing.

A null is an item of axis 0. It has no value: the array holds any item there, which no result may
depend on. NumPy's masked arrays come in and go out; inside, a class that is no array keeps a value
from being read without its mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.errors import ArgumentError

__all__ = ["MaskedRow", "MaskedRows", "NullableArray", "of_masked", "of_objects"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class NullableArray:
    """Values, and for each item of axis 0 whether it is valid.

    Without axes, it is one item that stands for many.

    >>> column = NullableArray(np.array([1, 0, 3]), np.array([True, False, True]))
    >>> column.masked()
    masked_array(data=[1, --, 3], mask=[False,  True, False], fill_value=999999)
    >>> column[1:].compressed()
    array([3])
    """

    values: NDArray[Any]
    valid: Mask

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.values.ndim

    @property
    def dtype(self) -> DType:
        """The type of the values."""
        return self.values.dtype

    @property
    def has_nulls(self) -> bool:
        """Whether an item is null."""
        return not self.valid.all()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Self:
        """Return some items of axis 0."""
        return type(self)(self.values[key], self.valid[key])

    def spread(self) -> Mask:
        """Return the mask with an axis for each of the values, so that both broadcast."""
        return self.valid.reshape(self.valid.shape + (1,) * (self.ndim - self.valid.ndim))

    def masked(self) -> Any:
        """Return a masked array of NumPy, which shares the values."""
        return np.ma.MaskedArray(self.values, np.broadcast_to(~self.spread(), self.shape).copy())

    def compressed(self) -> NDArray[Any]:
        """Return the items that are no nulls."""
        found: NDArray[Any] = self.values[self.valid]
        return found

    def filled(self, fill: Any) -> Self:
        """Return the same with `fill` as the value of every null."""
        return type(self)(np.where(self.spread(), self.values, fill), self.valid)

    def astype(self, dtype: DType) -> Self:
        """Return the same with values of another type."""
        return type(self)(self.values.astype(dtype, copy=False), self.valid)


class MaskedRow(np.ma.mvoid):
    """A row of a table with nulls: a masked structure of NumPy, whose values are right.

    NumPy's own `item` ignores the mask, its `tolist` knows neither objects nor nested fields, and a
    nested structure with one null is null as a whole.

    >>> MaskedRow((1, "a"), mask=(True, False), dtype=[("n", "i8"), ("name", object)]).item()
    (None, 'a')
    """

    def __getitem__(self, key: Any) -> Any:
        names = self.dtype.names or ()
        name = names[key] if isinstance(key, int) else key
        if name in names and self.dtype[name].names is not None:
            mask: Any = self.mask
            return _row(self.data[name], mask[name])
        return super().__getitem__(key)  # type: ignore[no-untyped-call]

    def item(self, *args: Any) -> Any:
        """Return the values as a tuple, or one of them by its place; a null is None."""
        values = _plain(self.data.item(), self.mask, self.dtype)
        return values[args[0]] if args else values

    def tolist(self, fill_value: Any = None) -> Any:
        """Return the values as a tuple; a null is None, whatever is given."""
        return self.item()


class MaskedRows(np.ma.MaskedArray[Any, Any]):
    """Rows of a table with nulls: a masked array of structures of NumPy, whose rows are ours.

    >>> dtype = [("n", "i8"), ("name", object)]
    >>> MaskedRows(np.array([(1, "a")], dtype), np.array([(True, False)], "?,?")).tolist()
    [(None, 'a')]
    """

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, np.ma.mvoid):
            return found
        return _row(found.data, found.mask)

    def tolist(self, fill_value: Any = None) -> Any:
        """Return the rows as a list of tuples; a null is None, or the value that is given."""
        if self.dtype.names is None or fill_value is not None:
            return super().tolist(fill_value)
        return [row.tolist() for row in self]


def _row(data: Any, mask: Any) -> MaskedRow:
    return MaskedRow(data, mask=mask)  # type: ignore[no-untyped-call]


def _plain(values: Any, mask: Any, dtype: DType) -> Any:
    """Return the values of a structure, with None where its mask says so."""
    if dtype.names is None:
        # An item of several axes is null as a whole.
        return None if np.all(mask) else values
    names = zip(values, dtype.names, strict=True)
    return tuple(_plain(value, mask[name], dtype[name]) for value, name in names)


def of_masked(array: Any, name: str) -> NDArray[Any] | NullableArray:
    """Return a masked array of NumPy as values; nullable only if an item is masked.

    >>> of_masked(np.ma.MaskedArray([1, 2], [False, False]), "a")
    array([1, 2])
    >>> of_masked(np.ma.MaskedArray([[1, 2]], [[True, False]]), "a")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: column 'a': row 0 is masked in part
    """
    values = np.asarray(array.data)
    mask = np.broadcast_to(np.asarray(array.mask, np.bool_), values.shape)
    if not mask.any():
        return values
    rows = mask.reshape(len(values), -1) if values.ndim > 1 else mask
    if values.ndim > 1:
        part = rows.any(1) & ~rows.all(1)
        if part.any():
            raise ArgumentError(f"column {name!r}: row {int(part.argmax())} is masked in part")
        rows = np.asarray(rows.all(1))
    return NullableArray(values, ~rows)


def of_objects(values: Sequence[Any], nulls: Mask, dtype: DType | None, name: str) -> NullableArray:
    """Return objects as values; where `nulls` says so, an object is no value.

    >>> of_objects([1, None], np.array([False, True]), None, "a").masked().tolist()
    [1, None]
    """
    kept = [value for value, null in zip(values, nulls.tolist(), strict=True) if not null]
    try:
        found = np.asarray(kept, dtype) if kept else np.zeros(0, dtype or np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"column {name!r}: {error}") from None
    made = np.zeros((len(values), *found.shape[1:]), found.dtype)
    made[~nulls] = found
    return NullableArray(made, ~nulls)
