"""The two kernels, as test parameters.

A native kernel that was not built skips its tests, unless ``INGOT_NATIVE=require`` says that it
had to be built; one that is there but does not load fails them.
"""

import importlib.util
import os

import pytest

from ingot import native

NATIVE_IS_BUILT = importlib.util.find_spec("ingot._native") is not None
REQUIRED = os.environ.get("INGOT_NATIVE") == "require"

needs_native = pytest.mark.skipif(
    not NATIVE_IS_BUILT and not REQUIRED, reason="the native kernel is not built"
)

on_each_kernel = pytest.mark.parametrize(
    "kernel_name", [pytest.param("native", marks=needs_native), "python"]
)


def load(name: str) -> native.Kernel:
    """Load a kernel by its name in ``INGOT_KERNEL``."""
    return native.choose(name).module
