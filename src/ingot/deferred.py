"""Modules that are loaded by the first use of anything in them.

Knows how to put off an import until it pays: most programs open arrays and never cut one into
shards, nor make a table. Refuses to know any module. Whoever puts off an import also states it for
checkers of types, under the same name, so that types and the order of imports are checked alike:

    if TYPE_CHECKING:
        from ingot import tables
    else:
        tables = deferred("ingot.tables")
"""

import importlib
from typing import Any, Final

__all__ = ["deferred"]


def deferred(module: str) -> Any:
    """Return what has the names of a module, and loads it when it is asked for one.

    >>> deferred("ingot.errors").UnsafeError.__name__
    'UnsafeError'
    """
    return _Deferred(module)


class _Deferred:
    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module: Final = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
