"""The cost of appending one row, in tables of several lengths: it must not grow with them.

Prints, for each length, the best and the median time of an append, and the bytes that it writes.

    python benchmarks/small_appends.py [rows ...]
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ingot

APPENDS = 300
LENGTHS = (0, 10_000, 100_000, 1_000_000, 10_000_000)


def written() -> int:
    """Return how many bytes this process has written."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["wchar"])


def measure(rows: int) -> tuple[float, float, float]:
    """Return best and median seconds of an append to a table of `rows` rows, and its bytes."""
    columns = {"at": np.arange(rows) / 10, "value": np.arange(rows, dtype="i4") % 5}
    times = []
    with tempfile.TemporaryDirectory() as folder:
        options = ingot.Options(durability="process")
        table = ingot.table(columns, f"{folder}/log", options=options)
        before = written()
        for number in range(APPENDS):
            begun = time.perf_counter()
            table.append({"at": [number / 10], "value": [number % 5]})
            times.append(time.perf_counter() - begun)
        return min(times), statistics.median(times), (written() - before) / APPENDS


def main() -> None:
    """Measure and print."""
    for rows in map(int, sys.argv[1:]) if sys.argv[1:] else LENGTHS:
        best, middle, size = measure(rows)
        print(f"{rows:>10} rows: {best * 1e6:6.0f} us, {middle * 1e6:6.0f} us, {size:8.0f} bytes")


if __name__ == "__main__":
    main()
