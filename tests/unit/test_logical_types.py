"""What values mean: codes and words, decimals and their counts."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ingot.errors import CorruptionError
from ingot.logical_types import (
    Annotation,
    CategoryType,
    DecimalType,
    LogicalArray,
    LogicalKind,
    decoded,
    decoded_dtype,
    words_of,
)


def test_words_are_text_numbers_bytes_or_times() -> None:
    assert words_of(["a", "bé"]).dtype == np.dtypes.StringDType()
    assert words_of(np.array(["a"])).dtype == np.dtypes.StringDType()
    assert words_of(np.array([b"a"])).dtype == np.dtype("S1")
    assert words_of(np.array(["2024-02-29"], "M8[D]")).dtype == np.dtype("M8[D]")
    for wrong in ([{}], [[1, 2]], [1j], [float("nan")], np.array(["NaT"], "M8[s]")):
        with pytest.raises(ValueError, match=r"categories"):
            words_of(wrong)


def test_a_word_is_there_once() -> None:
    with pytest.raises(ValueError, match="repeated"):
        CategoryType(words_of(["a", "b", "a"]))


@pytest.mark.parametrize(
    ("words", "codes", "expected"),
    [
        (["a", "bé\0"], [1, -1, 0], ["bé\0", None, "a"]),
        ([2.5, 1.0], [1, -1], [1.0, None]),
        (np.array([3, 7], "M8[D]"), [1], [np.datetime64("1970-01-08").item()]),
        ([], [-1, -1], [None, None]),
    ],
)
def test_codes_become_words(words: Any, codes: list[int], expected: list[Any]) -> None:
    found: Any = CategoryType(words_of(words)).decoded(np.array(codes, np.int8))
    assert (
        found.masked().tolist()
        if hasattr(found, "masked") and hasattr(found, "valid")
        else found.to_list()
    ) == expected


@pytest.mark.parametrize("code", [-2, 2, 127])
def test_the_code_of_no_word_is_damage(code: int) -> None:
    kind = CategoryType(words_of(["a", "b"]))
    with pytest.raises(CorruptionError, match=f"the code {code} of 2 words"):
        kind.decoded(np.array([0, code], np.int8))


def test_words_that_may_become_more_have_room_for_it() -> None:
    words = words_of(["a", "b"])
    assert CategoryType(words).code_dtype == np.int32
    assert CategoryType(words, ordered=True).code_dtype == np.int8
    many = words_of([str(number) for number in range(129)])
    assert CategoryType(many[:128], fixed=True).code_dtype == np.int8
    assert CategoryType(many, fixed=True).code_dtype == np.int16


def test_the_words_of_others_are_found_or_added() -> None:
    own = CategoryType(words_of(["a", "b"]))
    more, codes = own.recoded(CategoryType(words_of(["c", "b"])), "column 'x'")
    assert more.words.tolist() == ["a", "b", "c"]
    assert codes.tolist() == [2, 1]
    same, codes = own.recoded(CategoryType(words_of(["b"])), "column 'x'")
    assert same is own
    for other in (CategoryType(own.words, ordered=True), CategoryType(own.words, fixed=True)):
        with pytest.raises(ValueError, match="column 'x': 'c' is none of its"):
            other.recoded(CategoryType(words_of(["c"])), "column 'x'")
    with pytest.raises(ValueError, match="are no"):
        CategoryType(words_of([1, 2])).recoded(CategoryType(words_of([1.5])), "column 'x'")


def test_types_are_equal_by_their_words() -> None:
    own = CategoryType(words_of(["a", "b"]))
    assert own == CategoryType(words_of(["a", "b"]))
    assert hash(own) == hash(CategoryType(words_of(["a", "b"])))
    assert own != CategoryType(words_of(["b", "a"]))
    assert own != CategoryType(words_of(["a", "b"]), ordered=True)
    assert own != "a"


@pytest.mark.parametrize("precision", [18, 19, 38])
def test_decimals_are_counts_of_their_last_digit(precision: int) -> None:
    kind = DecimalType(precision, 2)
    largest = 10**precision - 1
    counts = [0, 1, -1, 12345, largest, -largest]
    stored = kind.stored(counts)
    assert stored.shape == ((6,) if precision == 18 else (6, 2))
    assert kind.counts(stored) == counts
    assert kind.decoded(stored).tolist() == [Decimal(each) / 100 for each in counts[:4]] + [
        Decimal(f"{largest // 100}.{largest % 100}"),
        Decimal(f"-{largest // 100}.{largest % 100}"),
    ]


@pytest.mark.parametrize("value", ["1.005", "1000", "nan", "x", None, "Infinity"])
def test_numbers_that_decimals_cannot_hold_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="column 'a'"):
        DecimalType(5, 2).count_of(value, "column 'a'")
    assert DecimalType(5, 2).count_of("999.99", "column 'a'") == 99999
    assert DecimalType(5, -2).count_of(1200, "column 'a'") == 12


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 39)])
def test_decimals_have_up_to_38_digits(precision: int, scale: int) -> None:
    with pytest.raises(ValueError, match="digits"):
        DecimalType(precision, scale)


def test_what_a_reader_sees() -> None:
    words = CategoryType(words_of([1, 2]))
    assert decoded_dtype(LogicalKind(np.dtype("i4"), (), words)) == (np.dtype("i8"), ())
    wide = LogicalKind(np.dtype("i8"), (2,), DecimalType(20, 1))
    assert decoded_dtype(wide) == (np.dtype(object), ())
    column = LogicalArray(np.array([1, -1], "i4"), Annotation(words))
    found: Any = decoded(column[:1])
    assert (column.shape, column.dtype, len(column)) == ((2,), np.dtype("i4"), 2)
    assert found.masked().tolist() == [2]
