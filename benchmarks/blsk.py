"""Super-chunk files beside chunk files, shards and a frame of Blosc2: changes first of all.

400 MB in chunks of 256 KiB. Bars, as ratios in one run: random items, each a commit, `process` 3
times as fast as chunk files (the faster of bcolz and zarr3) and 5 times as fast as b2nd, `full` 5
times as fast as chunk files; all items in one call, and in one transaction, twice as fast as the
best of the others. Reads by another process beside these changes take at most 1.3 times as long as
without them. A full read, a box and planes are as fast as the best of the others, an item is read
in 25 us, and writing is as fast as in shards. A table answers queries and reads rows within 1.05
of bcolz, and appends ahead of it. 100 000 chunks are opened in 5 ms and the first item of them is
read in 1 ms more. There are at most 1 % of the files of bcolz.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.array_libraries import remove
from benchmarks.measures import boxes, elements, planes, whole
from benchmarks.places import ROOT
from benchmarks.race import race, stopwatch
from benchmarks.samples import Key, Recipe, fill
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.table_libraries import Ingot, Opened
from benchmarks.tables import make_task
from benchmarks.verify import require
from ingot.containers.array import Array
from ingot.stores.store import Durability

__all__ = ["count_files", "run", "updates"]

SERIES = Recipe((50 << 20,), "<i8", (32 << 10,))
CUBE = Recipe((384, 384, 352), "<f8", (32, 32, 32))
CODEC = "blosc:lz4:5:shuffle"
UPDATES = 10_000
TURNS = 10
ROWS = 10_000_000
CHUNKS = 100_000

BLSK, B2ND = "blsk", "b2nd"
CHUNK_FILES = ("bcolz", "zarr3")
SHARDS = "zarr3 in shards"
FORMATS: Mapping[str, tuple[str, bool]] = {
    BLSK: (BLSK, False),
    "bcolz": ("bcolz", False),
    "zarr3": ("zarr3", False),
    SHARDS: ("zarr3", True),
}
"""The formats of Ingot that take part, and whether their chunks lie in shards."""

Seconds = Mapping[str, float]


def run(settings: Settings) -> list[Table]:
    """Measure changes, reads beside them, whole arrays, tables, and the costs of many chunks."""
    folder = settings.folder / "blsk"
    folder.mkdir()
    tables = [
        *_time_updates(settings, folder, "process"),
        *_time_updates(settings, folder, "full"),
        _time_readers(settings, folder),
        _time_arrays(settings, folder),
        _time_tables(settings, folder),
        _time_many(settings, folder),
    ]
    remove(str(folder))
    return tables


def updates(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield random places of an array and the value that each gets, all of them different.

    >>> found = list(updates(10, 3))
    >>> [value for _, value in found], all(0 <= place < 10 for place, _ in found)
    ([1, 2, 3], True)
    """
    places = np.random.default_rng(3).integers(0, length, count)
    return zip(places.tolist(), itertools.count(1), strict=False)


def count_files(path: Path) -> int:
    """Count the files below a folder.

    >>> count_files(Path(__file__).parent / "nothing")
    0
    """
    return sum(file.is_file() for file in path.rglob("*"))


# Changes


def _time_updates(settings: Settings, folder: Path, durability: Durability) -> list[Table]:
    recipe = SERIES.scaled(settings.scale)
    count = max(TURNS, int(UPDATES * min(settings.scale, 1.0)))
    data = _make_series(recipe)
    made = _make_all(folder, recipe, data, durability)
    each: dict[str, float] = {}
    at_once: dict[str, float] = {}
    within: dict[str, float] = {}
    changes = list(updates(len(data), count))
    size = count // TURNS
    turns = [changes[start : start + size] for start in range(0, TURNS * size, size)]
    count = TURNS * size
    changes = changes[:count]
    settings.say(f"{durability}: {count} updates of {', '.join(made)}")
    for part in turns:
        for name, array in made.items():
            seconds = _seconds(partial(_update_each, array, part))
            each[name] = each.get(name, 0.0) + seconds
    places, values = (np.array(column) for column in zip(*changes, strict=True))
    expected = data.copy()
    expected[places] = values
    for name, array in made.items():
        require(np.array_equal(array[:], expected), f"{name}: wrong items after the updates")
        if name == B2ND:
            continue
        settings.say(f"{durability}: one call and one transaction of {name}")
        at_once[name] = min(
            _seconds(partial(array.__setitem__, places, values + turn)) for turn in (1, 2, 3)
        )
        require(bool(array[places[-1]] == values[-1] + 3), f"{name}: wrong item")
        within[name] = min(_seconds(partial(_update_within, array, changes)) for _ in range(2))
    tries = {"each a commit": each, "in one call": at_once, "in one transaction": within}
    rows: list[tuple[Value, ...]] = []
    for title, found in tries.items():
        rows += [
            (title, name, seconds / count * 1e6, seconds / found[BLSK])
            for name, seconds in found.items()
        ]
    columns = (
        Column("updates"),
        Column("format"),
        Column("us each", ".1f"),
        Column("times blsk", ".2f"),
    )
    for path in folder.iterdir():
        remove(str(path))
    title = f"{count} updates of one item, {recipe.nbytes / 1e6:.0f} MB, {durability}"
    found = Table("blsk", title, columns, tuple(rows))
    return [found, _judge_updates(settings, durability, tries)]


def _judge_updates(
    settings: Settings, durability: Durability, tries: Mapping[str, Seconds]
) -> Table:
    each = tries["each a commit"]
    files = min(each[name] for name in CHUNK_FILES) / each[BLSK]
    bars = [("chunk files, each a commit", files, 3.0 if durability == "process" else 5.0)]
    if durability == "process" and B2ND in each:
        bars.append(("b2nd, each a commit", each[B2ND] / each[BLSK], 5.0))
    for title in ("in one call", "in one transaction"):
        found = tries[title]
        best = min(seconds for name, seconds in found.items() if name != BLSK)
        bars.append((f"the best other, {title}", best / found[BLSK], 2.0))
    columns = (
        Column("against"),
        Column("times as fast", ".2f"),
        Column("at least", ".1f"),
        Column("bar"),
    )
    rows = tuple((*bar, settings.verdict(bar[1] >= bar[2])) for bar in bars)
    return Table("blsk", f"Updates by blsk, {durability}", columns, rows)


def _make_series(recipe: Recipe) -> NDArray[Any]:
    """Return a random walk of integers."""
    steps = np.random.default_rng(4).integers(-500, 501, recipe.shape[0])
    return np.cumsum(steps).astype(recipe.dtype)


def _make_all(
    folder: Path, recipe: Recipe, data: NDArray[Any], durability: Durability
) -> dict[str, Any]:
    """Write an array in every format, and as b2nd where blosc2 is installed."""
    made: dict[str, Any] = {}
    for name in FORMATS:
        if name in CHUNK_FILES[:1] and len(recipe.shape) > 1:
            continue  # bcolz divides the first axis only.
        made[name] = _write(folder / name.replace(" ", "-"), name, recipe, data, durability)
    library = _blosc2()
    if library is not None:
        path = str(folder / "array.b2nd")
        made[B2ND] = _write_b2nd(library, path, recipe, data)
    return made


def _write(
    path: Path, name: str, recipe: Recipe, data: NDArray[Any], durability: Durability = "process"
) -> Array:
    format, in_shards = FORMATS[name]
    layout = {"shards": _shards(recipe)} if in_shards else {}
    return ingot.array(
        data,
        path,
        chunks=recipe.chunks,
        format=format,
        codec=CODEC,
        options=ingot.Options(durability=durability),
        **layout,
    )


def _shards(recipe: Recipe) -> tuple[int, ...]:
    """Return shards of 64 chunks, fewer where the array has fewer."""
    side = round(64 ** (1 / len(recipe.shape)))
    pairs = zip(recipe.shape, recipe.chunks, strict=True)
    return tuple(chunk * min(side, -(-length // chunk)) for length, chunk in pairs)


def _blosc2() -> Any:
    try:
        import blosc2
    except ImportError:
        return None
    return blosc2


def _write_b2nd(library: Any, path: str, recipe: Recipe, data: NDArray[Any]) -> Any:
    codec = {"codec": library.Codec.LZ4, "clevel": 5, "filters": [library.Filter.SHUFFLE]}
    return library.asarray(
        data, chunks=recipe.chunks, urlpath=path, mode="w", contiguous=True, cparams=codec
    )


def _update_each(array: Any, changes: Sequence[tuple[int, int]]) -> None:
    for place, value in changes:
        array[place] = value


def _update_within(array: Array, changes: Sequence[tuple[int, int]]) -> None:
    with array.transaction():
        _update_each(array, changes)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


# Reads beside changes

_WRITER = """
import sys, ingot
from benchmarks.blsk import updates
array = ingot.open(sys.argv[1], "r+", options=ingot.Options(durability="process"))
print("begun", flush=True)
while True:
    for place, value in updates(len(array), 1000):
        array[place] = value
"""


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Have another process change items of an array, one after the other."""
    command = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            require(process.stdout.readline().strip() == b"begun", "the writer does not begin")
            yield
            require(process.poll() is None, "the writer ended")
        finally:
            process.kill()


def _time_readers(settings: Settings, folder: Path) -> Table:
    settings.say("reads beside changes")
    recipe = SERIES.scaled(settings.scale)
    path = folder / "changed"
    _write(path, BLSK, recipe, _make_series(recipe))
    array = ingot.open(path)
    places = itertools.cycle([place for place, _ in updates(len(array), 1000)])
    chunk = recipe.chunks[0]
    calls = {
        "item": lambda: array[next(places)],
        "4096 items": lambda: _read_part(array, next(places), 4096),
        "eight chunks": lambda: _read_part(array, next(places), 8 * chunk),
        "everything": lambda: array[:],
    }
    samplers = {title: stopwatch(call) for title, call in calls.items()}
    quiet = race(samplers, settings.effort)
    with _changing(path):
        beside = race(samplers, settings.effort)
    remove(str(path))
    rows = []
    for title in calls:
        ratio = beside[title] / quiet[title]
        held = settings.verdict(beside[title] < 25e-6 if title == "item" else ratio <= 1.3)
        rows.append((title, quiet[title] * 1e6, beside[title] * 1e6, ratio, held))
    columns = (
        Column("read"),
        Column("quiet us", ".1f"),
        Column("beside us", ".1f"),
        Column("ratio", ".2f"),
        Column("bar"),
    )
    notes = ("An item is to be read in 25 us beside changes, the others in 1.3 times the time.",)
    return Table("blsk", "Reads beside changes by another process", columns, tuple(rows), notes)


def _read_part(array: Any, place: int, length: int) -> object:
    first = max(0, min(place, len(array) - length))
    return array[first : first + length]


# Whole arrays


def _time_arrays(settings: Settings, folder: Path) -> Table:
    recipe = CUBE.scaled(settings.scale)
    data = fill(recipe)
    settings.say(f"arrays of {recipe.nbytes / 1e6:.0f} MB")
    made = _make_all(folder, recipe, data, "process")
    writers = {
        name: stopwatch(
            partial(_write, folder / "new", name, recipe, data),
            partial(remove, str(folder / "new")),
        )
        for name in made
        if name != B2ND
    }
    if B2ND in made:
        path = str(folder / "new.b2nd")
        again = partial(_write_b2nd, _blosc2(), path, recipe, data)
        writers[B2ND] = stopwatch(again, partial(remove, path))
    found = {"write": race(writers, settings.effort)}
    for title, keys in (
        ("full read", whole(recipe)),
        ("box", boxes(recipe)),
        ("plane, axis 0", planes(0)(recipe)),
        ("plane, axis 2", planes(2)(recipe)),
        ("item", elements(recipe)),
    ):
        settings.say(f"arrays: {title}")
        for name, array in made.items():
            right = all(np.array_equal(array[key], data[key]) for key in keys)
            require(right, f"{name}: {title}: wrong items")
        readers = {name: stopwatch(partial(_read, array, keys)) for name, array in made.items()}
        times = race(readers, settings.effort)
        found[title] = {name: seconds / len(keys) for name, seconds in times.items()}
    rows = []
    for title, times in found.items():
        rivals = {name: seconds for name, seconds in times.items() if name != BLSK}
        if title == "write":
            best, ratio = SHARDS, times[SHARDS] / times[BLSK]
        else:
            best = min(rivals, key=rivals.__getitem__)
            ratio = rivals[best] / times[BLSK]
        held = times[BLSK] < 25e-6 if title == "item" else ratio >= 1
        cells = [times.get(name) for name in (BLSK, "zarr3", SHARDS, B2ND)]
        shown = [None if seconds is None else seconds * 1e6 for seconds in cells]
        rows.append((title, *shown, best, ratio, settings.verdict(held)))
    columns = (
        Column("what"),
        *(Column(f"{name} us", ".1f") for name in (BLSK, "zarr3", SHARDS, B2ND)),
        Column("against"),
        Column("times as fast", ".2f"),
        Column("bar"),
    )
    for each in folder.iterdir():
        remove(str(each))
    shape = " x ".join(map(str, recipe.shape))
    return Table("blsk", f"{shape} f8 in chunks of 256 KiB", columns, tuple(rows))


def _read(array: Any, keys: Sequence[Key]) -> None:
    for key in keys:
        array[key]


# Tables


def _time_tables(settings: Settings, folder: Path) -> Table:
    task = make_task(max(10_000, int(ROWS * min(settings.scale, 1.0))))
    settings.say("tables")
    libraries = {format: Ingot("process", format) for format in (BLSK, "bcolz")}
    writers = {}
    tables: dict[str, Opened] = {}
    for format, library in libraries.items():
        library.write(task.columns, folder / format)
        tables[format] = library.open(folder / format)
        again = partial(library.write, task.columns, folder / "new")
        writers[format] = stopwatch(again, partial(remove, str(folder / "new")))
    more = {name: column[:1000] for name, column in task.columns.items()}
    asks: dict[str, tuple[Callable[[Opened], object], float]] = {
        "column": (lambda table: table.column("price"), 1 / 1.05),
        "range query": (lambda table: table.between(task.low, task.high), 1 / 1.05),
        "selective query": (lambda table: table.selective(task.symbol, task.size), 1 / 1.05),
        "scattered rows": (lambda table: table.rows(task.numbers), 1 / 1.05),
        "append of 1000 rows": (lambda table: table.append(more), 1.0),
    }
    found = {"write": (race(writers, settings.effort), 1.0)}
    for title, (ask, bar) in asks.items():
        settings.say(f"tables: {title}")
        samplers = {format: stopwatch(partial(ask, opened)) for format, opened in tables.items()}
        found[title] = race(samplers, settings.effort), bar
    rows: list[tuple[Value, ...]] = []
    for title, (times, bar) in found.items():
        ratio = times["bcolz"] / times[BLSK]
        cells = (times[format] * 1e3 for format in libraries)
        rows.append((title, *cells, ratio, bar, settings.verdict(ratio >= bar)))
    for each in folder.iterdir():
        remove(str(each))
    columns = (
        Column("what"),
        Column("blsk ms", ".2f"),
        Column("bcolz ms", ".2f"),
        Column("times as fast", ".2f"),
        Column("at least", ".2f"),
        Column("bar"),
    )
    count = len(task.columns["time"])
    return Table("blsk", f"A table of {count} rows, as bcolz and blsk", columns, tuple(rows))


# Many chunks


def _time_many(settings: Settings, folder: Path) -> Table:
    count = max(100, int(CHUNKS * min(settings.scale, 1.0)))
    settings.say(f"{count} chunks")
    data = np.arange(count * 64, dtype="u4").astype("u1")
    path = folder / "many"
    ingot.array(data, path, format=BLSK, chunks=64, options=ingot.Options(durability="process"))
    place = len(data) // 2
    require(bool(ingot.open(path)[place] == data[place]), "the first item is wrong")
    times = race(
        {
            "open": stopwatch(lambda: ingot.open(path)),
            "open and read": stopwatch(lambda: ingot.open(path)[place]),
        },
        settings.effort,
    )
    remove(str(path))
    recipe = SERIES.scaled(settings.scale)
    series = _make_series(recipe)
    counts = {}
    for name in (BLSK, "bcolz"):
        _write(folder / name, name, recipe, series)
        counts[name] = count_files(folder / name)
        remove(str(folder / name))
    first = times["open and read"] - times["open"]
    files = 100 * counts[BLSK] / counts["bcolz"]
    rows = (
        (f"open {count} chunks, ms", times["open"] * 1e3, 5.0),
        ("the first item of them, ms more", first * 1e3, 1.0),
        (f"files of {recipe.nbytes / 1e6:.0f} MB, % of bcolz", files, 1.0),
    )
    judged = tuple((*row, settings.verdict(row[1] <= row[2])) for row in rows)
    columns = (Column("what"), Column("value", ".3f"), Column("at most", ".1f"), Column("bar"))
    return Table("blsk", "Many chunks", columns, judged)
