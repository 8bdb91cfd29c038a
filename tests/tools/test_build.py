"""The decisions of setup.py, with setuptools and setuptools-rust replaced by stand-ins."""

import json
import runpy
import shutil
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Command:
    """Stands for any command of setuptools."""

    editable_mode = False
    inplace = False
    build_lib = "build/lib"
    py_limited_api = False
    failure: Exception | None = None

    def __init__(self):
        self.distribution = types.SimpleNamespace(get_command_obj=lambda name: None)

    def get_finalized_command(self, name):
        return self

    def initialize_options(self):
        self.py_limited_api = False

    def run(self):
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def build(monkeypatch, tmp_path):
    """Runs setup.py in an empty checkout; returns what it hands to setuptools."""
    handed = {}
    rust = {"Binding": types.SimpleNamespace(PyO3="PyO3"), "build_rust": Command}
    stand_ins = {
        "setuptools": {"setup": handed.update},
        "setuptools.command": {},
        "setuptools.command.build_py": {"build_py": Command},
        "setuptools.command.bdist_wheel": {"bdist_wheel": Command},
        "setuptools_rust": {**rust, "RustExtension": lambda name, **options: (name, options)},
    }
    for name, content in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INGOT_NATIVE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CARGO", raising=False)
    Path("native").mkdir()
    Path("native/Cargo.toml").touch()
    Path("src/ingot").mkdir(parents=True)

    def run(mode=None, tools=("cargo", "cc")):
        monkeypatch.setattr(shutil, "which", lambda name: name if name in tools else None)
        if mode is not None:
            monkeypatch.setenv("INGOT_NATIVE", mode)
        handed.clear()
        runpy.run_path(str(ROOT / "setup.py"))
        return handed

    return run


def read_record(folder="src/ingot"):
    return json.loads(Path(folder, "_build.json").read_text())


def compile_kernel(handed, failure=None, inplace=True):
    command = handed["cmdclass"]["build_rust"]()
    command.failure, command.inplace = failure, inplace
    command.run()


@pytest.mark.parametrize("mode", [None, "", "auto", "require"])
def test_kernel_is_compiled_when_the_tools_are_there(build, mode):
    ((name, options),) = build(mode)["rust_extensions"]
    assert name == "ingot._native"
    assert options["debug"] is False
    assert options["cargo_manifest_args"] == ["--locked"]
    assert Path(options["path"]).as_posix() == "native/Cargo.toml"


@pytest.mark.parametrize(
    ("tools", "reason"),
    [(("cc",), "cargo was not found"), (("cargo",), "no C compiler was found")],
)
def test_missing_tools(build, tools, reason, capsys):
    handed = build("auto", tools)
    assert handed["rust_extensions"] == []
    assert reason in capsys.readouterr().err
    with pytest.raises(SystemExit, match=f"INGOT_NATIVE=require: {reason}"):
        build("require", tools)


def test_missing_crate(build):
    Path("native/Cargo.toml").unlink()
    assert build("auto")["rust_extensions"] == []
    with pytest.raises(SystemExit, match=r"native/Cargo\.toml is missing"):
        build("require")


def test_named_compiler_is_the_one_looked_for(build, monkeypatch):
    monkeypatch.setenv("CC", "mycc -O2")
    assert build("auto", ("cargo", "cc"))["rust_extensions"] == []
    assert build("auto", ("cargo", "mycc"))["rust_extensions"] != []


def test_off_never_compiles(build):
    assert build("off")["rust_extensions"] == []


def test_unknown_mode_is_refused(build):
    with pytest.raises(SystemExit, match="INGOT_NATIVE is 'maybe'"):
        build("maybe")


@pytest.mark.parametrize(("editable", "folder"), [(True, "src/ingot"), (False, "build/lib/ingot")])
def test_installation_without_the_kernel_keeps_the_reason(build, editable, folder):
    stale = Path(folder, "_native.abi3.so")
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.touch()
    command = build("auto", ("cc",))["cmdclass"]["build_py"]()
    command.editable_mode = editable
    command.run()
    record = read_record(folder)
    assert (record["mode"], record["native"], record["attempted"]) == ("auto", False, False)
    assert record["reason"] == "cargo was not found when Ingot was installed"
    assert not stale.exists()


@pytest.mark.parametrize(("inplace", "folder"), [(True, "src/ingot"), (False, "build/lib/ingot")])
def test_compiled_kernel_is_recorded(build, inplace, folder):
    compile_kernel(build("auto"), inplace=inplace)
    record = read_record(folder)
    assert (record["native"], record["reason"]) == (True, "")


def test_failed_build_falls_back_loudly_and_keeps_the_reason(build, capsys):
    stale = Path("src/ingot/_native.abi3.so")
    stale.touch()
    text = "`cargo rustc` failed with code 101\n  Compiling\nerror: no such crate\nerror: aborting"
    compile_kernel(build("auto"), RuntimeError(text))
    record = read_record()
    assert (record["native"], record["attempted"]) == (False, True)
    assert record["reason"] == "building the native kernel failed: error: no such crate"
    assert not stale.exists()
    printed = capsys.readouterr().err
    assert text in printed
    assert "WITHOUT its native kernel" in printed


def test_failed_build_is_an_error_when_required(build):
    with pytest.raises(RuntimeError, match="no such crate"):
        compile_kernel(build("require"), RuntimeError("error: no such crate"))


@pytest.mark.parametrize("gil_disabled", [0, 1])
def test_wheel_serves_all_later_pythons_that_have_a_stable_interface(
    build, monkeypatch, gil_disabled
):
    wheel = build("auto")["cmdclass"]["bdist_wheel"]()
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: gil_disabled)
    wheel.initialize_options()
    assert wheel.py_limited_api == (False if gil_disabled else "cp311")
