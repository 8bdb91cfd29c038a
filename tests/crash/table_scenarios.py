"""Every operation of a table, and what the table holds after each."""

from collections.abc import Callable
from typing import Any

import numpy as np

import ingot
from ingot.stores import LocalStore, MemoryStore, Store
from ingot.testing import Scenario

Change = Callable[[ingot.Table], object]


def columns(rows: int, first: int = 0) -> dict[str, Any]:
    """Return two columns."""
    numbers = np.arange(first, first + rows)
    return {"a": numbers.astype("i2"), "b": (numbers * 3).astype("u1")}


def nested(rows: int) -> dict[str, Any]:
    """Return a column, and another in a nested table."""
    found = columns(rows)
    return {"a": found["a"], "p": {"b": found["b"]}}


def table(
    rows: int,
    *changes: Change,
    chunks: int | str = 4,
    start: Callable[[int], dict[str, Any]] = columns,
    format: str | None = None,
) -> Scenario:
    """Return the scenario of changes of a table; what each leads to, one in memory says.

    The judge opens the table and reads all of it.
    """
    first = MemoryStore()
    ingot.table(start(rows), first, chunks=chunks, attrs={"step": 0}, format=format)
    files = dict(first._values)
    model = MemoryStore(files)
    states = [seen(model)]
    for change in changes:
        change(opened(model, "r+"))
        states.append(seen(model))

    def judge(store: Store) -> int:
        found = seen(store)
        assert found in states, found
        return states.index(found)

    def step(number: int, change: Change) -> Callable[[Store], None]:
        def take(store: Store) -> None:
            assert isinstance(store, LocalStore)
            store.recover()
            # The successor of a dead writer takes the step only if that writer has not.
            if judge(store) <= number:
                change(opened(store, "r+"))

        return take

    return Scenario(files, tuple(step(*pair) for pair in enumerate(changes)), judge)


def opened(store: Store, mode: str) -> ingot.Table:
    found = ingot.open(store, mode)  # type: ignore[arg-type]
    assert isinstance(found, ingot.Table)
    return found


def seen(store: Store) -> object:
    """Return all that a reader sees; columns of different lengths are an error by themselves."""
    found = opened(store, "r")
    values = {name: column.tolist() for name, column in found.read().items()}
    attrs = {name: dict(found[name].attrs) for name in found.names}
    return values, dict(found.attrs), attrs


def append(rows: int, first: int = 100) -> Change:
    return lambda found: found.append(columns(rows, first))


def transact(found: ingot.Table) -> None:
    with found.transaction():
        found.append(columns(1, 50))
        found.delete(1)
        found["a"][0] = 77
        found.attrs["step"] = 1


def replace(found: ingot.Table) -> None:
    with found.transaction():
        found.resize(0)
        found.append(columns(3, 30))


def with_nulls(rows: int) -> dict[str, Any]:
    """Return two columns, the first of which has nulls."""
    found = columns(rows)
    return {**found, "a": np.ma.MaskedArray(found["a"], np.arange(rows) % 2 == 1)}


def single(rows: int) -> dict[str, Any]:
    """Return one column: a commit of few files has few crashes."""
    return {"a": columns(rows)["a"]}


def texts(rows: int, first: int = 0) -> dict[str, Any]:
    """Return a column of numbers, and one of text of several lengths with nulls."""
    words = [f"text {n}" * (n % 4) if n % 3 else None for n in range(first, first + rows)]
    return {**columns(rows, first), "b": words}


def append_texts(rows: int, first: int = 100) -> Change:
    return lambda found: found.append(texts(rows, first))


def retype(found: ingot.Table) -> None:
    with found.transaction():
        found.retype("a", "utf8")
        # The values are the same, so that another state says what a reader sees.
        found.attrs["step"] = 1


def overwrite(found: ingot.Table) -> None:
    ingot.table({"a": columns(2, 40)["b"]}, found._handle.store, overwrite=True)


TABLES: dict[str, Scenario] = {
    "append text": table(6, append_texts(1), start=texts),
    "append text, which refits packs": table(
        3, lambda found: found.append({"a": [7], "b": ["x" * 20_000]}), start=texts, chunks="auto"
    ),
    "delete rows with text": table(6, lambda found: found.delete([0, 4]), start=texts),
    "retype": table(2, retype, start=lambda rows: {"a": np.array(["ab", "c"])}),
    "append": table(6, append(1)),
    "append to nothing": table(0, append(3)),
    "append over chunks": table(3, append(2)),
    "append, append": table(3, append(1), append(1, 200)),
    "trim": table(6, lambda found: found.resize(5)),
    "trim chunks": table(9, lambda found: found.resize(2)),
    "trim, then append": table(3, lambda found: found.resize(2), append(1)),
    "grow": table(2, lambda found: found.resize(5)),
    "update": table(6, lambda found: found.update("a >= 4", {"a": -1, "b": 9})),
    "assign to a column": table(6, lambda found: found["a"].__setitem__(slice(None), 5)),
    "delete": table(5, lambda found: found.delete([1, 3])),
    "delete the last": table(5, lambda found: found.delete(4)),
    "delete all": table(5, lambda found: found.delete(slice(None))),
    "add a column": table(3, lambda found: found.add_column("c", np.arange(3, dtype="u1"))),
    "drop a column": table(5, lambda found: found.drop_column("b")),
    "drop the first": table(5, lambda found: found.drop_column("a")),
    "rename": table(3, lambda found: found.rename_column("a", "z")),
    "attributes": table(3, lambda found: found.attrs.update(step=1)),
    "attributes of a column": table(3, lambda found: found["a"].attrs.update(unit="m")),
    "transaction": table(3, transact),
    "replaced in a transaction": table(5, replace),
    "replaced by another": table(2, overwrite),
    "add a nested column": table(
        2, lambda found: found.add_column("p.c", np.arange(2, dtype="u1")), start=nested
    ),
    "drop a nested table": table(2, lambda found: found.drop_column("p"), start=nested),
    "rename a nested column": table(
        1, lambda found: found.rename_column("p.b", "p.z"), start=nested
    ),
    "a value for a null": table(
        5, lambda found: found.update("isnull(a)", {"a": 9}), start=with_nulls
    ),
    "attributes of a nested table": table(
        2, lambda found: found["p"].attrs.update(unit="m"), start=nested
    ),
}

FIRST_NULLS: dict[str, Scenario] = {
    "append to blsk": table(
        1, lambda found: found.append({"a": [None]}), start=single, format="blsk"
    ),
    "rename": table(1, lambda found: found.rename_column("a", "z"), start=with_nulls),
    "drop": table(2, lambda found: found.drop_column("a"), start=with_nulls),
    "update": table(1, lambda found: found.update(0, {"a": None}), start=single),
}
"""Commits that make, move and remove the hidden column of a column with nulls."""
