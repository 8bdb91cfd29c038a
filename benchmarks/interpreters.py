"""A newer Python for the peers that need one: zarr's releases since 3.2 require Python 3.12.

Finds interpreters and makes an environment with those peers, ``.venv-peers`` at the root of the
checkout. Environments that it did not make are never changed.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.places import ROOT

__all__ = ["NEEDED", "find_newer_python", "find_peer_python"]

NEEDED = (3, 12)
NEWEST_MINOR = 20
ENVIRONMENT = ROOT / ".venv-peers"
PACKAGES = ("numpy", "zarr", "zarrs")

Say = Callable[[str], None]


def find_peer_python(choice: str, say: Say) -> str | None:
    """Return the interpreter to run zarr in; None for this one.

    ``choice`` is ``"here"`` for this one, a path, or ``"auto"``: this one if it is new enough, else
    the newest on the path or known to pyenv or uv. One without zarr gets an environment with it.

    >>> find_peer_python("here", print) is None
    True
    """
    if choice == "here" or (choice == "auto" and sys.version_info >= NEEDED):
        return None
    if choice != "auto":
        return choice if _has_zarr(choice) else _make(choice, say)
    made = str(_python_in(ENVIRONMENT))
    if _has_zarr(made):
        return made
    found = find_newer_python()
    if found is None:
        say("no Python 3.12 or later was found: zarr runs in this one, in an older version")
        return None
    return _make(found, say)


def find_newer_python() -> str | None:
    """Return the newest interpreter that the newest zarr runs in; None if there is none."""
    return next(_newer_pythons(), None)


def _newer_pythons() -> Iterator[str]:
    for minor in range(NEWEST_MINOR, NEEDED[1] - 1, -1):
        for candidate in _candidates(f"3.{minor}"):
            # A name on the path may be a shim with nothing behind it.
            if _succeeds([candidate, "-c", "import ensurepip, venv"]):
                yield candidate


def _candidates(release: str) -> Iterator[str]:
    on_path = shutil.which(f"python{release}")
    if on_path:
        yield on_path
    if shutil.which("pyenv"):
        prefix = _output(["pyenv", "prefix", release])
        if prefix:
            yield str(_python_in(Path(prefix)))
    if shutil.which("uv"):
        found = _output(["uv", "python", "find", release])
        if found:
            yield found


def _make(python: str, say: Say) -> str | None:
    """Make the environment; after a failure the run continues without the newer zarr."""
    say(f"making {ENVIRONMENT.name} with {', '.join(PACKAGES)} for {python}")
    made = str(_python_in(ENVIRONMENT))
    steps = [
        [python, "-m", "venv", "--clear", str(ENVIRONMENT)],
        [made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
    ]
    for step in steps:
        result = subprocess.run(step, capture_output=True, text=True, errors="replace")
        if result.returncode:
            say(f"that failed, zarr runs in this Python: {result.stderr.strip()}")
            return None
    # Version control ignores the folder; newer versions of venv write the same file.
    (ENVIRONMENT / ".gitignore").write_text("*\n", encoding="utf-8")
    return made


def _python_in(folder: Path) -> Path:
    windows = sys.platform == "win32"
    return folder / ("Scripts/python.exe" if windows else "bin/python")


def _has_zarr(python: str) -> bool:
    return _succeeds([python, "-c", "import numpy, zarr"])


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def _output(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
