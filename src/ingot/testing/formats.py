"""The contract of formats: tests that the author of a format runs against it.

The tests use the public API and the contract of `ingot.formats.format`; they know no format. Needs
pytest (the extra `test`).
"""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import api
from ingot.containers.array import Array
from ingot.containers.create import ArraySpec
from ingot.containers.group import Group
from ingot.containers.ragged import Ragged
from ingot.containers.table import Table
from ingot.dtypes import NULLABLE_TEXT
from ingot.engine import changes
from ingot.engine.payload import engine_of
from ingot.errors import (
    ExistsError,
    IngotError,
    NotFoundError,
    ReadOnlyError,
    SelectionError,
    UnsupportedError,
)
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    DocumentFormat,
    EnclosingFormat,
    Format,
    GroupFormat,
    GroupNode,
    Kind,
    Node,
    RaggedFormat,
    RaggedNode,
    SequenceFormat,
    TableFormat,
    TableNode,
)
from ingot.formats.paths import prefix
from ingot.formats.registry import FORMATS, FormatEntry, list_formats
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import (
    Commit,
    Delete,
    Extent,
    Feature,
    FileStore,
    LocalStore,
    MemoryStore,
    Put,
    Store,
    ZipStore,
)
from ingot.testing.counting import CountingStore
from ingot.testing.limited import LimitedStore

__all__ = ["FormatContract"]

Place: TypeAlias = Path | Store
"""What `ingot.open` takes for the same dataset again and again."""

_OPTIONS: Final = Options(durability="process")
_PLAIN: Final = "<f8"
_MOST_BATCHES: Final = 3
_ATTRS: Final = {"units": "m", "scale": 0.5, "levels": [1, 2, 3], "nested": {"a": None}}

# Names, and how they change the bytes of a marker.
_DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "junk": lambda data: b"\x93\xff\x00 not a document \x80",
    "list": lambda data: b"[]",
    "number": lambda data: b"42",
    "text": lambda data: b'"text"',
    "null": lambda data: b"null",
    "object": lambda data: b"{}",
}

# Shape, and rows of a chunk: no axes, no rows, one chunk, edge chunks, several axes, empty axes.
_SHAPES: Final[tuple[tuple[tuple[int, ...], int | None], ...]] = (
    ((), None),
    ((0,), 4),
    ((1,), None),
    ((8,), 4),
    ((10,), 4),
    ((10, 3), 4),
    ((5, 2, 3), 2),
    ((0, 3), 2),
    ((3, 0), 2),
)

_FILLS: Final[tuple[tuple[str, object], ...]] = (
    ("<i4", -7),
    ("|b1", True),
    ("<f8", float("nan")),
    ("<f4", -0.0),
    ("<f8", float("-inf")),
    ("|S4", b"ab"),
    ("<U3", "äb"),
    ("<M8[s]", np.datetime64("NaT")),
)


class FormatContract:
    """What every format must do. Subclass it and name the format, which must be registered.

    A format may refuse a shape, a type, a fill value or an operation that it cannot store. It then
    raises `UnsupportedError`, and nothing is written; the tests accept that, except for the
    plainest arrays. Parts that do not apply to what the format holds are skipped.

    >>> class TestZarr3(FormatContract):
    ...     format = "zarr3"
    """

    format: ClassVar[str]
    """The name of the format."""
    dtypes: ClassVar[tuple[str, ...]] = (
        *("|b1", "|i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c16"),
        *("|S5", "<U4", "<M8[ns]", "<m8[s]", "|V3"),
    )
    """The types that arrays are made of; a format may refuse some."""

    @pytest.fixture
    def entry(self) -> FormatEntry:
        """Return the entry of the format."""
        return FORMATS.entries[self.format]

    @pytest.fixture
    def loaded(self) -> Format:
        """Return the format itself."""
        return FORMATS[self.format]

    @pytest.fixture(params=["memory", "local", "zip", "no PATCH", "no RENAME", "no LIST"])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
        """Return an empty place: a store in memory, a path, or the path of an archive.

        Some stores lack a feature, as stores of objects do.
        """
        if request.param == "local":
            return tmp_path / "dataset"
        if request.param.startswith("no "):
            return LimitedStore(Feature[request.param.removeprefix("no ")])
        return MemoryStore() if request.param == "memory" else tmp_path / "dataset.zip"

    # The entry

    def test_the_class_agrees_with_the_entry(self, entry: FormatEntry, loaded: Format) -> None:
        assert isinstance(loaded, Format)
        assert (loaded.name, loaded.holds) == (entry.name, entry.holds)
        assert entry.name == self.format
        assert entry.is_folder or entry.is_file
        assert isinstance(loaded, DocumentFormat) == bool(entry.documents)
        assert isinstance(loaded, EnclosingFormat) == bool(entry.encloses)
        assert isinstance(loaded, TableFormat) == (Kind.TABLE in entry.holds)
        assert isinstance(loaded, GroupFormat) == (Kind.GROUP in entry.holds)
        assert isinstance(loaded, RaggedFormat) == (Kind.RAGGED in entry.holds)

    def test_what_the_entry_names_can_be_loaded(self, entry: FormatEntry) -> None:
        assert entry.load().name == self.format
        assert not entry.matches_file(bytes(entry.head), bytes(entry.tail))
        assert not entry.matches_folder(MemoryStore(), "")

    def test_the_format_is_listed(self, entry: FormatEntry) -> None:
        kinds = tuple(str(kind.name).lower() for kind in entry.holds)
        assert list_formats()[self.format] == kinds

    def test_suffixes_belong_to_one_format(self, entry: FormatEntry) -> None:
        for suffix in entry.suffixes:
            assert suffix.startswith(".")
            having = [each.name for each in FORMATS.entries.values() if suffix in each.suffixes]
            assert having == [self.format]

    # What a format cannot hold

    def test_other_kinds_are_refused_before_anything_is_written(self, entry: FormatEntry) -> None:
        makers: dict[Kind, Callable[[Store], object]] = {
            Kind.ARRAY: lambda store: api.array([1, 2], store, format=self.format),
            Kind.TABLE: lambda store: api.table({"a": [1, 2]}, store, format=self.format),
            Kind.RAGGED: lambda store: api.ragged(["a"], store, format=self.format),
            Kind.GROUP: lambda store: api.group(store, format=self.format),
        }
        for kind, make in makers.items():
            if kind in entry.holds:
                continue
            store = MemoryStore()
            with pytest.raises(UnsupportedError, match=self.format):
                make(store)
            assert _content(store) == {}

    def test_unknown_settings_are_refused_before_anything_is_written(
        self, place: Place, entry: FormatEntry
    ) -> None:
        make: Callable[..., object] = partial(_make, place)
        if Kind.ARRAY not in entry.holds:
            make = partial(api.table, _columns(3), place)
        if not entry.holds & (Kind.ARRAY | Kind.TABLE):
            make = partial(api.ragged, ["a"], place)
        with pytest.raises(TypeError, match="no_such_setting"):
            make(format=self.format, no_such_setting=1)
        assert _content(place) == {}

    # Detection

    def test_content_decides_the_format(self, place: Place, entry: FormatEntry) -> None:
        for make in self._makers(entry):
            made = make(place)
            assert made.format == self.format
            assert _open(place).format == self.format
            assert _open(place, format=self.format).format == self.format
            _clear(place)

    def test_what_exists_is_not_replaced(self, place: Place, entry: FormatEntry) -> None:
        for make in self._makers(entry):
            make(place)
            before = _content(place)
            with pytest.raises(ExistsError):
                make(place)
            assert _content(place) == before
            _clear(place)

    def test_an_empty_place_holds_nothing(self, place: Place) -> None:
        with pytest.raises(NotFoundError):
            _open(place, format=self.format)

    @pytest.mark.parametrize("damage", _DAMAGES)
    def test_damaged_markers_give_errors_that_name_the_place(
        self, place: Place, entry: FormatEntry, damage: str
    ) -> None:
        damaged = 0
        for make in self._makers(entry):
            make(place)
            content = _content(place)
            for marker in entry.markers or content:
                if marker in content:
                    _write(place, {marker: _DAMAGES[damage](content[marker])})
                    for said in (None, self.format):
                        _assert_refused(place, said, marker)
                    _write(place, {marker: content[marker]})
                    damaged += 1
            _clear(place)
        assert damaged

    def test_lost_markers_give_errors(self, place: Place, entry: FormatEntry) -> None:
        for make in self._makers(entry):
            make(place)
            content = _content(place)
            present = [marker for marker in entry.markers or content if marker in content]
            assert present
            _delete(place, present)
            with pytest.raises(IngotError):
                _open(place, format=self.format)
            _clear(place)

    def test_documents_say_what_opening_finds(self, entry: FormatEntry, loaded: Format) -> None:
        if not isinstance(loaded, DocumentFormat):
            pytest.skip("the format is opened as a whole")
        for make in self._makers(entry):
            store = MemoryStore()
            make(store)
            content = _content(store)
            group = next(names for names in entry.documents if names[0] in content)
            documents = {name: content.get(name) for name in group}
            found = loaded.from_documents(store, "", documents)
            assert found is not None
            assert _described(found) == _described(loaded.open(store))
            assert loaded.from_documents(store, "", {}) is None

    # Arrays

    @pytest.mark.parametrize(("shape", "rows"), _SHAPES)
    def test_shapes_come_back(
        self, place: Place, entry: FormatEntry, shape: tuple[int, ...], rows: int | None
    ) -> None:
        _need(entry, Kind.ARRAY)
        values = _values(shape, np.dtype(_PLAIN))
        array = _accepted(place, lambda: _make(place, self.format, values, chunks=rows or "auto"))
        if array is None:
            assert len(shape) != 1 or 0 in shape, "every format holds arrays of one axis"
            return
        for each in (array, _open(place)):
            assert (each.shape, each.dtype, each.ndim) == (shape, values.dtype, len(shape))
            assert _same(each[...], values)
        if shape and rows is not None:
            assert _open(place).chunks[0] == rows

    def test_types_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.ARRAY)
        held = 0
        for name in self.dtypes:
            values = _values((7, 2), np.dtype(name))
            made = _accepted(place, partial(_make, place, self.format, values, chunks=3))
            if made is not None:
                found = _open(place)
                assert found.dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
                assert _same(found[...], values)
                assert _same(found[2:5, 1], values[2:5, 1])
                held += 1
            _clear(place)
        assert held, "a format holds arrays of some type"

    @pytest.mark.parametrize(("dtype", "fill"), _FILLS)
    def test_fill_values_come_back(self, entry: FormatEntry, dtype: str, fill: object) -> None:
        _need(entry, Kind.ARRAY)
        store = MemoryStore()
        settings = {"shape": (10,), "dtype": dtype, "chunks": 4, "fill": fill}
        made = _accepted(store, lambda: _create(store, self.format, **settings))
        if made is None:
            return
        expected = np.full(10, fill, dtype)
        for array in (made, api.open(store)):
            assert isinstance(array, Array)
            assert _same(np.asarray(array.fill, dtype), np.asarray(fill, dtype))
            assert _same(array[...], expected)

    def test_assignments_are_stored(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.ARRAY)
        expected = _values((10, 3), np.dtype(_PLAIN))
        _make(place, self.format, expected, chunks=4)
        with _open(place, "r+") as array:
            for key, value in (
                (3, -1.0),
                ((slice(2, 9), 1), 7.5),
                ((slice(None, None, 3), slice(1, None)), np.arange(8.0).reshape(4, 2)),
                ([1, 8], 0.0),
            ):
                array[key] = value
                expected[key] = value
                assert _same(array[...], expected)
                assert _same(_open(place)[...], expected)

    def test_rows_are_appended(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.ARRAY)
        values = _values((10, 3), np.dtype(_PLAIN))
        _make(place, self.format, values, chunks=4)
        more = values[:7] + 100

        def append() -> Array:
            array: Array = _open(place, "r+")
            array.append(more)
            return array

        appended = _unless_unsupported(place, append)
        if appended is None:
            return
        expected = np.concatenate([values, more])
        assert appended.shape == _open(place).shape == (17, 3)
        assert _same(_open(place)[...], expected)

    @pytest.mark.parametrize("rows", [0, 1, 6, 8, 11, 25])
    def test_arrays_are_resized(self, entry: FormatEntry, rows: int) -> None:
        _need(entry, Kind.ARRAY)
        store, values = MemoryStore(), _values((10, 2), np.dtype(_PLAIN))
        _make(store, self.format, values, chunks=4, fill=5)

        def resize() -> Array:
            array: Array = _open(store, "r+")
            array.resize((rows, 2))
            return array

        if _unless_unsupported(store, resize) is None:
            return
        expected = np.full((rows, 2), 5.0)
        expected[: min(rows, 10)] = values[:rows]
        assert _same(_open(store)[...], expected)
        # What was cut off stays away.
        with _open(store, "r+") as array:
            array.resize((12, 2))
        again = np.full((12, 2), 5.0)
        again[: min(rows, 12)] = expected[:12]
        assert _same(_open(store)[...], again)

    def test_attributes_come_back(self, place: Place, entry: FormatEntry) -> None:
        for make in self._makers(entry):
            make(place)
            with _open(place, "r+") as dataset:
                assert dict(dataset.attrs) == {}
                dataset.attrs.update(_ATTRS)
                assert dict(dataset.attrs) == _ATTRS
            with _open(place, "r+") as dataset:
                assert dict(dataset.attrs) == _ATTRS
                del dataset.attrs["nested"]
                dataset.attrs["units"] = "km"
            rest = {name: value for name, value in _ATTRS.items() if name != "nested"}
            assert dict(_open(place).attrs) == {**rest, "units": "km"}
            _clear(place)

    # Reading only

    def test_reading_writes_nothing(self, tmp_path: Path, entry: FormatEntry) -> None:
        for number, make in enumerate(self._makers(entry)):
            place = tmp_path / str(number)
            make(place)
            before = _files(place)
            dataset = _open(place)
            _read_all(dataset)
            with pytest.raises(ReadOnlyError):
                dataset.attrs["units"] = "m"
            if isinstance(dataset, Array):
                with pytest.raises(ReadOnlyError):
                    dataset[0] = 1
                with pytest.raises(ReadOnlyError):
                    dataset.resize((1, *dataset.shape[1:]))
            if isinstance(dataset, Table):
                with pytest.raises(ReadOnlyError):
                    dataset.append({name: [1] for name in dataset.names})
            if isinstance(dataset, Ragged):
                with pytest.raises(ReadOnlyError):
                    dataset.append(["more"])
                with pytest.raises(ReadOnlyError):
                    dataset.resize(1)
                with pytest.raises(ReadOnlyError):
                    dataset.delete(0)
                with pytest.raises(ReadOnlyError):
                    dataset[0] = "other"
            dataset.close()
            assert _files(place) == before

    # Commits

    def test_commits_are_values_and_stay_below_the_path(
        self, entry: FormatEntry, loaded: Format
    ) -> None:
        _need(entry, Kind.ARRAY)
        for path in ("", "a/b") if entry.is_folder else ("data", "a/data"):
            store = MemoryStore()
            schema = ArraySpec((10, 2), _PLAIN, 4).schema(loaded)
            try:
                node, commit = loaded.create(store, schema, path)
            except UnsupportedError:
                assert "/" in path, "every format holds an array at the root of a store"
                continue
            assert _content(store) == {}, "a commit is only applied by a store"
            _assert_below(commit, path, above=isinstance(loaded, GroupFormat))
            store.apply(commit)
            assert isinstance(node, ArrayNode)
            encoded = schema.chain.encode(np.zeros(schema.grid.stored_shape((0, 0)), _PLAIN))
            chunks = node.chunks
            if schema.flat is not None:
                # All chunks are stored, and the map of a new array knows no places.
                data = changes.filled(engine_of(chunks, Options()))
                _assert_below(data, path)
                store.apply(data)
                chunks = chunks.reopened(store)
            for build in _changes(chunks, encoded):
                before = _content(store)
                try:
                    commit = build()
                except UnsupportedError:
                    continue
                assert _content(store) == before
                assert commit.edits
                _assert_below(commit, path)

    def test_maps_name_the_documents_they_were_read_from(
        self, entry: FormatEntry, loaded: Format
    ) -> None:
        _need_folder(entry)
        for make in self._makers(entry):
            store = MemoryStore()
            make(store)
            documents = _documents(loaded.open(store))
            assert documents
            assert documents == {key: _content(store).get(key) for key in documents}

    def test_changed_maps_name_the_documents_that_they_write(
        self, entry: FormatEntry, loaded: Format
    ) -> None:
        _need_folder(entry)
        _need(entry, Kind.ARRAY)
        store = MemoryStore()
        node, commit = loaded.create(store, ArraySpec((10, 2), _PLAIN, 4).schema(loaded))
        assert isinstance(node, ArrayNode)
        store.apply(commit)
        chunks = node.chunks
        assert chunks.documents == _documents(loaded.open(store))
        for shape in (None, (4, 2), (0, 2), (7, 2)):
            try:
                change = chunks.described(_ATTRS) if shape is None else chunks.resized(shape)
            except UnsupportedError:
                continue
            chunks, commit = change
            store.apply(commit)
            assert chunks.documents == _documents(loaded.open(store))

    def test_a_writer_sees_what_another_program_has_changed(
        self, tmp_path: Path, entry: FormatEntry
    ) -> None:
        _need_folder(entry)
        for number, make in enumerate(self._makers(entry)):
            place = tmp_path / str(number)
            make(place)
            shutil.copytree(place, tmp_path / f"{number}-theirs")
            with _open(tmp_path / f"{number}-theirs", "r+") as other:
                other.attrs["theirs"] = 1
            with _open(place, "r+") as stale:
                assert dict(stale.attrs) == {}
                # A program that does not know the lock writes files without a new version.
                for key, data in _content(tmp_path / f"{number}-theirs").items():
                    (place / key).write_bytes(data)
                stale.attrs["ours"] = 2
            assert dict(_open(place).attrs) == {"theirs": 1, "ours": 2}

    def test_removing_leaves_nothing(self, entry: FormatEntry, loaded: Format) -> None:
        for make in self._makers(entry):
            store = MemoryStore()
            make(store).attrs["units"] = "m"
            assert _content(store)
            node = loaded.open(store, "" if entry.is_folder else next(iter(_content(store))))
            if isinstance(node, ArrayNode):
                store.apply(node.chunks.removed())
            elif isinstance(node, TableNode):
                store.apply(node.table.removed())
            elif isinstance(node, RaggedNode):
                store.apply(node.packs.removed())
            else:
                assert isinstance(loaded, GroupFormat)
                store.apply(loaded.removed(store, ""))
            assert _content(store) == {}

    def test_datasets_are_replaced_on_request(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.ARRAY)
        _make(place, self.format, _values((10, 3), np.dtype(_PLAIN)), chunks=2)
        _make(place, self.format, np.arange(3, dtype="<i4"), overwrite=True)
        assert _same(_open(place)[...], np.arange(3, dtype="<i4"))
        with_less = _content(place)
        _clear(place)
        _make(place, self.format, np.arange(3, dtype="<i4"))
        assert set(_content(place)) == set(with_less)

    # Tables

    def test_tables_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE)
        columns = _columns(10)
        table = api.table(columns, place, chunks=4, format=self.format, options=_OPTIONS)
        for each in (table, _open(place)):
            assert isinstance(each, Table)
            assert each.names == tuple(columns)
            assert len(each) == 10
            for name, values in columns.items():
                assert _same(each[name][...], values)
            assert each.read("b", where="a >= 3")["b"].tolist() == columns["b"][3:].tolist()

    def test_tables_without_rows_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE)
        api.table(_columns(0), place, format=self.format, options=_OPTIONS)
        found = _open(place)
        assert (len(found), found.names) == (0, tuple(_columns(0)))
        assert found.dtypes == {name: values.dtype for name, values in _columns(0).items()}

    def test_tables_change_as_one(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE)
        columns = _columns(10)
        more = {**_columns(5), "a": np.arange(100, 105)}
        api.table(columns, place, chunks=4, format=self.format, options=_OPTIONS)
        with _open(place, "r+") as table:
            table.append(more)
            table.update("a < 2", {"b": [-1.0, -2.0]})
            table.resize(12)
        expected = {name: np.concatenate([columns[name], more[name]])[:12] for name in columns}
        expected["b"][:2] = [-1.0, -2.0]
        found = _open(place)
        assert len(found) == 12
        for name, values in expected.items():
            assert _same(found[name][...], values)

    def test_columns_come_and_go(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE)
        columns = _columns(10)
        api.table(columns, place, chunks=4, format=self.format, options=_OPTIONS)
        with _open(place, "r+") as table:
            table.add_column("d", np.arange(10))
            table.rename_column("a", "first")
            table.drop_column("c")
        found = _open(place)
        assert found.names == ("first", "b", "d")
        assert _same(found["first"][...], columns["a"])
        assert _same(found["d"][...], np.arange(10))
        assert not any(key.startswith(("a/", "c/")) for key in _content(place))

    # Columns of variable-length items

    def test_variable_length_items_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        columns = _items(10)
        table = api.table(columns, place, chunks=4, format=self.format, options=_OPTIONS)
        for each in (table, _open(place)):
            assert each.names == tuple(columns)
            assert [str(each[name].kind) for name in _KINDS] == list(_KINDS.values())
            assert each.dtypes["text"] == NULLABLE_TEXT
            assert each.dtypes["json"] == each.dtype["text"] == np.dtype(object)
            _assert_items(each, columns)
            assert _plain(each["text"][[7, 2, 2]]) == [columns["text"][row] for row in (7, 2, 2)]
            assert _plain(each["data"][::-3]) == columns["data"][::-3]
            assert each["text"][-1] == columns["text"][-1]
            assert _plain([row["rows"] for row in each]) == columns["rows"]
            assert len(repr(each.info)) > 0
            assert each.stored_bytes > 0

    def test_tables_without_items_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        made = api.table(_items(1), place, format=self.format, options=_OPTIONS)
        made.resize(0)
        _assert_items(_open(place), {name: [] for name in _items(1)})
        made.append(_items(3))
        _assert_items(_open(place), _items(3))

    def test_variable_length_items_change_as_one(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        expected, more = _items(10), _items(7)
        api.table(expected, place, chunks=4, format=self.format, options=_OPTIONS)
        with _open(place, "r+") as table:
            table.append(more)
            expected = {name: [*expected[name], *more[name]] for name in expected}
            _assert_items(table, expected)
            _assert_items(_open(place), expected)
            found = [row for row, text in enumerate(expected["text"]) if text == "item 5"]
            changed = {"text": None, "json": {"now": [1, None]}, "rows": [9.5], "data": b"\0"}
            assert table.update("text == 'item 5'", changed) == len(found) == 2
            for name, value in changed.items():
                for row in found:
                    expected[name][row] = value
            table.update([3, 1], {"text": ["ä" * 100, ""], "rows": [[], None]})
            expected["text"][3], expected["text"][1] = "ä" * 100, ""
            expected["rows"][3], expected["rows"][1] = [], None
            table["json"][-1] = "last"
            expected["json"][-1] = "last"
            _assert_items(table, expected)
            _assert_items(_open(place), expected)
            assert table.delete([0, 5, 6, 16]) == 4
            expected = {
                name: [each for row, each in enumerate(values) if row not in (0, 5, 6, 16)]
                for name, values in expected.items()
            }
            _assert_items(table, expected)
            table.resize(15)
            nulls = {**dict.fromkeys(_KINDS, None), "number": 0}
            expected = {name: [*expected[name], nulls[name], nulls[name]] for name in expected}
            _assert_items(table, expected)
            table.resize(6)
            expected = {name: values[:6] for name, values in expected.items()}
        _assert_items(_open(place), expected)

    def test_transactions_carry_variable_length_items(
        self, place: Place, entry: FormatEntry
    ) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        before = _items(6)
        api.table(before, place, chunks=4, format=self.format, options=_OPTIONS)
        table, reader = _open(place, "r+"), _open(place)
        with suppress(ZeroDivisionError), table.transaction():
            table.append(_items(3))
            table.update(slice(None), {"text": "gone"})
            raise ZeroDivisionError
        _assert_items(table, before)
        after = {name: [*values, *_items(3)[name]][1:] for name, values in before.items()}
        after["text"] = ["new", *after["text"][1:]]
        with table.transaction():
            table.append(_items(3))
            table.delete(0)
            table["text"][0] = "new"
            _assert_items(table, after)
        _assert_items(table, after)
        _assert_items(reader, after)
        _assert_items(_open(place), after)

    def test_columns_of_variable_length_items_come_and_go(
        self, place: Place, entry: FormatEntry
    ) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        items = _items(9)
        inner = {"number": items["number"], "deep": {"text": items["text"], "rows": items["rows"]}}
        api.table(inner, place, chunks=4, format=self.format, options=_OPTIONS)
        attrs = {"units": "m"}
        with _open(place, "r+") as table:
            try:
                table.add_column("data", items["data"], chunks=2, attrs=attrs)
            except UnsupportedError:  # The columns of some formats have no attributes.
                table.add_column("data", items["data"], chunks=2)
                attrs = {}
            table.add_column("deep.json", items["json"])
            table.rename_column("deep.text", "deep.words")
            table.drop_column("deep.rows")
        found = _open(place)
        assert found.names == ("number", "deep", "data")
        assert found["deep"].names == ("words", "json")
        assert dict(found["data"].attrs) == attrs
        for name, own in (("deep.words", "text"), ("deep.json", "json"), ("data", "data")):
            assert _plain(found[name][:]) == items[own]
        read = found.read("deep.words", where="number >= 7")["deep.words"]
        assert _plain(read) == items["text"][7:]
        gone = ("deep/text/", "deep/rows/")
        assert not any(key.startswith(gone) for key in _content(place))
        with _open(place, "r+") as table:
            table.rename_column("deep", "inner")
            table.append({"number": [9], "inner": {"words": [None], "json": [7]}, "data": [b""]})
        found = _open(place)
        assert _plain(found["inner.words"]) == [*items["text"], None]
        assert _plain(found["inner.json"]) == [*items["json"], 7]
        assert not any(key.startswith("deep/") for key in _content(place))

    # Items on their own

    @pytest.mark.parametrize("kind", ["text", "data", "json", "rows"])
    def test_sequences_come_back(self, place: Place, entry: FormatEntry, kind: str) -> None:
        _need_sequence(entry)
        items = _items(40)[kind]
        made = self._ragged(place, items, kind=_KINDS[kind])
        for each in (made, _open(place)):
            assert isinstance(each, Ragged)
            assert (len(each), str(each.kind)) == (40, _KINDS[kind])
            assert _plain(each) == _plain(each[...]) == _plain(each.read()) == items
            assert _plain(each.items().to_list()) == items
            for key in (slice(3, 30), slice(None, None, -7), slice(5, 5)):
                assert _plain(each[key]) == items[key]
            for row in (0, 7, -1, -40):
                assert _plain([each[row]]) == [items[row]]
            assert _plain(each[[7, 2, 2, -1]]) == [items[row] for row in (7, 2, 2, -1)]
            mask = np.arange(40) % 3 == 1
            assert _plain(each[mask]) == items[1::3]
            with pytest.raises(IndexError):
                each[40]
            assert len(repr(each.info)) > 0
            assert each._repr_html_()
            assert each.stored_bytes > 0
            assert each.explain(3).chunks == 1

    def test_sequences_without_items_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need_sequence(entry)
        made = self._ragged(place, [], kind="utf8")
        for each in (made, _open(place)):
            assert (len(each), list(each), each[:].tolist(), each.kind) == (0, [], [], "utf8")
        made.append(["a", None])
        assert list(_open(place)) == ["a", None]
        made.resize(0)
        assert list(_open(place)) == []

    @pytest.mark.parametrize("kind", ["text", "data", "json", "rows"])
    def test_sequences_change_as_lists_do(
        self, place: Place, entry: FormatEntry, kind: str
    ) -> None:
        _need_sequence(entry)
        expected, more = _items(20)[kind], _items(30)[kind]
        self._ragged(place, expected, kind=_KINDS[kind])
        with _open(place, "r+") as items:

            def check() -> None:
                assert _plain(items) == expected
                assert _plain(_open(place)) == expected
                assert len(items) == len(expected)

            items.append(more[:1])
            items.extend(iter(more))
            expected = [*expected, *more[:1], *more]
            check()
            items[3] = expected[3] = more[8]
            items[-1] = expected[-1] = None
            check()
            items[10:20] = more[:10]
            expected[10:20] = more[:10]
            items[[0, 30]] = None
            expected[0] = expected[30] = None
            check()
            assert items.delete(slice(5, 25)) == 20
            del expected[5:25]
            assert items.delete([0, -1]) == 2
            expected = expected[1:-1]
            check()
            items.resize(len(expected) + 5)
            expected += [None] * 5
            check()
            items.resize(4)
            del expected[4:]
            check()
            with pytest.raises(ValueError, match="item 1"):
                items.append([None, object()])
            check()

    def test_transactions_carry_sequences(self, place: Place, entry: FormatEntry) -> None:
        _need_sequence(entry)
        before = _items(9)["text"]
        self._ragged(place, before, kind="utf8")
        items, reader = _open(place, "r+"), _open(place)
        with suppress(ZeroDivisionError), items.transaction():
            items.append(["gone"])
            items[0] = "gone"
            raise ZeroDivisionError
        assert list(items) == before
        with items.transaction():
            items.append(["new"])
            items.delete(0)
            items.attrs["units"] = "m"
            items[0] = "first"
            after = ["first", *before[2:], "new"]
            assert list(items) == after
            assert list(reader) == before
        assert list(items) == list(reader) == list(_open(place)) == after
        assert dict(reader.attrs) == {"units": "m"}

    def test_sequences_are_replaced_on_request(self, place: Place, entry: FormatEntry) -> None:
        _need_sequence(entry)
        self._ragged(place, _items(30)["text"], kind="utf8")
        self._ragged(place, [b"only"], kind="bytes", overwrite=True)
        assert list(_open(place)) == [b"only"]

    def test_a_reader_beside_a_writer_of_a_sequence_sees_committed_states(
        self, entry: FormatEntry, tmp_path: Path
    ) -> None:
        _need_sequence(entry)
        for place in (tmp_path / "items", MemoryStore()):
            self._ragged(place, ["0"] * 9, kind="utf8")
            errors: list[BaseException] = []

            def write(place: Place = place, errors: list[BaseException] = errors) -> None:
                try:
                    with _open(place, "r+") as items:
                        for state in range(1, 13):
                            with items.transaction():
                                items.append([None])
                                items[:] = str(state) * state
                except BaseException as error:
                    errors.append(error)

            writer = threading.Thread(target=write)
            writer.start()
            reader = _open(place)
            last = False
            while not last:
                # The read that begins after the writer has ended sees the last state.
                last = not writer.is_alive()
                found = reader[...].tolist()
                state = len(found) - 9
                assert set(found) == {str(state) * max(1, state)}
            writer.join()
            assert not errors
            assert state == 12

    def _ragged(self, place: Place, items: list[Any], **settings: Any) -> Ragged:
        return api.ragged(items, place, format=self.format, options=_OPTIONS, **settings)

    def test_expressions_compare_text(self, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        words: list[Any] = ["bee", None, "ape", "", "beer", "bé", "zz", "b"]
        data = [None if word is None else word.encode() for word in words]
        columns = {"word": words, "data": data, "number": np.arange(8)}
        table = api.table(columns, MemoryStore(), chunks=3, format=self.format)
        for expression, expected in (
            ("word == 'bee'", [0]),
            ("word != 'bee'", [2, 3, 4, 5, 6, 7]),
            ("word < 'bee'", [2, 3, 7]),
            ("'bee' <= word", [0, 4, 5, 6]),
            ("word in ('bee', '', 'no')", [0, 3]),
            ("word not in ('bee', '')", [1, 2, 4, 5, 6, 7]),
            ("isnull(word)", [1]),
            ("not isnull(word) and number > 4", [5, 6, 7]),
            ("startswith(word, 'be')", [0, 4]),
            ("endswith(word, 'e')", [0, 2]),
            ("contains(word, 'ee')", [0, 4]),
            ("data > b'bee'", [4, 5, 6]),
            ("data == word", []),
        ):
            if expression == "data == word":
                with pytest.raises(SelectionError, match="cannot be compared"):
                    table.where(expression)
                continue
            view = table.where(expression)
            assert view.rows().tolist() == expected, expression
            assert _plain(view["word"]) == [words[row] for row in expected]
            assert view.count() == len(expected)
        for wrong in ("word == 1", "word + 1 > 2", "word", "isnan(word)", "word and number > 1"):
            with pytest.raises(SelectionError):
                table.where(wrong)

    def test_a_reader_beside_a_writer_of_items_sees_committed_states(
        self, entry: FormatEntry, tmp_path: Path
    ) -> None:
        _need(entry, Kind.TABLE | Kind.RAGGED)
        for place in (tmp_path / "table", MemoryStore()):
            rows = {"number": np.zeros(9, np.int64), "text": ["0"] * 9}
            api.table(rows, place, chunks=4, format=self.format, options=_OPTIONS)
            errors: list[BaseException] = []

            def write(place: Place = place, errors: list[BaseException] = errors) -> None:
                try:
                    with _open(place, "r+") as table:
                        for state in range(1, 13):
                            text = str(state) * state
                            with table.transaction():
                                table.append({"number": [0], "text": [None]})
                                table.update(slice(None), {"number": state, "text": text})
                except BaseException as error:
                    errors.append(error)

            writer = threading.Thread(target=write)
            writer.start()
            reader = _open(place)
            last = False
            while not last:
                # The read that begins after the writer has ended sees the last state.
                last = not writer.is_alive()
                found = reader.read()
                state = int(found["number"][0])
                assert len(found["text"]) == 9 + state
                assert set(found["number"].tolist()) == {state}
                assert set(_plain(found["text"])) == {str(state) * max(1, state)}
            writer.join()
            assert not errors
            assert state == 12

    # Round trips

    def test_opening_takes_at_most_three_batches(self, entry: FormatEntry) -> None:
        for make in self._makers(entry):
            store = CountingStore()
            make(store)
            for said in (None, self.format):
                store.reset()
                _open(store, format=said)
                assert store.batches <= _MOST_BATCHES
                # Without a marker, a format that knows folders without one lists the store; then
                # the name of a single file is found by another listing.
                assert store.listings <= (0 if entry.is_folder else 2)

    def test_a_nested_table_takes_one_batch_more(self, entry: FormatEntry) -> None:
        _need(entry, Kind.TABLE)
        columns: dict[str, Any] = _columns(6)
        for level in range(4):
            store = CountingStore()
            api.table(columns, store, format=self.format, options=_OPTIONS)
            store.reset()
            _open(store)
            assert store.batches <= _MOST_BATCHES + level
            assert store.listings == 0
            columns = {"left": columns, **_columns(6), "right": columns}

    # Groups

    def test_groups_come_back(self, place: Place, entry: FormatEntry) -> None:
        _need(entry, Kind.GROUP)
        root = api.group(place, format=self.format, attrs={"title": "ours"}, options=_OPTIONS)
        root.array("day/temperature", np.arange(4.0), attrs={"units": "K"})
        root.group("empty")
        found = _open(place)
        assert type(found) is Group
        members: Any = found
        assert (sorted(found), dict(found.attrs)) == (["day", "empty"], {"title": "ours"})
        assert _same(members["day/temperature"][...], np.arange(4.0))
        assert dict(found["day/temperature"].attrs) == {"units": "K"}
        with _open(place, "r+") as group:
            del group["day"]
        assert list(_open(place)) == ["empty"]
        assert not any(key.startswith("day/") for key in _content(place))

    def _makers(self, entry: FormatEntry) -> Iterator[Callable[[Place], Any]]:
        """Yield functions that create a small dataset of each kind that the format holds."""
        if Kind.ARRAY in entry.holds:
            yield lambda place: _make(place, self.format, chunks=4)
        if Kind.TABLE in entry.holds:
            yield lambda place: api.table(
                _columns(6), place, chunks=4, format=self.format, options=_OPTIONS
            )
        if Kind.TABLE | Kind.RAGGED in entry.holds:
            yield lambda place: api.table(
                _items(6), place, chunks=4, format=self.format, options=_OPTIONS
            )
        if _is_sequence(entry):
            yield lambda place: self._ragged(place, _items(6)["text"], kind="utf8")
        if Kind.GROUP in entry.holds:
            yield lambda place: _make_group(place, self.format)


def _make(place: Place, format: str, values: NDArray[Any] | None = None, **settings: Any) -> Any:
    if values is None:
        values = _values((10,), np.dtype(_PLAIN))
    return api.array(values, place, format=format, options=_OPTIONS, **settings)


def _create(place: Place, format: str, **settings: Any) -> Array:
    return api.create(place, format=format, options=_OPTIONS, **settings)


def _make_group(place: Place, format: str) -> Group:
    group = api.group(place, format=format, options=_OPTIONS)
    group.array("a/b", [1, 2, 3])
    return group


def _open(place: Place, mode: Any = "r", **settings: Any) -> Any:
    return api.open(place, mode, options=_OPTIONS, **settings)


def _need_folder(entry: FormatEntry) -> None:
    if not entry.is_folder:
        pytest.skip("a single file has no documents apart from its chunks")


def _need(entry: FormatEntry, kind: Kind) -> None:
    if kind not in entry.holds:
        wanted = " and a ".join(str(each.name).lower() for each in kind)
        pytest.skip(f"{entry.name} does not hold a {wanted}")


def _is_sequence(entry: FormatEntry) -> bool:
    """Return whether the format holds variable-length items on their own."""
    return isinstance(FORMATS[entry.name], SequenceFormat)


def _need_sequence(entry: FormatEntry) -> None:
    if not _is_sequence(entry):
        pytest.skip(f"{entry.name} does not hold variable-length items on their own")


def _values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values of a type, different ones as far as the type allows."""
    numbers = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    if dtype.kind in "SU":
        return (numbers % 1000).astype(dtype)
    if dtype.kind == "V":
        return (numbers % 200).astype("<u4").view("V4").astype(dtype)
    if dtype.kind == "b":
        return np.asarray(numbers % 3 == 0)
    values: NDArray[Any] = (numbers % 100).astype(dtype)
    return values


def _columns(rows: int) -> dict[str, NDArray[Any]]:
    numbers = np.arange(rows)
    return {"a": numbers, "b": numbers * 1.5, "c": (numbers % 7).astype("S3")}


_KINDS: Final = {"text": "utf8", "data": "bytes", "json": "json", "rows": "float64"}


def _items(rows: int) -> dict[str, list[Any]]:
    """Return columns of all kinds of items, with nulls, empty items and long ones."""
    json: list[Any] = [{"a": [1, "x"]}, None, {"b": {}}, {"c": None, "d": 2.5}, {}]
    lengths = [0, 2, None, 1, 5]
    return {
        "number": list(range(rows)),
        "text": [None if row % 4 == 3 else f"item {row}" for row in range(rows)],
        "data": [None if row == 1 else bytes([row % 256]) * (row % 5) for row in range(rows)],
        "json": [json[row % 5] for row in range(rows)],
        "rows": [
            None if length is None else [row + 0.5] * length
            for row, length in ((row, lengths[row % 5]) for row in range(rows))
        ],
    }


def _plain(values: Any) -> list[Any]:
    """Return items as Python objects; a row of numbers as a list."""
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in values]


def _assert_items(table: Table, expected: dict[str, list[Any]]) -> None:
    """Check that a table holds columns, and that all ways to read them agree."""
    found = table.read()
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert _plain(found[name].tolist()) == values, name
        assert _plain(table[name][...].tolist()) == values, name
    assert len(table) == len(expected["text"])


def _same(found: Any, expected: NDArray[Any]) -> bool:
    """Return whether two arrays hold the same bytes, so that NaN and -0.0 count as well."""
    found = np.asarray(found)
    native = expected.dtype.newbyteorder("=")
    same_type = found.dtype.newbyteorder("=") == native and found.shape == expected.shape
    return bool(same_type) and found.astype(native).tobytes() == expected.astype(native).tobytes()


def _accepted(place: Place, make: Callable[[], Array]) -> Array | None:
    """Return what was made; None when it was refused as unsupported, and nothing was written."""
    try:
        return make()
    except UnsupportedError:
        assert _content(place) == {}
        return None


def _unless_unsupported(place: Place, change: Callable[[], Array]) -> Array | None:
    """Return what a change returns; None when it was refused, and nothing was written."""
    before = _content(place)
    try:
        return change()
    except UnsupportedError:
        assert _content(place) == before
        return None


def _assert_refused(place: Place, format: str | None, marker: str) -> None:
    """Check that opening, or else reading, reports what is wrong with a marker, and where."""
    with pytest.raises(IngotError) as caught:
        _read_all(_open(place, format=format))
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert marker in text or _store(place).location in text, text


def _read_all(dataset: Any) -> None:
    """Read everything that a dataset holds."""
    if isinstance(dataset, Group):
        for member in dataset.values():
            _read_all(member)
    elif isinstance(dataset, Table):
        dataset.read()
    else:
        dataset[...]
    dict(dataset.attrs)


def _changes(chunks: ChunkMap, encoded: bytes) -> Iterator[Callable[[], Commit]]:
    """Yield functions that return the commits by which an array changes."""
    if chunks.schema.flat is None:
        yield lambda: chunks.stage({(0, 0): encoded, (1, 0): None})
        yield lambda: chunks.resized((3, 2))[1]
    else:
        engine = engine_of(chunks, Options())
        yield lambda: engine.assign(parse(slice(1, 5), engine.shape), 7)
        yield lambda: changes.resized(engine, (3, 2)).commit
    yield lambda: chunks.described({"units": "m"})[1]
    yield chunks.removed


def _assert_below(commit: Commit, path: str, *, above: bool = False) -> None:
    """Check that all edits lie below a path; the groups above it may be made along with it."""
    for edit in commit.edits:
        folder = edit.key.rpartition("/")[0]
        below = edit.key == path or edit.key.startswith(prefix(path))
        assert below or (above and path.startswith(prefix(folder))), edit


def _described(node: Node) -> object:
    """Return what a node says of itself, for comparison."""
    if isinstance(node, ArrayNode):
        return type(node.chunks), node.chunks.path, repr(node.chunks.schema)
    if isinstance(node, RaggedNode):
        return type(node.packs), node.packs.path, repr(node.packs.schema)
    if isinstance(node, TableNode):
        columns = {name: _described(column) for name, column in node.columns.items()}
        return type(node.table), node.table.path, dict(node.attrs), columns
    assert isinstance(node, GroupNode)
    return node.path, dict(node.attrs)


def _documents(node: Node) -> dict[str, bytes | None]:
    """Return the documents of a node, with those of columns."""
    if isinstance(node, ArrayNode):
        return dict(node.chunks.documents)
    if isinstance(node, RaggedNode):
        return dict(node.packs.documents)
    if isinstance(node, TableNode):
        columns = [_documents(column) for column in node.columns.values()]
        inner = {key: data for each in columns for key, data in each.items()}
        return {**node.table.documents, **inner}
    assert isinstance(node, GroupNode)
    return dict(node.documents)


def _store(place: Place) -> Store:
    if not isinstance(place, Path):
        return place
    if place.suffix == ".zip":
        return ZipStore(place, writable=True)
    if place.is_file():
        return FileStore(place, writable=True)
    return LocalStore(place, writable=True)


def _content(place: Place) -> dict[str, bytes]:
    """Return all keys of a place with their bytes."""
    store = _store(place)
    keys = store.keys() if isinstance(store, LimitedStore) else list(_keys(store, ""))
    found = store.read([Extent(key) for key in keys])
    return {key: data for key, data in zip(keys, found, strict=True) if data is not None}


def _keys(store: Store, folder: str) -> Iterator[str]:
    for name in store.names(folder, hidden=True):
        if name.endswith("/"):
            yield from _keys(store, folder + name)
        else:
            yield folder + name


def _write(place: Place, content: dict[str, bytes]) -> None:
    _store(place).apply(Commit(publish=tuple(Put(key, data) for key, data in content.items())))


def _delete(place: Place, keys: list[str]) -> None:
    _store(place).apply(Commit(publish=tuple(map(Delete, keys))))


def _clear(place: Place) -> None:
    _delete(place, list(_content(place)))


def _files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return all files below a folder, with their bytes and the times of their last change."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
