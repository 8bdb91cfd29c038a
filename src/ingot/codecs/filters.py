"""Filters: what is done to the numbers of a chunk before they become bytes.

Knows the filters that Zarr files name, with the results of numcodecs bit for bit, and the order of
axes. Refuses to know bytes. A filter sees its input as a run of items of its own type, whatever
the array's type is: differences of datetimes are taken of their integers.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, Filter, register
from ingot.dtypes import DType
from ingot.errors import CorruptionError, FormatError
from ingot.fields import MOST_AXES, FieldReader

__all__ = [
    "AsType",
    "BitRound",
    "Categorize",
    "Delta",
    "FixedScaleOffset",
    "PackBits",
    "Quantize",
    "Reshape",
    "Transpose",
]

Array = NDArray[Any]

_BYTE = np.dtype(np.uint8)
_NUMBERS = "iufc"
_MANTISSA_BITS = {2: 10, 4: 23, 8: 52}


@register
@dataclass(frozen=True, slots=True)
class Transpose(Filter):
    """Axes in another order; without one, all of them reversed, which is Fortran order."""

    name: ClassVar[str] = "transpose"
    order: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        order = claims.integers("order", low=0)
        if sorted(order) != list(range(len(order))):
            raise claims.wrong("order", list(order), "a permutation of the axes")
        claims.finish()
        return cls(order)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec with its axes in the new order."""
        axes = self.axes(len(spec.shape))
        return ChunkSpec(tuple(spec.shape[axis] for axis in axes), spec.dtype, spec.fill)

    def encode(self, array: Array) -> Array:
        """Return a view with the axes in the new order."""
        return array.transpose(self.axes(array.ndim))

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return a view with the axes in the old order."""
        return array.transpose(np.argsort(self.axes(array.ndim)))

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return the order of the axes."""
        order = self.order if self.order is not None else tuple(reversed(range(ndim)))
        if len(order) != ndim:
            raise FormatError(f"transpose: an order of {len(order)} axes for {ndim}")
        return order


@dataclass(frozen=True, slots=True)
class Reshape(Filter):
    """The same items in the same order, along other axes.

    Each of them is told by its length, by the axes that it takes together, or is what is left, -1.

    >>> Reshape(((0, 1), -1, 3)).encode(np.zeros((2, 5, 4, 3))).shape
    (10, 4, 3)
    """

    name: ClassVar[str] = "reshape"
    shape: tuple[int | tuple[int, ...], ...]

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        shape = claims.value("shape")
        if not isinstance(shape, list) or len(shape) > MOST_AXES:
            raise claims.wrong("shape", shape, f"a list of at most {MOST_AXES} axes")
        for axis in shape:
            together = axis if isinstance(axis, list) else [0]
            alone = isinstance(axis, list) or (type(axis) is int and (axis == -1 or axis > 0))
            if not alone or not all(type(each) is int and each >= 0 for each in together):
                raise claims.wrong("shape", shape, "of lengths, lists of axes and -1")
        claims.finish()
        return cls(tuple(tuple(axis) if isinstance(axis, list) else axis for axis in shape))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec with the other axes, if they have as many items."""
        return ChunkSpec(self._lengths(spec.shape), spec.dtype, spec.fill)

    def encode(self, array: Array) -> Array:
        """Return the array with the other axes."""
        return array.reshape(self._lengths(array.shape))

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the array with its own axes."""
        return array.reshape(spec.shape)

    def _lengths(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        taken = [axis for each in self.shape if isinstance(each, tuple) for axis in each]
        known = sorted({*taken}) == taken and max(taken, default=-1) < len(shape)
        if not known or self.shape.count(-1) > 1:
            raise FormatError(f"reshape: {list(self.shape)} are no axes for those of {shape}")
        lengths = [
            math.prod(shape[axis] for axis in each) if isinstance(each, tuple) else each
            for each in self.shape
        ]
        if -1 in lengths:
            lengths[lengths.index(-1)] = math.prod(shape) // max(-math.prod(lengths), 1)
        whole = all(
            math.prod(lengths[:at]) == math.prod(shape[: each[0]])
            and math.prod(lengths[at + 1 :]) == math.prod(shape[each[-1] + 1 :])
            for at, each in enumerate(self.shape)
            if isinstance(each, tuple) and each
        )
        if not whole or math.prod(lengths) != math.prod(shape):
            raise FormatError(f"reshape: {list(self.shape)} does not cut {shape} into whole axes")
        return tuple(lengths)


@register
@dataclass(frozen=True, slots=True)
class Delta(Filter):
    """Differences of neighbours, behind the first item."""

    name: ClassVar[str] = "delta"
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        return cls(*_parse_types(claims, _NUMBERS + "b"))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a run of differences."""
        return _run(self.name, spec, self.dtype, self.astype)

    def encode(self, array: Array) -> Array:
        """Return the differences."""
        items = _items(array, self.dtype)
        result = np.empty(items.size, self.astype)
        with np.errstate(all="ignore"):
            result[:1] = items[:1]
            result[1:] = np.diff(items)
        return result

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the sums."""
        result = np.empty(array.size, self.dtype)
        # The difference of booleans is whether they differ.
        add = np.logical_xor if self.dtype.kind == "b" else np.add
        with np.errstate(all="ignore"):
            add.accumulate(array.reshape(-1), out=result)
        return _restored(result, spec)


@register
@dataclass(frozen=True, slots=True)
class FixedScaleOffset(Filter):
    """Numbers less an offset, times a scale, rounded."""

    name: ClassVar[str] = "fixedscaleoffset"
    scale: float
    offset: float
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        scale, offset = claims.number("scale"), claims.number("offset")
        if not (math.isfinite(scale) and math.isfinite(offset) and scale):
            raise FormatError(f"{claims.where}: scale {scale} and offset {offset} lose the data")
        return cls(scale, offset, *_parse_types(claims, "iuf"))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a run of scaled numbers."""
        return _run(self.name, spec, self.dtype, self.astype)

    def encode(self, array: Array) -> Array:
        """Return the scaled numbers."""
        items = _items(array, self.dtype)
        if self.dtype.kind != "f":
            items = items.astype(np.float64)
        with np.errstate(all="ignore"):
            return np.around((items - self.offset) * self.scale).astype(self.astype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the numbers, as far as they were kept."""
        with np.errstate(all="ignore"):
            result = array.reshape(-1) / float(self.scale) + float(self.offset)
            return _restored(result.astype(self.dtype), spec)


@register
@dataclass(frozen=True, slots=True)
class Quantize(Filter):
    """Floats rounded to the binary fraction that keeps so many decimal digits."""

    name: ClassVar[str] = "quantize"
    digits: int
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        digits = claims.integer("digits", low=-300, high=300)
        return cls(digits, *_parse_types(claims, "f"))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a run of floats."""
        return _run(self.name, spec, self.dtype, self.astype)

    def encode(self, array: Array) -> Array:
        """Return the rounded floats."""
        power = math.log10(10.0**-self.digits)
        power = math.floor(power) if power < 0 else math.ceil(power)
        scale = 2.0 ** math.ceil(math.log2(10.0**-power))
        with np.errstate(all="ignore"):
            return (np.around(scale * _items(array, self.dtype)) / scale).astype(self.astype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the rounded floats in their old type: nothing brings the digits back."""
        with np.errstate(all="ignore"):
            return _restored(array.reshape(-1).astype(self.dtype), spec)


@register
@dataclass(frozen=True, slots=True)
class BitRound(Filter):
    """Floats rounded, to even, to so many bits of the mantissa."""

    name: ClassVar[str] = "bitround"
    keepbits: int

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        keepbits = claims.integer("keepbits", high=52)
        claims.finish()
        return cls(keepbits)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec`, if it is of floats that have the bits."""
        bits = _MANTISSA_BITS.get(spec.dtype.itemsize, 0) if spec.dtype.kind == "f" else 0
        if self.keepbits > bits or not bits:
            raise FormatError(f"bitround: {spec.dtype} has no {self.keepbits} bits of mantissa")
        return spec

    def encode(self, array: Array) -> Array:
        """Return the rounded floats."""
        dropped = _MANTISSA_BITS[array.dtype.itemsize] - self.keepbits
        if dropped == 0:
            return array
        integers = np.dtype(f"{array.dtype.byteorder}u{array.dtype.itemsize}")
        bits = array.copy().view(integers)
        # Half of what is dropped, less one, plus the lowest bit kept: ties go to even.
        bits += (bits >> dropped & 1) + ((1 << (dropped - 1)) - 1)
        bits &= ~np.array((1 << dropped) - 1, integers)
        return bits.view(array.dtype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the rounded floats: nothing brings the bits back."""
        return array


@register
@dataclass(frozen=True, slots=True)
class PackBits(Filter):
    """Eight booleans to a byte, behind a byte that counts the bits of padding."""

    name: ClassVar[str] = "packbits"

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        claims.finish()
        return cls()

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a run of bytes."""
        return ChunkSpec((1 + (spec.nbytes + 7) // 8,), _BYTE)

    def encode(self, array: Array) -> Array:
        """Return the packed bits."""
        items = _items(array, np.dtype(bool))
        padding = np.array([-items.size % 8], np.uint8)
        return np.concatenate([padding, np.packbits(items)])

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the booleans."""
        padding = -spec.nbytes % 8
        if array[0] != padding:
            raise CorruptionError(f"packbits: {array[0]} bits of padding, {padding} are due")
        return _restored(np.unpackbits(array[1:], count=spec.nbytes), spec)


@register
@dataclass(frozen=True, slots=True)
class AsType(Filter):
    """Items stored in another type."""

    name: ClassVar[str] = "astype"
    encode_dtype: DType
    decode_dtype: DType

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        kinds = _NUMBERS + "bmMSU"
        types = [_parse_type(claims, key, kinds) for key in ("encode_dtype", "decode_dtype")]
        claims.finish()
        return cls(*types)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a run of items of the other type."""
        return _run(self.name, spec, self.decode_dtype, self.encode_dtype)

    def encode(self, array: Array) -> Array:
        """Return the items in the other type."""
        with np.errstate(all="ignore"):
            return _items(array, self.decode_dtype).astype(self.encode_dtype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the items in their old type."""
        try:
            with np.errstate(all="ignore"):
                result = array.reshape(-1).astype(self.decode_dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise CorruptionError(f"astype: not of type {self.decode_dtype}: {error}") from None
        return _restored(result, spec)


@register
@dataclass(frozen=True, slots=True)
class Categorize(Filter):
    """Numbers for labels, from 1; 0 is for whatever has no label, and reads as empty text."""

    name: ClassVar[str] = "categorize"
    holds: ClassVar[DType | None] = dtypes.TEXT
    labels: tuple[str, ...]
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, claims: FieldReader) -> Self:
        """Return the stage that a file claims."""
        labels = claims.value("labels")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise claims.wrong("labels", labels, "a list of strings")
        dtype = dtypes.claimed(claims, "dtype")
        if dtype.kind not in "UO":
            raise claims.wrong("dtype", dtype.str, "text")
        astype = _parse_type(claims, "astype", "iu", _BYTE)
        if len(labels) > np.iinfo(astype).max:
            raise FormatError(f"categorize: {len(labels)} labels do not fit {astype}")
        claims.finish()
        return cls(tuple(labels), dtype, astype)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the numbers of the labels, if `spec` is of text."""
        if spec.dtype.kind not in "UT":
            raise FormatError(f"categorize: items of type {spec.dtype} are no text")
        return ChunkSpec(spec.shape, self.astype)

    def encode(self, array: Array) -> Array:
        """Return the numbers of the labels."""
        result = np.zeros(array.shape, self.astype)
        for number, label in enumerate(self.labels, 1):
            result[array == label] = number
        return result

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the labels."""
        texts = np.array(["", *self.labels], spec.dtype)
        known = (array > 0) & (array < len(texts))
        return texts[np.where(known, array, 0)]


def _parse_types(claims: FieldReader, kinds: str) -> tuple[DType, DType]:
    dtype = _parse_type(claims, "dtype", kinds)
    astype = _parse_type(claims, "astype", kinds, dtype)
    claims.finish()
    return dtype, astype


def _parse_type(claims: FieldReader, key: str, kinds: str, default: DType | None = None) -> DType:
    dtype = dtypes.claimed(claims, key, default)
    if dtype.kind not in kinds:
        raise claims.wrong(key, dtype.str, f"of the kinds {', '.join(kinds)}")
    return dtype


def _run(name: str, spec: ChunkSpec, dtype: DType, astype: DType) -> ChunkSpec:
    """Return a run of as many items of `astype` as `spec` has of `dtype`."""
    if dtypes.is_variable(spec.dtype) or spec.nbytes % dtype.itemsize:
        raise FormatError(f"{name}: {spec.shape} items of {spec.dtype} are no run of {dtype}")
    return ChunkSpec((spec.nbytes // dtype.itemsize,), astype)


def _items(array: Array, dtype: DType) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(dtype)


def _restored(items: Array, spec: ChunkSpec) -> Array:
    return items.view(spec.dtype).reshape(spec.shape)
