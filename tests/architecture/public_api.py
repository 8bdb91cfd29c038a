"""The public names of the package and their signatures, as text.

``python -m tests.architecture.public_api`` prints the list that `public_api.txt` holds. That file
changes only when the public API is meant to change.
"""

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ingot
import ingot.blosc
import ingot.errors
import ingot.stores
import ingot.testing
from ingot.containers.dataset import Dataset

MODULES: tuple[ModuleType, ...] = (
    ingot,
    ingot.blosc,
    ingot.errors,
    ingot.stores,
    ingot.testing,
)

CONTAINERS = (ingot.Array, ingot.Group, ingot.Ragged, ingot.Table, ingot.View)
"""Classes whose objects are made by functions, so that their constructors are not public."""


def lines() -> Iterator[str]:
    """Yield a line for each public name, and for each public member of a class."""
    for module in MODULES:
        for name in sorted(module.__all__):
            yield from _described(f"{module.__name__}.{name}", getattr(module, name))


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in _public_bases(value))
        yield f"class {name}({bases})"
        if not issubclass(value, BaseException):
            yield from _members(name, value)
    elif isinstance(value, ModuleType) and not callable(value):
        yield f"module {name}"
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _members(name: str, kind: type) -> Iterator[str]:
    inherited = Dataset if issubclass(kind, Dataset) else kind
    for member in sorted({*vars(kind), *vars(inherited)}):
        if member.startswith("_") and member not in ("__init__", "__getitem__", "__setitem__"):
            continue
        if (member == "__init__" and kind in CONTAINERS) or member.startswith("test_"):
            continue
        value = inspect.getattr_static(kind, member)
        if isinstance(value, property):
            yield f"  {name}.{member}"
        elif inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
            yield f"  {name}.{member}{_signature(getattr(kind, member))}"


def _public_bases(kind: type) -> Iterator[type]:
    """Yield the bases of a class; `Dataset` is not public, and its members count as the class's."""
    bases = [base for base in kind.__bases__ if base is not Dataset]
    yield from bases or [object]


def _signature(value: Any) -> str:
    """Return the parameters with their kinds and defaults; annotations are for type checkers."""
    try:
        signature = inspect.signature(value)
    except ValueError:
        return "(...)"
    bare = [
        each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))


if __name__ == "__main__":
    print("\n".join(lines()))
