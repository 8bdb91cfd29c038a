"""``ingot bench``: codecs, levels, filters and chunk shapes on a sample of a dataset.

The sample is stored in memory, so that the speed of disks does not count.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

import ingot
from ingot.cli.arguments import Dataset, Json
from ingot.cli.messages import usage
from ingot.cli.output import print_json, print_table, print_text
from ingot.cli.parameters import Option
from ingot.cli.progress import progress_bar
from ingot.codecs import choice
from ingot.errors import CorruptionError, UnsupportedError
from ingot.options import parse_size

__all__ = ["Trial", "bench", "best", "sample_of", "trials"]

Result = TypeVar("Result")

CODECS: Final = (
    "none",
    *(candidate.spelling for candidate in choice.CANDIDATES),
    "blosc:lz4hc:9:shuffle",
    "blosc:zlib:5:shuffle",
    "zstd:3",
)
"""What is tried, in the spelling of `ingot.create`: all that ``codec="auto"`` knows, and more."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A sample through one codec, in chunks of one shape: sizes in bytes, times in seconds.

    >>> Trial("zstd:3", (10,), 800, 100, 1e-6, 1e-6, 1e-6).ratio
    8.0
    """

    codec: str
    chunks: tuple[int, ...]
    nbytes: int
    stored: int
    write_time: float
    read_time: float
    row_time: float
    """The time to read one row from the middle."""

    @property
    def ratio(self) -> float:
        """How many times smaller the stored chunks are."""
        return self.nbytes / self.stored

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as ``--json`` prints it: speeds in bytes per second."""
        return {
            "codec": self.codec,
            "chunks": list(self.chunks),
            "ratio": round(self.ratio, 3),
            "write": round(self.nbytes / self.write_time),
            "read": round(self.nbytes / self.read_time),
            "row_seconds": self.row_time,
        }


def bench(
    path: Dataset,
    column: Annotated[str | None, Option("-c", "--column", help="The column of a table.")] = None,
    size: Annotated[
        str, Option("-s", "--sample", metavar="SIZE", help="How much of the data is tried.")
    ] = "8M",
    json: Json = False,
) -> None:
    """Try codecs and chunk shapes on a sample of a dataset.

    The last line recommends some, in a form that can be pasted. The recommendation is the smallest
    of those that are read at half the speed of the fastest or more; what is at most 3 % larger and
    read faster goes before it.
    """
    with usage():
        most = parse_size(size)
        if not most:
            raise ValueError(f"sample is {size!r}, not a size such as 8M")
    with ingot.open(path) as dataset:
        values, own = sample_of(dataset, column, most)
    total = len(CODECS) + len(_shapes(values, own)) - 1
    found = []
    with progress_bar(str(path), lambda: total, unit="trials") as report:
        for trial in trials(values, own):
            found.append(trial)
            if report is not None:
                report(len(found))
    chosen = best(found)
    advice = f'codec="{chosen.codec}", chunks={chosen.chunks}'
    if json:
        trial_list = [trial.to_dict() for trial in found]
        best_one = {"codec": chosen.codec, "chunks": list(chosen.chunks)}
        print_json({"sample": list(values.shape), "trials": trial_list, "recommended": best_one})
        return
    rows = [_cells(trial) for trial in found]
    headings = ("codec", "chunks", "ratio", "write MB/s", "read MB/s", "row us")
    print_table(headings, rows, left=("codec", "chunks"))
    print()
    print_text(f"ingot.create(..., {advice})")


def sample_of(dataset: Any, column: str | None, most: int) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return items from the middle of an array or a column, and the shape of its chunks.

    >>> sample_of(ingot.array(np.arange(100), chunks=10), None, 80)[0].tolist()[:3]
    [45, 46, 47]
    """
    if isinstance(dataset, ingot.Table):
        arrays = (each for each in dataset.names if isinstance(dataset[each], ingot.Array))
        name = column or next(arrays, None)
        if name is None:
            raise UnsupportedError("the table has no column of items of one size")
        dataset = dataset[name]
    if isinstance(dataset, ingot.Group):
        raise UnsupportedError("a group is no array; name a member of it, as ingot ls lists them")
    if not isinstance(dataset, ingot.Array) or not dataset.size:
        raise UnsupportedError("trials need an array with items, or a column of a table with them")
    if not dataset.ndim:
        raise UnsupportedError("trials need an array with axes")
    row = max(1, dataset.nbytes // dataset.shape[0])
    rows = min(dataset.shape[0], max(1, most // row))
    start = (dataset.shape[0] - rows) // 2
    return np.asarray(dataset[start : start + rows]), dataset.chunks


def trials(values: NDArray[Any], own: tuple[int, ...]) -> Iterator[Trial]:
    """Yield a trial of every codec in the chunks that there are, then the best in other shapes."""
    first, *shapes = _shapes(values, own)
    found = []
    for codec in CODECS:
        found.append(_trial(values, codec, first))
        yield found[-1]
    chosen = best(found).codec
    for chunks in shapes:
        yield _trial(values, chosen, chunks)


def best(found: list[Trial]) -> Trial:
    """Return the smallest of the trials that are read at half the speed of the fastest, or more.

    What is stored in hardly more bytes is as good, and is taken where it is read faster.
    """
    fastest = min(trial.read_time for trial in found if trial.codec != "none" or len(found) == 1)
    return choice.best(((trial, trial.stored, trial.read_time) for trial in found), 2 * fastest)


def _shapes(values: NDArray[Any], own: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return shapes of chunks to try: their own, larger and smaller ones, and rows."""
    limit = [max(1, length) for length in values.shape]
    first = tuple(min(chunk, most) for chunk, most in zip(own, limit, strict=True))
    double = tuple(min(2 * chunk, most) for chunk, most in zip(first, limit, strict=True))
    half = tuple(max(1, chunk // 2) for chunk in first)
    row = max(1, math.prod(limit[1:]) * values.itemsize)
    rows = (min(limit[0], max(1, (1 << 20) // row)), *limit[1:])
    return list(dict.fromkeys([first, double, half, rows]))


def _trial(values: NDArray[Any], codec: str, chunks: tuple[int, ...]) -> Trial:
    write_time, array = _time(lambda: ingot.array(values, codec=codec, chunks=chunks))
    read_time, back = _time(lambda: array[...])
    row_time, _ = _time(lambda: array[len(values) // 2])
    if back.tobytes() != values.tobytes():
        raise CorruptionError(f"{codec}: what was read is not what was written")
    times = write_time, read_time, row_time
    return Trial(codec, chunks, values.nbytes, array.stored_bytes or 1, *times)


def _cells(trial: Trial) -> tuple[str, ...]:
    return (
        trial.codec,
        "x".join(map(str, trial.chunks)),
        f"{trial.ratio:.2f}",
        f"{trial.nbytes / trial.write_time / 1e6:,.0f}",
        f"{trial.nbytes / trial.read_time / 1e6:,.0f}",
        f"{trial.row_time * 1e6:,.0f}",
    )


def _time(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the best of three runs."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begin)
    return min(times), result
