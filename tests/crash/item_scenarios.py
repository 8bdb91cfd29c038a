"""Changes of variable-length items on their own as users make them, and what readers see then."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import ingot
from ingot.errors import NotFoundError
from ingot.stores import LocalStore, MemoryStore, Store, read_state
from ingot.testing import Scenario
from tests.lone_items import lone_items

Change = Callable[[Any], object]
NOISE = np.random.default_rng(7).integers(0, 256, 400).astype("u1").tobytes()
LAYOUTS: Mapping[str, dict[str, Any]] = {
    "varlen": {"pack_bytes": 30, "slots": 6},
    "bcolz": {},
    "blsk": {"superchunksize": 2},
}
"""The settings of the formats; packs have two or three items."""


def items(count: int, first: int = 0) -> list[bytes]:
    """Return items of 9 bytes that no codec makes shorter."""
    return [NOISE[at : at + 9] for at in range(first, first + count)]


def make(store: Store, count: int, format: str, **layout: Any) -> None:
    """Store items in a format."""
    settings = {**LAYOUTS[format], **layout}
    if format == "varlen":
        ingot.ragged(items(count), store, kind="bytes", format=format, **settings)
    else:
        lone_items(items(count), store, format, 3, "bytes", **settings)


def changed(*changes: Change, start: int = 5, format: str = "varlen", **layout: Any) -> Scenario:
    """Return the scenario of changes to items in packs of two or three."""
    model = MemoryStore()
    if start:
        make(model, start, format, **layout)
    return scenario(dict(model._values), changes, format, **layout)


def scenario(
    files: Mapping[str, bytes], changes: tuple[Change, ...], format: str, **layout: Any
) -> Scenario:
    """Return the scenario of changes to the items in some files, which it makes where none are."""
    model = MemoryStore(files)
    states = [seen(model, format)]

    def apply(change: Change, store: Store, state: object) -> None:
        if state is None:
            make(store, 5, format, **layout)
        else:
            change(ingot.open(store, "r+", format=format))

    for change in changes:
        apply(change, model, states[-1])
        states.append(seen(model, format))

    def judge(store: Store) -> int:
        found = seen(store, format)
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


def seen(store: Store, format: str) -> object:
    """Return all that a reader can see of the items; None if there are none."""
    try:
        found = ingot.open(store, format=format)
    except NotFoundError:
        return None
    assert isinstance(found, ingot.Ragged)
    # In varlen, compacting changes nothing else. In blsk, a crash leaves bytes behind.
    dead = found.dead_bytes if format == "varlen" else None
    return found.items().to_list(), dict(found.attrs), dead


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


def assign_and_compact(found: Any) -> None:
    with found.transaction():
        found[1] = NOISE[110:119]
        found.compact()


def refit(found: Any) -> None:
    """Append items that are so much longer that packs get another length."""
    found.append([NOISE * 400] * 3)


def unfinished(format: str) -> Scenario:
    """Return the scenario of an append behind items of another one, which was not committed."""
    model = MemoryStore()
    make(model, 10, format)
    key, ten, five = (
        ("meta/nrows", b"10\n", b"5\n") if format == "blsk" else ("meta/sizes", b"[10]", b"[5]")
    )
    files = {**model._values, key: model._values[key].replace(ten, five)}
    assert files[key] != model._values[key]
    return scenario(files, (append(3), assign(4, NOISE[100:140]), append(4, 80)), format)


def automatic(format: str) -> Scenario:
    """Return the scenario of an append that changes the length of packs."""
    model = MemoryStore()
    ingot.ragged(items(5), model, kind="bytes", format=format)
    return scenario(dict(model._values), (append(2), refit), format)


def _common(format: str) -> dict[str, Callable[[], Scenario]]:
    """Return the changes that all formats have."""

    def each(*changes: Change, **settings: Any) -> Callable[[], Scenario]:
        return lambda: changed(*changes, format=format, **settings)

    return {
        "create": each(lambda found: None, start=0),
        "append to the last pack": each(append(1)),
        "append packs": each(append(7)),
        "append twice": each(append(2), append(2, 70)),
        "replace in place": each(assign(0, NOISE[100:109])),
        "replace at the end": each(assign(0, NOISE[100:140])),
        "replace several": each(
            lambda found: found.__setitem__(slice(0, 4), [NOISE[at : at + 20] for at in range(4)])
        ),
        "delete": each(lambda found: found.delete([0, 3])),
        "shrink": each(lambda found: found.resize(1)),
        "grow": each(lambda found: found.resize(8)),
        "attributes": each(lambda found: found.attrs.update(n=1)),
        "a transaction": each(several),
    }


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    **_common("varlen"),
    "append without spare entries": lambda: changed(append(7), slots=0),
    "append single chunks": lambda: changed(append(2), packed=False),
    "replace by null": lambda: changed(assign(1, None), packed=False),
    "attributes without room": lambda: changed(lambda found: found.attrs.update(n=NOISE.hex() * 3)),
    "compact": lambda: changed(assign(0, NOISE[100:140]), lambda found: found.compact(), append(2)),
    "more dead than not": lambda: changed(
        lambda found: found.__setitem__(0, NOISE[:60]), lambda found: found.resize(2)
    ),
}
"""The scenarios of files; made when they are needed, while files of any length change in place."""

LONE: dict[str, Callable[[], Scenario]] = {
    f"{format}: {name}": make_scenario
    for format in ("bcolz", "blsk")
    for name, make_scenario in {
        **_common(format),
        "replace by null": lambda format=format: changed(assign(1, None), format=format),
        "append behind what was not committed": lambda format=format: unfinished(format),
        "append, which refits packs": lambda format=format: automatic(format),
    }.items()
}
"""The scenarios of items on their own in the formats of columns."""

LONE["blsk: compact"] = lambda: changed(
    assign(0, NOISE[100:140]), assign_and_compact, append(2), format="blsk"
)
