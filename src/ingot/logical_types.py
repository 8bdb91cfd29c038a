"""Logical types: what the values of a column mean, where their type of NumPy does not say it.

Categories are stored as codes, decimals as scaled integers, times of day as durations since
midnight, and times of a zone in UTC. A stored column has such a type by an annotation in the
metadata of its table; an array in memory has it as a `LogicalArray`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.errors import ArgumentError, CorruptionError
from ingot.nullable_array import NullableArray
from ingot.ragged_array import UTF8, RaggedArray

__all__ = [
    "PLAIN",
    "Annotation",
    "CategoryType",
    "DateType",
    "DecimalType",
    "FixedBytesType",
    "IndexLevel",
    "LogicalArray",
    "LogicalKind",
    "LogicalType",
    "TimeType",
    "ZonedType",
    "decoded",
    "decoded_dtype",
    "spelled",
    "words_of",
]

_TEXT: Final = np.dtypes.StringDType()
_OBJECT: Final = np.dtype(object)
# Every count of 18 digits is an integer of 64 bits.
_SHORT_DIGITS: Final = 18
_MOST_DIGITS: Final = 38
_EXACT: Final = Context(prec=_MOST_DIGITS + 1)


@dataclass(frozen=True, slots=True, eq=False)
class CategoryType:
    """Categories: an item is the number of one of the `words`, and -1 is a null.

    The order of `ordered` words is that of the items. No word is added to `fixed` or `ordered`
    ones.

    >>> colours = CategoryType(words_of(["red", "green"]))
    >>> colours.codes["green"], colours.code_dtype
    (1, dtype('int32'))
    """

    words: NDArray[Any]
    ordered: bool = False
    fixed: bool = False
    codes: Mapping[Any, int] = field(init=False, repr=False)
    """The number of each word; words that are times count in their unit."""

    def __post_init__(self) -> None:
        codes = {word: number for number, word in enumerate(_keys(self.words))}
        if len(codes) != len(self.words):
            raise ArgumentError("a word is repeated among the words of categories")
        object.__setattr__(self, "codes", codes)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, CategoryType):
            return self is other
        same = (self.ordered, self.fixed) == (other.ordered, other.fixed)
        return same and self.words.dtype == other.words.dtype and self.codes == other.codes

    def __hash__(self) -> int:
        return hash((len(self.words), self.ordered, self.fixed))

    @property
    def grows(self) -> bool:
        """Whether values may bring further words."""
        return not (self.ordered or self.fixed)

    @property
    def code_dtype(self) -> DType:
        """The type of the codes of a new column; one that may get further words has room."""
        if self.grows:
            return np.dtype(np.int32)
        return np.min_scalar_type(-max(1, len(self.words)))

    @property
    def is_text(self) -> bool:
        """Whether the words are text."""
        return self.words.dtype.kind == "T"

    def extended(self, words: Sequence[Any]) -> "CategoryType":
        """Return the type with further words, behind the others."""
        more = np.array([*self.words.tolist(), *words], self.words.dtype)
        return CategoryType(more, self.ordered, self.fixed)

    def recoded(self, given: "CategoryType", where: str) -> tuple["CategoryType", NDArray[Any]]:
        """Return the type with the words of another one, and the codes of those words here."""
        try:
            words = given.words.astype(self.words.dtype)
            same = bool((words.astype(given.words.dtype) == given.words).all())
        except (TypeError, ValueError, OverflowError):
            same = False
        if not same:
            raise ArgumentError(f"{where}: words of {given.words.dtype} are no {self.words.dtype}")
        return self.coded(_keys(words), where)

    def coded(self, words: Sequence[Any], where: str) -> tuple["CategoryType", NDArray[Any]]:
        """Return the type with further words where that is allowed, and the codes of words."""
        new = [word for word in dict.fromkeys(words) if word not in self.codes]
        if new and not self.grows:
            which = "ordered" if self.ordered else "fixed"
            raise ArgumentError(f"{where}: {new[0]!r} is none of its {which} words")
        kind = self.extended(_items(new, self.words.dtype)) if new else self
        return kind, np.array([kind.codes[word] for word in words], np.int64)

    def check(self, codes: NDArray[Any], where: str = "categories") -> bool:
        """Refuse codes that are the number of no word; return whether one is that of a null."""
        if not codes.size:
            return False
        least = codes.min()
        if least < -1 or codes.max() >= len(self.words):
            wrong = codes[(codes < -1) | (codes >= len(self.words))][0]
            raise CorruptionError(f"{where}: the code {wrong} of {len(self.words)} words")
        return bool(least < 0)

    def decoded(self, codes: NDArray[Any]) -> NDArray[Any] | NullableArray | RaggedArray:
        """Return the words of codes."""
        self.check(codes)
        if self.is_text:
            items = RaggedArray.of([*self.words.tolist(), None], UTF8)
            return items.take(np.where(codes < 0, len(self.words), codes).astype(np.int64))
        valid = codes >= 0
        words = self.words if len(self.words) else np.zeros(1, self.words.dtype)
        return NullableArray(words[np.where(valid, codes, 0)], valid)


def words_of(words: Iterable[Any]) -> NDArray[Any]:
    """Return the words of categories as an array; those of text have any length.

    >>> words_of([1.5, 2]).dtype
    dtype('float64')
    """
    listed = words if isinstance(words, np.ndarray) else list(words)
    texts = isinstance(listed, list) and all(isinstance(each, str) for each in listed)
    found = np.array(listed, _TEXT) if texts else np.asarray(listed)
    if found.dtype.kind in "UT":
        found = found.astype(_TEXT)
    if found.ndim != 1 or found.dtype.kind not in "TbiufmMS":
        raise ArgumentError(f"categories of {found.dtype}: words are text, bytes, numbers or times")
    if found.dtype.kind in "fmM" and bool((found != found).any()):
        raise ArgumentError("a word of categories is NaN or NaT, which equals no item")
    return found


def _keys(words: NDArray[Any]) -> list[Any]:
    counted = words.view(np.int64) if words.dtype.kind in "mM" else words
    found: list[Any] = counted.tolist()
    return found


def _items(keys: Sequence[Any], dtype: DType) -> list[Any]:
    if dtype.kind not in "mM":
        return list(keys)
    return list(np.array(keys, np.int64).view(dtype))


@dataclass(frozen=True, slots=True)
class DecimalType:
    """Decimals of so many digits, `scale` of them behind the point, stored as scaled integers.

    Up to 18 digits are an integer of 64 bits. More are two: the lower 64 bits, then the upper.

    >>> DecimalType(10, 2).decoded(np.array([1234, -5]))
    array([Decimal('12.34'), Decimal('-0.05')], dtype=object)
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= _MOST_DIGITS or abs(self.scale) > _MOST_DIGITS:
            raise ArgumentError(
                f"decimals of {self.precision} digits, {self.scale} behind the point"
            )

    @property
    def is_short(self) -> bool:
        """Whether 64 bits hold all values."""
        return self.precision <= _SHORT_DIGITS

    def counts(self, stored: NDArray[Any]) -> list[int]:
        """Return the scaled integers of stored items."""
        if self.is_short:
            found: list[int] = stored.tolist()
            return found
        low, high = stored[..., 0].astype(np.uint64), stored[..., 1]
        return [(up << 64) + down for down, up in zip(low.tolist(), high.tolist(), strict=True)]

    def stored(self, counts: Sequence[int]) -> NDArray[np.int64]:
        """Return scaled integers as they are stored."""
        if self.is_short:
            return np.array(counts, np.int64)
        data = b"".join(count.to_bytes(16, "little", signed=True) for count in counts)
        return np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, 2)

    def decoded(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return stored items as objects of `decimal.Decimal`."""
        made = np.empty(len(stored), object)
        for number, count in enumerate(self.counts(stored)):
            made[number] = Decimal(count).scaleb(-self.scale, _EXACT)
        return made

    def count_of(self, value: object, where: str) -> int:
        """Return a number as a scaled integer; one that it cannot hold exactly is refused."""
        try:
            exact = value if isinstance(value, Decimal) else Decimal(str(value))
            scaled = exact.scaleb(self.scale, _EXACT)
            count = int(scaled)
        except (ArithmeticError, ValueError, OverflowError):
            raise ArgumentError(f"{where} of decimals cannot hold {value!r}") from None
        if count != scaled or abs(count) >= 10**self.precision:
            raise ArgumentError(
                f"{where} of {self.precision} digits, {self.scale} behind the point, "
                f"cannot hold {value}"
            )
        return count


@dataclass(frozen=True, slots=True)
class ZonedType:
    """Times of a zone, stored in UTC."""

    zone: str


@dataclass(frozen=True, slots=True)
class TimeType:
    """Times of day, stored as durations since midnight."""


@dataclass(frozen=True, slots=True)
class DateType:
    """Days that are stored in milliseconds, Arrow's ``date64``."""


@dataclass(frozen=True, slots=True)
class FixedBytesType:
    """Bytes of one width, of which NULs at the end are a part."""


LogicalType: TypeAlias = (
    CategoryType | DecimalType | ZonedType | TimeType | DateType | FixedBytesType
)


def spelled(kind: LogicalType) -> str:
    """Return a type as text for a person.

    >>> spelled(DecimalType(10, 2)), spelled(CategoryType(words_of(["a", "b"]), ordered=True))
    ('decimal(10, 2)', 'ordered category of 2 words')
    """
    if isinstance(kind, CategoryType):
        words = f"{len(kind.words)} word{'' if len(kind.words) == 1 else 's'}"
        return f"{'ordered ' if kind.ordered else ''}category of {words}"
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, ZonedType):
        return f"time in {kind.zone}"
    if isinstance(kind, TimeType):
        return "time of day"
    return "date" if isinstance(kind, DateType) else "bytes of one width"


class IndexLevel(NamedTuple):
    """The place of a column in the index of a data frame, and its name there."""

    number: int
    name: str | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the type of a stored column does not say."""

    type: LogicalType | None = None
    level: IndexLevel | None = None


PLAIN: Final = Annotation()
"""The annotation that says nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class LogicalArray:
    """The stored values of a column, with what they mean.

    >>> codes = np.array([1, -1, 0], np.int32)
    >>> kind = CategoryType(words_of(["red", "green"]))
    >>> decoded(LogicalArray(codes, Annotation(kind))).to_list()
    ['green', None, 'red']
    """

    values: NDArray[Any] | NullableArray | RaggedArray
    note: Annotation

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the stored values."""
        return self.values.shape

    @property
    def dtype(self) -> DType:
        """The type of the stored values."""
        stored = self.values
        return stored.kind.dtype if isinstance(stored, RaggedArray) else stored.dtype

    @property
    def type(self) -> LogicalType | None:
        """What the values mean."""
        return self.note.type

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Self:
        return type(self)(self.values[key], self.note)


@dataclass(frozen=True, slots=True)
class LogicalKind:
    """The type of a column: how items are stored, and what they mean."""

    dtype: DType
    shape: tuple[int, ...]
    type: LogicalType


def decoded(column: LogicalArray) -> NDArray[Any] | NullableArray | RaggedArray:
    """Return the values that a reader sees: words, decimals; others as they are stored."""
    values, kind = column.values, column.type
    if isinstance(kind, CategoryType):
        assert isinstance(values, np.ndarray)
        return kind.decoded(values)
    if isinstance(kind, DecimalType):
        if isinstance(values, NullableArray):
            return NullableArray(kind.decoded(values.values), values.valid)
        assert isinstance(values, np.ndarray)
        return kind.decoded(values)
    return values


def decoded_dtype(column: LogicalKind) -> tuple[DType, tuple[int, ...]]:
    """Return the type of the values that a reader sees, and the shape of an item."""
    if isinstance(column.type, CategoryType):
        return UTF8.dtype if column.type.is_text else column.type.words.dtype, ()
    if isinstance(column.type, DecimalType):
        return _OBJECT, ()
    return column.dtype, column.shape
