"""Mutants are tried out against the nearest tests, in a copy of the checkout."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutants import __main__ as command
from mutants.nearest import nearest_tests
from mutants.trial import Failure, Mutant, copy_of, difference

MODULE = "def larger(a, b):\n    return a if a > b else b\n"
TEST = "from small import larger\n\n\ndef test_larger():\n    assert larger(1, 2) == 2\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/small.py").write_text(MODULE)
    (tmp_path / "test_small.py").write_text(TEST)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["slow"]\n')
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "ignored.py").write_text("")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def mutant(old: str, new: str) -> Mutant:
    return Mutant("src/small.py", 2, 11, "Replace", MODULE.replace(old, new))


def test_mutants_are_caught_or_survive_and_leave_nothing(checkout: Path) -> None:
    with copy_of(checkout, sys.executable) as copy:
        assert not (copy.root / "ignored.py").exists()
        limit = copy.baseline(["test_small.py"])
        assert limit >= 20
        caught = copy.try_out(mutant("a > b", "a < b"), ["test_small.py"], limit)
        assert caught.caught == "test_small.py::test_larger"
        same = mutant("a > b", "a >= b")
        assert copy.try_out(same, ["test_small.py"], limit).caught is None
        endless = mutant("    return", "    while True: pass\n    return")
        assert copy.try_out(endless, ["test_small.py"], 3).caught == "the time limit"
        broken = mutant("def", "deaf")
        assert copy.try_out(broken, ["test_small.py"], limit).caught == "test_small.py"
        assert (copy.root / "src/small.py").read_text() == MODULE
    assert not copy.root.exists()
    assert (checkout / "src/small.py").read_text() == MODULE
    assert difference(same, MODULE) == [
        "-    return a if a > b else b",
        "+    return a if a >= b else b",
    ]


def test_tests_must_pass_without_a_mutant(checkout: Path) -> None:
    (checkout / "test_small.py").write_text(TEST.replace("== 2", "== 3"))
    with (
        copy_of(checkout, sys.executable) as copy,
        pytest.raises(Failure, match="fail without a mutant"),
    ):
        copy.baseline(["test_small.py"])


def test_the_nearest_tests_come_first() -> None:
    assert nearest_tests("src/ingot/grid.py")[:2] == [
        "src/ingot/grid.py",
        "tests/unit/test_grid.py",
    ]
    # No test has its name: the tests of its folder stand for it.
    assert "tests/unit/stores/local/test_store.py" in nearest_tests(
        "src/ingot/stores/local/commit.py"
    )
    assert nearest_tests("src/ingot/engine/plan.py")[1] == "tests/parity/test_engine.py"


def test_paths_are_files_or_folders_of_the_code() -> None:
    assert command.files_of(["src/ingot/grid.py"]) == ["src/ingot/grid.py"]
    assert "src/ingot/query/parse.py" in command.files_of(["src/ingot/query"])
    assert command.files_of(["native/src/chunk/header.rs"]) == ["native/src/chunk/header.rs"]
    assert set(command.SAMPLE) == set(command.files_of(command.SAMPLE))
    for wrong in ("tests", "src/ingot/nowhere.py", "docs"):
        with pytest.raises(Failure):
            command.files_of([wrong])


def test_the_score_is_the_share_of_those_caught() -> None:
    assert command.score("all", Counter(caught=9, survived=1)).endswith(
        "9 of 10 mutants caught, 90 %"
    )
    assert command.score("all", Counter()) == "all: 0 of 0 mutants caught"
