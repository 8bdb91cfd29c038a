"""Modules and public names that are loaded on first use.

Loading everything takes longer than opening an array. A program that opens arrays does not load
tables and queries, and a program that only imports the package loads nothing.

A module that defers an import also states it for type checkers, under the same name, so that types
and import directions are checked:

    if TYPE_CHECKING:
        from ingot.containers import table
    else:
        table = deferred("ingot.containers.table")
"""

import importlib
import os
import sys
from _thread import RLock
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final

__all__ = ["deferred", "lazy_names", "load", "make_callable"]


_NONE: Final[Mapping[str, str]] = {}


def deferred(module: str) -> Any:
    """Return a stand-in for a module, which is loaded by the first access to an attribute.

    >>> deferred("ingot.errors").UnsafeError.__name__
    'UnsafeError'
    """
    return _Deferred(module)


class _Deferred:
    __slots__ = ("_loaded", "_module")

    def __init__(self, module: str) -> None:
        self._module: Final = module
        self._loaded: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._loaded is None:
            self._loaded = load(self._module)
        return getattr(self._loaded, name)


_LOADING: Final = RLock()

if hasattr(os, "register_at_fork"):
    # A child that is forked while another thread imports would wait for that module for ever.
    os.register_at_fork(
        before=_LOADING.acquire,
        after_in_parent=_LOADING.release,
        after_in_child=_LOADING.release,
    )


def load(module: str) -> ModuleType:
    """Import a module by its name; a fork in another thread waits until it is imported.

    >>> load("ingot.errors").__name__
    'ingot.errors'
    """
    with _LOADING:
        return importlib.import_module(module)


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    modules: Iterable[str] = (),
    elsewhere: Mapping[str, str] = _NONE,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package whose public names load on first use.

    `homes` maps each name to the module that defines it; `modules` are submodules of the package.
    Only what `__all__` names is listed. `elsewhere` says, for names that other libraries have, what
    to use instead.

    >>> get, names = lazy_names("ingot", {"Options": "ingot.options"}, ["errors"])
    >>> get("Options").__name__, get("errors").__name__, "Options" in names()
    ('Options', 'ingot.errors', True)
    """
    submodules = frozenset(modules)

    def get(name: str) -> Any:
        if name in homes:
            value = getattr(load(homes[name]), name)
        elif name in submodules:
            value = load(f"{package}.{name}")
        else:
            unknown = load("ingot.errors").UnknownNameError
            hint = f"; use {elsewhere[name]}" if name in elsewhere else ""
            text = f"module {package!r} has no attribute {name!r}{hint}"
            raise unknown(text, name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(vars(sys.modules[package])["__all__"])

    return get, names


class _CallableModule(ModuleType):
    """A module that can be called as the function that it is named after."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.__dict__["__wrapped__"](*args, **named)


def make_callable(module: str, function: Callable[..., Any]) -> None:
    """Make a module callable as a function: the public one of the same name.

    Importing a module sets it as an attribute of its package, and hides a function of that name.
    """
    found = sys.modules[module]
    # What `inspect.signature` and `help` look for.
    found.__dict__["__wrapped__"] = function
    found.__class__ = _CallableModule
