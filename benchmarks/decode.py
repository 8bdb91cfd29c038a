"""Decoding whole chunks: the same chunk by every library.

Bar: no slower than ``blosc2.decompress2``, at every size and for every kind of data.
"""

from collections.abc import Iterator, Mapping

from benchmarks.chunk_libraries import (
    ChunkLibrary,
    Ingot,
    chunk_libraries,
    encode_by_c_blosc,
    one_thread,
)
from benchmarks.packages import NOT_INSTALLED
from benchmarks.race import race, stopwatch
from benchmarks.samples import KINDS, series
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require

__all__ = ["CODECS", "SIZES", "judge", "run", "show_size", "speeds"]

CODECS = ("lz4", "zstd", "blosclz", "zlib")
SIZES = (4 << 10, 1 << 20, 8 << 20)
BAR = 1.0


def run(settings: Settings) -> list[Table]:
    """Decode chunks with C-Blosc's default blocks, and with ours."""
    libraries = chunk_libraries()
    columns = (
        Column("codec"),
        Column("size"),
        Column("data"),
        *(Column(f"{name} MB/s", ".0f") for name in libraries),
        Column("ingot / blosc2", ".3f"),
        Column("bar"),
    )
    tables = []
    with one_thread():
        for writer in WRITERS:
            title = f"Decoding chunks that {writer} wrote with its default blocks, one thread"
            rows = tuple(_measure(settings, libraries, writer))
            tables.append(Table("decode", title, columns, rows))
    return tables


def speeds(
    libraries: Mapping[str, ChunkLibrary | None], times: Mapping[str, float], nbytes: int
) -> list[Value]:
    """Turn times into megabytes a second, one value per library, missing ones by name.

    >>> speeds({"ingot": Ingot(), "other": None}, {"ingot": 2.0}, 4_000_000)
    [2.0, 'not installed']
    """
    return [nbytes / times[name] / 1e6 if name in times else NOT_INSTALLED for name in libraries]


def show_size(nbytes: int) -> str:
    """Return a size with its unit.

    >>> show_size(16), show_size(4096), show_size(8 << 20)
    ('16 B', '4 KB', '8 MB')
    """
    if nbytes < 1 << 10:
        return f"{nbytes} B"
    large = nbytes >= 1 << 20
    return f"{nbytes / (1 << 20):.4g} MB" if large else f"{nbytes / 1024:.4g} KB"


def judge(times: Mapping[str, float]) -> float | None:
    """Return Ingot's speed relative to ``blosc2.decompress2``, None without it.

    >>> judge({"ingot": 2.0, "blosc2": 3.0})
    1.5
    """
    return times["blosc2"] / times["ingot"] if "blosc2" in times else None


def _measure(
    settings: Settings, libraries: Mapping[str, ChunkLibrary | None], writer: str
) -> Iterator[tuple[Value, ...]]:
    for codec in CODECS:
        for nbytes in sorted({settings.shrunk(size) for size in SIZES}):
            for kind in KINDS:
                settings.say(f"decode {writer} {codec} {show_size(nbytes)} {kind}")
                data = series(kind, nbytes)
                chunk = WRITERS[writer](data, codec)
                calls = {
                    name: library.decoding(chunk)
                    for name, library in libraries.items()
                    if library is not None
                }
                for name, call in calls.items():
                    require(call() == data, f"{name} decodes {codec} {kind} to other data")
                samplers = {name: stopwatch(call) for name, call in calls.items()}
                times = race(samplers, settings.effort)
                ratio = judge(times)
                bar = None if ratio is None else settings.verdict(ratio >= BAR)
                shown = speeds(libraries, times, nbytes)
                yield (codec, show_size(nbytes), kind, *shown, ratio, bar)


def _encode_by_us(data: bytes, codec: str) -> bytes:
    return Ingot().encoding(data, codec, 0)()


WRITERS = {"C-Blosc": encode_by_c_blosc, "Ingot": _encode_by_us}
