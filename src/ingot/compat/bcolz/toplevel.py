"""The functions of the module: making, opening and walking over carrays and ctables."""

import glob
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.compat.bcolz.carray_ext import carray
from ingot.compat.bcolz.ctable import ROOTDIRS, ctable, row_blocks
from ingot.compat.bcolz.defaults import blosc_compressor_list, blosc_set_nthreads
from ingot.errors import IngotError

__all__ = [
    "VERSION",
    "arange",
    "blosc_version",
    "dask_here",
    "detect_number_of_cores",
    "fill",
    "fromiter",
    "iterblocks",
    "min_dask_version",
    "min_numexpr_version",
    "ncores",
    "numexpr_here",
    "ones",
    "open",
    "pandas_here",
    "print_versions",
    "set_nthreads",
    "tables_here",
    "test",
    "walk",
    "zeros",
]

# Expressions need neither of the two: all virtual machines are the same one.
numexpr_here = True
dask_here = True
min_numexpr_version = "2.5.2"
min_dask_version = "0.9.0"
pandas_here = find_spec("pandas") is not None
tables_here = find_spec("tables") is not None
ncores = os.cpu_count() or 1

VERSION: Final = "1.2.1"
"""The version of bcolz that this module stands for."""

# How much is in memory while an array is filled.
_GROUP_BYTES: Final = 4 << 20


def open(rootdir: Any, mode: str = "a") -> carray | ctable:
    """Open a carray or a ctable on disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = carray([1, 2, 3], rootdir=f"{folder}/a")
    ...     open(f"{folder}/a", mode="r")[1:]
    array([2, 3])
    """
    if os.path.exists(os.path.join(rootdir, ROOTDIRS)):
        return ctable(rootdir=rootdir, mode=mode)
    return carray(rootdir=rootdir, mode=mode)


def fromiter(iterable: Iterable[Any], dtype: Any, count: int, **kwargs: Any) -> carray | ctable:
    """Return a carray of the items of an iterable; rows of a structured type make a ctable.

    >>> fromiter((number * number for number in range(4)), "i8", count=4)[:]
    array([0, 1, 4, 9])
    """
    kind = np.dtype(dtype)
    items = iter(iterable)
    if count == -1 and hasattr(items, "__length_hint__"):
        count = items.__length_hint__()
    expectedlen = kwargs.pop("expectedlen", count)
    empty = np.empty(0, kind)
    made: carray | ctable
    if kind.kind == "V":
        made = ctable(empty, expectedlen=expectedlen, **kwargs)
    else:
        made = carray(empty, expectedlen=expectedlen, **kwargs)
    rows = max(1, _GROUP_BYTES // max(1, kind.itemsize))
    while True:
        block = np.fromiter(islice(items, rows), kind)
        if len(block):
            made.append(block)
        if len(block) < rows:
            break
    made.flush()
    return made


def fill(shape: Any, dflt: Any = None, dtype: Any = float, **kwargs: Any) -> carray | ctable:
    """Return a carray that holds one value everywhere; a structured type makes a ctable.

    >>> fill((2, 3), dflt=7, dtype="i4")[:]
    array([[7, 7, 7], [7, 7, 7]], dtype=int32)
    """
    kind = np.dtype(dtype)
    lengths = (int(shape),) if isinstance(shape, int | float | np.number) else tuple(shape)
    rows = int(lengths[0])
    atom = np.dtype((kind.base, tuple(map(int, lengths[1:])) + kind.shape))
    kwargs.setdefault("expectedlen", rows)
    made: carray | ctable
    if atom.kind == "V" and not atom.shape and atom.names is not None:
        made = ctable(np.empty(0, atom), **kwargs)
    else:
        made = carray(np.empty((0, *atom.shape), atom.base), dflt=dflt, **kwargs)
    made.resize(rows)
    return made


def zeros(shape: Any, dtype: Any = float, **kwargs: Any) -> carray | ctable:
    """Return a carray of zeros.

    >>> zeros(3, "i4")[:]
    array([0, 0, 0], dtype=int32)
    """
    kind = np.dtype(dtype)
    return fill(shape, np.zeros((), kind.base), kind, **kwargs)


def ones(shape: Any, dtype: Any = float, **kwargs: Any) -> carray | ctable:
    """Return a carray of ones.

    >>> ones(3)[:]
    array([1., 1., 1.])
    """
    kind = np.dtype(dtype)
    return fill(shape, np.ones((), kind.base), kind, **kwargs)


def arange(
    start: Any = None, stop: Any = None, step: Any = None, dtype: Any = None, **kwargs: Any
) -> carray:
    """Return a carray of evenly spaced values; as in bcolz, the stop is cut to an integer.

    >>> arange(2, 10, 3)[:]
    array([2, 5, 8])
    """
    if start is None and stop is None:
        raise ValueError("You must pass a `stop` value at least.")
    if stop is None:
        start, stop = 0, start
    elif start is None:
        start = 0
    step = 1 if step is None else step
    if dtype is None and type(stop) is int:
        dtype = np.int_
    kind = np.dtype(dtype)
    stop = int(stop)
    if kind.kind == "V":
        raise ValueError("arange does not support ctables yet.")
    expectedlen = kwargs.pop("expectedlen", stop)
    made = carray(np.empty(0, kind), expectedlen=expectedlen, **kwargs)
    rows = max(1, _GROUP_BYTES // kind.itemsize)
    while start < stop:
        end = min(start + rows * step, stop)
        made.append(np.arange(start, end, step, dtype=kind))
        start = end
    made.flush()
    return made


def iterblocks(
    cobj: carray | ctable, blen: int | None = None, start: int = 0, stop: int | None = None
) -> Iterator[Any]:
    """Iterate over a carray or a ctable in blocks of `blen` rows.

    >>> list(iterblocks(carray([1, 2, 3]), blen=2))
    [array([1, 2]), array([3])]
    """
    if isinstance(cobj, ctable):
        yield from row_blocks(cobj, blen, start, stop)
        return
    length = cobj.chunklen if blen is None else blen
    end = len(cobj) if stop is None else min(stop, len(cobj))
    for first in range(start, end, length):
        block: NDArray[Any] = cobj[first : min(first + length, end)]
        # bcolz drops the axis of a block of one row.
        yield block[0] if length == 1 else block


def walk(dir: str, classname: str | None = None, mode: str = "a") -> Iterator[carray | ctable]:
    """Iterate over all carrays and ctables below a folder, those of other folders last."""
    folders = []
    for node in glob.glob(os.path.join(dir, "*")):
        if not os.path.isdir(node):
            continue
        try:
            found: carray | ctable | None = open(node, mode)
        except (IngotError, OSError, ValueError, KeyError):
            found = None
        if found is None:
            folders.append(node)
        elif classname is None or type(found).__name__ == classname:
            yield found
    for folder in folders:
        yield from walk(folder, classname, mode)


def detect_number_of_cores() -> int:
    """Return the number of processors.

    >>> detect_number_of_cores() > 0
    True
    """
    return os.cpu_count() or 1


def set_nthreads(nthreads: int) -> int:
    """Set how many threads one call may use; return the number before."""
    return blosc_set_nthreads(nthreads)


def blosc_version() -> tuple[str, str]:
    """Return the version of Blosc whose chunks are written, and the kernel that writes them.

    >>> blosc_version()[0]
    '1.21.6'
    """
    return "1.21.6", f"ingot, {native.choice().name} kernel"


def print_versions() -> None:
    """Print the versions of what the module relies on."""
    version, kernel = blosc_version()
    print("-=" * 38)
    print(f"bcolz version:     {VERSION} (ingot.compat.bcolz)")
    print(f"NumPy version:     {np.__version__}")
    print(f"Blosc version:     {version} ({kernel})")
    print(f"Blosc compressors: {blosc_compressor_list()}")
    print(f"Python version:    {sys.version}")
    print(f"Platform:          {sys.platform}")
    print(f"Byte-ordering:     {sys.byteorder}")
    print(f"Detected cores:    {detect_number_of_cores()}")
    print("-=" * 38)


def test(verbose: bool = False, heavy: bool = False) -> None:  # noqa: PT028
    """Run the test suite of an installed bcolz against this module, in a process of its own.

    As in bcolz, the exit status of the suite ends the program.
    """
    print_versions()
    flags = ["--heavy"] if heavy else []
    command = [sys.executable, "-m", "ingot.compat.bcolz.suite", *flags]
    sys.exit(subprocess.run(command, check=False).returncode)
