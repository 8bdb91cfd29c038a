"""Commits on plain keys and on arrays, and what the store holds after each."""

from collections.abc import Mapping, Sequence

import numpy as np

from ingot.codecs.codec import CodecChain
from ingot.formats.zarr.v2 import Zarr2Format, Zarr2Map
from ingot.schema import ArraySchema
from ingot.stores import (
    Commit,
    Delete,
    Durability,
    Edit,
    Extent,
    MemoryStore,
    Move,
    Patch,
    Put,
    Store,
    Truncate,
)
from ingot.stores.store import extend
from ingot.stores.versions import writing
from ingot.testing import Scenario

Content = Mapping[str, bytes]


def plain(
    files: Content, *commits: Commit, hidden: Sequence[str] = (), durability: Durability = "full"
) -> Scenario:
    """Return the scenario of some commits; what each leads to, a store in memory says.

    Keys in `hidden` may hold anything: the committed state does not reach them.
    """
    model = MemoryStore(files)
    keys = sorted({edit.key for commit in commits for edit in commit.edits} | set(files))
    keys = [key for key in keys if key not in hidden]
    states = [model.read([Extent(key) for key in keys])]
    for commit in commits:
        model.apply(commit)
        states.append(model.read([Extent(key) for key in keys]))

    def judge(store: Store) -> int:
        found = store.read([Extent(key) for key in keys])
        assert found in states, found
        return states.index(found)

    def step(commit: Commit) -> object:
        return lambda store: store.apply(commit, durability=durability)

    return Scenario(files, tuple(map(step, commits)), judge)  # type: ignore[arg-type]


def puts(count: int, value: bytes, folder: str = "") -> Commit:
    return Commit(publish=tuple(Put(f"{folder}{n}", value + b"%d" % n) for n in range(count)))


def filled(count: int, value: bytes, folder: str = "") -> dict[str, bytes]:
    return {f"{folder}{n}": value + b"%d" % n for n in range(count)}


LARGE = b"new" * 1400  # More than a journal carries.
MIXED = Commit(
    publish=(Put("0", b"small"), Delete("b"), Put("d", b"!"), Put("f/a", LARGE), Put("f/c", b"x"))
)
OLD = {"0": b"old", "f/a": b"old", "b": b"old", "f/c": b"old"}

ROWS = {"d/0": b"0123456789", "d/1": b"abcde", "d/9": b"stray", "m/sizes": b"15"}
APPEND = Commit(
    prepare=(Put("d/1", b"abcdefghij"), Put("d/2", b"ABCDE")),
    publish=(Put("m/sizes", b"25"),),
    cleanup=(Delete("d/9"),),
)
TRIM = Commit(publish=(Put("m/sizes", b"10"),), cleanup=(Delete("d/1"), Delete("d/2")))
AGAIN = Commit(
    prepare=(Put("d/1", b"zyxwvuts"), Delete("d/2")),
    publish=(Put("m/sizes", b"18"),),
)


def rows(*commits: Commit) -> Scenario:
    """Return the scenario of rows in chunks of ten, of which as many count as a file says."""
    model = MemoryStore(ROWS)

    def seen(store: Store) -> object:
        length, *chunks = store.read([Extent(key) for key in ("m/sizes", "d/0", "d/1", "d/2")])
        assert length is not None
        data = b"".join((chunk or b"").ljust(10, b".")[:10] for chunk in chunks)
        return data[: int(length)]

    states = [seen(model)]
    for commit in commits:
        model.apply(commit)
        states.append(seen(model))

    def judge(store: Store) -> int:
        found = seen(store)
        assert found in states, found
        return states.index(found)

    steps = tuple(lambda store, commit=commit: store.apply(commit) for commit in commits)
    return Scenario(ROWS, steps, judge)


def frame(
    *bodies: str, late: bool = False, both: bool = False, durability: Durability = "full"
) -> Scenario:
    """Return the scenario of a single file whose body becomes each of some others.

    Its first four bytes say how far its state reaches; what lies behind that is not read. What a
    body has more than the last is written behind the end, what it has less is cut off, with the
    header or `late`, after it. Other bytes are changed in place, together with another key, which
    changes each time if `both`.
    """
    files = {"x.frame": b"0012abcdefgh", "other": b"abcdefgh"}

    def seen(store: Store) -> object:
        head, other = store.read([Extent("x.frame", 0, 4), Extent("other")])
        assert head is not None
        (body,) = store.read([Extent("x.frame", 4, int(head) - 4)])
        assert body is not None
        assert len(body) == int(head) - 4, (head, body)
        return body, other

    def change(store: Store, new: bytes) -> None:
        with writing(store, durability=durability) as turn:
            (head,) = turn.store.read([Extent("x.frame", 0, 4)])
            assert head is not None
            end, after = int(head), len(new) + 4
            (old,) = turn.store.read([Extent("x.frame", 4, end - 4)])
            header: tuple[Edit, ...] = (Patch("x.frame", 0, b"%04d" % after),)
            common = min(len(new), end - 4)
            if old is not None and old[:common] != new[:common]:
                header += (Patch("x.frame", 4, new[:common]),)
            if both or (old is not None and old[:common] != new[:common]):
                header += (Put("other", new),)
            if after > end:
                # The bytes of a dead writer lie behind `end`, if any.
                pieces = new[common : common + 2], new[common + 2 :]
                grown = extend(turn.store, "x.frame", pieces, end=end)
                turn.commit(Commit(prepare=(grown,), publish=header))
                return
            cut = (Truncate("x.frame", after),) if after < end else ()
            turn.commit(Commit(publish=header + (() if late else cut), cleanup=cut if late else ()))

    model = MemoryStore(files)
    states = [seen(model)]
    for body in bodies:
        change(model, body.encode())
        states.append(seen(model))

    def judge(store: Store) -> int:
        found = seen(store)
        assert found in states, found
        return states.index(found)

    steps = tuple(lambda store, body=body: change(store, body.encode()) for body in bodies)
    return Scenario(files, steps, judge)


FRAMES: dict[str, Scenario] = {
    "appended": frame("abcdefghijkl"),
    "appended twice": frame("abcdefghijkl", "abcdefghijklMNOPQ"),
    "shrunk": frame("abcde"),
    "shrunk, then appended": frame("abcde", "abcdeFGHIJK"),
    "shrunk late, then appended": frame("abcde", "abcdeFGHIJK", late=True),
    "changed in place, then shrunk": frame("!?cdefgh", "!?cde"),
    "appended, changed, shrunk": frame("abcdefghijkl", "abcdEFghijkl", "abcdEF", late=True),
    "changed and appended": frame("!?cdefghijkl"),
    "appended with a key": frame("abcdefghijkl", "abcdefghijklMNOPQ", both=True),
    "shrunk, then appended with a key": frame("abcde", "abcdeFGHIJK", both=True),
}


def slots(*values: bytes) -> Scenario:
    """Return the scenario of a file whose first word says where its value of eight bytes lies.

    There is room for two of them: each change writes to the other one, then the word.
    """
    files = {"x": b"%08d%08d%s%s" % (16, 0, b"a" * 8, b"-" * 8)}

    def seen(store: Store) -> bytes:
        (data,) = store.read([Extent("x")])
        assert data is not None
        assert len(data) == 32
        return data[int(data[:8]) :][:8]

    def change(store: Store, new: bytes) -> None:
        with writing(store) as turn:
            (word,) = turn.store.read([Extent("x", 0, 8)])
            place = 40 - int(word or b"")
            free = Patch("x", place, new, free=True)
            turn.commit(Commit(prepare=(free,), publish=(Patch("x", 0, b"%08d" % place),)))

    states = [b"a" * 8, *values]

    def judge(store: Store) -> int:
        return states.index(seen(store))

    steps = tuple(lambda store, value=value: change(store, value) for value in values)
    return Scenario(files, steps, judge)


PLAIN: dict[str, Scenario] = {
    "one word": plain({"a": b"0123456789abcdef!"}, Commit(publish=(Patch("a", 8, b"ABCDEFGH"),))),
    "a part of a word": plain({"a": b"0123456789abcd"}, Commit(publish=(Patch("a", 11, b"xyz"),))),
    "a slot": slots(b"b" * 8),
    "slots that are used again": slots(b"b" * 8, b"c" * 8, b"d" * 8),
    "one key": plain({"a": b"old"}, Commit(publish=(Put("a", b"newer"),))),
    "one new key": plain({}, Commit(publish=(Put("f/g/a", b"new"),))),
    "one removed": plain({"a": b"old"}, Commit(publish=(Delete("a"),))),
    "one moved": plain(
        {"a": b"old"},
        Commit(prepare=(Put(".g-1-a", b"staged"),), publish=(Move(".g-1-a", "a"),)),
        hidden=[".g-1-a"],
    ),
    "two keys": plain(filled(2, b"old"), puts(2, b"new")),
    "two new folders": plain(
        {}, Commit(publish=(Put("f/a", b"1"), Put("g/h/b", b"2"), Put("c", b"3")))
    ),
    "three keys": plain(filled(3, b"old", "f/"), puts(3, b"new", "f/")),
    "two large keys": plain(filled(2, b"old"), puts(2, LARGE)),
    "large and small keys": plain(OLD, MIXED),
    "five keys": plain(filled(5, b"old"), puts(5, b"new")),
    "written, removed, patched": plain(
        {"a": b"old", "b": b"old", "f/c": b"0123456789", "d": b"same"},
        Commit(
            publish=(
                Put("a", b"new"),
                Delete("b"),
                Patch("f/c", 8, b"abcdef"),
                Patch("f/c", 0, b"xyz"),
                Delete("absent"),
            )
        ),
    ),
    "one patched": plain({"a": b"0123456789"}, Commit(publish=(Patch("a", 4, b"abcdefgh"),))),
    "one moved, others written": plain(
        filled(2, b"old"),
        Commit(
            prepare=(Put(".g-1-0", b"stag"), Patch(".g-1-0", 4, b"ed")),
            publish=(Move(".g-1-0", "0"), Put("1", b"new")),
        ),
        hidden=[".g-1-0"],
    ),
    "one truncated": plain({"a": b"0123456789"}, Commit(publish=(Truncate("a", 4),))),
    "truncated and patched, another written": plain(
        {"f/a": b"0123456789", "b": b"old"},
        Commit(
            publish=(
                Truncate("f/a", 6),
                Patch("f/a", 6, b"xy"),
                Patch("f/a", 0, b"-"),
                Put("b", b"new"),
            )
        ),
    ),
    "truncated, then grown": plain(
        {"a": b"0123456789"},
        Commit(publish=(Truncate("a", 4),)),
        Commit(publish=(Patch("a", 4, b"abcdefgh"),)),
    ),
    "append": rows(APPEND),
    "append, then trim": rows(APPEND, TRIM),
    "append, trim, append": rows(APPEND, TRIM, AGAIN),
    "many keys, then one of them": plain(
        filled(2, b"old", "f/"), puts(2, b"new", "f/"), Commit(publish=(Put("f/1", b"last"),))
    ),
    "many keys, then one of them removed": plain(
        filled(2, b"old"), puts(2, b"new"), Commit(publish=(Delete("1"),))
    ),
    "removed, then back": plain(
        filled(3, b"old"),
        Commit(publish=(Delete("0"), Put("1", b"new"))),
        Commit(publish=(Put("0", b"back"),)),
    ),
    "patched, then replaced": plain(
        {"a": b"0123456789", "f/b": b"old"},
        Commit(publish=(Patch("a", 2, b"abc"), Put("f/b", b"new"))),
        Commit(publish=(Put("a", b"whole"),)),
    ),
    "in folders, then more of them": plain(
        {"f/0": b"old"},
        Commit(publish=(Put("f/0", b"new"), Put("g/0", b"new"))),
        Commit(publish=(Put("g/0", b"last"), Put("h/0", b"last"), Delete("f/0"))),
    ),
}


def array(
    shape: tuple[int, ...], changes: Sequence[object], *, separator: str = ".", chunk: int = 4
) -> Scenario:
    """Return the scenario of changes of a Zarr array: a shape, attributes, or chunks by number.

    The judge opens the array and reads all chunks of it, as a reader of the format does.
    """
    schema = ArraySchema(shape, np.dtype("u1"), (chunk,) * len(shape), CodecChain(), 0)
    start = MemoryStore()
    _, commit = Zarr2Format().create(start, schema, dimension_separator=separator)
    start.apply(commit)
    chunks = _map(start)
    count = chunks.schema.grid.counts[0]
    start.apply(chunks.stage({(n,): bytes([n + 1]) * chunk for n in range(count)}))

    model, states = MemoryStore(_content(start)), [_seen(start)]
    for change in changes:
        model.apply(_commit(_map(model), change))
        states.append(_seen(model))

    def judge(store: Store) -> int:
        found = _seen(store)
        assert found in states, found
        return states.index(found)

    steps = tuple(
        lambda store, change=change: store.apply(_commit(_map(store), change)) for change in changes
    )
    return Scenario(_content(start), steps, judge)


def _commit(chunks: Zarr2Map, change: object) -> Commit:
    if isinstance(change, tuple):
        return chunks.resized(change)[1]
    if isinstance(change, str):
        return chunks.described({"note": change})[1]
    assert isinstance(change, dict)
    return chunks.stage(change)


def _map(store: Store) -> Zarr2Map:
    chunks = Zarr2Format().open(store).chunks  # type: ignore[union-attr]
    assert isinstance(chunks, Zarr2Map)
    return chunks


def _seen(store: Store) -> object:
    chunks = _map(store)
    grid = chunks.schema.grid
    keys = [chunks.template.key((n,)) for n in range(grid.counts[0])]
    return chunks.schema.shape, dict(chunks.schema.attrs), store.read([Extent(k) for k in keys])


def _content(store: MemoryStore) -> dict[str, bytes]:
    return dict(store._values)


def _cells(*numbers: int, value: int = 7) -> dict[tuple[int, ...], bytes | None]:
    return {(n,): bytes([value]) * 4 for n in numbers}


ARRAYS: dict[str, Scenario] = {
    "one chunk": array((12,), [_cells(1)]),
    "two chunks": array((12,), [_cells(0, 2)]),
    "three chunks": array((12,), [_cells(0, 1, 2)]),
    "four chunks": array((16,), [_cells(0, 1, 2, 3)]),
    "five chunks": array((20,), [_cells(0, 1, 2, 3, 4)]),
    "chunks erased": array((12,), [{(0,): None, (1,): b"full", (2,): None}]),
    "grow": array((8,), [(16,)]),
    "shrink": array((16,), [(6,)]),
    "shrink, then grow": array((16,), [(6,), (14,)]),
    "attributes": array((8,), ["one", "two"]),
    "chunks, then others": array((12,), [_cells(0, 1), _cells(1, 2, value=9)]),
    "chunks, then one": array((12,), [_cells(0, 1), _cells(1, value=9)]),
    "grow, then fill": array((8,), [(16,), _cells(2, 3)]),
    "shrink, grow, fill": array((12,), [(4,), (12,), _cells(1, 2)]),
}
