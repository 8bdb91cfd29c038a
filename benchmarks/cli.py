"""The time of commands, each in a new process, from its start to its end.

Modules are compiled already, as after an installation, and the output goes to a pipe. Bars: `info`
and `ls` under 0.25 s, `head` under 0.3 s, `--help` under 0.15 s.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import ingot
from benchmarks.settings import Settings
from benchmarks.table import Column, Table

__all__ = ["run"]

TURNS = 15
_INFO, _HEAD, _HELP = 0.25, 0.3, 0.15


def run(settings: Settings) -> list[Table]:
    """Time the commands that a user waits for."""
    folder = settings.folder / "cli"
    data = _made(folder)
    calls: list[tuple[tuple[str, ...], float]] = [
        (("--help",), _HELP),
        (("info", f"{data}/array.zarr"), _INFO),
        (("info", f"{data}/table.bcolz"), _INFO),
        (("ls", str(data)), _INFO),
        (("head", f"{data}/array.zarr"), _HEAD),
        (("head", f"{data}/table.bcolz", "--where", "a > 500"), _HEAD),
    ]
    rows = []
    for arguments, bar in calls:
        shown = " ".join(each.replace(f"{data}", "data") for each in arguments)
        settings.say(f"cli {shown}")
        best = min(_seconds(arguments, folder / "compiled") for _ in range(TURNS))
        rows.append((shown, best * 1e3, bar * 1e3, settings.verdict(best <= bar)))
    columns = (Column("ingot"), Column("ms", ".0f"), Column("at most", ".0f"), Column("bar"))
    return [Table("cli", "Commands in new processes", columns, tuple(rows))]


def _made(folder: Path) -> Path:
    """Make a folder with an array and a table."""
    data = folder / "data"
    data.mkdir(parents=True)
    rows = np.arange(100_000)
    ingot.array(rows.reshape(1000, 100), data / "array.zarr", chunks=(100, 100)).close()
    columns = {"a": rows, "b": rows / 2, "name": [f"row {each}" for each in rows]}
    ingot.table(columns, data / "table.bcolz", chunks=10_000).close()
    return data


def _seconds(arguments: tuple[str, ...], compiled: Path) -> float:
    """Return the seconds of one call of the command."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONPYCACHEPREFIX": str(compiled),
    }
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ingot", *arguments],
        env=environment,
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - begun
