"""PyTables: tables in HDF5 files, read and written block by block.

PyTables is optional, and imported on first use. It loads attributes that are pickles as soon as a
node is touched, which runs whatever code a file holds. While a file is read here, pickles of plain
values are loaded, and all others refused.
"""

import io
import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.errors import UnsafeError, UnsupportedError

__all__ = ["StoredTable", "opened", "write"]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table in an open HDF5 file."""

    node: Any
    attrs: Mapping[str, Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a row."""
        return self.node.dtype  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.node)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks of whole chunks."""
        rows = max(1, int(self.node.chunkshape[0]))
        step = max(rows, (1 << 16) // rows * rows)
        for start in range(0, len(self.node), step):
            yield self.node[start : start + step]


@contextmanager
def opened(path: Any, node: str) -> Iterator[StoredTable]:
    """Open a table in an HDF5 file while a block runs."""
    tables = _tables()
    with _plain_pickles(tables), tables.open_file(path) as file:
        found = file.get_node(node)
        if not isinstance(found, tables.Table):
            raise UnsupportedError(f"{path}: {node} is a {type(found).__name__}, and no table")
        names = found.attrs._f_list("user")
        attrs = {name: found.attrs[name] for name in names}
        if _guard.state.refused is not None:
            raise UnsafeError(
                f"{path}: an attribute of {node} is a pickle that calls {_guard.state.refused}; "
                "reading it would run code"
            )
        yield StoredTable(found, attrs)


class _PlainUnpickler(pickle.Unpickler):
    """Loads numbers, text and the containers of Python; nothing that has to be called."""

    def find_class(self, module: str, name: str) -> Any:
        # PyTables takes any error for a sign that a text is no pickle, so it is noted as well.
        _guard.state.refused = f"{module}.{name}"
        raise pickle.UnpicklingError(_guard.state.refused)


class _GuardedPickle:
    """The module `pickle`, for PyTables; while a file is read here, its `loads` calls nothing."""

    def __init__(self) -> None:
        self.state = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(pickle, name)

    def loads(self, data: Any, **settings: Any) -> Any:
        """Load a pickle; other threads, and other files, are not concerned."""
        if getattr(self.state, "depth", 0):
            return _PlainUnpickler(io.BytesIO(data), **settings).load()
        return pickle.loads(data, **settings)


_guard: Final = _GuardedPickle()


@contextmanager
def _plain_pickles(tables: Any) -> Iterator[None]:
    """Let PyTables load only pickles of plain values while a block runs, in this thread."""
    tables.attributeset.pickle = _guard
    state = _guard.state
    state.depth, state.refused = getattr(state, "depth", 0) + 1, None
    try:
        yield
    finally:
        state.depth -= 1


def write(
    path: Any,
    node: str,
    dtype: np.dtype[Any],
    blocks: Iterable[NDArray[Any]],
    *,
    mode: str,
    rows: int,
    attrs: Mapping[str, Any],
    compressor: str,
    level: int,
    shuffle: bool,
) -> None:
    """Write blocks of rows as a table into an HDF5 file."""
    tables = _tables()
    filters = tables.Filters(complevel=level, shuffle=shuffle, complib=compressor)
    with tables.open_file(path, mode=mode) as file:
        made = file.create_table(
            file.root, node.strip("/"), dtype, filters=filters, expectedrows=rows
        )
        for name, value in attrs.items():
            made.attrs[name] = value
        for block in blocks:
            made.append(block)


def _tables() -> Any:
    try:
        import tables
    except ImportError:
        raise UnsupportedError("you need PyTables to use this functionality") from None
    return tables
