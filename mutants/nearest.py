"""The tests nearest to a module or a Rust file, as paths below the root, nearest first."""

import re
from functools import cache
from pathlib import Path

from tests.architecture.test_tree import ROOT, SOURCE, TESTED_ELSEWHERE, UNIT, subjects, unit_tests

__all__ = ["nearest_tests", "nearest_tests_of_rust"]

_CHUNKS = (
    "tests/unit/blosc",
    "tests/golden/test_blosc_chunks.py",
    "tests/golden/test_blosc2_chunks.py",
)
_ARRAYS = (
    "tests/unit/engine",
    "tests/parity/test_engine.py",
    "tests/unit/formats/bcolz/test_array.py",
    "tests/unit/formats/bcolz/test_format.py",
)
_DEVICE = ("tests/parity/test_device_plans.py", "tests/unit/engine/test_device.py")
_KERNEL = ("tests/unit/test_native.py", "tests/unit/test_native_layout.py")
_RUST = {
    "array": _ARRAYS,
    "array/addresses": ("tests/unit/formats/test_addresses.py", *_ARRAYS),
    "array/chunk_file": ("tests/unit/formats/bcolz", "tests/parity/test_bcolz.py"),
    "array/comparison": ("tests/parity/test_rows.py", "tests/unit/containers/test_table.py"),
    "array/overwrite": ("tests/unit/engine", "tests/property/test_overwrite.py"),
    "array/rows": ("tests/parity/test_rows.py", "tests/unit/containers/test_table.py"),
    "array/runs": ("tests/unit/engine/test_flat.py", "tests/unit/formats/bloscpack"),
    "array/search": ("tests/parity/test_rows.py", "tests/unit/containers/test_table.py"),
    "array/shards": (
        "tests/unit/formats/zarr/test_shards.py",
        "tests/parity/test_shards.py",
        "tests/unit/formats/zarr/test_v3_sharding.py",
    ),
    "array/trailer": (
        "tests/unit/formats/test_trailer.py",
        "tests/unit/formats/bcolz",
        "tests/parity/test_bcolz.py",
    ),
    "array/zones": (
        "tests/parity/test_rows.py",
        "tests/unit/query/test_pruning.py",
        "tests/unit/formats/bcolz/test_table.py",
        "tests/unit/formats/bcolz/test_chunk_file.py",
    ),
    "checksum": (
        "tests/unit/codecs/test_checksums.py",
        "tests/unit/formats/bloscpack",
        "tests/unit/formats/test_trailer.py",
    ),
    "chunk": _CHUNKS,
    "device": _DEVICE,
    "files": ("tests/unit/stores/local", "tests/unit/stores/test_versions.py"),
    "files/ranges": ("tests/unit/stores/local/test_open_values.py", *_DEVICE[1:]),
    "files/verified": (
        "tests/unit/engine/test_flat.py",
        "tests/unit/engine/test_parts.py",
        "tests/parity/test_zarr3.py",
    ),
    "fork": ("tests/unit/containers/test_handle.py",),
    "interrupt": ("tests/unit/blosc/test_chunk_interrupt.py", "tests/unit/test_signals.py"),
    "memory": ("tests/unit/engine/test_sparse.py", *_CHUNKS),
    "pack": ("tests/unit/test_pack.py", "tests/unit/cli/test_pack.py"),
    "python": (*_KERNEL, "tests/unit/blosc", "tests/unit/engine"),
    "python/commit": (*_KERNEL, "tests/unit/stores/local"),
    "python/device": _DEVICE,
    "python/ranges": ("tests/unit/stores/local/test_open_values.py", *_DEVICE[1:]),
    "python/version_probe": (*_KERNEL, "tests/unit/stores/local"),
}
"""The tests of Rust files and folders below native/src; the longest name applies."""


def nearest_tests(path: str) -> list[str]:
    """Return the tests of a module, which is given by its path below the root.

    They are its own examples, the tests that mirror it, the tests that `TESTED_ELSEWHERE` names,
    and the unit tests that import it. Where no test mirrors it, the unit tests of its folder
    follow, and all other tests that import it.

    >>> nearest_tests("src/ingot/grid.py")[:2]
    ['src/ingot/grid.py', 'tests/unit/test_grid.py']
    >>> nearest_tests("src/ingot/engine/plan.py")[1]
    'tests/parity/test_engine.py'
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


def nearest_tests_of_rust(path: str) -> tuple[str, list[str]]:
    """Return the native module whose tests are nearest to a Rust file, and the tests in Python.

    Files of a folder within a room have their native tests in common.

    >>> nearest_tests_of_rust("native/src/array/trailer.rs")[1][0]
    'tests/unit/formats/test_trailer.py'
    >>> nearest_tests_of_rust("native/src/chunk/codecs/mod.rs")
    ('chunk::codecs::', ['tests/unit/blosc', 'tests/golden/test_blosc_chunks.py', \
'tests/golden/test_blosc2_chunks.py'])
    """
    name = path.removeprefix("native/src/").removesuffix(".rs").removesuffix("/mod")
    parts = name.split("/")
    places = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    tests = next((_RUST[place] for place in places if place in _RUST), _KERNEL)
    module = parts[:-1] if len(parts) > 2 else parts
    return "".join(f"{part}::" for part in module), list(tests)


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
