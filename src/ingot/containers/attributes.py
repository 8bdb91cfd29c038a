"""The attributes of a dataset: a mapping that writes through.

Values are converted to what JSON can hold: NumPy scalars and arrays, tuples, dates. Where a format
stores types, NumPy scalars and arrays stay what they are. Where the attributes are stored, the
caller decides, by a function that loads and one that changes them.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

import numpy as np

from ingot.errors import ArgumentTypeError, FormatError, LimitError
from ingot.formats.json import DEEPEST
from ingot.signals import Deferred

__all__ = ["Attributes", "converted"]

Editing: TypeAlias = Callable[[], AbstractContextManager[dict[str, Any]]]
"""Gives a private copy of the attributes, which is stored when the block ends."""

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1


class Attributes(MutableMapping[str, Any]):
    """Names and values that describe a dataset; every change is stored when it returns.

    A value is what JSON can hold: None, booleans, integers of 64 bits, floats, text, lists,
    mappings from text. NumPy scalars and arrays, tuples and dates are converted when they are set.
    Anything else is refused before a byte is written. What is read is a copy: to change a list
    inside, set the whole value again.

    >>> import numpy as np
    >>> import ingot
    >>> attrs = ingot.create(shape=3, dtype="f8").attrs
    >>> attrs["range"] = (np.float32(0.5), np.int64(4))
    >>> attrs.update(units="m", axes=["x"])
    >>> dict(attrs)
    {'range': [0.5, 4], 'units': 'm', 'axes': ['x']}
    >>> attrs["data"] = b"bytes"
    Traceback (most recent call last):
    ingot.errors.FormatError: attribute 'data': bytes is not something that JSON can hold
    """

    __slots__ = ("_editing", "_load", "_typed")

    def __init__(
        self, load: Callable[[], Mapping[str, Any]], editing: Editing, *, typed: bool = False
    ) -> None:
        self._load = load
        self._editing = editing
        self._typed = typed

    def __getitem__(self, name: str) -> Any:
        return copy.deepcopy(self._load()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._load()))

    def __len__(self) -> int:
        return len(self._load())

    def __setitem__(self, name: str, value: object) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        with Deferred(), self._editing() as attrs:
            del attrs[name]

    def update(self, other: Any = (), /, **values: Any) -> None:
        """Set several attributes in one change.

        >>> import ingot
        >>> attrs = ingot.create(shape=3, dtype="f8").attrs
        >>> attrs.update({"units": "m"}, scale=2)
        >>> len(attrs)
        2
        """
        try:
            given = dict(other, **values)
        except TypeError:
            raise _no_mapping(other) from None
        fresh = converted(given, typed=self._typed)
        with Deferred(), self._editing() as attrs:
            attrs.update(fresh)

    def clear(self) -> None:
        """Remove all attributes in one change.

        >>> import ingot
        >>> array = ingot.create(shape=3, dtype="f8", attrs={"units": "m"})
        >>> array.attrs.clear()
        >>> len(array.attrs)
        0
        """
        with Deferred(), self._editing() as attrs:
            attrs.clear()

    def __repr__(self) -> str:
        return f"Attributes({dict(self._load())})"


def converted(attrs: Mapping[str, object], *, typed: bool = False) -> dict[str, Any]:
    """Return attributes as JSON can hold them; `typed` NumPy scalars and arrays stay.

    >>> import datetime
    >>> converted({"day": datetime.date(2024, 2, 29), "weights": np.ones(2)})
    {'day': '2024-02-29', 'weights': [1.0, 1.0]}
    """
    if not isinstance(attrs, Mapping):
        raise _no_mapping(attrs)
    found = {}
    for name in attrs:
        value = attrs[name]
        if not (typed and isinstance(value, np.ndarray | np.generic)):
            value = _plain(value, f"attribute {name!r}")
        # An array of the caller may change after it was set.
        found[_name(name, "attributes")] = copy.copy(value) if typed else value
    return found


def _plain(value: object, where: str, depth: int = 1) -> Any:
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.timedelta64):
        # NumPy counts it among the integers, but a number without its unit means nothing.
        raise FormatError(f"{where}: timedelta64 is not something that JSON can hold")
    if isinstance(value, int | np.integer):
        return _integer(int(value), where)
    if isinstance(value, float | np.floating):
        return float(value)
    # Not by its class: importing datetime takes a tenth of the time of importing Ingot.
    if hasattr(value, "isoformat") and not isinstance(value, type):
        return str(value.isoformat())
    if depth == DEEPEST:
        raise LimitError(f"{where}: more than {DEEPEST} nested lists and mappings")
    if isinstance(value, np.ndarray) and value.dtype.kind not in "mV":
        return _plain(_listed(value), where, depth)
    if isinstance(value, Mapping):
        return {_name(name, where): _plain(value[name], where, depth + 1) for name in value}
    if isinstance(value, list | tuple):
        return _items(value, where, depth)
    raise FormatError(f"{where}: {type(value).__name__} is not something that JSON can hold")


def _items(values: Iterable[object], where: str, depth: int) -> list[Any]:
    return [_plain(value, where, depth + 1) for value in values]


def _listed(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.kind == "M":
        # `tolist` makes integers of most units, which would lose the unit.
        return np.datetime_as_string(array).tolist()
    return array.tolist()


def _integer(value: int, where: str) -> int:
    if not _LOWEST <= value <= _HIGHEST:
        raise FormatError(f"{where}: the integer {value:.3e} is beyond 64 bits")
    return value


def _name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise FormatError(f"{where}: the name {name!r} is not text")
    return str(name)


def _no_mapping(given: object) -> ArgumentTypeError:
    return ArgumentTypeError(f"attributes: {type(given).__name__} is no mapping of names to values")
