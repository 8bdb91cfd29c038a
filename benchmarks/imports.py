"""The time to import the package, and to use it first.

Every turn is a new process that has imported NumPy before the clock starts. Modules are compiled
already, as after an installation. Bar: `import ingot` adds 60 ms at most. The first use pays for
what the import defers, so it is timed with the import.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import ingot
from benchmarks.settings import Settings
from benchmarks.table import Column, Table

__all__ = ["importing", "run"]

BAR = 60e-3
TURNS = 15
_TIMED = """\
import time, numpy
begin = time.perf_counter()
{code}
print(time.perf_counter() - begin)
"""


def run(settings: Settings) -> list[Table]:
    """Time the import alone, and together with opening the first array or table."""
    folder = settings.folder / "imports"
    folder.mkdir()
    values = np.arange(1000)
    ingot.array(values, folder / "zarr3")
    ingot.array(values, folder / "zarr2", format="zarr2")
    ingot.table({"a": values}, folder / "table")
    codes = {"import ingot": "import ingot"}
    for name in ("zarr3", "zarr2", "table"):
        codes[f"and open {name}"] = f"import ingot; ingot.open({str(folder / name)!r})"
    rows = []
    for name, code in codes.items():
        settings.say(f"imports {name}")
        best = min(importing(code, folder / "compiled") for _ in range(TURNS))
        bar = settings.verdict(best <= BAR) if code == "import ingot" else None
        rows.append((name, best * 1e3, bar))
    columns = (Column("program"), Column("ingot ms", ".1f"), Column("bar"))
    return [Table("imports", "Time until the package is there, after NumPy", columns, tuple(rows))]


def importing(code: str, compiled: Path) -> float:
    """Return the seconds that code takes in a new process.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     0 < importing("import json", Path(folder)) < 10
    True
    """
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONPYCACHEPREFIX": str(compiled),
    }
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(code=code)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
