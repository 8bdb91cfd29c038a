"""The tests mirror the source: the path of a module is the path of its tests."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

SOURCE = ROOT / "src" / "ingot"
UNIT = ROOT / "tests" / "unit"

TESTED_ELSEWHERE = {
    "_lazy": "architecture/test_loading.py",
    "blosc/special": "unit/blosc/test_chunk.py",
    "cli/chunk": "unit/test_cli.py",
    "cli/completion": "unit/cli/test_commands.py",
    "cli/doctor": "unit/test_cli.py",
    "containers/create_ragged": "unit/formats/varlen/test_format.py",
    "engine/plan": "parity/test_engine.py",
    "formats/zarr/hierarchy": "unit/containers/test_group.py",
    "formats/zarr/v3_consolidated": "unit/containers/test_group.py",
    "formats/zarr/v3_extension": "unit/formats/zarr/test_v3.py",
    "query/columns": "unit/containers/test_table.py",
    "query/pushdown": "parity/test_rows.py",
    "stores/local/scope": "unit/formats/bcolz/test_format.py",
    "testing/crashes": "crash/test_crashes.py",
    "testing/faults": "crash/test_schedules.py",
}
"""Modules that no test names, since they are tested through those that use them: the tests."""


def has_code(path: Path) -> bool:
    """Return whether a module defines anything; a package may only name what is in it."""
    return re.search(r"^(def|class|async def) ", path.read_text("utf-8"), re.MULTILINE) is not None


def modules() -> list[str]:
    """Return the modules with code, by their paths below the package without the suffix."""
    found = [path for path in SOURCE.rglob("*.py") if has_code(path)]
    return sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in found)


def unit_tests() -> list[str]:
    return sorted(path.relative_to(UNIT).as_posix() for path in UNIT.rglob("test_*.py"))


def subjects(test: str) -> list[Path]:
    """Return the modules and packages that a test file may be about.

    `test_table_changes.py` is about `table_changes.py` or `table.py`.
    """
    folder = SOURCE / Path(test).parent
    words = Path(test).stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    paths = [path for name in names for path in (folder / f"{name}.py", folder / name)]
    return [path for path in paths if path.exists()]


@cache
def named_by_tests() -> frozenset[str]:
    """Return all modules that tests import or mirror, by their paths."""
    found = {
        subject.relative_to(SOURCE).with_suffix("").as_posix()
        for test in unit_tests()
        for subject in subjects(test)[:1]
    }
    for path in (ROOT / "tests").rglob("*.py"):
        for module, names in re.findall(
            r"\bfrom ingot([\w.]*) import (\([^)]*\)|[^\n]*)", path.read_text("utf-8")
        ):
            folder = module.replace(".", "/").strip("/")
            found.add(folder)
            found.update(f"{folder}/{name}".strip("/") for name in re.findall(r"\w+", names))
    return frozenset(found)


@pytest.mark.parametrize("test", unit_tests())
def test_a_unit_test_stands_beside_its_subject(test: str) -> None:
    assert subjects(test), f"src/ingot has no module that tests/unit/{test} is about"


@pytest.mark.parametrize("module", modules())
def test_a_module_is_named_by_a_test(module: str) -> None:
    package = module.removesuffix("/__init__")
    named = module in named_by_tests() or package in named_by_tests()
    assert named != (module in TESTED_ELSEWHERE), module


@pytest.mark.parametrize(("module", "test"), TESTED_ELSEWHERE.items())
def test_the_list_of_modules_tested_elsewhere_is_up_to_date(module: str, test: str) -> None:
    assert module in modules()
    assert (ROOT / "tests" / test).is_file()
