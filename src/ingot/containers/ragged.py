"""Variable-length items as a user sees them: text, bytes, rows and JSON values by their numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.containers.attributes import Attributes
from ingot.containers.dataset import Dataset
from ingot.containers.ingest import fitted_values, spread
from ingot.containers.table_state import numbered
from ingot.dtypes import DType
from ingot.engine import ragged
from ingot.engine.ragged import RaggedEngine
from ingot.errors import SelectionError, UnsupportedError
from ingot.interop import arrow
from ingot.ragged_array import ItemKind, RaggedArray
from ingot.selection import evaluated
from ingot.stores.store import Commit

__all__ = ["Ragged"]

_BLOCK_ITEMS: Final = 65_536


class Ragged(Dataset[RaggedEngine]):
    """Items of variable length: a column of a table whose format holds such items.

    A missing item is None. Slices, index arrays and masks give arrays: of NumPy's strings for text,
    of objects for bytes, rows of numbers and JSON. Every call that changes items has stored the
    change when it returns; rows are added and removed by the table.
    """

    __slots__ = ()

    _WORD = "items"

    @property
    def kind(self) -> str | DType:
        """What an item is: "utf8", "bytes", "json", or the type of the numbers of a row."""
        kind = self._kind
        return kind.name if kind.item is None else kind.item

    @property
    def dtype(self) -> DType:
        """The type of an array of the items: text that may be None, or objects."""
        return self._kind.dtype

    @property
    def shape(self) -> tuple[int]:
        """The number of items, as the only axis."""
        return self._handle.value.shape

    @property
    def stored_bytes(self) -> int:
        """The bytes of all stored packs, counted where they are stored."""
        return self._handle.read(RaggedEngine.stored_bytes)

    @property
    def attrs(self) -> Attributes:
        """Names and values that describe the items; setting one stores it."""
        return Attributes(lambda: self._handle.value.packs.schema.attrs, self._describing)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            return self._handle.read(lambda engine: engine.read(_one(key, engine.shape[0]))[0])
        return self.items(key).to_numpy()

    def items(self, key: Any = ...) -> RaggedArray:
        """Return items in buffers: no Python object is made for an item."""
        return self._handle.read(lambda engine: engine.read(numbered(key, engine.shape[0])))

    def __iter__(self) -> Iterator[Any]:
        """Yield the items; a block of them is read at a time."""
        start = 0
        while True:
            block = self.items(slice(start, start + _BLOCK_ITEMS))
            if not len(block):
                return
            yield from block
            start += len(block)

    def to_numpy(self) -> NDArray[Any]:
        """Return all items as an array."""
        return self.items().to_numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an ingot.Ragged becomes a NumPy array only by a copy")
        values = self.to_numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def to_arrow(self) -> Any:
        """Return all items as an array of pyarrow."""
        return arrow.array(self.items())

    def __setitem__(self, key: Any, values: Any) -> None:
        handle, rows = self._writable(), evaluated(key)
        kind = self._kind
        single = isinstance(rows, int | np.integer) and not isinstance(rows, bool)

        def fitted(kind: ItemKind) -> Any:
            if single:
                return RaggedArray.of([values], kind)
            return fitted_values({"items": values}, {"items": kind})["items"]

        given = fitted(kind)
        with handle.writing() as turn:
            engine = turn.value
            if engine.packs.schema.kind != kind:
                kind = engine.packs.schema.kind
                given = fitted(kind)
            count = engine.shape[0]
            found = _one(rows, count) if single else numbered(rows, count)
            items = spread(given, len(found), kind, "items")
            assert isinstance(items, RaggedArray)
            if len(found):
                turn.commit(*ragged.assigned(engine, found, items))
            else:
                turn.commit(engine, Commit())

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedError("a column of items is pickled with the table that it is part of")

    def __repr__(self) -> str:
        try:
            schema = self._handle.value.packs.schema
        except ValueError:
            return "<ingot.Ragged, closed>"
        kind = f"{schema.length} {schema.kind}"
        return f"<ingot.Ragged of {kind}; {self.format} {self._where}, {self._mode}>"

    @property
    def _kind(self) -> ItemKind:
        return self._handle.value.packs.schema.kind

    @contextmanager
    def _describing(self) -> Iterator[dict[str, Any]]:
        with self._writable().writing() as turn:
            attrs = dict(turn.value.packs.schema.attrs)
            yield attrs
            turn.commit(*ragged.described(turn.value, attrs))


def _one(key: Any, count: int) -> range:
    """Return the number of one item as a range."""
    if not -count <= key < count:
        raise SelectionError(f"item {key} of {count} items")
    number = int(key) % count
    return range(number, number + 1)
