"""The tests nearest to a module, as paths below the root of the checkout, nearest first."""

import re
from functools import cache
from pathlib import Path

from tests.architecture.test_tree import ROOT, SOURCE, TESTED_ELSEWHERE, UNIT, subjects, unit_tests

__all__ = ["nearest_tests"]


def nearest_tests(path: str) -> list[str]:
    """Return the tests of a module, which is given by its path below the root.

    They are its own examples, the tests that mirror it, the tests that `TESTED_ELSEWHERE` names,
    and the unit tests that import it. Where no test mirrors it, the unit tests of its folder
    follow, and all other tests that import it.

    >>> nearest_tests("src/ingot/grid.py")[:2]
    ['src/ingot/grid.py', 'tests/unit/test_grid.py']
    >>> nearest_tests("src/ingot/stores/local/file.py")[1]
    'tests/unit/stores/test_zip.py'
    """
    module = (ROOT / path).relative_to(SOURCE).with_suffix("").as_posix()
    mirror = _mirrors().get(module, [])
    elsewhere = [f"tests/{TESTED_ELSEWHERE[module]}"] if module in TESTED_ELSEWHERE else []
    found = [*mirror, *elsewhere, *(test for test in _unit() if _imports(test, module))]
    if not mirror:
        folder = f"tests/unit/{module}".rpartition("/")[0]
        found += [test for test in _unit() if test.rpartition("/")[0] == folder]
        found += [test for test in _others() if _imports(test, module)]
    return list(dict.fromkeys([path, *found]))


@cache
def _unit() -> list[str]:
    return [(UNIT / test).relative_to(ROOT).as_posix() for test in unit_tests()]


@cache
def _others() -> list[str]:
    tests = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(set(tests) - set(_unit()))


@cache
def _mirrors() -> dict[str, list[str]]:
    """Return the unit tests by the module that each of them is about."""
    found: dict[str, list[str]] = {}
    for test in unit_tests():
        for subject in subjects(test)[:1]:
            module = subject.relative_to(SOURCE).with_suffix("").as_posix()
            found.setdefault(module, []).append((UNIT / test).relative_to(ROOT).as_posix())
    return found


def _imports(test: str, module: str) -> bool:
    text = Path(ROOT / test).read_text("utf-8")
    package, _, name = f"ingot/{module}".rpartition("/")
    whole = rf"\b(from|import) ingot\.{re.escape(module.replace('/', '.'))}\b"
    part = rf"\bfrom {re.escape(package.replace('/', '.'))} import [^\n]*\b{name}\b"
    return re.search(f"{whole}|{part}", text) is not None
