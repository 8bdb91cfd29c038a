"""A thousand small arrays in one group: creating each, opening one, listing them, the tree.

Bars: creating a member takes at most 1 ms, and the last ones take no longer than the first ones.
"""

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ingot
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value

__all__ = ["COUNT", "run"]

COUNT = 1000
BAR = 1e-3
# The last members may cost this much more than the first: what a busy machine varies.
_SLACK = 1.25
_ITEMS = np.arange(100.0)


class _Library(NamedTuple):
    label: str
    create: Callable[[Path], Callable[[str], object]]
    """Makes a group, and returns what adds a member."""
    one: Callable[[Path, str], Any]
    names: Callable[[Path], list[str]]
    tree: Callable[[Path], str]


def run(settings: Settings) -> list[Table]:
    """Measure every library that is installed."""
    count = max(10, round(COUNT * settings.scale))
    folder = settings.folder / "groups"
    folder.mkdir()
    rows = []
    for library in _libraries():
        settings.say(f"groups {library.label}")
        rows.append(_measured(settings, library, folder / "group", count))
    columns = (
        Column("library"),
        Column("create ms each", ".2f"),
        Column("first ms", ".2f"),
        Column("last ms", ".2f"),
        Column("open one ms", ".2f"),
        Column("list ms", ".2f"),
        Column("tree ms", ".1f"),
        Column("bar"),
    )
    return [Table("groups", f"{count} arrays of 100 items in one group", columns, tuple(rows))]


def _measured(settings: Settings, library: _Library, path: Path, count: int) -> tuple[Value, ...]:
    names = [f"a{number:05}" for number in range(count)]
    add = library.create(path)
    times = [_seconds(partial(add, name)) for name in names]
    some = max(1, count // 10)
    first, last = statistics.median(times[:some]), statistics.median(times[-some:])
    middle = names[count // 2]
    assert (library.one(path, middle) == _ITEMS).all()
    assert library.names(path) == names
    reads = (
        lambda: library.one(path, middle),
        lambda: library.names(path),
        lambda: library.tree(path),
    )
    best = [min(_seconds(read) for _ in range(5)) for read in reads]
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    each = statistics.median(times)
    bar = settings.verdict(each < BAR and last < first * _SLACK)
    judged = bar if library.label == "ingot" else None
    return (library.label, *(seconds * 1e3 for seconds in (each, first, last, *best)), judged)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _libraries() -> list[_Library]:
    found = [_ours("ingot", "process"), _ours("ingot full", "full")]
    found += [_zarr()] if find_spec("zarr") else []
    found += [_h5py()] if find_spec("h5py") else []
    return found


def _ours(label: str, durability: Any) -> _Library:
    def create(path: Path) -> Callable[[str], object]:
        group = ingot.group(path, options=ingot.Options(durability=durability))
        return lambda name: group.array(name, _ITEMS)

    def opened(path: Path) -> Any:
        return ingot.open(path)

    return _Library(
        label,
        create,
        lambda path, name: opened(path)[name][...],
        lambda path: list(opened(path)),
        lambda path: repr(opened(path).tree()),
    )


def _zarr() -> _Library:
    import zarr

    def create(path: Path) -> Callable[[str], object]:
        group = zarr.create_group(str(path))
        return lambda name: group.create_array(name, data=_ITEMS)

    def opened(path: Path) -> Any:
        return zarr.open_group(str(path), mode="r")

    return _Library(
        f"zarr {zarr.__version__}",
        create,
        lambda path, name: opened(path)[name][...],
        lambda path: sorted(opened(path).keys()),
        lambda path: "\n".join(f"{name} {each}" for name, each in opened(path).members()),
    )


def _h5py() -> _Library:
    import h5py

    def create(path: Path) -> Callable[[str], object]:
        file = h5py.File(path, "w")

        def add(name: str) -> None:
            file.create_dataset(name, data=_ITEMS)
            file.flush()

        return add

    def read(path: Path, use: Callable[[Any], Any]) -> Any:
        with h5py.File(path, "r") as file:
            return use(file)

    return _Library(
        f"h5py {h5py.__version__}",
        create,
        lambda path, name: read(path, lambda file: file[name][...]),
        lambda path: read(path, sorted),
        lambda path: read(path, lambda file: "\n".join(f"{n} {d.shape}" for n, d in file.items())),
    )
