"""Mutants are tried out against the nearest tests, in a copy of the checkout."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutants import __main__ as command
from mutants import rust
from mutants.nearest import nearest_tests, nearest_tests_of_rust
from mutants.trial import Copy, Failure, Mutant, copy_of, difference
from tests.architecture.test_tree import ROOT

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
        assert copy.try_out(endless, ["test_small.py"], 1).caught == "the time limit"
        broken = mutant("def", "deaf")
        assert copy.try_out(broken, ["test_small.py"], limit).caught == "test_small.py"
        assert (copy.root / "src/small.py").read_text() == MODULE
    assert not copy.root.exists()
    assert (checkout / "src/small.py").read_text() == MODULE
    assert difference(same, MODULE) == [
        "-    return a if a > b else b",
        "+    return a if a >= b else b",
    ]


def test_a_mutant_has_little_memory_and_little_of_the_processor(tmp_path: Path) -> None:
    copy = Copy(tmp_path, sys.executable)
    limits = "resource.RLIMIT_AS, resource.RLIMIT_CPU"
    code = f"import resource; print(*map(resource.getrlimit, ({limits})))"
    status, output = copy.run([sys.executable, "-c", code], 7.5)
    assert status == 0
    assert output == f"{(8 << 30, 8 << 30)} {(8, 8)}\n"
    assert copy.run(["sh", "-c", "kill -KILL $$"], 1) == (None, "")
    assert copy.run(["sh", "-c", "echo $WORD; exit 3"], WORD="x") == (3, "x\n")


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
    for sample in (command.SAMPLE, command.RUST_SAMPLE):
        assert sorted(set(sample)) == sorted(command.files_of(sample))
    for wrong in ("tests", "src/ingot/nowhere.py", "docs"):
        with pytest.raises(Failure):
            command.files_of([wrong])


def test_the_score_is_the_share_of_those_caught() -> None:
    assert command.score("all", Counter(caught=9, survived=1)).endswith(
        "9 of 10 mutants caught, 90 %"
    )
    assert command.score("all", Counter()) == "all: 0 of 0 mutants caught"


CRATE = """fn larger(a: u8, b: u8) -> u8 {
    if a > b { a } else { b }
}
"""


def _cargo(folder: Path, script: str) -> str:
    """Put a program named cargo into a folder; return the path with it in front."""
    folder.mkdir()
    (folder / "cargo").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "cargo").chmod(0o755)
    return os.pathsep.join((str(folder), os.environ["PATH"]))


def _span(line: int, start: int, stop_line: int, stop: int) -> dict[str, dict[str, int]]:
    return {
        "start": {"line": line, "column": start},
        "end": {"line": stop_line, "column": stop},
    }


def test_mutants_of_rust_are_spans_with_another_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "native/src").mkdir(parents=True)
    (tmp_path / "native/src/small.rs").write_text(CRATE)
    listed = [
        {"name": "src/small.rs:2:10: replace > with ==", "span": _span(2, 10, 2, 11)},
        {"name": "src/small.rs:2:10: replace > with <", "span": _span(2, 10, 2, 11)},
        {"name": "src/small.rs:1:32: replace larger with 1", "span": _span(1, 32, 3, 1)},
    ]
    for each, text in zip(listed, ("==", "<", "1 "), strict=True):
        each["replacement"] = text
    (tmp_path / "listed").write_text(json.dumps(listed))
    called = tmp_path / "called"
    script = f'echo "$@" > {called}; cat {tmp_path / "listed"}'
    monkeypatch.setenv("PATH", _cargo(tmp_path / "bin", script))
    file = "native/src/small.rs"
    found = rust.mutants_of(tmp_path, file)
    assert called.read_text() == "mutants --dir native --list --json --file src/small.rs\n"
    assert found == [
        Mutant(file, 2, 10, "replace > with ==", CRATE.replace("a > b", "a == b")),
        Mutant(file, 2, 10, "replace > with <", CRATE.replace("a > b", "a < b")),
        Mutant(file, 1, 32, "replace larger with 1", "fn larger(a: u8, b: u8) -> u8 {1 }\n"),
    ]
    samples = {tuple(rust.shuffled(found, seed)) for seed in range(20)}
    # One of two mutants of a place, and two orders.
    assert {len(sample) for sample in samples} == {2}
    assert len(samples) == 4
    assert list(rust.shuffled(found, 3)) == list(rust.shuffled(found, 3))
    assert list(rust.shuffled([], 3)) == []
    monkeypatch.setenv("PATH", _cargo(tmp_path / "bad", "exit 101"))
    with pytest.raises(Failure, match="status 101"):
        rust.mutants_of(tmp_path, file)


NATIVE = """
[ -e fail-the-tests ] && [ $1 = test ] && exit 101
grep -q "a > b\\|a >= b\\|a < b" native/src/small.rs || { [ $1 = build ] && exit 101; }
mkdir -p $CARGO_TARGET_DIR/debug
[ $1 = build ] && cp native/src/small.rs $CARGO_TARGET_DIR/debug/lib_native.so
[ $1 = test ] && grep -q "a >= b" native/src/small.rs || exit 0
echo "---- small::larger stdout ----"
exit 101
"""
KERNEL_TEST = """from pathlib import Path


def test_larger():
    assert "a > b" in Path("src/ingot/_native.abi3.so").read_text()
"""


def test_a_rust_mutant_is_built_and_tried_out_natively_and_in_python(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "native/src/small.rs": CRATE,
        "src/ingot/_native.abi3.so": "",
        "tests/unit/test_native.py": KERNEL_TEST,
        "tests/unit/test_native_layout.py": "",
    }.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    monkeypatch.setenv("PATH", _cargo(tmp_path / "bin", NATIVE))
    file = "native/src/small.rs"

    def changed(text: str) -> Mutant:
        return Mutant(file, 2, 10, "replace", CRATE.replace("a > b", text))

    with copy_of(checkout, sys.executable) as copy:
        kernel = rust.Kernel(copy, copy.root / "target", {})
        kernel.baseline(file)
        assert kernel.try_out(changed("a ? b")) == (False, None)
        assert kernel.try_out(changed("a >= b")) == (True, "small::larger")
        caught = "tests/unit/test_native.py::test_larger"
        assert kernel.try_out(changed("a < b")) == (True, caught)
        assert kernel.try_out(changed("a > b /* the same */")) == (True, None)
        assert (copy.root / file).read_text() == CRATE
        (copy.root / "fail-the-tests").touch()
        with pytest.raises(Failure, match="fail without a mutant"):
            kernel.baseline(file)
        (copy.root / file).write_text("")
        with pytest.raises(Failure, match="cannot be built"):
            kernel.baseline(file)


def test_every_rust_file_has_tests_in_python() -> None:
    for path in (ROOT / "native/src").rglob("*.rs"):
        _, tests = nearest_tests_of_rust(path.relative_to(ROOT).as_posix())
        assert tests
        assert all((ROOT / test).exists() for test in tests), path
    # The native tests of files of a folder within a room are beside them.
    assert (
        nearest_tests_of_rust("native/src/chunk/codecs/lz4/ssse3.rs")[0] == "chunk::codecs::lz4::"
    )
    assert nearest_tests_of_rust("native/src/array/zones.rs")[0] == "array::zones::"
    assert nearest_tests_of_rust("native/src/pack.rs")[0] == "pack::"
    assert nearest_tests_of_rust("native/src/array/grid.rs")[1][0] == "tests/unit/engine"
