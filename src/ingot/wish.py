"""A new array or column as its maker describes it, made plain for a format.

Knows the short forms that people use for types, chunks, codecs and fill values. Refuses to know any
format: how the array will lie there, the format says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot import dtypes
from ingot.attributes import converted
from ingot.codecs.codec import ChunkSpec, Stage, parse_spelling
from ingot.dtypes import DType
from ingot.errors import LimitError
from ingot.formats import fills
from ingot.formats.format import Format, Request, TableSchema
from ingot.options import Options
from ingot.schema import ArraySchema

__all__ = ["Chunks", "Codec", "Wish", "item_type"]

Codec: TypeAlias = str | Stage | Sequence[str | Stage] | None
"""One codec or several, in the order of encoding; None is the format's default."""

Chunks: TypeAlias = int | Sequence[int] | str
"""The shape of a chunk, a number of rows, or "auto"."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How arrays shall be stored, as far as their maker cares.

    For tables `chunks` and `codec` may be mappings from columns; others get the default.
    """

    chunks: Chunks | Mapping[str, Chunks] = "auto"
    codec: Codec | Mapping[str, Codec] = None
    fill: object = 0
    attrs: Mapping[str, object] | None = None

    def schema(
        self, format: Format, shape: tuple[int, ...], dtype: DType, options: Options, **layout: Any
    ) -> ArraySchema:
        """Return how a format would lay out an array.

        >>> from ingot.formats.zarr2 import Zarr2Format
        >>> wish = Wish(chunks=5)
        >>> wish.schema(Zarr2Format(), (10, 3), np.dtype("f8"), Options()).chunks
        (5, 3)
        """
        assert not isinstance(self.chunks, Mapping)
        assert not isinstance(self.codec, Mapping)
        request = Request(
            shape,
            dtype,
            _fill(self.fill, dtype),
            _chunks(self.chunks, shape),
            None if self.codec is None else tuple(_stages(self.codec)),
            converted(self.attrs or {}),
        )
        schema = format.design(request, **layout)
        spec = ChunkSpec(schema.chunks, schema.dtype, schema.fill)
        if spec.nbytes > options.limits.chunk_bytes:
            raise LimitError(
                f"chunks {schema.chunks} have {spec.nbytes} bytes, "
                f"the limit is {options.limits.chunk_bytes}"
            )
        return schema

    def table_schema(
        self, format: Format, columns: Mapping[str, NDArray[Any]], options: Options, **layout: Any
    ) -> TableSchema:
        """Return how a format would lay out columns; dots in names lead into nested tables."""
        self._check_names(columns)
        tree: dict[str, Any] = {}
        for name, values in columns.items():
            *folders, last = name.split(".")
            inner = tree
            for folder in folders:
                inner = inner.setdefault(folder, {})
            dtype = item_type(values.dtype)
            inner[last] = self._of(name).schema(format, values.shape, dtype, options, **layout)
        return tree

    def _of(self, name: str) -> "Wish":
        """Return the wish for one column; attributes of the table are none of its own."""
        chunks = self.chunks.get(name, "auto") if isinstance(self.chunks, Mapping) else self.chunks
        codec = self.codec.get(name) if isinstance(self.codec, Mapping) else self.codec
        return Wish(chunks, codec, self.fill, self.attrs)

    def _check_names(self, columns: Mapping[str, Any]) -> None:
        for what, given in (("chunks", self.chunks), ("codec", self.codec)):
            for name in given if isinstance(given, Mapping) else ():
                if name not in columns:
                    raise ValueError(f"{what} names the column {name!r}, which is not there")


def item_type(claim: DTypeLike) -> DType:
    """Return the type of items that somebody asks for.

    >>> item_type("i4"), item_type(str)
    (dtype('int32'), StringDType())
    """
    dtype = dtypes.TEXT if claim is str else np.dtype(claim)
    if dtype.subdtype is not None:
        raise ValueError(f"dtype {dtype}: add the shape of the items to that of the array")
    if dtype.itemsize == 0:
        raise ValueError(f"dtype {dtype}: items of 0 bytes")
    return dtype


def _chunks(chunks: Chunks, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of a chunk; None when the format shall choose."""
    if isinstance(chunks, str):
        if chunks != "auto":
            raise ValueError(f"chunks is {chunks!r}, not a shape, a number of rows or 'auto'")
        return None
    if not isinstance(chunks, int | np.integer):
        return tuple(chunks)
    if not shape:
        raise ValueError("chunks is a number of rows, but an array without axes has none")
    return (int(chunks), *(max(1, length) for length in shape[1:]))


def _stages(codec: str | Stage | Sequence[str | Stage]) -> list[Stage]:
    stages: list[Stage] = []
    for each in (codec,) if isinstance(codec, str | Stage) else codec:
        stages += parse_spelling(each) if isinstance(each, str) else [each]
    return stages


def _fill(fill: object, dtype: DType) -> Any:
    """Return a fill value as an item of the type, or complain that it is none."""
    if dtype == np.dtype(object):
        return fill
    if fill is None or (type(fill) is int and fill == 0):
        return fills.zero(dtype)
    item = np.zeros((), dtype)
    try:
        with np.errstate(all="ignore"):
            item[()] = fill
        same = dtype.kind not in "biuSU" or bool(item[()] == fill)
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise ValueError(f"fill {fill!r} is no value of type {dtype}")
    return item[()]
