"""zipline's readers and writers of bcolz data, run on `ingot.compat.bcolz` by zipline's own tests.

zipline-reloaded needs an older pandas than Ingot's tests and half a gigabyte of other packages, so
it gets an environment of its own, `.venv-zipline`, which is made once, by pip: ``INGOT_ZIPLINE=1
./run test tests/compat``. The tests come from the source archive of the version that pip installed.
"""

import os
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-zipline"
PYTHON = ENVIRONMENT / "bin" / "python"
SOURCES = ENVIRONMENT / "sources"
NEEDED = [
    "zipline-reloaded",
    "numcodecs",
    "parameterized",
    "pytest",
    "pyyaml",
    "responses",
    "testfixtures",
]
MINUTES = 30

TESTS = [
    ("tests/data/test_minute_bars.py", "Bcolz", 27),
    ("tests/data/test_daily_bars.py", "Bcolz", 30),
    ("tests/data/bundles/test_core.py", "ingest", 3),
]
"""A file of zipline's tests, which of them are about bcolz, and how many must pass at least."""

# Runs in zipline's environment. Arguments: the folder of Ingot's package, then those of pytest.
RUNNER = """
import sys
sys.path.insert(0, sys.argv[1])
import ingot.compat.bcolz
sys.modules["bcolz"] = ingot.compat.bcolz
import pytest
status = pytest.main(sys.argv[2:])
from zipline.data import bcolz_daily_bars, bcolz_minute_bars
for used in (bcolz_minute_bars.ctable, bcolz_daily_bars.ctable, bcolz_daily_bars.carray):
    assert used.__module__.startswith("ingot.compat.bcolz"), used
sys.exit(status)
"""


def pip(*arguments: str) -> None:
    """Run pip in zipline's environment; skip the tests where it does not get what it needs."""
    done = subprocess.run(
        [PYTHON, "-m", "pip", "--quiet", *arguments],
        capture_output=True,
        text=True,
        timeout=MINUTES * 60,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pip cannot get zipline-reloaded: {done.stderr.strip()[-300:]}")


@pytest.fixture(scope="module")
def sources() -> Path:
    """Return the folder with the sources of the zipline that is installed."""
    if not SOURCES.is_dir():
        if os.environ.get("INGOT_ZIPLINE") != "1":
            pytest.skip("the environment for zipline takes minutes to make: INGOT_ZIPLINE=1 does")
        venv.create(ENVIRONMENT, with_pip=True)
        pip("install", *NEEDED)
        code = "import importlib.metadata as m; print(m.version('zipline-reloaded'))"
        version = subprocess.check_output([PYTHON, "-c", code], text=True).strip()
        archives = ENVIRONMENT / "archives"
        wanted = f"zipline-reloaded=={version}"
        only = ("--no-deps", "--no-binary", "zipline-reloaded")
        pip("download", *only, "--dest", str(archives), wanted)
        with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
            archive.extractall(SOURCES, filter="data")
    return next(SOURCES.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("file", "chosen", "least"), TESTS)
def test_zipline_passes_its_own_tests(file: str, chosen: str, least: int, sources: Path) -> None:
    package = str(ROOT / "src")
    # zipline's own options name plugins that these tests do not need.
    options = ("-o", "addopts=", "-q", "-p", "no:cacheprovider")
    done = subprocess.run(
        [PYTHON, "-c", RUNNER, package, *options, file, "-k", chosen],
        cwd=sources,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=MINUTES * 60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout.strip().splitlines()[-1]
    assert "failed" not in summary
    assert int(summary.partition(" passed")[0].split()[-1]) >= least, summary
