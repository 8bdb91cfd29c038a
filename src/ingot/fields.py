"""What a file says of itself, read field by field.

Knows how to take one field after the other out of a mapping that came from a file, of exactly the
type and in exactly the range that is meant, and how to gather several complaints into one error.
Refuses to know any format and any field's name. A boolean is no integer here, a float no length:
what Python would let pass in silence is a lie in a file.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)

__all__ = ["INT64", "MOST_AXES", "FieldReader", "Problems", "shown"]

INT64 = 2**63 - 1
"""The largest length, offset or count that a file may claim."""

MOST_AXES = 32
"""The most axes of an array that Ingot opens."""

T = TypeVar("T")

_REQUIRED: Any = object()


class FieldReader:
    """One mapping from a file; every method takes one field of it, or complains.

    `where` names the mapping in errors. A field without a default must be there.

    >>> claims = FieldReader("blosc", {"clevel": 5, "shuffle": True, "speed": 11})
    >>> claims.integer("clevel", low=0, high=9), claims.integer("blocksize", 0)
    (5, 0)
    >>> claims.integer("shuffle", low=-1, high=2)
    Traceback (most recent call last):
    ingot.errors.FormatError: blosc: shuffle is True, not an integer from -1 to 2
    >>> claims.finish()
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: blosc: the field 'speed' is unknown
    """

    __slots__ = ("_read", "_values", "where")

    def __init__(self, where: str, values: Mapping[str, object]) -> None:
        self.where = where
        self._values = values
        self._read: set[str] = set()

    def value(self, key: str, default: object = _REQUIRED) -> object:
        """Take a field of any type."""
        self._read.add(key)
        found = self._values.get(key, default)
        if found is _REQUIRED:
            raise FormatError(f"{self.where}: {key} is missing")
        return found

    def integer(
        self, key: str, default: int = _REQUIRED, *, low: int = 0, high: int = INT64
    ) -> int:
        """Take an integer from `low` to `high`."""
        found = self.value(key, default)
        if type(found) is not int or not low <= found <= high:
            raise self.wrong(key, found, f"an integer {_interval(low, high)}")
        return found

    def integers(self, key: str, *, low: int, most: int = MOST_AXES) -> tuple[int, ...]:
        """Take a list of at most `most` integers, none below `low`."""
        found = self.value(key)
        if not isinstance(found, list):
            raise self.wrong(key, found, "a list of integers")
        if len(found) > most:
            raise LimitError(f"{self.where}: {key} has {len(found)} entries, the most is {most}")
        for entry in found:
            if type(entry) is not int or not low <= entry <= INT64:
                raise FormatError(
                    f"{self.where}: {key} holds {shown(entry)}, "
                    f"not an integer {_interval(low, INT64)}"
                )
        return tuple(found)

    def number(self, key: str, default: float = _REQUIRED) -> int | float:
        """Take a number."""
        found = self.value(key, default)
        if type(found) is not int and type(found) is not float:
            raise self.wrong(key, found, "a number")
        return found

    def flag(self, key: str, default: bool = _REQUIRED) -> bool:
        """Take a boolean."""
        found = self.value(key, default)
        if type(found) is not bool:
            raise self.wrong(key, found, "true or false")
        return found

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """Take a string."""
        found = self.value(key, default)
        if not isinstance(found, str):
            raise self.wrong(key, found, "a string")
        return found

    def choice(self, key: str, choices: Sequence[T], default: T = _REQUIRED) -> T:
        """Take one of a few values."""
        found = self.value(key, default)
        for option in choices:
            if type(option) is type(found) and option == found:
                return option
        raise self.wrong(key, found, f"one of {', '.join(map(repr, choices))}")

    def mapping(self, key: str) -> Mapping[str, object] | None:
        """Take an object, or None for null; keys of JSON objects are strings always."""
        found = self.value(key, None)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(key, found, "an object or null")
        return found

    def finish(self) -> None:
        """Refuse fields that nobody took: they would change what the data means."""
        for key in self._values:
            if key not in self._read:
                raise UnsupportedError(f"{self.where}: the field {key!r} is unknown")

    def wrong(self, key: str, found: object, wanted: str) -> FormatError:
        """Return the error for a field that is not what was `wanted`."""
        return FormatError(f"{self.where}: {key} is {shown(found)}, not {wanted}")


class Problems:
    """Gathers what is wrong with a file, so that one look shows all of it.

    >>> claims, complaints = FieldReader("meta", {"rows": -1, "order": "X"}), Problems()
    >>> rows = complaints.take(lambda: claims.integer("rows"), 0)
    >>> order = complaints.take(lambda: claims.choice("order", "CF"), "C")
    >>> complaints.settle()
    Traceback (most recent call last):
    ingot.errors.FormatError: meta: rows is -1, not an integer from 0 on; meta: order is 'X', ...
    """

    # What a caller must not miss, first: the class of the one error for several complaints.
    _GRAVEST = (UnsafeError, UnsupportedError, LimitError, CorruptionError, FormatError)

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[IngotError] = []

    def take(self, read: Callable[[], T], default: T) -> T:
        """Return what `read` returns; if it complains, keep that for later, return `default`."""
        try:
            return read()
        except self._GRAVEST as error:
            self._found.append(error)
            return default

    def settle(self) -> None:
        """Raise what was gathered, as one error; do nothing when nothing was."""
        if len(self._found) == 1:
            raise self._found[0]
        for kind in self._GRAVEST:
            if any(isinstance(error, kind) for error in self._found):
                raise kind("; ".join(map(str, self._found)))


def shown(claim: object) -> str:
    """Return a claim as text for a message, never long.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    # A claim may be megabytes of JSON; only its beginning is turned into text.
    if isinstance(claim, list | dict) and len(claim) > 20:
        return f"{type(claim).__name__} of {len(claim)} entries"
    text = repr(claim[:60] if isinstance(claim, str) else claim)
    return text if len(text) <= 60 else text[:57] + "..."


def _interval(low: int, high: int) -> str:
    return f"from {low} on" if high == INT64 else f"from {low} to {high}"
