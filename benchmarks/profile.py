"""A profile of the array benchmark: ``python -m benchmarks.profile FOLDER``, by Linux's ``perf``.

Runs one workload in a process of its own and classifies the call stacks that ``perf`` records. The
shares are of the processor time of all threads, which can be measured on a machine with other load.

The files are made in FOLDER when they are missing: one by Ingot, one by zarr in Zarr v2.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.array_libraries import LIBRARIES, remove
from benchmarks.arrays import READS, RECIPE
from benchmarks.samples import fill
from benchmarks.table import Column, Table

__all__ = ["KINDS", "main", "sort"]

KINDS: tuple[tuple[str, str], ...] = (
    ("clearing pages", r"clear_page|folio_zero|clear_huge"),
    ("page faults", r"asm_exc_page_fault"),
    ("reading files", r"vfs_read|pread64|filemap_read"),
    ("writing files", r"vfs_write"),
    ("opening and closing", r"sys_open|sys_close|statx|fstat|rename|unlink|mkdir|flock|fcntl"),
    ("LZ4", r"lz4|LZ4_|find_items|find_bytes"),
    (
        "shuffle and scatter",
        r"shuffle|scatter|copy_plain|memmove|memset|memcpy|unshuffle_runs|gather",
    ),
    ("rest of the kernel in Rust", r"_native"),
)
"""Kinds of work, and the function names by which a sample is recognised, the innermost first.

A sample that matches none is Python's: the interpreter, NumPy, and their system calls.
"""

OTHER = "Python"
FILES = {"ours": "ingot", "zarr's": "zarr2"}
SECONDS = 6.0


def sort(samples: Iterable[str]) -> dict[str, float]:
    """Return the share of each kind among samples, each one the names of a call stack.

    >>> sort(["clear_page_erms asm_exc_page_fault", "LZ4_decompress_safe", "PyEval", "PyLong"])
    {'Python': 0.5, 'clearing pages': 0.25, 'LZ4': 0.25}
    """
    counts = Counter(
        next((kind for kind, names in KINDS if re.search(names, sample)), OTHER)
        for sample in samples
    )
    total = sum(counts.values())
    return {kind: count / total for kind, count in counts.most_common()}


def main(arguments: list[str]) -> int:
    """Profile every workload, or run one of them repeatedly, as the child of ``perf``."""
    folder = Path(arguments[0])
    if len(arguments) > 1:
        _keep_busy(folder, *arguments[1:])
        return 0
    folder.mkdir(exist_ok=True)
    _make_files(folder)
    titles = [measure.title for measure in READS]
    cases = [(title, file) for title in titles for file in FILES] + [("write", "ours")]
    kinds = [kind for kind, _ in KINDS] + [OTHER]
    rows = []
    for title, file in cases:
        shares = sort(_record(folder, title, file))
        rows.append((f"{title}, {file}", *(100 * shares.get(kind, 0.0) for kind in kinds)))
    columns = (Column("workload"), *(Column(f"{kind} %", ".0f") for kind in kinds))
    print(Table("profile", "Where the processor's time goes", columns, tuple(rows)).as_markdown())
    return 0


def _make_files(folder: Path) -> None:
    for name in FILES.values():
        path = folder / (name + LIBRARIES[name].suffix)
        if not path.exists():
            LIBRARIES[name].select()
            LIBRARIES[name].write(str(path), RECIPE, [(slice(0, RECIPE.shape[0]), fill(RECIPE))])


def _record(folder: Path, title: str, file: str) -> Iterator[str]:
    """Run a workload under ``perf`` and yield the recorded call stacks, one line each."""
    data = folder / "perf.data"
    busy = [sys.executable, "-m", "benchmarks.profile", str(folder), title, file]
    record = [
        "perf",
        "record",
        "-q",
        "-g",
        "-k",
        "CLOCK_MONOTONIC",
        "-e",
        "cpu-clock",
        "-F",
        "2000",
    ]
    # Samples of the start-up are dropped.
    ready = subprocess.run(
        [*record, "-o", str(data), "--", *busy], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    script = ["perf", "script", "-F", "ip,sym,dso", "-i", str(data), "--time", f"{ready.strip()},"]
    text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    return (" ".join(stack.split()) for stack in text.split("\n\n") if stack.strip())


def _keep_busy(folder: Path, title: str, file: str) -> None:
    call = _writing(folder) if title == "write" else _reading(folder, title, file)
    call()
    print(f"{time.monotonic():.6f}", flush=True)
    end = time.monotonic() + SECONDS
    calls, begin = 0, time.process_time()
    while time.monotonic() < end:
        calls += call()
    spent = time.process_time() - begin
    print(
        f"{title}, {file}: {spent / calls * 1e6:.1f} us of processor time a call", file=sys.stderr
    )


def _open(folder: Path, file: str) -> Any:
    name = FILES[file]
    return LIBRARIES["ingot"].open(str(folder / (name + LIBRARIES[name].suffix)))


def _reading(folder: Path, title: str, file: str) -> Callable[[], int]:
    keys = next(measure for measure in READS if measure.title == title).keys(RECIPE)
    read = _open(folder, file).__getitem__

    def call() -> int:
        for key in keys:
            read(key)
        return len(keys)

    return call


def _writing(folder: Path) -> Callable[[], int]:
    data, path = _open(folder, "ours")[...], str(folder / "written.zarr")

    def call() -> int:
        remove(path)
        LIBRARIES["ingot"].write(path, RECIPE, [(slice(0, RECIPE.shape[0]), data)])
        return 1

    return call


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
