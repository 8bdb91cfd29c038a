"""Reading onto a GPU by CuPy, with a double of CuPy; the last tests need a GPU."""

import sys

import numpy as np
import pytest

import ingot
from ingot.device.window import BoxAxis, WindowBuilder
from ingot.errors import ArgumentError, ArgumentTypeError, LimitError, UnsupportedError
from ingot.interop import cupy
from tests.cupy_double import use_double
from tests.host_device import needs_compiler, needs_gpu
from tests.property.test_device_reads import same_items

DATA = (np.arange(60_000) % 251).reshape(200, 300)


@needs_compiler
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "?"])
@pytest.mark.parametrize("key", [..., (slice(9, 150, 4), slice(None, None, -1)), ([3, 3, 190], 5)])
def test_items_reach_the_device(dtype: str, key: object) -> None:
    array = ingot.array(DATA.astype(dtype), chunks=(64, 70), codec="blosc:lz4:5:shuffle")
    with use_double():
        assert same_items(array.read(key, device="cuda"), array[key])
        assert same_items(array.read(key, device="cuda:0"), array[key])


@needs_compiler
def test_every_kind_of_block_reaches_the_device() -> None:
    """Delta takes a launch of its own, and an absent chunk has no streams but its fill value."""
    for codec in ("blosc2:blosclz:5:bitshuffle", "blosc:zstd:1:shuffle", "none"):
        array = ingot.create(shape=(200, 300), dtype="i4", chunks=(50, 50), codec=codec, fill=7)
        array[:100] = DATA[:100]
        with use_double():
            assert same_items(array.read(device="cuda"), array[...])


@needs_compiler
def test_out_is_an_array_of_the_device() -> None:
    array = ingot.array(DATA)
    with use_double(count=2):
        device = cupy.find("cuda")
        out = device.empty((300,), np.dtype("i8"))
        assert array.read(3, device="cuda", out=out) is out
        assert same_items(out, DATA[3])
        with pytest.raises(ArgumentTypeError, match="out is ndarray, not an array of CuPy"):
            array.read(3, device="cuda", out=np.zeros(300, "i8"))
        with pytest.raises(ArgumentError, match=r"out lies on cuda:0, not on cuda:1"):
            array.read(3, device="cuda:1", out=out)
        with pytest.raises(ArgumentError, match=r"out is int64\[300\], the selection is int64\[2"):
            array.read(slice(2), device="cuda", out=out)


def test_names_of_devices() -> None:
    for name in ("cpu", "cuda:", "cuda:-1", "cuda 1", ""):
        with pytest.raises(ArgumentError, match="known are 'cuda'"):
            cupy.find(name)
    with use_double(), pytest.raises(ArgumentError, match="'cuda:1', but there are 1 GPUs"):
        cupy.find("cuda:1")


def test_without_a_gpu_or_cupy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    array = ingot.array([1, 2, 3])
    with use_double(count=0), pytest.raises(UnsupportedError, match="no GPU can be used"):
        array.read(device="cuda")
    monkeypatch.setitem(sys.modules, "cupy", None)
    for read in (lambda: array.read(device="cuda"), lambda: array.blocks(device="cuda")):
        with pytest.raises(UnsupportedError, match="in the extra gpu: pip install"):
            read()
    assert cupy.describe().startswith("none: a GPU needs CuPy")


def test_the_gpus_are_described() -> None:
    with use_double(count=2):
        assert cupy.describe() == (
            "cuda:0 Double, 5 of 7 MiB free; cuda:1 Double, 5 of 7 MiB free; "
            "driver for CUDA 12.4, CuPy 0"
        )


@needs_compiler
def test_kernels_are_measured() -> None:
    builder = WindowBuilder()
    builder.add_box(builder.add_plain(0, b"spam"), 0, 1, 1, [BoxAxis(4, 1, 1)])
    with use_double():
        device = cupy.find("cuda")
        result = device.empty((6,), np.dtype("u1"))
        assert device.measure(builder.build(), result, 3) == 0.0025
        assert result.tobytes() == b"ZspamZ"


@needs_compiler
def test_memory_of_the_host_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy keeps it by its size: sizes that are nearly the same become the same."""
    with use_double():
        cuda, sizes = sys.modules["cupy"].cuda, []
        allocate = cuda.alloc_pinned_memory

        def counted(size: int) -> object:
            sizes.append(size)
            return allocate(size)

        monkeypatch.setattr(cuda, "alloc_pinned_memory", counted)
        device = cupy.find("cuda")
        wanted = [0, 1, 4000, (1 << 24) - 1, (1 << 24) + 1, 17_000_000, 17_500_000]
        assert [len(device.staging(size)) for size in wanted] == wanted
    assert all(max(size, 1) <= found for size, found in zip(wanted, sizes, strict=True))
    assert all(found <= 1.125 * size for size, found in zip(wanted[3:], sizes[3:], strict=True))
    assert len(set(sizes[:3])) == len(set(sizes[4:])) == 1


@needs_compiler
def test_a_window_beyond_the_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    array = ingot.array(DATA)
    with use_double():
        device = cupy.find("cuda")
        out = device.empty(DATA.shape, DATA.dtype)

        def full(shape: object, dtype: object) -> object:
            raise MemoryError("out of memory")

        monkeypatch.setattr(sys.modules["cupy"], "empty", full)
        with pytest.raises(LimitError, match=r"a result of \(200, 300\) items of int64"):
            array.read(device="cuda")
        with pytest.raises(LimitError, match=r"device_window_bytes=\) makes windows smaller"):
            array.read(device="cuda", out=out)


@needs_gpu
def test_a_gpu_gives_arrays_of_cupy() -> None:
    found = ingot.array(DATA).read(slice(10, 20), device="cuda")
    assert type(found).__module__.startswith("cupy")
    assert same_items(found, DATA[10:20])
