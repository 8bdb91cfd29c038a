"""Creation of arrays: arguments become an `ArraySpec`, a format lays it out, one commit stores it.

Where the array is created, and what it may replace, the caller decides (`Destination`).
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot import dtypes
from ingot._lazy import deferred
from ingot.codecs import choice
from ingot.codecs.codec import ChunkSpec, Stage, check_choice, parse_choice, parse_spelling
from ingot.containers.array import Array
from ingot.containers.attributes import converted
from ingot.containers.dataset import Dataset
from ingot.containers.handle import HandleProtocol
from ingot.dtypes import DType
from ingot.engine import changes
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import ArgumentError, ArgumentTypeError, LimitError, UnsupportedError
from ingot.formats.format import (
    ArrayNode,
    Format,
    Node,
    RaggedFormat,
    RaggedRequest,
    Request,
    TableSchema,
    has_typed_attributes,
    recorded,
)
from ingot.formats.packs import default_codec
from ingot.formats.validity import valid_name
from ingot.logical_types import CategoryType, LogicalArray
from ingot.nullable_array import NullableArray
from ingot.options import Options, given_options, parse_size
from ingot.ragged_array import RaggedArray
from ingot.schema import ArraySchema, RaggedSchema
from ingot.selection import parse
from ingot.stores.store import Commit, Edit, Feature, Store
from ingot.stores.versions import NO_VERSION, writing
from ingot.values import as_array

if TYPE_CHECKING:
    from ingot.containers import replacement, streams
    from ingot.engine import transfer
else:
    replacement = deferred("ingot.containers.replacement")
    streams = deferred("ingot.containers.streams")
    transfer = deferred("ingot.engine.transfer")

__all__ = [
    "ArraySpec",
    "Chunks",
    "Codec",
    "ColumnSpec",
    "Destination",
    "Items",
    "StagedChunks",
    "blocks",
    "check_layout",
    "create_array",
    "is_auto",
    "item_stages",
    "one_state",
    "stages_of",
    "validity_schema",
]


class ForeignCodec(Protocol):
    """A codec of numcodecs, which states its name and parameters."""

    def get_config(self) -> Mapping[str, Any]:
        """Return the parameters, and the name as "id"."""
        ...


class DescribedCodec(Protocol):
    """A codec of zarr version 3, which states its name and its configuration."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return the name as "name", and the parameters as "configuration"."""
        ...


CodecPart: TypeAlias = str | Stage | ForeignCodec | DescribedCodec
"""One codec: its spelling, such as "zstd:3", or a codec of Ingot, numcodecs or zarr."""

Codec: TypeAlias = CodecPart | Sequence[CodecPart] | None
"""One codec or several, in the order of encoding; None is the format's default.

"auto" is a codec of Blosc that a sample of the data chooses (`ingot.codecs.choice`)."""


class Sampled(Protocol):
    """Items that a box of slices takes a part of."""

    def __getitem__(self, key: tuple[slice, ...], /) -> Any:
        """Return the items of a box."""
        ...


@dataclass(frozen=True, slots=True)
class StagedChunks:
    """The content of a new array of which all chunks are staged: see `containers.staged`."""

    shape: tuple[int, ...]
    dtype: DType
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The arguments that describe a new array; see `ingot.create`.

    >>> ArraySpec(10, "f4", codec="zlib:1").request().dtype
    dtype('float32')
    """

    shape: int | Sequence[int]
    dtype: DTypeLike
    chunks: int | Sequence[int] | str | None = "auto"
    codec: Codec = None
    fill: object = 0
    format: str | None = None
    attrs: Mapping[str, object] | None = None
    overwrite: bool = False
    options: Options | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    def request(self, *, typed: bool = False, remote: bool = False) -> Request:
        """Return the request to a format, which decides the rest; `typed` as in `converted`."""
        dtype = _dtype(self.dtype)
        shape = (self.shape,) if isinstance(self.shape, int | np.integer) else tuple(self.shape)
        chunks = _chunks(self.chunks, shape)
        stages = None if self.codec is None else tuple(stages_of(self.codec))
        fill, attrs = _fill(self.fill, dtype), converted(self.attrs or {}, typed=typed)
        return Request(shape, dtype, fill, chunks, stages, attrs, remote)

    def schema(
        self,
        format: Format,
        items: "Sampled | None" = None,
        *,
        remote: bool = False,
    ) -> ArraySchema:
        """Return the schema that a format gives the array; `items` choose the codec "auto".

        `remote` is as in `Request`.
        """
        if is_auto(self.codec) and items is not None:
            return self._with_chosen_codec(format, items).schema(format, remote=remote)
        layout = dict(self.layout)
        if isinstance(self.chunks, str) and self.chunks != "auto":
            layout["chunk_bytes"] = _size(self.chunks)
            if "chunk_bytes" not in format.settings:
                raise UnsupportedError(
                    f"chunks is {self.chunks!r}: {format.name} has chunks of a shape, not of bytes"
                )
        request = self.request(typed=has_typed_attributes(format), remote=remote)
        schema = format.design(request, **layout)
        spec = ChunkSpec(schema.chunks, schema.dtype, schema.fill)
        limit = given_options(self.options).limits.chunk_bytes
        if spec.nbytes > limit:
            raise LimitError(
                f"chunks {schema.chunks} have {spec.nbytes} bytes, the limit is {limit}"
            )
        return schema

    def _with_chosen_codec(self, format: Format, items: "Sampled") -> "ArraySpec":
        """Return the spec with the codec that a sample of the items chooses."""
        default = replace(self, codec=None).schema(format)
        boxes = choice.pieces(default.shape, default.chunks, default.dtype.itemsize)
        sample = (np.asarray(items[box], default.dtype) for box in boxes)

        def accepts(stages: tuple[Stage, ...]) -> bool:
            try:
                replace(self, codec=stages).schema(format)
            except UnsupportedError:
                return False
            return True

        codec = choice.stages_for(default.chain, default.codec, sample, accepts)
        return replace(self, codec=codec)

    @classmethod
    def of_data(
        cls, data: object, arguments: Mapping[str, Any]
    ) -> "tuple[ArraySpec, NDArray[Any] | Array | StagedChunks]":
        """Return the spec of an array that holds `data`, and the data as items of its type.

        Another array of Ingot is returned as it is: it is read while the new one is written. So
        are staged chunks.

        >>> spec, items = ArraySpec.of_data([1, 2], {"dtype": "i2", "order": "F"})
        >>> spec.shape, items.dtype, spec.layout
        ((2,), dtype('int16'), {'order': 'F'})
        """
        dtype = arguments.get("dtype")
        kind = None if dtype is None else _dtype(dtype)
        if isinstance(data, Iterator | io.IOBase):
            data = streams.read_stream(data, kind)
        own = {each.name for each in fields(cls)} - {"layout", "dtype", "shape"}
        layout = {
            name: arguments[name] for name in arguments if name not in own and name != "dtype"
        }
        chosen = {name: arguments[name] for name in arguments if name in own}
        if isinstance(data, Array | StagedChunks):
            return cls(data.shape, kind or data.dtype, **chosen, layout=layout), data
        single = isinstance(data, str) and kind is not None
        items = parse((), ()).prepare(data, kind) if single else as_array(data, kind)
        return cls(items.shape, items.dtype, **chosen, layout=layout), items


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an array is created: at `inner` of a store; `path` is the location for users.

    `clear` returns the commit that removes the dataset that is replaced, None when there is none,
    and raises `ExistsError` when it must not be replaced. `handle` returns the handle of the new
    array, given its engine and the version number.
    """

    store: Store
    inner: str
    path: str | None
    clear: Callable[[Store], Commit | None]
    handle: Callable[[Engine, int | None], HandleProtocol[Engine]]


Items: TypeAlias = NDArray[Any] | Array | StagedChunks
"""The items of a new array."""


def create_array(format: Format, place: Destination, spec: ArraySpec, items: Items | None) -> Array:
    """Create an array that holds `items`, or the fill value, by one commit.

    The items of another array are read window by window, from one state of it.
    """
    if not isinstance(items, Array):
        return _create_array(format, place, spec, items)
    with one_state(items, place.store):
        return _create_array(format, place, spec, items)


def one_state(source: Dataset[Any], target: Store) -> AbstractContextManager[None]:
    """Return a block in which a source stays in one state while a target is written.

    Where both lie in one store, the turn to write does that. A plain folder has no state.
    """
    handle = getattr(source, "_handle", None)
    if handle is None:
        return nullcontext()
    own = handle.store
    folder = getattr(own, "root", None)
    if own is target or (folder is not None and folder == getattr(target, "root", None)):
        return nullcontext()
    return source.snapshot()


def _create_array(
    format: Format, place: Destination, spec: ArraySpec, items: Items | None
) -> Array:
    check_layout(format, spec.layout)
    sampled = None if isinstance(items, StagedChunks) else items
    schema = spec.schema(format, sampled, remote=Feature.REMOTE in place.store.features)
    options = given_options(spec.options)
    old = place.clear(place.store)  # Before a lock file is made.
    if old is not None and replacement.has_files(place.store):
        node, _ = format.create(place.store, schema, place.inner, **spec.layout)
        if _blocks(old, node) and not place.inner:
            return _replace_array(format, place, spec, items, old)
        if _blocks(old, node):
            # A member has no folder that can be exchanged: the commits of its group are elsewhere.
            with writing(place.store) as turn:
                turn.commit(place.clear(turn.store) or Commit())
    with writing(place.store, durability=options.durability) as turn:
        old = place.clear(turn.store)
        node, commit = format.create(turn.store, schema, place.inner, **spec.layout)
        assert isinstance(node, ArrayNode)
        engine = engine_of(node.chunks, options)
        if isinstance(items, StagedChunks):
            data = Commit(publish=items.edits)
        elif isinstance(items, Array):
            data = transfer.transferred_whole(
                engine_of(items._handle.value.chunks, options), engine
            )
        elif items is None:
            data = changes.filled(engine)
        else:
            data = engine.assign(parse(..., schema.shape), items)
        after = engine.committed()
        number = turn.commit(recorded(node.chunks, _created(old, commit, data)))
        # An error from here on gets the note that the commit is done.
        return Array(format, place.handle(after, number), path=place.path, mode="r+")


def _replace_array(
    format: Format, place: Destination, spec: ArraySpec, items: Items | None, old: Commit
) -> Array:
    """Create an array beside an old dataset whose files have the names of its folders.

    The old dataset stays until the new one is whole.
    """
    if isinstance(items, StagedChunks):
        # The chunks are staged in the folder of the old one.
        raise replacement.blocked(place.store.location)

    def write(store: Store) -> None:
        beside = replace(place, store=store, clear=lambda _: None)
        _create_array(format, beside, spec, items)

    replacement.replace_dataset(place.store, place.inner, old, place.store.location, write)
    node = format.open(place.store, place.inner)
    assert isinstance(node, ArrayNode)
    handle = place.handle(engine_of(node.chunks, given_options(spec.options)), NO_VERSION)
    return Array(format, handle, path=place.path, mode="r+")


def _created(old: Commit | None, array: Commit, data: Commit) -> Commit:
    """Return the commit of a new array and its chunks, which replaces an old dataset if given.

    All of it is published at once: half an array, left by a crash, would block the next attempt.
    And the old dataset is read until then.
    """
    # A single file is made before its chunks are put into it; of other keys, documents come last.
    filled = {edit.key for edit in data.edits}
    files = tuple(edit for edit in array.publish if edit.key in filled)
    documents = tuple(edit for edit in array.publish if edit.key not in filled)
    made_anew = (*files, *data.edits, *documents)
    if old is None:
        return Commit(array.prepare, made_anew, array.cleanup)
    kept = {edit.key for edit in made_anew}
    strays = tuple(edit for edit in array.prepare if edit.key not in kept)
    return Commit((), (*old.edits, *made_anew), (*strays, *array.cleanup))


def _blocks(old: Commit, new: Node) -> bool:
    """Return whether files of the old dataset have the names of folders of the new one.

    A file system cannot replace one by the other in one step, so the old one is removed first.
    """
    assert isinstance(new, ArrayNode)
    template, ndim = new.chunks.template, len(new.schema.shape)
    if template is None:
        return False
    return any(template.is_folder(edit.key, ndim) for edit in old.edits)


def blocks(old: Commit, new: Commit) -> bool:
    """Return whether removed files have the names of new folders; then they are removed first.

    >>> from ingot.stores import Delete, Put
    >>> blocks(Commit(publish=(Delete("0"),)), Commit(publish=(Put("0/meta/sizes", b""),)))
    True
    """
    gone = {edit.key for edit in old.edits}
    parts = (edit.key.split("/")[:-1] for edit in new.edits) if gone else ()
    return any("/".join(each[:end]) in gone for each in parts for end in range(1, len(each) + 1))


# What other libraries name the arguments of `ingot.create`.
_OTHER_NAMES: Final = {
    "fill_value": "fill",
    "fillvalue": "fill",
    "compressor": "codec",
    "compressors": "codec",
    "compression": "codec",
    "codecs": "codec",
    "cparams": "codec",
    "chunklen": "chunks",
    "chunk_shape": "chunks",
    "attributes": "attrs",
    "zarr_format": "format",
    "zarr_version": "format",
    "rootdir": "path",
    "url": "path",
    "urlpath": "path",
    "store": "path",
}


def check_layout(format: Format, layout: Mapping[str, Any]) -> None:
    """Raise `TypeError` for a setting that a format does not have."""
    for name in layout:
        if name not in format.settings:
            if name == "mode":
                raise ArgumentTypeError(
                    "mode: what is created is open for writing; overwrite=True replaces a dataset"
                )
            if name in _OTHER_NAMES:
                raise ArgumentTypeError(f"{name}: Ingot names this argument {_OTHER_NAMES[name]!r}")
            known = ", ".join(format.settings) or "none"
            raise ArgumentTypeError(f"{format.name} has no setting {name!r}; it has {known}")


def _dtype(claim: DTypeLike) -> DType:
    try:
        dtype = dtypes.TEXT if claim is str else np.dtype(claim)
    except ValueError as error:
        raise ArgumentError(f"dtype is {claim!r}: {error}") from None
    except TypeError:
        raise ArgumentTypeError(f"dtype is {claim!r}, which is no type of NumPy") from None
    if dtype.subdtype is not None:
        raise ArgumentError(f"dtype {dtype}: add the shape of the items to that of the array")
    if dtype.itemsize == 0:
        raise ArgumentError(f"dtype {dtype}: items of 0 bytes")
    return dtype


def _chunks(
    chunks: int | Sequence[int] | str | None, shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the shape of a chunk; None when the format chooses it, as for None and True."""
    if chunks is None or chunks is True:
        return None
    if isinstance(chunks, str):
        return None
    if not isinstance(chunks, int | np.integer) and isinstance(chunks, Iterable):
        return tuple(chunks)
    if chunks is False or not isinstance(chunks, int | np.integer):
        raise ArgumentTypeError(
            f"chunks is {chunks!r}, not a shape, a number of rows, a size like '1M' or 'auto'"
        )
    if not shape:
        raise ArgumentError("chunks is a number of rows, but an array without axes has none")
    return (int(chunks), *(max(1, length) for length in shape[1:]))


def _size(chunks: str) -> int:
    """Return the bytes that a text like "1M" or "500 KiB" stands for.

    A number alone is refused: it would be a number of rows.
    """
    size = None if chunks.isdecimal() else parse_size(chunks)
    if size is None:
        raise ArgumentError(
            f"chunks is {chunks!r}, not a shape, a number of rows, a size like '1M' or 'auto'"
        )
    return size


def stages_of(codec: CodecPart | Sequence[CodecPart]) -> list[Stage]:
    """Return the codecs that a caller gives or spells, in the order of encoding.

    >>> [stage.name for stage in stages_of(["zlib:1"])]
    ['zlib']
    """
    if is_auto(codec):
        raise ArgumentError("codec 'auto' is chosen by a sample of the data; there are none")
    parts = codec if isinstance(codec, Sequence) and not isinstance(codec, str) else [codec]
    return [stage for part in parts for stage in _stages(part)]


def is_auto(codec: object) -> bool:
    """Return whether a codec is to be chosen by a sample.

    >>> is_auto("auto"), is_auto("zstd:3")
    (True, False)
    """
    return isinstance(codec, str) and codec == choice.AUTO


def item_stages(codec: Codec, items: RaggedArray) -> tuple[Stage, ...] | None:
    """Return the codec for variable-length items; None where the format chooses it.

    >>> item_stages("auto", RaggedArray.of(["lorem ipsum"] * 1000))[0].shuffle_word
    'noshuffle'
    """
    if not is_auto(codec):
        return None if codec is None else tuple(stages_of(codec))
    like = default_codec(items.kind)
    data = items.data[int(items.offsets[0]) : int(items.offsets[-1])]
    boxes = choice.pieces(data.shape, data.shape, data.itemsize)
    return (choice.choose((data[box].data for box in boxes), like),)


def _stages(part: object) -> tuple[Stage, ...]:
    if isinstance(part, str):
        return parse_spelling(part)
    if isinstance(part, Stage):
        check_choice(type(part), part.config())
        return (part,)
    if (config := getattr(part, "get_config", None)) is not None:
        return (parse_choice(config()),)
    if (described := getattr(part, "to_dict", None)) is not None:
        stated = described()
        if isinstance(stated, Mapping) and isinstance(stated.get("name"), str):
            return (parse_choice(_numcodecs_config(stated)),)
    raise ArgumentTypeError(
        f"codec is {part!r}, not a spelling such as 'zstd:3', a codec of Ingot, numcodecs or zarr, "
        "or a list of them"
    )


_SHUFFLES: Final[Mapping[object, int]] = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
"""Words of zarr for the filters of Blosc, and the numbers of numcodecs."""


def _numcodecs_config(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return how numcodecs spells a codec of zarr version 3."""
    config = {"id": stated["name"].removeprefix("numcodecs."), **stated.get("configuration", {})}
    if config["id"] == "blosc":
        # The item size is that of the array; words stand for numbers.
        config.pop("typesize", None)
        shuffle = config.get("shuffle")
        config["shuffle"] = _SHUFFLES.get(shuffle, shuffle)
    return config


def _fill(fill: object, dtype: DType) -> Any:
    """Return a fill value as an item of the type; `ValueError` when it is none."""
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
        raise ArgumentError(f"fill {fill!r} is no value of type {dtype}")
    return item[()]


Chunks: TypeAlias = int | Sequence[int] | str | None
"""The shape of a chunk, a number of rows, or "auto", which None and True mean as well."""


def validity_schema(format: Format, schema: ArraySchema, options: Options) -> ArraySchema:
    """Return the schema of the booleans that say which items of a column exist.

    They are in chunks of as many rows. A row that a longer table gets exists.
    """
    rows = schema.chunks[0]
    return ArraySpec(schema.shape[:1], np.bool_, rows, fill=True, options=options).schema(format)


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """The arguments that describe how columns are stored.

    `chunks`, `codec` and `fill` may be mappings from columns; other columns get the default.
    """

    chunks: Chunks | Mapping[str, Chunks] = "auto"
    codec: Codec | Mapping[str, Codec] = None
    fill: object | Mapping[str, object] = 0
    attrs: Mapping[str, object] | None = None
    options: Options = field(default_factory=Options)
    layout: Mapping[str, Any] = field(default_factory=dict)

    def schema(
        self,
        format: Format,
        columns: Mapping[str, NDArray[Any] | NullableArray | RaggedArray | LogicalArray],
    ) -> TableSchema:
        """Return the schemas that a format gives columns that hold these values.

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
                if not isinstance(inner, dict):
                    raise ArgumentError(f"column {name!r} lies in a column, not in a nested table")
            if last in inner:
                raise ArgumentError(f"{name!r} is a column and a nested table")
            coded = isinstance(values, LogicalArray) and isinstance(values.type, CategoryType)
            if isinstance(values, LogicalArray):
                values = values.values
            if isinstance(values, RaggedArray):
                inner[last] = self._ragged(format, name, values)
            else:
                spec = self._of(name, values)
                # A row without a value has a null, and not the first of the words.
                items = values.values if isinstance(values, NullableArray) else values
                schema = (replace(spec, fill=-1) if coded else spec).schema(format, items)
                inner[last] = schema
                if isinstance(values, NullableArray):
                    inner[valid_name(last)] = validity_schema(format, schema, self.options)
        return tree

    def _ragged(self, format: Format, name: str, items: RaggedArray) -> RaggedSchema:
        if not isinstance(format, RaggedFormat):
            raise UnsupportedError(f"{format.name} has no columns of {items.kind}: {name!r}")
        fill = self._fill_of(name)
        if fill is not None and not (type(fill) is int and fill == 0):
            raise ArgumentError(f"fill {fill!r}: new items of column {name!r} are null")
        # The type of an array of so many items decides nothing that counts here.
        spec = replace(self._of(name, np.empty(len(items), np.uint8)), fill=0)
        stages = item_stages(spec.codec, items)
        request = replace(spec, codec=None).request()
        mean = items.nbytes / len(items) if len(items) else None
        rows = None if request.chunks is None else request.chunks[0]
        asked = RaggedRequest(len(items), items.kind, mean, rows, stages, request.attrs)
        return format.design_ragged(asked, **self.layout)

    def _of(self, name: str, values: NDArray[Any] | NullableArray) -> ArraySpec:
        chunks = self.chunks.get(name, "auto") if isinstance(self.chunks, Mapping) else self.chunks
        codec = self.codec.get(name) if isinstance(self.codec, Mapping) else self.codec
        return ArraySpec(
            values.shape,
            values.dtype,
            chunks,
            codec,
            self._fill_of(name),
            attrs=self.attrs,
            options=self.options,
            layout=self.layout,
        )

    def _fill_of(self, name: str) -> object:
        return self.fill.get(name, 0) if isinstance(self.fill, Mapping) else self.fill

    def _check_names(self, columns: Mapping[str, Any]) -> None:
        for what, given in (("chunks", self.chunks), ("codec", self.codec), ("fill", self.fill)):
            for name in given if isinstance(given, Mapping) else ():
                if name not in columns:
                    raise ArgumentError(f"{what} names the column {name!r}, which does not exist")
