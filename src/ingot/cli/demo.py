"""``ingot demo``: the whole story on sample data, in a folder that is removed at the end.

What is read back is compared with what was written, at every step.
"""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

import ingot
from ingot import native
from ingot.cli.explain import print_explanation
from ingot.cli.info import print_info
from ingot.cli.output import print_table, print_text
from ingot.errors import CorruptionError, IngotError

__all__ = ["bomb", "demo", "killed_writers", "speeds", "temperatures", "weather"]

Result = TypeVar("Result")

_ITEMS: Final = {"native": 8 << 20, "python": 64 << 10}
"""The items of the array whose speed is measured, by kernel: the one in Python is slow."""
_KILLS: Final = 6

_WRITER: Final = """
import itertools, sys
import ingot
array = ingot.open(sys.argv[1], "r+")
for number in itertools.count(int(array[0, 0]) + 1):
    array[...] = number
    print(number, flush=True)
"""

_ZARR: Final = """
import sys, time
import numpy, zarr
source, target, rows = sys.argv[1:]
values = numpy.load(source)
def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
codec = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
def write():
    zarr.create_array(
        target, data=values, chunks=(int(rows), 600), compressors=codec, overwrite=True
    )
print(min(timed(write) for _ in range(2)))
print(min(timed(lambda: zarr.open_array(target, mode="r")[...]) for _ in range(2)))
"""


def demo() -> None:
    """Show what Ingot does.

    Arrays, tables, old formats, a writer that is killed, and speed.
    """
    chosen = native.choice()
    print_text(f"Ingot {ingot.__version__}, {chosen.name} kernel ({chosen.reason})")
    with tempfile.TemporaryDirectory(prefix="ingot-demo-") as folder:
        place = Path(folder)
        _show_array(place)
        _show_table(place)
        _show_old_formats(place)
        _show_kills(place)
        _show_bomb()
        _show_speed(place)
    print()
    print_text("Everything read back equals what was written.")


def _show_array(place: Path) -> None:
    _title("An array, written, sliced, appended to and explained")
    values = temperatures(1000)
    _code('array = ingot.array(values, "temperature.zarr", attrs={"units": "K"})')
    array = ingot.array(values, place / "temperature.zarr", attrs={"units": "K"}, chunks=(250, 100))
    _check("the array", array[...], values)
    _code("array[10:13, ::60]")
    _check("a slice", array[10:13, ::60], values[10:13, ::60])
    print(array[10:13, ::60])
    _code("array.append(more)")
    array.append(values[:50])
    _check("what was appended", array[1000:], values[:50])
    print_text(f"{array.shape}, {array.nbytes:,} bytes in {array.stored_bytes:,}")
    _code("array.explain(np.s_[10:13, ::60])")
    print_explanation("temperature.zarr", array.explain(np.s_[10:13, ::60]))


def _show_table(place: Path) -> None:
    _title("A table with text, dates and nulls, queried")
    columns = weather(50_000)
    _code('table = ingot.table(columns, "weather.bcolz")')
    table = ingot.table(columns, place / "weather.bcolz")
    print_info("weather.bcolz", table.info)
    where = "(station == 'Oslo') & (celsius < -14)"
    _code(f'table.where("{where}")')
    view = table.where(where)
    cold = np.ma.filled(columns["celsius"] < -14, False) & (columns["station"] == "Oslo")
    _check("the rows of a query", view.rows(), np.flatnonzero(cold))
    print_text(f"{len(view):,} of {len(table):,} rows; the first of them:")
    first = view.read(rows=view.rows()[:3])
    print_table(list(first), zip(*first.values(), strict=True), left=("station",))


def _show_old_formats(place: Path) -> None:
    _title("A folder of bcolz and a file of Bloscpack: opened, checked, converted")
    values = temperatures(400)
    ingot.array(values, place / "old" / "rain.bcolz", format="bcolz").close()
    ingot.array(values[:, 0], place / "old" / "wind.blp", format="bloscpack").close()
    for name in ("rain.bcolz", "wind.blp"):
        path = place / "old" / name
        _code(f'ingot.open("{name}"); ingot.check("{name}")')
        with ingot.open(path) as array:
            assert isinstance(array, ingot.Array)
            print_text(f"{array.shape} {array.dtype}, {array.format}")
            before = array[...]
        report = ingot.check(path)
        print_text(_last_line(str(report), place))
        target = place / "new" / f"{path.stem}.zarr"
        _code(f'ingot.convert("{name}", "{target.name}", verify=True)')
        with ingot.convert(path, target, verify=True) as made:
            assert isinstance(made, ingot.Array)
            _check(f"{name}, converted", made[...], before)
            print_text(f"{made.shape} {made.dtype}, {made.format}")


def _show_kills(place: Path) -> None:
    _title("A process that is killed in the middle of a commit")
    states = killed_writers(place / "killed.zarr", _KILLS)
    print_text(
        f"{_KILLS} writers of 64 chunks were killed; each time, all items were of one commit: "
        f"{', '.join(f'{state:,}' for state in states)}"
    )


def _show_bomb() -> None:
    _title("A chunk of 40 bytes that claims 64 MiB")
    chunk = bomb()
    try:
        ingot.blosc.decompress(chunk)
    except IngotError as error:
        print_text(f"{type(error).__name__}: {error}")
    else:
        raise CorruptionError("a chunk of 40 bytes was decoded as 64 MiB")


def _show_speed(place: Path) -> None:
    _title("Speed: the same array, written and read")
    values = temperatures(_ITEMS[native.choice().name] // 600)
    rows = [
        (name, written, read, size, f"{values.nbytes / size:.1f}")
        for name, written, read, size in speeds(values, place)
    ]
    print_table(("", "write MB/s", "read MB/s", "bytes", "ratio"), rows, left=(0,))


def temperatures(days: int) -> NDArray[np.float64]:
    """Return measurements of 600 stations, in tenths of a degree; the same in every run.

    >>> temperatures(3).shape
    (3, 600)
    """
    rng = np.random.default_rng(20)
    year = 10 * np.sin(np.arange(days) * (2 * np.pi / 365))
    places = rng.normal(280, 8, 600)
    found: NDArray[np.float64] = places + year[:, None] + rng.normal(0, 0.4, (days, 600))
    return np.round(found, 1)


def weather(rows: int) -> dict[str, Any]:
    """Return the columns of a table: dates, text, and numbers of which some are missing.

    >>> sorted(weather(3))
    ['celsius', 'day', 'station']
    """
    rng = np.random.default_rng(7)
    stations = np.array(["Lima", "Oslo", "Trondheim"], dtype=np.dtypes.StringDType())
    celsius = np.round(rng.normal(9, 8, rows), 1)
    return {
        "day": np.datetime64("2024-01-01") + np.arange(rows) // 100,
        "station": stations[rng.integers(len(stations), size=rows)],
        "celsius": np.ma.array(celsius, mask=rng.random(rows) < 0.02),
    }


def killed_writers(path: Path, kills: int) -> list[int]:
    """Kill writers at random moments, and return the number of the commit that each one left.

    Every commit fills the array with its number. Items of two commits would be a fault.
    """
    ingot.create(path, shape=(64, 1000), dtype="i8", chunks=(1, 1000)).close()
    states = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, env=environment
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()  # The first commit is done.
            time.sleep(random.uniform(0.01, 0.1))
            writer.send_signal(signal.SIGKILL)
        with ingot.open(path) as array:
            assert isinstance(array, ingot.Array)
            items = array[...]
        if (items != items[0, 0]).any():
            raise CorruptionError(f"{path}: a killed writer has left items of two commits")
        states.append(int(items[0, 0]))
    return states


def bomb() -> bytes:
    """Return a Blosc chunk of 40 bytes that claims to decode to 64 MiB.

    >>> len(bomb())
    40
    """
    # Version, codec version, flags (LZ4), typesize, then nbytes, blocksize and cbytes.
    sizes = np.array([64 << 20, 64 << 20, 40], "<i4").tobytes()
    return bytes([2, 1, 0x21, 1]) + sizes + (20).to_bytes(4, "little") + bytes(20)


def speeds(values: NDArray[Any], place: Path) -> list[tuple[str, str, str, int]]:
    """Return how fast libraries write and read an array, and the bytes they store."""
    own, plain, other = place / "own.zarr", place / "plain.npy", place / "other.zarr"
    rows = max(1, len(values) // 16)
    # The others do not wait for the disk, and zarr gets the codec that Ingot has by default.
    options = ingot.Options(durability="process")

    def write() -> object:
        return ingot.array(values, own, chunks=(rows, 600), overwrite=True, options=options)

    written, _ = _time(write)
    taken, back = _time(lambda: _array(own)[...])
    _check("the array of ingot", back, values)
    found = [("ingot", written, taken, own)]
    written, _ = _time(lambda: np.save(plain, values))
    taken, back = _time(lambda: np.load(plain))
    _check("the array of NumPy", back, values)
    found.append(("numpy.save", written, taken, plain))
    if importlib.util.find_spec("zarr") is not None:
        written, taken = _time_zarr(plain, other, rows)
        _check("the array of zarr", _array(other)[...], values)
        found.append(("zarr", written, taken, other))
    return [
        (name, _speed(values, out), _speed(values, back), _bytes_of(path))
        for name, out, back, path in found
    ]


def _time_zarr(source: Path, target: Path, rows: int) -> tuple[float, float]:
    """Return the times of zarr, in a process of its own; Ingot reads what it has written."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ZARR, str(source), str(target), str(rows)],
        capture_output=True,
        text=True,
        check=True,
    )
    written, taken = map(float, done.stdout.split())
    return written, taken


def _array(path: Path) -> "ingot.Array":
    found = ingot.open(path)
    assert isinstance(found, ingot.Array)
    return found


def _bytes_of(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


def _speed(values: NDArray[Any], seconds: float) -> str:
    return f"{values.nbytes / seconds / 1e6:,.0f}"


def _time(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the better of two runs, so that what the first one loads does not count."""
    best = float("inf")
    for _ in range(2):
        begin = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - begin)
    return best, result


def _check(what: str, found: Any, expected: Any) -> None:
    """Raise `CorruptionError` unless two arrays are equal."""
    if not np.array_equal(found, expected):
        raise CorruptionError(f"{what}: what was read is not what was written")


def _last_line(text: str, place: Path) -> str:
    return text.splitlines()[-1].replace(f"{place}{os.sep}", "")


def _title(text: str) -> None:
    print()
    print_text(text, style="bold cyan")


def _code(text: str) -> None:
    print_text(f">>> {text}", style="green")
