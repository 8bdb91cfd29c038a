"""Filters of Zarr: what happens to the items of a chunk before they become bytes.

Results are those of numcodecs, bit for bit. A filter sees its input as a run of items of its own
type, whatever the type of the array: the differences of datetimes are those of their integers.
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
    """Axes in another order; without an `order` all are reversed, which is Fortran order."""

    name: ClassVar[str] = "transpose"
    order: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        order = fields.integers("order", low=0)
        if sorted(order) != list(range(len(order))):
            raise fields.wrong("order", list(order), "a permutation of the axes")
        fields.finish()
        return cls(order)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec with its axes in the new order."""
        axes = self.axes(len(spec.shape))
        return ChunkSpec(tuple(spec.shape[axis] for axis in axes), spec.dtype, spec.fill)

    def encode(self, array: Array) -> Array:
        """Return a view with the axes in the new order."""
        return array.transpose(self.axes(array.ndim))

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return a view with the axes in their original order."""
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

    Each new axis is given by its length, or by the axes that it joins; -1 stands for the rest.

    >>> Reshape(((0, 1), -1, 3)).encode(np.zeros((2, 5, 4, 3))).shape
    (10, 4, 3)
    """

    name: ClassVar[str] = "reshape"
    shape: tuple[int | tuple[int, ...], ...]

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        shape = fields.value("shape")
        if not isinstance(shape, list) or len(shape) > MOST_AXES:
            raise fields.wrong("shape", shape, f"a list of at most {MOST_AXES} axes")
        for axis in shape:
            together = axis if isinstance(axis, list) else [0]
            alone = isinstance(axis, list) or (type(axis) is int and (axis == -1 or axis > 0))
            if not alone or not all(type(each) is int and each >= 0 for each in together):
                raise fields.wrong("shape", shape, "made of lengths, lists of axes and -1")
        fields.finish()
        return cls(tuple(tuple(axis) if isinstance(axis, list) else axis for axis in shape))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec with the new axes; raise unless they have as many items."""
        return ChunkSpec(self._lengths(spec.shape), spec.dtype, spec.fill)

    def encode(self, array: Array) -> Array:
        """Return the array with the new axes."""
        return array.reshape(self._lengths(array.shape))

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the array with its original axes."""
        return array.reshape(spec.shape)

    def _lengths(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        taken = [axis for each in self.shape if isinstance(each, tuple) for axis in each]
        known = sorted({*taken}) == taken and max(taken, default=-1) < len(shape)
        if not known or self.shape.count(-1) > 1:
            raise FormatError(
                f"reshape: {list(self.shape)} are not axes of an array of shape {shape}"
            )
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
    """The first item, then the differences of neighbours."""

    name: ClassVar[str] = "delta"
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(*_parse_types(fields, _NUMBERS + "b"))

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
        # The difference of two booleans is whether they differ.
        add = np.logical_xor if self.dtype.kind == "b" else np.add
        with np.errstate(all="ignore"):
            add.accumulate(array.reshape(-1), out=result)
        return _restored(result, spec)


@register
@dataclass(frozen=True, slots=True)
class FixedScaleOffset(Filter):
    """Numbers minus an offset, times a scale, rounded."""

    name: ClassVar[str] = "fixedscaleoffset"
    scale: float
    offset: float
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        scale, offset = fields.number("scale"), fields.number("offset")
        if not (math.isfinite(scale) and math.isfinite(offset) and scale):
            raise FormatError(f"{fields.where}: scale {scale} and offset {offset} lose the data")
        return cls(scale, offset, *_parse_types(fields, "iuf"))

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
        """Return the numbers, as precise as they were stored."""
        with np.errstate(all="ignore"):
            result = array.reshape(-1) / float(self.scale) + float(self.offset)
            return _restored(result.astype(self.dtype), spec)


@register
@dataclass(frozen=True, slots=True)
class Quantize(Filter):
    """Floats rounded to the binary fraction that keeps `digits` decimal digits."""

    name: ClassVar[str] = "quantize"
    digits: int
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        digits = fields.integer("digits", low=-300, high=300)
        return cls(digits, *_parse_types(fields, "f"))

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
        """Return the rounded floats in their original type; the lost digits stay lost."""
        with np.errstate(all="ignore"):
            return _restored(array.reshape(-1).astype(self.dtype), spec)


@register
@dataclass(frozen=True, slots=True)
class BitRound(Filter):
    """Floats rounded to `keepbits` bits of the mantissa, ties to even."""

    name: ClassVar[str] = "bitround"
    keepbits: int

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        keepbits = fields.integer("keepbits", high=52)
        fields.finish()
        return cls(keepbits)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec`; raise unless its items are floats that have the bits."""
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
        # Half of the dropped bits, less one, plus the lowest bit kept: ties go to even.
        bits += (bits >> dropped & 1) + ((1 << (dropped - 1)) - 1)
        bits &= ~np.array((1 << dropped) - 1, integers)
        return bits.view(array.dtype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the rounded floats; the lost bits stay lost."""
        return array


@register
@dataclass(frozen=True, slots=True)
class PackBits(Filter):
    """A byte that counts the bits of padding, then eight booleans in each byte."""

    name: ClassVar[str] = "packbits"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        fields.finish()
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
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        kinds = _NUMBERS + "bmMSU"
        types = [_parse_type(fields, key, kinds) for key in ("encode_dtype", "decode_dtype")]
        fields.finish()
        return cls(*types)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a run of items of the stored type."""
        return _run(self.name, spec, self.decode_dtype, self.encode_dtype)

    def encode(self, array: Array) -> Array:
        """Return the items in the stored type."""
        with np.errstate(all="ignore"):
            return _items(array, self.decode_dtype).astype(self.encode_dtype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the items in their original type."""
        try:
            with np.errstate(all="ignore"):
                result = array.reshape(-1).astype(self.decode_dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise CorruptionError(f"astype: not of type {self.decode_dtype}: {error}") from None
        return _restored(result, spec)


@register
@dataclass(frozen=True, slots=True)
class Categorize(Filter):
    """Labels as numbers from 1; text that is not a label is stored as 0 and reads as empty."""

    name: ClassVar[str] = "categorize"
    holds: ClassVar[DType | None] = dtypes.TEXT
    labels: tuple[str, ...]
    dtype: DType
    astype: DType

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        labels = fields.value("labels")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise fields.wrong("labels", labels, "a list of strings")
        dtype = dtypes.read_field(fields, "dtype")
        if dtype.kind not in "UO":
            raise fields.wrong("dtype", dtype.str, "text")
        astype = _parse_type(fields, "astype", "iu", _BYTE)
        if len(labels) > np.iinfo(astype).max:
            raise FormatError(f"categorize: {len(labels)} labels do not fit {astype}")
        fields.finish()
        return cls(tuple(labels), dtype, astype)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a spec of numbers; raise unless the items of `spec` are text."""
        if spec.dtype.kind not in "UT":
            raise FormatError(f"categorize: items of type {spec.dtype} are not text")
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


def _parse_types(fields: FieldReader, kinds: str) -> tuple[DType, DType]:
    dtype = _parse_type(fields, "dtype", kinds)
    astype = _parse_type(fields, "astype", kinds, dtype)
    fields.finish()
    return dtype, astype


def _parse_type(fields: FieldReader, key: str, kinds: str, default: DType | None = None) -> DType:
    dtype = dtypes.read_field(fields, key, default)
    if dtype.kind not in kinds:
        raise fields.wrong(key, dtype.str, f"of the kinds {', '.join(kinds)}")
    return dtype


def _run(name: str, spec: ChunkSpec, dtype: DType, astype: DType) -> ChunkSpec:
    """Return a run of as many items of `astype` as `spec` has of `dtype`."""
    if dtypes.is_variable(spec.dtype) or spec.nbytes % dtype.itemsize:
        raise FormatError(f"{name}: {spec.shape} items of {spec.dtype} are not a run of {dtype}")
    return ChunkSpec((spec.nbytes // dtype.itemsize,), astype)


def _items(array: Array, dtype: DType) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(dtype)


def _restored(items: Array, spec: ChunkSpec) -> Array:
    return items.view(spec.dtype).reshape(spec.shape)
