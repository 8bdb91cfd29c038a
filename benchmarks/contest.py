"""Array libraries side by side: which take part, which file each one reads, how long it takes.

Libraries of one format read the same file. A library may be missing or fail. What is read and which
bars apply is decided by the workloads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.array_libraries import LIBRARIES
from benchmarks.cases import Case, digest
from benchmarks.measures import Measure
from benchmarks.places import Here, Place, Worker
from benchmarks.race import Sampler, race
from benchmarks.samples import Array, Recipe, select
from benchmarks.settings import Settings
from benchmarks.table import Value

__all__ = [
    "FAILED",
    "OURS",
    "OURS_ON_PEERS",
    "Entrant",
    "Reader",
    "Results",
    "Times",
    "compare",
    "find_best_peer",
    "find_readers",
    "gather",
    "time_cases",
    "time_reads",
    "write_files",
]

FAILED = "failed"
OURS = "ingot, its own file"
OURS_ON_PEERS = "ingot, a peer's file"

Times = dict[str, float | str]
"""Seconds by label, or the reason for their absence."""

Results = dict[str, dict[str, Value]]
"""Values by row and column."""

_SHARED_WRITERS = ("zarr2", "tensorstore", "zarrs")
"""The libraries that may write the Zarr v2 file for all its readers; the first one present does."""

_SHARED_READERS = ("zarr2", "zarrs", "tensorstore")

_BORROWED = {"blosc2 mapped": "blosc2"}


@dataclass(frozen=True, slots=True)
class Entrant:
    """A library that takes part, and where it runs; ``missing`` says why it cannot."""

    library: str
    label: str
    place: Place
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A row: a library in its process, on the file of ``path``."""

    label: str
    library: str
    place: Place
    path: str


@contextmanager
def gather(settings: Settings, libraries: Iterable[str]) -> Iterator[list[Entrant]]:
    """Return the libraries that can take part; zarr in the newest version available."""
    here: Place = Here()
    with ExitStack() as stack:
        zarr = here
        if settings.python is not None:
            zarr = stack.enter_context(Worker(settings.python))
        found = {place: place.libraries() for place in {here, zarr}}
        entrants = []
        for name in libraries:
            place = zarr if name.startswith("zarr") else here
            label, missing = found[place][name]
            entrants.append(Entrant(name, label, place, missing))
        yield entrants


def find_readers(entrants: Iterable[Entrant], paths: Mapping[str, str]) -> list[Reader]:
    """Yield which library reads which file; ``paths`` has the files by the library that wrote them.

    >>> here = Here()
    >>> entrants = [Entrant(name, name, here) for name in ("ingot", "zarr2", "tensorstore", "hdf5")]
    >>> paths = {"ingot": "a", "zarr2": "b", "tensorstore": "c"}
    >>> for reader in find_readers(entrants, paths):
    ...     print(reader.label, "->", reader.path)
    ingot, its own file -> a
    ingot, a peer's file -> b
    zarr2 -> b
    tensorstore -> b
    """
    shared = next((paths[name] for name in _SHARED_WRITERS if name in paths), None)
    readers = []
    for entrant in entrants:
        name, place = entrant.library, entrant.place
        files = {entrant.label: paths.get(_BORROWED.get(name, name))}
        if name in _SHARED_READERS:
            files = {entrant.label: shared}
        elif name == "ingot":
            files = {OURS: paths.get(name), OURS_ON_PEERS: shared}
        for label, path in files.items():
            if path is not None and not entrant.missing:
                readers.append(Reader(label, name, place, path))
    return readers


def time_cases(settings: Settings, cases: Mapping[str, tuple[Place, Case]]) -> Times:
    """Time cases by label; a case that fails its first call reports it and takes no turns."""
    times: Times = {}
    with ExitStack() as stack:
        samplers: dict[str, Sampler] = {}
        for label, (place, case) in cases.items():
            try:
                sampler = stack.enter_context(place.sampling(case))
                sampler(1)
            except Exception as error:
                # Whatever a peer raises must not end the run for the others.
                settings.say(f"{label} fails to {case.action}: {type(error).__name__}: {error}")
                times[label] = FAILED
            else:
                samplers[label] = sampler
        times.update(race(samplers, settings.effort))
    return times


def time_reads(
    settings: Settings,
    recipe: Recipe,
    readers: Sequence[Reader],
    measures: Iterable[Measure],
    results: Results,
) -> None:
    """Time every reader on the keys of every measure, and note the values in ``results``."""
    for measure, expected in _digests(recipe, measures):
        settings.say(f"{measure.title}, {len(readers)} readers")
        keys = measure.keys(recipe)
        cases = {
            reader.label: (
                reader.place,
                Case(reader.library, "read", reader.path, recipe, keys, expected),
            )
            for reader in readers
        }
        for label, time in time_cases(settings, cases).items():
            results.setdefault(label, {})[measure.title] = measure.convert(time, recipe)


def _digests(recipe: Recipe, measures: Iterable[Measure]) -> list[tuple[Measure, int]]:
    """Return the digest of each measure's keys; the data are made once for all of them."""
    keys = [(measure, key) for measure in measures for key in measure.keys(recipe)]
    found: dict[Measure, list[Array]] = {measure: [] for measure, _ in keys}
    for (measure, _), data in zip(keys, select(recipe, [key for _, key in keys]), strict=True):
        found[measure].append(data)
    return [(measure, digest(arrays)) for measure, arrays in found.items()]


def write_files(
    settings: Settings, entrants: Iterable[Entrant], recipe: Recipe, folder: Path
) -> dict[str, str]:
    """Write every file that these entrants read; return the paths by their writers."""
    present = {entrant.library: entrant for entrant in entrants if not entrant.missing}
    writers = [name for name in present if name not in (*_SHARED_READERS, *_BORROWED)]
    writers += [name for name in _SHARED_WRITERS if name in present][:1]
    paths = {}
    for name in writers:
        path = str(folder / (name + LIBRARIES[name].suffix))
        settings.say(f"{present[name].label} writes {recipe.nbytes / 1e6:.0f} MB")
        present[name].place.write(Case(name, "write", path, recipe))
        paths[name] = path
    return paths


def find_best_peer(measure: Measure, results: Mapping[str, Mapping[str, Value]]) -> str | None:
    """Return the row of the fastest peer in a column.

    >>> find_best_peer(Measure("open", "us"), {OURS: {"open": 1.0}, "a": {"open": 9.0}, "b": {}})
    'a'
    """
    values = {
        label: value
        for label, row in results.items()
        if not label.startswith("ingot") and isinstance(value := row.get(measure.title), float)
    }
    if not values:
        return None
    choose = max if measure.unit == "MB/s" else min
    return choose(values, key=values.__getitem__)


def compare(
    measure: Measure, results: Mapping[str, Mapping[str, Value]], ours: str
) -> float | None:
    """Return how many times as fast as the best peer a row of ours is; None without a number.

    >>> compare(Measure("open", "us"), {OURS: {"open": 1.0}, "a": {"open": 9.0}}, OURS)
    9.0
    """
    peer = find_best_peer(measure, results)
    value = results.get(ours, {}).get(measure.title)
    theirs = None if peer is None else results[peer][measure.title]
    if not isinstance(value, float) or not isinstance(theirs, float):
        return None
    return measure.ratio(value, theirs)
