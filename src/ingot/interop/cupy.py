"""CuPy: arrays in the memory of a GPU, and the kernels there. Optional, imported on first use.

A window is copied to the GPU as one piece of pinned memory. Windows alternate between two CUDA
streams, so that one is copied while the one before is decoded. NVRTC compiles the kernels when they
are first needed; CuPy keeps the result on disk for each kind of GPU.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.device.window import Window, kernel_source
from ingot.errors import ArgumentError, ArgumentTypeError, LimitError, UnsupportedError

__all__ = ["CudaDevice", "describe", "find"]

_NAME: Final = re.compile(r"cuda(?::([0-9]{1,4}))?", re.ASCII)
# The threads of a block and of a warp, as the kernels have them.
_THREADS: Final = 256
_LANES: Final = 32
_MOST_BLOCKS: Final = 1 << 20
# The thread blocks of a multiprocessor at a time, at most.
_BLOCKS_EACH: Final = 8
# Sizes of pinned memory are multiples of this.
_SMALLEST_STEP: Final = 1 << 16
# Where the parts of a copied window begin; CUDA aligns memory of its own as much.
_ALIGNMENT: Final = 256


def find(name: str) -> "CudaDevice":
    """Return the GPU that has a name: "cuda" is the current one of CuPy, "cuda:1" the second one.

    >>> find("tpu")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: device is 'tpu', known are 'cuda' and 'cuda:0', 'cuda:1', …
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ArgumentError(f"device is {name!r}, known are 'cuda' and 'cuda:0', 'cuda:1', …")
    cupy = _cupy()
    count = _count(cupy)
    number = int(cupy.cuda.Device().id if found[1] is None else found[1])
    if number >= count:
        raise ArgumentError(f"device is {name!r}, but there are {count} GPUs")
    return CudaDevice(number)


def describe() -> str:
    """Return the GPUs with their memory and the driver, or why there are none."""
    try:
        cupy = _cupy()
        count = _count(cupy)
    except UnsupportedError as error:
        return f"none: {error}"
    runtime = cupy.cuda.runtime
    names = []
    for number in range(count):
        with cupy.cuda.Device(number):
            free, total = runtime.memGetInfo()
        name = runtime.getDeviceProperties(number)["name"].decode()
        names.append(f"cuda:{number} {name}, {free >> 20} of {total >> 20} MiB free")
    driver = runtime.driverGetVersion()
    version = f"{driver // 1000}.{driver % 1000 // 10}"
    return "; ".join([*names, f"driver for CUDA {version}, CuPy {cupy.__version__}"])


class CudaDevice:
    """A GPU; implements `ingot.device.device.Device`. For one thread at a time."""

    __slots__ = ("_cupy", "_decoders", "_number", "_streams", "_turn")

    def __init__(self, number: int) -> None:
        self._cupy = _cupy()
        self._number = number
        self._turn = 0
        properties = self._cupy.cuda.runtime.getDeviceProperties(number)
        self._decoders = properties["multiProcessorCount"] * _BLOCKS_EACH
        with self._cupy.cuda.Device(number):
            self._streams = [self._cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array in C order; raise `LimitError` if memory lacks."""
        with self._cupy.cuda.Device(self._number):
            try:
                return self._cupy.empty(shape, dtype)
            except self._cupy.cuda.memory.OutOfMemoryError as error:
                raise LimitError(f"a result of {shape} items of {dtype}: {error}") from None

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Return pinned memory."""
        with self._cupy.cuda.Device(self._number):
            return _pinned(self._cupy, max(nbytes, 1))[:nbytes]

    def upload(self, array: NDArray[Any]) -> Any:
        """Return an array of NumPy as one of the GPU."""
        with self._cupy.cuda.Device(self._number):
            return self._cupy.asarray(array)

    def is_contiguous(self, array: Any) -> bool:
        """Return whether an array lies on this GPU in C order; raise unless it is CuPy's there."""
        if not isinstance(array, self._cupy.ndarray):
            raise ArgumentTypeError(f"out is {type(array).__name__}, not an array of CuPy")
        if array.device.id != self._number:
            raise ArgumentError(f"out lies on cuda:{array.device.id}, not on cuda:{self._number}")
        return bool(array.flags.c_contiguous)

    def submit(self, window: Window, result: Any) -> Callable[[], NDArray[np.uint32]]:
        """Begin to decode a window into a result; return what waits for the statuses."""
        cupy, stream = self._cupy, self._streams[self._turn]
        self._turn = 1 - self._turn
        with cupy.cuda.Device(self._number):
            # Whatever the caller has done with the memory of the result comes first.
            begun = cupy.cuda.get_current_stream().record()
            with stream:
                stream.wait_event(begun)
                try:
                    staged, parts = self._copied(window, stream)
                    reserved = self._reserved(window)
                    statuses = self._launch(window, parts, reserved, result)
                    found = _pinned(cupy, statuses.nbytes).view(np.uint32)
                    statuses.get(stream=stream, out=found, blocking=False)
                except BaseException as error:
                    # What is being copied must not be freed before.
                    stream.synchronize()
                    if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
                        raise LimitError(
                            f"a window of {window.room} decoded bytes: {error}; "
                            "Limits(device_window_bytes=) makes windows smaller"
                        ) from None
                    raise

        def wait() -> NDArray[np.uint32]:
            stream.synchronize()
            staged.clear()
            if found[-1]:
                raise AssertionError("a table of a window points outside of its buffers")
            return found[:-1]

        return wait

    def measure(self, window: Window, result: Any, turns: int) -> float:
        """Return the seconds that the kernels take for a window on the GPU, the best of some turns.

        For benchmarks: reading, planning and copying are not counted.
        """
        cupy, stream, best = self._cupy, self._streams[0], math.inf
        with cupy.cuda.Device(self._number), stream:
            staged, parts = self._copied(window, stream)
            reserved = self._reserved(window)
            for _ in range(turns):
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record(stream)
                statuses = self._launch(window, parts, reserved, result)
                end.record(stream)
                end.synchronize()
                best = min(best, cupy.cuda.get_elapsed_time(begin, end) / 1000)
            if statuses.get(stream=stream).any():
                raise AssertionError("a window that is measured has a stream that is not sound")
        staged.clear()
        return best

    def swap_bytes(self, result: Any, width: int) -> None:
        """Turn the bytes of all words of a result around."""
        words = result.nbytes // width
        with self._cupy.cuda.Device(self._number):
            swap = _kernels(self._number).get_function("swap_bytes")
            swap(_grid(words, _THREADS), (_THREADS,), (result, np.uint64(words), np.uint32(width)))
            self._cupy.cuda.get_current_stream().synchronize()

    def _copied(self, window: Window, stream: Any) -> tuple[list[Any], list[Any]]:
        """Copy a window to the GPU: what lies in pinned memory already, and the rest.

        Return what has to live until that is done, and the places of the input and of the tables.
        """
        cupy = self._cupy
        tables: tuple[NDArray[Any], ...] = (
            *(window.blocks, window.block_owners, window.boxes, window.box_owners),
            *(window.axes, window.offsets),
        )
        starts, size = [], 0
        for nbytes in (window.input_size, *(table.nbytes for table in tables)):
            starts.append(size)
            size += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        held = 0 if window.memory is None else len(window.memory)
        pinned = _pinned(cupy, max(size - held, 1))
        window.write_pieces(pinned[: window.input_size - held])
        for start, table in zip(starts[1:], tables, strict=True):
            begin = start - held
            pinned[begin : begin + table.nbytes] = table.view(np.uint8).reshape(-1)
        memory = cupy.empty(held + len(pinned), np.uint8)
        if held:
            memory[:held].set(window.memory, stream=stream)
        memory[held:].set(pinned, stream=stream)
        return [pinned, memory, window], [memory[start:] for start in starts]

    def _reserved(self, window: Window) -> tuple[Any, ...]:
        """Return memory for what the kernels pass on: two buffers, planes, and statuses."""
        cupy, streams = self._cupy, len(window.block_owners)
        front, back = (cupy.empty(max(window.room, 1), np.uint8) for _ in range(2))
        planes = cupy.empty(max(streams, 1), np.uint64)
        # Behind the statuses of streams lie that of all boxes, and how many streams are begun.
        return front, back, planes, cupy.empty(streams + 2, np.uint32)

    def _launch(
        self, window: Window, parts: Sequence[Any], reserved: Sequence[Any], result: Any
    ) -> Any:
        """Start the kernels for a window whose tables are copied; return where the statuses are."""
        kernels = _kernels(self._number)
        stored, blocks, block_owners, boxes, box_owners, axes, offsets = parts
        front, back, planes, statuses = reserved
        statuses[...] = 0
        streams, units = len(window.block_owners), len(window.box_owners)
        room, input_size = np.uint64(window.room), np.uint64(window.input_size)
        counted = (blocks, np.uint64(len(window.blocks)))
        sized = (result, np.uint64(result.nbytes))
        if streams:
            kernels.get_function("find_streams")(
                _grid(len(window.blocks), _THREADS),
                (_THREADS,),
                (
                    *(*counted, stored, input_size, room, np.uint64(result.nbytes)),
                    *(planes, statuses, np.uint64(streams)),
                ),
            )
            kernels.get_function("decode_streams")(
                _grid(streams, _THREADS // _LANES, self._decoders),
                (_THREADS,),
                (
                    *(*counted, block_owners, np.uint64(streams)),
                    *(stored, input_size, front, room, *sized, planes, statuses),
                    statuses[streams + 1 :],
                ),
            )
        for referring in range((1 + window.refers) if window.filters else 0):
            kernels.get_function("undo_filters")(
                _grid(len(window.blocks), 1),
                (_THREADS,),
                (
                    *(*counted, planes, np.uint64(streams), stored, input_size),
                    *(front, back, room, *sized, np.uint32(referring)),
                ),
            )
        if units:
            kernels.get_function("scatter")(
                _grid(units, _THREADS // _LANES),
                (_THREADS,),
                (
                    *(boxes, np.uint64(len(window.boxes)), box_owners, np.uint64(units)),
                    *(axes, np.uint64(len(window.axes)), offsets, np.uint64(len(window.offsets))),
                    *(front, back, room, *sized, statuses[streams:]),
                ),
            )
        return statuses[: streams + 1]


def _grid(work: int, each: int, most: int = _MOST_BLOCKS) -> tuple[int]:
    """Return how many thread blocks share some work, of which each does so much at a time."""
    return (min(-(-work // each), most),)


def _pinned(cupy: Any, size: int) -> NDArray[np.uint8]:
    """Return memory of the host that a GPU copies by itself.

    CuPy keeps what is freed for requests of the same size; making new memory takes longer than
    reading files into it. So sizes are rounded up, by an eighth at most.
    """
    step = max(1 << size.bit_length() >> 4, _SMALLEST_STEP)
    rounded = -(-size // step) * step
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(rounded), np.uint8, size)


@cache
def _kernels(number: int) -> Any:
    """Return the kernels for a GPU, compiled by NVRTC."""
    cupy = _cupy()
    with cupy.cuda.Device(number):
        return cupy.RawModule(code=kernel_source(), options=("--std=c++17",))


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise UnsupportedError(
            f"a GPU needs CuPy, which is in the extra gpu: pip install 'ingot-store[gpu]' ({error})"
        ) from None
    return cupy


def _count(cupy: Any) -> int:
    """Return the number of GPUs; raise `UnsupportedError` if there is none."""
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"no GPU can be used: {error}") from None
    if not count:
        raise UnsupportedError("no GPU can be used: the driver names none")
    return count
