"""The serializer that packs items into as many bits as they use, across byte boundaries."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import Buffer, ChunkSpec, Serializer
from ingot.dtypes import DType
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.fields import FieldReader

__all__ = ["PackedBits", "Padding", "item_bits"]

Padding: TypeAlias = Literal["none", "first_byte", "last_byte"]

# Packing takes a byte for each bit, so only this many items are packed at a time.
_SLAB_ITEMS: Final = 2**16


def item_bits(dtype: DType) -> int:
    """Return how many bits an item uses; of a complex item, each of its two parts.

    >>> item_bits(np.dtype(bool)), item_bits(np.dtype("<c16"))
    (1, 64)
    """
    if dtype.kind == "b":
        return 1
    return dtypes.narrow_bits(dtype) or 8 * _part(dtype)


@dataclass(frozen=True, slots=True)
class PackedBits(Serializer):
    """The bits of items from `first_bit` to `last_bit`, packed; by default all that items use.

    Bits are counted from the least significant one, in items and in bytes. With a `padding`, the
    first or last byte states how many bits at the end are unused.

    >>> bytes(PackedBits().encode(np.array([1, 0, 0, 0, 0, 0, 0, 0, 1], bool))).hex()
    '0101'
    >>> PackedBits("first_byte", last_bit=3).serialized_size(ChunkSpec((3,), np.dtype("<u2")))
    3
    """

    name: ClassVar[str] = "packbits"
    padding: Padding = "none"
    first_bit: int | None = None
    last_bit: int | None = None

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Raise: the registry has another codec of this name, for booleans only."""
        raise UnsupportedError(f"codec {fields.where!r} is part of an array's metadata")

    def serialized_size(self, spec: ChunkSpec) -> int:
        """Return how many bytes an array of `spec` takes."""
        first, last = self._range(spec.dtype)
        bits = spec.count * _parts(spec.dtype) * (last - first + 1)
        return -(-bits // 8) + (self.padding != "none")

    def encode(self, array: NDArray[Any]) -> Buffer:
        """Return the packed bits."""
        first, last = self._range(array.dtype)
        numbers = _numbers(array)
        packed = [
            np.packbits(bits[:, first : last + 1].reshape(-1), bitorder="little").tobytes()
            for bits in map(_spread, _slabs(numbers))
        ]
        unused = bytes([-len(numbers) * (last - first + 1) % 8])
        before = unused if self.padding == "first_byte" else b""
        return b"".join([before, *packed, unused if self.padding == "last_byte" else b""])

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the items; bits that are not stored are zero, or those of the sign."""
        first, last = self._range(spec.dtype)
        width = last - first + 1
        numbers = np.empty(spec.count * _parts(spec.dtype), f"<u{_part(spec.dtype)}")
        packed = self._unpadded(np.frombuffer(data, np.uint8), len(numbers) * width)
        for at, slab in enumerate(_slabs(numbers)):
            start = at * _SLAB_ITEMS * width // 8
            bits = np.unpackbits(packed[start:], count=len(slab) * width, bitorder="little")
            spread = np.zeros((len(slab), 8 * numbers.itemsize), np.uint8)
            spread[:, first : last + 1] = bits.reshape(len(slab), width)
            if _is_signed(spec.dtype):
                spread[:, last + 1 :] = spread[:, last : last + 1]
            slab[:] = np.packbits(spread, axis=1, bitorder="little").view(numbers.dtype)[:, 0]
        stored = spec.dtype.newbyteorder("<")
        return numbers.view(stored).reshape(spec.shape).astype(spec.dtype, copy=False)

    def _range(self, dtype: DType) -> tuple[int, int]:
        if dtypes.is_variable(dtype) or (dtype.kind not in "biufc" and dtype.isbuiltin != 2):
            raise FormatError(f"packbits: items of type {dtype} are not numbers")
        most = item_bits(dtype) - 1
        first = 0 if self.first_bit is None else self.first_bit
        last = most if self.last_bit is None else self.last_bit
        if not 0 <= first <= last <= most:
            raise FormatError(f"packbits: {dtype} has no bits {first} to {last}")
        return first, last

    def _unpadded(self, data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
        if self.padding == "none":
            return data
        unused = data[0] if self.padding == "first_byte" else data[-1]
        if unused != -bits % 8:
            raise CorruptionError(f"packbits: {unused} bits of padding, {-bits % 8} are due")
        return data[1:] if self.padding == "first_byte" else data[:-1]


def _parts(dtype: DType) -> int:
    return 2 if dtype.kind == "c" or "complex" in dtype.type.__name__ else 1


def _part(dtype: DType) -> int:
    return dtype.itemsize // _parts(dtype)


def _is_signed(dtype: DType) -> bool:
    return dtype.kind == "i" or (dtype.isbuiltin == 2 and dtype.type.__name__.startswith("int"))


def _numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Return the parts of all items as unsigned little-endian numbers."""
    stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return stored.reshape(-1).view(f"<u{_part(array.dtype)}")


def _slabs(numbers: NDArray[Any]) -> list[NDArray[Any]]:
    return [numbers[at : at + _SLAB_ITEMS] for at in range(0, len(numbers), _SLAB_ITEMS)]


def _spread(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a row of bits for each number."""
    stored = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), -1)
    return np.unpackbits(stored, axis=1, bitorder="little")
