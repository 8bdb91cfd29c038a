"""Checked reading of the fields of a mapping that came from a file.

A `FieldReader` reads one field at a time and checks its type and range; `Problems` collects several
errors and raises them as one. Types are exact: a boolean is not an integer here, and a float is not
a length, since what Python would silently accept is an error in a file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)

__all__ = ["INT64", "MOST_AXES", "FieldReader", "Problems", "printable", "shown"]

INT64 = 2**63 - 1
"""The largest length, offset or count that a file may claim."""

MOST_AXES = 32
"""The most axes of an array that Ingot opens."""

T = TypeVar("T")

_REQUIRED: Any = object()

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class FieldReader:
    """A mapping from a file; every method returns one checked field of it, or raises.

    `where` names the mapping in errors. A field without a default is required.

    >>> fields = FieldReader("blosc", {"clevel": 5, "shuffle": True, "speed": 11})
    >>> fields.integer("clevel", low=0, high=9), fields.integer("blocksize", 0)
    (5, 0)
    >>> fields.integer("shuffle", low=-1, high=2)
    Traceback (most recent call last):
    ingot.errors.FormatError: blosc: shuffle is True, not an integer from -1 to 2
    >>> fields.finish()
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: blosc: the field 'speed' is unknown
    """

    __slots__ = ("_read", "_values", "where")

    def __init__(self, where: str, values: Mapping[str, object]) -> None:
        self.where = where
        self._values = values
        self._read: set[str] = set()

    def value(self, key: str, default: object = _REQUIRED) -> object:
        """Return a field of any type."""
        self._read.add(key)
        found = self._values.get(key, default)
        if found is _REQUIRED:
            raise FormatError(f"{self.where}: {key} is missing")
        return found

    def integer(
        self, key: str, default: int = _REQUIRED, *, low: int = 0, high: int = INT64
    ) -> int:
        """Return an integer from `low` to `high`."""
        found = self.value(key, default)
        if type(found) is not int or not low <= found <= high:
            raise self.wrong(key, found, f"an integer {_interval(low, high)}")
        return found

    def integers(self, key: str, *, low: int, most: int = MOST_AXES) -> tuple[int, ...]:
        """Return a list of at most `most` integers, none below `low`."""
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
        """Return a number."""
        found = self.value(key, default)
        if type(found) is not int and type(found) is not float:
            raise self.wrong(key, found, "a number")
        return found

    def flag(self, key: str, default: bool = _REQUIRED) -> bool:
        """Return a boolean."""
        found = self.value(key, default)
        if type(found) is not bool:
            raise self.wrong(key, found, "true or false")
        return found

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """Return a string."""
        found = self.value(key, default)
        if not isinstance(found, str):
            raise self.wrong(key, found, "a string")
        return found

    def choice(self, key: str, choices: Sequence[T], default: T = _REQUIRED) -> T:
        """Return a field that is one of a few values."""
        found = self.value(key, default)
        for option in choices:
            if type(option) is type(found) and option == found:
                return option
        raise self.wrong(key, found, f"one of {', '.join(map(repr, choices))}")

    def mapping(self, key: str) -> Mapping[str, object] | None:
        """Return an object, or None for null; keys of JSON objects are always strings."""
        found = self.value(key, None)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(key, found, "an object or null")
        return found

    def finish(self) -> None:
        """Raise if a field was not read: a field that is unknown may change what the data means."""
        for key in self._values:
            if key not in self._read:
                raise UnsupportedError(f"{self.where}: the field {key!r} is unknown")

    def wrong(self, key: str, found: object, wanted: str) -> FormatError:
        """Return the error for a field whose value is not as `wanted`."""
        return FormatError(f"{self.where}: {key} is {shown(found)}, not {wanted}")


class Problems:
    """The problems found in a file, collected so that one error reports all of them.

    >>> fields, problems = FieldReader("meta", {"rows": -1, "order": "X"}), Problems()
    >>> rows = problems.take(lambda: fields.integer("rows"), 0)
    >>> order = problems.take(lambda: fields.choice("order", "CF"), "C")
    >>> problems.settle()
    Traceback (most recent call last):
    ingot.errors.FormatError: meta: rows is -1, not an integer from 0 on; meta: order is 'X', ...
    """

    # The class of the one error for several problems: the first of these that occurred.
    _GRAVEST = (UnsafeError, UnsupportedError, LimitError, CorruptionError, FormatError)

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[IngotError] = []

    def take(self, read: Callable[[], T], default: T) -> T:
        """Return what `read` returns; if it raises, keep the error and return `default`."""
        try:
            return read()
        except self._GRAVEST as error:
            self._found.append(error)
            return default

    def settle(self) -> None:
        """Raise the collected problems as one error; do nothing when there are none."""
        if len(self._found) == 1:
            raise self._found[0]
        for kind in self._GRAVEST:
            if any(isinstance(error, kind) for error in self._found):
                raise kind("; ".join(map(str, self._found)))


def shown(value: object) -> str:
    """Return a value as short text for a message.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    # A value may be megabytes of JSON; only its beginning is turned into text.
    if isinstance(value, list | dict) and len(value) > 20:
        return f"{type(value).__name__} of {len(value)} entries"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _interval(low: int, high: int) -> str:
    return f"from {low} on" if high == INT64 else f"from {low} to {high}"


def printable(text: str, keep: str = "") -> str:
    r"""Return a text with escapes for control characters, and for bytes that are no Unicode.

    Names of files may hold both. Characters of `keep` stay.

    >>> print(printable("a\nb\x1b"), printable("\udcff.zarr"))
    a\nb\x1b \xff.zarr
    """

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        if character in keep:
            return character
        if "\udc80" <= character <= "\udcff":
            return f"\\x{ord(character) - 0xDC00:02x}"
        return character.encode("unicode_escape").decode()

    return _UNPRINTABLE.sub(escaped, text)
