"""The machine and the software that a run happened on.

Collects facts and does not judge whether the machine was idle enough.
"""

import datetime
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import ingot
from benchmarks.packages import version
from ingot import native

__all__ = ["PEERS", "cores", "describe", "portray"]

PEERS = (
    "numpy",
    "blosc",
    "blosc2",
    "numcodecs",
    "zarr",
    "zarrs",
    "tensorstore",
    "h5py",
    "hdf5plugin",
    "pyarrow",
    "pandas",
    "bcolz-zipline",
    "pylance",
    "vortex-data",
    "duckdb",
)

ELSEWHERE = ("numpy", "numcodecs", "zarr", "zarrs")


def describe(arguments: Sequence[str], python: str | None = None) -> dict[str, str]:
    """Return the facts of this run, by name, in the order to show them.

    ``python`` is the interpreter that zarr runs in, if that is another one.

    >>> describe(["decode"])["command"]
    './run bench decode'
    """
    kernel = native.kernel().describe()
    here = [name for name in PEERS if python is None or name not in ("zarr", "zarrs")]
    facts = {
        "command": shlex.join(["./run", "bench", *arguments]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {cores()} cores",
        "load at the start": _load(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "ingot": f"{ingot.__version__}, {kernel['kernel']} kernel, SIMD {kernel['simd']}",
        "python": platform.python_version(),
        "peers": ", ".join(f"{name} {version(name)}" for name in here),
    }
    if python is not None:
        facts["zarr in another process"] = _ask_versions(python)
    return facts


def portray(facts: Mapping[str, str]) -> str:
    """Write the facts as lines of a page.

    >>> portray({"python": "3.13.0"})
    '- python: 3.13.0'
    """
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


def cores() -> int:
    """Count the processors that this process may use.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ask_versions(python: str) -> str:
    question = (
        "import platform; from importlib.metadata import version; "
        "print('Python ', platform.python_version(), "
        f"*(f', {{name}} {{version(name)}}' for name in {ELSEWHERE!r}), sep='')"
    )
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
    return answer.stdout.strip() or "unknown versions"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1] if model else platform.processor() or "unknown processor"


def _load() -> str:
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
