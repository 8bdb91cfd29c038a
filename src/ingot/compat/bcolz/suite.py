"""The test suite of bcolz, run against this package: ``python -m ingot.compat.bcolz.suite``.

The tests are loaded from the files of an installed bcolz (``pip install bcolz-zipline``). Whatever
they import from bcolz is this package, but for helpers of the suite that hold no code of the
library. A process that runs it has no other bcolz afterwards.
"""

import importlib.util
import json
import sys
import types
import unittest
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import ingot.compat.bcolz
from ingot.compat.bcolz import arrayprint, carray_ext, conversion
from ingot.errors import NotFoundError

__all__ = ["MODULES", "Outcomes", "main", "run"]

MODULES: Final = ("attrs", "carray", "carray_objects", "ctable", "ndcarray", "queries")
"""The modules of the suite, without the ``test_`` of their names."""

_OWN: Final = ("py2help", "py2help_tests", "tests.common")


class Outcomes(unittest.TestResult):
    """What became of each test: "passed", "failed", or "skipped: " and the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}
        self.details: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Note a test that passed."""
        self.outcomes[test.id()] = "passed"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Note a test that was skipped."""
        self.outcomes[test.id()] = f"skipped: {reason}"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Note a test that failed."""
        super().addFailure(test, err)
        self.outcomes[test.id()] = "failed"
        self.details[test.id()] = self.failures[-1][1]

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Note a test that raised an error."""
        super().addError(test, err)
        self.outcomes[test.id()] = "failed"
        self.details[test.id()] = self.errors[-1][1]


def run(modules: Iterable[str] = MODULES, *, heavy: bool = False) -> Outcomes:
    """Run modules of the suite; `heavy` adds the tests that take long."""
    folder = _installed()
    _stand_in(folder)
    sys.modules["bcolz.tests.common"].heavy = heavy  # type: ignore[attr-defined]
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for name in modules:
        module = _load(f"test_{name}", folder / "tests" / f"test_{name}.py")
        suite.addTests(loader.loadTestsFromModule(module))
    outcomes = Outcomes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite.run(outcomes)
    return outcomes


def _installed() -> Path:
    """Return the folder of the installed bcolz, without importing it."""
    found = importlib.util.find_spec("bcolz")
    if found is None or found.origin is None:
        raise NotFoundError("bcolz is not installed: pip install bcolz-zipline")
    return Path(found.origin).parent


def _stand_in(folder: Path) -> None:
    """Put this package in the place of bcolz."""
    tests = types.ModuleType("bcolz.tests")
    sys.modules |= {
        "bcolz": ingot.compat.bcolz,
        "bcolz.carray_ext": carray_ext,
        "bcolz.arrayprint": arrayprint,
        "bcolz.utils": conversion,
        "bcolz.tests": tests,
    }
    for name in _OWN:
        _load(f"bcolz.{name}", folder / f"{name.replace('.', '/')}.py")
    tests.common = sys.modules["bcolz.tests.common"]  # type: ignore[attr-defined]


def _load(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> int:
    """Run the suite and print what failed, or everything with ``--json``; return an exit status."""
    modules = [each for each in arguments if not each.startswith("-")] or MODULES
    found = run(modules, heavy="--heavy" in arguments)
    if "--json" in arguments:
        print(json.dumps({"outcomes": found.outcomes, "details": found.details}, indent=1))
        return 0
    for name, detail in found.details.items():
        print(f"FAILED {name}\n{detail}")
    counts = [each.partition(":")[0] for each in found.outcomes.values()]
    print(", ".join(f"{counts.count(each)} {each}" for each in sorted(set(counts))))
    return int("failed" in counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
