"""The map of a Bloscpack file: what its commits write, without the engine."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.errors import CorruptionError, FormatError, LimitError, UnsupportedError
from ingot.formats.bloscpack import metadata
from ingot.formats.bloscpack.array import BloscpackMap, create_array, design, open_array
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import CHECKSUMS
from ingot.formats.format import ArrayNode, Request
from ingot.stores import FileStore, MemoryStore, Store
from ingot.stores.store import Commit, Extent, Grown, Move, Patch, Put, Truncate
from ingot.stores.versions import writing
from tests.unit.formats.bloscpack.test_file import packed

KEY = "a.blp"


def images(chunks: BloscpackMap, payload: bytes, first: int = 0) -> Iterator[tuple[Any, bytes]]:
    """Yield the encoded chunks of a payload from a number on."""
    assert chunks.schema.flat is not None
    size = chunks.schema.flat.chunk_bytes
    for number in range(first, -(-len(payload) // size)):
        part = np.frombuffer(payload[number * size : (number + 1) * size], np.uint8)
        yield (number,), chunks.schema.chain.encode(part)


def created(store: Store, values: NDArray[Any], **settings: Any) -> BloscpackMap:
    """Store an array, and return its map."""
    request = Request(values.shape, values.dtype, np.zeros((), values.dtype)[()], **settings)
    layout = {name: settings.pop(name) for name in ("checksum",) if name in settings}
    node, commit = create_array(store, design(request, **layout), KEY)
    assert isinstance(node.chunks, BloscpackMap)
    with writing(store) as turn:
        data = node.chunks.stage_each(images(node.chunks, values.tobytes()))
        turn.commit(Commit(publish=(*commit.publish, *data.publish)))
    return open_array(store, KEY)


def payload(chunks: BloscpackMap) -> bytes:
    """Return the decoded bytes of all chunks that a map locates."""
    count = len(chunks.addresses())
    located = list(chunks.locate(np.arange(count).reshape(-1, 1)))
    parts = chunks.store.read([each for each in located if isinstance(each, Extent)])
    decoded = []
    for number, part in enumerate(parts):
        assert part is not None
        data: Any = part
        for stage in reversed(chunks.schema.chain.compressors):
            data = stage.decode(data, None, 2**30)
        assert chunks.file.row.nbytes[number] == len(data)
        decoded.append(bytes(data))
    return b"".join(decoded)


def table(chunks: BloscpackMap) -> list[int]:
    """Return the offsets that a file has, with its spare ones."""
    file = chunks.file
    start = file.begin - file.header.table_bytes
    (data,) = chunks.store.read([Extent(chunks.path, start, file.header.table_bytes)])
    assert data is not None
    found: list[int] = np.frombuffer(data, "<i8").tolist()
    return found


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    return FileStore(tmp_path / KEY, writable=True)


def noise(rows: int) -> NDArray[Any]:
    """Return rows of 16 bytes that hardly compress."""
    return np.random.default_rng(14).integers(0, 2**62, (rows, 2))


def test_a_new_file(store: Store) -> None:
    values = noise(1000)
    chunks = created(store, values, chunks=(300, 2), attrs={"unit": "m"})
    assert payload(chunks) == values.tobytes()
    header = chunks.file.header
    assert (header.version, header.checksum, header.typesize) == (3, "adler32", 8)
    assert (header.chunk_size, header.last_chunk) == (4800, 1600)
    assert (header.nchunks, header.max_app_chunks) == (4, 40)
    assert list(chunks.file.value) == ["dtype", "shape", "order", "container", "unit"]
    assert chunks.schema.attrs == {"unit": "m"}
    assert (chunks.schema.shape, chunks.schema.chunks) == ((1000, 2), (300, 2))
    assert chunks.file.end == chunks.file.size
    assert table(chunks) == chunks.file.row.start.tolist() + [-1] * 40


class Run:
    """Encoded chunks that can write themselves; `ways` notes what was asked of them."""

    def __init__(self, encoded: Iterable[tuple[Any, bytes]]) -> None:
        self.encoded = list(encoded)
        self.ways: list[str] = []

    @property
    def numbers(self) -> range:
        (first,), (last,) = self.encoded[0][0], self.encoded[-1][0]
        return range(first, last + 1)

    def write_to(self, descriptor: int, start: int) -> NDArray[np.int64]:
        self.ways.append("file")
        data = b"".join(part for _, part in self.encoded)
        assert os.pwrite(descriptor, data, start) == len(data)
        lengths = [len(part) for _, part in self.encoded]
        return np.cumsum([start, *lengths])

    def __iter__(self) -> Iterator[tuple[Any, bytes]]:
        self.ways.append("parts")
        return iter(self.encoded)


def test_a_run_of_all_chunks_writes_itself(store: Store) -> None:
    values = noise(200_000)
    chunks = created(store, values)
    (before,) = store.read([Extent(KEY)])
    run = Run(images(chunks, values.tobytes()))
    with writing(store) as turn:
        turn.commit(chunks.stage_each(run))
    assert run.ways == ["file" if isinstance(store, FileStore) else "parts"]
    assert store.read([Extent(KEY)]) == [before]
    some = Run(run.encoded[1:3])
    with writing(store) as turn:
        turn.commit(open_array(store, KEY).stage_each(some))
    assert some.ways == ["parts"]
    assert store.read([Extent(KEY)]) == [before]


def test_a_new_file_is_staged_in_pieces(tmp_path: Path) -> None:
    store = FileStore(tmp_path / KEY, writable=True)
    node, _ = create_array(store, design(Request((9,), np.dtype("i4"), 0)), KEY)
    chunks = node.chunks
    assert isinstance(chunks, BloscpackMap)
    (edit,) = chunks.stage_each(images(chunks, bytes(36))).publish
    assert isinstance(edit, Move)
    assert (tmp_path / edit.source).is_file()
    store.discard([edit])
    assert not (tmp_path / edit.source).exists()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_arrays_without_items(store: Store, shape: tuple[int, ...]) -> None:
    chunks = created(store, np.zeros(shape), chunks=(2, *shape[1:]))
    assert chunks.schema.shape == shape
    assert (chunks.file.header.nchunks, chunks.file.row.nbytes.tolist()) == (1, [0])
    assert len(chunks.addresses()) == 0
    # What bloscpack 0.16 writes for nothing.
    start = int(chunks.file.row.start[0])
    (stored,) = store.read([Extent(KEY, start)])
    assert stored is not None
    assert stored[:16].hex() == "02011308000000000100000010000000"


def test_a_fill_value_is_kept() -> None:
    request = Request((4,), np.dtype("<f4"), np.float32(1.5), attrs={"a": 1})
    node, commit = create_array(MemoryStore(), design(request), KEY)
    assert isinstance(node.chunks, BloscpackMap)
    (edit,) = node.chunks.stage_each(images(node.chunks, bytes(16))).publish
    assert isinstance(edit, Put)
    found = open_array(MemoryStore({KEY: bytes(edit.data)}), KEY)
    assert found.schema.fill == np.float32(1.5)
    assert found.schema.attrs == {"a": 1}
    assert commit.publish[0].key == KEY


@pytest.mark.parametrize("fill", [5, "zz", "00", "0000000000"])
def test_fill_values_that_are_refused(fill: object) -> None:
    value = {"dtype": "'<f4'", "shape": [25], "order": "C", "container": "numpy", "x_fill": fill}
    with pytest.raises(FormatError, match="x_fill is"):
        open_array(MemoryStore({KEY: packed([100], value)}), KEY)


def test_payload_and_shape_must_agree() -> None:
    value = {"dtype": "'<f4'", "shape": [24], "order": "C", "container": "numpy"}
    with pytest.raises(CorruptionError, match="has 96 bytes, the chunks hold 100"):
        open_array(MemoryStore({KEY: packed([100], value)}), KEY)


# Changes


def test_chunks_that_do_not_change_are_moved_as_they_are(store: Store) -> None:
    values = noise(1000)
    chunks = created(store, values, chunks=(300, 2))
    (before,) = store.read([Extent(KEY)])
    assert before is not None
    changed = bytearray(values.tobytes())
    changed[4800] ^= 1
    new = dict(images(chunks, bytes(changed)))
    with writing(store) as turn:
        turn.commit(chunks.stage({(1,): new[1,]}))
    after = open_array(store, KEY)
    assert payload(after) == bytes(changed)
    (now,) = store.read([Extent(KEY)])
    assert now is not None
    for number in (0, 2, 3):
        old, moved = chunks.file.row.start[number], after.file.row.start[number]
        length = chunks.file.row.cbytes[number] + 4
        assert now[moved : moved + length] == before[old : old + length]


@pytest.mark.parametrize(("rows", "given"), [(700, 2), (600, 9), (300, 9), (0, 9)])
def test_a_shorter_array(store: Store, rows: int, given: int) -> None:
    values = noise(1000)
    chunks = created(store, values, chunks=(300, 2))
    after, commit = chunks.resized((rows, 2))
    assert commit == Commit()
    less = values[:rows].tobytes()
    with writing(store) as turn:
        turn.commit(after.stage_each(images(after, less, given)))
    found = open_array(store, KEY)
    assert (found.schema.shape, payload(found)) == ((rows, 2), less)


def grown(store: Store, chunks: BloscpackMap, values: NDArray[Any]) -> Commit:
    """Append to an array, and return the commit; `values` are all rows of the new one."""
    after, commit = chunks.resized(values.shape)
    assert commit == Commit()
    assert chunks.schema.flat is not None
    first = chunks.schema.nbytes // chunks.schema.flat.chunk_bytes
    with writing(store) as turn:
        data = after.stage_each(images(after, values.tobytes(), first))
        turn.commit(data)
    return data


@pytest.mark.parametrize("rows", [80_001, 83_000, 90_000, 120_000])
def test_rows_are_appended_in_place(store: Store, rows: int) -> None:
    values = noise(120_000)
    chunks = created(store, values[:80_000], chunks=(30_000, 2))
    commit = grown(store, chunks, values[:rows])
    assert {type(edit) for edit in commit.publish} == {Patch}
    assert [type(edit) for edit in commit.prepare] == [Grown]
    found = open_array(store, KEY)
    assert (found.schema.shape, payload(found)) == ((rows, 2), values[:rows].tobytes())
    assert found.file.end == found.file.size
    assert found.file.header.table_entries == 33
    count = found.file.header.nchunks
    assert table(found) == found.file.row.start.tolist() + [-1] * (33 - count)
    # The journal has the old last chunk, the header, the metadata and some offsets.
    last = int(chunks.file.row.cbytes[-1]) + 4
    written = sum(len(edit.data) for edit in commit.publish if isinstance(edit, Patch))
    assert written < last + 1000


def test_rows_are_appended_behind_a_full_chunk(store: Store) -> None:
    values = noise(120_000)
    chunks = created(store, values[:90_000], chunks=(30_000, 2))
    commit = grown(store, chunks, values)
    assert sum(len(edit.data) for edit in commit.publish if isinstance(edit, Patch)) < 1000
    assert payload(open_array(store, KEY)) == values.tobytes()


def test_a_last_chunk_that_gets_shorter_is_cut_off(store: Store) -> None:
    values = noise(110_000)
    chunks = created(store, values[:80_000], chunks=(30_000, 2))
    changed = values[:81_000].copy()
    changed[60_000:] = 0
    after, _ = chunks.resized(changed.shape)
    with writing(store) as turn:
        commit = after.stage_each(images(after, changed.tobytes(), 2))
        turn.commit(commit)
    assert [type(edit) for edit in commit.cleanup] == [Truncate]
    assert commit.prepare == ()
    found = open_array(store, KEY)
    assert payload(found) == changed.tobytes()
    assert found.file.end == found.file.size < chunks.file.size


def test_what_follows_the_end_of_a_file_is_replaced(store: Store) -> None:
    values = noise(120_000)
    chunks = created(store, values[:90_000], chunks=(30_000, 2))
    with writing(store) as turn:
        turn.commit(Commit(publish=(Patch(KEY, chunks.file.size, b"stale" * 1000),)))
    chunks = open_array(store, KEY)
    assert chunks.file.end < chunks.file.size
    if isinstance(store, FileStore):
        store = FileStore(store.location, writable=True)
        chunks = open_array(store, KEY)
        grown(store, chunks, values)
        found = open_array(store, KEY)
        assert payload(found) == values.tobytes()
        assert found.file.end == found.file.size


def test_small_files_grow_as_new_files(store: Store) -> None:
    values = noise(1000)
    chunks = created(store, values[:700], chunks=(300, 2))
    commit = grown(store, chunks, values)
    assert {type(edit) for edit in commit.publish} <= {Put, Move}
    found = open_array(store, KEY)
    assert payload(found) == values.tobytes()
    assert found.file.header.max_app_chunks == 40


def test_more_chunks_than_spare_offsets_make_a_new_file(store: Store) -> None:
    values = noise(80_000 * 12)
    chunks = created(store, values[:80_000], chunks=(80_000, 2))
    assert chunks.file.header.table_entries == 11
    assert len(grown(store, chunks, values[: 80_000 * 11]).prepare) == 1
    chunks = open_array(store, KEY)
    assert chunks.file.header.max_app_chunks == 0
    commit = grown(store, chunks, values)
    assert commit.prepare == ()
    found = open_array(store, KEY)
    assert found.file.header.max_app_chunks == 120
    assert payload(found) == values.tobytes()


def test_no_rows_change_nothing(store: Store) -> None:
    chunks = created(store, noise(1000), chunks=(300, 2))
    after, _ = chunks.resized((1000, 2))
    assert after.stage({}) == Commit()


def test_chunks_that_do_not_fit_are_refused() -> None:
    store = MemoryStore()
    values = noise(1000)
    chunks = created(store, values, chunks=(300, 2))
    new = dict(images(chunks, values.tobytes()))
    with pytest.raises(FormatError, match="no such chunk"):
        chunks.stage({(4,): new[0,]})
    with pytest.raises(UnsupportedError, match="every chunk is stored"):
        chunks.stage({(1,): None})
    after, _ = chunks.resized((2000, 2))
    with pytest.raises(FormatError, match="not given, and not stored"):
        after.stage({(3,): new[0,]})


# Attributes


def test_attributes_are_rewritten_in_place(store: Store) -> None:
    chunks = created(store, noise(1000), chunks=(300, 2))
    after, commit = chunks.described({"unit": "m"})
    assert {type(edit) for edit in commit.publish} == {Patch}
    with writing(store) as turn:
        turn.commit(commit)
    for each in (after, open_array(store, KEY)):
        assert each.schema.attrs == {"unit": "m"}
        assert payload(each) == noise(1000).tobytes()
    assert open_array(store, KEY).file.size == chunks.file.size


def test_attributes_without_room_make_a_new_file(store: Store) -> None:
    chunks = created(store, noise(1000), chunks=(300, 2))
    text = np.random.default_rng(5).bytes(600).hex()
    after, commit = chunks.described({"text": text})
    assert {type(edit) for edit in commit.publish} <= {Put, Move}
    with writing(store) as turn:
        turn.commit(commit)
    for each in (after, open_array(store, KEY)):
        assert each.schema.attrs == {"text": text}
        assert payload(each) == noise(1000).tobytes()


@pytest.mark.parametrize("name", ["dtype", "shape", "order", "container", "x_fill"])
def test_names_that_attributes_cannot_have(name: str) -> None:
    chunks = created(MemoryStore(), noise(10))
    with pytest.raises(UnsupportedError, match=f"attribute '{name}'"):
        chunks.described({name: 1})
    with pytest.raises(UnsupportedError, match=f"attribute '{name}'"):
        design(Request((1,), np.dtype("<f8"), np.float64(0), attrs={name: 1}))


# Plain files


@pytest.mark.parametrize("value", [None, {"dtype": "float64", "shape": [9]}, [1, 2]])
def test_plain_files_are_arrays_of_bytes(value: Any) -> None:
    store = MemoryStore({KEY: packed([100, 100, 30], value)})
    chunks = open_array(store, KEY)
    assert (chunks.schema.shape, chunks.schema.dtype) == ((230,), np.dtype("u1"))
    assert chunks.schema.attrs == metadata.attributes(value)
    more = payload(chunks) + b"more" * 50
    after, _ = chunks.resized((len(more),))
    store.apply(after.stage_each(images(after, more, 2)))
    found = open_array(store, KEY)
    assert payload(found) == more
    assert found.file.value == value
    changed, commit = found.described({**found.schema.attrs, "new": 1})
    store.apply(commit)
    assert open_array(store, KEY).file.value == {**metadata.attributes(value), "new": 1}
    assert payload(changed) == more


@pytest.mark.parametrize("attrs", [{"order": 1}, {"order": "C", "container": "x"}])
def test_a_plain_file_does_not_become_an_array(attrs: dict[str, Any]) -> None:
    chunks = open_array(MemoryStore({KEY: packed([100])}), KEY)
    with pytest.raises(UnsupportedError, match="would describe an array"):
        chunks.described(attrs)


def test_chunks_of_several_lengths() -> None:
    data = packed([100, 0, 40, 120], chunk_size=-1, last_chunk=-1)
    chunks = open_array(MemoryStore({KEY: data}), KEY)
    assert chunks.schema.shape == (260,)
    assert chunks.schema.rectilinear[0] is not None
    assert chunks.schema.rectilinear[0].lengths.tolist() == [100, 40, 120]
    for change in (lambda: chunks.resized((1,)), lambda: chunks.stage({(0,): b""})):
        with pytest.raises(UnsupportedError, match="several lengths"):
            change()
    value = {"dtype": "'<f4'", "shape": [13, 5], "order": "C", "container": "numpy"}
    with pytest.raises(UnsupportedError, match="several lengths"):
        open_array(
            MemoryStore({KEY: packed([100, 40, 120], value, chunk_size=-1, last_chunk=-1)}), KEY
        )


# New arrays


@pytest.mark.parametrize(
    ("shape", "dtype", "settings", "expected"),
    [
        ((10**6,), "<f8", {}, 2**20),
        ((10**6, 3), "<f8", {}, 2**20 // 24 * 24),
        ((4, 10**6), "<f8", {}, 2**20),
        ((10**6, 4), "<f8", {"order": "F"}, 2**20),
        ((10, 3), "V3", {"order": "F"}, 2**20 // 30 * 30),
        ((), "<f8", {}, 2**20),
        ((5,), "S300", {}, 2**20 // 300 * 300),
        ((5,), "V2000000", {}, 2000000),
        ((10, 3), "<i2", {"chunk_bytes": 100}, 100),
        ((10, 3), "V3", {"chunk_bytes": 100}, 99),
    ],
)
def test_the_length_of_chunks(
    shape: tuple[int, ...], dtype: str, settings: dict[str, Any], expected: int
) -> None:
    kind = np.dtype(dtype)
    schema = design(Request(shape, kind, np.zeros((), kind)[()]), **settings)
    assert schema.flat is not None
    assert schema.flat.chunk_bytes == expected


def test_the_typesize_is_1_above_255() -> None:
    store = MemoryStore()
    assert created(store, np.zeros(9, "S255")).file.header.typesize == 255
    store = MemoryStore()
    assert created(store, np.zeros(9, "S256")).file.header.typesize == 1


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_every_checksum(checksum: str) -> None:
    store = MemoryStore()
    request = Request((100,), np.dtype("<i4"), np.int32(0), chunks=(40,))
    node, _ = create_array(store, design(request, checksum=checksum), KEY)
    assert isinstance(node, ArrayNode)
    chunks = node.chunks
    assert isinstance(chunks, BloscpackMap)
    values = np.arange(100, dtype="<i4").tobytes()
    store.apply(chunks.stage_each(images(chunks, values)))
    found = BloscpackFile.read(store, KEY)
    assert found.header.checksum == checksum
    assert found.section is not None
    assert found.section.checksum == checksum
    assert payload(open_array(store, KEY)) == values


@pytest.mark.parametrize(
    ("checksum", "stages"), [(True, 2), (False, 1), (None, 1), ("none", 1), ("md5", 2)]
)
def test_checksums_in_other_words(checksum: Any, stages: int) -> None:
    schema = design(Request((1,), np.dtype("<i4"), np.int32(0)), checksum=checksum)
    assert len(schema.chain.compressors) == stages


@pytest.mark.parametrize(
    ("given", "settings", "kind"),
    [
        ({"dtype": np.dtype(object)}, {}, UnsupportedError),
        ({"dtype": np.dtypes.StringDType()}, {}, UnsupportedError),
        ({"chunks": (3, 1)}, {}, UnsupportedError),
        ({"chunks": (3, 2)}, {"order": "F"}, UnsupportedError),
        ({"chunks": (2**30, 2)}, {}, LimitError),
        ({"chunks": (3, 2)}, {"chunk_bytes": 9}, ValueError),
        ({}, {"checksum": "xxhash"}, ValueError),
        ({}, {"checksum": "crc32c"}, ValueError),
        ({}, {"checksum": 5}, ValueError),
        ({}, {"order": "K"}, ValueError),
    ],
)
def test_what_cannot_be_made(
    given: dict[str, Any], settings: dict[str, Any], kind: type[Exception]
) -> None:
    values = {"shape": (10, 2), "dtype": np.dtype("<f8"), "fill": 0, **given}
    with pytest.raises(kind):
        design(Request(**values), **settings)


def test_a_file_has_a_name() -> None:
    with pytest.raises(UnsupportedError, match="a file has a name"):
        create_array(MemoryStore(), design(Request((1,), np.dtype("<f8"), 0.0)), "")
