"""The packages that a benchmark compares: loaded when they are there.

Knows how to find a package and its version. Refuses to know what it is used for. Everything is
looked up by name, so that a peer that is missing costs its column and nothing else.
"""

import importlib
import importlib.metadata
import importlib.util
from types import ModuleType

__all__ = ["NOT_INSTALLED", "installed", "load", "version"]

NOT_INSTALLED = "not installed"


def installed(package: str) -> bool:
    """Say whether a package can be imported.

    >>> installed("json"), installed("no_such_package")
    (True, False)
    """
    return importlib.util.find_spec(package) is not None


def load(package: str) -> ModuleType:
    """Import a package; ``ImportError`` when it is not there.

    >>> load("json").dumps([1])
    '[1]'
    """
    return importlib.import_module(package)


def version(package: str) -> str:
    """Return the version of what is installed under this name.

    >>> version("no_such_package")
    'not installed'
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return NOT_INSTALLED
