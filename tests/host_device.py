"""The kernels of a device, compiled for the host: a device for tests, of one thread.

The source is the one that NVRTC compiles for a GPU. With sanitizers it runs in a child only, where
the memory of NumPy is watched as well: the address sanitizer has to be loaded before Python is.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.device.device import Device
from ingot.device.window import BoxAxis, Spans, Window, WindowBuilder, kernel_source
from ingot.errors import ArgumentTypeError
from ingot.interop import cupy

__all__ = [
    "COMPILER",
    "DEVICES",
    "HostDevice",
    "decoded",
    "needs_compiler",
    "needs_gpu",
    "on_host",
    "run_lanes",
    "run_sanitized",
    "sanitized",
]

ROOT = Path(__file__).resolve().parents[1]
COMPILER = shutil.which("g++") if sys.platform == "linux" else None
WARNINGS = ("-Wall", "-Wextra", "-Werror")
FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-g", "-fno-strict-aliasing", "-shared", "-fPIC")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
_MARK = "INGOT_SANITIZED_KERNELS"

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels with")
_GPU = cupy.describe()
needs_gpu = pytest.mark.skipif(_GPU.startswith("none"), reason=f"a GPU: {_GPU}")


@cache
def library(sanitizers: bool) -> ctypes.CDLL:
    """Compile the kernels and load them."""
    assert COMPILER is not None
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "kernels.cu"), Path(folder, "kernels.so")
        source.write_text(kernel_source(), "utf-8")
        flags = [*FLAGS, *WARNINGS, *(SANITIZERS if sanitizers else ())]
        subprocess.run([COMPILER, *flags, str(source), "-o", str(built)], check=True)
        return ctypes.CDLL(str(built))


def sanitized() -> bool:
    """Return whether this process was started for sanitized kernels."""
    return _MARK in os.environ


def run_sanitized(*arguments: str) -> str:
    """Run Python with the address sanitizer loaded; return what it printed, raise if it failed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=sanitized_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def sanitized_environment() -> dict[str, str]:
    """Return the environment of a process that loads sanitized kernels."""
    assert COMPILER is not None
    names = [
        subprocess.check_output([COMPILER, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    # Python itself ends without freeing all of its memory.
    settings = "detect_leaks=0:hard_rss_limit_mb=2000:allocator_may_return_null=1"
    return os.environ | {
        "LD_PRELOAD": " ".join(names),
        "ASAN_OPTIONS": settings,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        _MARK: "1",
    }


class HostDevice:
    """A device whose memory is that of the host, and which runs one thread."""

    def __init__(self) -> None:
        self._library = library(sanitized())

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of this device; what it holds is nothing that a read may leave."""
        made = np.empty(shape, dtype)
        made.reshape(-1).view(np.uint8)[...] = 0xA5
        return made

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory."""
        return np.empty(nbytes, np.uint8)

    def upload(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of an array."""
        return array.copy()

    def is_contiguous(self, array: Any) -> bool:
        """Return whether an array is in C order; raise unless it is one of NumPy."""
        if not isinstance(array, np.ndarray):
            raise ArgumentTypeError(f"out is {type(array).__name__}, not an array of the device")
        return bool(array.flags.c_contiguous)

    def swap_bytes(self, result: NDArray[Any], width: int) -> None:
        """Turn the bytes of words around."""
        size = ctypes.c_uint64(result.nbytes // width)
        self._library.swap_bytes(_pointer(result), size, ctypes.c_uint32(width))

    def submit(self, window: Window, result: NDArray[Any]) -> Callable[[], NDArray[np.uint32]]:
        """Decode a window and move its items into the result; return what has the statuses."""
        assert result.flags.c_contiguous
        statuses = np.full(len(window.block_owners), 0xFFFF, np.uint32)
        front, back = (np.full(window.room, 0x5A, np.uint8) for _ in range(2))
        stored = np.empty(window.input_size, np.uint8)
        window.write_input(stored)
        blocks = *_sized(window.blocks), *_sized(window.block_owners)
        planes = np.full(len(window.block_owners), 0xFFFF, np.uint64)
        begun = np.zeros(1, np.uint32)
        into = _pointer(result), ctypes.c_uint64(result.nbytes)
        sizes = [ctypes.c_uint64(size) for size in (window.room, result.nbytes)]
        self._library.find_streams(
            *(*_sized(window.blocks), *_sized(stored), *sizes),
            *(_pointer(planes), _pointer(statuses), ctypes.c_uint64(len(statuses))),
        )
        self._library.decode_streams(
            *(*blocks, *_sized(stored), *_sized(front), *into),
            *(_pointer(planes), _pointer(statuses), _pointer(begun)),
        )
        for referring in range(1 + window.refers):
            self._library.undo_filters(
                *(*_sized(window.blocks), *_sized(planes), *_sized(stored)),
                *(_pointer(front), *_sized(back), *into, ctypes.c_uint32(referring)),
            )
        outside = np.zeros(1, np.uint32)
        self._library.scatter(
            *_sized(window.boxes),
            *_sized(window.box_owners),
            *_sized(window.axes),
            *_sized(window.offsets),
            *(_pointer(front), *_sized(back)),
            *(*into, _pointer(outside)),
        )
        assert not outside[0], "a box reaches out of a buffer"
        return lambda: statuses


DEVICES: Final = [
    pytest.param(HostDevice, marks=needs_compiler, id="host"),
    pytest.param(lambda: cupy.find("cuda"), marks=needs_gpu, id="cuda"),
]
"""What makes each device that tests read onto."""


def on_host(array: Any) -> NDArray[Any]:
    """Return an array of a device as one of NumPy."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


@cache
def _lanes_program(folder: Path, barriers: bool) -> Path:
    """Compile the program that runs a window with a thread of the host for each lane."""
    assert COMPILER is not None
    built = folder / f"device_lanes_{barriers}"
    flags = ["-std=c++17", "-O1", "-g", *WARNINGS, "-fno-strict-aliasing", "-fsanitize=thread"]
    flags += ["-pthread", f"-I{ROOT / 'src' / 'ingot' / 'device'}"]
    flags += [] if barriers else ["-DWITHOUT_BARRIERS"]
    source = ROOT / "tests" / "device_lanes.cpp"
    subprocess.run([COMPILER, *flags, str(source), "-o", str(built)], check=True)
    return built


def run_lanes(
    folder: Path, window: Window, nbytes: int, *, barriers: bool = True
) -> tuple[NDArray[np.uint32], bytes]:
    """Run a window with several lanes, under the thread sanitizer.

    Return the statuses, those of the boxes last, and the result. Raise what the sanitizer says.
    """
    stored = np.empty(window.input_size, np.uint8)
    window.write_input(stored)
    tables = (window.blocks, window.block_owners, stored, window.boxes, window.box_owners)
    tables += (window.axes, window.offsets)
    counts = np.array([*map(len, tables), window.room, nbytes], np.uint64)
    given, found = folder / "window", folder / "outcome"
    given.write_bytes(b"".join(table.tobytes() for table in (counts, *tables)))
    program = _lanes_program(folder, barriers)
    done = subprocess.run(
        [program, given, found], capture_output=True, text=True, timeout=600, check=False
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not start here: " + done.stderr.strip()[:200])
    assert done.returncode == 0, done.stderr[:4000]
    outcome, size = found.read_bytes(), 4 * (len(window.block_owners) + 1)
    return np.frombuffer(outcome[:size], np.uint32), outcome[size:]


def decoded(device: Device, chunk: bytes, begin: int, end: int) -> bytes | None:
    """Return bytes of a decoded chunk; None where it is left to the CPU, or refused."""
    nbytes = int.from_bytes(chunk[4:8], "little", signed=True)
    builder = WindowBuilder()
    staged = builder.add_chunk(0, chunk, nbytes, Spans(np.array([begin]), np.array([end])))
    if staged is None:
        return None
    builder.add_box(staged, begin, 0, 1, [BoxAxis(end - begin, 1, 1)])
    result = device.empty((end - begin,), np.dtype(np.uint8))
    window = builder.build()
    statuses = device.submit(window, result)()
    return None if window.failed(statuses) else on_host(result).tobytes()


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _sized(array: NDArray[Any]) -> tuple[ctypes.c_void_p, ctypes.c_uint64]:
    return _pointer(array), ctypes.c_uint64(array.size)
