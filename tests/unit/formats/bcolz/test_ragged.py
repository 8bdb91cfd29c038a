"""Variable-length items in bcolz: the bytes of packs, the documents, and what is refused."""

import json
import struct
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import pyarrow
import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, UnsupportedError
from ingot.formats.bcolz.ragged import ItemStorage, is_items, pack_rows
from ingot.stores import Extent, MemoryStore, Put
from ingot.stores.store import Commit
from tests.kernels import needs_native
from tests.limited import run_limited

WORDS = ["Bergen", "Trondheim", None, "", "Å" * 9]


def _trailer(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Return number, rows and identity that the trailer at a place states, and where it ends."""
    magic, version, flags, zone, blocks, number, rows = struct.unpack_from("<4sBBHIQI", data, at)
    assert (magic, version, flags) == (b"igt1", 2, 0)
    (identity,) = struct.unpack_from("<Q", data, at + 24)
    return number, rows, identity, at + 44 + 4 * blocks + zone


def _read_pack(data: bytes, number: int, identity: int) -> list[bytes | None]:
    """Read a pack by the description of the format alone, and the original Blosc library."""
    assert data[:16] == b"blpk\x01\0\0\0" + struct.pack("<q", 2)
    contents, at = [], 16
    for _ in range(2):
        end = at + struct.unpack_from("<I", data, at + 12)[0]
        contents.append(blosc.decompress(data[at:end]) if end - at > 16 else b"")
        stated, rows, own, at = _trailer(data, end)
        assert (stated, own) == (number, identity)
        assert rows == len(contents[0]) // 4
    assert at == len(data)
    items: list[bytes | None] = []
    place = 0
    for (length,) in struct.iter_unpack("<i", contents[0]):
        items.append(None if length == -1 else contents[1][place : place + length])
        place += max(0, length)
    assert place == len(contents[1])
    return items


@pytest.mark.usefixtures("kernel")
def test_the_bytes_of_a_column(tmp_path: Path) -> None:
    ingot.table(
        {"n": np.arange(5), "name": WORDS}, tmp_path / "t", format="bcolz", chunks={"name": 2}
    )
    storage = json.loads((tmp_path / "t/name/meta/storage").read_text())
    assert (storage["dtype"], storage["chunklen"]) == ("utf8", 2)
    assert json.loads((tmp_path / "t/name/meta/sizes").read_text())["shape"] == [5]
    assert json.loads((tmp_path / "t/__rootdirs__").read_text()) == {
        "names": ["n"],
        "x_names": ["n", "name"],
    }
    identity = int(storage["x_id"], 16)
    found: list[bytes | None] = []
    for number in range(3):
        data = (tmp_path / f"t/name/data/__{number}.blp").read_bytes()
        found += _read_pack(data, number, identity)
    assert found == [None if word is None else word.encode() for word in WORDS]


@pytest.mark.parametrize(
    ("items", "dtype"),
    [([b"\xff", None], "bytes"), ([{"a": 1}, None], "json"), ([[1, 2], [3]], "list<<i8>")],
)
def test_the_kinds_of_items_are_spelled_in_the_storage(items: list[Any], dtype: str) -> None:
    store = MemoryStore()
    ingot.table({"a": items}, store, format="bcolz")
    (storage,) = store.read([Extent("a/meta/storage")])
    assert storage is not None
    assert json.loads(storage)["dtype"] == dtype
    assert list(ingot.open(store)["a"])[1] is None or dtype.startswith("list")


def test_bcolz_opens_the_other_columns(tmp_path: Path) -> None:
    bcolz = pytest.importorskip("bcolz")
    table = ingot.table({"n": np.arange(5), "name": WORDS}, tmp_path / "t", format="bcolz")
    table.append({"n": [5], "name": ["new"]})
    found = bcolz.open(str(tmp_path / "t"), mode="r")
    assert found.names == ["n"]
    assert found["n"][:].tolist() == [0, 1, 2, 3, 4, 5]


def test_lists_of_text_have_any_length_and_arrays_of_numpy_a_fixed_one() -> None:
    table = ingot.table(
        {
            "list": ["a", "bb"],
            "fixed": np.array(["a", "bb"]),
            "arrow": pyarrow.array(["a", None]),
            "string": np.array(["a", "bb"], np.dtypes.StringDType()),
        },
        format="bcolz",
    )
    assert [str(table.dtypes[name]) for name in ("list", "fixed")] == [
        "StringDType(na_object=None)",
        "<U2",
    ]
    assert table["arrow"].kind == table["string"].kind == "utf8"
    table.append({"list": ["Trondheim"], "fixed": ["c"], "arrow": [None], "string": ["d"]})
    assert list(table["list"]) == ["a", "bb", "Trondheim"]
    assert list(table["arrow"]) == ["a", None, None]


def test_the_length_of_packs_follows_the_first_items() -> None:
    assert pack_rows(10**9, 28.0) == (1 << 24) // 32
    store = MemoryStore()
    none = ingot.ragged([], kind="utf8", format="bcolz")
    table = ingot.table({"a": none}, store, format="bcolz")
    table.append({"a": ["x" * 500] * 1000})
    assert _rows(store) == 520
    # Items that are stored move to shorter packs while there is one pack.
    table = ingot.table({"a": ["x"] * 5}, store, format="bcolz", overwrite=True)
    assert _rows(store) == 52428
    table.append({"a": ["y" * 5000] * 100})
    assert _rows(store) == (1 << 18) // int((5 + 500_000) / 105 + 4)
    assert list(ingot.open(store)["a"]) == ["x"] * 5 + ["y" * 5000] * 100
    # But not where a caller chose the length.
    table = ingot.table({"a": ["x"] * 5}, store, format="bcolz", overwrite=True, chunks=7)
    table.append({"a": ["y" * 5000] * 100})
    assert _rows(store) == 7
    assert list(ingot.open(store)["a"]) == ["x"] * 5 + ["y" * 5000] * 100


def _rows(store: MemoryStore) -> int:
    (storage,) = store.read([Extent("a/meta/storage")])
    assert storage is not None
    rows = json.loads(storage)["chunklen"]
    assert isinstance(rows, int)
    return rows


@pytest.mark.usefixtures("kernel")
def test_rows_of_an_append_that_was_not_committed_do_not_count() -> None:
    store = MemoryStore()
    table = ingot.table({"a": ["x", None, "z"]}, store, format="bcolz", chunks=4)
    keys = ["a/meta/sizes", "a/data/__0.blp"]
    before = dict(zip(keys, store.read([Extent(key) for key in keys]), strict=True))
    table.append({"a": ["new"]})
    sizes = before["a/meta/sizes"]
    assert sizes is not None
    store.apply(Commit(publish=(Put("a/meta/sizes", sizes),)))
    again = ingot.open(store, "r+")
    assert list(again["a"]) == ["x", None, "z"]
    again.append({"a": ["other", "last"]})
    assert list(ingot.open(store)["a"]) == ["x", None, "z", "other", "last"]


def test_lone_items_and_their_shards(tmp_path: Path) -> None:
    items = [f"item {n}" if n % 5 else None for n in range(100)]
    made = ingot.ragged(items, tmp_path / "r", format="bcolz", attrs={"unit": "m"})
    made.append(str(n) for n in range(3))
    found = ingot.open(tmp_path / "r")
    assert (found.kind, dict(found.attrs)) == ("utf8", {"unit": "m"})
    assert list(found) == [*items, "0", "1", "2"]
    table = ingot.table({"a": items, "n": np.arange(100)}, format="bcolz", chunks=8)
    for count in (3, 7, 30):
        table.shard(count, tmp_path / f"s{count}")
        whole = ingot.open(tmp_path / f"s{count}")
        assert list(whole["a"]) == items
        assert whole.where("a == 'item 77'").read()["n"].tolist() == [77]
        with pytest.raises(UnsupportedError, match="each of them is changed by itself"):
            ingot.open(tmp_path / f"s{count}", "r+")["a"][0] = "x"
        shard = ingot.open(tmp_path / f"s{count}" / "shard-00001", "r+")
        first = shard["a"][0]
        assert first == items[int(shard["n"][0])]


def test_a_column_by_its_own_path_keeps_its_length(tmp_path: Path) -> None:
    ingot.table({"n": np.arange(5), "name": WORDS}, tmp_path / "t", format="bcolz")
    column = ingot.open(tmp_path / "t" / "name", "r+")
    column[1] = "Tromsø"
    assert ingot.open(tmp_path / "t")["name"][1] == "Tromsø"
    with pytest.raises(UnsupportedError, match="open the table to change its length"):
        column.append(["x"])


STORAGE = {"dtype": "utf8", "cparams": {"clevel": 5, "cname": "lz4"}, "chunklen": 2}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"dtype": "list<O>"}, (FormatError, UnsupportedError)),
        ({"dtype": "list<<i8"}, FormatError),
        ({"dtype": "list<utf8>"}, FormatError),
        ({"dtype": "list<|V0>"}, IngotError),
        ({"chunklen": 0}, FormatError),
        ({"chunklen": 2**40}, LimitError),
        ({"chunklen": "2"}, FormatError),
        ({"cparams": {"cname": "none"}}, UnsupportedError),
        ({"cparams": None}, FormatError),
        ({"x_id": "0"}, FormatError),
    ],
)
def test_claims_of_the_storage(change: dict[str, Any], error: Any) -> None:
    document = json.dumps({**STORAGE, **change}).encode()
    assert is_items(document)
    sizes = b'{"shape": [1]}'
    with pytest.raises(error):
        ingot.open(MemoryStore({"meta/storage": document, "meta/sizes": sizes}))


@pytest.mark.parametrize("sizes", [b"", b'{"shape": [1, 2]}', b'{"shape": [-1]}', b'{"shape": []}'])
def test_claims_of_the_sizes(sizes: bytes) -> None:
    storage = json.dumps(STORAGE).encode()
    with pytest.raises((FormatError, CorruptionError)):
        ingot.open(MemoryStore({"meta/storage": storage, "meta/sizes": sizes}))


def test_other_fields_of_the_storage_are_kept() -> None:
    storage = ItemStorage.parse(json.dumps({**STORAGE, "note": "mine"}).encode())
    assert json.loads(storage.with_chunklen(9).pack(None)) == {
        **STORAGE,
        "chunklen": 9,
        "note": "mine",
    }


def test_other_codecs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="compressed by Blosc only"):
        ingot.table({"a": ["x"]}, format="bcolz", codec="zlib:1")
    table = ingot.table({"a": ["x"]}, format="bcolz", codec="none")
    assert list(table["a"]) == ["x"]


_DAMAGE = """
from ingot.stores import Extent, MemoryStore

KINDS = {
    "utf8": ["ape", None, "", "bé" * 40],
    "bytes": [b"\\xff" * 30, b"", None, b"x"],
    "json": [{"a": [1, None]}, None, [], "text"],
    "<i4": [[1, -2, 3], None, [], [7] * 40],
}
def plain(items):
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]

for kind, values in KINDS.items():
    store = MemoryStore()
    table = ingot.table({"n": np.arange(4)}, store, format="bcolz")
    table.add_column("a", ingot.ragged(values, kind=kind), chunks=3)
    keys = ["a/data/__0.blp", "a/data/__1.blp", "a/meta/storage", "a/meta/sizes"]
    everything = [*keys, "__rootdirs__", "__attrs__", "a/__attrs__", "n/meta/storage",
                  "n/meta/sizes", "n/data/__0.blp", "n/__attrs__"]
    sound = dict(zip(everything, store.read([Extent(key) for key in everything]), strict=True))

    def read(changed):
        found = ingot.open(MemoryStore({**sound, **changed}))
        return plain(found["a"].items().to_list())

    assert read({}) == values
    for key in keys:
        data = sound[key]
        # Reserved bytes of a head, and what is not used of the documents, have no meaning.
        ignored = range(5, 8) if key.endswith(".blp") else range(len(data))
        for place in range(len(data)):
            for bits in (0x01, 0x80) if key.endswith(".blp") else (0x01,):
                wrong = bytearray(data)
                wrong[place] ^= bits
                try:
                    found = read({key: bytes(wrong)})
                except IngotError:
                    continue
                if key.endswith(".blp"):
                    assert place in ignored and found == values, (kind, key, place)
                else:
                    # Another kind or number of items is a claim that their bytes may fulfil.
                    assert len(found) <= 8, (kind, key, place)
            try:
                found = read({key: data[:place]})
            except IngotError:
                continue
            assert not key.endswith(".blp") and found == values, (kind, key, place)
"""


@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "python"])
def test_every_changed_byte_and_every_truncation(kernel: str) -> None:
    run_limited(_DAMAGE, kernel)
