"""Dask: a table as a data frame of many partitions, and back by one commit.

Dask is optional, and imported on first use. Partitions are ranges of rows, cut at chunks; workers
open the table by its path.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ingot import api
from ingot.containers.table import Table
from ingot.containers.view import ViewSource, parsed
from ingot.errors import LockedError, UnsupportedError
from ingot.interop import arrow, pandas
from ingot.options import Options
from ingot.query.expr import Expression
from ingot.stores.store import Store

__all__ = ["dataframe", "to_ingot"]

# About how many bytes of a table one partition has.
_PARTITION_BYTES: Final = 64 << 20


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


def to_ingot(
    frame: Any, path: "str | os.PathLike[str]", *, folder: str | None = None, **as_table: Any
) -> Table:
    """Store a data frame of Dask as a table; the index is not stored.

    Workers write a part for each partition, to a temporary folder beside the table or in `folder`,
    which all workers must see. Then one commit makes a table of the parts, which takes what
    `ingot.table` takes. If a part fails, there is no table.

    >>> import ingot, pandas, tempfile
    >>> import dask.dataframe as dd
    >>> folder = tempfile.TemporaryDirectory()
    >>> frame = dd.from_pandas(pandas.DataFrame({"a": range(5)}), npartitions=2)
    >>> to_ingot(frame, folder.name + "/t.bcolz")["a"][:]
    array([0, 1, 2, 3, 4])
    >>> folder.cleanup()
    """
    dask = _dask()
    near = os.path.dirname(os.path.abspath(path)) if folder is None else folder
    parts = Path(tempfile.mkdtemp(prefix=".parts-", dir=near))
    try:
        pieces = frame.to_delayed()
        write = dask.delayed(_write_part)
        places = [str(parts / f"{number}.bcolz") for number in range(len(pieces))]
        dask.compute(*(write(piece, place) for piece, place in zip(pieces, places, strict=True)))
        return api.table(_PartStream(places), path, **as_table)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


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
        made = pandas.frame(values, len(numbers))
        made.index = np.asarray(numbers, np.int64)
        return made


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


def _dask_dataframes() -> Any:
    _dask()
    try:
        import dask.dataframe
    except ImportError as error:
        raise UnsupportedError(f"data frames of dask cannot be used: {error}") from None
    return dask.dataframe
