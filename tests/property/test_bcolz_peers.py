"""Ingot and bcolz change the same arrays and tables, each where the other stopped."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import ingot
from ingot.engine.payload import engine_of
from ingot.formats.bcolz.array import design, open_array
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.table import BcolzTableMap, open_table
from ingot.formats.format import Request
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, LocalStore
from tests.kernels import needs_native
from tests.property.array_strategies import items
from tests.storage import use_kernel

bcolz = pytest.importorskip("bcolz", reason="bcolz-zipline has no wheel for this Python")

# What bcolz can persist; complex numbers and coarse dates only because Ingot writes them.
DTYPES = [
    *("|b1", "|i1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c16"),
    *("<M8[ns]", "<M8[D]", "<m8[s]", "|S3", "|S300", "<U3", ">U2", "|V5"),
]
CODECS = ["blosc:lz4:5:shuffle", "blosc:zstd:1:bitshuffle", "blosc:blosclz:9:noshuffle", "none"]

rows = st.integers(0, 12)
starts = st.integers(1, 60)


class Life(RuleBasedStateMachine):
    """The rules; the machines below say on which kernel."""

    kernel_name: str

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        use_kernel(self.kernel_name, self.patch)
        self.folder = tempfile.mkdtemp()
        self.path = str(Path(self.folder) / "array")

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder)

    @initialize(
        length=rows,
        element=st.sampled_from([(), (2,), (3, 2)]),
        dtype=st.sampled_from(DTYPES),
        codec=st.sampled_from(CODECS),
        ours=st.booleans(),
    )
    def create(
        self, length: int, element: tuple[int, ...], dtype: str, codec: str, ours: bool
    ) -> None:
        self.data = items(dtype, (length, *element), 3)
        chunks = (5, *element)
        if ours or dtype in ("<c16", "<M8[D]", "<m8[s]"):
            ingot.array(self.data, self.path, format="bcolz", chunks=chunks, codec=codec)
        else:
            bcolz.carray(self.data, rootdir=self.path, chunklen=5, expectedlen=1).flush()

    def values(self, length: int, start: int) -> np.ndarray[Any, Any]:
        return items(self.data.dtype, (length, *self.data.shape[1:]), start)

    def extended(self, values: np.ndarray[Any, Any]) -> None:
        self.data = np.concatenate([self.data, values]).astype(self.data.dtype)

    @rule(length=rows, start=starts)
    def append(self, length: int, start: int) -> None:
        values = self.values(length, start)
        ingot.open(self.path, "r+").append(values)
        self.extended(values)

    @rule(length=st.integers(1, 12), start=starts)
    def append_by_bcolz(self, length: int, start: int) -> None:
        values = self.values(length, start)
        array = bcolz.open(self.path, mode="a")
        array.append(values)
        array.flush()
        self.extended(values)

    @rule(length=rows)
    def resize(self, length: int) -> None:
        ingot.open(self.path, "r+").resize((length, *self.data.shape[1:]))
        kept = self.data[:length]
        fill = np.zeros((length - len(kept), *self.data.shape[1:]), self.data.dtype)
        self.data = np.concatenate([kept, fill]).astype(self.data.dtype)

    @precondition(lambda self: len(self.data) > 0)
    @rule(draws=st.data())
    def trim_by_bcolz(self, draws: st.DataObject) -> None:
        count = draws.draw(st.integers(1, len(self.data)))
        array = bcolz.open(self.path, mode="a")
        array.trim(count)
        array.flush()
        self.data = self.data[: len(self.data) - count]

    @precondition(lambda self: len(self.data) > 0)
    @rule(draws=st.data(), start=starts, ours=st.booleans())
    def assign(self, draws: st.DataObject, start: int, ours: bool) -> None:
        first = draws.draw(st.integers(0, len(self.data) - 1))
        last = draws.draw(st.integers(first + 1, len(self.data)))
        values = self.values(last - first, start)
        if ours:
            ingot.open(self.path, "r+")[first:last] = values
        else:
            array = bcolz.open(self.path, mode="a")
            array[first:last] = values
            array.flush()
        self.data = self.data.copy()
        self.data[first:last] = values

    @rule(note=st.text(max_size=5), ours=st.booleans())
    def describe(self, note: str, ours: bool) -> None:
        if ours:
            ingot.open(self.path, "r+").attrs["note"] = note
        else:
            bcolz.open(self.path, mode="a").attrs["note"] = note
        assert ingot.open(self.path).attrs["note"] == note
        assert bcolz.open(self.path, mode="r").attrs["note"] == note

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "data"):
            return
        found = ingot.open(self.path)
        assert found.shape == self.data.shape
        assert found.dtype == self.data.dtype
        assert found[...].tobytes() == self.data.tobytes()
        theirs = bcolz.open(self.path, mode="r")
        assert theirs[:].tobytes() == self.data.tobytes()
        if len(self.data) > 2:
            assert theirs[1:-1].tobytes() == self.data[1:-1].tobytes()
            assert found[1:-1].tobytes() == self.data[1:-1].tobytes()


@pytest.mark.parametrize("kernel_name", [pytest.param("native", marks=needs_native), "python"])
def test_two_libraries_change_one_array(kernel_name: str) -> None:
    machine = type("Machine", (Life,), {"kernel_name": kernel_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=40, stateful_step_count=12, deadline=None)
    )


def column(dtype: str, length: int, start: int) -> np.ndarray[Any, Any]:
    return items(dtype, (length,), start)


TABLE_TYPES = ["<i4", "<f8", "|S3", "<M8[ns]", "|b1"]


def make_table(path: Path, columns: dict[str, np.ndarray[Any, Any]]) -> None:
    store = LocalStore(path, writable=True)
    schema = {
        name: design(Request(data.shape, data.dtype, np.zeros((), data.dtype)[()], (5,)))
        for name, data in columns.items()
    }
    node, commit = BcolzFormat().create_table(store, schema, {"kind": "test"})
    edits = []
    for name, data in columns.items():
        engine = engine_of(node.columns[name].chunks, Options())  # type: ignore[union-attr]
        edits += engine.assign(parse(..., data.shape), data).edits
    store.apply(Commit((*commit.prepare, *edits), commit.publish, commit.cleanup))


def read_table(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    table = open_table(LocalStore(path))
    assert isinstance(table, BcolzTableMap)
    return {
        name: engine_of(column.chunks, Options()).read(parse(..., column.schema.shape))  # type: ignore[union-attr]
        for name, column in table.columns.items()
    }


@settings(max_examples=40, deadline=None)
@given(
    types=st.lists(st.sampled_from(TABLE_TYPES), min_size=1, max_size=4),
    length=st.integers(0, 12),
    added=st.integers(1, 9),
    trimmed=st.integers(0, 5),
)
def test_bcolz_queries_appends_and_trims_our_tables(
    types: list[str], length: int, added: int, trimmed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        data = {f"c{n}": column(dtype, length, n + 1) for n, dtype in enumerate(types)}
        make_table(path, data)
        table = bcolz.open(str(path), mode="a")
        assert table.names == list(data)
        assert len(table) == length
        more = [column(dtype, added, n + 20) for n, dtype in enumerate(types)]
        table.append(more)
        whole = {
            name: np.concatenate([old, new]).astype(old.dtype)
            for (name, old), new in zip(data.items(), more, strict=True)
        }
        for name, found in read_table(path).items():
            assert found.tobytes() == whole[name].tobytes()
        if types[0] == "<i4":
            limit = int(np.median(whole["c0"]))
            hits = [row.c0 for row in table.where(f"c0 <= {limit}", outcols=["c0"])]
            assert hits == whole["c0"][whole["c0"] <= limit].tolist()
        table.trim(min(trimmed, len(table)))
        left = length + added - min(trimmed, length + added)
        for name, found in read_table(path).items():
            assert found.tobytes() == whole[name][:left].tobytes()


def test_columns_that_bcolz_cannot_open_do_not_keep_it_from_the_others(tmp_path: Path) -> None:
    pair = np.dtype([("x", "<i4"), ("y", "<f8")])
    data = {"a": np.arange(5), "p": np.zeros(5, pair), "z": np.arange(5) * 1j}
    make_table(tmp_path / "table", data)
    table = bcolz.open(str(tmp_path / "table"), mode="r")
    assert table.names == ["a", "z"]
    assert table["a"][:].tolist() == [0, 1, 2, 3, 4]
    assert list(read_table(tmp_path / "table")) == ["a", "p", "z"]


def test_an_array_that_was_created_empty_is_filled_by_bcolz(tmp_path: Path) -> None:
    path = tmp_path / "array"
    ingot.create(path, shape=(0, 3), dtype="f4", format="bcolz", fill=1.5)
    array = bcolz.open(str(path), mode="a")
    assert array.shape == (0, 3)
    array.append(np.ones((4, 3), "f4"))
    array.flush()
    array.resize(6)
    array.flush()
    expected = np.ones((6, 3), "f4")
    expected[4:] = 1.5
    np.testing.assert_array_equal(ingot.open(path)[...], expected)
    assert open_array(LocalStore(path)).schema.fill == np.float32(1.5)


def test_objects_go_both_ways(tmp_path: Path) -> None:
    options = ingot.Options(allow_pickle=True)
    path = tmp_path / "objects"
    data = np.array(["text", None, 3, {"a": [1]}], object)
    ingot.array(data, path, format="bcolz", fill=None, options=options)
    assert bcolz.open(str(path), mode="r")[:].tolist() == data.tolist()
    other = tmp_path / "theirs"
    bcolz.carray(data, rootdir=str(other), dtype=np.dtype(object)).flush()
    assert ingot.open(other, options=options)[...].tolist() == data.tolist()
    writable = ingot.open(other, "r+", options=options)
    writable.append(["more", (1, 2)])
    writable[1] = "no longer None"
    found = bcolz.open(str(other), mode="r")[:].tolist()
    assert found == ["text", "no longer None", 3, {"a": [1]}, "more", (1, 2)]
    with pytest.raises(ingot.errors.UnsafeError):
        ingot.open(other)
