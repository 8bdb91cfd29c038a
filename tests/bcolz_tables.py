"""bcolz arrays and tables that are made through the format, for its tests."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ingot.engine.payload import engine_of
from ingot.formats.bcolz.array import BcolzMap
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.table import BcolzTableMap, open_table
from ingot.formats.format import (
    Request,
    TableNode,
)
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit
from tests.storage import Place, store_at


def requested(rows: int, dtype: Any = "<i4", **settings: Any) -> Request:
    shape = rows if isinstance(rows, tuple) else (rows,)
    settings.setdefault("chunks", (4, *shape[1:]))
    return Request(shape, np.dtype(dtype), np.zeros((), dtype)[()], **settings)


def filled(place: Place, schema: dict[str, Any], rows: int = 3) -> BcolzTableMap:
    """Make a table whose columns count from one on."""
    store = store_at(place)
    node, commit = BcolzFormat().create_table(store, schema, {"of": "columns"})
    edits = [edit for column in _arrays(node) for edit in counted(column, rows)]
    store.apply(Commit((*commit.prepare, *edits), commit.publish, commit.cleanup))
    return open_table(store)


def _arrays(node: TableNode) -> Iterator[BcolzMap]:
    for column in node.columns.values():
        if isinstance(column, TableNode):
            yield from _arrays(column)
        else:
            assert isinstance(column.chunks, BcolzMap)
            yield column.chunks


def counted(chunks: BcolzMap, rows: int) -> tuple[Any, ...]:
    values = np.arange(1, rows + 1).astype(chunks.schema.dtype)
    return engine_of(chunks, Options()).assign(parse(..., (rows,)), values).edits


def moved(files: dict[str, bytes], **folders: str) -> dict[str, bytes]:
    """Return the files of a table with columns in other folders."""
    found = {}
    for key, data in files.items():
        first, slash, rest = key.partition("/")
        found[f"{folders.get(first, first)}{slash}{rest}"] = data
    return found
