"""The formats that there are, each loaded when it is first needed.

Knows their names, in the order in which they are looked for, and where their code is. Refuses to
know anything that only the code itself can tell, but for one thing: the marks of wholes, which are
looked for above every dataset that is opened.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Final, cast

from ingot.formats.format import Format

__all__ = ["FORMATS", "OWNERS", "Formats"]

# In the order of detection: the marks of the last ones are the least certain.
_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    "zarr3": ("ingot.formats.zarr3_groups", "Zarr3Hierarchy"),
    "zarr2": ("ingot.formats.zarr2_groups", "Zarr2Hierarchy"),
    "bcolz": ("ingot.formats.bcolz", "BcolzFormat"),
    "zarr0": ("ingot.formats.zarr0", "Zarr0Format"),
    "zarr1": ("ingot.formats.zarr1", "Zarr1Format"),
}

OWNERS: Final[Mapping[str, tuple[tuple[str, ...], str | None]]] = {
    "zarr3": (("zarr.json",), None),
    "zarr2": ((".zgroup",), None),
    "bcolz": (("__rootdirs__", "shards.json"), "data"),
}
"""The formats in which a dataset may be part of another: their `marks`, and what is `between`."""


class Formats(Mapping[str, Format]):
    """All formats by their names; asking for one loads it.

    >>> list(Formats())[:2], Formats()["zarr1"].name
    (['zarr3', 'zarr2'], 'zarr1')
    """

    __slots__ = ("_loaded",)

    def __init__(self) -> None:
        self._loaded: dict[str, Format] = {}

    def __getitem__(self, name: str) -> Format:
        found = self._loaded.get(name)
        if found is None:
            module, kind = _HOMES[name]
            made = getattr(importlib.import_module(module), kind)()
            # Two threads may load one at a time; the first one's is everybody's.
            found = self._loaded.setdefault(name, cast(Format, made))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


FORMATS: Final = Formats()
