"""``ingot demo``: compress, inspect and read back sample data, with sizes and times.

Every byte that is read back is compared with what was written.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from ingot import blosc, native
from ingot.errors import CorruptionError

__all__ = ["Measurement", "demo", "measure", "measurements", "portrait", "samples"]

Result = TypeVar("Result")

CODECS = ("blosclz", "lz4", "zlib", "zstd")

SIZES = {"native": 8 << 20, "python": 128 << 10}
"""Bytes of each sample, by kernel: the pure-Python one is some hundred times slower."""


def demo() -> None:
    """Show what Ingot does.

    Compress, inspect and read back data that looks real.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    chosen = native.choice()
    console.print(f"kernel: {chosen.name} ({chosen.reason})")
    table = Table(title="Blosc chunks, one thread; the slice is 100 items from the middle")
    for heading in ("data", "codec"):
        table.add_column(heading, no_wrap=True)
    for heading in ("size", "ratio", "compress MB/s", "decompress MB/s", "slice us"):
        table.add_column(heading, justify="right")
    for row in measurements():
        table.add_row(*_cells(row), end_section=row.codec == CODECS[-1])
    console.print(table, soft_wrap=False)
    console.print(portrait())
    console.print("Everything read back equals what was written.")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One sample through one codec: sizes in bytes, times in seconds.

    >>> Measurement("ticks", "lz4", 800, 100, 1e-6, 1e-6, 1e-6).ratio
    8.0
    """

    data: str
    codec: str
    nbytes: int
    cbytes: int
    compress_time: float
    decompress_time: float
    slice_time: float

    @property
    def ratio(self) -> float:
        """How many times smaller the chunk is than its data."""
        return self.nbytes / self.cbytes


def samples(nbytes: int) -> dict[str, npt.NDArray[np.generic]]:
    """Return the samples: about ``nbytes`` bytes each, the same in every run.

    >>> sorted(samples(1024))
    ['categories', 'log text', 'temperature', 'timestamps']
    """
    rng = np.random.default_rng(20)
    hours = np.arange(nbytes // 8)
    day, year = np.sin(hours * (2 * np.pi / 24)), np.sin(hours * (2 * np.pi / 8766))
    temperature = 11 + 5 * day + 9 * year + rng.normal(0, 0.4, hours.size).cumsum() * 0.01
    seconds = 1_700_000_000 + np.cumsum(rng.integers(1, 4, nbytes // 8))
    categories = rng.zipf(1.7, nbytes // 4).clip(max=400).astype(np.int32)
    lines = [
        b"%d GET /station/%d/hour/%d 200\n" % (second, station, station % 24)
        for second, station in zip(
            seconds[: nbytes // 32].tolist(), categories.tolist(), strict=False
        )
    ]
    return {
        # A sensor that counts sixteenths of a degree.
        "temperature": np.round(temperature * 16) / 16,
        "timestamps": seconds,
        "categories": categories,
        "log text": np.frombuffer(b"".join(lines), np.uint8),
    }


def measure(name: str, data: npt.NDArray[np.generic], codec: str) -> Measurement:
    """Compress, decompress and slice one sample, and check that nothing changed.

    >>> measure("ticks", np.arange(1000), "lz4").nbytes
    8000
    """
    itemsize = data.itemsize
    raw = data.tobytes()
    compress_time, chunk = _time(lambda: blosc.compress(raw, typesize=itemsize, codec=codec))
    decompress_time, whole = _time(lambda: blosc.decompress(chunk))
    start = data.size // 2
    stop = min(start + 100, data.size)
    slice_time, part = _time(lambda: blosc.decompress_slice(chunk, start, stop))
    if whole != raw or part != raw[start * itemsize : stop * itemsize]:
        raise CorruptionError(f"{name} through {codec}: what was read is not what was written")
    return Measurement(
        name, codec, len(raw), len(chunk), compress_time, decompress_time, slice_time
    )


def measurements(nbytes: int | None = None) -> Iterator[Measurement]:
    """Yield a measurement for every sample and codec, at a size that suits the kernel.

    >>> len(list(measurements(4096)))
    16
    """
    size = SIZES[native.choice().name] if nbytes is None else nbytes
    for name, data in samples(size).items():
        for codec in CODECS:
            yield measure(name, data, codec)


def portrait() -> str:
    """Describe one small chunk, block by block, as ``ingot.blosc.inspect`` prints it.

    >>> "lz4" in portrait()
    True
    """
    categories = samples(64 << 10)["categories"]
    chunk = blosc.compress(categories.tobytes(), typesize=4, blocksize=32 << 10)
    return str(blosc.inspect(chunk))


def _cells(row: Measurement) -> tuple[str, ...]:
    return (
        row.data,
        row.codec,
        f"{row.cbytes:,}",
        f"{row.ratio:.1f}",
        f"{row.nbytes / row.compress_time / 1e6:,.0f}",
        f"{row.nbytes / row.decompress_time / 1e6:,.0f}",
        f"{row.slice_time * 1e6:,.0f}",
    )


def _time(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the better of two runs, so that the first one's page faults do not count."""
    best = float("inf")
    for _ in range(2):
        begin = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - begin)
    return best, result
