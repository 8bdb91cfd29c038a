"""New columns as their maker describes them, all of a table or one more.

Knows that what is wished for a table may differ from column to column, and that dots in names lead
into nested tables. Refuses to know how a wish becomes a schema: `creation` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from ingot.creation import Codec, Wish
from ingot.formats.format import Format, TableSchema
from ingot.options import Options

__all__ = ["Chunks", "ColumnsWish"]

Chunks: TypeAlias = int | Sequence[int] | str
"""The shape of a chunk, a number of rows, or "auto"."""


@dataclass(frozen=True, slots=True)
class ColumnsWish:
    """How columns shall be stored, as far as their maker cares.

    `chunks` and `codec` may be mappings from columns; others get the default.
    """

    chunks: Chunks | Mapping[str, Chunks] = "auto"
    codec: Codec | Mapping[str, Codec] = None
    fill: object = 0
    attrs: Mapping[str, object] | None = None
    options: Options = field(default_factory=Options)
    layout: Mapping[str, Any] = field(default_factory=dict)

    def schema(self, format: Format, columns: Mapping[str, NDArray[Any]]) -> TableSchema:
        """Return how a format would lay out columns that hold these values.

        >>> import numpy as np
        >>> from ingot.formats.zarr2 import Zarr2Format
        >>> made = ColumnsWish(chunks={"a.b": 5}).schema(Zarr2Format(), {"a.b": np.zeros(10)})
        >>> made["a"]["b"].chunks
        (5,)
        """
        self._check_names(columns)
        tree: dict[str, Any] = {}
        for name, values in columns.items():
            *folders, last = name.split(".")
            inner = tree
            for folder in folders:
                inner = inner.setdefault(folder, {})
            inner[last] = self._of(name, values).schema(format)
        return tree

    def _of(self, name: str, values: NDArray[Any]) -> Wish:
        chunks = self.chunks.get(name, "auto") if isinstance(self.chunks, Mapping) else self.chunks
        codec = self.codec.get(name) if isinstance(self.codec, Mapping) else self.codec
        return Wish(
            values.shape,
            values.dtype,
            chunks,
            codec,
            self.fill,
            attrs=self.attrs,
            options=self.options,
            layout=self.layout,
        )

    def _check_names(self, columns: Mapping[str, Any]) -> None:
        for what, given in (("chunks", self.chunks), ("codec", self.codec)):
            for name in given if isinstance(given, Mapping) else ():
                if name not in columns:
                    raise ValueError(f"{what} names the column {name!r}, which is not there")
