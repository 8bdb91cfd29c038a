"""Filters that change the values of numbers: into another type, or by an offset and a scale.

Rules given by the caller say how numbers are rounded, what happens to numbers out of range, and
which numbers replace others. A number that would change without such a rule is an error.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.bits import item_bits
from ingot.codecs.codec import ChunkSpec, Filter, register
from ingot.dtypes import DType
from ingot.errors import ArgumentError, CorruptionError, FormatError, UnsupportedError
from ingot.fields import FieldReader

__all__ = ["CastValue", "OutOfRange", "Pairs", "Rounding", "ScaleOffset", "TruncatePrecision"]

Array: TypeAlias = NDArray[Any]
Rounding: TypeAlias = Literal[
    "nearest-even", "nearest-away", "towards-zero", "towards-positive", "towards-negative"
]
OutOfRange: TypeAlias = Literal["clamp", "wrap"]
Pairs: TypeAlias = tuple[tuple[Any, Any], ...]
"""Items of one type, each with the item of another type that replaces it."""

_DOUBLE_BITS: Final = 53
_WIDEST: Final = 64
_MANTISSA_BITS: Final = {4: 23, 8: 52}


@dataclass(frozen=True, slots=True)
class CastValue(Filter):
    """Numbers stored in another type.

    Numbers that the type does not have exactly are rounded; numbers out of its range are an error,
    unless `out_of_range` says otherwise. Before that, `encoding` and `decoding` replace items.

    >>> stage = CastValue(np.dtype("u1"), out_of_range="clamp", encoding=((np.nan, 7),))
    >>> stage.encode(np.array([2.5, 3.5, 1000, np.nan])).tolist()
    [2, 4, 255, 7]
    >>> CastValue(np.dtype("u1")).encode(np.array([-1]))
    Traceback (most recent call last):
    ingot.errors.FormatError: cast_value: -1 is not a value of type uint8
    """

    name: ClassVar[str] = "cast_value"
    dtype: DType
    rounding: Rounding = "nearest-even"
    out_of_range: OutOfRange | None = None
    encoding: Pairs = ()
    decoding: Pairs = ()

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Raise: the fields can be read only with the type of the items."""
        raise UnsupportedError(f"codec {fields.where!r} is part of an array's metadata")

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return a spec of the stored type; raise unless both types are numbers."""
        for dtype in (spec.dtype, self.dtype):
            if not _is_integer(dtype) and not _is_float(dtype):
                raise FormatError(f"{self.name}: items of type {dtype} are not real numbers")
        if self.out_of_range == "wrap" and not _is_integer(self.dtype):
            raise FormatError(f"{self.name}: only integers wrap around, not {self.dtype}")
        return ChunkSpec(spec.shape, self.dtype, _kept(self, spec))

    def encode(self, array: Array) -> Array:
        """Return the numbers in the stored type."""
        try:
            return self._cast(array, self.dtype, self.encoding)
        except ValueError as error:
            raise FormatError(f"{self.name}: {error}") from None

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the numbers in their original type."""
        try:
            return self._cast(array, spec.dtype, self.decoding)
        except ValueError as error:
            raise CorruptionError(f"{self.name}: {error}") from None

    def _cast(self, array: Array, dtype: DType, pairs: Pairs) -> Array:
        result = np.empty(array.shape, dtype)
        left = np.ones(array.shape, bool)
        for item, other in pairs:
            meant = np.asarray(item).astype(array.dtype)
            equal = left & (array == meant if meant == meant else array != array)
            result[equal] = other
            left &= ~equal
        # Only integers wrap; the stored type may be one where the decoded type is not.
        wraps = self.out_of_range == "wrap" and _is_integer(dtype)
        rule = self.out_of_range if wraps or self.out_of_range == "clamp" else None
        convert = _to_integers if _is_integer(dtype) else _to_floats
        result[left] = convert(array[left], dtype, self.rounding, rule)
        return result


@dataclass(frozen=True, slots=True)
class ScaleOffset(Filter):
    """Numbers minus an offset, times a scale, in their own type; integers stay exact.

    >>> ScaleOffset(1000, 2).encode(np.array([1000, 1100], np.uint16)).tolist()
    [0, 200]
    >>> ScaleOffset(1000).encode(np.array([999], np.uint16))
    Traceback (most recent call last):
    ingot.errors.FormatError: scale_offset: -1 is not a value of type uint16
    """

    name: ClassVar[str] = "scale_offset"
    offset: Any = 0
    scale: Any = 1

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Raise: the fields can be read only with the type of the items."""
        raise UnsupportedError(f"codec {fields.where!r} is part of an array's metadata")

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the same spec; raise unless its items are numbers."""
        if not _is_integer(spec.dtype) and not _is_float(spec.dtype):
            raise FormatError(f"{self.name}: items of type {spec.dtype} are not real numbers")
        if not (math.isfinite(self.offset) and math.isfinite(self.scale) and self.scale):
            raise FormatError(f"{self.name}: {self.offset} and {self.scale} lose the data")
        whole = self.offset % 1 == 0 and self.scale % 1 == 0
        if _is_integer(spec.dtype) and not whole:
            raise FormatError(f"{self.name}: {self.offset} and {self.scale} are not integers")
        return ChunkSpec(spec.shape, spec.dtype, _kept(self, spec))

    def encode(self, array: Array) -> Array:
        """Return the scaled numbers."""
        if _is_float(array.dtype):
            offset, scale = self._parameters(array.dtype)
            with np.errstate(all="ignore"):
                scaled: Array = ((array - offset) * scale).astype(array.dtype)
            return scaled
        try:
            shifted = _sum(_plain(array), -int(self.offset), array.dtype)
            return _product(shifted, int(self.scale), array.dtype).astype(array.dtype)
        except ValueError as error:
            raise FormatError(f"{self.name}: {error}") from None

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the original numbers."""
        if _is_float(array.dtype):
            offset, scale = self._parameters(array.dtype)
            with np.errstate(all="ignore"):
                restored: Array = (array / scale + offset).astype(spec.dtype)
            return restored
        try:
            divided = _quotient(_plain(array), int(self.scale), spec.dtype)
            return _sum(divided, int(self.offset), spec.dtype).astype(spec.dtype)
        except ValueError as error:
            raise CorruptionError(f"{self.name}: {error}") from None

    def _parameters(self, dtype: DType) -> tuple[Any, Any]:
        offset, scale = (np.asarray(each).astype(dtype) for each in (self.offset, self.scale))
        return offset, scale


@register
@dataclass(frozen=True, slots=True)
class TruncatePrecision(Filter):
    """Floats whose mantissa keeps its first `bits` bits; the others become zero.

    >>> TruncatePrecision(4).encode(np.array([1.17, np.nan], "<f4"))
    array([1.125,   nan], dtype=float32)
    """

    name: ClassVar[str] = "truncate"
    spelling: ClassVar[tuple[str, ...]] = ("bits",)
    bits: int

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        bits = fields.integer("bits", low=0, high=52)
        fields.finish()
        return cls(bits)

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec`; raise unless its items are floats that have the bits."""
        if spec.dtype.kind != "f" or spec.dtype.itemsize not in _MANTISSA_BITS:
            raise UnsupportedError(f"truncate: items are float32 or float64, not {spec.dtype}")
        if self.bits > _MANTISSA_BITS[spec.dtype.itemsize]:
            raise UnsupportedError(
                f"truncate: {spec.dtype} has {_MANTISSA_BITS[spec.dtype.itemsize]} bits to keep, "
                f"not {self.bits}"
            )
        return spec

    def encode(self, array: Array) -> Array:
        """Return the floats with fewer bits; a NaN stays as it is."""
        size = array.dtype.itemsize
        words = array.astype(array.dtype, order="C").view(f"{array.dtype.byteorder}i{size}")
        mask = words.dtype.type(-1 << (_MANTISSA_BITS[size] - self.bits))
        # Without its last bits, a NaN could become infinite.
        np.bitwise_and(words, mask, out=words, where=~np.isnan(array))
        return words.view(array.dtype)

    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the floats; the lost bits stay lost."""
        return array


def _kept(stage: Filter, spec: ChunkSpec) -> Any:
    """Return the fill value as the stage stores it; raise if it does not decode to itself."""
    if spec.fill is None:
        return None
    fill = np.asarray(spec.fill, spec.dtype).reshape(1)
    stored = stage.encode(fill)
    found = stage.decode(stored, ChunkSpec((1,), spec.dtype))
    if found[0] != fill[0] and fill[0] == fill[0]:
        raise FormatError(f"{stage.name}: the fill value {fill[0]} comes back as {found[0]}")
    return stored[0]


def _is_extra(dtype: DType, word: str) -> bool:
    name = dtype.type.__name__
    return dtype.isbuiltin == 2 and word in name and "complex" not in name


def _is_integer(dtype: DType) -> bool:
    return dtype.kind in "iu" or _is_extra(dtype, "int")


def _is_float(dtype: DType) -> bool:
    # Types longer than a double differ from machine to machine.
    return (dtype.kind == "f" and dtype.itemsize <= 8) or _is_extra(dtype, "float")


def _unfit(value: Any, dtype: DType) -> ArgumentError:
    return ArgumentError(f"{value} is not a value of type {dtype}")


# Integers -----------------------------------------------------------------------------------------


def _bounds(dtype: DType) -> tuple[int, int]:
    bits = item_bits(dtype)
    signed = dtype.kind == "i" or dtype.type.__name__.startswith("int")
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _plain(array: Array) -> Array:
    """Return integers in the widest type of their sign."""
    return array.astype(np.int64 if _bounds(array.dtype)[0] else np.uint64)


def _to_integers(
    values: Array, dtype: DType, rounding: Rounding, out_of_range: OutOfRange | None
) -> Array:
    low, high = _bounds(dtype)
    if _is_float(values.dtype):
        values = values.astype(np.float64)
        if not np.isfinite(values).all():
            raise _unfit(values[~np.isfinite(values)][0], dtype)
        values = _rounded(values, rounding)
        # The highest number plus one is a power of two, which floats have exactly.
        below, above = values < float(low), values >= float(high + 1)
    else:
        values = _plain(values)
        below, above = values < low, values > high
    outside = below | above
    if not outside.any():
        return _as_integers(values, dtype)
    if out_of_range is None:
        raise _unfit(values[outside][0], dtype)
    result = np.zeros(values.shape, dtype)
    result[~outside] = _as_integers(values[~outside], dtype)
    if out_of_range == "clamp":
        result[below], result[above] = low, high
    else:
        result[outside] = _wrapped(values[outside], dtype)
    return result


def _as_integers(values: Array, dtype: DType) -> Array:
    return values.astype(np.uint64 if _bounds(dtype)[1] > 2**63 else np.int64).astype(dtype)


def _wrapped(values: Array, dtype: DType) -> Array:
    if values.dtype.kind == "f":
        sizes = np.fmod(np.abs(values), 2.0**_WIDEST).astype(np.uint64)
        values = np.where(values < 0, np.uint64(0) - sizes, sizes)
    # Shifting up and down again extends the highest bit of the type as a sign.
    shift = _WIDEST - item_bits(dtype)
    signed = np.int64 if _bounds(dtype)[0] else np.uint64
    moved = (values.astype(np.uint64) << np.uint64(shift)).view(signed)
    return (moved >> signed(shift)).astype(dtype)


def _sum(values: Array, addend: int, dtype: DType) -> Array:
    _check_ends([int(end) + addend for end in _ends(values)], dtype)
    # Arithmetic modulo 2**64 is right for every sum that fits.
    total: Array = values + _modular(addend, values.dtype)
    return total


def _product(values: Array, factor: int, dtype: DType) -> Array:
    _check_ends([int(end) * factor for end in _ends(values)], dtype)
    product: Array = values * _modular(factor, values.dtype)
    return product


def _quotient(values: Array, divisor: int, dtype: DType) -> Array:
    by = _modular(divisor, values.dtype)
    uneven = values[values % by != 0]
    if len(uneven):
        raise ArgumentError(f"{uneven[0]} is not a multiple of {divisor}")
    _check_ends([int(end) // divisor for end in _ends(values)], dtype)
    quotient: Array = values // by
    return quotient


def _modular(number: int, dtype: DType) -> Array:
    return np.array(number % 2**_WIDEST, np.uint64).astype(dtype)


def _ends(values: Array) -> tuple[Any, ...]:
    return (values.min(), values.max()) if values.size else ()


def _check_ends(ends: list[int], dtype: DType) -> None:
    low, high = _bounds(dtype)
    for end in ends:
        if not low <= end <= high:
            raise _unfit(end, dtype)


# Floats -------------------------------------------------------------------------------------------


class _FloatForm(NamedTuple):
    """The numbers that a floating-point type has."""

    bits: int
    """The binary digits of a number."""
    exponent: int
    """The exponent of the smallest number with all its digits."""
    lowest: float
    highest: float
    infinite: bool
    undefined: bool


@lru_cache(maxsize=64)
def _form(dtype: DType) -> _FloatForm:
    if dtype.isbuiltin != 2:
        info = np.finfo(dtype)
        return _FloatForm(
            info.nmant + 1, int(info.minexp), float(info.min), float(info.max), True, True
        )
    codes = np.arange(1 << item_bits(dtype)).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(all="ignore"):
        found = np.unique(codes.astype(np.float64))
    finite = found[np.isfinite(found)]
    least = int(np.log2(finite[finite > 0][0]))
    bits = 1
    if finite[0] <= 0:
        bits = int(np.floor(np.log2(finite[-1])) - np.log2(finite[-1] - finite[-2])) + 1
    lowest, highest = float(finite[0]), float(finite[-1])
    infinite, undefined = bool(np.isinf(found).any()), bool(np.isnan(found).any())
    return _FloatForm(bits, least + bits - 1, lowest, highest, infinite, undefined)


def _to_floats(
    values: Array, dtype: DType, rounding: Rounding, out_of_range: OutOfRange | None
) -> Array:
    form = _form(dtype.newbyteorder("="))
    if _is_integer(values.dtype):
        numbers = _from_integers(_plain(values), form.bits, rounding)
    else:
        numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    if form.bits < _DOUBLE_BITS:
        numbers[finite] = _shortened(numbers[finite], form, rounding)
    lost = (np.isnan(numbers) & (not form.undefined)) | (np.isinf(numbers) & (not form.infinite))
    below, above = finite & (numbers < form.lowest), finite & (numbers > form.highest)
    if out_of_range is None:
        lost |= below | above
    if lost.any():
        raise _unfit(values[lost][0], dtype)
    low, high = (-np.inf, np.inf) if form.infinite else (form.lowest, form.highest)
    numbers[below], numbers[above] = low, high
    return numbers.astype(dtype)


def _rounded(numbers: Array, rounding: Rounding) -> Array:
    if rounding == "nearest-away":
        whole = np.trunc(numbers)
        further = np.abs(numbers - whole) >= 0.5
        return np.where(further, whole + np.copysign(1.0, numbers), whole)
    plain = {
        "nearest-even": np.rint,
        "towards-zero": np.trunc,
        "towards-positive": np.ceil,
        "towards-negative": np.floor,
    }
    result: Array = plain[rounding](numbers)
    return result


def _shortened(numbers: Array, form: _FloatForm, rounding: Rounding) -> Array:
    """Return numbers rounded to the digits of the form; scaling by powers of two is exact."""
    _, exponents = np.frexp(numbers)
    unit = np.maximum(exponents - 1, form.exponent) - (form.bits - 1)
    result: Array = np.ldexp(_rounded(np.ldexp(numbers, -unit), rounding), unit)
    return result


def _from_integers(values: Array, bits: int, rounding: Rounding) -> Array:
    """Return integers as doubles that can be rounded again to `bits` bits without an error."""
    negative = values < 0
    with np.errstate(over="ignore"):
        sizes = np.where(
            negative, np.uint64(0) - values.astype(np.uint64), values.astype(np.uint64)
        )
    low = sizes & np.uint64(2**11 - 1)
    high, rest = (sizes - low).astype(np.float64), low.astype(np.float64)
    nearest = high + rest
    error = high - nearest + rest
    cut = np.where(error < 0, np.nextafter(nearest, 0), nearest)
    if bits < _DOUBLE_BITS:
        # An odd last digit marks that digits were cut off (a sticky bit).
        odd = cut.view(np.uint64) | (error != 0).astype(np.uint64)
        sticky: Array = odd.view(np.float64)
        return np.where(negative, -sticky, sticky)
    after = np.where(error != 0, np.nextafter(cut, np.inf), cut)
    halfway = np.abs(error) == np.spacing(cut) / 2
    size = {
        "nearest-even": nearest,
        "nearest-away": np.where(halfway, after, nearest),
        "towards-zero": cut,
        "towards-positive": np.where(negative, cut, after),
        "towards-negative": np.where(negative, after, cut),
    }[rounding]
    result: Array = np.where(negative, -size, size)
    return result
