"""A store in memory that lacks features, as stores of objects do."""

from collections.abc import Iterator, Mapping
from typing import Any

from ingot.errors import UnsupportedError
from ingot.stores.memory import MemoryStore
from ingot.stores.store import Feature

__all__ = ["LimitedStore"]


class LimitedStore(MemoryStore):
    """A store in memory without some features.

    >>> LimitedStore(Feature.LIST).names()
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: memory: keys cannot be listed
    """

    def __init__(self, lacking: Feature, content: Mapping[str, bytes] | None = None) -> None:
        super().__init__(content)
        self._lacking = lacking

    @property
    def features(self) -> Feature:
        """Those of a store in memory, without the ones that it lacks."""
        return super().features & ~self._lacking

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below `prefix`, if the store lists."""
        if Feature.LIST in self._lacking:
            raise UnsupportedError("memory: keys cannot be listed")
        return super().names(prefix, hidden=hidden)

    def keys(self) -> list[str]:
        """Return all keys, for tests."""
        return sorted(key for key, value in self._values.items() if value is not None)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_lacking": self._lacking}
