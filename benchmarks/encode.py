"""Encoding at equal block size: speed and size.

Bar: at least 0.9 of the speed of the fastest C library, at no larger size than that one's. Sizes
that differ by at most 0.5 % count as equal: headers have 16 or 32 bytes, and a codec of another
version finds a few bytes more or less.
"""

from collections.abc import Iterator, Mapping

from benchmarks.chunk_libraries import (
    ChunkLibrary,
    chunk_libraries,
    one_thread,
    read_blocksize,
)
from benchmarks.decode import CODECS, SIZES, show_size, speeds
from benchmarks.race import race, stopwatch
from benchmarks.samples import KINDS, series
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require

__all__ = ["BLOCKSIZE", "check_blocks", "compare", "run"]

BLOCKSIZE = 128 << 10
SPEED_BAR = 0.9
SIZE_TIE = 1.005


def run(settings: Settings) -> list[Table]:
    """Encode the same data by every library."""
    libraries = chunk_libraries()
    columns = (
        Column("codec"),
        Column("size"),
        Column("data"),
        *(Column(f"{name} MB/s", ".0f") for name in libraries),
        Column("fastest C"),
        Column("ingot / it", ".3f"),
        Column("our size / its", ".3f"),
        Column("bar"),
    )
    with one_thread():
        rows = tuple(_measure(settings, libraries))
    title = f"Encoding in blocks of {show_size(BLOCKSIZE)}, level 5, shuffle, one thread"
    return [Table("encode", title, columns, rows)]


def compare(
    times: Mapping[str, float], sizes: Mapping[str, int]
) -> tuple[str, float, float, bool] | None:
    """Compare with the fastest peer: its name, our speed and size relative to it, the verdict.

    >>> compare({"ingot": 1.0, "a": 0.5, "b": 2.0}, {"ingot": 100, "a": 100, "b": 50})
    ('a', 0.5, 1.0, False)
    >>> compare({"ingot": 1.0, "a": 0.95}, {"ingot": 1004, "a": 1000})
    ('a', 0.95, 1.004, True)
    """
    peers = {name: time for name, time in times.items() if name != "ingot"}
    if not peers:
        return None
    fastest = min(peers, key=peers.__getitem__)
    speed = times[fastest] / times["ingot"]
    size = sizes["ingot"] / sizes[fastest]
    return fastest, speed, size, speed >= SPEED_BAR and size <= SIZE_TIE


def check_blocks(chunks: Mapping[str, bytes], nbytes: int) -> None:
    """Refuse chunks that are not comparable because their blocks have another size.

    >>> from ingot import blosc
    >>> check_blocks({"ingot": blosc.compress(bytes(8000), blocksize=800)}, 8000)
    Traceback (most recent call last):
    benchmarks.verify.WrongResultError: ingot wrote blocks of 800 bytes, 8000 were asked for
    """
    expected = min(BLOCKSIZE, nbytes)
    for name, chunk in chunks.items():
        found = read_blocksize(chunk)
        problem = f"{name} wrote blocks of {found} bytes, {expected} were asked for"
        require(found == expected, problem)


def _measure(
    settings: Settings, libraries: Mapping[str, ChunkLibrary | None]
) -> Iterator[tuple[Value, ...]]:
    present = {name: library for name, library in libraries.items() if library is not None}
    for codec in CODECS:
        for nbytes in sorted({settings.shrunk(size) for size in SIZES}):
            for kind in KINDS:
                settings.say(f"encode {codec} {show_size(nbytes)} {kind}")
                data = series(kind, nbytes)
                calls = {
                    name: library.encoding(data, codec, BLOCKSIZE)
                    for name, library in present.items()
                }
                chunks = {name: call() for name, call in calls.items()}
                check_blocks(chunks, nbytes)
                for name, chunk in chunks.items():
                    decoded = present[name].decoding(chunk)()
                    require(decoded == data, f"{name} wrote a chunk of other data")
                samplers = {name: stopwatch(call) for name, call in calls.items()}
                times = race(samplers, settings.effort)
                sizes = {name: len(chunk) for name, chunk in chunks.items()}
                shown = speeds(libraries, times, nbytes)
                yield (codec, show_size(nbytes), kind, *shown, *_verdict(settings, times, sizes))


def _verdict(
    settings: Settings, times: Mapping[str, float], sizes: Mapping[str, int]
) -> tuple[Value, ...]:
    comparison = compare(times, sizes)
    if comparison is None:
        return (None, None, None, None)
    fastest, speed, size, held = comparison
    return (fastest, speed, size, settings.verdict(held))
