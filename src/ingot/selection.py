"""Selections: NumPy keys as one range or index array per axis.

A selection says what a key means for an array of a given shape: which items it selects, in which
order, and the shape that NumPy gives the result, for reading and for assigning. Chunks and data
are not part of it.

A selection separates what to fetch from how to present it. The engine moves data in *engine
order*, as an array of the selection's ``engine_shape``; the selection does the rest::

    reading    engine array -> selection.finish(array)         -> what NumPy would return
    assigning  any value    -> selection.prepare(value, dtype) -> engine array

There are three kinds, from the cheapest to the most general:

===================== ========================================= ===============================
kind                  keys                                      engine order
===================== ========================================= ===============================
`BasicSelection`      integers, slices, ``...``, None           a box, with steps
`OrthogonalSelection` one index array or mask among the above;  outer product of the axes
                      several that span a product (`np.ix_`);
                      every key of `parse_orthogonal`
`CoordinateSelection` index arrays that broadcast together;     points, then the ranges left
                      masks over several axes
===================== ========================================= ===============================

An item may be selected twice. On assignment the last one wins: last in the C order of the index
arrays. Engine order keeps that order along every axis, so the rule holds as long as the items of
one chunk are assigned in engine order.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    IngotError,
    LimitError,
    SelectionError,
)
from ingot.grid import MOST_NUMPY_AXES
from ingot.values import as_array

__all__ = [
    "BREAK",
    "GROUP",
    "NEW",
    "POINT",
    "Arrangement",
    "BasicSelection",
    "CoordinateSelection",
    "FancySelection",
    "Key",
    "OrthogonalSelection",
    "Selection",
    "evaluated",
    "out_of_bounds",
    "parse",
    "parse_orthogonal",
    "within_bounds",
]

IntArray = NDArray[np.int64]
Shape = tuple[int, ...]
Axis = range | IntArray

NEW: Final = -1
"""A piece that adds an axis of length 1."""
POINT: Final = -2
"""A piece that takes one position of an axis; the axis is dropped."""
GROUP: Final = -3
"""A piece that is one of the index arrays that broadcast together."""
BREAK: Final = -4
"""A piece that only separates its neighbours: ``...``, even where it stands for no axis."""

_WHOLE = slice(None)
_BOX_MISMATCH = "could not broadcast input array from shape {} into shape {}"
_FANCY_MISMATCH = (
    "shape mismatch: value array of shape {} could not be broadcast to indexing result of shape {}"
)


class BasicSelection(NamedTuple):
    """A box with steps: what integers, slices, ``...`` and None select.

    Along axis ``k`` it has the positions ``starts[k] + i * steps[k]`` for ``i`` below
    ``counts[k]``. Steps may be negative, never 0. Where fewer than two items are selected the step
    is 1; where none is selected the start is 0.

    This is a tuple rather than a dataclass because every read of a single element builds one, and
    building a frozen dataclass takes three times as long.

    >>> parse((3, slice(None, None, -2)), (5, 6))
    BasicSelection(starts=(3, 5), counts=(1, 3), steps=(1, -2), dropped=(True, False), shape=(3,),
    scalar=False)
    """

    starts: Shape
    counts: Shape
    steps: Shape
    dropped: tuple[bool, ...]
    """True for axes that an integer selected: of length 1 in the box, absent from the result."""
    shape: Shape
    """The shape of the result."""
    scalar: bool
    """True when NumPy returns an item instead of an array without axes."""

    @property
    def engine_shape(self) -> Shape:
        """The shape of the box.

        >>> parse(3, (5, 6)).engine_shape
        (1, 6)
        """
        return self.counts

    def finish(self, array: NDArray[Any]) -> Any:
        """Return what NumPy would return for the box: a view, or an item for a scalar key.

        >>> parse((0, None), (2, 3)).finish(np.zeros((1, 3))).shape
        (1, 3)
        """
        if self.scalar:
            return array.reshape(())[()]
        return array.reshape(self.shape)

    def prepare(self, value: object, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Broadcast a value to be assigned to the shape of the box, by NumPy's rules.

        The array returned must not be written to: it may be a view of ``value`` and may repeat
        items in place (strides of 0). With a ``dtype`` items are cast as in NumPy's assignment.

        >>> parse(slice(1, 4), (5,)).prepare(7).tolist()
        [7, 7, 7]
        >>> parse(slice(1, 4), (5,)).prepare([1, 2])
        Traceback (most recent call last):
        ingot.errors.ArgumentError: could not broadcast input array from shape (2,) into shape (3,)
        """
        spread = _spread(value, dtype, self.shape, _BOX_MISMATCH, scalar=self.scalar)
        return spread.reshape(self.counts)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the axes of engine order become those of a result.

    Engine order is reshaped to ``split``, its axes are put in the given ``order``, and axes of
    length 1 are added to give ``shape``.

    >>> Arrangement(split=(2, 3), order=(1, 0), shape=(3, 1, 2)).finish(np.zeros(6)).shape
    (3, 1, 2)
    """

    split: Shape
    order: Shape
    shape: Shape

    def finish(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the result for an array in engine order; a view when ``array`` is contiguous.

        >>> Arrangement((2, 2), (1, 0), (2, 2)).finish(np.arange(4)).tolist()
        [[0, 2], [1, 3]]
        """
        return array.reshape(self.split).transpose(self.order).reshape(self.shape)

    def prepare(
        self, value: object, dtype: np.dtype[Any] | None, engine_shape: Shape
    ) -> NDArray[Any]:
        """Return a value to be assigned in engine order; the reverse of `finish`.

        >>> Arrangement((2, 2), (1, 0), (2, 2)).prepare([[0, 2], [1, 3]], None, (4,)).tolist()
        [0, 1, 2, 3]
        """
        spread = _spread(value, dtype, self.shape, _FANCY_MISMATCH)
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        turned = spread.reshape([self.split[axis] for axis in self.order]).transpose(back)
        return turned.reshape(engine_shape)


@dataclass(frozen=True, slots=True, eq=False)
class FancySelection:
    """A selection with index arrays: what the two kinds of these have in common.

    Index arrays belong to the selection alone. They are read-only, one-dimensional and within
    bounds, and keep the order and the duplicates of the key.
    """

    axes: tuple[Axis, ...]
    """A range or an index array for each axis of the array that is selected from."""
    engine_shape: Shape
    """The shape of engine order."""
    arrangement: Arrangement

    @property
    def shape(self) -> Shape:
        """The shape of the result.

        >>> parse((0, slice(0, 3), [[1, 2], [3, 4]]), (5, 6, 7)).shape
        (2, 2, 3)
        """
        return self.arrangement.shape

    def finish(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return what NumPy would return for an array in engine order.

        >>> parse((0, slice(0, 3), [1, 2]), (5, 6, 7)).finish(np.zeros((1, 3, 2))).shape
        (2, 3)
        """
        return self.arrangement.finish(array)

    def prepare(self, value: object, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Return a value to be assigned in engine order; see `BasicSelection.prepare`.

        >>> parse((slice(0, 3), [1, 2], [1, 2]), (5, 6, 7)).prepare([8, 9]).tolist()
        [[8, 8, 8], [9, 9, 9]]
        """
        return self.arrangement.prepare(value, dtype, self.engine_shape)


@dataclass(frozen=True, slots=True, eq=False)
class OrthogonalSelection(FancySelection):
    """The outer product of one range or index array per axis.

    Engine order has the axes of the array, each as long as its range or index array.

    >>> selection = parse((0, slice(0, 3), [[1, 2], [3, 4]]), (5, 6, 7))
    >>> selection.axes
    (range(0, 1), range(0, 3), array([1, 2, 3, 4]))
    >>> selection.engine_shape, selection.shape
    ((1, 3, 4), (2, 2, 3))
    """


@dataclass(frozen=True, slots=True, eq=False)
class CoordinateSelection(FancySelection):
    """Points given by several index arrays, and all of the ranges at each point.

    Engine order is the points, then one axis for each range. The index arrays among ``axes`` all
    have as many items as there are points. The key ``False`` selects 0 points without any of them.

    >>> selection = parse(([1, 2, 3], slice(0, 4), [5, 5, 6]), (5, 6, 7))
    >>> selection.axes
    (array([1, 2, 3]), range(0, 4), array([5, 5, 6]))
    >>> selection.engine_shape, selection.shape
    ((3, 4), (3, 4))
    """


Selection: TypeAlias = BasicSelection | OrthogonalSelection | CoordinateSelection


def parse(key: object, shape: Shape) -> Selection:
    """Return what ``array[key]`` selects from a NumPy array of a shape.

    Keys that do not fit the shape raise `SelectionError`, an `IndexError`. As in NumPy, a slice
    with a bound that is not an integer raises `TypeError`, a step of 0 `ValueError`.

    >>> parse((slice(2, 8, 3), -1), (10, 20)).shape
    (2,)
    >>> parse([True, False, True], (3, 4)).axes
    (array([0, 2]), range(0, 4))
    >>> parse(10, (10,))
    Traceback (most recent call last):
    ingot.errors.SelectionError: index 10 is out of bounds for axis 0 with size 10
    """
    items = key if isinstance(key, tuple) else (key,)
    try:
        selection = _parse_plain(items, shape)
        if selection is not None:
            return selection
        read = Key.read(items, shape)
    except (TypeError, ValueError) as error:
        raise _of_key(error) from error
    return _advanced(read) if GROUP in read.pieces else _basic(read)


def _of_key(error: TypeError | ValueError) -> Exception:
    """Return the error for a key that NumPy refuses: a step of 0, or rows of different lengths."""
    if isinstance(error, IngotError):
        return error
    ours = ArgumentError if isinstance(error, ValueError) else ArgumentTypeError
    return ours(str(error))


def evaluated(key: object) -> object:
    """Return a key that selects the same, so that code of the caller's objects is run only here.

    >>> evaluated(([1, 2], slice(0, np.int8(3)), ...))
    (array([1, 2]), slice(0, 3, None), Ellipsis)
    """
    items = key if isinstance(key, tuple) else (key,)
    found = tuple(_evaluated_slice(i) if isinstance(i, slice) else _recognised(i) for i in items)
    return found if isinstance(key, tuple) else found[0]


def parse_orthogonal(key: object, shape: Shape) -> Selection:
    """Return what ``array.oindex[key]`` selects: every axis is selected on its own.

    The key may have integers, slices, ``...``, None, and arrays of integers or booleans with one
    axis. The result has the axes of the array in their order, integers left out.

    >>> selection = parse_orthogonal(([0, 2], slice(1, 3), [True, False, True]), (5, 6, 3))
    >>> selection.shape, selection.axes
    ((2, 2, 2), (array([0, 2]), range(1, 3), array([0, 2])))
    """
    items = key if isinstance(key, tuple) else (key,)
    try:
        selection = _parse_plain(items, shape)
        if selection is not None:
            return selection
        read = Key.read(items, shape, orthogonal=True)
    except (TypeError, ValueError) as error:
        raise _of_key(error) from error
    if all(isinstance(axis, range) for axis in read.axes):
        return _basic(read)
    kept = [piece for piece in read.pieces if piece >= 0]
    return _outer(tuple(read.axes), _arranged(read.axes, read.pieces, kept, ()))


@dataclass(slots=True)
class Key:
    """A parsed key: a range or index array for each axis, and the pieces of the key.

    ``pieces`` follow the order of the key. A piece is the number of the axis it keeps, or one of
    the constants `NEW`, `POINT`, `GROUP`, `BREAK`. Index arrays are copies. Those of a group are
    not yet checked, because NumPy does not check indices that are broadcast away.

    >>> key = Key.read((0, ..., None, [1, 2]), (5, 6, 7))
    >>> key.axes, key.pieces
    ([range(0, 1), range(0, 6), array([1, 2])], [-2, -4, 1, -1, -3])
    """

    shape: tuple[int, ...]
    axes: list[range | IntArray] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    lone: list[tuple[int, ...]] = field(default_factory=list)
    """The shapes that masks without axes, True and False, add to the broadcast."""

    @classmethod
    def read(
        cls, items: Sequence[object], shape: tuple[int, ...], *, orthogonal: bool = False
    ) -> "Key":
        """Read the items of a key; ``orthogonal`` keeps every index array to its own axis.

        >>> Key.read(([1, 2], [3, -4]), (5, 6), orthogonal=True).axes
        [array([1, 2]), array([3, 2])]
        """
        key = cls(shape)
        for item in _expanded([_recognised(item) for item in items], len(shape)):
            if item is None:
                key.pieces.append(NEW)
            elif item is Ellipsis:
                key.pieces.append(BREAK)
            elif isinstance(item, slice):
                key.pieces.append(len(key.axes))
                key.axes.append(_range(item, shape[len(key.axes)]))
            elif isinstance(item, int):
                key._take_integer(item)
            elif orthogonal:
                key._take_alone(np.asarray(item))
            else:
                key._take_into_group(np.asarray(item))
        return key

    def _take_integer(self, item: int) -> None:
        axis = len(self.axes)
        size = self.shape[axis]
        if not -size <= item < size:
            raise out_of_bounds(axis, item, size)
        position = item % size
        self.pieces.append(POINT)
        self.axes.append(range(position, position + 1))

    def _take_alone(self, array: NDArray[Any]) -> None:
        axis = len(self.axes)
        if array.ndim != 1:
            raise SelectionError(
                f"axis {axis}: an orthogonal index has 1 axis, this array has {array.ndim}"
            )
        if array.dtype == bool:
            array = _positions(array, axis, self.shape)[0]
        self.pieces.append(axis)
        self.axes.append(within_bounds(array, axis, self.shape[axis]))

    def _take_into_group(self, array: NDArray[Any]) -> None:
        if array.dtype != bool:
            self.pieces.append(GROUP)
            self.axes.append(array)
        elif array.ndim == 0:
            self.pieces.append(GROUP)
            self.lone.append((int(array),))
        else:
            self.pieces += [GROUP] * array.ndim
            self.axes += _positions(array, len(self.axes), self.shape)


def within_bounds(index: IntArray, axis: int, size: int) -> IntArray:
    """Check an index array, count it from the start of the axis, and return it read-only.

    >>> within_bounds(np.array([0, -1]), 0, 10).tolist()
    [0, 9]
    """
    if index.size:
        low, high = int(index.min()), int(index.max())
        if high >= size or low < -size:
            raise out_of_bounds(axis, high if high >= size else low, size)
        if low < 0:
            index[index < 0] += size
    index.setflags(write=False)
    return index


def out_of_bounds(axis: int, index: int, size: int) -> SelectionError:
    """Return the error for a position outside an axis.

    >>> print(out_of_bounds(1, 5, 3))
    index 5 is out of bounds for axis 1 with size 3
    """
    return SelectionError(f"index {index} is out of bounds for axis {axis} with size {size}")


_ITEM = BasicSelection((), (), (), (), (), scalar=True)


def _parse_plain(items: tuple[Any, ...], shape: Shape) -> BasicSelection | None:
    """Return the selection of a key of integers and slices only, else None: the fast path."""
    missing = len(shape) - len(items)
    if missing < 0:
        return None
    if not shape:
        return _ITEM
    rows, kept = [], []
    # Lengths are equal; a strict zip would cost a fifth of the whole call.
    for item, size in zip(items + (_WHOLE,) * missing, shape):  # noqa: B905
        kind = type(item)
        if kind is slice:
            start, stop, step = item.indices(size)
            if step == 1:
                count = stop - start
            else:
                count = len(range(start, stop, step))
                if count < 2:
                    step = 1
            if count <= 0:
                start = count = 0
            rows.append((start, count, step, False))
            kept.append(count)
            continue
        if kind is not int:
            if not isinstance(item, np.integer):
                return None
            item = int(item)
        if not -size <= item < size:
            raise out_of_bounds(len(rows), item, size)
        rows.append((item if item >= 0 else item + size, 1, 1, True))
    starts, counts, steps, dropped = zip(*rows)  # noqa: B905
    return BasicSelection(starts, counts, steps, dropped, tuple(kept), not kept)


def _basic(key: Key) -> BasicSelection:
    ranges = [axis for axis in key.axes if isinstance(axis, range)]
    kept = [piece for piece in key.pieces if piece >= NEW]
    shape = _limited([1 if piece == NEW else len(ranges[piece]) for piece in kept])
    return BasicSelection(
        starts=tuple(axis.start for axis in ranges),
        counts=tuple(len(axis) for axis in ranges),
        steps=tuple(axis.step for axis in ranges),
        dropped=tuple(axis not in kept for axis in range(len(ranges))),
        shape=shape,
        scalar=not shape and BREAK not in key.pieces,
    )


def _advanced(key: Key) -> OrthogonalSelection | CoordinateSelection:
    """Return the selection of a key with index arrays, which broadcast together."""
    arrays = {n: axis for n, axis in enumerate(key.axes) if isinstance(axis, np.ndarray)}
    together = _broadcast([*(array.shape for array in arrays.values()), *key.lone])
    pieces = _gathered(key.pieces)
    if 0 in together:
        # Indices that are broadcast away are not checked, so the selection must not hold them.
        nothing = _flat(np.zeros(0, dtype=np.int64))
        return _walked(key, pieces, dict.fromkeys(arrays, nothing), together)
    checked = {n: within_bounds(array, n, key.shape[n]) for n, array in arrays.items()}
    spans = {n: _spanned(array.shape, len(together)) for n, array in checked.items()}
    if len(set().union(*spans.values())) < sum(map(len, spans.values())):
        walked = {n: _flat(np.broadcast_to(array, together)) for n, array in checked.items()}
        return _walked(key, pieces, walked, together)
    axes = tuple(_flat(checked[n]) if n in checked else axis for n, axis in enumerate(key.axes))
    held: list[int] = []
    for axis in range(len(axes)):
        if axis in spans:
            held += [~dimension for dimension in spans[axis]]
        elif axis in pieces:
            held.append(axis)
    return _outer(axes, _arranged(axes, pieces, held, together))


def _outer(axes: tuple[Axis, ...], arrangement: Arrangement) -> OrthogonalSelection:
    return OrthogonalSelection(axes, tuple(len(axis) for axis in axes), arrangement)


def _walked(
    key: Key, pieces: list[int], coordinates: dict[int, IntArray], together: Shape
) -> CoordinateSelection:
    axes = tuple(coordinates.get(n, axis) for n, axis in enumerate(key.axes))
    held = [~dimension for dimension in range(len(together))]
    held += [piece for piece in pieces if piece >= 0]
    ranges = [len(axis) for axis in axes if isinstance(axis, range)]
    arrangement = _arranged(axes, pieces, held, together)
    return CoordinateSelection(axes, (math.prod(together), *ranges), arrangement)


def _gathered(pieces: list[int]) -> list[int]:
    """Return the pieces with a single GROUP, at the place of the broadcast in the result.

    If all index arrays and integers stand side by side, that is their place; otherwise it is in
    front of all other pieces.
    """
    advanced = [place for place, piece in enumerate(pieces) if piece in (POINT, GROUP)]
    adjacent = advanced[-1] - advanced[0] + 1 == len(advanced)
    others = [piece for piece in pieces if piece not in (POINT, GROUP)]
    others.insert(advanced[0] if adjacent else 0, GROUP)
    return others


def _arranged(
    axes: Sequence[Axis], pieces: list[int], held: list[int], together: Shape
) -> Arrangement:
    """Return how the axes in engine order, `held`, become those of the result.

    A label below zero is the complement of a dimension of the broadcast; others are array axes.
    """
    labels: list[int | None] = []
    for piece in pieces:
        if piece == GROUP:
            labels += [~dimension for dimension in range(len(together))]
        elif piece >= NEW:
            labels.append(None if piece == NEW else piece)

    def length(label: int | None) -> int:
        if label is None:
            return 1
        return together[~label] if label < 0 else len(axes[label])

    return Arrangement(
        split=tuple(length(label) for label in held),
        order=tuple(held.index(label) for label in labels if label in held),
        shape=_limited([length(label) for label in labels]),
    )


def _flat(index: IntArray) -> IntArray:
    flat = index.reshape(-1)
    flat.setflags(write=False)
    return flat


def _spanned(shape: Shape, ndim: int) -> list[int]:
    """Return the dimensions of a broadcast to ``ndim`` along which an array of a shape varies."""
    first = ndim - len(shape)
    return [first + place for place, length in enumerate(shape) if length != 1]


def _broadcast(shapes: list[Shape]) -> Shape:
    """Return the broadcast shape; unlike NumPy's own function, for up to 64 axes."""
    together = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, length in enumerate(shape, len(together) - len(shape)):
            if length != 1 and together[place] not in (1, length):
                text = " ".join(map(_shown, shapes))
                raise SelectionError(
                    "shape mismatch: indexing arrays could not be broadcast together "
                    f"with shapes {text}"
                )
            if length != 1:
                together[place] = length
    return tuple(together)


def _limited(shape: list[int]) -> Shape:
    if len(shape) > MOST_NUMPY_AXES:
        raise SelectionError(
            f"number of dimensions must be within [0, {MOST_NUMPY_AXES}], "
            f"indexing result would have {len(shape)}"
        )
    return tuple(shape)


def _expanded(items: list[object], ndim: int) -> list[object]:
    """Return the items of a key with a full slice for each axis that it leaves out."""
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    used = 0
    for item in items:
        if isinstance(item, np.ndarray) and item.dtype == bool:
            used += item.ndim
        elif item is not None and item is not Ellipsis:
            used += 1
    if used > ndim:
        raise SelectionError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )
    place = places[0] + 1 if places else len(items)
    return [*items[:place], *[slice(None)] * (ndim - used), *items[place:]]


def _recognised(item: object) -> object:
    """Return None, Ellipsis, a slice, an int, an array of booleans, or a new array of int64."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool | np.bool_):
        return np.array(item)
    shown = f"items of type {getattr(item, 'dtype', type(item).__name__)}"
    if not isinstance(item, np.ndarray):
        if hasattr(item, "__index__"):
            try:
                return operator.index(item)
            except TypeError:
                pass  # An array of another library that is not a single integer.
        shown = repr(item) if isinstance(item, str | bytes) else shown
        array = np.asarray(item)
        # An empty list has no items that give it a type.
        item = array if array.size else array.astype(np.int64)
    if item.dtype == bool:
        return item
    if item.dtype.kind not in "iu":
        raise SelectionError(
            "only integers, slices (`:`), ellipsis (`...`), None and arrays of integers or "
            f"booleans are valid indices, not {shown}"
        )
    if item.ndim == 0:
        return int(item)
    if item.dtype.kind == "u":
        # What 64 bits with a sign cannot hold is out of bounds, and so is the largest they can.
        item = np.minimum(item, np.uint64(2**63 - 1))
    return np.array(item, dtype=np.int64, order="C")


def _evaluated_slice(item: slice) -> slice:
    bounds = (item.start, item.stop, item.step)
    # What is no integer stays, and is refused where the slice is used.
    return slice(*(operator.index(each) if hasattr(each, "__index__") else each for each in bounds))


def _range(item: slice, size: int) -> range:
    """Return the positions of a slice; with fewer than two the step is 1, with none the start 0."""
    found = range(*item.indices(size))
    if len(found) < 2:
        start = found.start if found else 0
        return range(start, start + len(found))
    return range(found.start, found.start + len(found) * found.step, found.step)


def _positions(mask: NDArray[np.bool_], axis: int, shape: tuple[int, ...]) -> list[IntArray]:
    """Return where a mask is true, as one index array for each axis of the mask."""
    for place, (length, size) in enumerate(zip(mask.shape, shape[axis:], strict=False), axis):
        # As in NumPy, a mask without items fits every axis, and selects nothing.
        if length not in (0, size):
            raise SelectionError(
                f"boolean index did not match indexed array along axis {place}; size of axis is "
                f"{size} but size of corresponding boolean axis is {length}"
            )
    return [index.astype(np.int64, copy=False) for index in mask.nonzero()]


def _spread(
    value: object,
    dtype: np.dtype[Any] | None,
    shape: Shape,
    mismatch: str,
    *,
    scalar: bool = False,
) -> NDArray[Any]:
    """Broadcast a value as assignment does: excess leading axes of length 1 are dropped."""
    if dtype is not None and dtype.kind == "O" and (scalar or isinstance(value, list | tuple)):
        # How many levels of nested lists are axes, only NumPy's own assignment decides.
        filled = np.empty(shape, dtype=dtype)
        filled[() if scalar else ...] = value
        return filled
    if dtype is not None and dtype.kind == "T" and isinstance(value, str):
        # NumPy drops trailing zeros when it converts a single text, not when it assigns one.
        value, text = np.empty((), dtype), value
        value[()] = text
    array = as_array(value, dtype)
    if scalar and array.ndim:
        raise ArgumentError("setting an array element with a sequence.")
    if array.shape == shape:
        return array
    excess = max(0, array.ndim - len(shape))
    if all(length == 1 for length in array.shape[:excess]):
        try:
            return np.broadcast_to(array.reshape(array.shape[excess:]), shape)
        except ValueError:
            ends = zip(reversed(array.shape), reversed(shape), strict=False)
            if all(length in (1, wanted) for length, wanted in ends):
                raise LimitError(f"{_shown(shape)} is no shape that NumPy can hold") from None
    raise ArgumentError(mismatch.format(_shown(array.shape), _shown(shape)))


def _shown(shape: Shape) -> str:
    """Return a shape as NumPy's messages write it: (2,), (2,3)."""
    return f"({shape[0]},)" if len(shape) == 1 else f"({','.join(map(str, shape))})"
