"""Variable-length items in blsk: the bytes of packs, documents, changes, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import yaml

import ingot
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, UnsupportedError
from ingot.formats.blsk.array import open_array
from ingot.formats.blsk.ragged import design_ragged
from ingot.formats.format import RaggedRequest
from ingot.ragged_array import UTF8
from ingot.stores import Extent, MemoryStore, Put
from ingot.stores.store import Commit
from tests import blsk_reader
from tests.kernels import needs_native
from tests.limited import run_limited

WORDS = ["Bergen", "Trondheim", None, "", "Å" * 9]
KINDS: dict[str, tuple[Any, str, list[Any]]] = {
    "text": ("utf8", "utf8", WORDS),
    "data": ("bytes", "bytes", [b"\xff" * 30, b"", None, b"x", b"y" * 40]),
    "values": ("json", "json", [{"a": [1, None]}, None, [], "text", 2.5]),
    "rows": ("<i4", "list<<i4>", [[1, -2, 3], None, [], [7] * 40, [0]]),
    "big": (">f8", "list<>f8>", [[1.5], [], None, [-0.0, 2.0], [3.0]]),
}


def plain(items: Any) -> list[Any]:
    """Return items as Python objects; a row of numbers as a list."""
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


def columns() -> dict[str, Any]:
    """Return a column of each kind, and one of numbers."""
    made = {name: ingot.ragged(items, kind=kind) for name, (kind, _, items) in KINDS.items()}
    return {"n": np.arange(5), **made}


def storage_of(store: MemoryStore) -> Any:
    """Return the document that says how data are stored."""
    (text,) = store.read([Extent("meta/storage")])
    assert text is not None
    return yaml.safe_load(text.decode())


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("rows", [2, 3, 100])
def test_another_reader_reads_the_packs(tmp_path: Path, rows: int) -> None:
    table = ingot.table(columns(), tmp_path / "t", format="blsk", chunks=rows, superchunksize=2)
    expected = {name: list(items) for name, (_, _, items) in KINDS.items()}

    def check() -> None:
        found = blsk_reader.read(tmp_path / "t")
        assert {name: found[name] for name in KINDS} == expected

    check()
    table["text"][1] = expected["text"][1] = "Tromsø" * 50
    table.update([0, 4], {"rows": [None, [1, 2]]})
    expected["rows"][0], expected["rows"][4] = None, [1, 2]
    check()
    table.append(columns())
    expected = {name: expected[name] + KINDS[name][2] for name in expected}
    check()
    table.delete([0, 2, 9])
    expected = {
        name: [each for row, each in enumerate(items) if row not in (0, 2, 9)]
        for name, items in expected.items()
    }
    check()
    table.compact()
    check()
    table.resize(12)
    expected = {name: items + [None] * 5 for name, items in expected.items()}
    check()


def test_the_kinds_are_spelled_in_the_storage() -> None:
    store = MemoryStore()
    ingot.table(columns(), store, format="blsk")
    storage = storage_of(store)
    assert storage["dtype"] == {"n": "int64"} | {
        name: spelled for name, (_, spelled, _) in KINDS.items()
    }
    assert storage["fill"]["text"] is None
    assert storage["x_chunkshape"] == dict.fromkeys(KINDS, "auto")
    table = ingot.open(store)
    for name, (_, _, items) in KINDS.items():
        assert plain(table[name]) == items


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", KINDS)
def test_lone_items(tmp_path: Path, name: str) -> None:
    kind, spelled, items = KINDS[name]
    attrs = {"unit": "m", "limit": np.float32(1.5)}
    made = ingot.ragged(items, tmp_path / "r", kind=kind, format="blsk", attrs=attrs)
    assert yaml.safe_load((tmp_path / "r/meta/storage").read_text())["dtype"] == spelled
    assert plain(made) == blsk_reader.read(tmp_path / "r") == items
    made.append(iter(items[:2]))
    made[-1] = items[0]
    made.delete([1])
    expected = [items[0], *items[2:], items[0], items[0]]
    found = ingot.open(tmp_path / "r")
    assert plain(found) == blsk_reader.read(tmp_path / "r") == expected
    assert dict(found.attrs) == attrs
    assert type(found.attrs["limit"]) is np.float32
    made.resize(8)
    assert plain(found)[6:] == [None, None]
    assert made.dead_bytes
    made.compact()
    assert not made.dead_bytes
    assert plain(found)[:6] == expected


def test_settings_of_new_items(tmp_path: Path) -> None:
    settings = {"superchunksize": 3, "spare": 0.0}
    made = ingot.ragged(WORDS, tmp_path / "r", format="blsk", codec="blosc:zstd:3", **settings)
    storage = yaml.safe_load((tmp_path / "r/meta/storage").read_text())
    assert storage["superchunksize"] == 3
    assert (storage["compression"]["library"], storage["compression"]["level"]) == ("zstd", 3)
    assert list(made) == WORDS
    with pytest.raises(ValueError, match="superchunksize is 0"):
        ingot.ragged(WORDS, format="blsk", superchunksize=0)
    with pytest.raises(UnsupportedError, match="compressed by Blosc only"):
        ingot.ragged(WORDS, format="blsk", codec="zlib:1")
    with pytest.raises(LimitError, match="bytes of lengths"):
        design_ragged(RaggedRequest(1, UTF8, pack_items=1 << 30))


def test_the_length_of_packs_follows_the_first_items() -> None:
    store = MemoryStore()
    table = ingot.table({"a": ["x"] * 5, "b": ["y"] * 5, "c": ["z"] * 5}, store, format="blsk")
    assert storage_of(store)["chunkshape"]["a"] == [52428]
    # Items that are stored move to shorter packs while there is one pack, in two columns at once.
    table.append({"a": ["y" * 5000] * 100, "b": ["z" * 2000] * 100, "c": ["w"] * 100})
    chunks = storage_of(store)["chunkshape"]
    assert chunks["a"] == [(1 << 18) // int((5 + 500_000) / 105 + 4)]
    assert chunks["b"] == [(1 << 18) // int((5 + 200_000) / 105 + 4)]
    assert chunks["c"] == [52428]
    table.append({"a": ["1"], "b": ["2"], "c": ["3"]})
    for each in (table, ingot.open(store)):
        assert list(each["a"]) == ["x"] * 5 + ["y" * 5000] * 100 + ["1"]
        assert list(each["b"]) == ["y"] * 5 + ["z" * 2000] * 100 + ["2"]
        assert list(each["c"]) == ["z"] * 5 + ["w"] * 100 + ["3"]
    # But not where a caller chose the length.
    table = ingot.table({"a": ["x"] * 5}, store, format="blsk", overwrite=True, chunks=7)
    table.append({"a": ["y" * 5000] * 100})
    assert storage_of(store)["chunkshape"] == {"a": [7]}
    lone = ingot.ragged(["x"], store, format="blsk", overwrite=True)
    lone.append(["y" * 5000] * 100)
    assert storage_of(store)["chunkshape"] == [(1 << 18) // int(500_001 / 101 + 4)]
    lone.append(["z"])
    assert list(ingot.open(store)) == ["x", *["y" * 5000] * 100, "z"]


def test_columns_in_nested_tables_are_fitted_together() -> None:
    store = MemoryStore()
    nested = {"in": {"a": ["x"], "deep": {"b": ["y"]}}}
    table = ingot.table(nested, store, format="blsk")
    table.append({"in": {"a": ["y" * 9000] * 9, "deep": {"b": ["z" * 9000] * 9}}})
    chunks = storage_of(store)["chunkshape"]["in"]
    assert chunks["a"] == chunks["deep"]["b"] == [(1 << 18) // int(81_001 / 10 + 4)]
    assert list(ingot.open(store)["in.deep.b"]) == ["y", *["z" * 9000] * 9]


def test_frames_and_types_of_other_libraries(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"s": pandas.array(["a", None, "ccc"], "string"), "n": [1, 2, 3]})
    table = ingot.table(frame, tmp_path / "t", format="blsk")
    assert table["s"].kind == "utf8"
    pandas.testing.assert_frame_equal(ingot.open(tmp_path / "t").to_pandas(), frame)
    arrow = table.to_arrow()
    assert arrow["s"].to_pylist() == ["a", None, "ccc"]
    assert table.where("s >= 'b'").read()["n"].tolist() == [3]
    assert table.where("isnull(s)").read()["n"].tolist() == [2]
    ingot.table(pyarrow.table({"s": ["x", None]}), tmp_path / "u", format="blsk")
    assert list(ingot.open(tmp_path / "u")["s"]) == ["x", None]
    fixed = ingot.table({"w": np.array(["Oslo"])}, tmp_path / "w", format="blsk")
    fixed.retype("w", "utf8")
    fixed.append({"w": ["Trondheim"]})
    assert list(ingot.open(tmp_path / "w")["w"]) == ["Oslo", "Trondheim"]
    fixed.rename_column("w", "town")
    assert blsk_reader.read(tmp_path / "w") == {"town": ["Oslo", "Trondheim"]}


def test_zone_maps_skip_packs(tmp_path: Path) -> None:
    words = [f"{n:06d}" for n in range(1000)]
    table = ingot.table({"w": words}, tmp_path / "t", format="blsk", chunks=100)
    engine = table["w"]._handle.value
    zones = engine.zones()
    assert zones is not None
    assert len(engine.packs.zones(range(10))) == 10
    assert table.where("w == '000777'").rows().tolist() == [777]


@pytest.mark.parametrize("count", [1, 3, 7, 30])
def test_shards(tmp_path: Path, count: int) -> None:
    items = [f"item {n}" if n % 5 else None for n in range(100)]
    table = ingot.table({"a": items, "n": np.arange(100)}, format="blsk", chunks=8)
    table.shard(count, tmp_path / "t")
    whole = ingot.open(tmp_path / "t")
    assert list(whole["a"]) == items
    assert whole.where("a == 'item 77'").read()["n"].tolist() == [77]
    with pytest.raises(UnsupportedError, match="each of them is changed by itself"):
        ingot.open(tmp_path / "t", "r+")["a"][0] = "x"
    lone = ingot.ragged(items, format="blsk", attrs={"unit": "m"})
    lone.shard(count, tmp_path / "r")
    whole = ingot.open(tmp_path / "r")
    assert (list(whole), whole.format, dict(whole.attrs)) == (items, "blsk", {"unit": "m"})
    assert whole[::-7].tolist() == items[::-7]
    first = ingot.open(tmp_path / "r/shard-00000", "r+")
    first[0] = "changed"
    assert ingot.open(tmp_path / "r")[0] == "changed"


def test_shards_of_other_kinds_are_refused(tmp_path: Path) -> None:
    ingot.ragged(["a", "b", "c"], format="blsk").shard(2, tmp_path / "r")
    ingot.array(np.arange(2), tmp_path / "r/shard-00001", format="blsk", overwrite=True)
    with pytest.raises(CorruptionError, match="of one kind in some shards, of another in others"):
        ingot.open(tmp_path / "r")


def test_columns_have_no_attributes() -> None:
    table = ingot.table({"a": ["x"]}, format="blsk")
    with pytest.raises(UnsupportedError, match="column 'b' has none"):
        table.add_column("b", ["y"], attrs={"unit": "m"})
    assert table.names == ("a",)


def test_an_array_is_not_taken_for_items() -> None:
    store = MemoryStore()
    ingot.ragged(["a"], store, format="blsk")
    with pytest.raises(FormatError, match="meta/storage: it is items of utf8"):
        open_array(store)


def test_a_pack_that_is_not_stored_holds_nulls(tmp_path: Path) -> None:
    ingot.ragged(["a", "b", "c", "d", "e"], tmp_path / "r", format="blsk")
    made = ingot.table({"a": ["a", "b", "c", "d"]}, tmp_path / "t", format="blsk", chunks=2)
    file = tmp_path / "t/data/a/__1__.bin"
    data = bytearray(file.read_bytes())
    data[16:24] = b"\xff" * 8
    file.write_bytes(data)
    assert list(ingot.open(tmp_path / "t")["a"]) == [None, None, "c", "d"]
    assert blsk_reader.read(tmp_path / "t") == {"a": [None, None, "c", "d"]}
    made = ingot.open(tmp_path / "t", "r+")
    assert made.where("isnull(a)").rows().tolist() == [0, 1]
    made["a"][1] = "new"
    made.delete([2])
    assert list(ingot.open(tmp_path / "t")["a"]) == [None, "new", "d"]


def test_the_index_and_the_number_of_items_are_repaired(tmp_path: Path) -> None:
    path = tmp_path / "r.blsk"
    ingot.table({"a": [str(n) for n in range(11)]}, path, format="blsk", chunks=4)
    file, nrows = path / "data/a/__1__.bin", path / "meta/nrows"
    for entry in (0, 1, 2):
        data = bytearray(file.read_bytes())
        data[16 + 8 * entry] ^= 0x24
        file.write_bytes(data)
        assert not ingot.check(path).ok
        assert ingot.repair(path).ok
        assert list(ingot.open(path)["a"]) == [str(n) for n in range(11)]
    nrows.unlink()
    assert ingot.repair(path).ok
    assert list(ingot.open(path)["a"]) == [str(n) for n in range(11)]


@pytest.mark.usefixtures("kernel")
def test_damaged_packs_are_named_and_given_up(tmp_path: Path) -> None:
    path = tmp_path / "t"
    ingot.table({"a": ["ape", "bee", "cat"], "n": np.arange(3)}, path, format="blsk", chunks=2)
    file = path / "data/a/__1__.bin"
    data = file.read_bytes()
    file.write_bytes(data.replace(b"apebee", b"apebex"))
    with pytest.raises(CorruptionError, match="CRC-32C"):
        list(ingot.open(path)["a"])
    (finding,) = (each for each in ingot.check(path).findings if each.severity == "error")
    assert finding.lost == "items [0:2]"
    assert ingot.repair(path, drop=True).ok
    assert list(ingot.open(path)["a"]) == [None, None, "cat"]


STORAGE = {
    "dtype": "utf8",
    "shape": [1],
    "chunkshape": [2],
    "superchunksize": 4,
    "compression": {"library": "lz4", "level": 5},
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dtype": "list<O>"}, IngotError, "dtype"),
        ({"dtype": "list<<i8"}, FormatError, "no kind of items"),
        ({"dtype": "list<utf8>"}, IngotError, "dtype"),
        ({"dtype": "list<|V0>"}, IngotError, "dtype"),
        ({"dtype": "utf-8"}, FormatError, "dtype"),
        ({"chunkshape": [0]}, FormatError, "chunkshape"),
        ({"chunkshape": [2**40]}, LimitError, "bytes of lengths"),
        ({"shape": [1, 2], "chunkshape": [1, 2]}, FormatError, "items have one"),
        ({"shape": [], "chunkshape": []}, FormatError, "items have one"),
        ({"compression": {"filters": [{"truncate": 3}]}}, UnsupportedError, "not truncated"),
        ({"compression": {"library": "gzip"}}, UnsupportedError, "library"),
        ({"superchunksize": 0}, FormatError, "superchunksize"),
        ({"x_id": "0"}, FormatError, "x_id"),
    ],
)
def test_claims_of_the_storage(change: dict[str, Any], error: Any, message: str) -> None:
    document = yaml.safe_dump({**STORAGE, **change}).encode()
    store = MemoryStore({"meta/storage": document, "meta/nrows": b"1\n"})
    with pytest.raises(error, match=message):
        list(ingot.open(store))


def test_packs_have_trailers(tmp_path: Path) -> None:
    ingot.ragged(["a"], tmp_path / "r", format="blsk")
    file = tmp_path / "r/data/__1__.bin"
    data = bytearray(file.read_bytes())
    data[5] = 0
    file.write_bytes(data)
    with pytest.raises(CorruptionError, match="its packs have no trailers"):
        list(ingot.open(tmp_path / "r"))


def test_a_pack_of_another_column_is_noticed() -> None:
    store = MemoryStore()
    ingot.table({"a": ["x", "y"], "b": ["p", "q"]}, store, format="blsk")
    (other,) = store.read([Extent("data/b/__1__.bin")])
    assert other is not None
    store.apply(Commit(publish=(Put("data/a/__1__.bin", other),)))
    with pytest.raises(CorruptionError, match="identity"):
        list(ingot.open(store)["a"])


def test_more_items_than_are_stored_are_refused() -> None:
    store = MemoryStore()
    ingot.table({"a": ["x", "y"]}, store, format="blsk", chunks=4)
    store.apply(Commit(publish=(Put("meta/nrows", b"3\n"),)))
    with pytest.raises(CorruptionError, match="3 to 4 items are due"):
        list(ingot.open(store)["a"])
    store.apply(Commit(publish=(Put("meta/nrows", b"1000000000000\n"),)))
    with pytest.raises(CorruptionError, match="nchunks is 1"):
        ingot.open(store)["a"][-1]


_DAMAGE = """
from ingot.stores import MemoryStore
from tests.storage import content, put
from tests.unit.formats.blsk.test_ragged import KINDS, plain

for name in sys.argv[1:]:
    kind, _, values = KINDS[name]
    store = MemoryStore()
    ingot.ragged(values, store, kind=kind, format="blsk", superchunksize=2)
    sound = content(store)

    def read(changed):
        made = MemoryStore()
        put(made, {**sound, **changed})
        return plain(ingot.open(made).items().to_list())

    assert read({}) == values
    noticed = 0
    documents = ["meta/nrows", "meta/storage"] if name == "text" else []
    for key in ["data/__1__.bin", *documents]:
        data, binary = sound[key], key.endswith(".bin")
        for place in range(len(data)):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            for wrong in (data[:place], bytes(flipped)):
                try:
                    found = read({key: wrong})
                except IngotError:
                    noticed += 1
                    continue
                # Another number of items, or another kind, is a claim that the bytes may fulfil.
                assert found == values or (not binary and len(found) <= 5), (name, key, place)
    assert noticed > 300, (name, noticed)
"""


@needs_native
@pytest.mark.parametrize("name", KINDS)
def test_every_changed_byte_and_every_truncation(name: str) -> None:
    run_limited(_DAMAGE, "native", name)


def test_every_changed_byte_of_rows_without_the_kernel() -> None:
    run_limited(_DAMAGE, "python", "rows")


@pytest.mark.parametrize(("spare", "fraction"), [({}, 1 / 32), ({"spare": 0.5}, 0.5)])
def test_the_room_behind_packs(tmp_path: Path, spare: dict[str, Any], fraction: float) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 40_000, dtype="u1").tobytes()
    items = [noise[at : at + 100] for at in range(0, 40_000, 100)]
    lone = ingot.ragged(items, tmp_path / "lone", format="blsk", **spare)
    table = ingot.table({"a": items}, tmp_path / "table", format="blsk", **spare)
    for folder, stored in ((tmp_path / "lone/data", lone), (tmp_path / "table/data/a", table["a"])):
        size = (folder / "__1__.bin").stat().st_size
        # The only pack, its room, and the index in front of it.
        index = 16 + 8 * stored._handle.value.packs.slots.storage.capacity
        pack = round((size - index) / (1 + fraction))
        assert 40_000 < pack < 43_000
        assert abs(size - index - pack - int(pack * fraction)) <= 1
