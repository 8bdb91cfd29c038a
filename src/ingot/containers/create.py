"""How new arrays come into being: a wish, a format that grants it, and one commit.

Knows what a caller may say of an array that is not there yet, and turns it into what a format is
asked for. Refuses to know where the array will be, and what may be in its way: the caller says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, Stage, parse_spelling
from ingot.containers.array import Array, array_handle
from ingot.containers.attributes import converted
from ingot.dtypes import DType
from ingot.engine.changes import filled
from ingot.engine.run import Engine
from ingot.errors import LimitError
from ingot.formats.format import (
    ArrayNode,
    Format,
    Node,
    Request,
    TableSchema,
)
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores.store import Commit, Store
from ingot.stores.versions import writing

__all__ = [
    "ArraySpec",
    "Chunks",
    "Codec",
    "ColumnSpec",
    "Destination",
    "blocks",
    "check_layout",
    "create_array",
]

Codec: TypeAlias = str | Stage | Sequence[str | Stage] | None
"""One codec or several, in the order of encoding; None is the format's default."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """A new array as its maker describes it.

    >>> ArraySpec(10, "f4", codec="zlib:1").request().dtype
    dtype('float32')
    """

    shape: int | Sequence[int]
    dtype: DTypeLike
    chunks: int | Sequence[int] | str = "auto"
    codec: Codec = None
    fill: object = 0
    format: str | None = None
    attrs: Mapping[str, object] | None = None
    overwrite: bool = False
    options: Options | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    def request(self) -> Request:
        """Return what the array shall be, before a format has its say."""
        dtype = _dtype(self.dtype)
        shape = (self.shape,) if isinstance(self.shape, int | np.integer) else tuple(self.shape)
        chunks = _chunks(self.chunks, shape)
        stages = None if self.codec is None else tuple(_stages(self.codec))
        fill, attrs = _fill(self.fill, dtype), converted(self.attrs or {})
        return Request(shape, dtype, fill, chunks, stages, attrs)

    def schema(self, format: Format) -> ArraySchema:
        """Return how a format would lay out the array."""
        schema = format.design(self.request(), **self.layout)
        spec = ChunkSpec(schema.chunks, schema.dtype, schema.fill)
        limit = (self.options or Options()).limits.chunk_bytes
        if spec.nbytes > limit:
            raise LimitError(
                f"chunks {schema.chunks} have {spec.nbytes} bytes, the limit is {limit}"
            )
        return schema

    @classmethod
    def of_data(cls, data: object, wishes: Mapping[str, Any]) -> "tuple[ArraySpec, NDArray[Any]]":
        """Return the wish for an array that holds `data`, and the data as items of its type.

        >>> wish, items = ArraySpec.of_data([1, 2], {"dtype": "i2", "order": "F"})
        >>> wish.shape, items.dtype, wish.layout
        ((2,), dtype('int16'), {'order': 'F'})
        """
        dtype = wishes.get("dtype")
        kind = None if dtype is None else _dtype(dtype)
        single = isinstance(data, str) and kind is not None
        items = parse((), ()).prepare(data, kind) if single else np.asarray(data, kind)
        own = {each.name for each in fields(cls)} - {"layout", "dtype", "shape"}
        layout = {name: wishes[name] for name in wishes if name not in own and name != "dtype"}
        chosen = {name: wishes[name] for name in wishes if name in own}
        return cls(items.shape, items.dtype, **chosen, layout=layout), items


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an array shall be: at `inner` of a store; `clear` removes what is in the way there.

    `clear` returns None when nothing is there, and complains of what must not be replaced. `path`
    is how people call the place.
    """

    store: Store
    inner: str
    path: str | None
    clear: Callable[[Store], Commit | None]


def create_array(
    format: Format, place: Destination, wish: ArraySpec, items: NDArray[Any] | None
) -> Array:
    """Create the array that is wished for, with `items` in it or the fill value, by one commit."""
    check_layout(format, wish.layout)
    schema = wish.schema(format)
    options = wish.options or Options()
    old = place.clear(place.store)  # Before a lock file is made.
    if old is not None and _blocks(
        old, format.create(place.store, schema, place.inner, **wish.layout)[0]
    ):
        with writing(place.store) as turn:
            turn.commit(place.clear(turn.store) or Commit())
    with writing(place.store, durability=options.durability) as turn:
        old = place.clear(turn.store)
        node, commit = format.create(turn.store, schema, place.inner, **wish.layout)
        assert isinstance(node, ArrayNode)
        engine = Engine(node.chunks, options)
        data = filled(engine) if items is None else engine.written(parse(..., schema.shape), items)
        number = turn.commit(_created(old, commit, data))
    handle = array_handle(format, place.store, place.inner, options, first=(engine, number))
    return Array(format, handle, path=place.path, mode="r+")


def _created(old: Commit | None, array: Commit, data: Commit) -> Commit:
    """Return the commit of a new array and what it holds, in the place of an old one if there is.

    All at once: what a crash left of half an array would be in the way of the next try. And what
    is replaced is still read until then.
    """
    made_anew = (*data.edits, *array.publish)
    if old is None:
        return Commit(array.prepare, made_anew, array.cleanup)
    kept = {edit.key for edit in made_anew}
    strays = tuple(edit for edit in array.prepare if edit.key not in kept)
    return Commit((), (*old.edits, *made_anew), (*strays, *array.cleanup))


def _blocks(old: Commit, new: Node) -> bool:
    """Tell whether files of what is replaced have the names of folders that are needed.

    Then no file system can change one for the other at once, and the old has to go first.
    """
    assert isinstance(new, ArrayNode)
    template, ndim = new.chunks.template, len(new.schema.shape)
    if template is None:
        return False
    return any(template.is_folder(edit.key, ndim) for edit in old.edits)


def blocks(old: Commit, new: Commit) -> bool:
    """Tell whether files that go have the names of folders that come; then they have to go first.

    >>> from ingot.stores import Delete, Put
    >>> blocks(Commit(publish=(Delete("0"),)), Commit(publish=(Put("0/meta/sizes", b""),)))
    True
    """
    gone = {edit.key for edit in old.edits}
    parts = (edit.key.split("/")[:-1] for edit in new.edits) if gone else ()
    return any("/".join(each[:end]) in gone for each in parts for end in range(1, len(each) + 1))


def check_layout(format: Format, layout: Mapping[str, Any]) -> None:
    """Complain of a setting that a format does not have."""
    for name in layout:
        if name not in format.settings:
            known = ", ".join(format.settings) or "none"
            raise TypeError(f"{format.name} has no setting {name!r}; it has {known}")


def _dtype(claim: DTypeLike) -> DType:
    dtype = dtypes.TEXT if claim is str else np.dtype(claim)
    if dtype.subdtype is not None:
        raise ValueError(f"dtype {dtype}: add the shape of the items to that of the array")
    if dtype.itemsize == 0:
        raise ValueError(f"dtype {dtype}: items of 0 bytes")
    return dtype


def _chunks(chunks: int | Sequence[int] | str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
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
        return dtypes.zero(dtype)
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


Chunks: TypeAlias = int | Sequence[int] | str
"""The shape of a chunk, a number of rows, or "auto"."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
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
        >>> from ingot.formats.zarr.v2 import Zarr2Format
        >>> made = ColumnSpec(chunks={"a.b": 5}).schema(Zarr2Format(), {"a.b": np.zeros(10)})
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

    def _of(self, name: str, values: NDArray[Any]) -> ArraySpec:
        chunks = self.chunks.get(name, "auto") if isinstance(self.chunks, Mapping) else self.chunks
        codec = self.codec.get(name) if isinstance(self.codec, Mapping) else self.codec
        return ArraySpec(
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
