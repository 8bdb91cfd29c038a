"""A hundred items out of a chunk of 4 MB, against decoding it whole.

Bars: ten times faster with our blocks, four times with C-Blosc's. Positions are random, the same
for all libraries; the time is the mean over all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.chunk_libraries import TYPESIZE, Ingot, encode_by_c_blosc, one_thread
from benchmarks.decode import CODECS, show_size
from benchmarks.packages import NOT_INSTALLED, installed, load
from benchmarks.race import Call, race, stopwatch
from benchmarks.samples import KINDS, series
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require
from ingot import blosc

__all__ = ["ITEMS", "POSITIONS", "SIZE", "ReadSlice", "positions", "read_each", "run"]

SIZE = 4 << 20
ITEMS = 100
POSITIONS = 16
BARS = {"Ingot": 10.0, "C-Blosc": 4.0}

ReadSlice = Callable[[int, int], bytes]


def run(settings: Settings) -> list[Table]:
    """Slice chunks with our default blocks, and with C-Blosc's."""
    columns = (
        Column("blocks of"),
        Column("codec"),
        Column("data"),
        Column("whole us", ".1f"),
        Column("slice us", ".2f"),
        Column("times faster", ".1f"),
        Column("bar"),
        Column("blosc2 SChunk slice us", ".2f"),
        Column("ingot / blosc2", ".2f"),
    )
    with one_thread():
        rows = tuple(row for writer in BARS for row in _measure(settings, writer))
    size = show_size(settings.shrunk(SIZE))
    return [Table("slices", f"{ITEMS} items out of a chunk of {size}, one thread", columns, rows)]


def positions(count: int) -> list[int]:
    """Return the starts of slices of ``count`` items.

    >>> len(positions(1000)), max(positions(1000)) <= 900
    (16, True)
    """
    rng = np.random.default_rng(5)
    chosen: list[int] = rng.integers(0, count - ITEMS, POSITIONS, endpoint=True).tolist()
    return chosen


def _measure(settings: Settings, writer: str) -> Iterator[tuple[Value, ...]]:
    starts = positions(settings.shrunk(SIZE) // TYPESIZE)
    for codec in CODECS:
        for kind in KINDS:
            settings.say(f"slices {writer} {codec} {kind}")
            data = series(kind, settings.shrunk(SIZE))
            by_us = writer == "Ingot"
            chunk = Ingot().encoding(data, codec, 0)() if by_us else encode_by_c_blosc(data, codec)
            readers = _readers(chunk, len(data))
            for name, read in readers.items():
                _check(name, read, starts, data)
            calls = {name: read_each(read, starts) for name, read in readers.items()}
            calls["whole"] = Ingot().decoding(chunk)
            samplers = {name: stopwatch(call) for name, call in calls.items()}
            times = race(samplers, settings.effort)
            ours, whole = times["ingot"] / POSITIONS, times["whole"]
            theirs = times["blosc2"] / POSITIONS if "blosc2" in times else None
            bar = settings.verdict(whole / ours >= BARS[writer])
            peer: tuple[Value, ...] = (NOT_INSTALLED, None)
            if theirs is not None:
                peer = (theirs * 1e6, theirs / ours)
            yield (writer, codec, kind, whole * 1e6, ours * 1e6, whole / ours, bar, *peer)


def _readers(chunk: bytes, nbytes: int) -> dict[str, ReadSlice]:
    readers: dict[str, ReadSlice] = {"ingot": partial(blosc.decompress_slice, chunk)}
    if installed("blosc2"):
        # python-blosc2 reads a part of a chunk only through a super-chunk.
        holder = load("blosc2").SChunk(
            chunksize=nbytes,
            cparams={"typesize": TYPESIZE, "nthreads": 1},
            dparams={"nthreads": 1},
        )
        holder.insert_chunk(0, chunk)
        readers["blosc2"] = lambda start, stop: holder[start:stop]
    return readers


def read_each(read: ReadSlice, starts: Sequence[int]) -> Call:
    """Return a call that reads a slice from each start.

    >>> read_each(lambda start, stop: print(start, stop), [5, 70])()
    5 105
    70 170
    """
    ranges = [(start, start + ITEMS) for start in starts]

    def call() -> None:
        for start, stop in ranges:
            read(start, stop)

    return call


def _check(name: str, read: ReadSlice, starts: Sequence[int], data: bytes) -> None:
    for start in starts:
        expected = data[start * TYPESIZE : (start + ITEMS) * TYPESIZE]
        require(read(start, start + ITEMS) == expected, f"{name} slices wrongly at item {start}")
