"""A double of CuPy for tests: its arrays lie in the memory of the host, where its kernels run.

It has what `ingot.interop.cupy` uses. It shows that tables, arguments and statuses reach the
kernels in the right order; about streams, pinned memory and a GPU it shows nothing.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingot.interop import cupy as interop
from tests.host_device import library, sanitized

__all__ = ["use_double"]


class Array(np.ndarray[Any, Any]):
    """An array of the double."""

    device = SimpleNamespace(id=0)

    def set(self, array: Any, stream: object = None) -> None:
        """Copy from an array of NumPy."""
        assert stream is not None
        self[...] = array

    def get(self, stream: object = None, out: Any = None, blocking: bool = True) -> Any:
        """Copy to an array of NumPy."""
        if out is None:
            return np.array(self)
        out[...] = self
        return out


class Context:
    """A stream or a device: what it is does not matter here."""

    def __init__(self, number: int = 0, *, non_blocking: bool = False) -> None:
        self.id = number

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def record(self) -> object:
        """Return an event."""
        return object()

    def wait_event(self, event: object) -> None:
        """Wait for an event of another stream."""

    def synchronize(self) -> None:
        """Wait for all that was started."""


class Event(Context):
    """A mark in a stream."""

    def record(self, stream: object = None) -> object:
        """Set the mark."""
        return self


class RawModule:
    """Kernels, compiled for the host."""

    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        assert "decode_streams" in code
        assert options

    def get_function(self, name: str) -> Any:
        """Return what starts a kernel."""
        function = getattr(library(sanitized()), name)

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            assert grid[0] >= 1
            assert block == (256,)
            function(*map(_argument, arguments))

        return launch


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    kinds = {np.dtype("u8"): ctypes.c_uint64, np.dtype("u4"): ctypes.c_uint32}
    return kinds[value.dtype](int(value))


def _double(count: int) -> ModuleType:
    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeError,
        getDeviceCount=lambda: count,
        memGetInfo=lambda: (5 << 20, 7 << 20),
        getDeviceProperties=lambda number: {"name": b"Double", "multiProcessorCount": 2},
        driverGetVersion=lambda: 12040,
    )
    module: Any = ModuleType("cupy")
    module.ndarray = Array
    module.empty = lambda shape, dtype: np.full(shape, 90, "u1").astype(dtype).view(Array)
    module.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
    module.asarray = lambda array: np.array(array).view(Array)
    module.RawModule = RawModule
    module.__version__ = "0"
    module.cuda = SimpleNamespace(
        Device=Context,
        Stream=Context,
        Event=Event,
        get_elapsed_time=lambda begin, end: 2.5,
        runtime=runtime,
        get_current_stream=Context,
        alloc_pinned_memory=bytearray,
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
    )
    return module  # type: ignore[no-any-return]


@contextmanager
def use_double(count: int = 1) -> Iterator[None]:
    """Let the double stand in for CuPy, with so many GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", _double(count))
        interop._kernels.cache_clear()
        yield
    interop._kernels.cache_clear()
