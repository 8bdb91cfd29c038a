"""Sums, extremes and the like of arrays that are read block by block.

The results of blocks are combined to that of the array, with NumPy's types and, but for the
rounding of floats, NumPy's values.

Floats of up to 32 bits are summed in 64 bits and rounded once, at the end. The sums of blocks are
added in pairs, pairs of pairs and so on, as NumPy does inside an array: the error grows with the
logarithm of the number of items. Integers, booleans and times are exact, and wrap around where
NumPy's do.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot.errors import ArgumentError, ArgumentTypeError
from ingot.grid import ChunkGrid, axis_numbers, block_shape, blocks

__all__ = [
    "ALL",
    "ANY",
    "MAX",
    "MIN",
    "Axis",
    "Out",
    "Reduction",
    "Source",
    "deviation",
    "mean",
    "position",
    "product",
    "reduce",
    "total",
    "variance",
]

Axis: TypeAlias = int | Sequence[int] | None
"""One axis, several, or None for all."""

Out: TypeAlias = NDArray[Any] | None
"""Where the result goes, or None for an array of its own."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where blocks come from: an array's grid and type, and a way to read a box of it."""

    grid: ChunkGrid
    dtype: np.dtype[Any]
    read: Callable[[tuple[slice, ...]], NDArray[Any]]
    stored: Callable[[], Iterable[tuple[int, ...]] | None] = lambda: None
    """Returns the coordinates of the stored chunks where they are few; else None."""
    fill: Any = 0
    """The item of all other chunks."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: NumPy's method for a block, and the function that combines two results.

    `final` is the result that no further item can change, if there is one.
    """

    method: str
    combine: np.ufunc
    final: bool | None = None

    def of(self, block: NDArray[Any], axes: tuple[int, ...], **settings: Any) -> NDArray[Any]:
        """Return NumPy's result for one block; every axis stays, with length 1.

        >>> MAX.of(np.arange(6).reshape(2, 3), (1,)).tolist()
        [[2], [5]]
        """
        return np.asarray(getattr(block, self.method)(axis=axes, keepdims=True, **settings))


MIN: Final = Reduction("min", np.minimum)
MAX: Final = Reduction("max", np.maximum)
ANY: Final = Reduction("any", np.logical_or, final=True)
ALL: Final = Reduction("all", np.logical_and, final=False)
_SUM: Final = Reduction("sum", np.add)
_PRODUCT: Final = Reduction("prod", np.multiply)

# Types whose sums are kept in another one until the end.
_WIDER: Final = {np.dtype(narrow): np.dtype(wide) for narrow, wide in ("ed", "fd", "FD")}


def reduce(
    source: Source, reduction: Reduction, axis: Axis, out: Out = None, keepdims: bool = False
) -> Any:
    """Reduce an array along axes.

    >>> data = np.arange(6).reshape(2, 3)
    >>> source = Source(ChunkGrid((2, 3), (1, 2), padded=True), data.dtype, data.__getitem__)
    >>> reduce(source, MAX, 1), reduce(source, ANY, None)
    (array([2, 5]), np.True_)
    """
    axes = _axes(source, axis)
    return _presented(_fold(source, reduction, axes), axes, out, keepdims)


def total(
    source: Source,
    axis: Axis,
    dtype: DTypeLike | None = None,
    out: Out = None,
    keepdims: bool = False,
) -> Any:
    """Add up the items along axes, in the type NumPy gives the sum.

    >>> data = np.full(300, 100, np.int8)
    >>> total(Source(ChunkGrid((300,), (7,), padded=True), data.dtype, data.__getitem__), None)
    np.int64(30000)
    """
    axes = _axes(source, axis)
    if source.dtype.hasobject:
        return _presented(_fold(source, _SUM, axes), axes, out, keepdims)
    kind = np.add.reduce(np.empty(0, source.dtype), dtype=dtype).dtype
    sums = _fold(source, _SUM, axes, dtype=_working(kind, dtype))
    # A sum too large for its type is infinite in NumPy too.
    with np.errstate(over="ignore"):
        return _presented(sums.astype(kind, copy=False), axes, out, keepdims)


def mean(
    source: Source,
    axis: Axis,
    dtype: DTypeLike | None = None,
    out: Out = None,
    keepdims: bool = False,
) -> Any:
    """Average the items along axes; integers in float64, as NumPy does.

    >>> data = np.arange(4, dtype=np.int8)
    >>> mean(Source(ChunkGrid((4,), (3,), padded=True), data.dtype, data.__getitem__), None)
    np.float64(1.5)
    """
    axes = _axes(source, axis)
    count = math.prod(source.grid.shape[each] for each in axes)
    if count == 0:
        # NumPy gives a value and a warning for the average of no items.
        nothing: Any = np.empty(source.grid.shape, source.dtype)
        return nothing.mean(axis=axes, dtype=dtype, out=out, keepdims=keepdims)
    if dtype is not None:
        kind = np.dtype(dtype)
    else:
        kind = np.dtype("f8") if source.dtype.kind in "biu" else source.dtype.newbyteorder("=")
    sums = _fold(source, _SUM, axes, dtype=_working(kind, dtype))
    averages = np.asarray(np.true_divide(sums, count if count < 2**63 else float(count)))
    return _presented(averages.astype(kind, copy=False), axes, out, keepdims)


def product(
    source: Source,
    axis: Axis,
    dtype: DTypeLike | None = None,
    out: Out = None,
    keepdims: bool = False,
) -> Any:
    """Multiply the items along axes, in the type NumPy gives the product.

    >>> data = np.array([1, 2, 3, 4], np.int8)
    >>> product(Source(ChunkGrid((4,), (3,), padded=True), data.dtype, data.__getitem__), None)
    np.int64(24)
    """
    axes = _axes(source, axis)
    if source.dtype.kind in "mM":
        raise ArgumentTypeError(f"items of {source.dtype} have no product")
    kind = np.multiply.reduce(np.empty(0, source.dtype), dtype=dtype).dtype
    # The product of items that repeat is a power, so chunks that are not stored count as well.
    every = replace(source, stored=lambda: None)
    found = _fold(every, _PRODUCT, axes, dtype=_working(kind, dtype))
    with np.errstate(over="ignore"):
        return _presented(found.astype(kind, copy=False), axes, out, keepdims)


def variance(
    source: Source,
    axis: Axis,
    dtype: DTypeLike | None = None,
    out: Out = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    """Return the variance along axes, in two passes: the mean, then the squares around it.

    >>> data = np.arange(4, dtype=np.int8)
    >>> variance(Source(ChunkGrid((4,), (3,), padded=True), data.dtype, data.__getitem__), None)
    np.float64(1.25)
    """
    axes = _axes(source, axis)
    if source.dtype.kind not in "biufc":
        raise ArgumentTypeError(f"items of {source.dtype} have no variance")
    count = math.prod(source.grid.shape[each] for each in axes)
    if not count or 0 in source.grid.shape:
        # NumPy gives a value and a warning for the variance of no items.
        nothing: Any = np.empty(source.grid.shape, source.dtype)
        return nothing.var(axis=axes, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims)
    kind = np.dtype(dtype) if dtype is not None else np.ones(1, source.dtype).var().dtype
    wide = np.result_type(kind, source.dtype, np.float64)
    center = mean(source, axis, wide, keepdims=True)

    def squares(key: tuple[slice, ...]) -> NDArray[Any]:
        at = tuple(slice(None) if n in axes else each for n, each in enumerate(key))
        apart = source.read(key).astype(wide) - center[at]
        return np.asarray((apart * apart.conj()).real)

    real = np.empty(0, wide).real.dtype
    sums = _fold(Source(source.grid, real, squares), _SUM, axes, dtype=real)
    with np.errstate(all="ignore"):
        found = np.asarray(np.true_divide(sums, max(count - ddof, 0)))
        return _presented(found.astype(kind, copy=False), axes, out, keepdims)


def deviation(
    source: Source,
    axis: Axis,
    dtype: DTypeLike | None = None,
    out: Out = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    """Return the standard deviation along axes: the root of the variance.

    >>> data = np.array([1.0, 3.0])
    >>> deviation(Source(ChunkGrid((2,), (1,), padded=True), data.dtype, data.__getitem__), None)
    np.float64(1.0)
    """
    found = np.sqrt(variance(source, axis, dtype, None, ddof, keepdims))
    if out is None:
        return found
    if out.shape != np.shape(found):
        raise ArgumentError(f"out has shape {out.shape}, the result has {np.shape(found)}")
    np.copyto(out, found, casting="same_kind")
    return out


def position(
    source: Source,
    method: Literal["argmin", "argmax"],
    axis: int | None,
    out: Out = None,
    keepdims: bool = False,
) -> Any:
    """Find where the smallest or the largest item is, the first of equal ones, as NumPy does.

    >>> data = np.array([[1, 7], [7, 0]])
    >>> source = Source(ChunkGrid((2, 2), (1, 1), padded=True), data.dtype, data.__getitem__)
    >>> position(source, "argmax", None), position(source, "argmin", 0)
    (np.int64(1), array([0, 1]))
    """
    shape = source.grid.shape
    axes = _axes(source, None) if axis is None else axis_numbers(axis, len(shape))
    lengths = [1 if each in axes else size for each, size in enumerate(shape)]
    if 0 in shape or source.dtype.kind in "OTV":
        # NumPy decides what is found among no items, and in which order objects are compared.
        whole = tuple(slice(0, size) for size in shape)
        block = np.empty(shape, source.dtype) if 0 in shape else source.read(whole)
        found = np.asarray(getattr(block, method)(axis=axis)).reshape(lengths)
        return _presented(found, axes, out, keepdims)
    others = [each for each in range(len(shape)) if each not in axes]
    order = [*reversed(axes), *reversed(others)]
    step = block_shape(source.grid, source.dtype.itemsize, order=order)
    result = np.empty(lengths, np.intp)
    for place in blocks(lengths, step):
        best: _Candidates | None = None
        for key in blocks([shape[each] for each in axes], [step[each] for each in axes]):
            box = list(place)
            for each, positions in zip(axes, key, strict=True):
                box[each] = positions
            new = _candidates(source.read(tuple(box)), method, axis, shape, box)
            best = new if best is None else _better(best, new, method)
        assert best is not None
        result[place] = best[1]
    return _presented(result, axes, out, keepdims)


_Candidates: TypeAlias = tuple[NDArray[Any], NDArray[np.intp]]
"""Extreme items, and where they are in the whole array; every axis stays."""


def _candidates(
    block: NDArray[Any],
    method: str,
    axis: int | None,
    shape: tuple[int, ...],
    box: Sequence[slice],
) -> _Candidates:
    if axis is not None:
        found = getattr(block, method)(axis=axis, keepdims=True)
        return np.take_along_axis(block, found, axis), found + box[axis].start
    at = np.unravel_index(getattr(block, method)(), block.shape)
    whole = [int(inside) + part.start for inside, part in zip(at, box, strict=True)]
    number = np.ravel_multi_index(whole, shape) if shape else 0
    ones = (1,) * block.ndim
    return block[at].reshape(ones), np.full(ones, number, np.intp)


def _better(one: _Candidates, other: _Candidates, method: str) -> _Candidates:
    """Return the more extreme of two candidates; of equal ones, or two NaN, the first."""
    items = np.stack([one[0], other[0]])
    # Blocks do not follow each other as the items of the array do.
    same = (items[0] == items[1]) | ((items[0] != items[0]) & (items[1] != items[1]))
    later = np.where(same, other[1] < one[1], getattr(items, method)(axis=0) == 1)
    return np.where(later, items[1], items[0]), np.where(later, other[1], one[1])


def _working(kind: np.dtype[Any], asked: DTypeLike | None) -> np.dtype[Any] | None:
    """Return the type in which sums are kept until the end; None leaves it to NumPy."""
    if asked is not None:
        return kind
    # NumPy takes no dtype for sums of times, since their type has a unit.
    return None if kind.kind in "mM" else _WIDER.get(kind, kind)


def _axes(source: Source, axis: Axis) -> tuple[int, ...]:
    ndim = len(source.grid.shape)
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(axis_numbers(axis, ndim)))


def _presented(result: NDArray[Any], axes: tuple[int, ...], out: Out, keepdims: bool) -> Any:
    if not keepdims:
        result = result.squeeze(axes)
    if out is None:
        return result[()]
    if out.shape != result.shape:
        raise ArgumentError(f"out has shape {out.shape}, the result has {result.shape}")
    np.copyto(out, result, casting="same_kind")
    return out


def _fold(
    source: Source, reduction: Reduction, axes: tuple[int, ...], **settings: Any
) -> NDArray[Any]:
    """Reduce along axes, all of which stay, with length 1."""
    shape = source.grid.shape
    whole = tuple(slice(0, size) for size in shape)
    if 0 in shape or source.dtype.hasobject:
        # NumPy decides the sum of no items, and the order in which objects are added.
        block = np.empty(shape, source.dtype) if 0 in shape else source.read(whole)
        return reduction.of(block, axes, **settings)
    lengths = [1 if axis in axes else size for axis, size in enumerate(shape)]
    stored = source.stored()
    if stored is not None:
        return _fold_stored(source, reduction, axes, stored, settings)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*reversed(axes), *reversed(others)]
    step = block_shape(source.grid, source.dtype.itemsize, order=order)
    result: NDArray[Any] | None = None
    for place in blocks(lengths, step):
        part = _fold_place(source, reduction, axes, step, place, settings)
        if result is None:
            result = np.empty(lengths, part.dtype)
        result[place] = part
    assert result is not None
    return result


def _fold_place(
    source: Source,
    reduction: Reduction,
    axes: tuple[int, ...],
    step: tuple[int, ...],
    place: tuple[slice, ...],
    settings: dict[str, Any],
) -> NDArray[Any]:
    """Reduce all blocks that contribute to one item of the result."""
    pairs = _Pairs(reduction.combine)
    shape = source.grid.shape
    for key in blocks([shape[axis] for axis in axes], [step[axis] for axis in axes]):
        box = list(place)
        for axis, positions in zip(axes, key, strict=True):
            box[axis] = positions
        part = reduction.of(source.read(tuple(box)), axes, **settings)
        if reduction.final is not None and bool((part == reduction.final).all()):
            return part
        pairs.add(part)
    return pairs.all()


def _fold_stored(
    source: Source,
    reduction: Reduction,
    axes: tuple[int, ...],
    stored: Iterable[tuple[int, ...]],
    settings: dict[str, Any],
) -> NDArray[Any]:
    """Reduce the stored chunks, and all other items, which are the fill value, at once."""
    grid = source.grid
    shape, others = grid.shape, [axis for axis in range(len(grid.shape)) if axis not in axes]
    total = math.prod(shape[axis] for axis in axes)
    item = np.empty((1,) * len(shape), source.dtype)
    item[...] = source.fill
    one = reduction.of(item, axes, **settings)
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for coords in stored:
        groups.setdefault(tuple(coords[axis] for axis in others), []).append(coords)
    lengths = [1 if axis in axes else size for axis, size in enumerate(shape)]
    result = np.empty(lengths, one.dtype)
    result[...] = _repeated(reduction, one, total)
    for members in groups.values():
        pairs, held = _Pairs(reduction.combine), 0
        place = [slice(0, 1)] * len(shape)
        for coords in members:
            box = grid.box(coords)
            part = reduction.of(source.read(box), axes, **settings)
            held += math.prod(box[axis].stop - box[axis].start for axis in axes)
            pairs.add(part)
            for axis in others:
                place[axis] = box[axis]
        if held < total:
            pairs.add(_repeated(reduction, one, total - held))
        result[tuple(place)] = pairs.all()
    return result


def _repeated(reduction: Reduction, one: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the result for an item that repeats; `one` is that for the item alone."""
    kind, dtype = one.dtype.kind, one.dtype
    if reduction.combine is not np.add or kind not in "iumfc":
        return one
    if kind == "m" and np.isnat(one).all():
        return one
    if kind in "ium":
        # Integers wrap around, as they do when they are added one by one.
        bits = 8 * dtype.itemsize
        words = one.view(f"u{dtype.itemsize}")
        product = int(words.reshape(-1)[0]) * count % 2**bits
        return np.full(one.shape, product, words.dtype).view(dtype)
    parts = [one.real, one.imag] if kind == "c" else [one]
    wide = np.result_type(parts[0].dtype, np.float64)
    repeated = np.empty_like(one)
    targets = [repeated.real, repeated.imag] if kind == "c" else [repeated]
    with np.errstate(over="ignore"):
        for target, part in zip(targets, parts, strict=True):
            target[...] = part.astype(wide) * float(count)
    return repeated


class _Pairs:
    """Combines a series of results in pairs, and keeps only a logarithmic number of them."""

    __slots__ = ("_combine", "_held")

    def __init__(self, combine: np.ufunc) -> None:
        self._combine = combine
        self._held: list[tuple[int, NDArray[Any]]] = []

    def add(self, part: NDArray[Any]) -> None:
        count = 1
        while self._held and self._held[-1][0] == count:
            part = np.asarray(self._combine(self._held.pop()[1], part))
            count *= 2
        self._held.append((count, part))

    def all(self) -> NDArray[Any]:
        result = self._held.pop()[1]
        while self._held:
            result = np.asarray(self._combine(self._held.pop()[1], result))
        return result
