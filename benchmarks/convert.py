"""Conversion of an array: with chunks that move untouched, and cut anew.

Bars: untouched at 0.8 of the speed of copying the same files, cut anew at 0.7 of the slower of a
full read and a full write of ours. Nothing is synced, in all of them.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ingot
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require

__all__ = ["run"]

_OPTIONS = ingot.Options(durability="process")
_CUT = (50, 100, 50)


def run(settings: Settings) -> list[Table]:
    """Measure conversions of about 100 MB of float32 in chunks of 1.5 MB."""
    rows = max(50, round(200 * settings.scale))
    steps = np.random.default_rng(3).normal(0, 1, (rows, 500, 250))
    values = np.cumsum(steps, axis=0, dtype="f4")
    folder = settings.folder / "convert"
    folder.mkdir()
    path, target = folder / "source.zarr", folder / "target"
    source = ingot.array(values, path, chunks=(25, 125, 125), options=_OPTIONS)

    def converted(**arguments: object) -> float:
        def convert() -> None:
            ingot.convert(path, target, options=_OPTIONS, **arguments)  # type: ignore[arg-type]

        seconds = _best(convert, target)
        require(np.array_equal(ingot.open(target)[...], values), "the target differs")
        return seconds

    settings.say("convert")
    copied = _best(lambda: shutil.copytree(path, target), target)
    read = _best(lambda: source[...], target)
    write = _best(
        lambda: ingot.array(values, target, format="zarr3", chunks=_CUT, options=_OPTIONS), target
    )
    slower = max(read, write)
    measured: list[tuple[Value, ...]] = [("copy of the files", copied, None, None)]
    for name in ("zarr3", "zarr2"):
        seconds = converted(format=name)
        ratio = copied / seconds
        measured.append((f"untouched to {name}", seconds, ratio, settings.verdict(ratio >= 0.8)))
    measured += [("full read", read, None, None), ("full write", write, None, None)]
    seconds = converted(format="zarr3", chunks=_CUT)
    ratio = slower / seconds
    measured.append(("cut anew", seconds, ratio, settings.verdict(ratio >= 0.7)))
    shutil.rmtree(folder)
    columns = (Column("work"), Column("s", ".3f"), Column("ratio", ".2f"), Column("bar"))
    size = f"{values.nbytes / 1e6:.0f} MB of float32"
    return [Table("convert", f"conversion of {size}", columns, tuple(measured))]


def _best(call: Callable[[], object], target: Path) -> float:
    """Return the seconds of the best of five calls; the target is removed before each."""
    times = []
    for _ in range(5):
        shutil.rmtree(target, ignore_errors=True)
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)
