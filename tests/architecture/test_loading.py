"""What is loaded when: importing the package is free, and opening an array loads what arrays need.

Times would differ from run to run; the modules that a new process has loaded do not.
"""

import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

import ingot

# What opening an array must not load: (a pattern, why it can wait).
WAITING = (
    ("ingot.formats.bcolz.format*", "for datasets of bcolz"),
    ("ingot.formats.bcolz.row_shards", "for datasets of bcolz"),
    ("ingot.formats.zarr.v[01]", "for datasets of these versions"),
    ("ingot.formats.zarr.pickled", "for datasets of the first versions"),
    ("ingot.query*", "for tables"),
    ("ingot.containers.table", "for tables"),
    ("ingot.containers.view", "for tables"),
    ("ingot.containers.table_state", "for tables"),
    ("ingot.containers.create_table", "for tables"),
    ("ingot.interop*", "for other libraries"),
    ("ingot.containers.sharding", "for cutting a dataset into shards"),
    ("ingot.blosc.chunk", "the native kernel decodes chunks"),
    ("ingot.blosc.blocks", "the native kernel decodes chunks"),
    ("ingot.blosc.decode", "the native kernel decodes chunks"),
    ("ingot.codecs.foreign", "for the long tail of codecs"),
    ("ingot.codecs.bits", "for codecs that few files name"),
    ("ingot.codecs.numeric", "for codecs that few files name"),
    ("ingot.testing*", "for tests"),
    ("ingot.cli*", "for the command"),
    *((name, "heavy") for name in ("numcodecs*", "pandas", "pyarrow", "msgpack", "typer", "rich")),
    *((name, "heavy") for name in ("hashlib", "secrets", "random", "bz2", "gzip", "pathlib")),
    *((name, "heavy") for name in ("asyncio", "concurrent*", "tempfile", "urllib*", "inspect")),
)


def loaded(code: str) -> set[str]:
    """Return the modules that code has loaded in a new process, beside those of NumPy."""
    program = (
        "import sys, json, numpy\n"
        "before = set(sys.modules)\n"
        f"{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("INGOT_KERNEL", None)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def too_early(modules: set[str]) -> list[str]:
    """List the modules that could have waited, and for what."""
    return [
        f"{name}: {why}"
        for name in sorted(modules)
        for pattern, why in WAITING
        if fnmatchcase(name, pattern)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    values = np.arange(1000).reshape(10, 100)
    ingot.array(values, tmp_path / "zarr3", chunks=(5, 50))
    ingot.array(values, tmp_path / "zarr2", chunks=(5, 50), format="zarr2")
    ingot.table({"a": values[0]}, tmp_path / "table")
    return tmp_path


def test_importing_loads_next_to_nothing() -> None:
    assert loaded("import ingot") == {"ingot", "ingot._lazy"}


def test_importing_blosc_loads_next_to_nothing() -> None:
    assert loaded("import ingot.blosc as b") == {"ingot", "ingot._lazy", "ingot.blosc"}


@pytest.mark.parametrize(
    "code",
    [
        "import ingot.blosc as b; assert b.decompress(b.compress(b'spam')) == b'spam'",
        "import ingot; assert ingot.blosc.decompress(ingot.blosc.compress(b'spam')) == b'spam'",
        "from ingot import blosc; import ingot.blosc as b; assert b is blosc",
        "from ingot.blosc import LazyChunk as a; import ingot; assert a is ingot.blosc.LazyChunk",
        "import ingot.blosc.header as h; import ingot; assert ingot.blosc.header is h",
    ],
)
def test_blosc_is_a_module(code: str) -> None:
    loaded(code)


@pytest.mark.parametrize(
    "code",
    [
        "import ingot.formats.zarr.v2 as v2, ingot; v2.Zarr2Format; ingot.formats()['zarr2']",
        "import ingot; ingot.formats()['zarr2']; import ingot.formats.zarr.v2 as v; v.Zarr2Format",
        "import ingot; ingot.formats()['zarr2']; ingot.formats.registry.list_formats",
        "from ingot import formats; assert formats()['zarr3'] == ('array', 'group')",
    ],
)
def test_formats_is_a_package_and_a_function(code: str) -> None:
    loaded(code)


@pytest.mark.parametrize("format", ["zarr3", "zarr2"])
@pytest.mark.parametrize("use", ["", "[2:4, 1]"])
def test_who_opens_an_array_pays_for_arrays(place: Path, format: str, use: str) -> None:
    modules = loaded(f"import ingot; ingot.open({str(place / format)!r}){use}")
    assert "ingot.containers.array" in modules
    if "ingot._native" not in modules:
        pytest.skip("the twin needs what the native kernel has in itself")
    assert too_early(modules) == []
    if format == "zarr3":
        assert not any(name.startswith("ingot.formats.zarr.v2") for name in modules)


def test_who_creates_an_array_pays_for_arrays(tmp_path: Path) -> None:
    code = f"import ingot; ingot.array([1, 2, 3], {str(tmp_path / 'new')!r})[:]"
    modules = loaded(code)
    if "ingot._native" not in modules:
        pytest.skip("the twin needs what the native kernel has in itself")
    assert too_early(modules) == []


def test_what_waits_is_there_when_it_is_used(place: Path) -> None:
    modules = loaded(f"import ingot; ingot.open({str(place / 'table')!r}).read(where='a > 3')")
    assert {"ingot.containers.table", "ingot.query.parse", "ingot.formats.bcolz.format"} <= modules
    assert {each.partition(": ")[0] for each in too_early(modules)} >= {
        "ingot.containers.table_state"
    }


def test_public_names_are_there_in_every_order() -> None:
    names = sorted(ingot.__all__)
    checks = "; ".join(
        f"assert getattr(ingot, {name!r}).__name__.endswith({name!r})"
        for name in names
        if name != "__version__"
    )
    for first in ("ingot.containers.table", "ingot.formats.zarr.v2"):
        loaded(f"import {first}, ingot; {checks}; assert set({names}) <= set(dir(ingot))")
        loaded(f"import ingot; {checks}; import {first}; {checks}")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ingot' has no attribute 'zarr4'"):
        ingot.zarr4  # type: ignore[attr-defined] # noqa: B018
