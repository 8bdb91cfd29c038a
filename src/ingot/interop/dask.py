"""Dask: arrays and tables as collections of Dask, and back by one commit.

Dask is optional, and imported on first use. Blocks of an array are boxes of whole chunks,
partitions of a table are ranges of rows, cut at chunks. Workers open a dataset by its path. Arrays
of cubed are stored by the same functions.
"""

import functools
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import api
from ingot.containers import staged
from ingot.containers.array import Array
from ingot.containers.create import ArraySpec, StagedChunks
from ingot.containers.resolve import NewDataset, remove_existing, resolve_new, with_settings
from ingot.containers.staged import ExistingTarget, NewTarget, Target
from ingot.containers.table import Table
from ingot.containers.view import ViewSource, parsed
from ingot.conversion.record import remove_folder
from ingot.dtypes import DType
from ingot.errors import ArgumentError, LockedError, NotFoundError, UnsupportedError
from ingot.formats.format import Kind
from ingot.interop import arrow, pandas
from ingot.options import Options, given_options
from ingot.query.expr import Expression
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Delete, Edit, Feature, Move, Store
from ingot.stores.versions import read_versioned, settled_number

__all__ = [
    "array",
    "dataframe",
    "is_dask",
    "stage_together",
    "store",
    "to_ingot",
    "undone",
]

Box: TypeAlias = tuple[slice, ...]

# How often the removal of a temporary folder is tried.
_REMOVALS: Final = 100
# How many arrays a process keeps open of those that it reads blocks of.
_MOST_OPEN: Final = 64
# About how many bytes of a table one partition has.
_PARTITION_BYTES: Final = 64 << 20


def array(
    path: "str | os.PathLike[str] | Store",
    *,
    chunks: Any = "auto",
    options: Options | None = None,
) -> Any:
    """Return an array as one of Dask, whose blocks are boxes of whole chunks, or shards.

    `chunks` is what Dask takes; with "auto", blocks have the size that Dask is configured for. A
    worker opens the array by its path. The name of the result follows from the path and the
    version of the array; if another writer commits, reading raises `LockedError`, so that values
    of two states are never mixed.

    >>> import ingot, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingot.array([[1, 2], [3, 4]], folder.name + "/a.zarr")
    >>> array(folder.name + "/a.zarr").sum().compute()
    np.int64(10)
    >>> folder.cleanup()
    """
    arrays, opened = _dask_arrays(), _open_array(path, options)
    reader = _BlockReader(path, options, opened.shape, opened.dtype, _version(opened))
    unit = opened.shards or opened.chunks
    blocks = arrays.core.normalize_chunks(
        chunks, opened.shape, dtype=opened.dtype, previous_chunks=unit
    )
    name = f"ingot-{_dask().base.tokenize(opened, blocks, options)}"
    meta = np.empty((0,) * opened.ndim, opened.dtype)
    return arrays.from_array(reader, blocks, name=name, asarray=False, inline_array=True, meta=meta)


def dataframe(
    path: "str | os.PathLike[str] | Store",
    *,
    columns: Sequence[str] | None = None,
    where: str | Expression | None = None,
    partition_bytes: int = _PARTITION_BYTES,
    options: Options | None = None,
) -> Any:
    """Return a table as a data frame of Dask; its index has the numbers of the rows.

    A partition is a range of rows of about `partition_bytes`, cut at chunks. `where` is an
    expression as `Table.where` takes it: ranges that cannot match have no partition. Columns that a
    computation does not need are not read. A worker opens the table by its path, and raises
    `LockedError` if it has fewer rows than before.

    >>> import ingot, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingot.table({"a": range(10), "b": range(10)}, folder.name + "/t.bcolz")
    >>> int(dataframe(folder.name + "/t.bcolz", where="a > 6")["b"].sum().compute())
    24
    >>> folder.cleanup()
    """
    frames = _dask_dataframes()
    source = _source(path, columns, options)
    read = _Partition(path, tuple(source.layout()), parsed(where), options)
    ranges = list(source.windows(read.where, partition_bytes))
    # Bounds of the index; a filter only leaves rows out.
    divisions = [rows.start for rows in ranges] + [rows.stop - 1 for rows in ranges[-1:]]
    empty = read(range(0))
    if not ranges:
        return frames.from_pandas(empty, npartitions=1)
    return frames.from_map(read, ranges, meta=empty, divisions=tuple(divisions))


def store(data: Any, target: "Array | str | os.PathLike[str]", region: Any = None) -> None:
    """Store an array of Dask or cubed in an array that exists, or in a region of it.

    Workers encode and stage chunks; then one commit publishes them. If a task fails, nothing
    changes. A region is slices of step 1. Chunks that it cuts are read and merged: then a commit of
    another writer meanwhile raises `LockedError`, and nothing changes.

    >>> import dask.array, ingot, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = ingot.create(folder.name + "/a.zarr", shape=6, dtype="i8", chunks=2)
    >>> store(dask.array.arange(4, chunks=2), target, slice(1, 5))
    >>> target[...]
    array([0, 0, 1, 2, 3, 0])
    >>> folder.cleanup()
    """
    there = target if isinstance(target, Array) else api.open(target, "r+")
    if not isinstance(there, Array):
        raise UnsupportedError(f"{there!r} is no array")
    there._writable()
    shape = there.shape
    starts = _region_starts(region, shape, data.shape)
    plan = ExistingTarget(there, shape, shape)
    if not staged.is_possible(plan):
        _store_serially(data, there, starts)
        return
    blocks = _Blocks.of(data, plan, starts)
    # Chunks that are cut are merged with those of one version.
    version = None if blocks.replaces() else settled_number(plan.store)
    with staged.announced(plan):
        staged.publish(plan, blocks.stage(), version)


def to_ingot(
    data: Any, path: "str | os.PathLike[str]", *, folder: str | None = None, **as_created: Any
) -> Array | Table:
    """Store a collection of Dask, or an array of cubed, as a dataset; the index is not stored.

    An array becomes what `ingot.array` makes, and takes its arguments. Without `chunks`, its chunks
    divide the blocks of the collection. Workers encode and stage chunks, then one commit publishes
    them. A data frame becomes a table and takes what `ingot.table` takes. Workers write a part for
    each partition, to a temporary folder beside the table or in `folder`, which all workers must
    see. Then one commit makes a table of the parts. If a task fails, there is no dataset.

    >>> import dask.array, pandas, tempfile
    >>> import dask.dataframe as dd
    >>> folder = tempfile.TemporaryDirectory()
    >>> frame = dd.from_pandas(pandas.DataFrame({"a": range(5)}), npartitions=2)
    >>> to_ingot(frame, folder.name + "/t.bcolz")["a"][:]
    array([0, 1, 2, 3, 4])
    >>> to_ingot(dask.array.ones((4, 6), chunks=(2, 3)), folder.name + "/a.zarr").chunks
    (2, 3)
    >>> folder.cleanup()
    """
    if _is_array(data):
        return _array_to_ingot(data, path, folder, as_created)
    return _frame_to_ingot(data, path, folder, as_created)


def _frame_to_ingot(
    frame: Any, path: Any, folder: str | None, as_table: Mapping[str, Any]
) -> Table:
    with _parts(path, folder) as parts:
        pieces = frame.to_delayed()
        write = _dask().delayed(_write_part)
        places = [str(parts / f"{number}.bcolz") for number in range(len(pieces))]
        _dask().compute(*(write(piece, place) for piece, place in zip(pieces, places, strict=True)))
        return api.table(_PartStream(places), path, **as_table)


def _array_to_ingot(data: Any, path: Any, folder: str | None, as_array: Mapping[str, Any]) -> Array:
    _check_known(data)
    arguments = dict(as_array)
    options = given_options(arguments.get("options"))
    address = with_settings(path, options.storage)
    new = resolve_new(address, arguments.get("format"), Kind.ARRAY, "zarr3")
    if not staged.is_possible(_new_target(new, data, arguments)):
        with _parts(path, folder) as parts:
            return api.array(to_ingot(data, parts / "array.zarr"), path, **arguments)
    if arguments.get("chunks") is None:
        arguments["chunks"] = staged.dividing_chunks(data.chunks, data.dtype.itemsize)
    plan, place = _new_target(new, data, arguments), new.place
    # What is wrong with the place is found before anything is computed.
    overwrite = bool(arguments.get("overwrite"))
    remove_existing(place, place.store, overwrite=overwrite, groups=False)
    with undone(place.store), staged.announced(plan):
        edits = _Blocks.of(data, plan, (0,) * data.ndim).stage()
        return api.array(StagedChunks(data.shape, data.dtype, edits), path, **arguments)


def stage_together(
    parts: Sequence[tuple[Any, Target, Sequence[int]]],
) -> list[tuple[Edit, ...]]:
    """Stage arrays of Dask, each at a place of its target, by one computation.

    Chunks that are cut are merged with the state at hand: the caller sees to it that the state is
    the same when the edits are published.
    """
    blocks = [_Blocks.of(data, plan, starts) for data, plan, starts in parts]
    return [_edits(made) for made in _dask().compute(*(each.staging() for each in blocks))]


@contextmanager
def undone(store: Store) -> Iterator[None]:
    """Remove what was staged in a store if a block fails, and the folder if it was made by it."""
    created = isinstance(store, LocalStore) and not os.path.lexists(store.root)
    try:
        yield
    except BaseException:
        if isinstance(store, LocalStore):
            store.recover()
            if created:
                remove_folder(store.root)
        raise


def _new_target(new: NewDataset, data: Any, arguments: Mapping[str, Any]) -> NewTarget:
    spec, _ = ArraySpec.of_data(StagedChunks(data.shape, data.dtype, ()), arguments)
    place, format, inner = new
    options = spec.options or Options()
    schema = spec.schema(format, remote=Feature.REMOTE in place.store.features)
    return NewTarget(format, place.store, inner, schema, spec.layout, options)


@dataclass(frozen=True, slots=True)
class _BlockReader:
    """Reads boxes of one version of an array; pickled by the path."""

    path: Any
    options: Options | None
    shape: tuple[int, ...]
    dtype: DType
    version: int | None

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        array = _opened_before(self.path, self.options)
        values = np.asarray(array[key])
        # Numbers of versions are never used twice: the version now was that of the read.
        if (_version(array), array.shape, array.dtype) != (self.version, self.shape, self.dtype):
            raise LockedError(
                f"{self.path}: another writer has committed since the array of Dask was made; "
                "make it again"
            )
        return values


@dataclass(frozen=True, slots=True)
class _Blocks:
    """An array of Dask or cubed in blocks of whole chunks of a target, and where each begins."""

    data: Any
    plan: Target
    bounds: tuple[tuple[int, ...], ...]
    """The starts of the blocks of each axis in the target, and the end of the last one."""

    @classmethod
    def of(cls, data: Any, plan: Target, starts: Sequence[int]) -> "_Blocks":
        """Return the blocks of an array that goes to a place of a target, rechunked if needed."""
        chunks = staged.aligned(plan, starts, data.chunks)
        if chunks != data.chunks:
            # cubed has blocks of one shape.
            data = data.rechunk(chunks if is_dask(data) else tuple(axis[0] for axis in chunks))
            if staged.aligned(plan, starts, data.chunks) != data.chunks:
                raise UnsupportedError(
                    f"blocks {data.chunksize} from {tuple(starts)} on cut chunks of the target: "
                    "two tasks would write one chunk"
                )
        bounds = (
            tuple(itertools.accumulate(axis, initial=start))
            for start, axis in zip(starts, data.chunks, strict=True)
        )
        return cls(data, plan, tuple(bounds))

    def replaces(self) -> bool:
        """Return whether every block is made of whole chunks of the target."""
        pairs = [list(itertools.pairwise(axis)) for axis in self.bounds]
        boxes = (tuple(itertools.starmap(slice, box)) for box in itertools.product(*pairs))
        return all(staged.replaces(self.plan, box) for box in boxes)

    def stage(self) -> tuple[Edit, ...]:
        """Have all blocks staged, and return the edits that publish them."""
        if is_dask(self.data):
            return _edits(self.staging().compute())
        with _parts(self.plan.store.location, None) as records:
            import cubed

            task = _RecordingTask(_StageTask(self.plan, self.bounds), str(records))
            cubed.map_blocks(task, self.data, dtype=np.int8, chunks=self._ones()).compute()
            return tuple(_read_records(records))

    def staging(self) -> Any:
        """Return an array of Dask that is computed by staging all blocks; its items are edits."""
        task = _StageTask(self.plan, self.bounds)
        meta = np.empty((0,) * self.data.ndim, object)
        return self.data.map_blocks(task, chunks=self._ones(), dtype=object, meta=meta)

    def _ones(self) -> tuple[tuple[int, ...], ...]:
        return tuple((1,) * len(axis) for axis in self.data.chunks)


def _edits(made: Any) -> tuple[Edit, ...]:
    return tuple(itertools.chain.from_iterable(np.asarray(made, object).flat))


@dataclass(frozen=True, slots=True)
class _StageTask:
    """Stages one block, and returns the edits that publish it as an array of one item."""

    plan: Target
    bounds: tuple[tuple[int, ...], ...]

    def __call__(self, block: NDArray[Any], block_id: tuple[int, ...] = ()) -> NDArray[Any]:
        made = np.empty((1,) * block.ndim, object)
        made[(0,) * block.ndim] = self.edits(block, block_id)
        return made

    def edits(self, block: NDArray[Any], block_id: tuple[int, ...]) -> tuple[Edit, ...]:
        """Stage a block and return the edits."""
        numbers = zip(self.bounds, block_id, strict=True)
        key = tuple(slice(axis[number], axis[number + 1]) for axis, number in numbers)
        return staged.stage(self.plan, key, block)


@dataclass(frozen=True, slots=True)
class _RecordingTask:
    """Stages one block, and writes the edits to a file: cubed passes on nothing but numbers.

    Of a task that runs twice, the file of the last run is read, as a whole.
    """

    task: _StageTask
    folder: str

    def __call__(self, block: NDArray[Any], block_id: tuple[int, ...] = ()) -> NDArray[np.int8]:
        edits = self.task.edits(block, block_id)
        record = [{"kind": type(edit).__name__, **asdict(edit)} for edit in edits]
        place = os.path.join(self.folder, "-".join(map(str, ("block", *block_id))))
        with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
            json.dump(record, file)
        os.replace(file.name, f"{place}.json")
        return np.zeros((1,) * block.ndim, np.int8)


def _read_records(folder: Path) -> Iterator[Edit]:
    kinds: dict[str, Callable[..., Edit]] = {"Move": Move, "Delete": Delete}
    for path in folder.glob("*.json"):
        for edit in json.loads(path.read_text()):
            yield kinds[edit.pop("kind")](**edit)


def _store_serially(data: Any, target: Array, starts: tuple[int, ...]) -> None:
    """Store an array where chunks are no files: compute it to a temporary array, then copy it."""
    with _parts(target.path, None) as parts:
        found = to_ingot(data, parts / "array.zarr")
        assert isinstance(found, Array)
        with target.transaction():
            for key, block in found.blocks():
                target[_moved(key, starts)] = block


def _moved(key: Box, starts: Sequence[int]) -> Box:
    """Return a box that is moved along each axis."""
    pairs = zip(key, starts, strict=True)
    return tuple(slice(each.start + start, each.stop + start) for each, start in pairs)


def _region_starts(region: Any, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return where a region of an array begins; it has to have the wanted shape."""
    given = () if region is None else region if isinstance(region, tuple) else (region,)
    key = (*given, *(slice(None),) * (len(shape) - len(given)))
    if len(key) != len(shape) or not all(isinstance(each, slice) for each in key):
        raise ArgumentError(f"region {region!r}: one slice is needed for each of {len(shape)} axes")
    ranges = [range(length)[each] for each, length in zip(key, shape, strict=True)]
    if any(each.step != 1 for each in ranges):
        raise ArgumentError(f"region {region!r}: slices of step 1 are needed")
    if tuple(map(len, ranges)) != tuple(wanted):
        raise ArgumentError(
            f"region {region!r} of {shape} has shape {tuple(map(len, ranges))}, the array {wanted}"
        )
    return tuple(each.start for each in ranges)


@contextmanager
def _parts(path: Any, folder: str | None) -> Iterator[Path]:
    """Give a temporary folder beside a path, or in a folder, that workers write to."""
    local = isinstance(path, str | os.PathLike) and "://" not in os.fspath(path)
    near = os.path.dirname(os.path.abspath(path)) if folder is None and local else folder
    parts = Path(tempfile.mkdtemp(prefix=".parts-", dir=near))
    try:
        yield parts
    finally:
        # When a task has failed, others may still be running, and write to the folder.
        for _ in range(_REMOVALS):
            shutil.rmtree(parts, ignore_errors=True)
            if not parts.exists():
                break
            time.sleep(0.02)


def _check_known(data: Any) -> None:
    if any(length != length for axis in data.chunks for length in axis):
        raise UnsupportedError(
            "the array of Dask does not know the lengths of its blocks: call compute_chunk_sizes()"
        )


def _open_array(path: Any, options: Options | None) -> Array:
    opened = api.open(path, options=options)
    if not isinstance(opened, Array):
        raise UnsupportedError(f"{opened!r} is no array")
    return opened


# An open array follows the commits of other writers by itself.
_opened_before: Final = functools.lru_cache(maxsize=_MOST_OPEN)(_open_array)


def _version(opened: Array) -> int | None:
    """Return the number of the committed version; None where no writer has counted versions."""
    return read_versioned(opened._handle.store, lambda view: None)[1]


def is_dask(data: Any) -> bool:
    """Return whether data is a collection of Dask."""
    return hasattr(data, "__dask_graph__")


def _is_array(data: Any) -> bool:
    """Return whether data is an array of Dask or cubed: both have chunks, data frames do not."""
    return hasattr(data, "chunks") and hasattr(data, "map_blocks" if is_dask(data) else "plan")


@dataclass(frozen=True, slots=True)
class _Partition:
    """Reads a range of rows of a table; pickled by the path, and told the columns by Dask."""

    path: Any
    names: tuple[str, ...]
    where: Expression | None
    options: Options | None

    def __call__(self, rows: range, columns: Sequence[str] | None = None) -> Any:
        names = self.names if columns is None else tuple(columns)
        found = _source(self.path, None, self.options).read_rows(names, self.where, rows)
        if found is None:
            raise LockedError(f"{self.path}: the table has fewer than {rows.stop} rows by now")
        numbers, values = found
        return pandas.frame(values, len(numbers), numbers, with_index=False)


class _PartStream:
    """The rows of many tables, one table after the other, as a stream of Arrow."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = places

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        sources = [_source(place, None, None) for place in self._places]
        schema = arrow.requested(arrow.schema(sources[0].layout()), requested_schema)
        return arrow.stream_capsule(arrow.reader(schema, self._batches(sources, schema)))

    def _batches(self, sources: Sequence[ViewSource], schema: Any) -> Iterator[Any]:
        for source in sources:
            rows = source.read_batches(schema.names, None, batch_rows=arrow.BATCH_ROWS)
            yield from (arrow.batch(columns, schema) for columns in rows)


def _write_part(frame: Any, place: str) -> None:
    """Store one partition; a crash of the machine ends the computation anyway."""
    if not os.path.isdir(os.path.dirname(place)):
        raise NotFoundError(f"{place}: another partition has failed")
    api.table(frame.reset_index(drop=True), place, options=Options(durability="process"))


def _source(path: Any, columns: Sequence[str] | None, options: Options | None) -> ViewSource:
    table = api.open(path, options=options)
    if not isinstance(table, Table) or not table.names:
        raise UnsupportedError(f"{table!r} is no table with columns")
    return ViewSource(table[list(table.names if columns is None else columns)])


def _dask() -> Any:
    try:
        import dask
    except ImportError:
        raise UnsupportedError("dask is not installed: pip install dask[dataframe]") from None
    return dask


def _dask_arrays() -> Any:
    _dask()
    try:
        import dask.array
    except ImportError as error:
        raise UnsupportedError(f"arrays of dask cannot be used: {error}") from None
    return dask.array


def _dask_dataframes() -> Any:
    _dask()
    try:
        import dask.dataframe
    except ImportError as error:
        raise UnsupportedError(f"data frames of dask cannot be used: {error}") from None
    return dask.dataframe
