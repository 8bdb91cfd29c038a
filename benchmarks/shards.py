"""Zarr version 3 with and without shards: 268 MB of integers, and small arrays of many chunks.

Bars: ahead of the best peer when everything is read, when it is read chunk by chunk, and when it is
copied; on the file that a peer wrote and on our own. 100 chunks of one shard in 0.3 ms. Rows
selected by ``oindex`` take at most 1.5 times as long as a slice of as many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.array_libraries import remove
from benchmarks.cases import Case, digest
from benchmarks.contest import (
    OURS,
    OURS_ON_PEERS,
    Entrant,
    Results,
    compare,
    find_best_peer,
    gather,
    time_cases,
)
from benchmarks.measures import Measure, whole
from benchmarks.race import race, stopwatch
from benchmarks.samples import Key, Recipe, fill
from benchmarks.settings import Settings
from benchmarks.shard_libraries import SHARD_LIBRARIES
from benchmarks.table import Column, Table, Value

__all__ = ["LAYOUTS", "chunk_keys", "run", "step_keys"]

CUBE = Recipe((512, 512, 512), "<u2", (128, 128, 128), content="cubic")
SHARDED = replace(CUBE, chunks=(32, 32, 32), shards=(128, 128, 128))
BLOSC = "blosc:blosclz:9:bitshuffle"
LAYOUTS = {
    f"{name}{' in shards' if recipe.shards else ''}": replace(recipe, codec=codec)
    for recipe in (CUBE, SHARDED)
    for name, codec in (("raw", "none"), ("Blosc bitshuffle", BLOSC), ("Zstandard", "zstd:0"))
}
SERIES = Recipe((10_000_000,), "|u1", (100_000,), content="sine")
SMALL_CUBE = Recipe((105, 105, 105), "|u1", (10, 10, 10), codec="none", content="cubic")
SMALL = {
    "series": replace(SERIES, codec="none"),
    "series, Zstandard": replace(SERIES, codec="zstd:0"),
    "series in one shard": replace(SERIES, codec="none", shards=(10_000_000,)),
    "series in ten shards, Zstandard": replace(SERIES, codec="zstd:0", shards=(1_000_000,)),
}
INDEXED = {
    "cube": SMALL_CUBE,
    "cube in shards": replace(SMALL_CUBE, shards=(50, 50, 50)),
}
HUNDRED = Recipe((100, 1000), "<f4", (10, 100), codec="none", shards=(100, 1000))
TEN_THOUSAND = Recipe((1000, 1000), "|u1", (10, 10), codec="none", shards=(1000, 1000))
PICKED = replace(SHARDED, codec="zstd:0")

HUNDRED_MS = 0.3
MOST_FOR_PICKING = 1.5


def chunk_keys(recipe: Recipe) -> tuple[Key, ...]:
    """Return a key for each chunk.

    >>> chunk_keys(Recipe((4,), "<f4", (2,)))
    ((slice(0, 2, None),), (slice(2, 4, None),))
    """
    axes = [
        [slice(start, min(start + step, length)) for start in range(0, length, step)]
        for length, step in zip(recipe.shape, recipe.chunks, strict=True)
    ]
    return tuple(product(*axes))


def step_keys(recipe: Recipe) -> tuple[Key, ...]:
    """Return the keys of zarr-python's own benchmarks: a point, everything, and steps.

    >>> len(step_keys(SMALL_CUBE))
    6
    """
    x, y, z = recipe.shape
    edges = [min(10, length // 4) for length in recipe.shape]
    return (
        (0, 0, 0),
        (slice(0, x), slice(0, y), slice(0, z)),
        tuple(slice(0, length, 4) for length in recipe.shape),
        (slice(0, 10), slice(0, 10), slice(0, 10)),
        tuple(
            slice(edge, length - edge, 4) for length, edge in zip(recipe.shape, edges, strict=True)
        ),
        (slice(0, x), slice(0, 3, 2), slice(0, 10)),
    )


READ = Measure("read all", "MB/s", whole)
BY_CHUNK = Measure("chunk by chunk", "us", chunk_keys)
BY_STEPS = Measure("six keys", "us", step_keys)
WRITE = Measure("write", "MB/s")
COPY = Measure("copy", "MB/s")


def run(settings: Settings) -> list[Table]:
    """Write, read and copy every layout with every library."""
    folder = settings.folder / "shards"
    folder.mkdir()
    cubes = (LAYOUTS, (READ, BY_CHUNK, COPY))
    small = (SMALL, (READ, WRITE))
    indexed = (INDEXED, (BY_STEPS,))
    tables, found = [], {}
    with gather(settings, SHARD_LIBRARIES) as entrants:
        for layouts, measures in (cubes, small, indexed):
            for name, recipe in layouts.items():
                scaled = recipe.scaled(settings.scale)
                results = _time_layout(settings, name, scaled, entrants, measures, folder)
                tables.append(_results_table(name, scaled, measures, results))
                found[name] = measures, results
    tables += [_bars_table(settings, found), _singles_table(settings, folder)]
    remove(str(folder))
    return tables


def _time_layout(
    settings: Settings,
    name: str,
    recipe: Recipe,
    entrants: Sequence[Entrant],
    measures: Sequence[Measure],
    folder: Path,
) -> Results:
    """Time all measures of one layout, and remove its files."""
    present = [entrant for entrant in entrants if not entrant.missing]
    results: Results = {e.label: {m.title: e.missing for m in measures} for e in entrants}
    peers = [e for e in present if not e.library.startswith("ingot")]
    writers = [e for e in present if e not in peers] + peers[-1:]
    paths = {writer.library: str(folder / writer.library) for writer in writers}
    for writer in writers:
        settings.say(f"{name}: {writer.label} writes {recipe.nbytes / 1e6:.0f} MB")
        writer.place.write(Case(writer.library, "write", paths[writer.library], recipe))
    rows = list(_rows(present, paths))
    del results["ingot"]
    for measure in measures:
        settings.say(f"{name}: {measure.title}, {len(rows)} rows")
        for label, time in time_cases(settings, dict(_cases(rows, recipe, measure))).items():
            results.setdefault(label, {})[measure.title] = measure.convert(time, recipe)
    for path in folder.iterdir():
        remove(str(path))
    return results


def _rows(
    present: Sequence[Entrant], paths: Mapping[str, str]
) -> Iterator[tuple[str, Entrant, str]]:
    """Yield which library reads which file: all read a peer's file, Ingot also its own."""
    shared = next((path for name, path in paths.items() if not name.startswith("ingot")), None)
    for entrant in present:
        if entrant.library in paths and entrant.library.startswith("ingot"):
            yield OURS, entrant, paths[entrant.library]
            if shared is not None:
                yield OURS_ON_PEERS, entrant, shared
        elif shared is not None:
            yield entrant.label, entrant, shared


def _cases(
    rows: Sequence[tuple[str, Entrant, str]], recipe: Recipe, measure: Measure
) -> Iterator[tuple[str, tuple[object, Case]]]:
    keys = measure.keys(recipe)
    expected = None
    if keys:
        data = fill(recipe)
        expected = digest([np.asarray(data[key]) for key in keys])
    for label, entrant, path in rows:
        case = Case(entrant.library, "read", path, recipe, keys, expected)
        if measure is COPY:
            case = replace(case, action="copy", path=path, keys=whole(recipe), digest=None)
        elif measure is WRITE:
            if label == OURS_ON_PEERS:
                continue
            case = replace(case, action="write", path=f"{path}.{entrant.library}")
        yield label, (entrant.place, case)


def _results_table(
    name: str, recipe: Recipe, measures: Sequence[Measure], results: Results
) -> Table:
    columns = (Column("library"), *(measure.column for measure in measures))
    rows = [(label, *(row.get(m.title) for m in measures)) for label, row in results.items()]
    shapes = " x ".join(map(str, recipe.shape)), " x ".join(map(str, recipe.chunks))
    title = f"{name}: {shapes[0]} {recipe.dtype[1:]} in chunks of {shapes[1]}"
    return Table("shards", title, columns, tuple(rows))


def _bars_table(
    settings: Settings, found: Mapping[str, tuple[Sequence[Measure], Results]]
) -> Table:
    rows = []
    for name, (measures, results) in found.items():
        for measure in measures:
            peer = find_best_peer(measure, results)
            cells: list[Value] = [f"{name}: {measure.title}", peer]
            for ours in (OURS, OURS_ON_PEERS):
                ratio = compare(measure, results, ours)
                cells += [ratio, None if ratio is None else settings.verdict(ratio >= measure.bar)]
            rows.append(tuple(cells))
    columns = (
        Column("what"),
        Column("best peer"),
        Column("our file: ingot / it", ".2f"),
        Column("held"),
        Column("peer's file: ingot / it", ".2f"),
        Column("held there"),
    )
    return Table(
        "shards", "Ingot against the best peer, as a ratio of speeds", columns, tuple(rows)
    )


def _singles_table(settings: Settings, folder: Path) -> Table:
    """Time the measures with their own bars: many chunks of one shard, and selected rows."""
    library = SHARD_LIBRARIES["ingot shards"]
    rows: list[tuple[Value, ...]] = []
    for recipe, title, most in (
        (HUNDRED, "100 chunks of one shard", HUNDRED_MS),
        (TEN_THOUSAND, "10 000 chunks of one shard", None),
    ):
        path = str(folder / "one")
        library.write(path, recipe, [(slice(None), fill(recipe))])
        read = partial(library.open(path).__getitem__, ...)
        seconds = race({"read": stopwatch(read)}, settings.effort)["read"]
        held = None if most is None else settings.verdict(seconds * 1e3 < most)
        rows.append((f"{title}, ms", seconds * 1e3, most, held))
        remove(path)
    rows += _time_picking(settings, folder)
    columns = (Column("what"), Column("value", ".3f"), Column("at most", ".1f"), Column("held"))
    return Table("shards", "What has a bar of its own", columns, tuple(rows))


def _time_picking(settings: Settings, folder: Path) -> list[tuple[Value, ...]]:
    recipe = PICKED.scaled(settings.scale)
    path = str(folder / "picked")
    library = SHARD_LIBRARIES["ingot shards"]
    library.write(path, recipe, [(slice(None), fill(recipe))])
    array = library.open(path)
    rows: list[tuple[Value, ...]] = []
    for title, picked in (
        ("one row", [recipe.shape[0] // 2]),
        ("every other row of 32", list(range(0, 32, 2))),
        ("32 rows in any order", np.random.default_rng(3).permutation(32).tolist()),
    ):
        first, last = min(picked), max(picked) + 1
        times = race(
            {
                "pick": stopwatch(lambda picked=picked: array.oindex[picked]),
                "slice": stopwatch(lambda first=first, last=last: array[first:last]),
            },
            settings.effort,
        )
        ratio = times["pick"] / times["slice"]
        held = settings.verdict(ratio < MOST_FOR_PICKING)
        rows.append((f"oindex / slice, {title}", ratio, MOST_FOR_PICKING, held))
    remove(path)
    return rows
