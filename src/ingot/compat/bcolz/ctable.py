"""The ctable: columns of one length, in memory or in a folder.

A table on disk is an `ingot.Table` of format bcolz: rows that are appended become visible in all
columns at once, or in none. The columns of a table in memory are carrays of their own.
"""

import os
import re
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from keyword import iskeyword
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import api
from ingot.compat.bcolz.arrayprint import array2string, human_readable_size
from ingot.compat.bcolz.attrs import attrs as attributes
from ingot.compat.bcolz.carray_ext import as_column, carray
from ingot.compat.bcolz.chunked_eval import evaluated
from ingot.compat.bcolz.conversion import to_ndarray
from ingot.compat.bcolz.defaults import cparams as parameters
from ingot.compat.bcolz.defaults import defaults, options, stages
from ingot.compat.bcolz.expressions import BoundExpression, Names, bound
from ingot.containers.decoded_column import DecodedColumn
from ingot.containers.table import Table
from ingot.interop import hdf5, pandas
from ingot.native import iterators

__all__ = ["ROOTDIRS", "cols", "ctable", "row_blocks"]

ROOTDIRS: Final = "__rootdirs__"
"""The file that makes a folder a table."""

_IDENTIFIER: Final = re.compile(r"^[^\d\W]\w*$", re.UNICODE)
_SEPARATORS: Final = re.compile(r"^\s+|\s*,\s*|\s+$")
# How much of a table on disk is in memory while it is created or copied.
_GROUP_BYTES: Final = 32 << 20
# The types of columns that take any integer of 64 bits, and the integers.
_TAKE_INTEGERS: Final = ("l", "d")
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
# Rows that are numbered at a time where nothing but their numbers is asked for.
_NUMBERED_ROWS: Final = 1 << 17


class cols:
    """The columns of a table, by name."""

    def __init__(self, owner: "ctable") -> None:
        self._owner = owner
        self.names: list[str] = []
        self._cols: dict[str, carray] = {}

    def __getitem__(self, name: str) -> carray:
        return self._cols[name]

    def __setitem__(self, name: str, column: Any) -> None:
        if self.names and len(column) != len(self._cols[self.names[0]]):
            raise ValueError("new column length is inconsistent with ctable")
        known = self._cols.get(name)
        if known is not None and (self._owner.rootdir or not isinstance(column, carray)):
            known[:] = _column_values(column, known)
            return
        if known is None:
            self._owner.addcol(column, name)
        else:
            self._cols[name] = column

    def __iter__(self) -> Iterator[str]:
        return iter(self._cols)

    def __len__(self) -> int:
        return len(self.names)

    def insert(self, name: str, pos: int, column: carray) -> None:
        """Insert a column of a table in memory."""
        self.names.insert(pos, name)
        self._cols[name] = column

    def pop(self, name: str) -> carray:
        """Remove a column of a table in memory, and return it."""
        self.names.remove(name)
        return self._cols.pop(name)

    def __str__(self) -> str:
        return "".join(f"{name} : {self._cols[name]!s}" for name in self.names)

    def __repr__(self) -> str:
        return "".join(f"{name} : {self._cols[name]!r}\n" for name in self.names)


class ctable:
    """A table of compressed columns, in memory or on disk.

    `columns` is a list of carrays, arrays or sequences, or a structured array. Other arguments are
    those of the carrays; `rootdir` is the folder of a table on disk, which is opened when no
    columns are given.

    >>> table = ctable([[1, 2, 3], [1.5, 2.5, 3.5]], names=["a", "b"])
    >>> table.append([4, 4.5])
    >>> [row.b for row in table.where("a > 2")]
    [3.5, 4.5]
    """

    def __init__(self, columns: Any = None, names: Any = None, **kwargs: Any) -> None:
        self._cparams = kwargs.get("cparams") or parameters()
        rootdir = kwargs.get("rootdir")
        self.rootdir: str | None = None if rootdir is None else os.fspath(rootdir)
        automatic = kwargs.pop("auto_flush", True)
        self.auto_flush: bool = automatic if self.rootdir is not None else False
        if self.rootdir is None and columns is None:
            raise ValueError(
                "You should pass either a `columns` or a `rootdir` param at very least"
            )
        exists = self.rootdir is not None and os.path.exists(self.rootdir)
        self.mode: str = kwargs.setdefault("mode", "a" if exists else "w")
        if exists and columns is not None and self.mode == "a":
            raise ValueError(
                "You cannot pass a `columns` param in 'a'ppend mode.\n"
                "(If you are trying to create a new ctable, perhaps the "
                "directory exists already.)"
            )
        self._table: Table | None = None
        self.cols = cols(self)
        self.len = 0
        if self.mode in ("r", "a") and (columns is None or exists):
            self._open()
        elif columns is not None:
            self._create(columns, names, **kwargs)
        else:
            raise ValueError("You cannot open a ctable in 'w'rite mode without a `columns` param")
        if self.auto_flush:
            self.flush()
        stored = None if self._table is None else self._table.attrs
        self.attrs = attributes(self.rootdir, self.mode, stored)

    # Creating and opening ------------------------------------------------------------------------

    def _create(self, columns: Any, names: Any, **kwargs: Any) -> None:
        names = _names_of(columns, names)
        kwargs.pop("rootdir", None)
        kwargs.pop("mode")
        given = _columns_of(columns, names)
        if self.rootdir is not None:
            self._create_on_disk(names, given, kwargs)
            return
        made = [
            each if isinstance(each, carray) and _all_carrays(columns) else carray(each, **kwargs)
            for each in given
        ]
        if len({len(each) for each in made}) > 1:
            raise ValueError("all `columns` must have the same length")
        for name, column in zip(names, made, strict=True):
            self.cols.insert(name, len(self.cols.names), column)
        self.len = len(made[0]) if made else -1

    def _create_on_disk(
        self, names: list[str], given: list[Any], kwargs: Mapping[str, Any]
    ) -> None:
        assert self.rootdir is not None
        # Empty carrays say what types, chunks and parameters the columns get.
        samples = [_sample(each, kwargs) for each in given]
        lengths = {len(each) for each in given}
        if len(lengths) > 1:
            raise ValueError("all `columns` must have the same length")
        rows = lengths.pop() if lengths else 0
        if os.path.isfile(self.rootdir):
            os.remove(self.rootdir)
        size = sum(each.atomsize for each in samples) * rows
        step = rows if size <= _GROUP_BYTES else max(1, rows * _GROUP_BYTES // size)
        shapes = dict(zip(names, samples, strict=True))
        first = {
            name: _part(each, shapes[name], 0, step)
            for name, each in zip(names, given, strict=True)
        }
        self._table = api.table(
            first,
            self.rootdir,
            format="bcolz",
            codec={
                name: stages(each.cparams, each.dtype, each.chunklen * each.atomsize)
                for name, each in shapes.items()
            },
            chunks={name: each.chunklen for name, each in shapes.items()},
            fill={name: each.dflt[()] for name, each in shapes.items() if each.dtype.kind != "O"},
            overwrite=True,
            options=options(allow_pickle=True),
        )
        for start in range(step, rows, max(1, step)):
            self._table.append(
                {
                    name: _part(each, shapes[name], start, start + step)
                    for name, each in zip(names, given, strict=True)
                }
            )
        self._adopt()

    def _open(self) -> None:
        assert self.rootdir is not None
        if self.mode == "r" and not os.path.exists(self.rootdir):
            raise KeyError(
                "Disk-based ctable opened with `r`ead mode "
                f"yet `rootdir='{self.rootdir}'` does not exist"
            )
        found = api.open(self.rootdir, "r" if self.mode == "r" else "r+", options=options())
        if not isinstance(found, Table) or found.format != "bcolz":
            raise OSError(f"{self.rootdir}: no ctable, but a {type(found).__name__}")
        self._table = found
        self._adopt()
        if self.cols.names:
            self._cparams = self.cols[self.cols.names[0]].cparams

    def _adopt(self) -> None:
        """Take over the columns of a stored table; those that are known stay the same objects."""
        assert self._table is not None
        assert self.rootdir is not None
        known = self.cols._cols
        self.cols.names = list(self._table.names)
        self.cols._cols = {
            name: known[name] if name in known else self._column(name) for name in self.cols.names
        }
        for each in self.cols._cols.values():
            each.stored_by_table()
        self.len = len(self._table)

    def _column(self, name: str) -> carray:
        assert self._table is not None
        assert self.rootdir is not None
        column = self._table[name]
        # bcolz knows neither categories nor decimals, and sees the integers that are stored.
        stored = column.stored if isinstance(column, DecodedColumn) else column
        return carray.of_column(stored, self, os.path.join(self.rootdir, name), self.mode)

    # What it is ----------------------------------------------------------------------------------

    @property
    def cbytes(self) -> int:
        """The compressed size in bytes."""
        return sum(self.cols[name].cbytes for name in self.names)

    @property
    def cparams(self) -> parameters:
        """The parameters of compression."""
        return self._cparams

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a row."""
        return self._dtype_of(self.names)

    def _dtype_of(self, names: Iterable[str]) -> np.dtype[Any]:
        return np.dtype(
            [
                (name, np.int_) if name == "nrow__" else _field(name, self.cols[name])
                for name in names
            ]
        )

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.cols.names

    @property
    def nbytes(self) -> int:
        """The uncompressed size in bytes."""
        return sum(self.cols[name].nbytes for name in self.names)

    @property
    def ndim(self) -> int:
        """The number of axes, 1."""
        return len(self.shape)

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (self.len,)

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.len

    def __sizeof__(self) -> int:
        return self.cbytes

    # Changing ------------------------------------------------------------------------------------

    def _writable(self) -> None:
        if self.mode == "r" and self.rootdir is not None:
            raise PermissionError(f"cannot modify data because mode is '{self.mode}'")

    def append(self, cols: Any) -> None:
        """Append rows: a list of values or arrays, one for each column, a structured array, a row
        of one, or another ctable."""
        if self._table is None and type(cols) in (tuple, list) and self._append_values(cols):
            return
        self._writable()
        given = self._given(cols)
        columns = [self.cols[name] for name in self.names]
        rows = [
            _rows_of(value, column, scalars=given[1])
            for value, column in zip(given[0], columns, strict=True)
        ]
        counts = {len(each) for each in rows}
        if len(counts) > 1:
            raise ValueError("all cols in `cols` must have the same length")
        if self._table is not None and self.auto_flush and not columns[0].waiting().size:
            self._table.append(dict(zip(self.names, rows, strict=True)))
            for column in columns:
                column.stored_by_table()
            self.len = len(self._table)
            self.flush()
            return
        for column, each in zip(columns, rows, strict=True):
            column.append(each)
        self.len += counts.pop() if counts else 0
        if self.auto_flush or sum(each.waiting().nbytes for each in columns) > _GROUP_BYTES:
            self.flush()

    def _append_values(self, values: Sequence[Any]) -> bool:
        """Append one row of numbers to a table in memory; return whether it was one."""
        known = self.cols._cols
        columns = [known[name] for name in self.cols.names]
        if len(values) != len(columns):
            return False
        for column, value in zip(columns, values, strict=True):
            # Numbers always fit into columns of floats, and integers into those of 64 bits, so
            # that no column gets a value that another one refuses.
            kind, letter = type(value), column.letter
            if kind is float:
                if letter != "d":
                    return False
            elif kind is not int or letter not in _TAKE_INTEGERS or not _LEAST <= value <= _MOST:
                return False
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        self.len += 1
        return True

    def _given(self, given: Any) -> tuple[list[Any], bool]:
        """Return a value for each column, and whether they may be single values."""
        if type(given) in (tuple, list):
            whole = all(isinstance(each, carray) for each in given) or all(
                isinstance(each, np.ndarray) for each in given
            )
            if any(getattr(each, "dtype", None) == np.void for each in given):
                raise ValueError("`cols` elements cannot be of type void")
            return [given[number] for number in range(len(self.names))], not whole
        if isinstance(given, np.void):
            return [given[number] for number in range(len(self.names))], True
        if isinstance(given, np.ndarray) and given.dtype.names is not None:
            return [given[name] for name in self.names], False
        if isinstance(given, ctable):
            return [given[name] for name in self.names], False
        raise ValueError("`cols` input is not supported")

    def trim(self, nitems: Any) -> None:
        """Remove rows from the end."""
        if nitems > self.len:
            raise ValueError("`nitems` must be less than total length")
        self.resize(self.len - int(nitems))

    def resize(self, nitems: Any) -> None:
        """Change the number of rows; new ones hold the `dflt` of their columns."""
        self._writable()
        if self._table is not None:
            if int(nitems) < 0:
                raise ValueError("`nitems` cannot be negative")
            self.flush()
            self._table.resize(int(nitems))
            self._adopt()
            return
        for name in self.names:
            self.cols[name].resize(nitems)
        self.len = int(nitems)

    def addcol(
        self, newcol: Any, name: Any = None, pos: Any = None, move: bool = False, **kwargs: Any
    ) -> None:
        """Add a column, at the end or at a position; `move` removes the folder it came from."""
        self._writable()
        pos = len(self.names) if pos is None else pos
        if pos and type(pos) is not int:
            raise ValueError("`pos` must be an int")
        if not 0 <= pos <= len(self.names):
            raise ValueError("`pos` must be >= 0 and <= len(self.cols)")
        name = f"f{pos}" if name is None else name
        if not isinstance(name, str | bytes):
            raise ValueError("`name` must be a string")
        name = name if isinstance(name, str) else name.decode()
        if name in self.names:
            raise ValueError(f"'{name}' column already exists")
        if self.names and len(newcol) != self.len:
            raise ValueError("`newcol` must have the same length than ctable")
        if not isinstance(newcol, np.ndarray | carray | list | tuple):
            raise ValueError("`newcol` type not supported")
        kwargs.pop("rootdir", None)
        kwargs.pop("mode", None)
        kwargs.setdefault("cparams", self.cparams)
        if self._table is None:
            column = carray(newcol, **kwargs)
            self.cols.insert(name, pos, column)
            self.len = len(column)
            return
        self.flush()
        sample = _sample(newcol, kwargs)
        self._table.add_column(
            name,
            _part(newcol, sample, 0, len(newcol)),
            position=pos,
            chunks=sample.chunklen,
            codec=stages(sample.cparams, sample.dtype, sample.chunklen * sample.atomsize),
            fill=sample.dflt[()],
        )
        if move and isinstance(newcol, carray) and newcol.rootdir is not None:
            shutil.rmtree(newcol.rootdir)
        self._adopt()
        if move and isinstance(newcol, carray) and newcol.rootdir is not None:
            newcol.rootdir = self.cols[name].rootdir
        if self.auto_flush:
            self.flush()

    def delcol(self, name: Any = None, pos: Any = None, keep: bool = False) -> None:
        """Remove a column by its name or its position; `keep` leaves its data on disk."""
        self._writable()
        if name is None and pos is None:
            raise ValueError("specify either a `name` or a `pos`")
        if name is not None and pos is not None:
            raise ValueError("you cannot specify both a `name` and a `pos`")
        if name is not None:
            if not isinstance(name, str):
                raise ValueError("`name` must be a string")
            if name not in self.names:
                raise ValueError("`name` not found in columns")
        else:
            if type(pos) is not int:
                raise ValueError("`pos` must be an int")
            if not 0 <= pos < len(self.names):
                raise ValueError("`pos` must be >= 0 and <= len(self.cols)")
            name = self.names[pos]
        if self._table is None:
            column = self.cols.pop(name)
            if not keep:
                column.purge()
            return
        self.flush()
        column = self.cols[name]
        kept = column.copy(cparams=column.cparams, chunklen=column.chunklen) if keep else None
        self._table.drop_column(name)
        if kept is not None:
            kept.copy(
                rootdir=column.rootdir, cparams=column.cparams, chunklen=column.chunklen, mode="w"
            )
        self._adopt()
        if self.auto_flush:
            self.flush()

    def flush(self) -> None:
        """Store all rows of a table on disk."""
        if self._table is None:
            return
        waiting = {name: self.cols[name].waiting() for name in self.names}
        if len({len(each) for each in waiting.values()}) > 1:
            counts = ", ".join(f"{name} {len(each)}" for name, each in waiting.items())
            raise ValueError(f"columns have got different numbers of new rows: {counts}")
        if any(map(len, waiting.values())):
            self._table.append(waiting)
            self._adopt()

    def free_cachemem(self) -> None:
        """Forget what was decoded."""
        for name in self.names:
            self.cols[name].free_cachemem()

    def copy(self, **kwargs: Any) -> "ctable":
        """Return a copy; the arguments are those of a new ctable."""
        rootdir = kwargs.get("rootdir")
        if rootdir and self.rootdir and rootdir == self.rootdir:
            raise OSError("rootdir cannot be the same during copies")
        names = kwargs.pop("names", self.names)
        columns = [self.cols[name] for name in self.names]
        if not rootdir:
            columns = [each.copy(**kwargs) for each in columns]
        return ctable(columns, list(names), **kwargs)

    # Other libraries -----------------------------------------------------------------------------

    @staticmethod
    def fromdataframe(df: Any, **kwargs: Any) -> "ctable":
        """Return a table of the columns of a data frame of pandas; its index is dropped."""
        names = kwargs.pop("names", None) or list(df.columns.values)
        return ctable([_frame_column(df[name]) for name in names], names, **kwargs)

    def todataframe(self, columns: Any = None, orient: str = "columns") -> Any:
        """Return the table as a data frame of pandas."""
        names = self.names if orient == "index" or columns is None else columns
        data = {name: self[name][:] for name in names}
        return pandas.from_dict(data, columns if orient == "index" else None, orient)

    @staticmethod
    def fromhdf5(filepath: Any, nodepath: str = "/ctable", **kwargs: Any) -> "ctable":
        """Return a table of a PyTables table in an HDF5 file."""
        with hdf5.opened(filepath, nodepath) as found:
            names = kwargs.pop("names", None) or list(found.dtype.names or ())
            kwargs.setdefault("expectedlen", len(found))
            made = ctable([np.zeros(0, found.dtype[name]) for name in names], names, **kwargs)
            for block in found.blocks():
                made.append([block[name] for name in names])
            for name, value in found.attrs.items():
                made.attrs[name] = value
        return made

    def tohdf5(
        self,
        filepath: Any,
        nodepath: str = "/ctable",
        mode: str = "w",
        cparams: Any = None,
        cname: str | None = None,
    ) -> None:
        """Write the table into an HDF5 file, as a table of PyTables."""
        if os.path.exists(filepath):
            raise OSError(f"path '{filepath}' already exists")
        chosen = defaults.check_cparams(defaults.cparams if cparams is None else cparams)
        hdf5.write(
            filepath,
            nodepath,
            self.dtype,
            row_blocks(self),
            mode=mode,
            rows=len(self),
            attrs=self.attrs.getall(),
            compressor=cname or f"blosc:{chosen['cname']}",
            level=chosen["clevel"],
            shuffle=bool(chosen["shuffle"]),
        )

    # Queries -------------------------------------------------------------------------------------

    def _names(self, user_dict: Mapping[str, Any] | None, frame: Any) -> Names:
        """Return where an expression finds its names: columns, given values, the caller's names."""
        return [self.cols._cols, user_dict or {}, frame.f_locals, frame.f_globals]

    def eval(self, expression: Any, **kwargs: Any) -> Any:
        """Return the value of an expression over the columns; see `ingot.compat.bcolz.eval`."""
        names = self._names(kwargs.pop("user_dict", None), sys._getframe(1))
        return evaluated(expression, names, **kwargs)

    def where(
        self,
        expression: Any,
        outcols: Any = None,
        limit: int | None = None,
        skip: int = 0,
        out_flavor: Any = namedtuple,
        user_dict: Mapping[str, Any] | None = None,
        vm: str | None = None,
    ) -> Iterator[Any]:
        """Iterate over the rows for which an expression, or an array of booleans, is true."""
        names = self._check_outcols(outcols)
        blocks = self._matches(expression, self._names(user_dict, sys._getframe(1)), names, vm)
        return self._rows(_cut(blocks, limit, skip), names, out_flavor)

    def fetchwhere(
        self,
        expression: Any,
        outcols: Any = None,
        limit: int | None = None,
        skip: int = 0,
        out_flavor: str | None = None,
        user_dict: Mapping[str, Any] | None = None,
        vm: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the rows for which an expression is true, as a ctable or a structured array."""
        flavor = defaults.out_flavor if out_flavor is None else out_flavor
        if flavor not in ("bcolz", "carray", "numpy"):
            raise ValueError("`out_flavor` can only take 'bcolz' or 'numpy values")
        if outcols is not None and not isinstance(outcols, list | tuple):
            raise ValueError("only a sequence is supported for outcols")
        names = self._check_outcols(outcols)
        blocks = self._matches(expression, self._names(user_dict, sys._getframe(1)), names, vm)
        found = _cut(blocks, limit, skip)
        dtype = self._dtype_of(names)
        if flavor == "numpy":
            parts = [_structured(each, dtype) for each in found]
            return np.concatenate([np.empty(0, dtype), *parts])
        kwargs.setdefault("expectedlen", self.len)
        made = ctable(np.empty(0, dtype), **kwargs)
        for each in found:
            made.append(list(each))
        made.flush()
        return made

    def whereblocks(
        self,
        expression: Any,
        blen: int | None = None,
        outcols: Any = None,
        limit: int | None = None,
        skip: int = 0,
        user_dict: Mapping[str, Any] | None = None,
        vm: str | None = None,
    ) -> Iterator[NDArray[Any]]:
        """Iterate over the rows for which an expression is true, in arrays of `blen` rows."""
        length = blen or min(self.cols[name].chunklen for name in self.cols)
        names = self._check_outcols(outcols)
        blocks = self._matches(expression, self._names(user_dict, sys._getframe(1)), names, vm)
        dtype = self._dtype_of(names)
        found = (_structured(each, dtype) for each in _cut(blocks, limit, skip))
        return _regrouped(found, length)

    def _matches(
        self, expression: Any, names: Names, outcols: Sequence[str], vm: str | None
    ) -> Iterator[list[NDArray[Any]]]:
        """Return an iterator of the columns of matching rows, block by block."""
        if isinstance(expression, str | bytes):
            found = bound(expression, names, vm=vm or defaults.vm)
            if found.dtype != np.bool_:
                raise ValueError("only boolean expressions or arrays are supported")
            if not found.arrays:
                found = BoundExpression(found.expression, {}, self.len)
            masks: Iterable[tuple[int, int, NDArray[np.bool_]]] = found.masks()
        elif getattr(getattr(expression, "dtype", None), "kind", "") == "b":
            found = BoundExpression(_TRUE, {"mask": expression}, len(expression))
            masks = found.masks()
        else:
            raise ValueError("only boolean expressions or arrays are supported")
        if found.length != self.len:
            raise ValueError("`boolarr` must be of the same length than ``self``")
        return self._gathered(masks, outcols)

    def _gathered(
        self, masks: Iterable[tuple[int, int, NDArray[np.bool_]]], outcols: Sequence[str]
    ) -> Iterator[list[NDArray[Any]]]:
        for start, stop, mask in masks:
            count = np.count_nonzero(mask)
            if not count:
                continue
            if count == stop - start:
                chosen: Any = slice(None)
            else:
                chosen = np.flatnonzero(mask)
            yield [
                np.arange(start, stop)[chosen]
                if name == "nrow__"
                else self.cols[name][start:stop][chosen]
                for name in outcols
            ]

    def _check_outcols(self, outcols: Any) -> list[str]:
        if outcols is None:
            return self.names
        if not isinstance(outcols, list | tuple | str | bytes):
            raise ValueError("only list/str is supported for outcols")
        if isinstance(outcols, str | bytes):
            text = outcols if isinstance(outcols, str) else outcols.decode()
            outcols = [each for part in _SEPARATORS.split(text) for each in part.split()]
        names = _valid_names(outcols, "outcols")
        if set(names) - {*self.names, "nrow__"}:
            raise ValueError("outcols doesn't match names")
        return names

    def _rows(
        self, blocks: Iterable[list[NDArray[Any]]], names: Sequence[str], out_flavor: Any
    ) -> Iterator[Any]:
        """Return an iterator of rows in a flavour."""
        native = iterators()
        if native is not None:
            columns = ([as_column(part) for part in each] for each in blocks)
            row = _row_type(names, out_flavor)
            if row is not None:
                return native.iterate_rows(columns, row)
            rows: Iterator[Any] = native.iterate_rows(columns)
        else:
            rows = chain.from_iterable(zip(*map(_python, each), strict=True) for each in blocks)
        return _flavoured(rows, names, out_flavor, self._dtype_of(names))

    def __iter__(self) -> Iterator[Any]:
        return self.iter()

    def iter(
        self,
        start: int = 0,
        stop: int | None = None,
        step: int = 1,
        outcols: Any = None,
        limit: int | None = None,
        skip: int = 0,
        out_flavor: Any = namedtuple,
    ) -> Iterator[Any]:
        """Iterate over the rows of a range."""
        names = self._check_outcols(outcols)
        if step <= 0:
            raise NotImplementedError("step param can only be positive")
        start, stop, step = slice(start, stop, step).indices(self.len)
        start += skip * step
        if limit is not None:
            stop = min(stop, start + limit * step)
        return self._rows(self._blocks(names, start, stop, step), names, out_flavor)

    def _blocks(
        self, names: Sequence[str], start: int, stop: int, step: int
    ) -> Iterator[list[NDArray[Any]]]:
        """Yield columns of the rows of a range, block by block."""
        columns = {name: self.cols[name] for name in names if name != "nrow__"}
        # The longest block of a column ends where chunks of all columns end, as a rule.
        rows = max((each.block_rows for each in columns.values()), default=_NUMBERED_ROWS)
        while start < stop:
            end = min((start // rows + 1) * rows, stop)
            yield [
                columns[name][start:end:step] if name in columns else np.arange(start, end, step)
                for name in names
            ]
            start += -(-(end - start) // step) * step

    # Items ---------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if not self.names:
            raise KeyError("cannot retrieve data from a ctable with no columns")
        if isinstance(key, int | np.integer):
            row = np.empty(1, self.dtype)
            row[0] = tuple(self.cols[name][key] for name in self.names)
            return row[0]
        if isinstance(key, slice):
            return self._structures(lambda column: column[key])
        if isinstance(key, tuple):
            if len(key) != 1:
                raise IndexError("multidimensional keys are not supported")
            return self[key[0]]
        if isinstance(key, str | bytes):
            return self._getitem_text(key, sys._getframe(1))
        if isinstance(key, list):
            if not key:
                return np.empty(0, self.dtype)
            if all(isinstance(each, str) for each in key):
                return ctable([self.cols[name] for name in key], list(key))
            return self._structures(lambda column: column[key])
        if hasattr(key, "dtype"):
            if key.dtype.type == np.bool_ or np.issubdtype(key.dtype, np.integer):
                return self._structures(lambda column: column[key])
            raise IndexError("arrays used as indices must be integer (or boolean)")
        raise NotImplementedError(f"key not supported: {key!r}")

    def _structures(self, read: Callable[[carray], NDArray[Any]]) -> NDArray[Any]:
        columns = [read(self.cols[name]) for name in self.names]
        return _structured(columns, self.dtype)

    def _getitem_text(self, key: str | bytes, frame: Any) -> Any:
        if key in self.names:
            return self.cols[str(key)]
        found = bound(key, self._names(None, frame))
        if found.dtype != np.bool_:
            raise IndexError(f"`key` {key!s} does not represent a boolean expression")
        blocks = self._matches(key, self._names(None, frame), self.names, None)
        parts = [_structured(each, self.dtype) for each in blocks]
        return np.concatenate([np.empty(0, self.dtype), *parts])

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.names:
            raise KeyError("cannot assign to ctable with no columns")
        self._writable()
        if isinstance(key, str | bytes) and key in self.names:
            self.cols[str(key)] = value
            return
        rows = to_ndarray(value, self.dtype)
        if isinstance(key, str | bytes):
            numbers = self._matches(key, self._names(None, sys._getframe(1)), ["nrow__"], None)
            key = np.concatenate([np.empty(0, np.int64), *(each[0] for each in numbers)])
        for name in self.names:
            part = rows[name]
            self.cols[name][key] = part[0] if len(part) == 1 else part

    def __str__(self) -> str:
        return array2string(self) if self.names else ""

    def __repr__(self) -> str:
        nbytes, cbytes = self.nbytes, self.cbytes
        ratio = nbytes / cbytes if cbytes > 0 else np.nan
        header = f"ctable({self.shape}, {self.dtype})\n"
        header += (
            f"  nbytes: {human_readable_size(nbytes)}; "
            f"cbytes: {human_readable_size(cbytes)}; ratio: {ratio:.2f}\n"
        )
        header += f"  cparams := {self.cparams!r}\n"
        if self.rootdir:
            header += f"  rootdir := '{self.rootdir}'\n"
        return header + str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.rootdir is not None:
            return _reopened, (self.rootdir, "r" if self.mode == "r" else "a")
        return ctable, ([self.cols[name] for name in self.names], self.names)

    def __enter__(self) -> "ctable":
        return self

    def __exit__(self, *error: object) -> None:
        if self.mode != "r":
            self.flush()


def _reopened(rootdir: str, mode: str) -> ctable:
    return ctable(rootdir=rootdir, mode=mode)


def row_blocks(
    table: ctable, blen: int | None = None, start: int = 0, stop: int | None = None
) -> Iterator[NDArray[Any]]:
    """Yield the rows of a table as structured arrays of `blen` rows."""
    length = blen or min(table.cols[name].chunklen for name in table.cols)
    end = len(table) if stop is None else min(stop, len(table))
    for first in range(start, end, length):
        yield table[first : min(first + length, end)]


_TRUE: Final = bound("mask", [{"mask": np.zeros(1, np.bool_)}]).expression


def _valid_names(names: Iterable[Any], what: str = "names") -> list[str]:
    found = [each.decode() if isinstance(each, bytes) else each for each in names]
    if not all(isinstance(x, str) and _IDENTIFIER.match(x) and not iskeyword(x) for x in found):
        raise ValueError(
            f"column {what} must be valid Python identifiers, and must not start with an underscore"
        )
    return list(map(str, found))


def _names_of(columns: Any, names: Any) -> list[str]:
    if names is None:
        if isinstance(columns, np.ndarray) and columns.dtype.names is not None:
            names = list(columns.dtype.names)
        else:
            names = [f"f{number}" for number in range(len(columns))]
    else:
        if not isinstance(names, list | tuple):
            raise ValueError("`names` can only be a list or tuple")
        if len(names) != len(columns) and not isinstance(columns, np.ndarray):
            raise ValueError("`columns` and `names` must have the same length")
        if isinstance(columns, np.ndarray) and len(names) != len(columns.dtype.names or ()):
            raise ValueError("`columns` and `names` must have the same length")
    return _valid_names(names)


def _columns_of(columns: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(columns, np.ndarray):
        if columns.ndim != 1:
            raise ValueError("only unidimensional shapes supported")
        own = columns.dtype.names or ()
        return [columns[name] for name in (names if set(names) <= set(own) else own)]
    if type(columns) not in (tuple, list):
        raise ValueError("`columns` input is not supported")
    if any(getattr(each, "dtype", None) == np.void for each in columns):
        raise ValueError("`columns` elements cannot be of type void")
    return list(columns)


def _all_carrays(columns: Any) -> bool:
    return all(isinstance(each, carray) for each in columns)


def _sample(column: Any, kwargs: Mapping[str, Any]) -> carray:
    """Return an empty carray of the type that a new column gets."""
    settings = {name: value for name, value in kwargs.items() if name not in ("rootdir", "mode")}
    settings.setdefault("expectedlen", len(column))
    if isinstance(column, carray):
        empty = np.empty((0, *column.shape[1:]), column.dtype)
    else:
        kind = settings.get("dtype")
        items = to_ndarray(column, None if kind is None else np.dtype(kind))
        empty = np.empty((0, *items.shape[1:]), items.dtype)
    return carray(empty, **settings)


def _part(column: Any, sample: carray, start: int, stop: int) -> NDArray[Any]:
    """Return some rows of a new column in its type."""
    rows = column if type(column) in (list, tuple) else column[start:stop]
    items = to_ndarray(rows, sample.dtype)
    return items[start:stop] if type(column) in (list, tuple) else items


def _column_values(column: Any, known: carray) -> NDArray[Any]:
    try:
        return to_ndarray(column[:] if isinstance(column, carray) else column, known.dtype)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{column}` cannot be converted into a carray object of the correct type"
        ) from None


def _rows_of(value: Any, column: carray, *, scalars: bool) -> NDArray[Any]:
    """Return what is appended to a column as an array of rows."""
    items = to_ndarray(value[:] if isinstance(value, carray) else value, column.dtype)
    row = column.shape[1:]
    if scalars and items.shape == row:
        items = items.reshape(1, *row)
    return items


def _field(name: str, column: carray) -> tuple[Any, ...]:
    return (name, column.dtype) if column.ndim == 1 else (name, column.dtype, column.shape[1:])


def _frame_column(series: Any) -> NDArray[Any]:
    """Return the values of a column of a data frame; objects that are all text become text."""
    values = np.asarray(series.values)
    if values.dtype == object and len(values) and all(type(each) is str for each in values):
        return values.astype(f"U{max(1, max(map(len, values)))}")
    return values


def _structured(columns: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    rows = np.empty(len(columns[0]) if columns else 0, dtype)
    for name, column in zip(dtype.names or (), columns, strict=True):
        rows[name] = column
    return rows


def _python(column: NDArray[Any]) -> Iterable[Any]:
    return column if column.ndim > 1 else column.tolist()


def _row_type(names: Sequence[str], out_flavor: Any) -> Any:
    """Return the type of rows in a flavour that has names for items; None in others."""
    if out_flavor is namedtuple or out_flavor == "namedtuple":
        return namedtuple("row", names)
    return None


def _flavoured(
    rows: Iterator[Any], names: Sequence[str], out_flavor: Any, dtype: np.dtype[Any]
) -> Iterator[Any]:
    row = _row_type(names, out_flavor)
    if row is not None:
        # What `row._make` does, without its check of the length.
        return map(partial(tuple.__new__, row), rows)
    if out_flavor is np.ndarray or out_flavor == "ndarray":
        return (np.array([each], dtype) for each in rows)
    return rows


def _cut(
    blocks: Iterator[list[NDArray[Any]]], limit: int | None, skip: int
) -> Iterator[list[NDArray[Any]]]:
    """Yield blocks without the first `skip` rows, and at most `limit` rows."""
    if limit is None and not skip:
        yield from blocks
        return
    left = sys.maxsize if limit is None else limit
    for block in blocks:
        if left <= 0:
            return
        count = len(block[0]) if block else 0
        first, skip = min(skip, count), max(0, skip - count)
        taken = min(count - first, left)
        left -= taken
        if taken:
            yield [each[first : first + taken] for each in block]


def _regrouped(blocks: Iterator[NDArray[Any]], length: int) -> Iterator[NDArray[Any]]:
    """Yield the same rows in arrays of one length, the last one shorter."""
    waiting: list[NDArray[Any]] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= length:
            rows = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            whole = count // length * length
            for start in range(0, whole, length):
                yield rows[start : start + length]
            waiting, count = [rows[whole:]], count - whole
    if count:
        yield np.concatenate(waiting)
