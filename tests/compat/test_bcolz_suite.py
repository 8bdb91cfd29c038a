"""bcolz's own test suite, run from the installed package against `ingot.compat.bcolz`."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingot.compat.bcolz import suite
from tests.kernels import NATIVE_IS_BUILT, needs_native

RECORD = Path(__file__).parent / "bcolz-failures.txt"
SHARE = 0.98
"""The part of the tests that must pass, whatever the record says."""

needs_bcolz = pytest.mark.skipif(
    importlib.util.find_spec("bcolz") is None,
    reason="bcolz-zipline is not installed; it has no wheels for Python 3.13 and later",
)


def recorded(kernel: str) -> set[str]:
    """Return the tests that are known to fail on a kernel."""
    found = set()
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, test, reason = line.split(maxsplit=2)
            assert reason, line
            if name == kernel:
                found.add(test)
    return found


@needs_bcolz
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("native", marks=needs_native),
        pytest.param(
            "python",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(
                    NATIVE_IS_BUILT, reason="it runs in the installation without the kernel"
                ),
            ],
        ),
    ],
)
def test_suite_fails_only_where_the_record_says(kernel: str) -> None:
    command = [sys.executable, "-m", suite.__name__, "--json"]
    done = subprocess.run(
        command,
        env={**os.environ, "INGOT_KERNEL": kernel},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    outcomes: dict[str, str] = report["outcomes"]
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    known = recorded(kernel)
    details = "\n".join(report["details"][name] for name in sorted(failed - known))
    assert not failed - known, details
    assert not known - failed, "these tests pass, but are recorded as failing"
    assert passed >= SHARE * (passed + len(failed))
    assert passed > 1200, "the suite was not found, or most of it was skipped"


@needs_bcolz
@needs_native
@pytest.mark.slow
def test_heavy_tests_of_the_suite_pass() -> None:
    command = [sys.executable, "-m", suite.__name__, "--heavy", "carray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@needs_bcolz
def test_suite_tests_the_module_and_not_bcolz() -> None:
    code = (
        "from ingot.compat.bcolz import suite\nimport sys\nsuite.run(['attrs'])\n"
        "import bcolz, bcolz.carray_ext\n"
        "assert bcolz.__name__ == 'ingot.compat.bcolz', bcolz\n"
        "assert bcolz.carray.__module__ == 'ingot.compat.bcolz.carray_ext'\n"
        "assert not [m for m in sys.modules.values() if 'carray_ext.cpython' in "
        "str(getattr(m, '__file__', ''))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
