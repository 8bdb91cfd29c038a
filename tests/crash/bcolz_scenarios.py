"""Changes of bcolz arrays and tables, what they lead to, and what a reader of old sees of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ingot import blosc
from ingot.codecs.compressors import Blosc
from ingot.engine import changes
from ingot.engine.changes import appended
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.formats.bcolz.array import BcolzMap, create_array, design, open_array
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.table import BcolzTableMap, open_table
from ingot.formats.format import ArrayNode, Request
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, Extent, MemoryStore, Store
from ingot.stores.versions import Versioned, copied
from ingot.testing import Scenario

Change = Callable[[Engine], Commit]

CHUNK = 4


def engine(chunks: BcolzMap) -> Engine:
    return engine_of(chunks, Options(threads=1))


def append(*values: int) -> Change:
    def build(array: Engine) -> Commit:
        added = appended(list(values), array.chunks.schema, 0)
        return changes.grown(array, added.shape, added.selection, added.values).commit

    return build


def resize(rows: int) -> Change:
    return lambda array: changes.resized(array, (rows,)).commit


def assign(key: slice, value: int) -> Change:
    return lambda array: changes.assigned(array, parse(key, array.shape), value).commit


def describe(note: str) -> Change:
    return lambda array: changes.described(array, {"note": note}).commit


def request(rows: int, *, auto: bool = False) -> Request:
    fill, stages = np.uint8(0), (Blosc(clevel=0),)
    chunks = None if auto else (CHUNK,)
    return Request((rows,), np.dtype("u1"), fill, chunks, stages)


def stored(rows: int) -> MemoryStore:
    """Return an array of the numbers from 1 on."""
    store = MemoryStore()
    node, commit = create_array(store, design(request(rows)))
    store.apply(commit)
    assert isinstance(node.chunks, BcolzMap)
    if rows:
        values = np.arange(1, rows + 1)
        store.apply(engine(node.chunks).assign(parse(..., (rows,)), values))
    return store


def seen(store: Store) -> object:
    """Return what a reader sees: all rows, and the attributes."""
    chunks = open_array(store)
    rows = engine(chunks).read(parse(..., chunks.schema.shape))
    return rows.tolist(), dict(chunks.schema.attrs)


def array(rows: int, *steps: Change, start: Mapping[str, bytes] | None = None) -> Scenario:
    """Return the scenario of changes of an array."""
    files = dict(stored(rows)._values) if start is None else dict(start)
    return _scenario(files, [lambda s, c=c: c(engine(open_array(s))) for c in steps], seen)


def _scenario(
    files: Mapping[str, bytes],
    commits: Sequence[Callable[[Store], Commit]],
    look: Callable[[Store], object],
) -> Scenario:
    model = MemoryStore(files)
    states = [look(model)]
    for commit in commits:
        model.apply(commit(model))
        states.append(look(model))

    def judge(store: Store) -> int:
        found = look(store)
        assert found in states, found
        return states.index(found)

    def step(number: int) -> Callable[[Store], None]:
        def apply(store: Store) -> None:
            # The successor of a dead writer does not repeat what that writer has done.
            if not isinstance(store, Versioned) or look(store.view()) != states[number + 1]:
                store.apply(commits[number](store))

        return apply

    return Scenario(files, tuple(map(step, range(len(commits)))), judge)


def _automatic() -> dict[str, bytes]:
    """Return an array whose chunks may become longer: their length was not requested."""
    files = dict(stored(0)._values)
    storage = json.loads(files["meta/storage"]) | {"x_chunklen": "auto"}
    return files | {"meta/storage": json.dumps(storage).encode()}


def _stale() -> dict[str, bytes]:
    """Return an array of 6 rows with a chunk too many, and a last chunk of 8 rows."""
    files = dict(stored(12)._values)
    return files | {"meta/sizes": b'{"shape": [6], "nbytes": 6, "cbytes": 6}'}


ARRAYS: dict[str, Scenario] = {
    "append to the last chunk": array(5, append(50, 51)),
    "append to an empty array": array(0, append(50, 51)),
    "append across chunks": array(6, append(50, 51, 52, 53)),
    "append behind a full chunk": array(4, append(50)),
    "append beside what was left": array(0, append(50, 51, 52), start=_stale()),
    "append, append": array(3, append(50), append(51)),
    "trim into a chunk": array(6, resize(5)),
    "trim chunks away": array(9, resize(3)),
    "trim to nothing": array(5, resize(0)),
    "append, trim, append": array(3, append(50, 51), resize(4), append(52)),
    "grow": array(3, resize(6)),
    "chunks become longer": array(0, append(50, 51, 52), start=_automatic()),
    "assign to one chunk": array(6, assign(slice(1, 3), 99)),
    "assign to two chunks": array(6, assign(slice(2, 6), 99)),
    "assign to three chunks": array(10, assign(slice(2, 9, 2), 99)),
    "describe": array(3, describe("one")),
}


def created() -> Scenario:
    """Return the scenario of a new array: there is nothing, or all of it."""

    def look(store: Store) -> object:
        keys = [Extent(key) for key in ("meta/sizes", "meta/storage", "__attrs__")]
        found = store.read(keys)
        if found.count(None) == len(found):
            return None
        return seen(store)

    def commit(store: Store) -> Commit:
        node, made = create_array(store, design(request(5)))
        assert isinstance(node.chunks, BcolzMap)
        data = engine(node.chunks).assign(parse(..., (5,)), [1, 2, 3, 4, 5])
        return Commit((*data.edits, *made.prepare), made.publish, made.cleanup)

    return _scenario({}, [commit], look)


TableChange = Callable[[BcolzTableMap], Commit]


def table(*steps: TableChange, rows: int = 3) -> Scenario:
    """Return the scenario of changes of a table of two columns."""
    store = MemoryStore()
    schema = {name: design(request(rows)) for name in ("a", "b")}
    node, commit = BcolzFormat().create_table(store, schema, {"of": "two"})
    store.apply(commit)
    for column in node.columns.values():
        assert isinstance(column, ArrayNode)
        values = np.arange(1, rows + 1)
        store.apply(engine(column.chunks).assign(parse(..., (rows,)), values))  # type: ignore[arg-type]
    commits = [lambda s, c=c: c(open_table(s)) for c in steps]
    return _scenario(dict(store._values), commits, seen_table)


def seen_table(store: Store) -> object:
    found = open_table(store)
    columns = {
        name: engine(column.chunks).read(parse(..., column.schema.shape)).tolist()  # type: ignore[union-attr, arg-type]
        for name, column in found.columns.items()
    }
    return list(columns.items()), dict(found.attrs)


def everywhere(change: Change, *, shrinking: bool = False) -> TableChange:
    def build(found: BcolzTableMap) -> Commit:
        commits = {
            name: change(engine(column.chunks))  # type: ignore[union-attr, arg-type]
            for name, column in found.columns.items()
        }
        return found.joined(commits, shrinking=shrinking)

    return build


def add(name: str, position: int | None = None) -> TableChange:
    def build(found: BcolzTableMap) -> Commit:
        _, column, commit = found.added(name, design(request(found.rows)), position)
        assert isinstance(column, ArrayNode)
        data = engine(column.chunks).assign(parse(..., (found.rows,)), 77)  # type: ignore[arg-type]
        return Commit((*commit.prepare, *data.edits), commit.publish, commit.cleanup)

    return build


def rename(old: str, new: str) -> TableChange:
    def build(found: BcolzTableMap) -> Commit:
        _, copies, commit = found.renamed(old, new)
        edits = [copied(found.store, source, key) for key, source in copies.items()]
        return Commit((*commit.prepare, *edits), commit.publish, commit.cleanup)

    return build


TABLES: dict[str, Scenario] = {
    "append": table(everywhere(append(50, 51))),
    "trim": table(everywhere(resize(1), shrinking=True)),
    "append, trim": table(everywhere(append(50)), everywhere(resize(2), shrinking=True)),
    "assign": table(everywhere(assign(slice(0, 2), 99))),
    "add": table(add("c")),
    "add in front": table(add("c", 0)),
    "drop": table(lambda found: found.dropped("a")[1]),
    "rename": table(rename("a", "z")),
    "drop, add": table(lambda found: found.dropped("b")[1], add("b")),
    "describe": table(lambda found: found.described({"of": "many"})[1]),
}


def old_rows(store: Store, path: str = "") -> list[int]:
    """Return the rows that bcolz reads: it knows no journal and no trailer.

    Chunks beyond the end do not count, and rows beyond it in the last one.
    """
    start = f"{path}/" if path else ""
    storage, sizes = store.read([Extent(start + "meta/storage"), Extent(start + "meta/sizes")])
    assert storage is not None
    assert sizes is not None
    length, chunklen = json.loads(sizes)["shape"][0], json.loads(storage)["chunklen"]
    rows: list[int] = []
    for number in range(-(-length // chunklen)):
        (data,) = store.read([Extent(f"{start}data/__{number}.blp")])
        assert data is not None
        end = 16 + int.from_bytes(data[28:32], "little")
        found = list(blosc.decompress(data[16:end]))
        wanted = min(chunklen, length - number * chunklen)
        assert len(found) >= wanted
        rows += found[:wanted]
    return rows


def old_table(store: Store) -> dict[str, list[int]]:
    """Return the rows that bcolz reads of a table: as many as its first column has."""
    (names,) = store.read([Extent("__rootdirs__")])
    assert names is not None
    columns: dict[str, Any] = {name: old_rows(store, name) for name in json.loads(names)["names"]}
    length = len(next(iter(columns.values())))
    assert all(len(rows) >= length for rows in columns.values())
    return {name: rows[:length] for name, rows in columns.items()}
