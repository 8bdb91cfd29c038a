"""Files of variable-length items as users make and read them, beside a reader made by hand."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.ingest import item_blocks
from ingot.engine import ragged as engine_ragged
from ingot.errors import ExistsError, FormatError, LimitError, UnsupportedError
from ingot.stores import Extent, MemoryStore
from tests import varlen_files as by_hand

WORDS: list[str | None] = ["ape", None, "", "bé", "日本" * 30, "a\0", "z" * 500]
KINDS: dict[str, tuple[Any, list[Any]]] = {
    "utf8": ("utf8", WORDS),
    "bytes": ("bytes", [b"", None, b"\xff\0", b"x" * 300]),
    "json": ("json", [{"a": [1, None]}, None, [], "text", 5, True, {"é": 1.5}]),
    "rows": ("<f4", [[1.5, 2.5], None, [], list(range(200))]),
}


def plain(items: Any) -> list[Any]:
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


def stored(store: MemoryStore) -> bytes:
    (data,) = store.read([Extent("data.blv")])
    assert data is not None
    return data


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_items_are_read_by_another_reader(name: str, packed: bool) -> None:
    kind, values = KINDS[name]
    store = MemoryStore()
    made = ingot.ragged(values, store, kind=kind, packed=packed, attrs={"unit": "m"})
    assert plain(made) == plain(ingot.open(store)) == values
    items, metadata = by_hand.read_file(stored(store))
    spelled = {"utf8": "utf8", "bytes": "bytes", "json": "json", "rows": "<f4"}[name]
    assert (metadata["dtype"], metadata["user"]) == (spelled, {"unit": "m"})
    assert [item is None for item in items] == [value is None for value in values]
    if name == "utf8":
        assert [None if item is None else item.decode() for item in items] == values
    if name == "rows":
        rows = [None if item is None else np.frombuffer(item, "<f4").tolist() for item in items]
        assert rows == values


@pytest.mark.parametrize("make", [by_hand.packed_file, by_hand.single_file])
def test_files_by_hand_are_read_and_changed(make: Any) -> None:
    items = [b"ape", None, b"", b"bees" * 40]
    data = make([items[:1], items[1:]]) if make is by_hand.packed_file else make(items)
    store = MemoryStore({"data.blv": data})
    found: Any = ingot.open(store, "r+")
    assert list(found) == items
    found.append([b"more"])
    found[0] = b"APE" * 100
    assert list(found) == [b"APE" * 100, None, b"", b"bees" * 40, b"more"]
    assert by_hand.read_file(stored(store))[0] == list(found)


def test_a_null_can_be_written_to_a_file_that_had_none() -> None:
    data = by_hand.packed_file([[b"a", b"b"]], nulls=False, theirs=[1])
    store = MemoryStore({"data.blv": data})
    found: Any = ingot.open(store, "r+")
    found[1] = None
    assert list(found) == list(ingot.open(store)) == [b"a", None]
    items, metadata = by_hand.read_file(stored(store))
    assert (items, metadata["nulls"], metadata["theirs"]) == ([b"a", None], True, [1])


def test_keys_are_those_of_numpy() -> None:
    words = [f"word {n}" for n in range(1000)]
    found: Any = ingot.ragged(words, pack_bytes=500)
    expected = np.array(words, object)
    for key in (
        slice(None),
        slice(3, 700),
        slice(None, None, -7),
        slice(900, 100, -3),
        slice(5, 5),
        [3, 1, 1, 999, -1],
        np.arange(1000) % 3 == 0,
        np.array([], int),
        ...,
    ):
        assert found[key].tolist() == expected[key].tolist()
        assert found.read(key).tolist() == expected[key].tolist()
    assert (found[0], found[-1], found[np.int64(5)]) == ("word 0", "word 999", "word 5")
    assert list(found) == words
    for wrong in (1000, -1001):
        with pytest.raises(IndexError):
            found[wrong]
    assert found.shape == (1000,)
    assert np.asarray(found).tolist() == words


def test_no_items_at_all() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged([], store, kind="utf8")
    found: Any = ingot.open(store, "r+")
    assert (len(found), list(found), found[:].tolist(), found.kind) == (0, [], [], "utf8")
    assert by_hand.read_file(stored(store))[0] == []
    found.append([])
    found.append(["a"])
    assert list(made) == ["a"]
    with pytest.raises(ValueError, match="kind must be given"):
        ingot.ragged([])


def test_mixed_items_are_refused_with_their_position(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="item 2 is bytes, item 0 is text"):
        ingot.ragged(["a", None, b"b"], tmp_path / "a.blv")
    with pytest.raises(ValueError, match="item 1 is 5, not text"):
        ingot.ragged(["a", 5], tmp_path / "a.blv", kind="utf8")
    with pytest.raises(ValueError, match="one item is given"):
        ingot.ragged("abc", tmp_path / "a.blv")
    assert not list(tmp_path.iterdir())


def test_files_have_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "words.blv"
    ingot.ragged(WORDS, path, attrs={"n": 1})
    assert path.read_bytes()[:6] == b"blpk\x04\x1f"
    found: Any = ingot.open(path)
    assert list(found) == WORDS
    assert repr(found) == f"<ingot.Ragged of 7 utf8; varlen at {str(path)!r}, r>"
    with pytest.raises(ExistsError):
        ingot.ragged(["b"], path)
    ingot.ragged(["b"], path, overwrite=True)
    assert list(found) == ["b"]
    again = pickle.loads(pickle.dumps(found))
    assert (list(again), again.mode, again.path) == (["b"], "r", found.path)
    with pytest.raises(UnsupportedError, match="holds no tables"):
        ingot.table({"a": [1]}, tmp_path / "t.blv")
    with pytest.raises(UnsupportedError, match="holds no items alone"):
        ingot.ragged(["b"], tmp_path / "t.zarr")


def test_formats_names_it() -> None:
    assert ingot.formats()["varlen"] == ("ragged",)


def test_large_items_get_chunks_of_their_own() -> None:
    store = MemoryStore()
    ingot.ragged([b"x" * 20_000] * 3, store)
    assert stored(store)[5] == 0x17
    ingot.ragged([b"x" * 10_000] * 3, store, overwrite=True)
    assert stored(store)[5] == 0x1F


def test_a_long_item_makes_a_pack_of_its_own() -> None:
    items = ["a", "b", "c" * 100_000, "d", "e"]
    made: Any = ingot.ragged(items, packed=True)
    assert list(made) == items
    assert made.explain().chunks == 3
    assert made.explain(0).chunks == 1


@pytest.mark.parametrize("checksum", ["none", "adler32", "crc32", "md5", "sha512"])
def test_checksums_are_kept(checksum: str) -> None:
    store = MemoryStore()
    ingot.ragged(WORDS, store, checksum=checksum)
    found: Any = ingot.open(store, "r+")
    found.append(["more"])
    assert list(ingot.open(store)) == [*WORDS, "more"]
    names = ["none", "adler32", "crc32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
    assert names[stored(store)[6]] == checksum


@pytest.mark.parametrize(
    "codec", ["blosc:zstd:5", "blosc:lz4:9:bitshuffle", "none", "blosc:zlib:1"]
)
def test_codecs_are_kept(codec: str) -> None:
    store = MemoryStore()
    made: Any = ingot.ragged([[1, 2, 3]] * 100, store, codec=codec, kind="<i4")
    found: Any = ingot.open(store, "r+")
    assert found.codec == made.codec
    assert plain(found) == [[1, 2, 3]] * 100
    again: Any = ingot.ragged(found, codec=found.codec)
    assert again.codec == found.codec


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"codec": "zstd:3"}, UnsupportedError),
        ({"checksum": "crc64"}, ValueError),
        ({"reserve": -1}, FormatError),
        ({"slots": -1}, ValueError),
        ({"pack_bytes": 0}, ValueError),
        ({"colour": 1}, TypeError),
        ({"kind": "tree"}, ValueError),
        ({"attrs": {"a": float("nan")}}, FormatError),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], error: type[Exception]) -> None:
    store = MemoryStore()
    with pytest.raises(error):
        ingot.ragged(["a"], store, **settings)
    assert list(store.names()) == []


def test_items_over_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ingot import ragged_array

    monkeypatch.setattr(ragged_array, "LONGEST_ITEM", 100)
    with pytest.raises(LimitError, match="item 1 has 101 bytes, the most is 100"):
        ingot.ragged(["a", "b" * 101])


def test_other_libraries_give_and_take_items() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    arrow = pyarrow.array(WORDS)
    made = ingot.ragged(arrow)
    assert made.to_arrow().to_pylist() == WORDS
    assert made.to_arrow().type == pyarrow.large_string()
    assert list(ingot.ragged(pandas.Series(["a", None, "b"], dtype="string"))) == ["a", None, "b"]
    text = np.array(["a", "bb"], np.dtypes.StringDType())
    assert list(ingot.ragged(text)) == ["a", "bb"]
    lists = pyarrow.array([[1, 2], None, []])
    assert ingot.ragged(lists).to_arrow().to_pylist() == [[1, 2], None, []]
    assert list(ingot.ragged(made)) == WORDS


@pytest.mark.parametrize("spooled", [0, 2000, 64 << 20])
def test_iterators_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch, spooled: int) -> None:
    monkeypatch.setattr("ingot.containers.ingest._BLOCK_ITEMS", 7)
    monkeypatch.setattr(engine_ragged, "_SPOOLED", spooled)
    words = [None if n % 5 == 0 else f"word {n}" * (n % 9) for n in range(500)]
    store = MemoryStore()
    made: Any = ingot.ragged(iter(words), store, pack_bytes=300)
    assert list(made) == list(ingot.open(store)) == words
    # Blocks leave no short packs behind.
    assert made.explain().chunks < 80
    made.append(word for word in words)
    made.extend(iter([]))
    assert list(made) == words * 2
    found, _ = by_hand.read_file(stored(store))
    assert [None if each is None else each.decode() for each in found] == words * 2
    with made.transaction():
        made.append(iter(["a", "b"]))
    assert made[-1] == "b"
    with pytest.raises(ValueError, match="items from 7 on: item 1 is 5, not text"):
        made.append(iter([*words[:8], 5]))
    with pytest.raises(ValueError, match="items from 7 on: item 0 is b'x', not text"):
        ingot.ragged(iter([*words[:7], b"x"]), pack_bytes=300)
    assert len(made) == 1002


def test_blocks_of_long_items_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.containers.ingest._BLOCK_BYTES", 1000)
    monkeypatch.setattr("ingot.containers.ingest._TAKEN", 4)
    blocks = list(item_blocks(iter(["x" * 300] * 10)))
    assert [len(block) for block in blocks] == [4, 4, 2]


def test_iterators_decide_their_kind() -> None:
    assert ingot.ragged(iter([None] * 40_000 + [[1, 2]])).kind == np.dtype(int)
    assert list(ingot.ragged(iter([]), kind="bytes")) == []
    assert list(ingot.ragged(iter([None]), kind="bytes")) == [None]
    for empty in (iter([]), iter([None, None])):
        with pytest.raises(ValueError, match="kind must be given"):
            ingot.ragged(empty)


def test_a_stream_does_not_mind_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.blv"
    made: Any = ingot.ragged(["a"], path)

    def items() -> Iterator[str]:
        yield "b"
        # Other settings, so that the packs of this stream do not fit.
        ingot.ragged(["other"], path, overwrite=True, checksum="md5")
        yield "c"

    made.append(items())
    assert list(ingot.open(path)) == ["other", "b", "c"]
