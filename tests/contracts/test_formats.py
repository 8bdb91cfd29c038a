"""Every registered format keeps the contract of formats; so does one that is registered here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ingot
from ingot.errors import ExistsError, UnsupportedError
from ingot.formats.format import Kind
from ingot.formats.registry import FORMATS, FormatEntry, register, unregister
from ingot.stores import FileStore, LocalStore, MemoryStore, ZipStore
from ingot.testing import FormatContract
from tests.contracts.toy.flat import ENTRY as FLAT
from tests.contracts.toy.table import ENTRY as TABLE

# A class for every format: a format joins by being registered.
for _name in FORMATS:
    _class = f"Test{_name.capitalize()}"
    globals()[_class] = type(_class, (FormatContract,), {"format": _name})

TOY = FormatEntry(
    "toy",
    "tests.contracts.toy.format:ToyFormat",
    Kind.ARRAY,
    markers=("toy.json",),
    documents=(("toy.json",),),
    suffixes=(".toy",),
)


class TestToy(FormatContract):
    """A format that is one folder and one entry."""

    format = "toy"

    @pytest.fixture(autouse=True)
    def registered(self) -> Iterator[None]:
        """Register the format for one test."""
        register(TOY)
        yield
        unregister("toy")


SINGLE = FormatEntry(
    "toyfile",
    "tests.contracts.toy.single:SingleToyFormat",
    Kind.ARRAY,
    suffixes=(".toyfile",),
    head=8,
    matches="tests.contracts.toy.single:is_single_toy",
)


@pytest.fixture
def single() -> Iterator[None]:
    """Register the format of single files for one test."""
    register(SINGLE)
    yield
    unregister("toyfile")


class TestSingleToy(FormatContract):
    """A format of single files."""

    format = "toyfile"

    @pytest.fixture(autouse=True)
    def registered(self, single: None) -> None:
        """Register the format for one test."""


class TestFlatToy(FormatContract):
    """A format of flat arrays."""

    format = "toyflat"

    @pytest.fixture(autouse=True)
    def registered(self) -> Iterator[None]:
        """Register the format for one test."""
        register(FLAT)
        yield
        unregister("toyflat")


class TestTableToy(FormatContract):
    """A format of tables whose columns may hold variable-length items."""

    format = "toytable"

    @pytest.fixture(autouse=True)
    def registered(self) -> Iterator[None]:
        """Register the format for one test."""
        register(TABLE)
        yield
        unregister("toytable")


def test_the_toy_is_gone() -> None:
    assert "toy" not in ingot.formats()
    with pytest.raises(ingot.errors.FormatError, match="no dataset of a known format"):
        ingot.open(MemoryStore({"toy.json": b"{}"}))


@pytest.mark.parametrize("suffix", [".bcolz", ".zarr", ".BCOLZ", ".bcolz.zip"])
def test_the_suffix_decides_where_no_format_is_given(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    expected = "zarr3" if suffix == ".zarr" else "bcolz"
    assert ingot.create(path, shape=3, dtype="i4").format == expected
    assert ingot.array([1], tmp_path / f"b{suffix}").format == expected
    assert ingot.array([1], tmp_path / f"c{suffix}", format="zarr2").format == "zarr2"
    assert ingot.array([1], tmp_path / "d").format == "zarr3"
    if expected == "bcolz":
        assert ingot.table({"a": [1]}, tmp_path / f"t{suffix}").format == "bcolz"
        with pytest.raises(UnsupportedError, match="by its suffix, format bcolz holds no groups"):
            ingot.group(tmp_path / f"g{suffix}")
    else:
        assert ingot.group(tmp_path / f"g{suffix}").format == "zarr3"
        with pytest.raises(UnsupportedError, match="by its suffix, format zarr3 holds no tables"):
            ingot.table({"a": [1]}, tmp_path / f"t{suffix}")


def test_members_have_the_format_of_their_group(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "root", format="zarr2")
    assert ingot.create(tmp_path / "root" / "a.zarr", shape=3, dtype="i4").format == "zarr2"
    assert ingot.create(tmp_path / "root" / "b.bcolz", shape=3, dtype="i4").format == "bcolz"
    assert list(root) == ["a.zarr"]


@pytest.mark.usefixtures("single")
def test_a_single_file_has_a_key_in_every_store(tmp_path: Path) -> None:
    stores = {
        tmp_path / "a.toyfile": FileStore(tmp_path / "a.toyfile"),
        tmp_path / "b.toyfile.zip": ZipStore(tmp_path / "b.toyfile.zip"),
    }
    for path, store in stores.items():
        assert ingot.array([1, 2, 3], path).format == "toyfile"
        assert list(store.names()) == [path.name.removesuffix(".zip")]
        assert ingot.open(path)[1] == ingot.open(store)[1] == 2  # type: ignore[index]
    assert (tmp_path / "a.toyfile").is_file()
    memory = MemoryStore()
    made = ingot.array([1, 2, 3], memory, format="toyfile")
    assert list(memory.names()) == ["data.toyfile"]
    made.append([4])
    assert ingot.open(memory)[3] == 4  # type: ignore[index]
    with made.transaction():
        made[0] = 9
    assert ingot.open(memory)[0] == 9  # type: ignore[index]
    folder = LocalStore(tmp_path / "folder", writable=True)
    ingot.array([5], folder, format="toyfile")
    assert (tmp_path / "folder" / "data.toyfile").is_file()
    assert ingot.open(folder, format="toyfile")[0] == 5  # type: ignore[index]


@pytest.mark.usefixtures("single")
def test_the_first_change_of_a_single_file_is_a_transaction(tmp_path: Path) -> None:
    path = tmp_path / "a.toyfile"
    made = ingot.array([1, 2, 3], path)
    with made.transaction():
        made[0] = 9
        made.append([4])
    found = ingot.open(path)
    assert isinstance(found, ingot.Array)
    assert found[...].tolist() == [9, 2, 3, 4]


@pytest.mark.usefixtures("single")
def test_files_and_folders_do_not_replace_each_other(tmp_path: Path) -> None:
    ingot.array([1], tmp_path / "file", format="toyfile")
    ingot.array([1], tmp_path / "folder", format="zarr3")
    with pytest.raises(ExistsError, match="needs a folder"):
        ingot.array([1], tmp_path / "file", format="zarr3", overwrite=True)
    with pytest.raises(ExistsError, match="is a file"):
        ingot.array([1], tmp_path / "folder", format="toyfile", overwrite=True)
