"""The annotations of columns in the attributes of a table: parsed, packed, checked, joined."""

from typing import Any

import numpy as np
import pytest

from ingot.codecs.codec import CodecChain
from ingot.errors import CorruptionError, IngotError, LimitError
from ingot.formats import annotations
from ingot.logical_types import (
    Annotation,
    CategoryType,
    DateType,
    DecimalType,
    FixedBytesType,
    IndexLevel,
    LogicalType,
    TimeType,
    ZonedType,
    words_of,
)
from ingot.ragged_array import UTF8
from ingot.schema import ArraySchema, RaggedSchema

EVERY: list[LogicalType] = [
    CategoryType(words_of(["a", "b\0é"])),
    CategoryType(words_of([]), ordered=True),
    CategoryType(words_of(["y", "x"]), ordered=True, fixed=True),
    CategoryType(words_of([1, 2**62])),
    CategoryType(words_of([0.1, np.inf])),
    CategoryType(words_of(np.array([b"a\xff", b"b"]))),
    CategoryType(words_of(np.array(["2024-02-29", "1970-01-01"], "M8[ns]"))),
    CategoryType(words_of([True, False])),
    DecimalType(10, 2),
    DecimalType(38, -3),
    ZonedType("Europe/Oslo"),
    TimeType(),
    DateType(),
    FixedBytesType(),
]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: type(kind).__name__)
def test_annotations_come_back(kind: LogicalType) -> None:
    notes = {
        "a": Annotation(kind),
        "b.c": Annotation(kind, IndexLevel(1, None)),
        "d": Annotation(None, IndexLevel(0, "name")),
    }
    attrs = {"units": "m", **annotations.pack(notes)}
    assert annotations.parse(attrs, "table") == notes
    assert annotations.without(attrs) == {"units": "m"}


def test_nothing_is_said_about_plain_columns() -> None:
    assert annotations.pack({"a": Annotation()}) == {}
    assert annotations.parse({"a": 1}, "table") == {}


@pytest.mark.parametrize(
    "claim",
    [
        [],
        {"a": 1},
        {"a": {"type": "unknown"}},
        {"a": {"type": []}},
        {"a": {"type": "time", "more": 1}},
        {"a": {"type": "category"}},
        {"a": {"type": "category", "words": "ab"}},
        {"a": {"type": "category", "words": ["a", 1]}},
        {"a": {"type": "category", "words": ["a", "a"]}},
        {"a": {"type": "category", "words": ["\ud800"]}},
        {"a": {"type": "category", "words": ["a"], "ordered": 1}},
        {"a": {"type": "category", "words": [1], "of": "O"}},
        {"a": {"type": "category", "words": [1], "of": "|O"}},
        {"a": {"type": "category", "words": [300], "of": "|u1"}},
        {"a": {"type": "category", "words": ["NaN"], "of": "<f8"}},
        {"a": {"type": "category", "words": [[1, 2]], "of": "<i8"}},
        {"a": {"type": "decimal", "precision": 39, "scale": 0}},
        {"a": {"type": "decimal", "precision": True, "scale": 0}},
        {"a": {"type": "timestamp"}},
        {"a": {"type": "timestamp", "zone": ""}},
        {"a": {"type": "timestamp", "zone": "a\nb"}},
        {"a": {"type": "timestamp", "zone": "x" * 300}},
        {"a": {"index": -1}},
        {"a": {"index": 1.5}},
        {"a": {"index": 0, "name": 3}},
    ],
)
def test_wrong_annotations_are_refused(claim: Any) -> None:
    with pytest.raises(IngotError, match="x_columns"):
        annotations.parse({"x_columns": claim}, "table")


def test_words_without_end_are_refused_before_they_are_stored() -> None:
    many = CategoryType(words_of([f"{number:0100}" for number in range(45_000)]))
    with pytest.raises(LimitError, match=r"column 'a': 45000 words"):
        annotations.pack({"a": Annotation(many)})


def schema(dtype: str, *item: int) -> ArraySchema:
    own = np.dtype(dtype)
    return ArraySchema((4, *item), own, (4, *item), CodecChain(), np.zeros((), own)[()])


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (CategoryType(words_of(["a"])), schema("i1"), schema("u1")),
        (CategoryType(words_of(["a"])), schema("i4"), schema("i4", 2)),
        (DecimalType(18, 0), schema("i8"), schema("i8", 2)),
        (DecimalType(19, 0), schema("i8", 2), schema("i8")),
        (ZonedType("UTC"), schema("M8[us]"), schema("M8[D]")),
        (ZonedType("UTC"), schema("M8[s]"), schema("m8[s]")),
        (TimeType(), schema("m8[ns]"), schema("M8[ns]")),
        (DateType(), schema("M8[ms]"), schema("M8[s]")),
        (FixedBytesType(), schema("S3"), RaggedSchema(4, UTF8, 4, None)),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_annotations_fit_what_is_stored(kind: LogicalType, right: Any, wrong: Any) -> None:
    annotations.check("a", Annotation(kind), right, "table")
    with pytest.raises(CorruptionError, match="column 'a'"):
        annotations.check("a", Annotation(kind), wrong, "table")
    annotations.check("a", Annotation(None, IndexLevel(0, None)), wrong, "table")


def attributes(*words: str, **more: Any) -> dict[str, Any]:
    return {"x_columns": {"a": {"type": "category", "words": list(words), **more}}}


def test_parts_of_a_table_have_the_words_of_the_longest() -> None:
    parts = [attributes("a"), attributes("a", "b"), attributes("a")]
    assert annotations.joined([{"n": 1, **parts[0]}, *parts[1:]], "table") == {"n": 1, **parts[1]}
    same = attributes("a")
    assert annotations.joined([same, attributes("a")], "table") is same


@pytest.mark.parametrize(
    "other", [{}, attributes("b"), attributes("b", "a"), attributes("a", ordered=True)]
)
def test_parts_of_a_table_that_disagree_are_refused(other: dict[str, Any]) -> None:
    for parts in ([attributes("a"), other], [other, attributes("a")]):
        with pytest.raises(CorruptionError, match="x_columns"):
            annotations.joined(parts, "table")
