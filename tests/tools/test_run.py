import ast
import importlib.machinery
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The script as a module, at the root of a small checkout of its own."""
    loader = importlib.machinery.SourceFileLoader("ingot_run_script", str(ROOT / "run"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "MANIFEST", tmp_path / "native" / "Cargo.toml")
    for name in ("pyproject.toml", "setup.py", "native/Cargo.toml", "native/src/lib.rs"):
        write(tmp_path / name)
    write(tmp_path / "src/ingot/errors.py")
    return module


@pytest.fixture
def recorded(run, monkeypatch):
    """Environments that note what they would do; returns the notes."""
    notes = []
    environment = run.Environment

    def create(self):
        self.folder.mkdir(exist_ok=True)
        notes.append("create")

    monkeypatch.setattr(environment, "works", lambda self: self.folder.exists())
    monkeypatch.setattr(environment, "create", create)
    monkeypatch.setattr(environment, "install", lambda self, extras: notes.append(extras))
    return notes


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def environment(run, native="auto", editable=True):
    return run.Environment(".venv", native, editable)


class TestScript:
    def test_old_pythons_can_read_it(self):
        ast.parse((ROOT / "run").read_text(encoding="utf-8"), feature_version=(3, 6))

    def test_it_can_be_executed(self):
        assert (ROOT / "run").stat().st_mode & stat.S_IXUSR
        assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR

    @pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--version"]])
    def test_wrong_use_is_status_2(self, arguments):
        result = subprocess.run(
            [sys.executable, str(ROOT / "run"), *arguments], capture_output=True, text=True
        )
        assert result.returncode == 2
        assert "./run demo" in result.stderr

    def test_help_names_every_job(self, run, capsys):
        assert run.main(["--help"]) == 0
        printed = capsys.readouterr().out
        assert all(f"./run {job}" in printed for job in run.JOBS)
        jobs = ["demo", "test", "check", "docs", "bench", "fuzz", "attack", "mutate"]
        assert list(run.JOBS) == jobs

    def test_new_python_stays(self, run, monkeypatch):
        monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("handed over"))
        run.hand_over()

    def test_old_python_hands_over_to_a_newer_one_that_works(self, run, monkeypatch):
        monkeypatch.setattr(sys, "version_info", (3, 8, 18))
        monkeypatch.setattr(sys, "argv", ["./run", "test"])
        found = {"python3.13": "/shim/python3.13", "python3.12": "/bin/python3.12"}
        monkeypatch.setattr(shutil, "which", found.get)
        monkeypatch.setattr(
            subprocess, "call", lambda command, **_: 127 if "shim" in command[0] else 0
        )
        calls = []
        monkeypatch.setattr(os, "execv", lambda path, arguments: calls.append((path, arguments)))
        with pytest.raises(SystemExit):
            run.hand_over()
        assert calls[0] == ("/bin/python3.12", ["/bin/python3.12", "./run", "test"])

    def test_old_python_alone_says_what_is_needed(self, run, monkeypatch):
        monkeypatch.setattr(sys, "version_info", (3, 8, 18))
        monkeypatch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(SystemExit, match=r"Python 3\.11 or later is needed"):
            run.hand_over()


class TestEnvironment:
    def test_second_run_installs_nothing(self, run, recorded):
        environment(run).prepare(["test"])
        environment(run).prepare(["test"])
        environment(run).prepare([])
        assert recorded == ["create", ["test"]]

    def test_missing_extras_are_added_to_those_there(self, run, recorded):
        environment(run).prepare(["test"])
        environment(run).prepare(["check"])
        environment(run).prepare(["check", "test"])
        assert recorded == ["create", ["test"], ["check", "test"]]

    @pytest.mark.parametrize(
        "changed",
        [
            "pyproject.toml",
            "setup.py",
            "native/Cargo.toml",
            "native/Cargo.lock",
            "native/build.rs",
            "native/src/lib.rs",
            "native/src/filters/shuffle.rs",
        ],
    )
    def test_what_the_build_reads_makes_it_install_again(self, run, recorded, tmp_path, changed):
        environment(run).prepare(["test"])
        write(tmp_path / changed, "changed")
        environment(run).prepare([])
        assert recorded == ["create", ["test"], ["test"]]

    def test_modules_matter_only_to_a_copied_installation(self, run, recorded, tmp_path):
        environment(run).prepare([])
        editable, copied = environment(run).digest(), environment(run, editable=False).digest()
        write(tmp_path / "src/ingot/errors.py", "changed")
        assert environment(run).digest() == editable
        assert environment(run, editable=False).digest() != copied

    def test_native_sources_do_not_matter_when_native_is_off(self, run, tmp_path):
        before = environment(run, native="off").digest()
        write(tmp_path / "native/src/lib.rs", "changed")
        assert environment(run, native="off").digest() == before

    def test_another_mode_makes_it_install_again(self, run, recorded):
        environment(run, native="auto").prepare([])
        environment(run, native="require").prepare([])
        assert recorded == ["create", [], []]

    def test_cargo_that_appears_makes_it_install_again(self, run, recorded, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda name: None)
        environment(run).prepare([])
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        environment(run).prepare([])
        assert recorded == ["create", [], []]

    def test_failed_installation_is_tried_again(self, run, recorded, monkeypatch):
        def fail(self, extras):
            raise run.Failure("no network")

        environment(run).prepare([])
        installing = run.Environment.install
        monkeypatch.setattr(run.Environment, "install", fail)
        with pytest.raises(run.Failure):
            environment(run).prepare(["test"])
        monkeypatch.setattr(run.Environment, "install", installing)
        environment(run).prepare([])
        assert recorded == ["create", [], []]

    @pytest.mark.parametrize("stamp", ["", "[]", "{}", '{"digest": 1, "extras": "test"}'])
    def test_unreadable_stamp_means_nothing_is_known(self, run, recorded, stamp):
        environment(run).prepare(["test"])
        environment(run).stamp.write_text(stamp)
        environment(run).prepare([])
        assert recorded == ["create", ["test"], []]

    def test_environment_that_lost_its_interpreter_is_made_anew(self, run, recorded, monkeypatch):
        environment(run).prepare(["test"])
        monkeypatch.setattr(run.Environment, "works", lambda self: False)
        environment(run).prepare([])
        assert recorded == ["create", ["test"], "create", []]

    def test_folder_without_an_interpreter_does_not_work(self, run):
        assert not environment(run).works()

    def test_interpreter_that_fails_does_not_work(self, run):
        broken = environment(run)
        write(broken.python, "#!/bin/sh\nexit 3\n")
        broken.python.chmod(0o755)
        assert not broken.works()

    def test_python_without_ensurepip_says_what_to_install(self, run, monkeypatch):
        monkeypatch.setitem(sys.modules, "ensurepip", None)
        with pytest.raises(run.Failure, match="apt install python3-venv"):
            environment(run).create()


class TestCommands:
    def test_child_is_not_led_astray(self, run, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", "/elsewhere")
        monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
        monkeypatch.setenv("KEPT", "1")
        child = run.environ(INGOT_KERNEL="python")
        assert not {"PYTHONPATH", "VIRTUAL_ENV"} & set(child)
        assert (child["KEPT"], child["INGOT_KERNEL"]) == ("1", "python")

    def test_quiet_command_is_heard_only_when_it_fails(self, run, capsys):
        run.quietly([sys.executable, "-c", "print('all well')"])
        assert capsys.readouterr() == ("", "")
        with pytest.raises(run.Failure, match="status 3"):
            run.quietly([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])
        assert "the reason" in capsys.readouterr().err

    def test_failing_command_fails_the_job(self, run):
        with pytest.raises(run.Failure, match="status 4"):
            run.loudly([sys.executable, "-c", "raise SystemExit(4)"])

    @pytest.mark.parametrize(
        ("record", "built"),
        [({"native": True}, True), ({"native": False}, False), ([], False), (None, False)],
    )
    def test_build_record_says_whether_the_kernel_is_built(self, run, tmp_path, record, built):
        if record is not None:
            write(tmp_path / "src/ingot/_build.json", json.dumps(record))
        assert run.is_built() is built


@pytest.fixture
def steps(run, monkeypatch, tmp_path):
    """The steps of a job, noted instead of done, in a checkout with a built kernel."""
    notes = []
    kernels = {".venv": "native", ".venv-python": "python"}
    monkeypatch.delenv("CI", raising=False)
    write(tmp_path / "src/ingot/_build.json", '{"native": true}')
    write(tmp_path / "tests/golden/test_chunks.py")
    write(tmp_path / "tests/contracts/test_stores.py")
    monkeypatch.setattr(run.Environment, "prepare", lambda self, extras: None)
    monkeypatch.setattr(
        run.Environment,
        "doctor",
        lambda self: {"kernel": kernels[self.folder.name], "reason": "it is built"},
    )
    monkeypatch.setattr(
        run.Environment,
        "run",
        lambda self, *arguments, **variables: notes.append(
            " ".join([self.folder.name, *arguments[1:], *map("=".join, variables.items())])
        ),
    )
    monkeypatch.setattr(
        run, "cargo", lambda environment, *arguments: notes.append("cargo " + " ".join(arguments))
    )
    monkeypatch.setattr(run, "test_sanitized", lambda environment: notes.append("sanitized"))
    return notes


@pytest.fixture
def toolchain(run, monkeypatch, tmp_path):
    """A Rust toolchain made of files, and the calls of cargo with their variables."""
    calls = []
    answers = {"-vV": "rustc 1.95\nhost: some-host\n", "--print": f"{tmp_path}\n"}
    monkeypatch.setattr(subprocess, "check_output", lambda command, text: answers[command[1]])
    monkeypatch.setattr(
        run, "cargo", lambda environment, *arguments, **extra: calls.append((arguments, extra))
    )
    return calls


PYTEST = "pytest -q -n 2 --dist worksteal"
PYTHON = "INGOT_KERNEL=python INGOT_NATIVE=off"


class TestJobs:
    def test_test_runs_everything_the_largest_part_last(self, run, steps):
        assert run.main(["test"]) == 0
        assert steps == [
            "cargo test --quiet",
            f".venv {PYTEST} tests/golden tests/contracts {PYTHON}",
            f".venv {PYTEST}",
        ]

    @pytest.mark.parametrize("how", ["variable", "argument"])
    def test_test_installs_the_twin_when_asked_to(self, run, steps, monkeypatch, how):
        if how == "variable":
            monkeypatch.setenv("CI", "true")
        assert run.main(["test"] if how == "variable" else ["test", "--twin"]) == 0
        assert steps == [
            "cargo test --quiet",
            "sanitized",
            f".venv-python {PYTEST} --ignore=tests/crash {PYTHON}",
            f".venv {PYTEST}",
        ]

    def test_the_fast_tier_leaves_slow_tests_out(self, run, steps):
        assert run.main(["test", "--fast"]) == 0
        assert steps == [
            "cargo test --quiet",
            f".venv {PYTEST} -m not slow tests/golden tests/contracts {PYTHON}",
            f".venv {PYTEST} -m not slow",
        ]

    def test_the_sanitizer_runs_where_the_toolchain_has_it(self, run, toolchain, tmp_path, capsys):
        run.test_sanitized(None)
        assert not toolchain
        assert "left out" in capsys.readouterr().out
        write(tmp_path / "lib/rustlib/some-host/lib/librustc-stable_rt.asan.a")
        run.test_sanitized(None)
        ((arguments, extra),) = toolchain
        assert arguments[:2] == ("test", "--quiet")
        assert "some-host" in arguments
        assert extra == {
            "ASAN_OPTIONS": "allocator_may_return_null=1",
            "RUSTC_BOOTSTRAP": "1",
            "RUSTFLAGS": "-Zsanitizer=address",
        }

    def test_test_with_arguments_is_pytest_alone(self, run, steps):
        assert run.main(["test", "tests/unit", "-x"]) == 0
        assert steps == [".venv pytest -q -n 2 --dist worksteal tests/unit -x"]

    def test_test_leaves_the_workers_to_the_caller(self, run, steps):
        assert run.main(["test", "-n", "0"]) == 0
        assert steps == [".venv pytest -q -n 0"]

    def test_test_without_the_native_kernel_runs_once(self, run, steps, monkeypatch, tmp_path):
        write(tmp_path / "src/ingot/_build.json", '{"native": false}')
        report = {"kernel": "python", "reason": "cargo was not found"}
        monkeypatch.setattr(run.Environment, "doctor", lambda self: report)
        assert run.main(["test"]) == 0
        assert steps == [".venv pytest -q -n 2 --dist worksteal"]

    def test_twin_with_a_native_kernel_is_a_failure(self, run, steps, monkeypatch, capsys):
        report = {"kernel": "native", "reason": "it is built"}
        monkeypatch.setattr(run.Environment, "doctor", lambda self: report)
        assert run.main(["test", "--twin"]) == 1
        assert "INGOT_NATIVE=off" in capsys.readouterr().err

    def test_check_runs_all_checks_and_names_those_that_failed(
        self, run, steps, monkeypatch, capsys
    ):
        note = run.Environment.run

        def fail_types(self, *arguments, **variables):
            note(self, *arguments, **variables)
            if "mypy" in arguments:
                raise run.Failure("mypy ended with status 1")

        monkeypatch.setattr(run.Environment, "run", fail_types)
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        assert run.main(["check"]) == 1
        assert capsys.readouterr().err.endswith("./run: failed: types\n")
        assert steps == [
            ".venv ruff check .",
            ".venv ruff format --check .",
            ".venv mypy --strict src",
            ".venv pytest -q tests/architecture",
            ".venv mkdocs build --quiet --strict NO_MKDOCS_2_WARNING=1",
            "cargo fmt --check",
            "cargo clippy --quiet --all-targets -- --deny warnings",
        ]

    @pytest.mark.parametrize(("mode", "status"), [("auto", 0), ("require", 1)])
    def test_check_without_cargo(self, run, steps, monkeypatch, mode, status):
        monkeypatch.setenv("INGOT_NATIVE", mode)
        monkeypatch.setattr(shutil, "which", lambda name: None)
        assert run.main(["check"]) == status
        assert not [step for step in steps if step.startswith("cargo")]

    def test_docs_builds_the_site(self, run, steps):
        assert run.main(["docs"]) == 0
        assert steps == [".venv mkdocs build --quiet --strict NO_MKDOCS_2_WARNING=1"]

    def test_attack_runs_the_attacks_with_the_arguments(self, run, steps):
        assert run.main(["attack", "claims", "--minutes", "5"]) == 0
        assert steps == [".venv attacks claims --minutes 5"]

    def test_mutate_runs_in_an_environment_of_its_own(self, run, steps, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", "/usr/bin")
        assert run.main(["mutate", "src/ingot/grid.py", "--all"]) == 0
        python = run.Environment(".venv", "auto", editable=True).python
        assert steps == [
            f".venv-mutate mutants --python {python} src/ingot/grid.py --all PATH=/usr/bin"
        ]

    def test_mutants_of_rust_need_cargo(self, run, steps, monkeypatch, capsys):
        monkeypatch.setattr(run, "kernel_variables", lambda environment: {})
        monkeypatch.setattr(shutil, "which", lambda name: None)
        assert run.main(["mutate", "native/src/lib.rs"]) == 1
        assert "need cargo" in capsys.readouterr().err
        monkeypatch.setattr(shutil, "which", lambda name: name == "cargo" or None)

        def fail(command):
            raise run.Failure(f"`{command[0]} {command[1]}` ended with status 101")

        monkeypatch.setattr(run, "quietly", fail)
        assert run.main(["mutate", "native/src/lib.rs"]) == 1
        assert "cargo-mutants cannot be installed: `cargo install`" in capsys.readouterr().err
        assert steps == []
        monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
        monkeypatch.setenv("PATH", "/usr/bin")
        assert run.main(["mutate", "native/src/lib.rs"]) == 0
        assert steps[0].endswith("native/src/lib.rs PATH=/opt:/usr/bin")
        assert run.main(["mutate", "--rust"]) == 0
        assert steps[1].endswith("--rust PATH=/opt:/usr/bin")

    def test_fuzz_runs_every_fuzzer_with_the_arguments(self, run, steps, tmp_path):
        write(tmp_path / "tests/fuzz/fuzz_chunks.py")
        write(tmp_path / "tests/fuzz/fuzz_frames.py")
        write(tmp_path / "tests/fuzz/test_fuzz_chunks.py")
        assert run.main(["fuzz", "--minutes", "5"]) == 0
        assert steps == [
            ".venv tests.fuzz.fuzz_chunks --minutes 5",
            ".venv tests.fuzz.fuzz_frames --minutes 5",
        ]

    def test_bench_and_demo_pass_their_arguments_on(self, run, steps):
        assert run.main(["bench", "chunks"]) == 0
        assert run.main(["demo"]) == 0
        assert steps == [".venv benchmarks chunks", ".venv ingot demo"]


def test_continuous_integration_requires_the_native_kernel(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    write(tmp_path / "run", '#!/bin/sh\necho "$1 $CI $INGOT_NATIVE"\n')
    (tmp_path / "run").chmod(0o755)
    command = ["bash", str(tmp_path / ".ci" / "run")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["check true require", "test true require"]
