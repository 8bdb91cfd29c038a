"""Many items of variable length in memory: offsets, one buffer of data, and which items are null.

Items are text, bytes, rows of one type, or JSON values. The layout is that of Arrow: item i is the
bytes `offsets[i]` to `offsets[i + 1]` of the data, in UTF-8 where it is text or JSON. Offsets count
bytes, also for rows of numbers. The functions work on whole buffers; Python objects are made only
where a caller asks for them.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot import dtypes, native
from ingot.dtypes import DType
from ingot.errors import ArgumentError, CorruptionError, FormatError, LimitError
from ingot.fields import shown

__all__ = [
    "BYTES",
    "DEEPEST",
    "JSON",
    "LONGEST_ITEM",
    "UTF8",
    "ItemKind",
    "ItemTest",
    "RaggedArray",
    "as_json",
    "check_offsets",
    "check_utf8",
    "compare",
    "contains",
    "endswith",
    "equals",
    "from_text",
    "gather",
    "offsets_of",
    "passing",
    "startswith",
    "to_fixed",
    "to_text",
]

Bools: TypeAlias = NDArray[np.bool_]
Offsets: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

LONGEST_ITEM: Final = 2**31 - 1 - 16
"""The most bytes of an item: what one Blosc chunk can hold."""

DEEPEST: Final = 64
"""The largest number of lists and objects around a JSON value."""

_NUMBERS: Final = "biufcmM"
# The bytes that are compared at once, and the widest items that are padded to one width.
_COMPARED: Final = 32
_PADDED: Final = 4096
_BLOCK: Final = 1 << 22
# Up to so many items that are replaced, the others are moved in stretches.
_FEW_REPLACED: Final = 64


@dataclass(frozen=True, slots=True)
class ItemKind:
    """What the items are: "utf8", "bytes", "json", or "list", a row of items of type `item`.

    >>> ItemKind.of("utf8"), str(ItemKind.of(np.dtype("<f4")))
    (ItemKind(name='utf8', item=None), 'list<<f4>')
    """

    name: str
    item: DType | None = None

    @classmethod
    def of(cls, kind: "DTypeLike | ItemKind") -> "ItemKind":
        """Return the kind that a caller names: "utf8", "bytes", "json", or the type of a row."""
        if isinstance(kind, ItemKind):
            return kind
        if isinstance(kind, str) and kind in _PLAIN:
            return cls(kind)
        try:
            dtype = np.dtype(kind)
        except TypeError:
            raise ArgumentError(
                f"kind {kind!r} is no type, and none of {', '.join(_PLAIN)}"
            ) from None
        if dtypes.is_variable(dtype) or not dtype.itemsize or dtype.subdtype is not None:
            raise ArgumentError(f"kind: rows of {dtype} have items of no fixed size")
        if dtype.names is not None:
            raise ArgumentError(f"kind: rows of structures are not kept, {dtype} is one")
        return cls("list", dtype)

    @classmethod
    def parse(cls, spelling: object, where: str) -> "ItemKind":
        """Return the kind that a file spells; `where` names the field in errors.

        >>> ItemKind.parse("list<<i8>", "dtype").item
        dtype('int64')
        >>> ItemKind.parse("tree", "dtype")
        Traceback (most recent call last):
        ingot.errors.FormatError: dtype: 'tree' is no kind of items
        """
        if isinstance(spelling, str) and spelling in _PLAIN:
            return cls(spelling)
        if (
            not isinstance(spelling, str)
            or not spelling.startswith("list<")
            or spelling[-1:] != ">"
        ):
            raise FormatError(f"{where}: {shown(spelling)} is no kind of items")
        dtype = dtypes.parse(spelling[5:-1], where)
        if dtypes.is_variable(dtype):
            raise FormatError(f"{where}: rows of {dtype} have items of no fixed size")
        return cls("list", dtype)

    @property
    def dtype(self) -> DType:
        """The type of an array of such items: text that may be None, or objects."""
        return dtypes.NULLABLE_TEXT if self.name == "utf8" else np.dtype(object)

    @property
    def is_text(self) -> bool:
        """Whether the bytes of the items are UTF-8."""
        return self.name in ("utf8", "json")

    def __str__(self) -> str:
        return self.name if self.item is None else f"list<{self.item.str}>"


_PLAIN: Final = ("utf8", "bytes", "json")
UTF8: Final = ItemKind("utf8")
BYTES: Final = ItemKind("bytes")
JSON: Final = ItemKind("json")


@dataclass(frozen=True, slots=True, eq=False)
class RaggedArray:
    """Items of variable length, one behind the other; the value is never changed.

    `validity` is None where no item is null. A null has no bytes. The constructor takes buffers
    that are known to be right; `checked` is for those of a file or of another program.

    >>> items = RaggedArray.of(["ape", None, "bee"])
    >>> len(items), items[2], items[1:].to_list(), items.nbytes
    (3, 'bee', [None, 'bee'], 6)
    """

    kind: ItemKind
    offsets: Offsets
    data: Bytes
    validity: Bools | None = None

    @classmethod
    def checked(
        cls,
        kind: ItemKind,
        offsets: Offsets,
        data: Bytes,
        validity: Bools | None = None,
        where: str = "items",
    ) -> "RaggedArray":
        """Return the items in buffers that may be wrong; raise `CorruptionError` if they are.

        JSON is parsed, within its limits, when an item is read; only the text `null` is a null at
        once.

        >>> RaggedArray.checked(UTF8, np.array([0, 3, 2]), np.zeros(3, np.uint8))
        Traceback (most recent call last):
        ingot.errors.CorruptionError: items: item 1 ends at byte 2, it begins at byte 3
        """
        check_offsets(offsets, len(data), where)
        if validity is not None and len(validity) != len(offsets) - 1:
            raise CorruptionError(f"{where}: {len(validity)} marks for {len(offsets) - 1} items")
        items = cls(kind, offsets, data, validity)._without_hidden()
        _check_longest(items.lengths, where)
        if kind.is_text:
            check_utf8(items.offsets, items.data, where)
        return items.conforming(where)

    def conforming(self, where: str = "items") -> "RaggedArray":
        """Return the items, of which JSON may be null; raise for rows that are not whole.

        Everything else about them is checked already.
        """
        kind = self.kind
        if kind.item is not None:
            wrong = np.flatnonzero(self.lengths % kind.item.itemsize)
            if len(wrong):
                number = int(wrong[0])
                raise CorruptionError(
                    f"{where}: item {number} has {self.lengths[number]} bytes, "
                    f"no multiple of the {kind.item.itemsize} of {kind.item}"
                )
        return self._with_nulls(equals(self, b"null")) if kind == JSON else self

    @classmethod
    def of(
        cls,
        items: Iterable[object],
        kind: "str | DType | ItemKind | None" = None,
        where: str = "items",
    ) -> "RaggedArray":
        """Return Python objects, or the items of an array, as one value; None is a null.

        Without a kind, the first item that is not None says what they are: text, bytes, a row of
        numbers, or JSON. Items of another kind are refused with their position.

        >>> RaggedArray.of([[1, 2], None, []]).kind.item
        dtype('int64')
        >>> RaggedArray.of(["a", b"b"])
        Traceback (most recent call last):
        ingot.errors.ArgumentError: items: item 1 is bytes, item 0 is text
        """
        wanted = None if kind is None else ItemKind.of(kind)
        if isinstance(items, RaggedArray):
            return items if wanted is None else items.cast(wanted, where)
        if isinstance(items, np.ndarray):
            if items.ndim == 1 and items.dtype.kind in "TU" and wanted in (None, UTF8):
                return from_text(items, where)
            rows = items.ndim == 2 and wanted is not None and wanted.item is not None
            listed = list(items) if rows else items.tolist()
        else:
            listed = list(items)
        if wanted is None:
            wanted = _inferred(listed, where)
        encode = _ENCODERS[wanted.name]
        encoded = encode(listed, wanted, where)
        return cls._joined(wanted, encoded, where)

    @classmethod
    def _joined(cls, kind: ItemKind, encoded: Sequence[bytes | None], where: str) -> "RaggedArray":
        lengths = np.fromiter(
            (0 if each is None else len(each) for each in encoded), np.int64, len(encoded)
        )
        _check_longest(lengths, where)
        present = np.fromiter((each is not None for each in encoded), np.bool_, len(encoded))
        data = np.frombuffer(b"".join(each for each in encoded if each), np.uint8)
        return cls(kind, offsets_of(lengths), data, None if present.all() else present)

    @classmethod
    def nulls(cls, kind: ItemKind, count: int) -> "RaggedArray":
        """Return `count` nulls."""
        empty = np.zeros(0, np.uint8)
        validity = np.zeros(count, np.bool_) if count else None
        return cls(kind, np.zeros(count + 1, np.int64), empty, validity)

    # What it is

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Offsets:
        """The bytes of each item; a null has none."""
        return np.diff(self.offsets)

    @property
    def shape(self) -> tuple[int]:
        """The number of items, as the only axis."""
        return (len(self),)

    @property
    def nbytes(self) -> int:
        """The bytes of all items."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def payload(self) -> Bytes:
        """The bytes of all items, without those of others in the same buffer."""
        return self.data[int(self.offsets[0]) : int(self.offsets[-1])]

    @property
    def is_null(self) -> Bools:
        """Which items are null."""
        return np.zeros(len(self), np.bool_) if self.validity is None else ~self.validity

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RaggedArray):
            return NotImplemented
        return (
            self.kind == other.kind
            and bool(np.array_equal(self.lengths, other.lengths))
            and bool(np.array_equal(self.is_null, other.is_null))
            and self.payload.tobytes() == other.payload.tobytes()
        )

    # Equal by value, with buffers that can change: like NumPy's arrays, it is no key of a mapping.
    __hash__ = None  # type: ignore[assignment]

    # Parts

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            stop = max(start, stop)
            validity = None if self.validity is None else self.validity[start:stop]
            return RaggedArray(self.kind, self.offsets[start : stop + 1], self.data, validity)
        number = range(len(self))[key]
        if self.validity is not None and not self.validity[number]:
            return None
        first, last = int(self.offsets[number]), int(self.offsets[number + 1])
        return _decoded(self.data[first:last], self.kind, number)

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def take(self, rows: NDArray[np.intp] | Offsets) -> "RaggedArray":
        """Return some items, in the order of `rows`."""
        offsets, data = gather(self.offsets, self.data, np.asarray(rows, np.int64))
        validity = None if self.validity is None else self.validity[rows]
        return RaggedArray(self.kind, offsets, data, validity)

    def masked(self, mask: Bools) -> "RaggedArray":
        """Return the items for which a mask is true."""
        return self.take(np.flatnonzero(mask))

    def replaced(self, rows: Offsets, items: "RaggedArray") -> "RaggedArray":
        """Return the items with others in some rows; the last one counts where a row is repeated.

        >>> old = RaggedArray.of(["a", "b", "c"])
        >>> old.replaced(np.array([2, 0]), RaggedArray.of(["z", None])).to_list()
        [None, 'b', 'z']
        """
        if len(rows) <= _FEW_REPLACED and bool((np.diff(rows) > 0).all()):
            # Whole stretches are moved, and not item by item.
            parts, start = [], 0
            for place, row in enumerate(rows.tolist()):
                parts += [self[start:row], items[place : place + 1]]
                start = row + 1
            return RaggedArray.joined([*parts, self[start:]])
        chosen = np.arange(len(self))
        chosen[rows] = np.arange(len(items)) + len(self)
        return RaggedArray.joined([self, items]).take(chosen)

    @classmethod
    def joined(cls, parts: "Sequence[RaggedArray]") -> "RaggedArray":
        """Return the items of several values of one kind, one behind the other."""
        first = parts[0]
        if len(parts) == 1:
            return first
        lengths = np.concatenate([part.lengths for part in parts])
        data = np.concatenate([part.payload for part in parts])
        validity = None
        if any(part.validity is not None for part in parts):
            validity = ~np.concatenate([part.is_null for part in parts])
        return cls(first.kind, offsets_of(lengths), data, validity)

    def cast(self, kind: ItemKind, where: str = "items") -> "RaggedArray":
        """Return the same items as another kind; `ValueError` if the kind cannot hold them.

        Text becomes JSON strings. Rows of numbers take another type where no value changes. Every
        kind holds nulls.
        """
        if kind == self.kind:
            return self
        if self.is_null.all():
            return RaggedArray.nulls(kind, len(self))
        if kind == BYTES and self.kind == UTF8:
            return RaggedArray(kind, self.offsets, self.data, self.validity)
        if kind.item is not None and self.kind.item is not None:
            return self._with_row_type(kind, where)
        if kind == JSON and self.kind == UTF8:
            return RaggedArray.of(self.to_list(), kind, where)
        raise ArgumentError(f"{where} of {kind} cannot hold items of {self.kind}")

    def _with_row_type(self, kind: ItemKind, where: str) -> "RaggedArray":
        assert kind.item is not None
        assert self.kind.item is not None
        values = np.frombuffer(self.payload.tobytes(), self.kind.item)
        kept = _held(values, kind.item)
        if kept is None:
            raise ArgumentError(f"{where} of {kind} cannot hold the numbers of {self.kind}")
        lengths = self.lengths // self.kind.item.itemsize * kind.item.itemsize
        data = np.frombuffer(kept.tobytes(), np.uint8)
        return RaggedArray(kind, offsets_of(lengths), data, self.validity)

    def _with_nulls(self, null: Bools) -> "RaggedArray":
        """Return the items of which more are null."""
        if not null.any():
            return self
        return replace(self, validity=~(null | self.is_null))._without_hidden()

    def _without_hidden(self) -> "RaggedArray":
        """Return the items without bytes behind nulls, which some programs leave there."""
        if self.validity is None:
            return self
        if self.validity.all():
            return RaggedArray(self.kind, self.offsets, self.data)
        hidden = self.lengths[~self.validity]
        if not hidden.any():
            return self
        rows = np.flatnonzero(self.validity)
        offsets, data = gather(self.offsets, self.data, rows)
        lengths = np.zeros(len(self), np.int64)
        lengths[rows] = np.diff(offsets)
        return RaggedArray(self.kind, offsets_of(lengths), data, self.validity)

    # As arrays and objects

    def to_list(self) -> list[Any]:
        """Return the items as Python objects: text, bytes, arrays, JSON values, None."""
        if self.kind not in (UTF8, BYTES):
            return list(self)
        whole: bytes | str = self.payload.tobytes()
        ends = self.offsets - self.offsets[0]
        if isinstance(whole, bytes) and self.kind == UTF8:
            size, whole = len(whole), whole.decode()
            if len(whole) < size:
                # Where an item begins, in characters.
                ends = offsets_of((self.payload & 0xC0 != 0x80).astype(np.int64))[ends]
        found: list[Any] = [whole[start:end] for start, end in pairwise(ends.tolist())]
        for number in np.flatnonzero(self.is_null).tolist():
            found[number] = None
        return found

    def to_numpy(self) -> NDArray[Any]:
        """Return the items as an array: text as NumPy's strings, other items as objects.

        >>> RaggedArray.of(["x", None]).to_numpy()
        array(['x', None], dtype=StringDType(na_object=None))
        """
        if self.kind == UTF8:
            return to_text(self)
        found = np.empty(len(self), object)
        for number, item in enumerate(self):
            found[number] = item
        return found

    def __repr__(self) -> str:
        return f"<RaggedArray of {len(self)} {self.kind}, {self.nbytes} bytes>"


# Buffers: each of these is a pure function, to which the kernel may have a twin.


def offsets_of(lengths: Offsets) -> Offsets:
    """Return the offsets of items of these lengths, the end of the last one included.

    >>> offsets_of(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gather(offsets: Offsets, data: Bytes, rows: Offsets) -> tuple[Offsets, Bytes]:
    """Return the offsets and the bytes of some items, in the order of `rows`.

    >>> gather(np.array([0, 2, 5]), np.arange(5, dtype=np.uint8), np.array([1, 0]))
    (array([0, 3, 5]), array([2, 3, 4, 0, 1], dtype=uint8))
    """
    starts = offsets[:-1][rows]
    found = offsets_of(offsets[1:][rows] - starts)
    total = int(found[-1])
    if len(rows) and total and _is_run(rows):
        return found, data[int(starts[0]) : int(starts[0]) + total]
    gathered = np.empty(total, np.uint8)
    lengths = np.diff(found)
    long = lengths > _PADDED
    for row in np.flatnonzero(long).tolist():
        size = int(lengths[row])
        gathered[found[row] : found[row] + size] = data[starts[row] : starts[row] + size]
    # Each byte of a short item has a number of 8 bytes meanwhile, so these are moved in blocks.
    short = np.flatnonzero(~long & (lengths > 0))
    for rows in np.array_split(short, -(-len(short) * _PADDED // _BLOCK) or 1):
        own = offsets_of(lengths[rows])
        each = np.arange(int(own[-1]))
        places = np.repeat(found[:-1][rows] - own[:-1], lengths[rows]) + each
        gathered[places] = data[np.repeat(starts[rows] - own[:-1], lengths[rows]) + each]
    return found, gathered


def _check_longest(lengths: Offsets, where: str) -> None:
    if len(lengths) and int(lengths.max()) > LONGEST_ITEM:
        number = int(lengths.argmax())
        raise LimitError(
            f"{where}: item {number} has {lengths[number]} bytes, the most is {LONGEST_ITEM}"
        )


def check_offsets(offsets: Offsets, size: int, where: str) -> None:
    """Raise `CorruptionError` for offsets that go down, or lie outside of the data."""
    if not len(offsets):
        raise CorruptionError(f"{where}: no offsets, one more than items is due")
    if int(offsets[0]) < 0:
        raise CorruptionError(f"{where}: item 0 begins at byte {offsets[0]}")
    # A difference could overflow.
    down = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(down):
        number = int(down[0])
        raise CorruptionError(
            f"{where}: item {number} ends at byte {offsets[number + 1]}, "
            f"it begins at byte {offsets[number]}"
        )
    if int(offsets[-1]) > size:
        raise CorruptionError(f"{where}: items end at byte {offsets[-1]}, {size} bytes are stored")


def check_utf8(offsets: Offsets, data: Bytes, where: str) -> None:
    """Raise `CorruptionError` unless every item is text in UTF-8.

    >>> check_utf8(np.array([0, 1, 2]), np.frombuffer("é".encode(), np.uint8), "name")
    Traceback (most recent call last):
    ingot.errors.CorruptionError: name: item 0 is no text in UTF-8
    """
    first, last = int(offsets[0]), int(offsets[-1])
    held = data[first:last]
    if int(held.max(initial=0)) < 0x80:
        return
    try:
        held.tobytes().decode()
        wrong = -1
    except UnicodeDecodeError as error:
        wrong = first + error.start
    # Text as a whole, but an item may begin inside of a character. An item without bytes does not.
    begins = offsets[:-1][offsets[:-1] < offsets[1:]]
    inside = begins[(data[begins] & 0xC0) == 0x80]
    if len(inside) and (wrong < 0 or int(inside[0]) < wrong):
        # The character begins in the item before.
        wrong = int(inside[0]) - 1
    if wrong >= 0:
        number = int(np.searchsorted(offsets, wrong, "right")) - 1
        raise CorruptionError(f"{where}: item {max(0, number)} is no text in UTF-8")


def compare(items: RaggedArray, value: bytes) -> NDArray[np.int8]:
    """Return -1, 0 or 1 for each item that is less than, equal to, or greater than some bytes.

    UTF-8 has the order of the characters. Nulls are compared as items without bytes.

    >>> compare(RaggedArray.of(["ape", "bee", "beer"]), b"bee")
    array([-1,  0,  1], dtype=int8)
    """
    return _compare(items.offsets[:-1], items.lengths, items.data, value)


def equals(items: RaggedArray, value: bytes) -> Bools:
    """Return which items are some bytes; a null is none."""
    return _where_equal(items, items.offsets[:-1], items.lengths == len(value), value)


def startswith(items: RaggedArray, value: bytes) -> Bools:
    """Return which items begin with some bytes; a null does not.

    >>> startswith(RaggedArray.of(["ape", None, "b"]), b"ap")
    array([ True, False, False])
    """
    return _where_equal(items, items.offsets[:-1], items.lengths >= len(value), value)


def endswith(items: RaggedArray, value: bytes) -> Bools:
    """Return which items end with some bytes; a null does not."""
    return _where_equal(items, items.offsets[1:] - len(value), items.lengths >= len(value), value)


def contains(items: RaggedArray, value: bytes) -> Bools:
    """Return in which items some bytes occur; in a null they do not.

    >>> contains(RaggedArray.of(["xab", "a", "b", None]), b"ab")
    array([ True, False, False, False])
    """
    if not value:
        return ~items.is_null
    found = np.zeros(len(items), np.bool_)
    offsets = items.offsets - items.offsets[0]
    # `bytes.find` searches across items: a match that reaches into the next one does not count.
    data, place = items.payload.tobytes(), 0
    while (place := data.find(value, place)) >= 0:
        number = int(np.searchsorted(offsets, place, "right")) - 1
        after = int(offsets[number + 1])
        if place + len(value) <= after:
            found[number] = True
            place = after
        else:
            place += 1
    return found


class ItemTest(NamedTuple):
    """What is asked of text or bytes: an operator or a function of queries, and values.

    ``==`` takes any number of values, of which one has to be equal; ``isnull`` takes none, and
    ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``startswith``, ``endswith`` and ``contains`` take one.
    """

    name: str
    values: tuple[bytes, ...] = ()


def passing(items: RaggedArray, test: ItemTest) -> Bools:
    """Return which items pass a test; a null passes ``isnull`` alone.

    >>> passing(RaggedArray.of(["ape", None, "bee"]), ItemTest("<", (b"b",)))
    array([ True, False, False])
    """
    if test.name == "isnull":
        return items.is_null
    if test.name == "==":
        found = np.zeros(len(items), np.bool_)
        for value in test.values:
            found |= equals(items, value)
        return found
    (value,) = test.values
    if test.name in _SEARCHES:
        return _SEARCHES[test.name](items, value)
    if test.name == "!=":
        return ~equals(items, value) & ~items.is_null
    ordered: Bools = _ORDERS[test.name](compare(items, value), 0)
    return ordered & ~items.is_null


_SEARCHES: Final[Mapping[str, Callable[[RaggedArray, bytes], Bools]]] = {
    "contains": contains,
    "endswith": endswith,
    "startswith": startswith,
}
_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _where_equal(items: RaggedArray, starts: Offsets, possible: Bools, value: bytes) -> Bools:
    if items.validity is not None:
        possible = possible & items.validity
    rows = np.flatnonzero(possible)
    lengths = np.full(len(rows), len(value))
    same = _compare(starts[rows], lengths, items.data, value) == 0
    found = np.zeros(len(items), np.bool_)
    found[rows[same]] = True
    return found


def _compare(starts: Offsets, lengths: Offsets, data: Bytes, value: bytes) -> NDArray[np.int8]:
    signs = np.zeros(len(starts), np.int8)
    rows = np.arange(len(starts))
    wanted = np.frombuffer(value, np.uint8)
    for first in range(0, len(wanted), _COMPARED):
        part = wanted[first : first + _COMPARED]
        undecided = []
        step = max(1, _BLOCK // _COMPARED)
        for at in range(0, len(rows), step):
            chosen = rows[at : at + step]
            found, held = _windows(data, starts[chosen] + first, lengths[chosen] - first, len(part))
            differs = (found != part) | ~held
            decided = differs.any(axis=1)
            place = differs.argmax(axis=1)
            each = np.arange(len(chosen))
            less = (found[each, place] < part[place]) | ~held[each, place]
            signs[chosen[decided]] = np.where(less, -1, 1)[decided]
            undecided.append(chosen[~decided])
        rows = np.concatenate(undecided) if undecided else rows
    signs[rows[lengths[rows] > len(wanted)]] = 1
    return signs


def _windows(
    data: Bytes, starts: Offsets, lengths: Offsets, width: int
) -> tuple[NDArray[np.uint8], Bools]:
    """Return `width` bytes of each item from `starts` on, and which of them belong to it.

    Behind the end of an item, the bytes are 0.
    """
    held = np.arange(width) < lengths[:, None]
    # An item that begins so near to the end of the data that a window does not fit moves back.
    if len(data) < width:
        data = np.concatenate([data, np.zeros(width - len(data), np.uint8)])
    last = len(data) - width
    late = np.flatnonzero((starts > last) & (lengths > 0))
    found = np.lib.stride_tricks.sliding_window_view(data, width)[np.minimum(starts, last)]
    for row in late.tolist():
        own = data[int(starts[row]) : int(starts[row]) + max(0, int(lengths[row]))][:width]
        found[row, : len(own)] = own
    found *= held
    return found, held


def to_text(items: RaggedArray, dtype: DType = dtypes.NULLABLE_TEXT) -> NDArray[Any]:
    """Return text as an array of NumPy's strings; a null is None.

    Without the native kernel, items of about one length are padded to one width, which NumPy
    converts at once.
    """
    found = np.zeros(len(items), dtype)
    pack = native.pack_strings()
    if pack is not None:
        offsets, data = np.ascontiguousarray(items.offsets), np.ascontiguousarray(items.data)
        pack(found, offsets, data, items.validity)
        return found
    starts, lengths, data = items.offsets[:-1], items.lengths, items.data
    # Padding with NUL hides NULs at the end of an item, so those are converted one by one.
    last = np.zeros(len(items), np.uint8)
    filled = np.flatnonzero(lengths)
    last[filled] = data[items.offsets[1:][filled] - 1]
    single = (lengths > _PADDED) | ((lengths > 0) & (last == 0))
    for number in np.flatnonzero(single).tolist():
        first = int(starts[number])
        found[number] = data[first : first + int(lengths[number])].tobytes().decode()
    for width, rows in _of_like_length(lengths, ~single & (lengths > 0)):
        padded, _ = _windows(data, starts[rows], lengths[rows], width)
        found[rows] = padded.view(f"S{width}").reshape(-1).astype(dtypes.NULLABLE_TEXT)
    if items.validity is not None:
        found[~items.validity] = None
    return found


def to_fixed(items: RaggedArray) -> NDArray[Any]:
    """Return text or bytes as an array of the width of the longest item; a null is empty.

    >>> to_fixed(RaggedArray.of([b"a", b"bcd"]))
    array([b'a', b'bcd'], dtype='|S3')
    """
    if items.kind == UTF8 and (items.payload & 0x80).any():
        return np.array([text or "" for text in items.to_list()], "U")
    width = max(1, int(items.lengths.max(initial=1)))
    found = np.zeros(len(items), f"S{width}")
    step = max(1, _BLOCK // width)
    for at in range(0, len(items), step):
        part = items[at : at + step]
        padded, _ = _windows(part.data, part.offsets[:-1], part.lengths, width)
        found[at : at + step] = padded.view(f"S{width}").reshape(-1)
    return found.astype(f"U{width}") if items.kind == UTF8 else found


def from_text(values: NDArray[Any], where: str = "items") -> RaggedArray:
    """Return an array of NumPy's strings, of variable or fixed length, as items.

    >>> from_text(np.array(["a", "bé"])).to_list()
    ['a', 'bé']
    """
    texts = values
    if values.dtype.kind == "U":
        try:
            # NumPy reads the characters of another byte order as those of its own.
            ordered = values.astype(values.dtype.newbyteorder("="), copy=False)
            texts = ordered.astype(dtypes.NULLABLE_TEXT)
        except TypeError:
            # Half of a pair of surrogates, which is no text. The error names its place.
            return RaggedArray._joined(UTF8, _encode_utf8(values.tolist(), UTF8, where), where)
    take_apart = native.load_strings()
    if take_apart is not None and texts.ndim == 1:
        return _taken_apart(texts, take_apart, where)
    null = _null_texts(texts)
    if null is not None:
        texts = texts.copy()
        texts[null] = ""
    # A mark behind each text keeps NULs at its end.
    marked = np.strings.add(texts, np.array(".", texts.dtype))
    counts = np.asarray(np.strings.str_len(marked), np.int64) - 1
    lengths = np.zeros(len(values), np.int64)
    blocks: list[tuple[NDArray[np.intp], bytes, Offsets]] = []
    for width, rows in _of_like_length(counts, counts > 0):
        held = np.arange(width + 1) < counts[rows][:, None]
        try:
            ascii = marked[rows].astype(f"S{width + 1}").view(np.uint8).reshape(held.shape)
            lengths[rows] = counts[rows]
            encoded = ascii[held].tobytes()
        except UnicodeEncodeError:
            points = marked[rows].astype(f"U{width + 1}").view(np.uint32).reshape(held.shape)
            sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000).astype(np.int64)
            lengths[rows] = (sizes * held).sum(axis=1)
            encoded = points[held].astype("<u4").tobytes().decode("utf-32-le").encode()
        blocks.append((rows, encoded, lengths[rows]))
    _check_longest(lengths, where)
    offsets = offsets_of(lengths)
    data = np.zeros(int(offsets[-1]), np.uint8)
    for rows, encoded, sizes in blocks:
        own = offsets_of(sizes)
        places = np.repeat(offsets[:-1][rows] - own[:-1], sizes) + np.arange(int(own[-1]))
        data[places] = np.frombuffer(encoded, np.uint8)
    return RaggedArray(UTF8, offsets, data, None if null is None else ~null)


def _taken_apart(texts: NDArray[Any], take_apart: Callable[..., Any], where: str) -> RaggedArray:
    """Return an array of NumPy's strings, which the kernel takes apart."""
    ends, data, exist = take_apart(np.ascontiguousarray(texts))
    offsets = np.zeros(len(texts) + 1, np.int64)
    offsets[1:] = np.frombuffer(ends, np.int64)
    validity = None if exist is None else np.frombuffer(exist, np.bool_)
    items = RaggedArray(UTF8, offsets, np.frombuffer(data, np.uint8), validity)
    _check_longest(items.lengths, where)
    return items


def _null_texts(texts: NDArray[Any]) -> Bools | None:
    """Return which strings are missing; None where none is."""
    missing = getattr(texts.dtype, "na_object", "")
    if isinstance(missing, str):
        return None
    # NumPy compares every string with None; `is` would compare the array.
    null = np.isnan(texts) if missing is not None else np.asarray(texts == None)  # noqa: E711
    return null if null.any() else None


def _of_like_length(lengths: Offsets, chosen: Bools) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield widths and the rows that are padded to them: at most twice their own length."""
    rows = np.flatnonzero(chosen)
    _, classes = np.frexp(lengths[rows].astype(np.float64))
    for each in np.unique(classes).tolist():
        members = rows[classes == each]
        width = int(lengths[members].max())
        step = max(1, _BLOCK // width)
        for at in range(0, len(members), step):
            yield width, members[at : at + step]


def _is_run(rows: Offsets) -> bool:
    first, last = int(rows[0]), int(rows[-1])
    return last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all())


# Python objects


def _decoded(data: Bytes, kind: ItemKind, number: int) -> Any:
    if kind.item is not None:
        return np.frombuffer(data.tobytes(), kind.item).copy()
    if kind == BYTES:
        return data.tobytes()
    if kind == UTF8:
        return str(data.tobytes(), "utf-8")
    return _parse_json(data.tobytes(), f"item {number}")


def as_json(texts: RaggedArray, where: str) -> RaggedArray:
    """Return texts as JSON values, a null where the value is null; raise if one is no JSON.

    >>> as_json(RaggedArray.of(["[1]", " null"]), "items").to_list()
    [[1], None]
    """
    items = RaggedArray(JSON, texts.offsets, texts.data, texts.validity)
    null = [
        item is not None and _parse_json(item.encode(), f"{where}: item {number}") is None
        for number, item in enumerate(texts)
    ]
    return items._with_nulls(np.array(null, np.bool_))


def _parse_json(data: bytes, where: str) -> Any:
    """Return a JSON value; its depth is limited, and NaN and infinities are refused."""
    try:
        value = _JSON_DECODER.decode(data.decode())
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise CorruptionError(f"{where} is no JSON: {error}") from None
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        _check_depth(value, where)
    return value


def _pack_json(value: object, where: str) -> bytes:
    """Return a JSON value as text that `_parse_json` reads back."""
    try:
        packed = _JSON_ENCODER.encode(value).encode()
    except RecursionError:
        raise _too_deep(where) from None
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{where} is no JSON: {error}") from None
    _check_depth(value, where)
    return packed


def _check_depth(value: object, where: str) -> None:
    """Refuse values that are nested too deep, and names that are no text."""
    level: list[object] = [value]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                for name in each:
                    if not isinstance(name, str):
                        raise ArgumentError(
                            f"{where} is no JSON: the name {shown(name)} is no text"
                        )
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
        level = [each for each in inner if isinstance(each, Mapping | list | tuple)]
        if not level:
            return
    raise _too_deep(where)


def _too_deep(where: str) -> LimitError:
    return LimitError(f"{where} is nested more than {DEEPEST} deep")


def _refuse_constant(text: str) -> Any:
    raise ArgumentError(f"{text} is no number")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ArgumentError(f"{shown(text)} is no number that 64 bits hold")
    return value


_JSON_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_float)
_JSON_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False)


_LABELS: Final = {"utf8": "text", "bytes": "bytes", "list": "a row of numbers", "json": "JSON"}


def _inferred(items: Sequence[object], where: str) -> ItemKind:
    """Return the kind that all items have; raise with the position of the first other one."""
    first: tuple[int, str] | None = None
    types: set[DType] = set()
    common: DType | None = None
    for number, item in enumerate(items):
        if item is None:
            continue
        name, dtype = _kind_of(item)
        if name is None:
            said = type(item).__name__
            raise ArgumentError(f"{where}: item {number} is {said}, not text, bytes, a row or JSON")
        if dtype is not None and dtype not in types:
            types.add(dtype)
            common = _promoted(common, dtype, number, where)
        if name == "empty":
            continue
        if first is None:
            first = number, name
        elif first[1] != name:
            raise ArgumentError(
                f"{where}: item {number} is {_LABELS[name]}, item {first[0]} is {_LABELS[first[1]]}"
            )
    if first is None and not any(item is not None for item in items):
        raise ArgumentError(f"{where}: all items are None, so their kind must be given")
    if first is None or first[1] == "list":
        return ItemKind("list", np.dtype(np.float64) if common is None else common)
    return ItemKind(first[1])


def _promoted(common: DType | None, dtype: DType, number: int, where: str) -> DType:
    """Return the type that holds the numbers of all rows up to a row of another type."""
    if common is None:
        return dtype
    try:
        return np.result_type(common, dtype)
    except TypeError:
        raise ArgumentError(
            f"{where}: item {number} is a row of {dtype}, items before are rows of {common}"
        ) from None


def _kind_of(item: object) -> tuple[str | None, DType | None]:
    """Return the kind of one item, and the type of a row; "empty" for a row without items."""
    if isinstance(item, str):
        return "utf8", None
    if isinstance(item, bytes | bytearray | memoryview):
        return "bytes", None
    if isinstance(item, Mapping):
        return "json", None
    if isinstance(item, np.ndarray):
        return ("list", item.dtype) if _is_row(item) else (None, None)
    if not isinstance(item, list | tuple):
        return None, None
    if not item:
        return "empty", None
    try:
        row = np.asarray(item)
    except ValueError:
        return "json", None
    return ("list", row.dtype) if _is_row(row) else ("json", None)


def _is_row(row: NDArray[Any]) -> bool:
    return row.ndim == 1 and row.dtype.kind in _NUMBERS


def _encode_utf8(items: Sequence[Any], kind: ItemKind, where: str) -> list[bytes | None]:
    try:
        return [None if item is None else str.encode(item) for item in items]
    except (TypeError, UnicodeEncodeError):
        for number, item in enumerate(items):
            if item is not None and not isinstance(item, str):
                raise _odd(where, number, item, "text") from None
            try:
                (item or "").encode()
            except UnicodeEncodeError as error:
                raise ArgumentError(f"{where}: item {number} is no text: {error}") from None
        raise


def _encode_bytes(items: Sequence[Any], kind: ItemKind, where: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    for number, item in enumerate(items):
        if item is not None and not isinstance(item, bytes | bytearray | memoryview):
            raise _odd(where, number, item, "bytes")
        found.append(None if item is None else bytes(item))
    return found


def _encode_json(items: Sequence[Any], kind: ItemKind, where: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    for number, item in enumerate(items):
        found.append(None if item is None else _pack_json(item, f"{where}: item {number}"))
    return found


def _encode_rows(items: Sequence[Any], kind: ItemKind, where: str) -> list[bytes | None]:
    assert kind.item is not None
    found: list[bytes | None] = []
    for number, item in enumerate(items):
        if item is None:
            found.append(None)
            continue
        try:
            given = np.asarray(item)
            row = given if given.size else given.astype(kind.item)
        except (TypeError, ValueError):
            raise _odd(where, number, item, f"a row of {kind.item}") from None
        kept = _held(row, kind.item) if row.ndim == 1 else None
        if kept is None:
            raise _odd(where, number, item, f"a row of {kind.item}")
        found.append(kept.tobytes())
    return found


def _held(values: NDArray[Any], dtype: DType) -> NDArray[Any] | None:
    """Return values in another type; None unless it holds them. Floats may lose digits."""
    if values.dtype == dtype:
        return values
    numeric = "biufc"
    if (values.dtype.kind in numeric) != (dtype.kind in numeric):
        return None
    try:
        with np.errstate(all="ignore"):
            if values.dtype.kind == "c" and dtype.kind != "c":
                if values.imag.any():
                    return None
                values = values.real
            cast = values.astype(dtype)
            if values.dtype.kind == "f" and dtype.kind in "fc":
                return cast
            same = (cast == values) | ((cast != cast) & (values != values))
    except (TypeError, ValueError, OverflowError):
        return None
    return cast if bool(np.all(same)) else None


def _odd(where: str, number: int, item: object, wanted: str) -> ArgumentError:
    return ArgumentError(f"{where}: item {number} is {shown(item)}, not {wanted}")


_ENCODERS: Final[Mapping[str, Callable[[Sequence[Any], ItemKind, str], list[bytes | None]]]] = {
    "utf8": _encode_utf8,
    "bytes": _encode_bytes,
    "json": _encode_json,
    "list": _encode_rows,
}
