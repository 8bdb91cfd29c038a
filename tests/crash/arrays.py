"""Operations on arrays, each beside what NumPy makes of it, as scenarios for the proofs.

A format plugs in by the keywords with which `ingot.create` makes an array of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import ingot
from ingot import Array
from ingot.stores import MemoryStore, Store
from ingot.stores.versions import read_state, writing
from ingot.testing import Scenario

Model = tuple[np.ndarray, dict[str, Any]] | None
"""Items and attributes; None where no array is."""


@dataclass(frozen=True, slots=True)
class ArrayScenario(Scenario):
    """A scenario with what the array is before and after each of its steps."""

    models: tuple[Model, ...]

    def find(self, items: np.ndarray, attrs: Mapping[str, Any] | None = None) -> int:
        """Return the number of the state that has such items (and attributes)."""
        for number, model in enumerate(self.models):
            if model is not None and _state((items, dict(attrs or model[1]))) == _state(model):
                return number
        raise AssertionError(f"no state has {items}, {attrs}")


@dataclass(frozen=True)
class Operation:
    """A change of the array in a store, and of its model."""

    perform: Callable[[Store, Mapping[str, Any]], None]
    expect: Callable[[np.ndarray, dict[str, Any]], Model]


def _on_array(act: Callable[[Array], object]) -> Callable[[Store, Mapping[str, Any]], None]:
    def perform(store: Store, layout: Mapping[str, Any]) -> None:
        act(ingot.open(store, "r+"))

    return perform


def append(values: np.ndarray, axis: int = 0) -> Operation:
    return Operation(
        _on_array(lambda array: array.append(values, axis)),
        lambda items, attrs: (np.concatenate([items, values], axis), attrs),
    )


def assign(key: Any, value: Any) -> Operation:
    def expect(items: np.ndarray, attrs: dict[str, Any]) -> Model:
        items[key] = value
        return items, attrs

    return Operation(_on_array(lambda array: array.__setitem__(key, value)), expect)


def resize(*shape: int) -> Operation:
    def expect(items: np.ndarray, attrs: dict[str, Any]) -> Model:
        after = np.zeros(shape, items.dtype)
        common = tuple(map(slice, map(min, shape, items.shape)))
        after[common] = items[common]
        return after, attrs

    return Operation(_on_array(lambda array: array.resize(shape)), expect)


def describe(**attrs: Any) -> Operation:
    return Operation(
        _on_array(lambda array: array.attrs.update(attrs)),
        lambda items, old: (items, {**old, **attrs}),
    )


def remove() -> Operation:
    def perform(store: Store, layout: Mapping[str, Any]) -> None:
        with writing(store) as turn:
            turn.commit(ingot.open(turn.store, "r+")._chunks.removed())

    return Operation(perform, lambda items, attrs: None)


def replace(items: np.ndarray, **attrs: Any) -> Operation:
    def perform(store: Store, layout: Mapping[str, Any]) -> None:
        ingot.array(items, store, attrs=attrs, overwrite=True, **layout)

    return Operation(perform, lambda old, before: (items, attrs))


def scenario(items: np.ndarray, *operations: Operation, **layout: Any) -> ArrayScenario:
    """Return the scenario of an array that some operations change."""
    start = MemoryStore()
    ingot.array(items, start, attrs={"kept": 1}, **layout)
    models: list[Model] = [(items, {"kept": 1})]
    for operation in operations:
        before = models[-1]
        assert before is not None
        models.append(operation.expect(before[0].copy(), dict(before[1])))
    states = list(map(_state, models))
    assert len(set(states)) == len(states)

    def judge(store: Store) -> int:
        if not _is_there(store):
            return states.index(_state(None))
        array = ingot.open(store)
        return states.index(_state((array[...], dict(array.attrs))))

    def step(number: int) -> Callable[[Store], None]:
        def perform(store: Store) -> None:
            # The successor of a writer that died first reads what that writer has achieved.
            if read_state(store, judge) == number:
                operations[number].perform(store, layout)

        return perform

    steps = tuple(map(step, range(len(operations))))
    return ArrayScenario(dict(start._values), steps, judge, tuple(models))


def created(items: np.ndarray, **layout: Any) -> ArrayScenario:
    """Return the scenario of an array that is created with all of its items."""

    def judge(store: Store) -> int:
        if not _is_there(store):
            return 0
        array = ingot.open(store)
        assert _state((array[...], dict(array.attrs))) == _state((items, {"new": 2}))
        return 1

    def make(store: Store) -> None:
        ingot.array(items, store, attrs={"new": 2}, overwrite=True, **layout)

    return ArrayScenario({}, (make,), judge, (None, (items, {"new": 2})))


def _state(model: Model) -> object:
    if model is None:
        return None
    items, attrs = model
    return items.shape, items.tobytes(), tuple(sorted(attrs.items()))


def _is_there(store: Store) -> bool:
    """Return whether there is an array; the folders of its chunks alone are none."""
    return any(store.size(name) is not None for name in (".zarray", "zarr.json", "meta/nrows"))


def numbered(*shape: int, first: int = 1) -> np.ndarray:
    return np.arange(first, first + int(np.prod(shape)), dtype="u1").reshape(shape)


def scenarios(chunk: int = 4, **layout: Any) -> dict[str, ArrayScenario]:
    """Return every operation on arrays of a format, small."""
    line = {"chunks": chunk, **layout}
    plane = {"chunks": (chunk, chunk), **layout}
    edge = chunk + chunk // 2
    new = numbered(30, first=100)
    return {
        "append into the last chunk": scenario(numbered(edge), append(new[:1]), **line),
        "append over three chunks": scenario(numbered(edge), append(new[: 2 * chunk]), **line),
        "append twice": scenario(numbered(edge), append(new[:1]), append(new[: chunk + 1]), **line),
        "append to the other axis": scenario(
            numbered(edge, edge), append(new[: 2 * edge].reshape(edge, 2), 1), **plane
        ),
        **{
            f"assign over {count} chunks": scenario(
                numbered(5 * chunk), assign(slice(1, count * chunk - 1), 77), **line
            )
            for count in (1, 2, 3)
        },
        "assign whole chunks": scenario(numbered(3 * chunk), assign(..., 77), **line),
        "assign by numbers": scenario(numbered(3 * chunk), assign([0, chunk + 1], 77), **line),
        "erase chunks": scenario(numbered(3 * chunk), assign(slice(0, 2 * chunk), 0), **line),
        "grow": scenario(numbered(edge), resize(3 * chunk), **line),
        "grow both ways": scenario(numbered(edge, edge), resize(2 * chunk, 2 * chunk), **plane),
        "shrink": scenario(numbered(3 * chunk), resize(edge), **line),
        "shrink, then grow": scenario(
            numbered(3 * chunk), resize(edge), resize(3 * chunk - 1), **line
        ),
        "shrink, append, assign": scenario(
            numbered(2 * chunk), resize(1), append(new[:chunk]), assign(slice(0, 3), 9), **line
        ),
        "attributes": scenario(numbered(edge), describe(a=1), describe(a=2, b=3), **line),
        "remove": scenario(numbered(2 * chunk), remove(), **line),
        "replace": scenario(numbered(2 * chunk), replace(new[:edge], other=1), **line),
        "create": created(new[:edge], **line),
    }


def large(chunk: int = 2, **layout: Any) -> dict[str, ArrayScenario]:
    """Return operations on many chunks at a time: thousands of states each, all of them distinct.

    While nothing is synced, each new file is absent, empty, half, zeros, or there; the journal is
    one of them.
    """
    line = {"chunks": chunk, **layout}
    plane = {"chunks": (chunk, chunk), **layout}
    five = 5 * chunk
    return {
        "assign over five": scenario(numbered(five), assign(..., 77), **line),
        "assign to parts of five": scenario(numbered(five), assign(slice(1, five - 1), 78), **line),
        "append five": scenario(numbered(chunk), append(numbered(five, first=100)), **line),
        "append to the last and three": scenario(
            numbered(chunk - 1), append(numbered(4 * chunk, first=120)), **line
        ),
        "grow at five edges": scenario(
            numbered(five, chunk - 1, first=150), resize(five, chunk), **plane
        ),
        "replace three": scenario(
            numbered(3 * chunk, first=20), replace(numbered(3 * chunk, first=200), new=1), **line
        ),
        "create four": created(numbered(4 * chunk, first=220), **line),
    }
