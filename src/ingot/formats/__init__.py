"""Formats: what the bytes in a store mean.

The package can be called: ``ingot.formats()`` lists the formats that can be read and written.

>>> import ingot
>>> ingot.formats()["zarr2"]
('array', 'group')
"""

import sys

from ingot.formats.registry import FormatsPackage

sys.modules[__name__].__class__ = FormatsPackage
