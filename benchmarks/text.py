"""A million strings of 10 to 100 bytes, and the same with 1 % of 10 KB, in several libraries.

Bars: ahead of python-blosc2 and zarr in everything. Of Parquet: ten times as fast for single items,
ahead for appends, 0.7 of its speed for reading all as Arrow, at most 1.1 of its size. A column of
ten million texts is searched three times as fast as pandas reads and searches it: from a file that
pandas writes (Snappy), and from one that is compressed as the column is.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.arrays import STORED, measure_size
from benchmarks.packages import installed
from benchmarks.race import Sampler, race, stopwatch
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.text_libraries import (
    LIBRARIES,
    OpenedText,
    TextLibrary,
    Texts,
    find_missing,
    remove,
)
from benchmarks.verify import require

__all__ = ["MEASURES", "bars", "make_texts", "run"]

COUNT = 1_000_000
LEAST = 2000
LONG = 10_000
RANDOM = 10_000
SINGLE = 100
APPENDED = 10_000
APPENDED_AT_ONCE = 1000
UPDATED = 1000
UPDATED_EACH = 20
SEARCHED = 10_000_000

OURS = ("ingot varlen", "ingot bcolz", "ingot blsk")
PARQUET = "Parquet"
CANNOT = "cannot"
MEASURES: Mapping[str, str] = {
    "write": "ms",
    "to Arrow": "ms",
    "to StringDType": "ms",
    "random items at once": "ms",
    "random items one by one": "ms",
    "appends": "ms",
    "updates": "ms",
}
"""What is measured, with its unit."""

Question = Callable[[OpenedText], Any]


def run(settings: Settings) -> list[Table]:
    """Store and read both sets of strings with every library, and search a column of text."""
    missing = [name for name in ("pyarrow", "pandas") if not installed(name)]
    if missing:
        row = ("pyarrow and pandas are needed", f"no {missing[0]}")
        return [Table("text", "Text", (Column("text"), Column("missing")), (row,))]
    tables: list[Table] = []
    for title, part in (("10 to 100 bytes", 0.0), ("the same, 1 % of 10 KB", 0.01)):
        tables += _stored(settings, title, part)
    return [*tables, _searched(settings)]


def make_texts(count: int, long: float = 0.0, seed: int = 3) -> Texts:
    """Return consecutive cuts of a text, whose words are as unevenly frequent as in a language.

    >>> [len(each) >= 10 for each in make_texts(3).listed]
    [True, True, True]
    """
    import pyarrow

    chance = np.random.default_rng(seed)
    sizes = chance.integers(2, 11, 10_000)
    words = [chance.integers(97, 123, size).astype(np.uint8).tobytes() for size in sizes]
    lengths = chance.integers(10, 101, count)
    lengths[chance.random(count) < long] = LONG
    total = int(lengths.sum())
    chosen = chance.zipf(1.3, total // 3 + 1) % len(words)
    data = b" ".join([words[number] for number in chosen.tolist()])[:total]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    buffers = pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)
    return Texts(pyarrow.LargeStringArray.from_buffers(count, *buffers))


def _stored(settings: Settings, title: str, long: float) -> list[Table]:
    texts = make_texts(max(LEAST, int(COUNT * min(1.0, settings.scale))), long)
    _ = texts.listed, texts.numpy
    folder = settings.folder / f"text-{int(100 * long)}"
    folder.mkdir()
    results: dict[str, dict[str, Value]] = {}
    present: dict[str, TextLibrary] = {}
    for name, library in LIBRARIES.items():
        lacking = find_missing(library)
        results[name] = dict.fromkeys(MEASURES, lacking)
        if lacking is None:
            present[name] = library
    paths = {name: folder / f"text-{number}" for number, name in enumerate(present)}
    settings.say(f"{title}: write, {len(present)} libraries")
    writers = {
        name: stopwatch(partial(library.write, texts, paths[name]), partial(remove, paths[name]))
        for name, library in present.items()
    }
    _note(settings, results, "write", writers)
    for name, path in paths.items():
        results[name][STORED] = measure_size(str(path)) / 1e6
    # Dirty pages would otherwise be written back while others read.
    os.sync()
    opened = {name: library.open(paths[name]) for name, library in present.items()}
    for measure, ask, times in _questions(texts, long):
        settings.say(f"{title}: {measure}")
        samplers = {}
        for name, stored in opened.items():
            if _is_right(measure, ask(stored), texts):
                samplers[name] = stopwatch(partial(ask, stored))
            else:
                require(name not in OURS, f"{name}: {measure}: wrong items")
                results[name][measure] = CANNOT
        _note(settings, results, measure, samplers, times)
    whole = f"{len(texts):,} strings of {title}, {texts.nbytes / 1e6:.0f} MB"
    return [_results_table(whole, results), _bars_table(settings, title, results)]


def _questions(texts: Texts, long: float) -> Iterable[tuple[str, Question, int]]:
    """Yield what is asked, and how many times less than what is said; a peer may take minutes."""
    numbers = _random(texts)
    single = numbers[:SINGLE].tolist()
    new = make_texts(APPENDED, long, seed=5)
    parts = new.parts(APPENDED_AT_ONCE)
    updates = list(zip(numbers[:UPDATED_EACH].tolist(), new.listed, strict=False))

    def each(stored: OpenedText) -> list[Any]:
        return [stored.item(number) for number in single]

    def append(stored: OpenedText) -> bool:
        return all(stored.append(part) is not False for part in parts)

    def update(stored: OpenedText) -> bool:
        return all(stored.update(number, text) is not False for number, text in updates)

    yield "to Arrow", lambda stored: stored.arrow(), 1
    yield "to StringDType", lambda stored: stored.strings(), 1
    yield "random items at once", lambda stored: stored.items(numbers), 1
    yield "random items one by one", each, RANDOM // SINGLE
    yield "appends", append, 1
    yield "updates", update, UPDATED // UPDATED_EACH


def _is_right(measure: str, found: Any, texts: Texts) -> bool:
    """Return whether a library gives what was asked for; changes only say that they are made."""
    if isinstance(found, bool):
        return found
    listed = found.to_pylist() if hasattr(found, "to_pylist") else list(found)
    if measure.startswith("to "):
        return listed == texts.listed
    return listed == [texts.listed[number] for number in _random(texts)[: len(listed)].tolist()]


def _random(texts: Texts) -> NDArray[np.int64]:
    """Return the numbers of the random items, the same ones for every library."""
    return np.random.default_rng(4).integers(0, len(texts), min(RANDOM, len(texts)))


def _note(
    settings: Settings,
    results: dict[str, dict[str, Value]],
    measure: str,
    samplers: Mapping[str, Sampler],
    times: int = 1,
) -> None:
    for name, seconds in race(samplers, settings.effort).items():
        results[name][measure] = seconds * 1e3 * times


def _results_table(title: str, results: Mapping[str, Mapping[str, Value]]) -> Table:
    columns = [Column(f"{measure} {unit}", ".1f") for measure, unit in MEASURES.items()]
    columns.append(Column(STORED, ".1f"))
    rows = [(name, *map(row.get, [*MEASURES, STORED])) for name, row in results.items()]
    return Table("text", title, (Column("library"), *columns), tuple(rows))


def bars(measure: str) -> dict[str, float]:
    """Return the required speed (of a size, its inverse) beside each peer that a measure has.

    >>> bars("to Arrow")["Parquet"], bars("updates").get("Parquet")
    (0.7, None)
    """
    own = {
        "to Arrow": 0.7,
        "random items at once": 10.0,
        "random items one by one": 10.0,
        "appends": 1.0,
        STORED: 1 / 1.1,
    }
    peers = [name for name in LIBRARIES if name not in (*OURS, PARQUET)]
    found = dict.fromkeys(peers, 1.0) if measure in MEASURES else {}
    return found | ({PARQUET: own[measure]} if measure in own else {})


def _bars_table(
    settings: Settings, title: str, results: Mapping[str, Mapping[str, Value]]
) -> Table:
    rows: list[tuple[Value, ...]] = []
    for measure in (*MEASURES, STORED):
        for peer, bar in bars(measure).items():
            theirs = results[peer].get(measure)
            row: list[Value] = [measure, peer, bar]
            for name in OURS:
                ours = results[name].get(measure)
                if isinstance(ours, float) and isinstance(theirs, float):
                    ratio = theirs / ours
                    row += [ratio, settings.verdict(ratio >= bar)]
                else:
                    row += [None, None]
            rows.append(tuple(row))
    columns = [Column("measure"), Column("peer"), Column("bar", ".2f")]
    for name in OURS:
        columns += [Column(f"{name} / it", ".2f"), Column("held")]
    return Table(
        "text",
        f"Ingot beside each peer, as a ratio of speeds: {title}",
        tuple(columns),
        tuple(rows),
    )


# A column of text


def _searched(settings: Settings) -> Table:
    """Search a column of text, and let pandas load it from Parquet and search it."""
    import pyarrow
    from pyarrow import parquet

    texts = make_texts(max(1000, int(SEARCHED * settings.scale))).arrow
    path = settings.folder / "searched"
    rows = pyarrow.table({"text": texts})
    files = {codec: settings.folder / f"searched-{codec}.parquet" for codec in ("snappy", "lz4")}
    for codec, file in files.items():
        parquet.write_table(rows, file, compression=codec)
    table = ingot.table(rows, path, options=ingot.Options(durability="process"))
    one = texts[len(texts) // 2].as_py()
    questions: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "startswith": (f"startswith(text, {one[:4]!r})", lambda s: s.str.startswith(one[:4])),
        "equality": (f"text == {one!r}", lambda s: s == one),
    }
    lines: list[tuple[Value, ...]] = []
    for title, (expression, mask) in questions.items():
        settings.say(f"{title} of {len(texts):,} texts")

        def ours(expression: str = expression) -> NDArray[np.int64]:
            return np.asarray(table.where(expression).rows())

        contenders: dict[str, Callable[[], NDArray[np.int64]]] = {"ingot": ours}
        for codec, file in files.items():
            contenders[codec] = partial(_found_by_pandas, file, mask)
            require(np.array_equal(ours(), contenders[codec]()), f"{title}: wrong rows")
        samplers = {name: stopwatch(call) for name, call in contenders.items()}
        seconds = race(samplers, settings.effort)
        for codec in files:
            ratio = seconds[codec] / seconds["ingot"]
            held = settings.verdict(ratio >= 3)
            pair = seconds["ingot"] * 1e3, seconds[codec] * 1e3
            lines.append((f"{title}, pandas from {codec}", len(ours()), *pair, ratio, 3.0, held))
    columns = (
        Column("query"),
        Column("rows found", ","),
        Column("ingot ms", ".1f"),
        Column("pandas ms", ".1f"),
        Column("pandas / ingot", ".2f"),
        Column("bar", ".1f"),
        Column("held"),
    )
    title = f"{len(texts):,} rows of text, searched; pandas loads them from Parquet first"
    return Table("text", title, columns, tuple(lines))


def _found_by_pandas(file: Path, mask: Callable[[Any], Any]) -> NDArray[np.int64]:
    import pandas

    loaded = pandas.read_parquet(file)["text"]
    return np.flatnonzero(np.asarray(mask(loaded)))
