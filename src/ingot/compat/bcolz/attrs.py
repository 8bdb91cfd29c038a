"""The attributes of an array or a table."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from ingot import api
from ingot.compat.bcolz.defaults import options

__all__ = ["attrs"]


class attrs:
    """The attributes of an object, like a dictionary; those of an object on disk are stored.

    `attrs` is the dictionary itself. `attrs(rootdir, mode)` opens those of an object on disk.

    >>> values = attrs(None, "a")
    >>> values["unit"] = "EUR"
    >>> list(values), values.getall()
    ([('unit', 'EUR')], {'unit': 'EUR'})
    """

    def __init__(
        self,
        rootdir: str | None,
        mode: str,
        _stored: MutableMapping[str, Any] | None = None,
    ) -> None:
        self.rootdir = rootdir
        self.mode = mode
        if rootdir is not None and _stored is None:
            chosen = options(allow_pickle=True)
            _stored = api.open(rootdir, "r" if mode == "r" else "r+", options=chosen).attrs
        self._stored = _stored
        self.attrs: dict[str, Any] = {} if _stored is None else dict(_stored)

    def getall(self) -> dict[str, Any]:
        """Return all attributes as a new dictionary."""
        return self.attrs.copy()

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if self.rootdir and self.mode == "r":
            raise OSError("Cannot modify an attribute when in 'r'ead-only mode")
        if self._stored is not None:
            self._stored[name] = value
        self.attrs[name] = value

    def __delitem__(self, name: str) -> None:
        if self.rootdir and self.mode == "r":
            raise OSError("Cannot remove an attribute when in 'r'ead-only mode")
        del self.attrs[name]
        if self._stored is not None:
            del self._stored[name]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.attrs.items())

    def __len__(self) -> int:
        return len(self.attrs)

    def __str__(self) -> str:
        if not self.attrs:
            return "*no attrs*"
        return "".join(f"{name} : {value}" for name, value in self.attrs.items())

    def __repr__(self) -> str:
        if not self.attrs:
            return str(self)
        return "".join(f"{name} : {value!r}\n" for name, value in self.attrs.items())
