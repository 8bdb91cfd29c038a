"""Ingot: NumPy data compressed in chunks, in every format of the Blosc family.

>>> import numpy as np
>>> import ingot
>>> series = np.arange(100_000)
>>> chunk = ingot.blosc.compress(series, typesize=8)
>>> len(chunk) < series.nbytes // 10
True
>>> np.array_equal(np.frombuffer(ingot.blosc.decompress(chunk), series.dtype), series)
True
"""

from ingot import errors
from ingot.codecs import blosc

__all__ = ["__version__", "blosc", "errors"]

__version__ = "0.1.0"
