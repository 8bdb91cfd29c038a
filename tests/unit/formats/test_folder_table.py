"""Tables of folders: what they share, by a layout with documents of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from ingot.errors import CorruptionError, NotFoundError, UnsafeError
from ingot.formats.bcolz.array import BcolzMap, create_array, design, open_array
from ingot.formats.folder_table import (
    FolderLayout,
    FolderTableMap,
    check_lengths,
    column_length,
    create_table,
)
from ingot.formats.format import ArrayNode, Column, TableMap, TableNode
from ingot.schema import ArraySchema
from ingot.stores import Commit, Extent, MemoryStore, Put, Store
from tests.bcolz_tables import requested
from tests.storage import content


class PlainLayout:
    """A table whose document is a list of names."""

    taken: ClassVar[frozenset[str]] = frozenset({"names", "notes"})
    documents: ClassVar[tuple[str, str]] = "names", "notes"

    def name_columns(self, columns: Mapping[str, Column], old: Mapping[str, Any]) -> dict[str, Any]:
        return {**old, "columns": list(columns)}

    def pack_names(self, values: Mapping[str, Any]) -> bytes:
        return json.dumps(values).encode()

    def pack_attrs(self, attrs: Mapping[str, Any]) -> bytes:
        return json.dumps(dict(attrs)).encode()

    def parse_attrs(self, data: bytes) -> Mapping[str, Any]:
        return dict(json.loads(data))

    def create_array(
        self, store: Store, schema: ArraySchema, folder: str
    ) -> tuple[ArrayNode, Commit]:
        return create_array(store, schema, folder)

    def is_length(self, key: str) -> bool:
        return key.endswith("/meta/sizes")

    def reopen(self, store: Store, path: str, *, part: bool) -> "PlainTableMap":
        return opened(store)


@dataclass(frozen=True, slots=True)
class PlainTableMap(FolderTableMap):
    layout: ClassVar[FolderLayout] = PlainLayout()


def opened(store: Store) -> PlainTableMap:
    names, notes = store.read([Extent("names"), Extent("notes")])
    assert names is not None
    assert notes is not None
    document = json.loads(names)
    columns: dict[str, Column] = {
        name: ArrayNode(open_array(store, name)) for name in document["columns"]
    }
    documents = {"names": names, "notes": notes}
    return PlainTableMap(store, columns, json.loads(notes), "", {}, document, False, documents)


def made(store: Store, rows: int = 0) -> PlainTableMap:
    schema = {name: design(requested(rows)) for name in "ab"}
    node, commit = create_table(PlainTableMap, store, schema, {"unit": "m"})
    store.apply(commit)
    assert isinstance(node.table, PlainTableMap)
    return node.table


def test_a_layout_brings_only_its_documents() -> None:
    store = MemoryStore()
    table = made(store)
    assert isinstance(table, TableMap)
    assert repr(table) == repr(opened(store)) == repr(table.reopened(store))
    assert (table.names, dict(table.attrs), table.rows) == (("a", "b"), {"unit": "m"}, 0)
    found = content(store)
    assert (found["names"], found["notes"]) == (b'{"columns": ["a", "b"]}', b'{"unit": "m"}')
    described, commit = table.described({"unit": "km"})
    store.apply(commit)
    assert (dict(described.attrs), described.documents["notes"]) == (
        {"unit": "km"},
        b'{"unit": "km"}',
    )
    store.apply(described.removed())
    assert content(store) == {}


def test_columns_come_move_and_go() -> None:
    store = MemoryStore({"c/left by another": b"x"})
    table = made(store)
    added, column, commit = table.added("c", design(requested(0)), position=1)
    assert isinstance(column, ArrayNode)
    store.apply(commit)
    assert added.names == opened(store).names == ("a", "c", "b")
    assert "c/left by another" not in content(store)
    renamed, copies, commit = added.renamed("c", "d")
    assert all(new.startswith("d/") and old == f"c{new[1:]}" for new, old in copies.items())
    values = content(store)
    moved = tuple(Put(new, values[old]) for new, old in copies.items())
    store.apply(Commit((*commit.prepare, *moved), commit.publish, commit.cleanup))
    assert renamed.columns["d"].chunks.path == "d"  # type: ignore[union-attr]
    assert not any(key.startswith("c/") for key in content(store))
    dropped, commit = renamed.dropped("d")
    store.apply(commit)
    assert dropped.names == opened(store).names == ("a", "b")
    assert not any(key.startswith("d/") for key in content(store))


def test_the_length_of_the_first_column_switches_last() -> None:
    table = made(MemoryStore())
    commits = {}
    for name in "ab":
        column = table.columns[name]
        assert isinstance(column, ArrayNode)
        commits[name] = column.chunks.resized((5,))[1]
    grown = table.joined(commits)
    assert [edit.key for edit in grown.publish] == ["b/meta/sizes", "a/meta/sizes"]
    shrunk = table.joined(commits, shrinking=True)
    assert [edit.key for edit in shrunk.publish] == ["a/meta/sizes", "b/meta/sizes"]


@pytest.mark.parametrize(
    ("name", "error"),
    [("a", ValueError), ("names", ValueError), ("x.y", ValueError), ("../x", UnsafeError)],
)
def test_names_that_a_column_cannot_have(name: str, error: type[Exception]) -> None:
    table = made(MemoryStore())
    with pytest.raises(error):
        table.added(name, design(requested(0)))
    with pytest.raises(error):
        table.renamed("b", name)


def test_absent_columns_and_other_lengths_are_refused() -> None:
    store = MemoryStore()
    table = made(store)
    with pytest.raises(NotFoundError, match="no column 'z'"):
        table.dropped("z")
    with pytest.raises(ValueError, match="column 'c' has 3 rows, the table has 0"):
        table.added("c", design(requested(3)))
    longer, _ = create_array(store, design(requested(3)), "c")
    assert column_length(longer) == 3
    assert column_length(TableNode(table)) == 0
    with pytest.raises(CorruptionError, match="columns of different length: a 0, c 3"):
        check_lengths({"a": table.columns["a"], "c": longer}, "")
    assert isinstance(longer.chunks, BcolzMap)
    assert "c/data/__0.blp" in set(longer.chunks.keys())
