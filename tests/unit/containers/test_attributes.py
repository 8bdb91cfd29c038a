"""What becomes of values that are set as attributes, and what is refused."""

import datetime
import enum
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.attributes import Attributes, converted
from ingot.errors import FormatError, LimitError
from ingot.formats import json
from ingot.formats.json import DEEPEST
from ingot.formats.zarr import v2
from ingot.stores import MemoryStore


class Kept:
    """Attributes that are kept in a dictionary, with the number of changes."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.changes = 0
        self.attrs = Attributes(lambda: self.values, self.editing)

    @contextmanager
    def editing(self) -> Iterator[dict[str, Any]]:
        fresh = dict(self.values)
        yield fresh
        self.values = fresh
        self.changes += 1


class Colour(enum.IntEnum):
    RED = 3


VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (np.False_, False),
    (5, 5),
    (2**64 - 1, 2**64 - 1),
    (-(2**63), -(2**63)),
    (np.uint8(7), 7),
    (Colour.RED, 3),
    (1.5, 1.5),
    (np.float16(0.5), 0.5),
    (np.longdouble(2.5), 2.5),
    (math.inf, math.inf),
    ("text", "text"),
    (np.str_("text"), "text"),
    ((1, (2, 3)), [1, [2, 3]]),
    ([], []),
    ({"a": {"b": (1,)}}, {"a": {"b": [1]}}),
    (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
    (np.array(3), 3),
    (np.array(["a", "b"]), ["a", "b"]),
    (np.array([1, "a", None], object), [1, "a", None]),
    (np.ones(1, np.longdouble), [1.0]),
    (datetime.date(2024, 2, 29), "2024-02-29"),
    (datetime.datetime(2024, 2, 29, 12, 30), "2024-02-29T12:30:00"),
    (datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC), "2024-02-29T00:00:00+00:00"),
    (datetime.time(12, 30), "12:30:00"),
    (np.datetime64("2024-02-29T12", "ns"), "2024-02-29T12:00:00.000000000"),
    (np.array(["2024-02-29", "NaT"], "M8[D]"), ["2024-02-29", "NaT"]),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: repr(value)[:30])
def test_values_become_json_and_come_back(value: Any, expected: Any) -> None:
    found = converted({"name": value})["name"]
    assert found == expected
    assert type(found) is type(expected)
    assert v2.parse_attrs(v2.pack_attrs({"name": found})) == {"name": expected}


def test_what_is_not_a_number_stays_so() -> None:
    assert math.isnan(converted({"a": np.float32("nan")})["a"])


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_values_nest_as_deep_as_can_be_read() -> None:
    packed = v2.pack_attrs(converted({"a": nested(63)}))
    assert v2.parse_attrs(packed) == {"a": nested(63)}
    endless: list[Any] = []
    endless.append(endless)
    for value in (nested(64), endless, {"a": nested(63)}):
        with pytest.raises(LimitError, match="attribute 'a': more than 64"):
            converted({"a": value})


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        np.bytes_(b"x"),
        {1, 2},
        1j,
        np.complex64(1),
        object(),
        Kept,
        2**64,
        -(2**63) - 1,
        np.timedelta64(1, "s"),
        np.array([1], "m8[s]"),
        np.array([(1, 2)], "i4,i4"),
        np.array([b"x"]),
        np.array([1j]),
        datetime.timedelta(1),
        datetime.date,
        {1: 2},
        {"a": {None: 1}},
        [1, {2}],
    ],
    ids=lambda value: repr(value)[:16],
)
def test_what_json_cannot_hold_is_refused_by_name(value: Any) -> None:
    with pytest.raises(FormatError, match="attribute 'some'"):
        converted({"some": value})


def test_names_are_text() -> None:
    with pytest.raises(FormatError, match="the name 5 is not text"):
        converted({5: 1})  # type: ignore[dict-item]
    with pytest.raises(FormatError):
        Kept().attrs[5] = 1  # type: ignore[index]


def test_attributes_are_a_mapping() -> None:
    held = Kept(a=1, b=[2])
    attrs = held.attrs
    assert attrs == {"a": 1, "b": [2]}
    assert list(attrs) == ["a", "b"]
    assert (len(attrs), "a" in attrs, attrs.get("c", 5)) == (2, True, 5)
    assert repr(attrs) == "Attributes({'a': 1, 'b': [2]})"
    with pytest.raises(KeyError):
        attrs["c"]


def test_each_call_is_one_change() -> None:
    held = Kept(a=1, b=2, c=3)
    attrs = held.attrs
    attrs["d"] = 4
    attrs.update({"a": 5}, b=6)
    assert attrs.pop("c") == 3
    assert attrs.setdefault("e", 7) == 7
    assert attrs.setdefault("e", 8) == 7
    assert held.changes == 4
    assert held.values == {"a": 5, "b": 6, "d": 4, "e": 7}
    attrs.clear()
    assert (held.values, held.changes) == ({}, 5)


def test_a_change_with_a_bad_value_is_no_change() -> None:
    held = Kept(a=1)
    with pytest.raises(FormatError):
        held.attrs.update(a=2, b=object())
    with pytest.raises(KeyError):
        del held.attrs["b"]
    assert (held.values, held.changes) == ({"a": 1}, 0)


def test_what_is_read_is_a_copy() -> None:
    held = Kept(a=[1])
    held.attrs["a"].append(2)
    assert held.values == {"a": [1]}


def makers() -> dict[str, Any]:
    """Return how every kind of dataset with attributes is made, by name."""
    named = {
        name: lambda store, name=name: ingot.create(store, shape=3, dtype="i4", format=name)
        for name in ("zarr0", "zarr1", "zarr2", "zarr3", "bcolz")
    }
    columns = {"a": np.arange(3)}
    return named | {
        "table": lambda store: ingot.table(columns, store, format="bcolz"),
        "group2": lambda store: ingot.group(store, format="zarr2"),
        "group3": lambda store: ingot.group(store, format="zarr3"),
    }


@pytest.mark.parametrize("kind", makers())
def test_attributes_at_the_limits_open_again(kind: str) -> None:
    """The levels of the document around an attribute count; what is stored is always read."""
    store = MemoryStore()
    dataset = makers()[kind](store)
    kept: dict[str, Any] = {}
    for depth in range(58, 67):
        value = nested(depth)
        try:
            dataset.attrs["a"] = value
        except LimitError:
            pass
        else:
            kept = {"a": value}
        assert dict(ingot.open(store).attrs) == kept
    # `attributes` of zarr.json is one level more than a document of attributes alone.
    deepest = DEEPEST - 2 if kind.endswith("3") else DEEPEST - 1
    assert kept == {"a": nested(deepest)}


@pytest.mark.parametrize("kind", makers())
def test_attributes_of_the_largest_size_open_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "LARGEST", 6000)
    store = MemoryStore()
    dataset = makers()[kind](store)
    with pytest.raises(LimitError):
        dataset.attrs["a"] = "x" * 6000
    accepted = 0
    # The document of a small array has at most 1000 bytes beside its attributes.
    for length in (*range(5000, 6000, 100), *range(5900, 6000)):
        try:
            dataset.attrs["a"] = "x" * length
        except LimitError:
            continue
        accepted = length
        assert len(ingot.open(store).attrs["a"]) == length
    assert accepted >= 5000
    assert len(ingot.open(store).attrs["a"]) == accepted


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_attributes_too_deep_for_consolidated_metadata_are_refused(format: str) -> None:
    store = MemoryStore()
    group = ingot.group(store, format=format)
    child = group.array("a", np.arange(3))
    group.consolidate()
    for depth in range(56, 66):
        with suppress(LimitError):
            child.attrs["a"] = nested(depth)
        assert list(ingot.open(store)) == ["a"]
        assert ingot.open(store)["a"].attrs == child.attrs
