"""FieldReader: fields of exactly the type and range that is meant, and problems in one error."""

from collections.abc import Callable
from typing import Any

import pytest

from ingot.errors import CorruptionError, FormatError, LimitError, UnsafeError, UnsupportedError
from ingot.fields import INT64, FieldReader, Problems, printable, shown

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


def fields() -> FieldReader:
    return FieldReader("meta", VALUES)


def test_fields_of_the_right_type() -> None:
    assert fields().integer("integer", low=5, high=5) == 5
    assert fields().integers("list", low=1) == (1, 2)
    assert fields().number("float") == 2.5
    assert fields().number("integer") == 5
    assert fields().flag("flag") is True
    assert fields().text("text") == "C"
    assert fields().choice("text", ("C", "F")) == "C"
    assert fields().mapping("object") == {"id": "zlib"}
    assert fields().mapping("null") is None
    assert fields().value("null") is None


def test_defaults_stand_in_for_what_is_absent() -> None:
    assert fields().integer("absent", 7) == 7
    assert fields().flag("absent", False) is False
    assert fields().text("absent", "x") == "x"
    assert fields().choice("absent", (1, 2), 2) == 2
    assert fields().value("absent", None) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda: fields().integer("absent"),
        lambda: fields().integers("absent", low=0),
        lambda: fields().choice("absent", (1, 2)),
        lambda: fields().value("absent"),
    ],
)
def test_what_must_be_there_is_missed(read: Callable[[], object]) -> None:
    with pytest.raises(FormatError, match="meta: absent is missing"):
        read()


@pytest.mark.parametrize(
    "read",
    [
        lambda: fields().integer("float"),
        lambda: fields().integer("flag"),
        lambda: fields().integer("null"),
        lambda: fields().integer("huge"),
        lambda: fields().integer("integer", low=6),
        lambda: fields().integer("integer", high=4),
        lambda: fields().integers("integer", low=0),
        lambda: fields().integers("ragged", low=0),
        lambda: fields().integers("negative", low=0),
        lambda: fields().integers("flags", low=0),
        lambda: fields().number("flag"),
        lambda: fields().number("text"),
        lambda: fields().flag("integer"),
        lambda: fields().text("integer"),
        lambda: fields().choice("flag", (1, 2)),
        lambda: fields().choice("text", ("c", "f")),
        lambda: fields().mapping("list"),
    ],
)
def test_fields_of_the_wrong_type_or_range(read: Callable[[], object]) -> None:
    with pytest.raises(FormatError, match="meta: "):
        read()


def test_a_list_has_a_limit() -> None:
    assert len(fields().integers("long", low=0, most=33)) == 33
    with pytest.raises(LimitError, match="33 entries, the most is 32"):
        fields().integers("long", low=0)


def test_fields_that_are_not_read_are_unknown() -> None:
    two = FieldReader("meta", {"a": 1, "b": 2})
    two.integer("a")
    with pytest.raises(UnsupportedError, match="'b'"):
        two.finish()
    two.integer("b")
    two.finish()


def failing(error: type[Exception]) -> Callable[[], int]:
    def read() -> int:
        raise error(error.__name__)

    return read


def test_one_problem_is_raised_as_it_is() -> None:
    problems = Problems()
    assert problems.take(lambda: 5, 0) == 5
    problems.settle()
    assert problems.take(failing(LimitError), 7) == 7
    with pytest.raises(LimitError, match=r"^LimitError$"):
        problems.settle()


@pytest.mark.parametrize(
    ("errors", "gravest"),
    [
        ([FormatError, UnsafeError], UnsafeError),
        ([FormatError, LimitError, UnsupportedError], UnsupportedError),
        ([FormatError, CorruptionError], CorruptionError),
        ([FormatError, FormatError], FormatError),
    ],
)
def test_several_problems_are_one_error_of_the_gravest_kind(
    errors: list[type[Exception]], gravest: type[Exception]
) -> None:
    problems = Problems()
    for error in errors:
        problems.take(failing(error), 0)
    with pytest.raises(gravest) as caught:
        problems.settle()
    assert type(caught.value) is gravest
    assert str(caught.value) == "; ".join(error.__name__ for error in errors)


def test_other_errors_are_not_collected() -> None:
    with pytest.raises(ZeroDivisionError):
        Problems().take(lambda: 1 // 0, 0)


@pytest.mark.parametrize(
    "value", ["x" * 10**6, list(range(10**6)), {str(n): n for n in range(99)}, 10**90]
)
def test_what_is_shown_is_never_long(value: object) -> None:
    assert len(shown(value)) <= 60


def test_lengths_end_with_int64() -> None:
    assert FieldReader("meta", {"n": INT64}).integer("n") == 2**63 - 1


def test_names_are_printable() -> None:
    assert printable("a\x00\x1b[31m\x7f\x9b\u2028") == r"a\x00\x1b[31m\x7f\x9b\u2028"
    assert printable("\udc80 \udcff \ud800") == r"\x80 \xff \ud800"
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"
    assert printable("Ørsted, 東京 \\n") == "Ørsted, 東京 \\n"
