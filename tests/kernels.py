"""The two kernels, as test parameters.

A native kernel that was not built skips its tests, unless ``INGOT_NATIVE=require`` says that it
had to be built; one that is there but does not load fails them.
"""

import importlib
import importlib.util
import os

import pytest

from ingot import native
from ingot.blosc.inspection import inspect
from ingot.errors import IngotError

NATIVE_IS_BUILT = importlib.util.find_spec("ingot._native") is not None
REQUIRED = os.environ.get("INGOT_NATIVE") == "require"

needs_native = pytest.mark.skipif(
    not NATIVE_IS_BUILT and not REQUIRED, reason="the native kernel is not built"
)

KERNELS = [pytest.param("native", marks=needs_native), "python"]

on_each_kernel = pytest.mark.parametrize("kernel_name", KERNELS)


def twin_may_refuse(chunk: bytes | bytearray) -> bool:
    """Return whether the twin may refuse damaged data that the native kernel reads.

    Zstandard's library lets some damage to the entropy codes of a frame pass, the same in every
    run. The twin uses that library too, but with dictionaries its own decoder, which goes by
    RFC 8878.
    """
    try:
        header = inspect(chunk).header
    except IngotError:
        return False
    return header.codec == "zstd" and header.has_dictionary


def staged_count(chunks: int) -> int:
    """Return how many of so many whole chunks lie staged before their writer has the lock.

    The native kernel stages them while it encodes; the twin keeps them in memory.
    """
    return chunks if native.choice().name == "native" else 0


def load(name: str) -> native.Kernel:
    """Load a kernel by its name in ``INGOT_KERNEL``."""
    return native.choose(name).module
