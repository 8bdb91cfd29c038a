"""Opening and creating datasets: the functions that users call.

The functions find the store that a path means and the format of the dataset, check the arguments,
and return containers. The containers move the data.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import DTypeLike

from ingot._lazy import deferred
from ingot.containers import create as creation
from ingot.containers.array import Array, array_handle
from ingot.containers.attributes import converted
from ingot.containers.create import ArraySpec, Codec, Items, create_array
from ingot.containers.dataset import Dataset, Mode
from ingot.containers.group import Group, GroupState
from ingot.containers.handle import HandleProtocol
from ingot.containers.resolve import (
    Path,
    open_complete,
    open_fast,
    remove_existing,
    resolve_new,
    with_settings,
)
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import ArgumentError, FormatError, NotFoundError, UnsupportedError
from ingot.formats.format import (
    ArrayNode,
    GroupFormat,
    GroupNode,
    Kind,
    RaggedNode,
    TableFormat,
    TableNode,
    UntypedFormat,
)
from ingot.options import Options, given_options
from ingot.stores import Commit, Store
from ingot.stores.versions import writing

if TYPE_CHECKING:
    from ingot.containers import create_ragged as items_creation
    from ingot.containers import create_table as tables
    from ingot.containers import folder as folders
    from ingot.containers.create import Chunks
    from ingot.containers.ragged import Ragged
    from ingot.containers.table import Table
    from ingot.conversion import folder as folder_conversion
    from ingot.conversion import plan as conversion_plan
    from ingot.conversion import run as conversion
    from ingot.conversion.run import Progress
else:
    tables = deferred("ingot.containers.create_table")
    conversion_plan = deferred("ingot.conversion.plan")
    folder_conversion = deferred("ingot.conversion.folder")
    conversion = deferred("ingot.conversion.run")
    items_creation = deferred("ingot.containers.create_ragged")
    folders = deferred("ingot.containers.folder")

__all__ = ["array", "convert", "create", "group", "open", "ragged", "table"]

_DEFAULT: Final = "zarr3"
_DEFAULT_TABLE: Final = "bcolz"
_DEFAULT_RAGGED: Final = "varlen"
_OPTIONS: Final = Options()


def open(
    path: Path,
    mode: Mode = "r",
    *,
    format: str | None = None,
    dtype: DTypeLike | None = None,
    options: Options | None = None,
) -> "Array | Table | Ragged | Group":
    """Open a dataset. Its content decides what it is, not its name.

    Mode "r" never creates, changes or touches a file; "r+" allows changes. A member of a group or a
    column of a table is opened as part of the outermost group or table, and shares its lock. A
    plain folder that holds datasets, of any formats, is a group of them that cannot be changed.
    `dtype` is for a dataset that does not say what its items are: a super-chunk file of blsk
    without its metadata.

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
        raise ArgumentError(f"mode is {mode!r}, not 'r' or 'r+'; new datasets are made by create")
    options, writable = given_options(options), mode == "r+"
    if writable and options.damaged == "fill":
        # A change would store the fill value, and hide the damage.
        raise ArgumentError("damaged='fill' is for reading, in mode 'r'")
    address = with_settings(path, options.storage)
    found = open_fast(address, format, writable=writable)
    if found is None:
        try:
            found = open_complete(address, format, writable=writable)
        except (FormatError, NotFoundError) as error:
            if format is None and isinstance(address, str | os.PathLike):
                inside = folders.folder_group(os.fspath(address), options, open)
                if inside is not None and not writable:
                    return inside
                if inside is not None:
                    error.add_note("a folder of datasets is opened with mode 'r' only")
            raise
    place, chosen, node, number = found
    if dtype is not None:
        if not isinstance(chosen, UntypedFormat):
            raise UnsupportedError(f"{place.name}: datasets of {chosen.name} take no dtype")
        chosen = chosen.typed(np.dtype(dtype))
        node = chosen.open(place.store, place.inner)
    if isinstance(node, GroupNode) and isinstance(chosen, GroupFormat):
        first = GroupState(chosen, place.store, node), number
        return Group.of(chosen, place.store, place.inner, place.path, mode, options, first)
    if isinstance(node, TableNode):
        return tables.open_table(found, node, mode, options)
    if isinstance(node, RaggedNode):
        return items_creation.open_ragged(found, node, mode, options)
    if not isinstance(node, ArrayNode):
        raise UnsupportedError(f"{place.name}: {type(node).__name__} is not supported")
    engine = engine_of(node.chunks, options), number
    handle = array_handle(chosen, place.store, place.inner, options, first=engine)
    return Array(chosen, handle, path=place.path, mode=mode)


def create(
    path: Path | None = None,
    *,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    chunks: "Chunks" = "auto",
    codec: Codec = None,
    fill: object = 0,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> Array:
    """Create an array that holds the fill value everywhere; without a path, in memory.

    `chunks` is the shape of a chunk, a number of rows, or "auto": near to cubes of 1 MiB, which
    None and True mean as well. Where chunks are runs of bytes, as in Bloscpack files, it may be a
    size, such as "1M". `codec` is a short spelling, such as "blosc:lz4:5:shuffle", "zstd:3" or
    "none", a codec of another array of Ingot or of numcodecs, or several of them; `array` also
    takes "auto", by which a sample of the data chooses. A `fill` of 0 is the zero of any type:
    False, the epoch, empty text. The dtype `str` is text of any length. The formats zarr3 (the
    default) and zarr2 have the settings `order` ("C" or "F"),
    `dimension_separator` ("." or "/") and `checksum` (a CRC-32C of every chunk; True by default in
    zarr3 only); zarr3 has `shards` (the shape of one, or "auto"), `dimension_names`,
    `chunk_key_encoding`, and `manifest` (a document that names the stored chunks, so that a lost
    one is told from one never written) as well. bloscpack has `order`, and `checksum` as a name:
    "adler32" (the default), "crc32", "md5", "sha1" to "sha512", "none".

    Without `format`, the suffix of the path decides, such as ".bcolz" or ".zarr"; then the group
    that the path lies in.

    An existing dataset raises `ExistsError`, unless `overwrite` allows to replace an array or a
    table. The new array then takes its place in one commit; files of other programs stay. A group,
    or a folder with anything else in it, is never replaced.

    >>> array = create(shape=(1000, 1000), dtype="f4", codec="zlib:1", fill=float("nan"))
    >>> array.chunks, array[0, 0]
    ((500, 500), np.float32(nan))
    """
    spec = ArraySpec(shape, dtype, chunks, codec, fill, format, attrs, overwrite, options, layout)
    return _created(path, spec, None)


def array(data: object, path: Path | None = None, **as_create: Any) -> Array:
    """Create an array that holds `data`; takes what `create` takes, except the shape.

    The array is visible once all of the data is stored. `data` is what NumPy makes an array of, an
    iterator of items or of blocks of rows, or a binary file that is read to its end, a pipe for
    example. Another `Array` is read window by window, so that memory need not hold it. Streams of
    more than 64 MiB wait in a temporary file until their length is known.

    >>> array([[1, 2], [3, 4]], codec="zlib:9")[1]
    array([3, 4])
    >>> array(([n, n * n] for n in range(3)), dtype="i4").shape
    (6,)
    """
    return _created(path, *ArraySpec.of_data(data, as_create))


def group(
    path: Path | None = None,
    *,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
) -> Group:
    """Create a group, to which members can be added; without a path, in memory.

    An existing dataset raises `ExistsError`, unless `overwrite` allows to replace an array, a table
    or a group with all its members. Files of other programs stay.

    >>> root = group(attrs={"title": "ours"})
    >>> root.array("a/b", [1, 2])[0]
    np.int64(1)
    """
    options = given_options(options)
    address = None if path is None else with_settings(path, options.storage)
    place, chosen, inner = resolve_new(address, format, Kind.GROUP, _DEFAULT)
    assert isinstance(chosen, GroupFormat)
    described = converted(attrs or {})
    # Before a lock file is made.
    remove_existing(place, place.store, overwrite=overwrite, groups=True)
    with writing(place.store, durability=options.durability) as turn:
        old = remove_existing(place, turn.store, overwrite=overwrite, groups=True)
        _, commit = chosen.create_group(turn.store, inner, described)
        turn.commit(commit if old is None else Commit(publish=(*old.edits, *commit.edits)))
        # An error from here on gets the note that the commit is done.
        return Group.of(chosen, place.store, inner, place.path, "r+", options)


def table(
    columns: object,
    path: Path | None = None,
    *,
    codec: Codec | Mapping[str, Codec] = None,
    chunks: "Chunks | Mapping[str, Chunks]" = "auto",
    fill: object | Mapping[str, object] = 0,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    nan_as_null: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> "Table":
    """Create a table of columns; without a path, in memory.

    `columns` is a mapping of arrays (of mappings, for nested tables), a structured array, a data
    frame, or anything that streams Arrow batches. `codec`, `chunks` (a number of rows) and `fill`
    (the value of new rows of `Table.resize`) are for all columns, or mappings from names of
    columns. The codec "auto" is chosen for each column, by a sample of it; of a stream, of its
    first block. The table is visible once all of it is stored.

    None, masked items, and the nulls of pandas and Arrow are nulls; NaN is a number, unless
    `nan_as_null`.

    An existing dataset raises `ExistsError`, unless `overwrite` allows to replace an array or a
    table, in one commit; files of other programs stay.

    >>> table({"day": [1, 2], "quote": {"bid": [1.5, 1.6], "ask": [1.7, 1.8]}})["quote.ask"][:]
    array([1.7, 1.8])
    """
    options = given_options(options)
    address = None if path is None else with_settings(path, options.storage)
    place, chosen, inner = resolve_new(address, format, Kind.TABLE, _DEFAULT_TABLE)
    assert isinstance(chosen, TableFormat)
    described = attrs or {}
    spec = tables.TableSpec(
        columns, codec, chunks, described, overwrite, options, nan_as_null, layout, fill
    )
    return tables.create_table(chosen, place, inner, spec)


def ragged(
    items: object,
    path: Path | None = None,
    *,
    kind: DTypeLike | None = None,
    codec: Codec = None,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> "Ragged":
    """Create a sequence of items of variable length; without a path, in memory.

    `items` is a list or any other iterable, an array of pyarrow or NumPy, or a pandas Series; None
    is a missing item. `kind` is "utf8", "bytes", "json", or the type of the numbers of a row;
    without it, the items decide, which must all be of one kind. The format varlen has the settings
    `packed` (False for one chunk per item), `pack_bytes`, `checksum`, `reserve` (the room behind
    each pack, in bytes or as a fraction) and `slots` (how many packs can be added in place).

    An existing dataset raises `ExistsError`, unless `overwrite` allows to replace it.

    >>> rows = ragged([[1, 2, 3], [], None, [4]], kind="i4")
    >>> rows[0], rows[2], len(rows)
    (array([1, 2, 3], dtype=int32), None, 4)
    """
    options = given_options(options)
    address = None if path is None else with_settings(path, options.storage)
    place, chosen, inner = resolve_new(address, format, Kind.RAGGED, _DEFAULT_RAGGED)
    spec = items_creation.RaggedSpec(items, kind, codec, attrs or {}, overwrite, options, layout)
    return items_creation.create_ragged(chosen, place, inner, spec)


def convert(
    source: "Path | Array | Table | Ragged | Group",
    path: Path | None = None,
    *,
    format: str | None = None,
    codec: Codec | Mapping[str, Codec] = None,
    chunks: "Chunks | Mapping[str, Chunks] | None" = None,
    overwrite: bool = False,
    progress: "Progress | None" = None,
    verify: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> "Array | Table | Ragged | Group":
    """Store a dataset at another path, in another format or layout, and return the new one.

    The source is a path, a store or an open dataset: an array, a table, items of variable length,
    or a group with all its members. Without `format` the suffix of the path decides, then the
    format of the source. Chunks, codec, attributes, names of dimensions and the fill value are kept
    where the target has a place for them; `codec`, `chunks` and the settings of the target, such as
    `shards`, change them. A table becomes a group of its columns in formats without tables, and a
    group becomes a folder of datasets in formats without groups.

    A plain folder of datasets is converted one by one, in the same tree. A dataset that fails does
    not keep the others from it: `conversion.failures` of the result names it.

    What the target cannot hold is an `UnsupportedError` with all reasons, before a byte is written.
    What it holds in another way is listed by `conversion.changes` of the new dataset.

    The source is read in one state, in windows of `Limits.window_bytes`; the target is visible when
    all of it is stored. `verify` reads it again before that, and compares it with the source: a
    target that differs is never visible, and what it would have replaced is kept. `progress` is
    called with the bytes that are done and with all there are. An existing dataset is replaced only
    with `overwrite`. A target inside its source, or around it, is refused.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> old = table({"day": [1, 2], "price": [1.5, 1.6]}, folder.name + "/prices.bcolz")
    >>> new = convert(old, folder.name + "/prices.zarr", verify=True)
    >>> new["price"][:], new.conversion.changes
    (array([1.5, 1.6]), ('the table becomes a group of its columns',))
    >>> folder.cleanup()
    """
    options = given_options(options)
    wanted = conversion_plan.Wanted(codec, chunks, layout, options)
    arguments: dict[str, Any] = {"overwrite": overwrite, "progress": progress, "verify": verify}
    given = source if isinstance(source, Dataset) else open(source, options=options)
    try:
        if isinstance(given, Group) and folder_conversion.is_spread(given, path, format):
            record = folder_conversion.convert(given, path, format, wanted, **arguments)
            place = path
        else:
            new = conversion.new_place(given, path, format)
            record = conversion.convert(given, new, wanted, **arguments)
            place = new.place.store if path is None else path
    finally:
        if given is not source:
            given.close()
    assert place is not None
    folder = record.format == folder_conversion.FOLDER
    found = open(place, "r" if folder else "r+", options=options)
    found._conversion = record
    return found


def _created(path: Path | None, spec: ArraySpec, items: Items | None = None) -> Array:
    storage = given_options(spec.options).storage
    address = None if path is None else with_settings(path, storage)
    place, chosen, inner = resolve_new(address, spec.format, Kind.ARRAY, _DEFAULT)

    def clear(store: Store) -> Commit | None:
        return remove_existing(place, store, overwrite=spec.overwrite, groups=False)

    def handle(engine: Engine, number: int | None) -> HandleProtocol[Engine]:
        first = engine, number
        return array_handle(chosen, place.store, inner, engine.options, first=first)

    there = creation.Destination(place.store, inner, place.path, clear, handle)
    return create_array(chosen, there, spec, items)
