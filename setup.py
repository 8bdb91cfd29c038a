"""The build of Ingot: everything static is in pyproject.toml, the native kernel is decided here.

``INGOT_NATIVE=auto`` (the default) compiles the kernel when cargo and a C compiler are there, and
otherwise, or when that fails, leaves it out: Ingot then runs on its Python kernel. ``require``
makes every failure an error. ``off`` never compiles. What happened and why is left beside the
modules in ``_build.json``, where ``ingot doctor`` finds it.
"""

import json
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools_rust import Binding, RustExtension, build_rust

SOURCES = Path("src", "ingot")
MANIFEST = Path("native", "Cargo.toml")


def read_mode() -> str:
    """Return what the environment asks for."""
    mode = os.environ.get("INGOT_NATIVE") or "auto"
    if mode not in ("auto", "require", "off"):
        sys.exit(f"INGOT_NATIVE is {mode!r}; it must be 'auto', 'require' or 'off'")
    return mode


def find_obstacle(mode: str) -> str | None:
    """Say what makes it pointless to start compiling, if anything does."""
    if mode == "off":
        return "INGOT_NATIVE=off"
    if not MANIFEST.is_file():
        return f"{MANIFEST.as_posix()} is missing"
    if shutil.which(os.environ.get("CARGO") or "cargo") is None:
        return "cargo was not found when Ingot was installed"
    # On Windows the compiler is found through the registry, not the path; cargo looks itself.
    compilers = shlex.split(os.environ.get("CC", ""))[:1] or ["cc", "gcc", "clang"]
    if os.name != "nt" and not any(map(shutil.which, compilers)):
        return "no C compiler was found when Ingot was installed"
    return None


def discard_kernel(folder: Path) -> None:
    """Make sure that no library of an earlier build survives this one."""
    for stale in [*folder.glob("_native*.so"), *folder.glob("_native*.pyd")]:
        stale.unlink()


def record(folder: Path, *, native: bool, attempted: bool, reason: str) -> None:
    """Leave the outcome beside the modules."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = {"mode": MODE, "native": native, "attempted": attempted, "reason": reason}
    (folder / "_build.json").write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")


def summarize(error: Exception) -> str:
    """Return the line of a failed build that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("error")]
    first = next(iter(telling or lines), type(error).__name__)
    return f"building the native kernel failed: {first[:300]}"


class BuildPython(build_py):
    """Copies the modules, and records why there is no kernel when none will be compiled."""

    def run(self) -> None:
        super().run()
        if OBSTACLE is not None:
            folder = SOURCES if self.editable_mode else Path(self.build_lib, "ingot")
            discard_kernel(folder)
            record(folder, native=False, attempted=False, reason=OBSTACLE)


class Wheel(bdist_wheel):
    """Says that one library serves Python 3.11 and everything later."""

    # Not by setup(options=…): an editable install reinitialises the command and forgets them.
    def initialize_options(self) -> None:
        super().initialize_options()
        if not sysconfig.get_config_var("Py_GIL_DISABLED"):
            self.py_limited_api = "cp311"


class BuildKernel(build_rust):
    """Compiles the kernel, and records whether that worked."""

    def run(self) -> None:
        build_lib = self.get_finalized_command("build_py").build_lib
        folder = SOURCES if self.inplace else Path(build_lib, "ingot")
        discard_kernel(folder)
        # The command must exist for its limited API to be found, also in an editable install.
        self.distribution.get_command_obj("bdist_wheel")
        try:
            super().run()
        # Whatever goes wrong in here, a package without the kernel still works.
        except Exception as error:
            if MODE == "require":
                raise
            reason = summarize(error)
            line = "=" * 80
            print(f"{line}\n{error}\n{line}\nIngot: {reason}", file=sys.stderr)
            print(f"Ingot: installed WITHOUT its native kernel\n{line}", file=sys.stderr)
            record(folder, native=False, attempted=True, reason=reason)
        else:
            record(folder, native=True, attempted=True, reason="")


MODE = read_mode()
OBSTACLE = find_obstacle(MODE)
if OBSTACLE is not None and MODE != "off":
    if MODE == "require":
        sys.exit(f"INGOT_NATIVE=require: {OBSTACLE}")
    print(f"Ingot: installing without the native kernel: {OBSTACLE}", file=sys.stderr)

KERNEL = RustExtension(
    "ingot._native",
    path=str(MANIFEST),
    binding=Binding.PyO3,
    # An editable install is measured and shipped like any other: always the release profile.
    debug=False,
    # Kept for the record and shown when the build fails.
    quiet=True,
    cargo_manifest_args=["--locked"],
)

setup(
    rust_extensions=[KERNEL] if OBSTACLE is None else [],
    cmdclass={"bdist_wheel": Wheel, "build_py": BuildPython, "build_rust": BuildKernel},
)
