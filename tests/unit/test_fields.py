"""FieldReader: fields of exactly the type and range that is meant, and complaints in one error."""

from collections.abc import Callable
from typing import Any

import pytest

from ingot.errors import CorruptionError, FormatError, LimitError, UnsafeError, UnsupportedError
from ingot.fields import INT64, FieldReader, Problems, shown

VALUES: dict[str, Any] = {
    "integer": 5,
    "list": [1, 2],
    "float": 2.5,
    "flag": True,
    "text": "C",
    "null": None,
    "object": {"id": "zlib"},
    "huge": 2**63,
    "ragged": [1, "2"],
    "negative": [1, -1],
    "flags": [True, False],
    "long": [1] * 33,
}


def claims() -> FieldReader:
    return FieldReader("meta", VALUES)


def test_fields_of_the_right_type() -> None:
    assert claims().integer("integer", low=5, high=5) == 5
    assert claims().integers("list", low=1) == (1, 2)
    assert claims().number("float") == 2.5
    assert claims().number("integer") == 5
    assert claims().flag("flag") is True
    assert claims().text("text") == "C"
    assert claims().choice("text", ("C", "F")) == "C"
    assert claims().mapping("object") == {"id": "zlib"}
    assert claims().mapping("null") is None
    assert claims().value("null") is None


def test_defaults_stand_in_for_what_is_absent() -> None:
    assert claims().integer("absent", 7) == 7
    assert claims().flag("absent", False) is False
    assert claims().text("absent", "x") == "x"
    assert claims().choice("absent", (1, 2), 2) == 2
    assert claims().value("absent", None) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda: claims().integer("absent"),
        lambda: claims().integers("absent", low=0),
        lambda: claims().choice("absent", (1, 2)),
        lambda: claims().value("absent"),
    ],
)
def test_what_must_be_there_is_missed(read: Callable[[], object]) -> None:
    with pytest.raises(FormatError, match="meta: absent is missing"):
        read()


@pytest.mark.parametrize(
    "read",
    [
        lambda: claims().integer("float"),
        lambda: claims().integer("flag"),
        lambda: claims().integer("null"),
        lambda: claims().integer("huge"),
        lambda: claims().integer("integer", low=6),
        lambda: claims().integer("integer", high=4),
        lambda: claims().integers("integer", low=0),
        lambda: claims().integers("ragged", low=0),
        lambda: claims().integers("negative", low=0),
        lambda: claims().integers("flags", low=0),
        lambda: claims().number("flag"),
        lambda: claims().number("text"),
        lambda: claims().flag("integer"),
        lambda: claims().text("integer"),
        lambda: claims().choice("flag", (1, 2)),
        lambda: claims().choice("text", ("c", "f")),
        lambda: claims().mapping("list"),
    ],
)
def test_fields_of_the_wrong_type_or_range(read: Callable[[], object]) -> None:
    with pytest.raises(FormatError, match="meta: "):
        read()


def test_a_list_has_a_limit() -> None:
    assert len(claims().integers("long", low=0, most=33)) == 33
    with pytest.raises(LimitError, match="33 entries, the most is 32"):
        claims().integers("long", low=0)


def test_fields_that_nobody_took_are_unknown() -> None:
    two = FieldReader("meta", {"a": 1, "b": 2})
    two.integer("a")
    with pytest.raises(UnsupportedError, match="'b'"):
        two.finish()
    two.integer("b")
    two.finish()


def complain(error: type[Exception]) -> Callable[[], int]:
    def read() -> int:
        raise error(error.__name__)

    return read


def test_one_complaint_is_raised_as_it_is() -> None:
    complaints = Problems()
    assert complaints.take(lambda: 5, 0) == 5
    complaints.settle()
    assert complaints.take(complain(LimitError), 7) == 7
    with pytest.raises(LimitError, match=r"^LimitError$"):
        complaints.settle()


@pytest.mark.parametrize(
    ("errors", "gravest"),
    [
        ([FormatError, UnsafeError], UnsafeError),
        ([FormatError, LimitError, UnsupportedError], UnsupportedError),
        ([FormatError, CorruptionError], CorruptionError),
        ([FormatError, FormatError], FormatError),
    ],
)
def test_several_complaints_are_one_error_of_the_gravest_kind(
    errors: list[type[Exception]], gravest: type[Exception]
) -> None:
    complaints = Problems()
    for error in errors:
        complaints.take(complain(error), 0)
    with pytest.raises(gravest) as caught:
        complaints.settle()
    assert type(caught.value) is gravest
    assert str(caught.value) == "; ".join(error.__name__ for error in errors)


def test_bugs_are_no_complaints() -> None:
    with pytest.raises(ZeroDivisionError):
        Problems().take(lambda: 1 // 0, 0)


@pytest.mark.parametrize(
    "claim", ["x" * 10**6, list(range(10**6)), {str(n): n for n in range(99)}, 10**90]
)
def test_what_is_shown_is_never_long(claim: object) -> None:
    assert len(shown(claim)) <= 60


def test_lengths_end_with_int64() -> None:
    assert FieldReader("meta", {"n": INT64}).integer("n") == 2**63 - 1
