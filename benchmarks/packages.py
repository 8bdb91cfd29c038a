"""The packages that a benchmark compares, loaded if they are installed.

Finds a package and its version by name, so that a missing peer only leaves its column empty.
"""

import importlib
import importlib.metadata
import importlib.util
from types import ModuleType

__all__ = ["NOT_INSTALLED", "installed", "load", "version"]

NOT_INSTALLED = "not installed"


def installed(package: str) -> bool:
    """Return whether a package can be imported.

    >>> installed("json"), installed("no_such_package")
    (True, False)
    """
    return importlib.util.find_spec(package) is not None


def load(package: str) -> ModuleType:
    """Import a package; ``ImportError`` when it is not installed.

    >>> load("json").dumps([1])
    '[1]'
    """
    return importlib.import_module(package)


def version(package: str) -> str:
    """Return the version of an installed distribution.

    >>> version("no_such_package")
    'not installed'
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return NOT_INSTALLED
