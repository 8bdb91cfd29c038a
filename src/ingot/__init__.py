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

from typing import TYPE_CHECKING

from ingot._lazy import lazy_names

if TYPE_CHECKING:
    from ingot import blosc, errors, stores
    from ingot.api import array, convert, create, group, open, ragged, table
    from ingot.check import check
    from ingot.containers.array import Array
    from ingot.containers.group import Group
    from ingot.containers.ragged import Ragged
    from ingot.containers.table import Table
    from ingot.containers.view import View
    from ingot.formats.registry import list_formats as formats
    from ingot.options import Limits, Options
    from ingot.repair import repair

__all__ = [
    "Array",
    "Group",
    "Limits",
    "Options",
    "Ragged",
    "Table",
    "View",
    "__version__",
    "array",
    "blosc",
    "check",
    "convert",
    "create",
    "errors",
    "formats",
    "group",
    "open",
    "ragged",
    "repair",
    "stores",
    "table",
]

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Array": "ingot.containers.array",
        "Group": "ingot.containers.group",
        "Limits": "ingot.options",
        "Options": "ingot.options",
        "Ragged": "ingot.containers.ragged",
        "Table": "ingot.containers.table",
        "View": "ingot.containers.view",
        "array": "ingot.api",
        "convert": "ingot.api",
        "create": "ingot.api",
        "group": "ingot.api",
        "open": "ingot.api",
        "ragged": "ingot.api",
        "table": "ingot.api",
    },
    ("blosc", "check", "codecs", "errors", "formats", "repair", "stores"),
    {
        **dict.fromkeys(("load", "open_array", "open_group", "File"), "ingot.open"),
        **dict.fromkeys(("empty", "zeros", "ones", "full"), "ingot.create(shape=, dtype=, fill=)"),
        **dict.fromkeys(("asarray", "save", "save_array"), "ingot.array(values, path)"),
        **dict.fromkeys(("create_array", "open_like"), "ingot.create"),
        "carray": "ingot.array; ingot.compat.bcolz runs programs of bcolz",
        "compress": "ingot.blosc.compress",
        "create_group": "ingot.group",
        "create_table": "ingot.table",
        "ctable": "ingot.table; ingot.compat.bcolz runs programs of bcolz",
        "decompress": "ingot.blosc.decompress",
    },
)
