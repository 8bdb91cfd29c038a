"""Tables of the places of chunks: what they say, what they refuse, how both kernels read them."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.codecs.codec import CodecChain
from ingot.engine import kernel
from ingot.errors import CorruptionError
from ingot.formats.addresses import ChunkState, ChunkTable, Indexed, Keyed, KeyTemplate
from ingot.formats.format import ChunkMap, addresses
from ingot.schema import ArraySchema
from ingot.stores import Constant, Extent, LocalStore
from tests.kernels import load, needs_native

STATES = [ChunkState.STORED, ChunkState.ABSENT, ChunkState.STORED, ChunkState.CONSTANT]
SCHEMA = ArraySchema((8,), np.dtype("<i2"), (2,), CodecChain(), np.int16(-1))


def table(**changes: Any) -> ChunkTable:
    """Return four chunks of two items of two bytes, two of them stored, in two files."""
    columns: dict[str, Any] = {
        "file": [0, 0, 1, 0],
        "start": [3, 0, 0, 0],
        "length": [4, 0, ChunkTable.END, 0],
        "state": STATES,
        "constants": {3: np.int16(7).tobytes()},
    }
    return ChunkTable(("a", "b"), **columns | changes)


def written(folder: Path) -> None:
    (folder / "a").write_bytes(b"xyz" + np.array([1, 2], "<i2").tobytes() + b"behind")
    (folder / "b").write_bytes(np.array([5, 6], "<i2").tobytes())


def native_layout(folder: Path, given: ChunkTable) -> Any:
    compiled: Any = load("native")
    grid = {"shape": SCHEMA.shape, "chunk": SCHEMA.chunks, "order": (0,)}
    return compiled.Layout(
        compiled.Addresses(root=folder, table=kernel._columns(given)),
        compiled.Coding(kind="raw"),
        compiled.Grid(**grid, fill=kernel.fill_item(SCHEMA).tobytes()),
    )


@pytest.mark.parametrize("count", [0, 1, 5, 100])
@pytest.mark.parametrize(("leading", "axes"), [(None, 1), (None, 2), (None, 3), (1, 1), (1, 3)])
def test_keys_are_those_of_single_chunks(leading: int | None, axes: int, count: int) -> None:
    template = KeyTemplate("a/", "/", ".blp", leading=leading)
    coords = np.random.default_rng(count).integers(0, 2000, (count, axes))
    if leading is not None:
        coords[:, leading:] = 0
    assert template.keys(coords) == tuple(template.key(row) for row in coords.tolist())


def test_every_state_has_a_location() -> None:
    found = list(table().locate(np.arange(4), np.int16(-1)))
    assert found == [Extent("a", 3, 4), Constant(-1), Extent("b", 0, None), Constant(7)]


def test_a_lost_chunk_is_not_located() -> None:
    lost = table(state=[ChunkState.LOST] * 4)
    with pytest.raises(CorruptionError, match="chunk 2: the chunk is lost"):
        lost.locate(np.array([2]), 0)


@needs_native
def test_the_kernel_reads_what_the_twin_does(tmp_path: Path) -> None:
    written(tmp_path)
    store, given = LocalStore(tmp_path), table()
    expected = np.concatenate(
        [
            np.full(2, each.value, "<i2")
            if isinstance(each, Constant)
            else np.frombuffer(store.read([each])[0] or b"", "<i2")  # type: ignore[list-item]
            for each in given.locate(np.arange(4), np.int16(-1))
        ]
    )
    assert expected.tolist() == [1, 2, -1, -1, 5, 6, 7, 7]
    layout = native_layout(tmp_path, given)
    out = np.empty(8, "<i2")
    assert layout.read(out, (0,), (1,), 2) == (1, [])
    assert np.array_equal(out, expected)
    some, index = np.empty(3, "<i2"), np.array([5, 0, 7])
    layout.read_outer(some, (0,), (1,), [index], 2)
    assert np.array_equal(some, expected[index])


@needs_native
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": [12, 0, 0, 0]}, "a: 4 bytes at 12 are wanted, 1 are stored"),
        ({"start": [99, 0, 0, 0]}, "a: the chunk starts at byte 99, 13 are stored"),
        ({"length": [3, 0, ChunkTable.END, 0]}, "the chunk has 3 bytes, the array needs 4"),
        ({"state": [3, 1, 0, 2]}, "the chunk is lost"),
    ],
)
def test_the_kernel_refuses_places_that_do_not_exist(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    written(tmp_path)
    out = np.empty(8, "<i2")
    report = native_layout(tmp_path, table(**changes)).read(out, (0,), (1,), 2)
    ((coords, _, error),) = report[1]
    assert (coords, type(error), str(error)) == ((0,), CorruptionError, message)


@needs_native
def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for changes in ({"file": [2, 0, 0, 0]}, {"state": [9, 1, 0, 2]}, {"constants": {}}):
        with pytest.raises(ValueError, match="chunk "):
            native_layout(tmp_path, table(**changes))
    with pytest.raises(ValueError, match="length"):
        native_layout(tmp_path, table(start=[0]))


def test_sound_places_pass() -> None:
    table().check([13, 4])
    ChunkTable(("a", "b"), [0, 1], [0, 0], [ChunkTable.END] * 2, [0, 0]).check([1, 2])


@pytest.mark.parametrize(
    ("given", "sizes", "message"),
    [
        (table(), [6, 4], "a: chunk 0 claims 4 bytes at 3, 6 are stored"),
        (table(start=[2**63, 0, 0, 0]), [9, 4], "a: chunk 0 claims 4 bytes at 9223372036854775808"),
        (
            ChunkTable(("a",), [0] * 3, [0] * 3, [9] * 3, [0] * 3),
            [10],
            "3 chunks claim 27 bytes, 10",
        ),
        (ChunkTable(("a",), [0] * 3, [0] * 3, [0] * 3, [0] * 3), [2], "a: 3 chunks in 2 bytes"),
    ],
)
def test_claims_that_no_file_holds_are_refused(
    given: ChunkTable, sizes: list[int], message: str
) -> None:
    with pytest.raises(CorruptionError) as caught:
        given.check(sizes)
    assert message in str(caught.value)


def test_no_chunk_starts_inside_the_index() -> None:
    with pytest.raises(CorruptionError, match="a: chunk 0 starts at 3, inside the index, which is"):
        table().check([13, 4], {0: range(13)})


def map_of(array: ingot.Array) -> ChunkMap:
    return array._handle.value.chunks


def test_addresses_have_three_forms(tmp_path: Path) -> None:
    values = np.arange(24).reshape(6, 4)
    plain = ingot.array(values, chunks=(2, 2), format="zarr3")
    assert addresses(map_of(plain)) == Keyed(KeyTemplate("c/", "/"))
    sharded = addresses(map_of(ingot.array(values, chunks=(1, 2), shards=(2, 2), format="zarr3")))
    assert isinstance(sharded, Indexed)
    assert sharded.counts == (2, 1)
    assert Indexed(sharded.template, sharded.levels * 2).counts == (4, 1)
    assert sharded.template == KeyTemplate("c/", "/")
    packed = ingot.array(values, tmp_path / "a.blp", format="bloscpack")
    table = addresses(map_of(packed))
    assert isinstance(table, ChunkTable)
    assert table.files == ("a.blp",)
    assert len(table) == 1
    ingot.array(np.arange(10), chunks=2, format="bcolz").shard(3, tmp_path / "shards")
    rows = addresses(map_of(ingot.open(tmp_path / "shards")))
    prefixes = [f"shard-{number:05d}/data/__" for number in range(3)]
    assert rows == Keyed(
        KeyTemplate(prefixes[0], suffix=".blp", leading=1),
        tuple(zip((0, 2, 4), prefixes, strict=True)),
    )
    assert [rows.key((number,)) for number in (0, 3, 4)] == [
        "shard-00000/data/__0.blp",
        "shard-00001/data/__1.blp",
        "shard-00002/data/__0.blp",
    ]


def test_a_table_of_100_000_chunks_takes_less_than_3_mb() -> None:
    numbers = np.arange(100_000)
    start, length = (numbers * 50).astype(np.uint64), np.full(100_000, 50, np.uint64)
    tracemalloc.start()
    try:
        table = ChunkTable(("a",), np.zeros(100_000), start.copy(), length.copy(), numbers * 0)
        kept, most = tracemalloc.get_traced_memory()
        assert kept < 3_000_000
        tracemalloc.reset_peak()
        layout = native.make_layout(
            addresses={"root": "/", "table": kernel._columns(table)},
            coding={"kind": "raw"},
            grid={"shape": (100_000,), "chunk": (1,), "order": (0,), "fill": b"0"},
        )
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (layout is None) == (native.choice().name == "python")
    # The kernel copies the columns as they are; no number becomes an object.
    assert most - kept < 500_000


def test_shards_by_rows_are_read_from_their_files(tmp_path: Path) -> None:
    values = np.arange(100)
    ingot.table({"a": values, "b": values % 7}, chunks=8).shard(3, tmp_path / "shards")
    shards = ingot.open(tmp_path / "shards")
    if native.choice().name == "native":
        assert shards["a"].explain().reason == "in one call: the kernel reads the files"
    assert np.array_equal(shards["a"][...], values)
    assert shards["a"][[99, 3, 50]].tolist() == [99, 3, 50]
    assert shards.read(where="b == 3")["a"].tolist() == values[values % 7 == 3].tolist()
