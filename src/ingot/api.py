"""Opening and creating datasets: the one place that knows all stores and formats.

Knows which store a path means, which format a dataset has or shall have, and what of a caller's
wishes goes where. Refuses to move data: that is for the containers it returns.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot import dtypes
from ingot.array import Array, Mode, opened
from ingot.attributes import converted
from ingot.codecs.codec import ChunkSpec, Stage, parse_spelling
from ingot.dtypes import DType
from ingot.engine.run import Engine
from ingot.errors import (
    ExistsError,
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats import fills
from ingot.formats.detect import detect, looked_for
from ingot.formats.format import ArrayNode, Format, GroupNode, Node, Request
from ingot.formats.zarr2 import Zarr2Format
from ingot.formats.zarr3 import Zarr3Format
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores import Commit, Feature, FileStore, LocalStore, MemoryStore, Store
from ingot.stores.state import change, read_numbered

__all__ = ["array", "create", "formats", "open"]

Path: TypeAlias = str | os.PathLike[str] | Store
"""Where a dataset is: a path of the local file system, or a store."""

Codec: TypeAlias = str | Stage | Sequence[str | Stage] | None
"""One codec or several, in the order of encoding; None is the format's default."""

_FORMATS: Final[Mapping[str, Format]] = {each.name: each for each in (Zarr3Format(), Zarr2Format())}

_DEFAULT: Final = "zarr3"

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def open(
    path: Path, mode: Mode = "r", *, format: str | None = None, options: Options | None = None
) -> Array:
    """Open a dataset. What it is goes by its content, not by its name.

    Mode "r" never creates, changes or touches a file; "r+" allows changes.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = create(folder.name, shape=(3, 4), dtype="i4")
    >>> open(folder.name).shape
    (3, 4)
    >>> open(folder.name + "/absent")
    Traceback (most recent call last):
    ingot.errors.NotFoundError: ...absent: no such file or folder
    >>> folder.cleanup()
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is {mode!r}, not 'r' or 'r+'; new datasets are made by create")
    place = _Place.of(path, writable=mode == "r+")

    def find(view: Store) -> tuple[Format, Node]:
        chosen = _format(format) if format is not None else _detected(place, view)
        return chosen, chosen.open(view)

    (chosen, node), number = read_numbered(place.store, find)
    if isinstance(node, GroupNode):
        names = ", ".join(node.children) or "none"
        raise UnsupportedError(f"{place.name}: a group; open one of its members ({names}) instead")
    if not isinstance(node, ArrayNode):
        raise UnsupportedError(f"{place.name}: {type(node).__name__} is not supported")
    options = options or Options()
    handle = opened(chosen, place.store, "", options, first=(Engine(node.chunks, options), number))
    return Array(chosen, handle, path=place.path, mode=mode)


def create(
    path: Path | None = None,
    *,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    chunks: int | Sequence[int] | str = "auto",
    codec: Codec = None,
    fill: object = 0,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> Array:
    """Create an array that holds the fill value everywhere; without a path, in memory.

    `chunks` is the shape of a chunk, a number of rows, or "auto": near to cubes of 1 MiB. `codec`
    is a codec or its short spelling, such as "blosc:lz4:5:shuffle", "zstd:3", "none", or several of
    them. A `fill` of 0 is the zero of any type: False, the epoch, empty text. The dtype `str` is
    text of any length. The formats zarr3 (the default) and zarr2 have the settings `order` ("C" or
    "F") and `dimension_separator` ("." or "/"); zarr3 has `shards` (the shape of one, or "auto"),
    `dimension_names`, `chunk_key_encoding` and `checksum` as well.

    What exists is not touched, unless `overwrite` allows to replace an array. Then the new one
    takes its place in one commit; files that are not the array's own stay. A group, or a folder
    with anything else in it, is never replaced.

    >>> array = create(shape=(1000, 1000), dtype="f4", codec="zlib:1", fill=float("nan"))
    >>> array.chunks, array[0, 0]
    ((500, 500), np.float32(nan))
    """
    wish = _Wish(shape, dtype, chunks, codec, fill, format, attrs, overwrite, options, layout)
    return _created(path, wish, None)


def array(data: object, path: Path | None = None, **as_create: Any) -> Array:
    """Create an array that holds `data`; takes what `create` takes, but for the shape.

    The array appears when all of the data is stored.

    >>> array([[1, 2], [3, 4]], codec="zlib:9")[1]
    array([3, 4])
    """
    dtype = as_create.pop("dtype", None)
    items = np.asarray(data, None if dtype is None else _dtype(dtype))
    own = {each.name for each in fields(_Wish)} - {"layout"}
    layout = {name: as_create.pop(name) for name in as_create.keys() - own}
    return _created(path, _Wish(items.shape, items.dtype, **as_create, layout=layout), items)


def formats() -> dict[str, tuple[str, ...]]:
    """Return the formats that can be read and written, and what each of them holds.

    >>> formats()
    {'zarr3': ('array',), 'zarr2': ('array',)}
    """
    return dict.fromkeys(_FORMATS, ("array",))


@dataclass(frozen=True, slots=True)
class _Place:
    """The store that a path means, and how to speak of it."""

    store: Store
    path: str | None
    """None in memory."""
    file: str | None = None
    """The key of the only file, where the store is one."""

    @classmethod
    def of(cls, path: Path, *, writable: bool) -> "_Place":
        if not isinstance(path, str | os.PathLike):
            return cls._of_store(path)
        if isinstance(path, str) and _URL.match(path):
            raise UnsupportedError(f"{path}: only local paths and stores can be opened")
        try:
            folder = stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            folder = True
        except NotADirectoryError:
            raise NotFoundError(f"{os.fspath(path)}: a part of the path is a file") from None
        if folder:
            local = LocalStore(path, writable=writable)
            return cls(local, local.root)
        return cls._of_store(FileStore(path, writable=writable))

    @classmethod
    def _of_store(cls, store: Store) -> "_Place":
        if not isinstance(store, Store):
            raise TypeError(f"a path or a store is needed, not {type(store).__name__}")
        if isinstance(store, MemoryStore):
            return cls(store, None)
        return cls(store, store.location, store.key if isinstance(store, FileStore) else None)

    @property
    def name(self) -> str:
        return self.store.location

    def is_empty(self) -> bool:
        # Without a listing only the formats' own marks could tell, and they were looked for.
        listed = Feature.LIST in self.store.features
        return self.file is None and not (listed and _has_values(self.store, ""))


def _has_values(store: Store, folder: str) -> bool:
    """Tell whether anything lies below a folder; folders alone are what a crash may leave."""
    return any(
        not name.endswith("/") or _has_values(store, folder + name) for name in store.names(folder)
    )


def _format(name: str) -> Format:
    if name not in _FORMATS:
        raise UnsupportedError(f"format {name!r} is unknown; there is {', '.join(_FORMATS)}")
    return _FORMATS[name]


def _detected(place: _Place, view: Store) -> Format:
    found = detect(view, _FORMATS.values(), place.file)
    if found is not None:
        return found
    sought = looked_for(_FORMATS.values())
    if not place.is_empty():
        raise FormatError(f"{place.name}: no dataset of a known format; looked for {sought}")
    if place.path is not None and not os.path.exists(place.path):
        raise NotFoundError(f"{place.name}: no such file or folder")
    raise NotFoundError(f"{place.name}: nothing is there; looked for {sought}")


@dataclass(frozen=True, slots=True)
class _Wish:
    """A new array as its maker describes it."""

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


def _created(path: Path | None, wish: _Wish, items: NDArray[Any] | None) -> Array:
    chosen = _format(wish.format or _DEFAULT)
    _check_layout(chosen, wish.layout)
    schema = wish.schema(chosen)
    place = _Place.of(MemoryStore() if path is None else path, writable=True)
    options = wish.options or Options()
    made: list[Engine] = []

    def build(store: Store) -> Commit:
        old = _in_the_way(place, store, overwrite=wish.overwrite)
        node, commit = chosen.create(store, schema, **wish.layout)
        assert isinstance(node, ArrayNode)
        made.append(Engine(node.chunks, options))
        data = Commit()
        if items is not None:
            data = made[-1].written(parse(..., schema.shape), items)
        # All at once, or nothing: what is replaced is still read, and where nothing was, chunks
        # without an array would be in the way of who tries again.
        removed = () if old is None else old.edits
        return Commit(publish=(*removed, *data.edits, *commit.edits))

    _in_the_way(place, place.store, overwrite=wish.overwrite)  # Before a lock file is made.
    number = change(place.store, build, durability=options.durability)
    handle = opened(chosen, place.store, "", options, first=(made[-1], number))
    return Array(chosen, handle, path=place.path, mode="r+")


def _check_layout(format: Format, layout: Mapping[str, Any]) -> None:
    for name in layout:
        if name not in format.settings:
            known = ", ".join(format.settings) or "none"
            raise TypeError(f"{format.name} has no setting {name!r}; it has {known}")


def _in_the_way(place: _Place, store: Store, *, overwrite: bool) -> Commit | None:
    """Return the commit that removes what is there, if that is allowed; None if nothing is."""
    found = detect(store, _FORMATS.values(), place.file)
    if found is None:
        if place.is_empty():
            return None
        raise ExistsError(f"{place.name}: there is something already, and no known dataset")
    if not overwrite:
        raise ExistsError(f"{place.name}: a {found.name} dataset is there already")
    try:
        node = found.open(store)
    except IngotError as error:
        error.add_note("what cannot be read cannot be replaced: its files are not known")
        raise
    if not isinstance(node, ArrayNode):
        raise ExistsError(f"{place.name}: only arrays are replaced, this is none")
    return node.chunks.removed()


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
