"""Changes of a Bloscpack file as users make them, and what readers see after each."""

from collections.abc import Callable
from typing import Any

import numpy as np

import ingot
from ingot.engine.payload import engine_of
from ingot.errors import NotFoundError
from ingot.formats.bloscpack.format import BloscpackFormat
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import LocalStore, MemoryStore, Store, read_state
from ingot.testing import Scenario

Change = Callable[[Any], object]
KEY = "data.blp"
NOISE = np.random.default_rng(7).integers(0, 256, 200).astype("u1")


def changed(*changes: Change, start: int = 50) -> Scenario:
    """Return the scenario of changes to an array of bytes in chunks of 20."""
    model = MemoryStore()
    if start:
        made(model, start)
    files = dict(model._values)
    states = [seen(model)]
    for change in changes:
        change(opened(model) if states[-1] is not None else model)
        states.append(seen(model))

    def judge(store: Store) -> int:
        found = seen(store)
        assert found in states, found
        return states.index(found)

    def step(number: int) -> Callable[[Store], None]:
        def act(store: Store) -> None:
            if read_state(store, judge) == number:
                changes[number](opened(store) if states[number] is not None else store)
            else:
                # The successor of a writer that died finds the change made, and has to finish it.
                assert isinstance(store, LocalStore)
                store.recover()

        return act

    return Scenario(files, tuple(map(step, range(len(changes)))), judge)


def made(store: Store, length: int) -> None:
    ingot.array(NOISE[:length], store, chunks=20, format="bloscpack", checksum="crc32")


def opened(store: Store) -> Any:
    return ingot.open(store, "r+", format="bloscpack")


def seen(store: Store) -> object:
    """Return all that a reader can see of the file; None if there is none."""
    try:
        node = BloscpackFormat().open(store, KEY)
    except NotFoundError:
        return None
    items = engine_of(node.chunks, Options()).read(parse(..., node.schema.shape))
    return items.tolist(), dict(node.schema.attrs)


def append(count: int) -> Change:
    return lambda array: array.append(NOISE[len(array) : len(array) + count])


def assign(place: int) -> Change:
    return lambda array: array.__setitem__(place, 255 - NOISE[place])


def describe(**attrs: Any) -> Change:
    return lambda array: array.attrs.update(attrs)


def appended_twice(array: Any) -> None:
    with array.transaction():
        append(15)(array)
        array.attrs["n"] = 1
        append(30)(array)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "create": lambda: changed(lambda store: made(store, 50), start=0),
    "append in the last chunk": lambda: changed(append(5)),
    "append chunks": lambda: changed(append(45)),
    "append behind a full chunk": lambda: changed(append(30), start=40),
    "append twice": lambda: changed(append(25), append(25)),
    "append to little": lambda: changed(append(25), start=1),
    "attributes": lambda: changed(describe(n=1)),
    "attributes without room": lambda: changed(describe(n=NOISE.tobytes().hex() * 3)),
    "attributes, then append": lambda: changed(describe(n=1), append(25)),
    "assign": lambda: changed(assign(25)),
    "shrink": lambda: changed(lambda array: array.resize(33)),
    "append, then shrink": lambda: changed(append(25), lambda array: array.resize(33)),
    "a transaction": lambda: changed(appended_twice),
}
"""The scenarios; made when they are needed, while files of any length grow in place."""
