"""The carray: one compressed array that grows, in memory or in a folder.

Rows are stored in an `ingot.Array` of format bcolz. Rows that were appended last wait in a buffer:
in memory until there are whole chunks of them, on disk until `flush` too. A column of a table on
disk shares the table's commits: the table stores its waiting rows, together with those of the other
columns.
"""

import os
import pickle
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import api
from ingot.blosc import compress, decompress, inspect
from ingot.codecs.compressors import Blosc
from ingot.codecs.filters import Quantize
from ingot.compat.bcolz.arrayprint import array2string, human_readable_size
from ingot.compat.bcolz.attrs import attrs as attributes
from ingot.compat.bcolz.conversion import default_chunklen, to_ndarray
from ingot.compat.bcolz.defaults import cparams as parameters
from ingot.compat.bcolz.defaults import options, stages
from ingot.compat.bcolz.expressions import bound
from ingot.containers.array import Array
from ingot.dtypes import DType
from ingot.native import iterators

__all__ = ["as_column", "carray", "chunk"]

_OBJECT: Final = np.dtype(object)
_LARGEST_TYPE: Final = 255
_NUMBERS: Final = (int, float, bool, np.bool_, np.integer, np.floating)
_PLAIN: Final = frozenset({int, float, bool, str, bytes})
# Chunks are encoded in groups of this many bytes: with all threads, and by one commit.
_GROUP_BYTES: Final = 4 << 20
_FIRST_ROWS: Final = 64
# Blocks that are iterated over: long enough for all threads, short enough for the caches.
_BLOCK_BYTES: Final = 1 << 20
# So many of them where the same memory takes one after the other.
_FILLED_BLOCKS: Final = 4
_CACHED_BYTES: Final = 64 << 10
_MEMORY_FORMATS: Final = frozenset("?bBhHiIlLqQfd")
_FILTERS: Final[Mapping[int, list[Any]]] = {0: [], 1: ["shuffle"], 2: ["bitshuffle"]}


class chunk:
    """One compressed chunk of rows, which can be indexed.

    >>> chunk(np.arange(10), np.dtype("i8"), parameters())[2:5]
    array([2, 3, 4])
    """

    def __init__(self, array: NDArray[Any], atom: DType, cparams: parameters) -> None:
        self.dtype = atom
        self.atomsize = atom.itemsize
        self.itemsize = _typesize(atom.base)
        items = np.ascontiguousarray(array, atom.base)
        self._data = compress(
            items,
            typesize=self.itemsize,
            codec=cparams.cname,
            level=min(cparams.clevel, 9),
            filters=_FILTERS[int(cparams.shuffle)],
        )
        self.nbytes = items.nbytes
        self.cbytes = len(self._data)
        self.blocksize = inspect(self._data).header.blocksize

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice | int | np.integer):
            raise IndexError("key not suitable:", key)
        rows = np.frombuffer(decompress(self._data), self.dtype.base)
        rows = rows.reshape(-1, *self.dtype.shape)
        if isinstance(key, slice):
            return rows[key].copy()
        return rows[key].copy() if self.dtype.shape else rows.item(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.nbytes // self.atomsize

    def __str__(self) -> str:
        return str(self[:])

    def __repr__(self) -> str:
        ratio = self.nbytes // self.cbytes
        return (
            f"chunk({self.dtype})  nbytes: {self.nbytes}; cbytes: {self.cbytes}; "
            f"ratio: {ratio:.2f}\n{str(self)!r}"
        )


class _Chunks(Sequence[chunk]):
    """The whole chunks of a carray; each is made when it is asked for."""

    __slots__ = ("_owner",)

    def __init__(self, owner: "carray") -> None:
        self._owner = owner

    def __len__(self) -> int:
        return self._owner.nchunks

    def __getitem__(self, number: Any) -> Any:
        owner = self._owner
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(f"chunk {number} of {len(self)}")
        start = (number % len(self)) * owner.chunklen
        return chunk(owner[start : start + owner.chunklen], owner._dtype, owner.cparams)


class _Rows(chain[Any]):
    """An iterator over rows; it also has what the carray has, as iterators of bcolz do."""

    source: "carray | None"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


class carray:
    """A compressed array that grows, in memory or on disk.

    `array` is what NumPy makes an array of. `rootdir` is the folder of an array on disk, which is
    opened when no `array` is given. `mode` is "r" to read, "a" to change, "w" to begin anew.

    >>> array = carray([1, 2, 3])
    >>> array.append([4, 5])
    >>> array[1:], array.sum(), list(array.where(array[:] > 3))
    (array([2, 3, 4, 5]), np.int64(15), [4, 5])
    """

    def __init__(
        self,
        array: Any = None,
        cparams: parameters | None = None,
        dtype: Any = None,
        dflt: Any = None,
        expectedlen: float | None = None,
        chunklen: int | None = None,
        rootdir: Any = None,
        safe: bool = True,
        mode: str = "a",
    ) -> None:
        if mode not in ("r", "w", "a"):
            raise ValueError("mode should be 'r', 'w' or 'a'")
        self._rootdir: str | None = None if rootdir is None else os.fspath(rootdir)
        self._mode = mode
        self._safe = safe
        self._array: Array | None = None
        self._stored = 0
        self._count = 0
        self._objects: list[bytes] | None = None
        self._column: Any = None
        self._iterator: Iterator[Any] | None = None
        self._cached: tuple[int, int, NDArray[Any]] = (0, 0, np.empty(0))
        self._leftover: NDArray[Any] | None = None
        self._is_view = False
        if array is not None:
            self._create(array, cparams, dtype, dflt, expectedlen, chunklen)
        elif rootdir is not None:
            self._open()
        else:
            raise ValueError("You need at least to pass an array or/and a rootdir")

    # Creating and opening ------------------------------------------------------------------------

    def _create(
        self,
        array: Any,
        cparams: parameters | None,
        dtype: Any,
        dflt: Any,
        expectedlen: float | None,
        chunklen: int | None,
    ) -> None:
        cparams = parameters() if cparams is None else cparams
        if not isinstance(cparams, parameters):
            raise ValueError("`cparams` param must be an instance of `cparams` class")
        kind: DType | None = None if dtype is None else np.dtype(dtype)
        if isinstance(array, carray):
            array = array[:]
        items = to_ndarray(array, kind)
        kind = items.dtype.base if kind is None else kind
        if kind.hasobject:
            if kind != _OBJECT:
                raise TypeError(f"{kind!r} is not a supported dtype")
            atom: DType = kind
        else:
            atom = np.dtype((kind.base, items.shape[1:] + kind.shape))
            if kind.shape and items.ndim > 1:
                atom = np.dtype((kind.base, items.shape[1:]))
        if atom.itemsize >= 2**31:
            raise ValueError("atomic size is too large (>= 2 GB)")
        if not atom.itemsize:
            raise TypeError("atomic size cannot be zero")
        _check_typesize(atom.base)
        if not isinstance(self._rootdir, str | None):
            raise TypeError("rootdir is no path")
        expected = len(items) if expectedlen is None else expectedlen
        if chunklen is None:
            chunklen = default_chunklen(expected, atom.itemsize)
        elif not isinstance(chunklen, int) or chunklen < 1:
            raise ValueError("chunklen must be a positive integer")
        default = np.zeros((), atom.base)
        if dflt is not None:
            default[()] = dflt
        self._settle(atom, cparams, chunklen, default, int(expected))
        if atom == _OBJECT:
            items = _as_objects(array, items)
        elif cparams.quantize:
            stages(cparams, atom.base, self._chunksize)
        if self._rootdir is not None:
            self._create_on_disk(items)
        else:
            self._attrs = attributes(None, self._mode)
            if atom == _OBJECT:
                self._objects = []
            self._extend(items)

    def _settle(
        self, atom: DType, cparams: parameters, chunklen: int, dflt: Any, expectedlen: int
    ) -> None:
        """Set what an array is, without its rows."""
        self._dtype = atom
        self.itemsize = atom.base.itemsize
        self.atomsize = atom.itemsize
        self._cparams = cparams
        self._chunklen = chunklen
        self._chunksize = chunklen * atom.itemsize
        self._dflt = dflt
        self.expectedlen = expectedlen
        self._group = max(1, _GROUP_BYTES // self._chunksize) * chunklen
        self._buffer = np.empty((0, *atom.shape), atom.base)
        self._simple = not atom.shape and atom.base.kind in "biufSU"
        self._plain = None if atom.shape else atom.base
        self.letter = "" if atom.shape or not atom.isnative else atom.base.char

    def _create_on_disk(self, items: NDArray[Any]) -> None:
        assert self._rootdir is not None
        if os.path.exists(self._rootdir) and self._mode != "w":
            raise FileExistsError(
                f"specified rootdir path '{self._rootdir}' already exists "
                f"and creation mode is '{self._mode}'"
            )
        self._array = self._made(items, self._rootdir)
        self._stored = len(items)
        self._attrs = attributes(self._rootdir, self._mode, self._array.attrs)

    def _made(self, items: NDArray[Any], rootdir: str | None) -> Array:
        """Return a new array that holds some items."""
        base, row = self._dtype.base, self._dtype.shape
        if base == _OBJECT:
            layout: dict[str, Any] = {"chunks": 1, "codec": stages(self._cparams, base, 0)}
        else:
            layout = {
                "chunks": (self._chunklen, *row),
                "codec": stages(self._cparams, base, self._chunksize),
                "fill": self._dflt[()] if isinstance(self._dflt, np.ndarray) else self._dflt,
            }
        if rootdir is not None and os.path.isfile(rootdir) and self._mode == "w":
            os.remove(rootdir)
        return api.array(
            items.reshape(len(items), *row),
            rootdir,
            format="bcolz",
            dtype=base,
            overwrite=True,
            options=options(allow_pickle=True),
            **layout,
        )

    def _open(self) -> None:
        assert self._rootdir is not None
        found = api.open(
            self._rootdir, "r" if self._mode == "r" else "r+", format=None, options=options()
        )
        if not isinstance(found, Array) or found.format != "bcolz":
            raise OSError(f"{self._rootdir}: no carray, but a {type(found).__name__}")
        self._adopt(found)
        if self._mode == "w":
            self.resize(0)

    def _adopt(self, array: Array) -> None:
        """Take over an array that is stored."""
        atom = np.dtype((array.dtype, array.shape[1:]))
        self._settle(atom, _parameters(array), array.chunks[0], np.asarray(array.fill), len(array))
        self._array = array
        self._stored = len(array)
        self._attrs = attributes(self._rootdir, self._mode, array.attrs)

    @classmethod
    def of_column(cls, array: Array, column: Any, rootdir: str, mode: str) -> "carray":
        """Return a column of a table on disk; `column` stores what is appended to it."""
        made = cls.__new__(cls)
        made._rootdir = rootdir
        made._mode = mode
        made._safe = True
        made._count = 0
        made._objects = None
        made._iterator = None
        made._cached = (0, 0, np.empty(0))
        made._leftover = None
        made._is_view = False
        made._column = column
        made._adopt(array)
        return made

    # What it is ----------------------------------------------------------------------------------

    @property
    def attrs(self) -> attributes:
        """The attributes."""
        return self._attrs

    @property
    def cbytes(self) -> int:
        """The compressed size in bytes; a last chunk counts as a whole one, as in bcolz."""
        if self._objects is not None:
            return sum(map(len, self._objects))
        if self._rootdir is None:
            self._store_groups(1)
        stored = 0 if self._array is None else self._array.stored_bytes
        return stored if self._dtype == _OBJECT else stored + self._chunksize

    @property
    def chunklen(self) -> int:
        """The rows of a chunk."""
        return self._chunklen

    @property
    def chunks(self) -> Sequence[chunk]:
        """The whole chunks."""
        return _Chunks(self)

    @property
    def cparams(self) -> parameters:
        """The parameters of compression."""
        return self._cparams

    @property
    def dflt(self) -> Any:
        """The value of new rows when the array is enlarged."""
        return self._dflt

    @property
    def dtype(self) -> DType:
        """The type of the items."""
        return self._dtype.base

    @property
    def len(self) -> int:
        """The number of rows."""
        if self._objects is not None:
            return len(self._objects)
        return self._stored + self._count

    @property
    def leftover_array(self) -> NDArray[Any]:
        """The rows after the last whole chunk, in an array of the length of a chunk."""
        rows = self.leftover_elements
        if self._leftover is None:
            self._leftover = np.zeros((self._chunklen, *self._dtype.shape), self._dtype.base)
        self._leftover[:rows] = self._rows(self.len - rows, self.len)
        return self._leftover

    @property
    def leftover_bytes(self) -> int:
        """The bytes of the rows after the last whole chunk."""
        return self.leftover_elements * self.atomsize

    @property
    def leftover_elements(self) -> int:
        """The number of rows after the last whole chunk."""
        return self.len % self._chunklen

    nleftover = leftover_elements

    @property
    def leftover_ptr(self) -> int:
        """The address of `leftover_array`."""
        return int(self.leftover_array.ctypes.data)

    @property
    def mode(self) -> str:
        """The mode in which the array was opened."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        self._mode = value

    @property
    def nbytes(self) -> int:
        """The uncompressed size in bytes."""
        if self._objects is not None:
            return sum(len(decompress(each)) for each in self._objects)
        return self.len * self.atomsize

    @property
    def nchunks(self) -> int:
        """The number of whole chunks."""
        return self.len // self._chunklen

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def partitions(self) -> list[tuple[int, int]]:
        """The first row and the end of each whole chunk."""
        length = self._chunklen
        return [(number * length, (number + 1) * length) for number in range(self.nchunks)]

    @property
    def rootdir(self) -> str | None:
        """The folder of an array on disk."""
        return self._rootdir

    @rootdir.setter
    def rootdir(self, value: Any) -> None:
        if not self._rootdir:
            raise ValueError("cannot modify the rootdir value of an in-memory carray")
        self._rootdir = os.fspath(value)
        found = api.open(self._rootdir, "r+", options=options(allow_pickle=True))
        assert isinstance(found, Array)
        self._array = found
        self._attrs = attributes(self._rootdir, self._mode, found.attrs)

    @property
    def safe(self) -> bool:
        """Whether types and shapes are checked."""
        return self._safe

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return (self.len, *self._dtype.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.len

    def __sizeof__(self) -> int:
        return self.cbytes

    # Reading -------------------------------------------------------------------------------------

    def _rows(self, start: int, stop: int, step: int = 1) -> NDArray[Any]:
        """Return the rows of a range as a new array."""
        stored = self._stored
        if stop <= stored and self._array is not None:
            return self._array[start:stop:step]  # type: ignore[no-any-return]
        if start >= stored:
            return self._buffer[start - stored : stop - stored : step].copy()
        assert self._array is not None
        count = max(0, -(-(stop - start) // step))
        rows = np.empty((count, *self._dtype.shape), self._dtype.base)
        below = -(-(stored - start) // step)
        # Straight into its place: a copy would take new memory for all of it.
        self._array.read(slice(start, stored, step), out=rows[:below])
        first = start + below * step - stored
        rows[below:] = self._buffer[first : stop - stored : step]
        return rows

    def _getrange(self, start: int, blen: int, out: NDArray[Any]) -> None:
        """Fill the beginning of `out` with at most `blen` rows."""
        stop = min(start + blen, self.len)
        out[: stop - start] = self._rows(start, stop)

    def _getitem_object(self, number: int) -> Any:
        if self._objects is None:
            assert self._array is not None
            return self._array[number]
        # These bytes were pickled by this object; they never left its memory.
        return pickle.loads(decompress(self._objects[number]))

    def _item(self, number: int) -> Any:
        if self._dtype == _OBJECT:
            return self._getitem_object(number)
        stored = self._stored
        if number >= stored:
            block, at = self._buffer, number - stored
        else:
            first, end, block = self._cached
            if not first <= number < end:
                first, end, block = self._read_block(number)
            at = number - first
        return block[at].copy() if self._dtype.shape else block.item(at)

    def _read_block(self, number: int) -> tuple[int, int, NDArray[Any]]:
        rows = max(1, _CACHED_BYTES // self.atomsize)
        first = number // rows * rows
        end = min(first + rows, self._stored)
        assert self._array is not None
        self._cached = first, end, self._array[first:end]
        return self._cached

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer):
            return self._item(self._number(key))
        if isinstance(key, slice):
            return self._slice(key)
        if isinstance(key, tuple):
            return self._getitem_tuple(key)
        if isinstance(key, list):
            key = _as_numbers(key)
        if hasattr(key, "dtype"):
            return self._getitem_array(key)
        if type(key) is str:
            return self[self._mask(key, sys._getframe(1))]
        raise NotImplementedError(f"key not supported: {key!r}")

    def _number(self, key: Any) -> int:
        length = self.len
        number = int(key) + length if key < 0 else int(key)
        if not 0 <= number < length:
            raise IndexError("index out of range")
        return number

    def _slice(self, key: slice) -> NDArray[Any]:
        if key.step and key.step <= 0:
            raise NotImplementedError("step in slice can only be positive")
        start, stop, step = key.indices(self.len)
        if self._dtype == _OBJECT:
            found = [self._getitem_object(number) for number in range(start, stop, step)]
            return _object_array(found)
        return self._rows(start, max(start, stop), step)

    def _getitem_tuple(self, key: tuple[Any, ...]) -> Any:
        if not key:
            raise ValueError("empty tuple not supported")
        rows = self[key[0]]
        if len(key) == 1:
            return rows
        rows = rows[(slice(None), *key[1:])] if type(key[0]) is slice else rows[key[1:]]
        if isinstance(rows, np.ndarray) and not rows.flags.contiguous:
            rows = rows.copy()
        return rows

    def _getitem_array(self, key: Any) -> NDArray[Any]:
        if key.dtype.type == np.bool_:
            if len(key) != self.len:
                raise IndexError("boolean array length must match len(self)")
            return self._chosen(key)
        if not np.issubdtype(key.dtype, np.integer):
            raise IndexError("arrays used as indices must be integer (or boolean)")
        return self._take(self._numbers(key))

    def _numbers(self, key: Any) -> NDArray[np.int64]:
        numbers = np.asarray(key[:]).astype(np.int64)
        length = self.len
        numbers[numbers < 0] += length
        if bool(((numbers < 0) | (numbers >= length)).any()):
            raise IndexError("index out of range")
        return numbers

    def _take(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return rows by their numbers, which need not be in order."""
        if self._dtype == _OBJECT:
            return _object_array([self._getitem_object(int(each)) for each in numbers])
        stored = self._stored
        rows = np.empty((*numbers.shape, *self._dtype.shape), self._dtype.base)
        below = numbers < stored
        if bool(below.any()):
            assert self._array is not None
            rows[below] = self._array[numbers[below]]
        rows[~below] = self._buffer[numbers[~below] - stored]
        return rows

    def _chosen(self, mask: Any) -> NDArray[Any]:
        """Return the rows where a mask is true."""
        found = [rows[chosen] for _, rows, chosen in self._masked(mask)]
        if not found:
            return np.empty((0, *self._dtype.shape), self._dtype.base)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _mask(self, expression: str, frame: Any) -> Any:
        """Return the booleans of an expression over the names of a frame."""
        found = bound(expression, [frame.f_locals, frame.f_globals])
        if found.dtype != np.bool_:
            raise IndexError("only boolean expressions supported")
        if found.length != self.len:
            raise IndexError("boolean expression outcome must match len(self)")
        return np.concatenate([np.empty(0, np.bool_), *(each for _, each in found.blocks())])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        items: NDArray[Any] = self[:]
        return items if dtype is None else items.astype(dtype, copy=False)

    def sum(self, dtype: Any = None) -> Any:
        """Return the sum of all items, in the type that NumPy gives it."""
        if self._dtype.base.kind in "SUV":
            raise TypeError("cannot perform reduce with flexible type")
        if self._dtype == _OBJECT:
            return self[:].sum(dtype=dtype)
        waiting = self._buffer[: self._count].sum(dtype=dtype)
        if self._array is None:
            return waiting
        total = self._array.sum(dtype=dtype)
        return waiting.dtype.type(total + waiting) if self._count else total

    # Iterating -----------------------------------------------------------------------------------

    @property
    def block_rows(self) -> int:
        """The rows that an iterator reads at a time: whole chunks."""
        rows = max(1, _BLOCK_BYTES // self.atomsize)
        return max(self._chunklen, rows // self._chunklen * self._chunklen)

    def _blocks(self, start: int, stop: int, step: int = 1) -> Iterator[NDArray[Any]]:
        """Yield the rows of a range, block by block."""
        rows = self.block_rows
        while start < stop:
            # Blocks end where chunks end, so that none is decoded twice.
            end = min((start // rows + 1) * rows, stop)
            yield self._slice(slice(start, end, step))
            start += -(-(end - start) // step) * step

    def _filled(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows of a range block by block, all in the same memory.

        New memory for each block takes the system nearly as long as decoding.
        """
        rows = _FILLED_BLOCKS * self.block_rows
        room = np.empty(min(rows, max(0, stop - start)), self._dtype.base)
        while start < stop:
            end = min((start // rows + 1) * rows, stop)
            block = room[: end - start]
            if end <= self._stored and self._array is not None:
                self._array.read(slice(start, end), out=block)
            else:
                block[:] = self._rows(start, end)
            yield block
            start = end

    def _masked(self, mask: Any) -> Iterator[tuple[int, NDArray[Any], NDArray[np.bool_]]]:
        """Yield the first row, the rows and the mask of blocks in which a mask is true."""
        rows, length = self.block_rows, self.len
        for start in range(0, length, rows):
            stop = min(start + rows, length)
            chosen = mask[start:stop]
            if chosen.any():
                yield start, self._slice(slice(start, stop)), chosen

    def __iter__(self) -> Iterator[Any]:
        return self.iter()

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self.iter()
        return next(self._iterator)

    def iter(
        self,
        start: int = 0,
        stop: int | None = None,
        step: int = 1,
        limit: int | None = None,
        skip: int = 0,
    ) -> Iterator[Any]:
        """Iterate over the rows of a range; skip some at first, and end after `limit`."""
        if step <= 0:
            raise NotImplementedError("step param can only be positive")
        start, stop, step = slice(start, stop, step).indices(self.len)
        start += skip * step
        if limit is not None:
            stop = min(stop, start + limit * step)
        native = iterators()
        if native is not None and step == 1 and not self._dtype.shape and _is_plain(self._dtype):
            return native.iterate_items(self._filled(start, stop), self)
        return _iterated(self._blocks(start, stop, step), self)

    def where(self, boolarr: Any, limit: int | None = None, skip: int = 0) -> Iterator[Any]:
        """Iterate over the rows where an array of booleans is true."""
        if self.ndim > 1:
            raise NotImplementedError("`self` is not unidimensional")
        if not hasattr(boolarr, "dtype"):
            raise ValueError("`boolarr` is not an array")
        if boolarr.dtype.type != np.bool_:
            raise ValueError("`boolarr` is not an array of booleans")
        if len(boolarr) != self.len:
            raise ValueError("`boolarr` must be of the same length than ``self``")
        found = (rows[chosen] for _, rows, chosen in self._masked(boolarr))
        return _limited(_iterated(found), limit, skip)

    def wheretrue(self, limit: int | None = None, skip: int = 0) -> Iterator[int]:
        """Iterate over the numbers of the rows that are true."""
        if self._dtype.base.type != np.bool_:
            raise ValueError("`self` is not an array of booleans")
        if self.ndim > 1:
            raise NotImplementedError("`self` is not unidimensional")
        native = iterators()
        if native is not None:
            return _limited(native.iterate_true(self._filled(0, self.len)), limit, skip)
        starts, rows = range(0, self.len, self.block_rows), self._blocks(0, self.len)
        pairs = zip(starts, rows, strict=True)
        found = (np.flatnonzero(block) + start for start, block in pairs)
        return _limited(_iterated(found), limit, skip)

    # Changing ------------------------------------------------------------------------------------

    def _writable(self) -> None:
        if self._mode == "r" and self._rootdir is not None:
            raise PermissionError(f"cannot modify data because mode is '{self._mode}'")

    def append(self, array: Any) -> None:
        """Append rows, or one row, which become items of the type of the array."""
        if self._mode == "r":
            self._writable()
        if type(array) in _PLAIN and self._simple:
            count = self._count
            if count < len(self._buffer):
                self._buffer[count] = array
                self._count = count + 1
                return
        elif type(array) is np.ndarray and array.dtype is self._plain and array.ndim == 1:
            count, more = self._count, len(array)
            if count + more <= len(self._buffer):
                self._buffer[count : count + more] = array
                self._count = count + more
                return
        if self._safe:
            items = to_ndarray(array, self._dtype)
            if self._dtype == _OBJECT:
                self._extend(_as_objects(array, items))
                return
            if items.shape == self._dtype.shape:
                items = items.reshape(1, *items.shape)
            if items.shape[1:] != self._dtype.shape:
                raise ValueError("array trailing dimensions do not match with self")
        else:
            items = array
        count, more = self._count, len(items)
        if count + more <= len(self._buffer):
            self._buffer[count : count + more] = items
            self._count = count + more
        else:
            self._extend(items)

    def _extend(self, items: NDArray[Any]) -> None:
        """Add rows: to the buffer while they fit, otherwise whole chunks are stored."""
        if self._dtype == _OBJECT:
            self._extend_objects(items)
            return
        count, more = self._count, len(items)
        if self._column is None and count + more >= self._group:
            # The buffer is filled up to the end of a chunk; the chunks after that are stored as
            # they are.
            head = min(-(self._stored + count) % self._chunklen, more) if count else 0
            self._reserve(count + head)
            self._buffer[count : count + head] = items[:head]
            self._count += head
            self._store_groups(1)
            whole = 0 if self._count else (more - head) // self._chunklen * self._chunklen
            if whole:
                self._store(items[head : head + whole])
            items = items[head + whole :]
            count, more = self._count, len(items)
        self._reserve(count + more)
        self._buffer[count : count + more] = items
        self._count = count + more

    def _reserve(self, rows: int) -> None:
        """Make room for so many waiting rows."""
        room = len(self._buffer)
        if rows > room:
            most = self._group + self._chunklen
            # Memory that is not written yet costs nothing, and growing it step by step copies.
            expected = self.expectedlen - self._stored
            grown = max(rows, min(most, max(_FIRST_ROWS, 8 * room, expected)))
            buffer = np.empty((grown, *self._dtype.shape), self._dtype.base)
            buffer[: self._count] = self._buffer[: self._count]
            self._buffer = buffer

    def _store_groups(self, least: int) -> None:
        """Store the waiting rows that make whole chunks, if they are at least so many."""
        if self._dtype == _OBJECT or self._column is not None:
            return
        whole = (self._stored + self._count) // self._chunklen * self._chunklen - self._stored
        if whole >= least:
            rest = self._count - whole
            self._store(self._buffer[:whole])
            self._buffer[:rest] = self._buffer[whole : whole + rest]
            self._count = rest

    def _store(self, rows: NDArray[Any]) -> None:
        self._own()
        if self._array is None:
            self._array = self._made(rows, None)
        else:
            self._array.append(rows)
        self._stored = len(self._array)
        self._cached = (0, 0, self._buffer)

    def _extend_objects(self, items: NDArray[Any]) -> None:
        if self._objects is None:
            assert self._array is not None
            self._array.append(items)
            self._stored = len(self._array)
            return
        for each in items:
            data = pickle.dumps(each, pickle.HIGHEST_PROTOCOL)
            self._objects.append(compress(data, codec=self._cparams.cname))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._writable()
        if isinstance(key, int | np.integer):
            number = self._number(key)
            self._assign(slice(number, number + 1), value)
        elif isinstance(key, slice):
            if key.step and key.step <= 0:
                raise NotImplementedError("step in slice can only be positive")
            self._assign(key, value)
        elif isinstance(key, tuple):
            self._setitem_tuple(key, value)
        elif isinstance(key, list):
            self._setitem_array(_as_numbers(key), value)
        elif hasattr(key, "dtype"):
            self._setitem_array(key, value)
        elif type(key) is str:
            self._setitem_array(self._mask(key, sys._getframe(1)), value)
        else:
            raise NotImplementedError(f"key not supported: {key!r}")

    def _setitem_tuple(self, key: tuple[Any, ...], value: Any) -> None:
        if not key:
            raise ValueError("empty tuple not supported")
        if len(key) == 1:
            self[key[0]] = value
            return
        rows = self[key[0]]
        inner = (slice(None), *key[1:]) if type(key[0]) is slice else key[1:]
        rows[inner] = value
        self[key[0]] = rows

    def _setitem_array(self, key: Any, value: Any) -> None:
        if key.dtype.type == np.bool_:
            if len(key) != self.len:
                raise ValueError("boolean array length must match len(self)")
            numbers = np.flatnonzero(key[:])
        elif np.issubdtype(key.dtype, np.integer):
            numbers = self._numbers(key)
        else:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        if not len(numbers):
            return
        rows = to_ndarray(value, self._dtype, arrlen=len(numbers), safe=self._safe)
        below = numbers < self._stored
        if bool(below.any()):
            self._own()
            assert self._array is not None
            self._array[numbers[below]] = rows[below]
            self._cached = (0, 0, self._buffer)
        self._buffer[numbers[~below] - self._stored] = rows[~below]

    def _assign(self, key: slice, value: Any) -> None:
        start, stop, step = key.indices(self.len)
        count = len(range(start, stop, step))
        if not count:
            return
        rows = to_ndarray(value, self._dtype, safe=self._safe)
        rows = np.broadcast_to(rows, (count, *self._dtype.shape))
        stored = self._stored
        below = min(count, max(0, -(-(stored - start) // step)))
        if below:
            self._own()
            assert self._array is not None
            self._array[start : min(stop, stored) : step] = rows[:below]
            self._cached = (0, 0, self._buffer)
        if below < count:
            first = start + below * step - stored
            self._buffer[first : stop - stored : step] = rows[below:]

    def trim(self, nitems: Any) -> None:
        """Remove rows from the end; a negative number adds rows."""
        if not isinstance(nitems, _NUMBERS):
            raise TypeError("`nitems` must be an integer")
        if nitems > self.len:
            raise ValueError("`nitems` must be less than total length")
        self.resize(self.len - int(nitems))

    def resize(self, nitems: Any) -> None:
        """Change the number of rows; new ones hold `dflt`."""
        if not isinstance(nitems, _NUMBERS):
            raise TypeError("`nitems` must be an integer")
        length = int(nitems)
        if length < 0:
            raise ValueError("`nitems` cannot be negative")
        if length == self.len:
            return
        self._writable()
        if self._column is not None:
            raise ValueError("the length of a column is that of its table: resize the table")
        if length > self.len:
            self._grow(length)
        elif self._objects is not None:
            del self._objects[length:]
        elif length >= self._stored:
            self._count = length - self._stored
            self.flush()
        else:
            self._own()
            assert self._array is not None
            self._array.resize((length, *self._dtype.shape))
            self._stored, self._count = length, 0
            self._cached = (0, 0, self._buffer)

    def _grow(self, length: int) -> None:
        if self._dtype == _OBJECT:
            self._extend(_object_array([self._dflt[()]] * (length - self.len)))
            return
        while self.len < length:
            more = min(length - self.len, self._group)
            rows = np.empty((more, *self._dtype.shape), self._dtype.base)
            rows[...] = self._dflt
            self._extend(rows)
        self.flush()

    def flush(self) -> None:
        """Store all rows of an array on disk."""
        if self._column is not None:
            self._column.flush()
        elif self._rootdir is not None and self._count:
            self._store(self._buffer[: self._count])
            self._count = 0

    def stored_by_table(self) -> None:
        """Forget the waiting rows, which the table has stored, and read the number of rows."""
        assert self._array is not None
        self._stored, self._count = len(self._array), 0
        self._cached = (0, 0, self._buffer)

    def waiting(self) -> NDArray[Any]:
        """Return the rows that are not stored yet."""
        return self._buffer[: self._count]

    def purge(self) -> None:
        """Remove the folder of an array on disk."""
        if self._rootdir:
            shutil.rmtree(self._rootdir)

    def free_cachemem(self) -> None:
        """Forget what was decoded."""
        self._cached = (0, 0, self._buffer)
        self._leftover = None

    # Copies --------------------------------------------------------------------------------------

    def copy(self, **kwargs: Any) -> "carray":
        """Return a copy; the arguments are those of a new carray."""
        expectedlen = kwargs.pop("expectedlen", self.len)
        empty = np.empty((0, *self._dtype.shape), self._dtype.base)
        made = carray(empty, expectedlen=expectedlen, **kwargs)
        for block in self._blocks(0, self.len):
            made.append(block)
        made.flush()
        return made

    def view(self) -> "carray":
        """Return another carray of the same rows, which are not copied."""
        made = carray.__new__(carray)
        made.__dict__.update(self.__dict__)
        made._iterator = None
        made._leftover = None
        made._buffer = self._buffer[: self._count].copy()
        made._is_view = True
        return made

    def _own(self) -> None:
        """Give a view in memory stored rows of its own, before they change."""
        if self._is_view and self._rootdir is None and self._array is not None:
            self._array = self._made(self._array[: self._stored], None)
        self._is_view = False

    def reshape(self, newshape: int | Sequence[int]) -> "carray":
        """Return the same items in another shape; an array on disk is replaced."""
        shape = (int(newshape),) if isinstance(newshape, int | np.integer) else tuple(newshape)
        if -1 in shape:
            if shape.count(-1) > 1:
                raise ValueError("only one shape dimension can be -1")
            at = shape.index(-1)
            others = int(np.prod(shape[:at] + shape[at + 1 :]))
            shape = (*shape[:at], self.size // others if self.size else 0, *shape[at + 1 :])
        if int(np.prod(shape)) != self.size:
            raise ValueError("`newshape` is not compatible with the current one")
        self._writable()
        atom = np.dtype((self._dtype.base, shape[1:]))
        made = carray(
            np.empty((0, *shape[1:]), self._dtype.base),
            dtype=atom.base,
            cparams=self.cparams,
            expectedlen=shape[0],
        )
        rest = np.empty(0, self._dtype.base)
        row = max(1, int(np.prod(shape[1:])))
        for block in self._blocks(0, self.len):
            items = np.concatenate([rest, block.reshape(-1)])
            whole = len(items) // row * row
            made.append(items[:whole].reshape(-1, *shape[1:]))
            rest = items[whole:]
        if self._rootdir is None:
            return made
        rootdir, mode = self._rootdir, self._mode
        moved = carray(made, cparams=self.cparams, rootdir=rootdir, mode="w")
        moved.mode = mode
        return moved

    def __reduce__(self) -> tuple[Any, ...]:
        if self._rootdir:
            return _rebuilt, (None, self._rootdir)
        return _rebuilt, (self[:], None)

    def __enter__(self) -> "carray":
        return self

    def __exit__(self, *error: object) -> None:
        if self._mode != "r":
            self.flush()

    def __str__(self) -> str:
        return array2string(self)

    def __repr__(self) -> str:
        nbytes, cbytes = self.nbytes, self.cbytes
        ratio = nbytes / cbytes if cbytes else np.nan
        blocksize = self.chunks[0].blocksize if self.nchunks and self._objects is None else 0
        header = f"carray({self.shape}, {self.dtype})\n"
        header += (
            f"  nbytes := {human_readable_size(nbytes)}; "
            f"cbytes := {human_readable_size(cbytes)}; ratio: {ratio:.2f}\n"
        )
        header += f"  cparams := {self.cparams!r}\n"
        header += (
            f"  chunklen := {self.chunklen}; chunksize: {self._chunksize}; blocksize: {blocksize}\n"
        )
        if self._rootdir:
            header += f"  rootdir := '{self._rootdir}'\n  mode    := '{self._mode}'\n"
        return header + str(self)


def _rebuilt(array: Any, rootdir: str | None) -> carray:
    return carray(rootdir=rootdir) if rootdir else carray(array)


def _typesize(dtype: DType) -> int:
    """Return the bytes that the shuffle filter takes as an item."""
    if dtype.kind == "S" or (dtype.kind == "V" and dtype.itemsize > _LARGEST_TYPE):
        return 1
    return 4 if dtype.kind == "U" else dtype.itemsize


def _check_typesize(dtype: DType) -> None:
    size = _typesize(dtype)
    if size > _LARGEST_TYPE:
        raise TypeError(
            f"typesize is {size} and bcolz does not currently support data "
            f"types larger than {_LARGEST_TYPE} bytes"
        )


def _parameters(array: Array) -> parameters:
    """Return the parameters of a stored array."""
    digits = [each.digits for each in array.codec if isinstance(each, Quantize)]
    (blosc,) = (each for each in array.codec if isinstance(each, Blosc))
    return parameters(blosc.clevel, blosc.shuffle, blosc.cname, digits[0] if digits else 0)


def _as_numbers(key: list[Any]) -> NDArray[np.int64]:
    try:
        return np.array(key, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise IndexError("key cannot be converted to an array of indices") from None


def _object_array(items: Iterable[Any]) -> NDArray[Any]:
    found = list(items)
    made = np.empty(len(found), _OBJECT)
    made[:] = found
    return made


def _as_objects(array: Any, items: NDArray[Any]) -> NDArray[Any]:
    """Return objects along one axis; rows of several axes become arrays."""
    return items if items.ndim == 1 else _object_array(list(items))


def as_column(block: NDArray[Any]) -> Any:
    """Return a block as the iterators of the kernel take it; rows of several axes stay arrays.

    >>> [as_column(np.array(each)) for each in ([1, 2], ["a", "b"], [[1, 2]])]
    [array([1, 2]), ['a', 'b'], [array([1, 2])]]
    """
    if block.ndim > 1:
        return list(block)
    return np.ascontiguousarray(block) if _is_plain(block.dtype) else block.tolist()


def _is_plain(dtype: DType) -> bool:
    """Return whether a buffer of such items says by one letter what they are."""
    return dtype.char in _MEMORY_FORMATS and dtype.isnative


def _iterated(blocks: Iterator[NDArray[Any]], source: carray | None = None) -> Iterator[Any]:
    """Return an iterator over the items of blocks, as objects of Python."""
    native = iterators()
    if native is not None:
        return native.iterate_items(map(as_column, blocks), source)
    rows = _Rows.from_iterable(map(_items, blocks))
    assert isinstance(rows, _Rows)
    rows.source = source
    return rows


def _items(block: NDArray[Any]) -> Iterable[Any]:
    """Return the items of a block as Python's own; rows of several axes are arrays."""
    if block.ndim > 1:
        return block
    if _is_plain(block.dtype):
        return memoryview(block)  # type: ignore[arg-type]
    return block.tolist()  # type: ignore[no-any-return]


def _limited(found: Iterator[Any], limit: int | None, skip: int) -> Iterator[Any]:
    if limit is None and not skip:
        return found
    return islice(found, skip, None if limit is None else limit + skip)
