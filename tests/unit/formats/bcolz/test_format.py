"""bcolz directories: their documents, the layouts of twelve years, and every change of them."""

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.engine.run import Engine
from ingot.errors import (
    CorruptionError,
    FormatError,
    LimitError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats.bcolz import literals
from ingot.formats.bcolz import types as bcolz_types
from ingot.formats.bcolz.array import BcolzMap, create_array, design, open_array, parse_attrs
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.metadata import BcolzMetadata, Storage, default_chunk, parse_sizes
from ingot.formats.bcolz.table import BcolzTableMap, open_table
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    Format,
    Request,
    TableFormat,
    TableMap,
    TableNode,
    ZoneMapped,
)
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, Extent, LocalStore, MemoryStore, Store
from ingot.stores.local.commit import CommitRun
from ingot.stores.versions import copied
from ingot.testing.counting import CountingStore
from tests.storage import Place, content, die_decided, put, store_at


def test_the_contracts_are_kept() -> None:
    store = MemoryStore()
    node, _ = create_array(store, design(requested(3)))
    assert isinstance(BcolzFormat(), Format)
    assert isinstance(BcolzFormat(), TableFormat)
    assert isinstance(node.chunks, ChunkMap)
    assert isinstance(node.chunks, ZoneMapped)
    table, _ = BcolzFormat().create_table(store, {"a": design(requested(3))}, {})
    assert isinstance(table.table, TableMap)


def requested(rows: int, dtype: Any = "<i4", **settings: Any) -> Request:
    shape = rows if isinstance(rows, tuple) else (rows,)
    settings.setdefault("chunks", (4, *shape[1:]))
    return Request(shape, np.dtype(dtype), np.zeros((), dtype)[()], **settings)


# The documents, as the description of bcolz 1.x shows them.


def test_the_examples_of_the_description_are_read() -> None:
    shape, _ = parse_sizes(b'{"shape": [100000], "nbytes": 400000, "cbytes": 266904}')
    assert shape == (100_000,)
    storage = Storage.parse(
        b'{"dtype": "int32", "cparams": {"shuffle": true, "clevel": 5}, "chunklen": 65536, '
        b'"dflt": 0, "expectedlen": 100000}'
    )
    assert (storage.dtype, storage.chunklen, storage.blosc.clevel) == (np.dtype("<i4"), 65536, 5)
    attrs = b'{"temp": 22.5, "pressure": 999.2, "timestamp": "2016030915"}'
    assert parse_attrs(attrs) == {"temp": 22.5, "pressure": 999.2, "timestamp": "2016030915"}


def test_new_arrays_have_the_documents_that_bcolz_writes(place: Place) -> None:
    ingot.array(np.arange(10, dtype="<i4"), place, format="bcolz", chunks=4, attrs={"a": 1})
    found = content(place)
    storage = json.loads(found["meta/storage"])
    # The only thing that bcolz does not write, and does not look at.
    assert storage.pop("x_blocksize") == 16 << 10
    assert storage == {
        "dtype": "int32",
        "cparams": {"clevel": 5, "shuffle": 1, "cname": "lz4", "quantize": 0},
        "chunklen": 4,
        "expectedlen": 10,
        "dflt": 0,
    }
    assert json.loads(found["meta/sizes"])["shape"] == [10]
    assert found["__attrs__"] == b'{"a": 1}\n'
    assert all(found[name].endswith(b"}\n") for name in ("meta/storage", "meta/sizes"))
    assert {name for name in found if name.startswith("data/")} == {
        "data/__0.blp",
        "data/__1.blp",
        "data/__2.blp",
    }
    assert found["data/__0.blp"][:16] == b"blpk\1\0\0\0\1\0\0\0\0\0\0\0"
    # The last chunk is as short as it is: two numbers.
    assert int.from_bytes(found["data/__2.blp"][20:24], "little") == 8


def test_unknown_keys_survive_every_change(place: Place) -> None:
    ingot.array(np.arange(5), place, format="bcolz", chunks=4)
    found = content(place)
    for key in ("meta/storage", "meta/sizes"):
        values = json.loads(found[key]) | {"mine": [1, 2]}
        put(place, {key: json.dumps(values).encode()})
    put(place, {"meta/other": b"kept", "notes.txt": b"kept"})
    array = ingot.open(place, "r+")
    array.append([9])
    array[0] = 3
    array.attrs["b"] = 2
    after = content(place)
    assert json.loads(after["meta/storage"])["mine"] == [1, 2]
    assert json.loads(after["meta/sizes"])["mine"] == [1, 2]
    assert after["meta/other"] == after["notes.txt"] == b"kept"


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(b"", CorruptionError), (bytes(9), CorruptionError), (b'{"a": [1', FormatError)],
)
def test_lost_attributes_do_not_hide_the_data(
    place: Place, damage: bytes, kind: type[Exception]
) -> None:
    ingot.array(np.arange(5), place, format="bcolz", attrs={"a": [1, 2]})
    put(place, {"__attrs__": damage})
    array = ingot.open(place, "r+")
    array.append([5])
    assert array[...].tolist() == [0, 1, 2, 3, 4, 5]
    for look in (lambda: dict(array.attrs), lambda: array.attrs["a"], lambda: len(array.attrs)):
        with pytest.raises(kind):
            look()


FILLS = [
    ("<i4", -3),
    ("<f8", float("nan")),
    ("<f4", float("-inf")),
    ("|b1", True),
    ("|S4", b"ab"),
    ("|S4", b"\xff\x00\x01"),
    ("<U3", "äö"),
    ("<M8[D]", np.datetime64("2020-01-02")),
    ("<m8[s]", np.timedelta64(5, "s")),
    ("<c16", 1 - 2j),
    ("<g", np.longdouble(1.5)),
    ("|V3", b"abc"),
]


@pytest.mark.parametrize(("dtype", "fill"), FILLS, ids=str)
def test_fill_values_come_back(place: Place, dtype: str, fill: Any) -> None:
    value = np.frombuffer(fill, dtype)[0] if dtype == "|V3" else fill
    array = ingot.create(place, shape=3, dtype=dtype, fill=value, format="bcolz", chunks=4)
    array.resize(10)
    expected = np.empty(10, dtype)
    expected[...] = value
    again = ingot.open(place)
    np.testing.assert_array_equal(again[...], expected)
    np.testing.assert_array_equal(np.asarray(again.fill, dtype), expected[0])


@pytest.mark.parametrize(
    ("dtype", "dflt", "expected"),
    [
        ("float64", [2.5, 2.5], 2.5),
        ("float64", [[1.5], [1.5]], 1.5),
        ("|S3", "ab", b"ab"),
        ("<U3", "ab", "ab"),
        ("int8", None, 0),
        ("bool", True, True),
        ("datetime64[ns]", 0, np.datetime64(0, "ns")),
        ("[('a', '<i4'), ('b', '<f8')]", [1, 2.5], (1, 2.5)),
        ("|V3", "\0\0\0", b"\0\0\0"),
    ],
    ids=str,
)
def test_defaults_in_all_spellings(dtype: str, dflt: Any, expected: Any) -> None:
    values = {"dtype": dtype, "cparams": {"clevel": 5, "shuffle": True}, "chunklen": 3}
    data = json.dumps(values | {"expectedlen": -1, "dflt": dflt}).encode()
    fill = Storage.parse(data).fill
    assert (fill.tobytes() if dtype == "|V3" else fill.tolist()) == (
        expected.tolist() if isinstance(expected, np.generic) else expected
    )


def test_quantized_floats_are_rounded_when_they_are_written(place: Place) -> None:
    data = np.random.default_rng(0).normal(size=50)
    stages = [{"id": "quantize", "digits": 2, "dtype": "<f8"}, {"id": "blosc"}]
    codec = [ingot.codecs.codec.parse_stage(each) for each in stages]  # type: ignore[attr-defined]
    ingot.array(data, place, format="bcolz", chunks=20, codec=codec)
    assert json.loads(content(place)["meta/storage"])["cparams"]["quantize"] == 2
    found = ingot.open(place)[...]
    np.testing.assert_array_equal(found, np.around(data * 128) / 128)


# Types


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("int32", "<i4"),
        ("uint8", "|u1"),
        ("float16", "<f2"),
        ("complex64", "<c8"),
        ("bool", "|b1"),
        ("datetime64[ns]", "<M8[ns]"),
        ("timedelta64[25us]", "<m8[25us]"),
        (">i4", ">i4"),
        ("|S7", "|S7"),
        ("[(u'a', '<i4'), ('b', '|S3', (2L,))]", [("a", "<i4"), ("b", "S3", (2,))]),
        (
            "{'names':['a','b'], 'formats':['i1','<f8'], 'offsets':[0,8], 'itemsize':16,"
            " 'aligned':True}",
            np.dtype("i1,f8", align=True).newbyteorder("<"),
        ),
    ],
    ids=str,
)
def test_types_in_all_spellings(text: str, dtype: Any) -> None:
    found, wanted = bcolz_types.parse(text), np.dtype(dtype)
    if wanted.names == ("f0", "f1"):
        assert [found.fields[name][1] for name in found.names] == [0, 8]  # type: ignore[union-attr, index]
        assert found.itemsize == 16
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", None),
        (r"'a\'b\\\x41\u00e4'", "a'b\\Aä"),
        ("( 1 , )", (1,)),
        ("()", ()),
        ("(1)", 1),
        ("[1, (2, 'x'), {'k': [True, None]}]", [1, (2, "x"), {"k": [True, None]}]),
        ("-5", -5),
    ],
)
def test_literals(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(FormatError):
            literals.parse(text, "x")
    else:
        assert literals.parse(text, "x") == value


@pytest.mark.parametrize(
    "text", ["", "[", "]", "[1", "{1: 2}", "{'a': 1, 'a': 2}", "1.5", "a", "[1 2]", r"'\q'", "1]"]
)
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises(FormatError):
        literals.parse(text, "x")


def test_literals_have_limits() -> None:
    with pytest.raises(LimitError):
        literals.parse("[" * 50 + "]" * 50, "x")
    with pytest.raises(LimitError):
        literals.parse(" " * 2**21, "x")


# What can be made


def test_chunks_are_chosen_for_the_size() -> None:
    assert design(Request((0,), np.dtype("f8"), 0.0)).chunks == (131_072,)
    assert design(Request((10**10,), np.dtype("f8"), 0.0)).chunks == (2**21,)
    assert default_chunk(5, 2**40) == 1


def test_an_array_that_was_empty_gets_chunks_for_what_it_is_given() -> None:
    empty = BcolzMetadata.of(Storage.of(design(Request((0,), np.dtype("f8"), 0.0))), (0,), {})
    assert empty.resized(10**9).storage.chunklen == 2**20
    assert empty.resized(10).storage.chunklen == 131_072
    assert empty.resized(10).resized(10**9).storage.chunklen == 131_072
    wished = BcolzMetadata.of(
        Storage.of(design(Request((0,), np.dtype("f8"), 0.0, (100,)))), (0,), {}
    )
    assert wished.resized(10**9).storage.chunklen == 100


def test_chunks_that_grew_are_stored_so(place: Place) -> None:
    array = ingot.create(place, shape=0, dtype="f8", format="bcolz")
    values = json.loads(content(place)["meta/storage"])
    assert values["x_chunklen"] == "auto"
    put(place, {"meta/storage": json.dumps(values | {"chunklen": 3}).encode()})
    array = ingot.open(place, "r+")
    assert array.chunks == (3,)
    array.append(np.arange(10.0))
    assert array.chunks == (131_072,)
    assert ingot.open(place).chunks == (131_072,)
    array.append(np.arange(5.0))
    np.testing.assert_array_equal(ingot.open(place)[...], [*range(10), *range(5)])


@pytest.mark.parametrize(
    "request_",
    [
        Request((), np.dtype("f8"), 0.0),
        Request((3,), np.dtypes.StringDType(), ""),
        Request((3, 8), np.dtype("f8"), 0.0, (2, 4)),
    ],
    ids=["no axes", "text of any length", "cut elsewhere"],
)
def test_what_bcolz_does_not_hold(request_: Request) -> None:
    with pytest.raises(UnsupportedError):
        design(request_)


def test_other_codecs_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        ingot.create(shape=3, dtype="f8", format="bcolz", codec="zlib:1")


def test_only_rows_can_change_in_number(place: Place) -> None:
    array = ingot.create(place, shape=(3, 2), dtype="i4", format="bcolz")
    with pytest.raises(UnsupportedError):
        array.resize((3, 3))
    array.resize((5, 2))
    assert ingot.open(place).shape == (5, 2)


def test_arrays_are_replaced(place: Place) -> None:
    ingot.array(np.arange(10), place, format="bcolz", chunks=2, attrs={"a": 1})
    ingot.array(np.arange(3.0), place, format="bcolz", chunks=2, overwrite=True)
    found = ingot.open(place)
    np.testing.assert_array_equal(found[...], [0.0, 1.0, 2.0])
    assert dict(found.attrs) == {}
    assert sum(name.endswith(".blp") for name in content(place)) == 2


def test_stray_rows_do_not_come_back(place: Place) -> None:
    array = ingot.array(np.arange(1, 11), place, format="bcolz", chunks=4)
    array.resize(5)
    array.resize(10)
    np.testing.assert_array_equal(ingot.open(place)[...], [1, 2, 3, 4, 5, 0, 0, 0, 0, 0])


def test_costs_are_explained_by_blocks(tmp_path: Path, kernel: str) -> None:
    data = np.random.default_rng(0).integers(0, 1000, 40_000)
    array = ingot.array(
        data, tmp_path / "a", format="bcolz", chunks=20_000, codec="blosc:lz4:5:shuffle:16384"
    )
    (cost,) = array.explain(slice(100, 200)).costs
    assert cost.blocks == (1, 10)
    assert cost.read < cost.stored / 5
    assert array.explain().read == array.stored_bytes


# Tables


def filled(place: Place, schema: dict[str, Any], rows: int = 3) -> BcolzTableMap:
    """Make a table whose columns count from one on."""
    store = store_at(place)
    node, commit = BcolzFormat().create_table(store, schema, {"of": "columns"})
    edits = [edit for column in _arrays(node) for edit in _counted(column, rows)]
    store.apply(Commit((*commit.prepare, *edits), commit.publish, commit.cleanup))
    return open_table(store)


def _arrays(node: TableNode) -> Iterator[BcolzMap]:
    for column in node.columns.values():
        if isinstance(column, TableNode):
            yield from _arrays(column)
        else:
            assert isinstance(column.chunks, BcolzMap)
            yield column.chunks


def _counted(chunks: BcolzMap, rows: int) -> tuple[Any, ...]:
    values = np.arange(1, rows + 1).astype(chunks.schema.dtype)
    return Engine(chunks, Options()).assign(parse(..., (rows,)), values).edits


def names_in(store: Store) -> dict[str, Any]:
    (data,) = store.read([Extent("__rootdirs__")])
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


def test_tables_have_columns_in_their_order(place: Place) -> None:
    table = filled(place, {"b": design(requested(3)), "a": design(requested(3, "<f8"))})
    assert table.names == ("b", "a")
    assert dict(table.attrs) == {"of": "columns"}
    assert names_in(store_at(place)) == {"names": ["b", "a"]}
    found = content(place)
    assert {"b/meta/sizes", "b/meta/storage", "b/__attrs__", "a/data/__0.blp"} <= found.keys()
    assert not any(key.startswith(("data/", "meta/")) for key in found)


def test_nested_columns(place: Place) -> None:
    inner = {"x": design(requested(3)), "deep": {"y": design(requested(3, "S3"))}}
    table = filled(place, {"a": design(requested(3)), "n": inner})
    assert names_in(store_at(place)) == {"names": ["a"], "x_names": ["a", "n"]}
    nested = table.columns["n"]
    assert isinstance(nested, TableNode)
    deep = nested.columns["deep"]
    assert isinstance(deep, TableNode)
    assert list(deep.columns) == ["y"]
    assert "n/deep/y/meta/sizes" in content(place)


def test_columns_are_added_dropped_and_renamed(place: Place) -> None:
    table = filled(place, {"a": design(requested(3)), "b": design(requested(3))})
    store = store_at(place)
    added, column, commit = table.added("c", design(requested(3)), 1)
    assert added.names == ("a", "c", "b")
    assert isinstance(column, ArrayNode)
    edits = _counted(column.chunks, 3)  # type: ignore[arg-type]
    store.apply(Commit((*commit.prepare, *edits), commit.publish))
    renamed, copies, commit = open_table(store).renamed("a", "first")
    edits = tuple(copied(store, source, key) for key, source in copies.items())
    store.apply(Commit((*commit.prepare, *edits), commit.publish, commit.cleanup))
    assert renamed.names == open_table(store).names == ("first", "c", "b")
    assert renamed.columns["first"].chunks.path == "first"  # type: ignore[union-attr]
    dropped, commit = open_table(store).dropped("b")
    store.apply(commit)
    assert dropped.names == open_table(store).names == ("first", "c")
    assert not any(key.startswith(("a/", "b/")) for key in content(place))
    for name in ("first", "c"):
        engine = Engine(open_array(store, name), Options())
        assert engine.read(parse(..., (3,))).tolist() == [1, 2, 3]


def test_a_column_under_the_name_of_what_was_left_there(place: Place) -> None:
    table = filled(place, {"a": design(requested(3))})
    put(place, {"old/data/__9.blp": b"stray", "old/meta/sizes": b"{}"})
    store = store_at(place)
    _, column, commit = table.added("old", design(requested(3)))
    edits = _counted(column.chunks, 3)  # type: ignore[union-attr, arg-type]
    store.apply(Commit((*commit.prepare, *edits), commit.publish))
    assert "old/data/__9.blp" not in content(place)
    assert open_table(store).names == ("a", "old")


def test_names_that_cannot_be_given() -> None:
    table = filled(MemoryStore(), {"a": design(requested(3))})
    schema = design(requested(3))
    for name in ("a", "__attrs__", ".lock", ".g-1-x", "a.b"):
        with pytest.raises(ValueError, match=r"already|cannot be"):
            table.added(name, schema)
    for name in ("../x", "x/y", ""):
        with pytest.raises(UnsafeError):
            table.added(name, schema)
    with pytest.raises(ValueError, match="has 4 rows"):
        table.added("b", design(requested(4)))
    with pytest.raises(NotFoundError):
        table.dropped("b")
    with pytest.raises(NotFoundError):
        table.renamed("b", "c")


def test_a_commit_of_many_columns_ends_with_the_length_of_the_first() -> None:
    table = filled(MemoryStore(), {name: design(requested(3)) for name in ("a", "b", "c")})
    commits = {name: table.columns[name].chunks.resized((5,))[1] for name in ("b", "a", "c")}  # type: ignore[union-attr]
    joined = table.joined(commits)
    assert [edit.key for edit in joined.publish] == [f"{n}/meta/sizes" for n in ("c", "b", "a")]
    shorter = table.joined(commits, shrinking=True)
    assert [edit.key for edit in shorter.publish] == [f"{n}/meta/sizes" for n in ("a", "b", "c")]


def moved(files: dict[str, bytes], **folders: str) -> dict[str, bytes]:
    """Return the files of a table with columns in other folders."""
    found = {}
    for key, data in files.items():
        first, slash, rest = key.partition("/")
        found[f"{folders.get(first, first)}{slash}{rest}"] = data
    return found


def test_columns_below_data(place: Place) -> None:
    """As the description of bcolz 1.x draws tables, with and without a list of names."""
    source = MemoryStore()
    filled(source, {"z": design(requested(3)), "y": design(requested(3))})
    files = moved(content(source), z="data/z", y="data/y")
    put(place, files)
    assert open_table(store_at(place)).names == ("z", "y")


def test_columns_below_data_without_names(place: Place) -> None:
    source = MemoryStore()
    filled(
        source,
        {"z": design(requested(3)), "y": design(requested(3)), "n": {"s": design(requested(3))}},
    )
    files = moved(content(source), z="data/z", y="data/y", n="data/n")
    put(place, {key: data for key, data in files.items() if "__rootdirs__" not in key})
    node = BcolzFormat().open(store_at(place))
    assert isinstance(node, TableNode)
    assert list(node.columns) == ["n", "y", "z"]
    inner = node.columns["n"]
    assert isinstance(inner, TableNode)
    assert list(inner.columns) == ["s"]
    engine = Engine(inner.columns["s"].chunks, Options())  # type: ignore[union-attr]
    assert engine.read(parse(..., (3,))).tolist() == [1, 2, 3]


def test_columns_where_old_versions_say_that_they_are(place: Place) -> None:
    source = MemoryStore()
    filled(source, {"a": design(requested(3))})
    files = moved(content(source), a="col_a")
    rootdirs = {"names": ["a"], "dirs": {"a": "/home/user/table/col_a"}}
    put(place, files | {"__rootdirs__": json.dumps(rootdirs).encode()})
    table = open_table(store_at(place))
    assert table.columns["a"].chunks.path == "col_a"  # type: ignore[union-attr]
    dropped, commit = table.dropped("a")
    store_at(place).apply(commit)
    assert dropped.names == ()
    assert not any(key.startswith("col_a/") for key in content(place))


def test_strange_files_are_ignored(place: Place) -> None:
    filled(place, {"a": design(requested(3))})
    put(place, {"._a": b"x", "a/._meta": b"x", "a/data/.___0.blp": b"x", "a.factor/x": b"y"})
    assert open_table(store_at(place)).names == ("a",)


def test_a_column_by_itself_has_the_journal_and_the_lock_of_its_table(
    tmp_path: Path, kernel: str
) -> None:
    folder = tmp_path / "table"
    filled(folder, {"a": design(requested(9)), "n": {"x": design(requested(9))}}, rows=9)
    (folder / ".lock").unlink(missing_ok=True)
    column = ingot.open(folder / "n" / "x", "r+")
    column[2:7] = 50
    column.attrs["unit"] = "m"
    assert (folder / ".lock").exists()
    assert not list(folder.glob("*/**/.lock"))
    assert ingot.open(folder / "n" / "x")[...].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]
    assert dict(ingot.open(folder / "n" / "x").attrs) == {"unit": "m"}
    for change in (lambda: column.append([1]), lambda: column.resize(3)):
        with pytest.raises(UnsupportedError, match="is a column"):
            change()
    assert open_table(LocalStore(folder)).rows == 9
    assert pickle.loads(pickle.dumps(column))[2] == 50


def laid_out(layout: str, folder: Path) -> dict[str, Path]:
    """Make a table of nine rows as an older layout has it; return the folders of its columns."""
    source = MemoryStore()
    filled(source, {"a": design(requested(9)), "n": {"x": design(requested(9))}}, rows=9)
    files = content(source)
    if layout == "dirs":
        rootdirs = {"names": ["a", "n"], "dirs": {"a": "/home/user/table/col_a"}}
        put(folder, moved(files, a="col_a") | {"__rootdirs__": json.dumps(rootdirs).encode()})
        return {"a": folder / "col_a", "n.x": folder / "n" / "x"}
    files = moved(files, a="data/a", n="data/n")
    if layout == "unnamed":
        files = {key: data for key, data in files.items() if "__rootdirs__" not in key}
    put(folder, files)
    return {"a": folder / "data" / "a", "n.x": folder / "data" / "n" / "x"}


@pytest.mark.parametrize("layout", ["data", "unnamed", "dirs"])
def test_columns_of_older_layouts_have_the_lock_of_their_table(
    tmp_path: Path, kernel: str, layout: str
) -> None:
    folder = tmp_path / "table"
    columns = laid_out(layout, folder)
    (folder / ".lock").unlink(missing_ok=True)
    table = ingot.open(folder, "r+")
    table.attrs["season"] = 1
    for name, place in columns.items():
        column = ingot.open(place, "r+")
        column[2:7] = 50
        assert table[name][:].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]
        with pytest.raises(UnsupportedError, match="is a column"):
            column.append([1])
    assert [path.parent for path in folder.rglob(".lock")] == [folder]
    nested = ingot.open(columns["n.x"].parent, "r+")
    with pytest.raises(UnsupportedError, match="is a column"):
        nested.resize(3)


@pytest.mark.parametrize("layout", ["data", "unnamed", "dirs"])
def test_columns_of_older_layouts_have_the_journal_of_their_table(
    tmp_path: Path, kernel: str, layout: str
) -> None:
    folder = tmp_path / "table"
    columns = laid_out(layout, folder)
    table = ingot.open(folder, "r+")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            table.update(slice(1), dict.fromkeys(columns, 70))
    assert (folder / ".commit").exists()
    for place in columns.values():
        assert ingot.open(place)[0] == 70
    assert (folder / ".commit").exists()


def test_arrays_in_a_folder_called_data_are_on_their_own(tmp_path: Path, kernel: str) -> None:
    """They look like the columns of a table, and are none unless a table names them."""
    for name in "ab":
        ingot.array(np.arange(9), tmp_path / "data" / name, format="bcolz")
    array = ingot.open(tmp_path / "data" / "a", "r+")
    array.append([9])
    assert len(array) == 10
    assert not (tmp_path / ".lock").exists()


def test_a_table_below_another_that_does_not_name_it_is_on_its_own(
    tmp_path: Path, kernel: str
) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "left"
    filled(outer, {"a": design(requested(9))}, rows=9)
    filled(inner, {"b": design(requested(3))}, rows=3)
    (inner / ".lock").unlink()
    ingot.open(inner / "b", "r+")[0] = 5
    assert (inner / ".lock").exists()


def test_a_journal_of_the_table_is_seen_through_a_column(tmp_path: Path, kernel: str) -> None:
    folder = tmp_path / "table"
    filled(folder, {"a": design(requested(9)), "b": design(requested(9))}, rows=9)
    store = LocalStore(folder, writable=True)
    engine = Engine(open_array(store, "a"), Options())
    commit = engine.assign(parse(slice(2, 7), (9,)), 50)
    died = RuntimeError("died")

    def die(self: CommitRun, journal: object, *, sync: bool) -> None:
        self._run()
        raise died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die)
        with pytest.raises(RuntimeError):
            store.apply(commit)
    assert (folder / ".commit").exists()
    assert ingot.open(folder / "a")[...].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]
    assert (folder / ".commit").exists()
    ingot.open(folder / "b", "r+")[0] = 7
    assert not (folder / ".commit").exists()
    assert ingot.open(folder / "a")[...].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]


# Reading changes nothing


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return all files and folders, with their times and content."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        facts = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        digest = hashlib.sha256(data).hexdigest()
        found[str(path)] = facts.st_mtime_ns, facts.st_ctime_ns, digest
    return found


@pytest.mark.parametrize("journal", [False, True])
def test_mode_r_changes_nothing(tmp_path: Path, kernel: str, journal: bool) -> None:
    folder = tmp_path / "table"
    filled(folder, {"a": design(requested(9)), "b": design(requested(9, "S3"))}, rows=9)
    if journal:
        os.link(folder / "a/data/__0.blp", folder / "a/data/.g-1-__0.blp")
    before = tree(folder)
    for name in ("a", "b"):
        array = ingot.open(folder / name)
        assert array.shape == (9,)
        array[...], array[3:5], array[[1, 2]], array.sum() if name == "a" else None
        dict(array.attrs)
        for change in (
            lambda array=array: array.resize(4),
            lambda array=array: array.append(array[:1]),
            lambda array=array: array.__setitem__(0, array[1]),
            lambda array=array: array.attrs.update(x=1),
        ):
            with pytest.raises(ingot.errors.ReadOnlyError):
                change()
    open_table(LocalStore(folder))
    assert tree(folder) == before


def died_in_the_middle(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            ingot.open(folder, "r+").update(slice(2), {"a": 70, "b": b"new"})


LEFT: dict[str, Callable[[Path], None]] = {
    "nothing": lambda folder: None,
    "no lock": lambda folder: (folder / ".lock").unlink(),
    "a journal": died_in_the_middle,
    "a staged value": lambda folder: (folder / "a/data/.g-1-__0.blp").write_bytes(b"x"),
}


@pytest.mark.parametrize("left", LEFT)
def test_mode_r_changes_nothing_of_a_table(tmp_path: Path, kernel: str, left: str) -> None:
    folder = tmp_path / "table"
    schema = {
        "a": design(requested(9)),
        "b": design(requested(9, "S3")),
        "n": {"x": design(requested(9))},
    }
    filled(folder, schema, rows=9)
    LEFT[left](folder)
    before = tree(folder)
    table = ingot.open(folder)
    assert len(table) == 9
    assert table["a"][0] == (70 if left == "a journal" else 1)
    table.read(), table.read("a", where="a > 3"), list(table), table[2:4], table.to_numpy()
    table.where("n.x > 3").count(), str(table.info), table._repr_html_(), dict(table.attrs)
    table.shard(2, tmp_path / "shards")
    with table.snapshot():
        table.read()
    table.refresh()
    for change in (
        lambda: table.append(table[:1]),
        lambda: table.update("a > 1", {"a": 5}),
        lambda: table.delete([1]),
        lambda: table.resize(4),
        lambda: table.add_column("c", np.zeros(9)),
        lambda: table.drop_column("a"),
        lambda: table.rename_column("a", "c"),
        lambda: table.attrs.update(x=1),
        lambda: table["a"].__setitem__(0, 1),
        lambda: table["n"].drop_column("x"),
        lambda: table.transaction().__enter__(),
        lambda: table.appender(),
    ):
        with pytest.raises(ingot.errors.ReadOnlyError):
            change()
    table.close()
    assert tree(folder) == before


@pytest.mark.parametrize(
    "dtype", [[("a", "<i4", (2,)), ("b", "<f8")], [("a", [("b", "<i4", (2, 3))])]]
)
def test_structures_with_arrays_are_refused_before_anything_is_written(
    dtype: Any, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="fields that are arrays"):
        ingot.array(np.zeros(10, dtype), tmp_path / "a", format="bcolz")
    assert not list(tmp_path.iterdir())


def test_all_shards_and_all_old_columns_are_read_together() -> None:
    store = CountingStore()
    ingot.table({"a": np.arange(40), "b": np.arange(40.0)}, MemoryStore(), chunks=4).shard(5, store)
    store.reset()
    assert ingot.open(store)["a"][39] == 39  # type: ignore[index]
    # The document of all, those of the shards, those of their columns; a chunk.
    assert (store.batches, store.listings) == (4, 0)
    whole = MemoryStore()
    ingot.table({name: [1, 2] for name in "abcdef"}, whole, format="bcolz")
    inside = {f"data/{key}" if "/" in key else key: data for key, data in content(whole).items()}
    old = CountingStore(inside)
    assert open_table(old).names == tuple("abcdef")
    assert (old.batches, old.listings) == (3, 0)
