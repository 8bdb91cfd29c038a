"""The registry: entries say what their formats do, and formats can be added."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

import ingot
from ingot.containers.resolve import open_fast
from ingot.errors import UnsafeError, UnsupportedError
from ingot.formats.format import (
    DocumentFormat,
    EnclosingFormat,
    Format,
    GroupFormat,
    Kind,
    TableFormat,
)
from ingot.formats.registry import (
    FORMATS,
    FormatEntry,
    format_named,
    list_formats,
    register,
    unregister,
)
from ingot.stores import MemoryStore


def test_the_order_of_detection() -> None:
    folders = ["zarr3", "zarr2", "blsk", "bcolz", "zarr0", "zarr1"]
    assert list(FORMATS) == [*folders, "bloscpack", "varlen"]


@pytest.mark.parametrize("name", FORMATS)
def test_classes_agree_with_their_entries(name: str) -> None:
    entry, format = FORMATS.entries[name], FORMATS[name]
    assert isinstance(format, Format)
    assert FORMATS[name] is format
    assert (format.name, format.holds) == (entry.name, entry.holds) == (name, format.holds)
    assert isinstance(format, DocumentFormat) == bool(entry.documents)
    assert isinstance(format, EnclosingFormat) == bool(entry.encloses)
    assert isinstance(format, GroupFormat) == (Kind.GROUP in entry.holds)
    assert isinstance(format, TableFormat) == (Kind.TABLE in entry.holds)


def test_formats_are_listed_without_loading_any() -> None:
    code = (
        "import sys, ingot; ingot.formats()\n"
        "loaded = [name for name in sys.modules if name.startswith('ingot.formats.')]\n"
        "print([name for name in loaded if '.zarr' in name or '.bcolz' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_format_is_no_key() -> None:
    assert "zarr4" not in FORMATS
    with pytest.raises(KeyError):
        FORMATS["zarr4"]
    with pytest.raises(UnsupportedError, match="'zarr4' is unknown; there is zarr3, zarr2"):
        format_named("zarr4")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"home": "ingot.formats.zarr.v1"}, ValueError),
        ({"home": "module:"}, ValueError),
        ({"matches": ":name"}, ValueError),
        ({"looks": "name"}, ValueError),
        ({"documents": (("b", "a"),)}, ValueError),
        ({"markers": ("../a",)}, UnsafeError),
        ({"encloses": ("/a",)}, UnsafeError),
        ({"documents": (("a", "../b"),)}, UnsafeError),
    ],
)
def test_entries_are_checked(wrong: dict[str, object], error: type[Exception]) -> None:
    fields = {"home": "ingot.formats.zarr.v1:Zarr1Format", "markers": ("a",), **wrong}
    with pytest.raises(error):
        FormatEntry("toy", holds=Kind.ARRAY, **fields)  # type: ignore[arg-type]


@pytest.fixture
def twin() -> Iterator[FormatEntry]:
    """Register zarr1 a second time, under another name and with another marker."""
    entry = FormatEntry(
        "twin",
        "ingot.formats.zarr.v1:Zarr1Format",
        Kind.ARRAY,
        markers=("twin",),
        documents=(("twin", "attrs"),),
    )
    register(entry)
    yield entry
    unregister("twin")


def test_a_format_can_be_added_and_removed(twin: FormatEntry) -> None:
    assert list_formats()["twin"] == ingot.formats()["twin"] == ("array",)
    assert list(FORMATS)[-1] == "twin"
    assert format_named("twin").name == "zarr1"
    with pytest.raises(ValueError, match="'twin' already"):
        register(twin)
    unregister("twin")
    assert "twin" not in ingot.formats()
    register(twin)


def test_a_new_format_is_looked_for(twin: FormatEntry, tmp_path: object) -> None:
    with pytest.raises(ingot.errors.NotFoundError, match=r"twin \(twin\)"):
        ingot.open(MemoryStore())
    unregister("twin")
    with pytest.raises(ingot.errors.NotFoundError, match=r"varlen \(a single file\)$"):
        ingot.open(MemoryStore())
    register(twin)
    assert open_fast(str(tmp_path), "twin", writable=False) is None
