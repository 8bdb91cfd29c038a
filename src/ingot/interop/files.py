"""Files of other programs: datasets exported to npy, npz, CSV, JSON lines, Parquet and Arrow, and
imported from them.

The suffix of the file decides. A file that is exported appears under its name when it is whole.
"""

import csv
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import api
from ingot.containers.array import Array
from ingot.containers.group import Group
from ingot.containers.json_values import to_json
from ingot.containers.ragged import Ragged
from ingot.containers.table import Table
from ingot.dtypes import is_variable
from ingot.errors import ExistsError, FormatError, IngotError, UnsupportedError
from ingot.interop import arrow
from ingot.stores.local.new_file import new_file

__all__ = ["SUFFIXES", "export_file", "import_file"]

SUFFIXES: Final = (".npy", ".npz", ".csv", ".jsonl", ".parquet", ".arrow")
"""The suffixes of files that can be exported and imported."""

_WINDOW: Final = 16 << 20
"""The bytes of an array that are held in memory at a time."""
_ROWS: Final = 65_536
_VALUE: Final = "value"
"""The name of the only column of an array or of items in a file that holds tables."""


def export_file(dataset: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a dataset to a file, in the format that the suffix names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_file(api.array([[1, 2], [3, 4]]), f"{folder}/a.csv")
    ...     print(Path(f"{folder}/a.csv").read_text().split())
    ['1,2', '3,4']
    """
    write = _WRITERS[_suffix(path)]
    if os.path.lexists(path) and (os.path.isdir(path) or not overwrite):
        hint = "" if os.path.isdir(path) else "; overwrite=True replaces it"
        raise ExistsError(f"{os.fspath(path)}: it exists already{hint}")
    with new_file(path) as new:
        with open(new.descriptor, "r+b", closefd=False) as file:
            write(dataset, file)
        new.publish(overwrite=overwrite)


def import_file(
    source: str | os.PathLike[str], path: str | os.PathLike[str], **layout: Any
) -> "Array | Table | Ragged | Group":
    """Create a dataset from a file; `layout` is what `ingot.array` and `ingot.table` take.

    An npy file becomes an array, or a table if its items are structures. An npz file becomes an
    array if it has one, a table if it has several of one length, or else a group. The lines of a
    JSON file are rows of a table if they are objects, else items of an array or of text. The other
    files become tables.
    """
    made: Array | Table | Ragged | Group = _READERS[_suffix(source)](Path(source), path, layout)
    return made


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in SUFFIXES:
        known = " ".join(SUFFIXES)
        raise UnsupportedError(f"{os.fspath(path)}: the suffix is none of {known}")
    return suffix


# Export


def _write_npy(dataset: Any, file: IO[bytes]) -> None:
    if isinstance(dataset, Table):
        np.lib.format.write_array(file, _plain(dataset.to_numpy(), "rows"), allow_pickle=False)
        return
    if not isinstance(dataset, Array):
        raise UnsupportedError(f"an npy file holds an array, and this is a {_kind(dataset)}")
    _write_array(dataset, file)


def _write_array(array: Array, file: IO[bytes]) -> None:
    """Write an array window by window, so that it need not fit into memory."""
    _check_plain(array.dtype, "the items")
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_2_0(file, header)
    for block in _windows(array):
        file.write(np.ascontiguousarray(block).data.cast("B") if block.size else b"")


def _windows(array: Array) -> Iterator[NDArray[Any]]:
    """Yield the array in runs of whole chunks along the first axis."""
    if not array.ndim:
        yield np.asarray(array[...])
        return
    row = max(1, array.nbytes // max(1, array.shape[0]))
    step = max(1, _WINDOW // row // array.chunks[0]) * array.chunks[0]
    with array.snapshot():
        for start in range(0, array.shape[0], step):
            yield array[start : start + step]


def _write_npz(dataset: Any, file: IO[bytes]) -> None:
    np.savez_compressed(file, allow_pickle=False, **_named_arrays(dataset))


def _named_arrays(dataset: Any) -> dict[str, NDArray[Any]]:
    if isinstance(dataset, Array):
        return {_VALUE: _plain(dataset.to_numpy(), "the items")}
    if isinstance(dataset, Table):
        with dataset.snapshot():
            found = _columns(dataset, slice(None))
        return {name: _plain(values, name) for name, values in found.items()}
    if isinstance(dataset, Group):
        arrays = {name: dataset[name] for name in dataset}
        return {
            name: _plain(each.to_numpy(), name)
            for name, each in arrays.items()
            if isinstance(each, Array)
        }
    raise UnsupportedError(f"an npz file holds arrays, and this is a {_kind(dataset)}")


def _columns(table: Table, rows: slice) -> dict[str, Any]:
    """Return rows of all columns, those of nested tables as "a.b"."""

    def leaves(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
        for name, values in found.items():
            if isinstance(values, Mapping):
                yield from leaves(values, f"{above}{name}.")
            else:
                yield above + name, values

    return dict(leaves(table.read(rows=rows)))


def _plain(values: Any, name: str) -> NDArray[Any]:
    """Return values as an array that a file of NumPy can hold."""
    if np.ma.is_masked(values):
        raise UnsupportedError(f"{name}: a file of NumPy has no nulls")
    array = np.asarray(values)
    _check_plain(array.dtype, name)
    return array


def _check_plain(dtype: Any, name: str) -> None:
    if is_variable(dtype):
        raise UnsupportedError(
            f"{name}: a file of NumPy has no items of variable length; .parquet and .jsonl do"
        )


def _write_csv(dataset: Any, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    for row in _rows(dataset, header=True):
        writer.writerow(["" if each is None else each for each in row])
    text.flush()
    text.detach()


def _rows(dataset: Any, *, header: bool) -> Iterator[list[Any]]:
    """Yield rows for CSV: of a table under its names, of an array with one or two axes."""
    if isinstance(dataset, Table):
        with dataset.snapshot():
            for number, start in enumerate(range(0, max(1, len(dataset)), _ROWS)):
                found = _columns(dataset, slice(start, start + _ROWS))
                if header and not number:
                    yield list(found)
                yield from zip(*(_cells(values) for values in found.values()), strict=True)
    elif isinstance(dataset, Array) and dataset.ndim in (1, 2):
        for block in _windows(dataset):
            cells = (_cells(row if block.ndim == 2 else [row]) for row in block)
            yield from cells
    elif isinstance(dataset, Ragged):
        yield from ([_cell(item)] for item in dataset)
    else:
        raise UnsupportedError("a CSV file holds a table, or an array with one or two axes")


def _cells(values: Any) -> list[Any]:
    return [_cell(value) for value in values]


def _cell(value: Any) -> Any:
    """Return an item as a field of CSV; floats keep all their digits."""
    if isinstance(value, float | np.floating):
        return "nan" if math.isnan(value) else str(value)
    found = to_json(value)
    return json.dumps(found) if isinstance(found, list | dict | bool) else found


def _write_json_lines(dataset: Any, file: IO[bytes]) -> None:
    for line in _lines(dataset):
        file.write(json.dumps(to_json(line), ensure_ascii=False, allow_nan=False).encode())
        file.write(b"\n")


def _lines(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, Table):
        with dataset.snapshot():
            for start in range(0, len(dataset), _ROWS):
                found = _columns(dataset, slice(start, start + _ROWS))
                for row in zip(*found.values(), strict=True):
                    yield dict(zip(found, row, strict=True))
    elif isinstance(dataset, Array) and dataset.ndim:
        for block in _windows(dataset):
            yield from block
    elif isinstance(dataset, Ragged):
        yield from dataset
    else:
        raise UnsupportedError(f"JSON lines hold rows or items, and this is a {_kind(dataset)}")


def _write_arrow(dataset: Any, file: IO[bytes]) -> None:
    arrow.write_file(_stream(dataset), file)


def _write_parquet(dataset: Any, file: IO[bytes]) -> None:
    arrow.write_parquet(_stream(dataset), file)


def _stream(dataset: Any) -> Any:
    """Return what streams Arrow batches: a table, or a column of its own."""
    if isinstance(dataset, Table):
        return dataset
    if isinstance(dataset, Ragged):
        return arrow.named_column(_VALUE, dataset.to_arrow())
    if isinstance(dataset, Array) and dataset.ndim:
        return arrow.table({_VALUE: dataset.to_numpy()})
    raise UnsupportedError(f"such a file holds a table, and this is a {_kind(dataset)}")


def _kind(dataset: Any) -> str:
    return {Array: "array", Table: "table", Ragged: "sequence of items"}.get(type(dataset), "group")


_WRITERS: Final[Mapping[str, Callable[[Any, IO[bytes]], None]]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
    ".arrow": _write_arrow,
}


# Import


def _read_npy(source: Path, path: Any, layout: dict[str, Any]) -> Any:
    with _reading(source):
        values = np.load(source, mmap_mode="r", allow_pickle=False)
    return _stored(values, path, layout)


def _stored(values: NDArray[Any], path: Any, layout: dict[str, Any]) -> Any:
    if values.dtype.names is not None and values.ndim == 1:
        return api.table(np.asarray(values), path, **layout)
    return api.array(values, path, **layout)


def _read_npz(source: Path, path: Any, layout: dict[str, Any]) -> Any:
    with _reading(source), np.load(source, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive.files}
    if len(found) == 1:
        return _stored(next(iter(found.values())), path, layout)
    if len({values.shape[:1] for values in found.values()}) == 1 and all(
        values.ndim for values in found.values()
    ):
        return api.table(_nested(found), path, **layout)
    own = {name: layout.pop(name) for name in ("format", "overwrite") if name in layout}
    group = api.group(path, **own)
    with group.transaction():
        for name, values in found.items():
            group.array(name, values, **layout)
    return group


def _nested(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns with those named "a.b" as columns of nested tables."""
    nested: dict[str, Any] = {}
    for name, values in columns.items():
        above, dot, last = name.rpartition(".")
        place = nested
        for part in above.split(".") if dot else ():
            place = place.setdefault(part, {})
        place[last] = values
    return nested


def _read_csv(source: Path, path: Any, layout: dict[str, Any]) -> Any:
    with _reading(source):
        return api.table(arrow.read_csv(source), path, **layout)


def _read_json_lines(source: Path, path: Any, layout: dict[str, Any]) -> Any:
    with _reading(source), open(source, "rb") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    if lines and all(isinstance(line, dict) for line in lines):
        names = list(dict.fromkeys(name for line in lines for name in line))
        columns = {name: [line.get(name) for line in lines] for name in names}
        return api.table(arrow.from_lists(columns), path, **layout)
    if any(line is None or isinstance(line, str | dict) for line in lines):
        return api.ragged(lines, path, **layout)
    return api.array(np.array(lines), path, **layout)


def _read_arrow(source: Path, path: Any, layout: dict[str, Any]) -> Any:
    with _reading(source):
        return api.table(arrow.read_file(source), path, **layout)


def _read_parquet(source: Path, path: Any, layout: dict[str, Any]) -> Any:
    with _reading(source):
        return api.table(arrow.read_parquet(source), path, **layout)


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    """Let errors of other libraries while a file is read name the file, and be ours."""
    if not source.is_file():
        os.stat(source)  # A missing file is an error that names it.
        raise FormatError(f"{source}: it is no file")
    try:
        yield
    except IngotError:
        raise
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        text = " ".join(str(error).split())
        raise FormatError(f"{source}: it cannot be read: {text}") from error


_READERS: Final[Mapping[str, Callable[[Path, Any, dict[str, Any]], Any]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}
