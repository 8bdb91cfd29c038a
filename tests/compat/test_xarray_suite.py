"""xarray's own tests of storage, run from the installed package on `ds.ingot.to` and the engine."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("xarray")

HERE = Path(__file__).parent
LEAST = 65
"""How many tests must pass, whatever the record says."""


def recorded() -> set[str]:
    """Return the tests that are known to fail."""
    found = set()
    for line in (HERE / "xarray-failures.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(maxsplit=1)
            assert reason, line
            found.add(name)
    return found


@pytest.mark.slow
def test_suite_fails_only_where_the_record_says(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\npython_files = xarray_suite.py\n")
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command += ["-p", "xarray.tests.conftest", "-c", str(tmp_path / "pytest.ini")]
    command += ["--rootdir", str(HERE), f"--junitxml={report}", str(HERE / "xarray_suite.py")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = {
        case.get("name")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    left_out = [case for case in cases if case.find("skipped") is not None]
    assert failed == recorded(), done.stdout[-3000:]
    assert len(cases) - len(failed) - len(left_out) >= LEAST
