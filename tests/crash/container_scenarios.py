"""Changes of arrays and groups as users make them, and what readers see after each."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ingot
from ingot.engine.payload import engine_of
from ingot.errors import NotFoundError
from ingot.formats.format import ArrayNode, Format
from ingot.formats.paths import joined
from ingot.formats.zarr.v0 import Zarr0Format
from ingot.formats.zarr.v1 import Zarr1Format
from ingot.formats.zarr.v2_groups import Zarr2GroupFormat
from ingot.formats.zarr.v3_groups import Zarr3GroupFormat
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import LocalStore, MemoryStore, Store, read_state
from ingot.testing import Scenario

Change = Callable[[Any], object]


def changed(format: Format, start: Change, *changes: Change) -> Scenario:
    """Return the scenario of some changes to what `start` makes in an empty store.

    A change is given the dataset, opened for it, or the store while that holds none. The judge
    opens every node and reads it.
    """
    model = MemoryStore()
    start(model)
    files = dict(model._values)
    states = [seen(format, model)]
    for change in changes:
        change(ingot.open(model, "r+") if states[-1] else model)
        states.append(seen(format, model))

    def judge(store: Store) -> int:
        found = seen(format, store)
        assert found in states, found
        return states.index(found)

    def step(number: int) -> Callable[[Store], None]:
        def act(store: Store) -> None:
            if read_state(store, judge) == number:
                changes[number](ingot.open(store, "r+") if states[number] else store)
            else:
                # The successor of a writer that died finds the change made, and has to finish it.
                assert isinstance(store, LocalStore)
                store.recover()

        return act

    return Scenario(files, tuple(map(step, range(len(changes)))), judge)


def seen(format: Format, store: Store) -> dict[str, object]:
    """Return all that a reader can see of a dataset, nothing if there is none."""
    try:
        return dict(_seen(format, store, ""))
    except NotFoundError:
        return {}


def _seen(format: Format, store: Store, path: str) -> Iterator[tuple[str, object]]:
    node = format.open(store, path)
    if isinstance(node, ArrayNode):
        schema = node.schema
        items = engine_of(node.chunks, Options()).read(parse(..., schema.shape))
        yield path, (schema.shape, dict(schema.attrs), items.tolist())
        return
    yield path, dict(node.attrs)  # type: ignore[union-attr]
    for name in format.children(store, path):  # type: ignore[attr-defined]
        yield from _seen(format, store, joined(path, name))
    copies = format.compare_consolidated(store, path)  # type: ignore[attr-defined]
    if copies is not None:
        yield f"{path}: copies", copies.current


def array(format: str, *changes: Change) -> Scenario:
    """Return the scenario of changes to an array of three chunks."""
    formats = {"zarr0": Zarr0Format(), "zarr1": Zarr1Format()}

    def start(store: Store) -> None:
        ingot.array(np.arange(1, 11, dtype="u1"), store, chunks=4, fill=7, format=format)

    return changed(formats[format], start, *changes)


def created(format: Format, change: Change) -> Scenario:
    """Return the scenario of a dataset that is created."""
    return changed(format, lambda store: None, change)


HIERARCHIES = {"zarr2": Zarr2GroupFormat(), "zarr3": Zarr3GroupFormat()}


def group(format: str, *changes: Change, copies: bool = False) -> Scenario:
    """Return the scenario of changes to a group of an array, and a group with another one."""

    def start(store: Store) -> None:
        root = ingot.group(store, attrs={"title": "sample"}, format=format)
        root.array("a", np.arange(6, dtype="u1"), chunks=4, codec="none")
        root.array("g/b", np.arange(3, dtype="u1"), codec="none")
        if copies:
            root.consolidate()

    return changed(HIERARCHIES[format], start, *changes)


def _assign(selection: slice, value: int) -> Change:
    return lambda dataset: dataset.__setitem__(selection, value)


def _delete(name: str) -> Change:
    return lambda root: root.__delitem__(name)


def groups(format: str) -> dict[str, Scenario]:
    """Return the scenarios of groups, in one format."""
    return {
        f"{format} group: created": created(
            HIERARCHIES[format], lambda store: ingot.group(store, attrs={"n": 1}, format=format)
        ),
        f"{format} group: attributes": group(format, lambda root: root.attrs.update(n=1)),
        f"{format} group: attributes and copies": group(
            format, lambda root: root.attrs.update(n=1), copies=True
        ),
        f"{format} group: attributes of a member, and copies": group(
            format, lambda root: root["g/b"].attrs.update(n=1), copies=True
        ),
        f"{format} group: append to a member, and copies": group(
            format, lambda root: root["a"].append([1, 2, 3]), copies=True
        ),
        f"{format} group: two members": group(
            format,
            lambda root: root["a"].append([1, 2, 3]),
            lambda root: root["g"]["b"].append([4]),
        ),
        f"{format} group: a new array": group(
            format, lambda root: root.array("c", [1, 2], codec="none")
        ),
        f"{format} group: a new array in new groups": group(
            format, lambda root: root.array("n/m/c", [1, 2], codec="none", attrs={"n": 1})
        ),
        f"{format} group: a new group, and copies": group(
            format, lambda root: root.group("n/m"), copies=True
        ),
        f"{format} group: an array replaced": group(
            format, lambda root: root.array("a", [1, 2], codec="none", overwrite=True)
        ),
        f"{format} group: an array deleted": group(format, _delete("a")),
        f"{format} group: a group deleted": group(format, _delete("g")),
        f"{format} group: a group deleted, and copies": group(format, _delete("g"), copies=True),
        f"{format} group: deleted, and there again": group(
            format, _delete("a"), lambda root: root.create_array("a", shape=6, dtype="u1", chunks=4)
        ),
        f"{format} group: copies": group(format, lambda root: root.consolidate()),
    }


CONTAINERS: dict[str, Scenario] = {
    **{
        f"{format}: {name}": array(format, *changes)
        for format in ("zarr0", "zarr1")
        for name, changes in {
            "one chunk": [_assign(slice(0, 4), 9)],
            "two chunks": [_assign(slice(2, 6), 9)],
            "attributes": [lambda array: array.attrs.update(n=1)],
            "append": [lambda array: array.append(np.full(5, 9))],
            "shrink, then grow": [lambda array: array.resize(3), lambda array: array.resize(11)],
        }.items()
    },
    "zarr0: created": created(
        Zarr0Format(),
        lambda store: ingot.create(store, shape=3, dtype="u1", attrs={"n": 1}, format="zarr0"),
    ),
    "zarr0: created with data": created(
        Zarr0Format(), lambda store: ingot.array([1, 2, 3], store, chunks=2, format="zarr0")
    ),
    "zarr1: created with data": created(
        Zarr1Format(), lambda store: ingot.array([1, 2, 3], store, chunks=2, format="zarr1")
    ),
    **groups("zarr2"),
    **groups("zarr3"),
}
