"""Ingot: NumPy data compressed in chunks, in every format of the Blosc family.

>>> import numpy as np
>>> import ingot
>>> temperature = np.round(np.sin(np.arange(1_000_000) / 300), 2).reshape(1000, 1000)
>>> array = ingot.array(temperature, codec="blosc:zstd:5:shuffle", attrs={"units": "°C"})
>>> array.stored_bytes < array.nbytes // 10
True
>>> np.array_equal(array[10:20, ::-3], temperature[10:20, ::-3])
True
"""

import sys
from typing import TYPE_CHECKING

from ingot.package import Package

if TYPE_CHECKING:
    from ingot import errors
    from ingot.api import array, create, formats, group, open, table
    from ingot.array import Array
    from ingot.codecs import blosc
    from ingot.group import Group
    from ingot.options import Limits, Options
    from ingot.table import Table
    from ingot.views import View

__all__ = [
    "Array",
    "Group",
    "Limits",
    "Options",
    "Table",
    "View",
    "__version__",
    "array",
    "blosc",
    "create",
    "errors",
    "formats",
    "group",
    "open",
    "table",
]

__version__ = "0.1.0"

# Names that checkers of types see above are loaded when they are first used.
sys.modules[__name__].__class__ = Package
