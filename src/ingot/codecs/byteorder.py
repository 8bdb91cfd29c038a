"""The serializer of items of fixed size in a given byte order, and the byte order of types."""

import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import Buffer, ChunkSpec, Raw, Serializer
from ingot.dtypes import DType
from ingot.errors import FormatError
from ingot.fields import FieldReader

__all__ = ["Bytes", "Endian", "byte_order", "in_order"]

Endian: TypeAlias = Literal["little", "big"]

_SIGNS: Final[dict[Endian, Literal["<", ">"]]] = {"little": "<", "big": ">"}
_NATIVE: Final[Endian] = sys.byteorder


@dataclass(frozen=True, slots=True)
class Bytes(Serializer):
    """Items one after the other, the last axis fastest; single bytes have no byte order.

    Structs without a byte order are little-endian, because some files do not state it.

    >>> Bytes("big").encode(np.array([1, 2], "<u2")).hex()
    '00010002'
    """

    name: ClassVar[str] = "bytes"
    endian: Endian | None = None

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        endian: Endian | None = None
        if fields.value("endian", None) is not None:
            endian = fields.choice("endian", tuple(_SIGNS))
        fields.finish()
        return cls(endian)

    def serialized_size(self, spec: ChunkSpec) -> int:
        """Return how many bytes an array of `spec` takes."""
        if dtypes.is_variable(spec.dtype):
            raise FormatError(f"bytes: items of type {spec.dtype} have no fixed size")
        single = spec.dtype.names is not None or byte_order(spec.dtype) is None
        if self.endian is None and not single:
            raise FormatError(f"bytes: endian is missing, items of {spec.dtype} have several bytes")
        return spec.nbytes

    def plain(self, dtype: DType) -> bool:
        """Return whether items are stored as they lie in memory."""
        return byte_order(dtype) in (None, self.endian or "little") and _used_bits(dtype) is None

    def encode(self, array: NDArray[Any]) -> Buffer:
        """Return the bytes of an array; its own memory where no bytes are swapped."""
        if not self.plain(array.dtype):
            array = array.astype(in_order(array.dtype, self.endian or "little"))
        return Raw().encode(array)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the items; a view of `data` where no bytes are swapped."""
        if self.plain(spec.dtype):
            return Raw().decode(data, spec)
        mask = _used_bits(spec.dtype)
        if mask is not None:
            data = (np.frombuffer(data, np.uint8).reshape(-1, len(mask)) & mask).data.cast("B")
        stored = np.frombuffer(data, in_order(spec.dtype, self.endian or "little"))
        return stored.astype(spec.dtype).reshape(spec.shape)


def _used_bits(dtype: DType) -> NDArray[np.uint8] | None:
    """Return a mask of the bits that an item uses; None when it uses all, as in most types."""
    if dtype.names is None:
        bits = dtypes.narrow_bits(dtype)
        return None if bits is None else np.array([(1 << bits) - 1], np.uint8)
    parts = {name: _used_bits(dtype[name]) for name in dtype.names}
    if all(part is None for part in parts.values()):
        return None
    mask = np.full(dtype.itemsize, 255, np.uint8)
    for name, part in parts.items():
        if part is not None:
            assert dtype.fields is not None, "it has names"
            start = dtype.fields[name][1]
            mask[start : start + len(part)] = part
    return mask


def byte_order(dtype: DType) -> Endian | Literal["mixed"] | None:
    """Return the byte order of a type; None without one, "mixed" when fields differ.

    >>> byte_order(np.dtype(">f4")), byte_order(np.dtype("S3"))
    ('big', None)
    >>> byte_order(np.dtype([("a", "<i2"), ("b", ">i2")]))
    'mixed'
    """
    if dtype.subdtype is not None:
        return byte_order(dtype.subdtype[0])
    if dtype.names is not None:
        orders = {byte_order(dtype[name]) for name in dtype.names} - {None}
        return "mixed" if len(orders) > 1 else next(iter(orders), None)
    if dtype.itemsize == 1 or dtype.byteorder == "|":
        return None
    return {"=": _NATIVE, "<": "little", ">": "big"}[dtype.byteorder]


def in_order(dtype: DType, endian: Endian) -> DType:
    """Return a type in another byte order.

    >>> in_order(np.dtype([("a", "<i2"), ("b", "u1")]), "big")
    dtype([('a', '>i2'), ('b', 'u1')])
    """
    if byte_order(dtype) in (None, endian):
        return dtype
    return dtype.newbyteorder(_SIGNS[endian])
