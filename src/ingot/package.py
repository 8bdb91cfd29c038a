"""The package as users see it: public names, each loaded when it is first asked for.

Knows in which modules the names are, and that some of them are names of modules, too: there is a
function `ingot.table`, and a module of that name, which has the class. Refuses to know what is
behind the names.

To load everything takes longer than to open an array. Who only opens arrays should not pay for
tables and queries, nor should who only imports the package pay for anything.
"""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

__all__ = ["Package"]

_HOMES: Final[Mapping[str, str]] = {
    "Array": "ingot.array",
    "Group": "ingot.group",
    "Limits": "ingot.options",
    "Options": "ingot.options",
    "Table": "ingot.table",
    "View": "ingot.views",
    "array": "ingot.api",
    "create": "ingot.api",
    "formats": "ingot.api",
    "group": "ingot.api",
    "open": "ingot.api",
    "table": "ingot.api",
}

_MODULES: Final[Mapping[str, str]] = {
    "blosc": "ingot.codecs.blosc",
    "codecs": "ingot.codecs",
    "errors": "ingot.errors",
    "stores": "ingot.stores",
}


class Package(ModuleType):
    """A module that has the public names, whatever was imported before they are asked for.

    >>> import ingot
    >>> import ingot.table
    >>> ingot.table is ingot.api.table, type(ingot) is Package
    (True, True)
    """

    def __getattr__(self, name: str) -> Any:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(_MODULES[name])
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Whoever imports a module gives it to the package under its name. There the name is taken.
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES, *_MODULES})
