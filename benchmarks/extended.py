"""Blosc-2 chunks: whole, encoded and in slices, by filter pipeline and codec.

Bars: decoding no slower than ``blosc2.decompress2``; encoding at least 0.9 of the speed of
``blosc2.compress2`` in equal blocks at no larger size; slices ahead of those of ``blosc2.SChunk``.
C-Blosc2 slices chunks with delta or a dictionary wrongly or not at all: the table then says so, and
the bar does not apply.

The result is the processor time of the one working thread: other load disturbs it less than elapsed
time, and on an idle machine both are equal.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.chunk_libraries import LEVEL, TYPESIZE, one_thread, read_blocksize
from benchmarks.decode import SIZES, show_size
from benchmarks.encode import BLOCKSIZE, SIZE_TIE, SPEED_BAR
from benchmarks.packages import NOT_INSTALLED, installed, load
from benchmarks.race import Call, Sampler, race, stopwatch
from benchmarks.samples import KINDS, series
from benchmarks.settings import Settings
from benchmarks.slices import ITEMS, POSITIONS, SIZE, ReadSlice, positions, read_each
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require
from ingot import blosc

__all__ = ["PIPELINES", "Pipeline", "run"]

WRONG = "wrong data"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Filters in the order in which they are applied, a codec, and whether it has a dictionary.

    >>> Pipeline("zstd", ("delta", "shuffle"), dictionary=True).name
    'delta + shuffle, dictionary'
    """

    codec: str
    filters: tuple[str, ...]
    dictionary: bool = False

    @property
    def name(self) -> str:
        """The filters as a table shows them."""
        return " + ".join(self.filters) + (", dictionary" if self.dictionary else "")

    def by_ingot(self, data: bytes, blocksize: int) -> Callable[[], bytes]:
        """Return a call that encodes the data; a ``blocksize`` of 0 is Ingot's choice."""
        return partial(
            blosc.compress,
            data,
            typesize=TYPESIZE,
            codec=self.codec,
            level=LEVEL,
            filters=self.filters,
            version=2,
            blocksize=blocksize or None,
            dictionary="train" if self.dictionary else None,
        )

    def by_blosc2(self, data: bytes, blocksize: int) -> Callable[[], bytes]:
        """Return a call of ``blosc2.compress2`` that does the same."""
        blosc2 = load("blosc2")
        options: dict[str, Any] = {"use_dict": True} if self.dictionary else {}
        return partial(
            blosc2.compress2,
            data,
            codec=blosc2.Codec[self.codec.upper()],
            clevel=LEVEL,
            filters=[blosc2.Filter[name.upper()] for name in self.filters],
            filters_meta=[0] * len(self.filters),
            typesize=TYPESIZE,
            blocksize=blocksize,
            nthreads=1,
            **options,
        )


PIPELINES = (
    *(Pipeline(codec, ("shuffle",)) for codec in ("lz4", "zstd", "blosclz", "zlib")),
    *(Pipeline(codec, ("bitshuffle",)) for codec in ("lz4", "zstd")),
    *(Pipeline(codec, ("delta", "shuffle")) for codec in ("lz4", "zstd")),
    *(Pipeline(codec, ("shuffle",), dictionary=True) for codec in ("zstd", "lz4")),
)

WRITERS = {"C-Blosc2": Pipeline.by_blosc2, "Ingot": Pipeline.by_ingot}

_WHAT = (Column("filters"), Column("codec"))


def run(settings: Settings) -> list[Table]:
    """Decode chunks of both writers, encode, and slice."""
    with one_thread():
        return [
            *(_decoding(settings, writer) for writer in WRITERS),
            _encoding(settings),
            _slicing(settings),
        ]


def _decoding(settings: Settings, writer: str) -> Table:
    columns = (
        *_WHAT,
        Column("size"),
        Column("data"),
        Column("ingot MB/s", ".0f"),
        Column("blosc2 MB/s", ".0f"),
        Column("ingot / blosc2", ".3f"),
        Column("bar"),
    )
    rows: list[tuple[Value, ...]] = []
    if writer == "Ingot" or installed("blosc2"):
        for pipeline, what, data in _samples(settings, f"decode {writer}"):
            chunk = WRITERS[writer](pipeline, data, 0)()
            rows.append((*what, *_decode(settings, chunk, data)))
    title = f"Decoding Blosc-2 chunks that {writer} wrote with its default blocks, one thread"
    return Table("extended", title, columns, tuple(rows))


def _decode(settings: Settings, chunk: bytes, data: bytes) -> tuple[Value, ...]:
    calls: dict[str, Call] = {"ingot": partial(blosc.decompress, chunk)}
    if installed("blosc2"):
        calls["blosc2"] = partial(load("blosc2").decompress2, chunk)
    for name, call in calls.items():
        require(call() == data, f"{name} decodes to other data")
    times = race(_samplers(calls), settings.effort)
    ours = len(data) / times["ingot"] / 1e6
    if "blosc2" not in times:
        return (ours, NOT_INSTALLED, None, None)
    ratio = times["blosc2"] / times["ingot"]
    return (ours, ours / ratio, ratio, settings.verdict(ratio >= 1.0))


def _encoding(settings: Settings) -> Table:
    columns = (
        *_WHAT,
        Column("size"),
        Column("data"),
        Column("ingot MB/s", ".0f"),
        Column("blosc2 MB/s", ".0f"),
        Column("ingot / blosc2", ".3f"),
        Column("our size / its", ".3f"),
        Column("bar"),
    )
    rows = tuple(
        (*what, *_encode(settings, data, pipeline))
        for pipeline, what, data in _samples(settings, "encode")
    )
    title = f"Encoding Blosc-2 chunks in blocks of {show_size(BLOCKSIZE)}, level 5, one thread"
    return Table("extended", title, columns, rows)


def _encode(settings: Settings, data: bytes, pipeline: Pipeline) -> tuple[Value, ...]:
    calls: dict[str, Callable[[], bytes]] = {"ingot": pipeline.by_ingot(data, BLOCKSIZE)}
    if installed("blosc2"):
        calls["blosc2"] = pipeline.by_blosc2(data, BLOCKSIZE)
    sizes = {}
    for name, call in calls.items():
        chunk = call()
        require(blosc.decompress(chunk) == data, f"{name} wrote a chunk of other data")
        same = read_blocksize(chunk) == min(BLOCKSIZE, len(data))
        require(same, f"{name} wrote blocks of {read_blocksize(chunk)} bytes")
        sizes[name] = len(chunk)
    times = race(_samplers(calls), settings.effort)
    ours = len(data) / times["ingot"] / 1e6
    if "blosc2" not in times:
        return (ours, NOT_INSTALLED, None, None, None)
    speed, size = times["blosc2"] / times["ingot"], sizes["ingot"] / sizes["blosc2"]
    held = speed >= SPEED_BAR and size <= SIZE_TIE
    return (ours, ours / speed, speed, size, settings.verdict(held))


def _slicing(settings: Settings) -> Table:
    columns = (
        *_WHAT,
        Column("data"),
        Column("whole us", ".1f"),
        Column("slice us", ".2f"),
        Column("times faster", ".1f"),
        Column("blosc2 SChunk slice us", ".2f"),
        Column("ingot / blosc2", ".2f"),
        Column("bar"),
    )
    size = settings.shrunk(SIZE)
    rows = []
    for pipeline in PIPELINES:
        for kind in KINDS:
            settings.say(f"slice {pipeline.name} {pipeline.codec} {kind}")
            found = _slice(settings, series(kind, size), pipeline)
            rows.append((pipeline.name, pipeline.codec, kind, *found))
    title = f"{ITEMS} items out of a Blosc-2 chunk of {show_size(size)}, our blocks, one thread"
    return Table("extended", title, columns, tuple(rows))


def _slice(settings: Settings, data: bytes, pipeline: Pipeline) -> tuple[Value, ...]:
    chunk = pipeline.by_ingot(data, 0)()
    starts = positions(len(data) // TYPESIZE)
    ours = partial(blosc.decompress_slice, chunk)
    require(_slices_right(ours, starts, data), "ingot slices wrongly")
    calls: dict[str, Call] = {
        "ingot": read_each(ours, starts),
        "whole": partial(blosc.decompress, chunk),
    }
    answer = NOT_INSTALLED
    if installed("blosc2"):
        theirs = _slices_of_blosc2(chunk, len(data))
        answer = WRONG
        if _slices_right(theirs, starts, data):
            calls["blosc2"] = read_each(theirs, starts)
    times = race(_samplers(calls), settings.effort)
    one, whole = times["ingot"] / POSITIONS, times["whole"]
    mine = (whole * 1e6, one * 1e6, whole / one)
    if "blosc2" not in times:
        return (*mine, answer, None, None)
    ratio = times["blosc2"] / times["ingot"]
    return (*mine, times["blosc2"] / POSITIONS * 1e6, ratio, settings.verdict(ratio >= 1.0))


def _slices_of_blosc2(chunk: bytes, nbytes: int) -> ReadSlice:
    holder = load("blosc2").SChunk(
        chunksize=nbytes, cparams={"typesize": TYPESIZE, "nthreads": 1}, dparams={"nthreads": 1}
    )
    holder.insert_chunk(0, chunk)
    return lambda start, stop: bytes(holder[start:stop])


def _slices_right(read: ReadSlice, starts: list[int], data: bytes) -> bool:
    try:
        return all(
            read(start, start + ITEMS) == data[start * TYPESIZE : (start + ITEMS) * TYPESIZE]
            for start in starts
        )
    except (RuntimeError, ValueError):
        return False


def _samples(
    settings: Settings, action: str
) -> Iterator[tuple[Pipeline, tuple[str, str, str, str], bytes]]:
    for pipeline in PIPELINES:
        for nbytes in sorted({settings.shrunk(size) for size in SIZES}):
            for kind in KINDS:
                settings.say(
                    f"{action} {pipeline.name} {pipeline.codec} {show_size(nbytes)} {kind}"
                )
                what = (pipeline.name, pipeline.codec, show_size(nbytes), kind)
                yield pipeline, what, series(kind, nbytes)


def _samplers(calls: dict[str, Any]) -> dict[str, Sampler]:
    return {name: stopwatch(call, clock=time.thread_time) for name, call in calls.items()}
