"""Changes of a file of variable-length items as users make them, and what readers see then."""

from collections.abc import Callable
from typing import Any

import numpy as np

import ingot
from ingot.engine.ragged import RaggedEngine
from ingot.errors import NotFoundError
from ingot.formats.varlen.format import VarlenFormat
from ingot.options import Options
from ingot.stores import LocalStore, MemoryStore, Store, read_state
from ingot.testing import Scenario

Change = Callable[[Any], object]
KEY = "data.blv"
NOISE = np.random.default_rng(7).integers(0, 256, 400).astype("u1").tobytes()


def items(count: int, first: int = 0) -> list[bytes]:
    """Return items of 9 bytes that no codec makes shorter."""
    return [NOISE[at : at + 9] for at in range(first, first + count)]


def changed(*changes: Change, start: int = 5, **layout: Any) -> Scenario:
    """Return the scenario of changes to items in packs of two or three."""
    model = MemoryStore()

    def make(store: Store, count: int) -> None:
        settings = {"pack_bytes": 30, "slots": 6, **layout}
        ingot.ragged(items(count), store, kind="bytes", format="varlen", **settings)

    if start:
        make(model, start)
    files = dict(model._values)
    states = [seen(model)]

    def apply(change: Change, store: Store, state: object) -> None:
        if state is None:
            make(store, 5)
        else:
            change(ingot.open(store, "r+", format="varlen"))

    for change in changes:
        apply(change, model, states[-1])
        states.append(seen(model))

    def judge(store: Store) -> int:
        found = seen(store)
        assert found in states, found
        return states.index(found)

    def step(number: int) -> Callable[[Store], None]:
        def act(store: Store) -> None:
            if read_state(store, judge) == number:
                apply(changes[number], store, states[number])
            else:
                # The successor of a writer that died finds the change made, and has to finish it.
                assert isinstance(store, LocalStore)
                store.recover()

        return act

    return Scenario(files, tuple(map(step, range(len(changes)))), judge)


def seen(store: Store) -> object:
    """Return all that a reader can see of the file; None if there is none."""
    try:
        node = VarlenFormat().open(store, KEY)
    except NotFoundError:
        return None
    engine = RaggedEngine(node.packs, Options())
    # Compacting changes nothing else.
    dead = node.packs.free_bytes().dead  # type: ignore[attr-defined]
    return engine.read(range(engine.shape[0])).to_list(), dict(node.schema.attrs), dead


def append(count: int, first: int = 50) -> Change:
    return lambda found: found.append(items(count, first))


def assign(place: int, item: bytes | None) -> Change:
    return lambda found: found.__setitem__(place, item)


def several(found: Any) -> None:
    with found.transaction():
        append(2)(found)
        found.attrs["n"] = 1
        found[0] = NOISE[60:100]
        found.delete(1)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "create": lambda: changed(lambda found: None, start=0),
    "append to the last pack": lambda: changed(append(1)),
    "append packs": lambda: changed(append(7)),
    "append twice": lambda: changed(append(2), append(2, 70)),
    "append without spare entries": lambda: changed(append(7), slots=0),
    "append single chunks": lambda: changed(append(2), packed=False),
    "replace in place": lambda: changed(assign(0, NOISE[100:109])),
    "replace at the end": lambda: changed(assign(0, NOISE[100:140])),
    "replace by null": lambda: changed(assign(1, None), packed=False),
    "replace several": lambda: changed(
        lambda found: found.__setitem__(slice(0, 4), [NOISE[at : at + 20] for at in range(4)])
    ),
    "delete": lambda: changed(lambda found: found.delete([0, 3])),
    "shrink": lambda: changed(lambda found: found.resize(1)),
    "grow": lambda: changed(lambda found: found.resize(8)),
    "attributes": lambda: changed(lambda found: found.attrs.update(n=1)),
    "attributes without room": lambda: changed(lambda found: found.attrs.update(n=NOISE.hex() * 3)),
    "compact": lambda: changed(assign(0, NOISE[100:140]), lambda found: found.compact(), append(2)),
    "more dead than not": lambda: changed(
        lambda found: found.__setitem__(0, NOISE[:60]), lambda found: found.resize(2)
    ),
    "a transaction": lambda: changed(several),
}
"""The scenarios; made when they are needed, while files of any length change in place."""
