"""The overhead of a call without any decoding: chunks whose data are stored raw.

A stored chunk needs no codec and no filter, only a copy, so the time of the call is its overhead
and the copy. Bar: under a microsecond, even with the 4 KB copied.
"""

from benchmarks.chunk_libraries import chunk_libraries, one_thread
from benchmarks.decode import show_size
from benchmarks.packages import NOT_INSTALLED
from benchmarks.race import race, stopwatch
from benchmarks.samples import series
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from ingot import blosc

__all__ = ["run", "stored_chunk"]

SIZES = (16, 4 << 10)
BAR = 1e-6


def run(settings: Settings) -> list[Table]:
    """Decode stored chunks of 16 bytes and 4 KB, and a compressed one of 4 KB beside them."""
    data = series("ints", 4 << 10)
    chunks = {f"{show_size(size)} stored": stored_chunk(data[:size]) for size in SIZES}
    compressed = "4 KB lz4"
    chunks[compressed] = blosc.compress(data, typesize=8)
    libraries = chunk_libraries()
    rows = []
    with one_thread():
        for name, chunk in chunks.items():
            settings.say(f"overhead {name}")
            samplers = {
                title: stopwatch(library.decoding(chunk))
                for title, library in libraries.items()
                if library is not None
            }
            times = race(samplers, settings.effort)
            shown: list[Value] = [
                times[title] * 1e6 if title in times else NOT_INSTALLED for title in libraries
            ]
            # For comparison only: the cost of decoding is measured by another workload.
            bar = None if name == compressed else settings.verdict(times["ingot"] < BAR)
            rows.append((name, *shown, bar))
    columns = (
        Column("chunk"),
        *(Column(f"{name} us", ".2f") for name in libraries),
        Column("bar"),
    )
    return [Table("overhead", "Time of one call, one thread", columns, tuple(rows))]


def stored_chunk(data: bytes) -> bytes:
    """Return a chunk that holds the data raw.

    >>> stored_chunk(b"spam")[16:]
    b'spam'
    """
    return blosc.compress(data, typesize=8, level=0)
