"""Columns whose items mean something else than they are stored as: categories and decimals.

They read as words and as decimals. The column as it is stored, of integers, is an array beside it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot.containers import view
from ingot.containers.attributes import Attributes
from ingot.containers.column import TableColumn
from ingot.containers.handle import HandleProtocol
from ingot.containers.table_state import TableState
from ingot.dtypes import DType
from ingot.errors import ArgumentError, FormatError, UnknownNameError
from ingot.logical_types import CategoryType, LogicalKind, decoded_dtype

__all__ = ["CategoryColumn", "DecodedColumn"]

_BLOCK_ROWS = 65_536
_OF_ARRAYS = ("astype", "copy", "tolist")
"""Names of NumPy's arrays that messages lead to."""


class DecodedColumn:
    """One column of a table, read as what its items mean.

    >>> import ingot, pyarrow
    >>> from decimal import Decimal
    >>> price = pyarrow.array([Decimal("9.50"), None, Decimal("12.25")])
    >>> table = ingot.table({"price": price})
    >>> table["price"][2], table["price"].stored[2]
    (Decimal('12.25'), np.int64(1225))
    """

    __slots__ = ("_name", "_owner", "_stored", "_table")

    def __init__(
        self, stored: TableColumn, table: HandleProtocol[TableState], owner: Any, name: str
    ) -> None:
        self._stored = stored
        self._table = table
        self._owner = owner
        self._name = name

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise the error for a name that does not exist; type checkers find it themselves."""
            hint = f"; use column[:].{name}" if name in _OF_ARRAYS else ""
            raise UnknownNameError(
                f"{type(self).__name__} has no attribute {name!r}{hint}", name=name, obj=self
            )

    @property
    def stored(self) -> TableColumn:
        """The column as it is stored."""
        return self._stored

    @property
    def dtype(self) -> DType:
        """The type of what is read."""
        return self._table.read(lambda state: decoded_dtype(self._kind(state))[0])

    @property
    def shape(self) -> tuple[int]:
        """The number of items, as the only axis."""
        return (len(self),)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return 1

    @property
    def size(self) -> int:
        """The number of items."""
        return len(self)

    @property
    def attrs(self) -> Attributes:
        """Names and values that describe the column."""
        return self._stored.attrs

    @property
    def has_nulls(self) -> bool:
        """Whether an item is null."""
        return self._stored.has_nulls

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, key: Any) -> Any:
        found = self.read(key)
        return found[0] if isinstance(key, int | np.integer) else found

    def read(self, key: Any = ...) -> NDArray[Any]:
        """Return items as an array, also a single one."""

        def build(state: TableState) -> NDArray[Any]:
            self._kind(state)
            rows = view.numbered(state, slice(None) if key is Ellipsis else key)
            return view.read(state, [self._name], rows)[self._name]

        return self._table.read(build)

    def to_numpy(self) -> NDArray[Any]:
        """Return all items as an array."""
        return self.read()

    def to_arrow(self) -> Any:
        """Return all items as an array of pyarrow."""
        return self._owner[[self._name]].to_arrow()[self._name]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ArgumentError("a column becomes a NumPy array only by a copy")
        found = self.read()
        if isinstance(found, np.ma.MaskedArray):
            missing = np.ma.getmaskarray(found)
            found = np.ma.getdata(found).astype(object)
            found[missing] = None
        return found if dtype is None else found.astype(dtype, copy=False)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _BLOCK_ROWS):
            yield from self.read(slice(start, start + _BLOCK_ROWS))

    def __setitem__(self, key: Any, value: object) -> None:
        self._owner.update(slice(None) if key is Ellipsis else key, {self._name: value})

    def __reduce__(self) -> tuple[Any, ...]:
        return _column_of, (self._owner, self._name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {len(self)} items>"

    def _kind(self, state: TableState) -> LogicalKind:
        kind = view.layout_of(state, [self._name])[self._name]
        if not isinstance(kind, LogicalKind):
            raise FormatError(f"column {self._name!r} no longer has the type that it had")
        return kind


class CategoryColumn(DecodedColumn):
    """A column of categories, read as their words.

    >>> import ingot, pandas
    >>> table = ingot.table({"city": pandas.Categorical(["Oslo", None, "Bergen", "Oslo"])})
    >>> table["city"][:]
    array(['Oslo', None, 'Bergen', 'Oslo'], dtype=StringDType(na_object=None))
    >>> table["city"].categories, table["city"].codes[:]
    (array(['Bergen', 'Oslo'], dtype=StringDType()), array([ 1, -1,  0,  1], dtype=int32))
    >>> table["city"][1] = "Trondheim"
    >>> table["city"].categories.tolist()
    ['Bergen', 'Oslo', 'Trondheim']
    """

    __slots__ = ()

    @property
    def codes(self) -> TableColumn:
        """The numbers of the words, as they are stored; -1 is a null."""
        return self._stored

    @property
    def categories(self) -> NDArray[Any]:
        """The words, in the order of their numbers."""
        return self._table.read(self._category_type).words.copy()

    @property
    def ordered(self) -> bool:
        """Whether the order of the words is that of the items."""
        return self._table.read(self._category_type).ordered

    @property
    def has_nulls(self) -> bool:
        """Whether an item is null."""
        codes = self._stored.blocks()
        return any(bool((block < 0).any()) for _, block in codes)

    def _category_type(self, state: TableState) -> CategoryType:
        kind = self._kind(state).type
        if not isinstance(kind, CategoryType):
            raise FormatError(f"column {self._name!r} no longer has categories")
        return kind


def _column_of(table: Any, name: str) -> Any:
    return table[name]
