"""Arrays onto a GPU: the kernels alone, from files to the GPU, and batches of random crops.

The kernels are measured on data that lie on the GPU, by its own clock. From files (in the page
cache) to the GPU, Ingot is compared with reading on the CPU and copying then, by Ingot itself and
by zarr and tensorstore where they are installed. The bars are those of an H200, and are judged on
one only.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.packages import installed, load
from benchmarks.race import race, stopwatch
from benchmarks.samples import Recipe, fill, series
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require
from ingot.codecs.codec import parse_spelling, parse_stage
from ingot.device.window import Window
from ingot.interop import cupy as door
from ingot.options import Limits, Options
from ingot.stores import MemoryStore

__all__ = ["run"]

LARGE = 4 << 30
SMALL = 100_000_000
CHUNK_BYTES = 16 << 20
TURNS = 10
BATCH = 64
CROP = (8, 16, 32, 32)
JUDGED_ON = "H200"

# GB/s of the kernels for LZ4 and shuffle, blocks of 128 KiB: 4 GB, and 100 MB.
BARS = {"field": (350, 150), "walk": (600, 150), "ints": (700, 150)}
CASES = (
    ("blosc:lz4:5:shuffle", 128 << 10, 1.0),
    ("blosc:lz4:5:shuffle", 16 << 10, 1.0),
    ("blosc:lz4:5:bitshuffle", 128 << 10, 0.5),
    ("blosc:blosclz:5:shuffle", 128 << 10, 0.5),
)
LEAST_GAIN = 3.0
LEAST_PART = 0.8

OURS = "Ingot, decoded on the GPU"
FILES = "reading the files alone, into pinned memory by all cores"
LINK = "copying the stored bytes alone, from pinned memory"
THREADS = 16
PART = 1 << 20


def run(settings: Settings) -> list[Table]:
    """Measure what can be measured; without a GPU, say so."""
    found = door.describe()
    if found.startswith("none"):
        columns = (Column("arrays onto a GPU"), Column("missing"))
        return [Table("gpu", "Arrays onto a GPU", columns, (("a GPU is needed", found),))]
    judged = settings.judged and JUDGED_ON in found
    return [_kernels(settings, judged), _reads(settings, judged), _crops(settings)]


class _Recorder:
    """A device that keeps its windows, and decodes nothing."""

    def __init__(self) -> None:
        self.windows: list[Window] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        return np.empty(nbytes, np.uint8)

    def upload(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous)

    def submit(self, window: Window, result: Any) -> Callable[[], NDArray[np.uint32]]:
        self.windows.append(window)
        return lambda: np.zeros(len(window.block_owners), np.uint32)

    def swap_bytes(self, result: Any, width: int) -> None:
        return None


def _data(kind: str, nbytes: int) -> NDArray[Any]:
    """Return a field of float32 with noise, a walk of float64, or ascending integers of 8 bytes.

    >>> [_data(kind, 4096).nbytes for kind in BARS]
    [4096, 4096, 4096]
    """
    if kind == "field":
        rows = max(nbytes // 4096, 1)
        return fill(Recipe((rows, 1024), "<f4", (rows, 1024))).reshape(-1)
    return np.frombuffer(series(kind, nbytes), "<i8" if kind == "ints" else "<f8")


def _stored(data: NDArray[Any], codec: str, block: int, place: Any) -> ingot.Array:
    (blosc,) = parse_spelling(codec)
    stage = parse_stage(blosc.config() | {"blocksize": block})
    chunk = max(min(CHUNK_BYTES, data.nbytes) // data.itemsize, 1)
    return ingot.array(data, place, chunks=chunk, codec=stage, format="zarr2")


def _kernels(settings: Settings, judged: bool) -> Table:
    rows: list[tuple[Value, ...]] = []
    device = door.find("cuda")
    for nbytes, name, which in ((LARGE, "4 GB", 0), (SMALL, "100 MB", 1)):
        for kind, bars in BARS.items():
            data = _data(kind, settings.shrunk(nbytes))
            for codec, block, part in CASES:
                settings.say(f"kernels: {name}, {kind}, {codec}, blocks of {block >> 10} KiB")
                speed, ratio = _kernel_speed(device, data, codec, block)
                bar = part * bars[which]
                verdict = speed >= bar if judged else None
                rows.append((name, kind, codec, block >> 10, ratio, speed, bar, verdict))
    columns = (
        *(Column("size"), Column("data"), Column("codec"), Column("block, KiB", "d")),
        *(Column("ratio", ".2f"), Column("GB/s", ".0f"), Column("bar", ".0f"), Column("verdict")),
    )
    return Table("gpu", "Kernels alone, on data that lie on the GPU", columns, tuple(rows))


def _kernel_speed(
    device: door.CudaDevice, data: NDArray[Any], codec: str, block: int
) -> tuple[float, float]:
    """Return the gigabytes that the kernels decode in a second, and the ratio of the data."""
    store, recorder = MemoryStore(), _Recorder()
    array = _stored(data, codec, block, store)
    whole = Options(limits=Limits(device_window_bytes=2 * data.nbytes))
    ingot.open(store, options=whole).read(device=recorder)
    (window,) = recorder.windows
    result = device.empty(data.shape, data.dtype)
    seconds = device.measure(window, result, TURNS)
    require(bool((result.get() == data).all()), f"{codec}: wrong items")
    return data.nbytes / seconds / 1e9, array.cratio


def _reads(settings: Settings, judged: bool) -> Table:
    """Compare reading files onto the GPU with reading on the CPU and copying."""
    data = _data("ints", settings.shrunk(LARGE))
    place = settings.folder / "ints.zarr"
    ratio = _stored(data, "blosc:lz4:5:shuffle", 128 << 10, place).cratio
    upload = door.find("cuda").upload
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: ingot.open(place).read(device="cuda"),
        "Ingot, decoded on the CPU": lambda: upload(ingot.open(place)[...]),
    }
    if installed("zarr"):
        calls["zarr"] = lambda: upload(load("zarr").open_array(str(place), mode="r")[...])
    if installed("tensorstore"):
        calls["tensorstore"] = lambda: upload(_read_by_tensorstore(place))
    for name, call in calls.items():
        settings.say(f"from files: {name}")
        require(bool((call().get() == data).all()), f"{name}: wrong items")
    peers = [name for name in calls if name != OURS]
    files = [path for path in place.iterdir() if path.is_file()]
    pinned = door.find("cuda").staging(sum(path.stat().st_size for path in files))
    with ThreadPoolExecutor(THREADS) as pool:
        calls[FILES] = partial(_read_files, files, pinned, pool)
        calls[LINK] = partial(_copy, pinned)
        times = race({name: stopwatch(call) for name, call in calls.items()}, settings.effort)
    rows: list[tuple[Value, ...]] = [
        (name, data.nbytes / seconds / 1e9, seconds / times[OURS], None)
        for name, seconds in times.items()
    ]
    best, least = min(times[name] for name in peers), max(times[FILES], times[LINK])
    for name, seconds, bar in (
        ("the best CPU path", best, LEAST_GAIN),
        ("the slower of files and link", least, LEAST_PART),
    ):
        gain = seconds / times[OURS]
        rows.append((name, data.nbytes / seconds / 1e9, gain, gain >= bar if judged else None))
    columns = (Column("files"), Column("GB/s", ".1f"), Column("gain", ".2f"), Column("bar"))
    title = f"From the page cache to the GPU, {data.nbytes / 1e9:.1f} GB at a ratio of {ratio:.1f}"
    return Table("gpu", title, columns, tuple(rows))


def _read_files(files: Sequence[Path], memory: NDArray[np.uint8], pool: Executor) -> None:
    """Read files into memory, one behind the other, as fast as threads can."""
    opened = [path.open("rb", buffering=0) for path in files]
    jobs, at = [], 0
    for file, path in zip(opened, files, strict=True):
        size = path.stat().st_size
        for start in range(0, size, PART):
            part = memory[at + start : at + min(start + PART, size)].data
            jobs.append((file.fileno(), [part], start))
        at += size
    list(pool.map(lambda job: os.preadv(*job), jobs))
    for file in opened:
        file.close()


def _copy(memory: NDArray[np.uint8]) -> None:
    """Copy memory of the host to the GPU, and wait for it."""
    upload = door.find("cuda").upload
    upload(memory)
    load("cupy").cuda.Device().synchronize()


def _read_by_tensorstore(place: Path) -> NDArray[Any]:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(place)}}
    found: NDArray[Any] = load("tensorstore").open(spec, read=True).result().read().result()
    return found


def _crops(settings: Settings) -> Table:
    """Measure batches of random crops of an array with four axes, as training reads them."""
    items = settings.shrunk(LARGE // 4) // 4
    rows = max(items // (32 * 128 * 128), CROP[0] + 1)
    recipe = Recipe((rows, 32, 128, 128), "<f4", (16, 16, 64, 64))
    place = settings.folder / "crops.zarr"
    array = ingot.array(fill(recipe), place, chunks=recipe.chunks, format="zarr2")
    device = door.find("cuda")
    choose = np.random.default_rng(3)
    spare = np.array(array.shape) - CROP + 1
    keys = [
        tuple(slice(at, at + size) for at, size in zip(corner, CROP, strict=True))
        for corner in choose.integers(spare, size=(BATCH, 4)).tolist()
    ]

    def by_gpu() -> Any:
        batch = device.empty((BATCH, *CROP), np.dtype("f4"))
        for place_in, key in zip(batch, keys, strict=True):
            array.read(key, device=device, out=place_in)
        return batch

    def by_cpu() -> Any:
        batch = np.empty((BATCH, *CROP), "f4")
        for place_in, key in zip(batch, keys, strict=True):
            array.read(key, out=place_in)
        return device.upload(batch)

    require(bool((by_gpu().get() == by_cpu().get()).all()), "crops: wrong items")
    calls = {"decoded on the GPU": by_gpu, "decoded on the CPU": by_cpu}
    times = race({name: stopwatch(call) for name, call in calls.items()}, settings.effort)
    rows_of = [(name, seconds * 1e3, BATCH / seconds) for name, seconds in times.items()]
    columns = (Column("crops"), Column("batch, ms", ".2f"), Column("crops a second", ".0f"))
    return Table("gpu", f"Batches of {BATCH} random crops {CROP}", columns, tuple(rows_of))
