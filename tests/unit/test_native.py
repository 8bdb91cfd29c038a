import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import types
import warnings
from importlib.machinery import ModuleSpec

import pytest

from ingot import native
from ingot.errors import KernelError
from tests.kernels import load, needs_native


@pytest.fixture
def absent(monkeypatch, tmp_path):
    """A package without its native kernel; returns a function that leaves a build record."""
    record = tmp_path / "_build.json"
    monkeypatch.setitem(native._MODULES, "native", "ingot._nowhere")
    monkeypatch.setattr(native, "_BUILD_RECORD", record)

    def leave(**content):
        record.write_text(json.dumps(content))
        return record

    return leave


@pytest.fixture
def built(monkeypatch):
    """Pretends that a native kernel is built; returns a function that says with which ABI."""

    def build(**attributes):
        module = types.ModuleType("ingot_pretended_kernel")
        module.__spec__ = ModuleSpec("ingot_pretended_kernel", loader=None)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(native._MODULES, "native", module.__name__)
        return module

    return build


def test_native_is_taken_when_built(built):
    module = built(ABI=native.ABI)
    choice = native.choose(None)
    assert (choice.name, choice.module, choice.reason) == ("native", module, "it is built")


def test_python_is_taken_when_asked_for_though_native_is_built(built):
    built(ABI=native.ABI)
    choice = native.choose("python")
    assert choice.name == "python"
    assert choice.module is importlib.import_module("ingot.blosc.decode")
    assert "INGOT_KERNEL=python" in choice.reason


@pytest.mark.parametrize("preference", [None, "native"])
@pytest.mark.parametrize("attributes", [{"ABI": native.ABI + 1}, {"ABI": str(native.ABI)}, {}])
def test_another_abi_is_an_error_and_no_fallback(built, preference, attributes):
    built(**attributes)
    with pytest.raises(KernelError, match=rf"ABI .*calls ABI {native.ABI}.*reinstall"):
        native.choose(preference)


@pytest.mark.parametrize("preference", [None, "native"])
def test_library_that_cannot_be_loaded_is_an_error_and_no_fallback(
    monkeypatch, tmp_path, preference
):
    (tmp_path / "ingot_broken_kernel.py").write_text("raise ImportError('wrong ELF class')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(native._MODULES, "native", "ingot_broken_kernel")
    with pytest.raises(KernelError, match="cannot be loaded: wrong ELF class"):
        native.choose(preference)


def test_asking_for_an_absent_kernel_gives_the_reason_of_the_build(absent):
    absent(mode="auto", native=False, attempted=False, reason="no C compiler was found")
    with pytest.raises(KernelError, match=r"no C compiler was found; .*INGOT_NATIVE=require"):
        native.choose("native")


def test_fallback_gives_the_reason_of_the_build_in_silence(absent):
    absent(mode="auto", native=False, attempted=False, reason="cargo was not found")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice = native.choose(None)
    assert choice.name == "python"
    assert choice.reason == "the native kernel is not built: cargo was not found"


def test_fallback_after_a_failed_build_is_loud(absent):
    absent(mode="auto", native=False, attempted=True, reason="error[E0308]: mismatched types")
    with pytest.warns(native.KernelWarning, match="mismatched types"):
        assert native.choose(None).name == "python"


def test_library_removed_after_the_build_is_loud(absent):
    absent(mode="auto", native=True, attempted=True, reason="")
    with pytest.warns(native.KernelWarning, match="removed since"):
        assert native.choose(None).name == "python"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"reason": 5}', b"\xff\xfe", b"nonsense"])
def test_unreadable_record_does_not_stop_the_fallback(absent, content):
    absent().write_bytes(content)
    choice = native.choose(None)
    assert choice.name == "python"
    assert choice.reason.startswith("the native kernel is not built: the build")


def test_sources_that_were_never_built_say_so(absent):
    assert "never built" in native.choose(None).reason


def test_unknown_preference_is_refused():
    with pytest.raises(KernelError, match="INGOT_KERNEL is 'rust'"):
        native.choose("rust")


def run_python(code, **variables):
    inherited = {name: value for name, value in os.environ.items() if name != "INGOT_KERNEL"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env={**inherited, **variables}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_environment_chooses_once_and_for_the_public_functions_too():
    code = "import ingot, ingot.native as n; n.kernel(); print(n.choice().name, '|', n.reason())"
    assert run_python(code, INGOT_KERNEL="python") == "python | INGOT_KERNEL=python asks for it"


def test_empty_variable_is_no_preference():
    code = "from ingot import native; print(native.reason())"
    assert run_python(code, INGOT_KERNEL="") == run_python(code)


def test_import_stays_light():
    heavy = {"numcodecs", "typer", "rich", "click", "zarr", "ingot.blosc.decode"}
    code = "import sys, ingot; print(*sys.modules)"
    assert heavy.isdisjoint(run_python(code).split())


CONTRACT = ["compress", "decompress", "decompress_slice", "describe"]


@pytest.mark.parametrize("kernel", ["native", "python"])
@pytest.mark.parametrize("name", CONTRACT)
def test_both_kernels_offer_the_functions_of_the_contract(kernel, name):
    if kernel == "native" and importlib.util.find_spec("ingot._native") is None:
        pytest.skip("the native kernel is not built")
    module = native.choose(kernel).module
    expected = list(inspect.signature(getattr(native.Kernel, name)).parameters.values())[1:]
    offered = inspect.signature(getattr(module, name)).parameters
    assert list(offered) == [parameter.name for parameter in expected]
    for parameter in expected:
        if parameter.default is not inspect.Parameter.empty:
            # Compiled functions show a default that is a named constant as an ellipsis.
            assert offered[parameter.name].default in (parameter.default, ...)


@pytest.mark.parametrize("kernel", ["native", "python"])
def test_each_kernel_describes_itself(kernel):
    if kernel == "native" and importlib.util.find_spec("ingot._native") is None:
        pytest.skip("the native kernel is not built")
    description = native.choose(kernel).module.describe()
    assert set(description) == {"kernel", "simd", "codecs"}
    assert description["kernel"] == kernel
    assert description["simd"] in ("avx2", "neon", "none")
    assert sorted(description["codecs"]) == ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"]


@needs_native
def test_room_is_reserved_and_no_byte_is_added(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        for reserve in (native.reserve, load("native").reserve):
            reserve(file.fileno(), 0, 1 << 20)
            assert os.fstat(file.fileno()).st_size == 0
            # Where nothing can be reserved, nothing is: the write says what is wrong.
            reserve(file.fileno(), 0, 1 << 62)
    with pytest.raises(ValueError, match="a descriptor is negative"):
        load("native").reserve(-1, 0, 1)
