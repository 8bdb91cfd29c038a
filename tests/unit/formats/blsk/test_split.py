"""Datasets of blsk are split by rows: chunks are copied where shards begin with one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, UnsupportedError
from ingot.formats import trailer
from ingot.formats.blsk.slots import split as split_slot
from ingot.formats.inspection import inspect_file
from ingot.stores import MemoryStore
from tests.blsk_reader import read
from tests.storage import content, put


def images(data: bytes) -> list[tuple[int, bytes]]:
    """Return the number that each trailer states, and its chunk."""
    found = inspect_file(lambda start, length: data[start : start + length], len(data), "f")
    assert not found.is_damaged
    parts = [split_slot(data[slot.start : slot.start + slot.used]) for slot in found.slots]
    return [(trailer.parse(behind).number, bytes(chunk)) for chunk, behind in parts]


@pytest.mark.parametrize("shape", [(23,), (23, 5), (0, 3)])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_shards_are_datasets_that_open_as_one(
    tmp_path: Path, shape: tuple[int, ...], count: int
) -> None:
    values = np.arange(1, 1 + int(np.prod(shape)), dtype="<i4").reshape(shape)
    attrs = {"unit": np.float32(2.5)}
    settings: dict[str, Any] = {"chunks": (2,) * len(shape), "superchunksize": 3, "order": "F"}
    array = ingot.array(values, tmp_path / "a", format="blsk", fill=7, attrs=attrs, **settings)
    array.shard(count, tmp_path / "s")
    found = ingot.open(tmp_path / "s")
    assert isinstance(found, ingot.Array)
    assert (found.format, found.fill, dict(found.attrs)) == ("blsk", 7, attrs)
    assert np.array_equal(found[...], values)
    document = json.loads((tmp_path / "s" / "shards.json").read_bytes())
    assert (document["version"], document["format"]) == (1, "blsk")
    assert len(document["rows"]) == count
    parts = [read(tmp_path / "s" / f"shard-{number:05d}") for number in range(count)]
    assert [len(part) for part in parts] == document["rows"]
    assert np.array_equal(np.concatenate(parts), values)


def test_chunks_are_copied_with_other_numbers(tmp_path: Path) -> None:
    values = np.arange(1, 101, dtype="<i4").reshape(20, 5)
    values[4:6] = 0
    array = ingot.array(values, tmp_path / "a", format="blsk", chunks=(2, 3), superchunksize=64)
    array.shard(2, tmp_path / "s")
    (source,) = [each.read_bytes() for each in (tmp_path / "a" / "data").iterdir()]
    copies = []
    for number in range(2):
        (file,) = (tmp_path / "s" / f"shard-{number:05d}" / "data").iterdir()
        copies.append(images(file.read_bytes()))
    assert [number for number, _ in copies[1]] == list(range(10))
    assert 4 not in dict(copies[0])
    assert [chunk for part in copies for _, chunk in part] == [c for _, c in images(source)]


def test_tables_with_nested_columns_and_other_files(tmp_path: Path) -> None:
    given = {"a": np.arange(95), "p": {"b": np.arange(95) / 2}}
    table = ingot.table(given, tmp_path / "t", format="blsk", chunks=10, attrs={"x": 1})
    (tmp_path / "t" / "meta" / "units").write_text("m\n")
    table.shard(4, tmp_path / "s")
    found = ingot.open(tmp_path / "s")
    assert isinstance(found, ingot.Table)
    assert (found.format, dict(found.attrs), found.names) == ("blsk", {"x": 1}, ("a", "p"))
    assert found["a"][...].tolist() == list(range(95))
    assert found.read(where="(a > 28) & (a < 32)")["p.b"].tolist() == [14.5, 15, 15.5]
    assert found["p"]["b"][31] == 15.5
    for number in range(4):
        assert (tmp_path / "s" / f"shard-{number:05d}" / "meta" / "units").read_text() == "m\n"


def test_rows_are_encoded_again_where_shards_are_shorter_than_chunks() -> None:
    store = MemoryStore()
    values = np.arange(95, dtype="u2")
    ingot.array(values, format="blsk", chunks=50).shard(4, store)
    found = ingot.open(store)
    assert isinstance(found, ingot.Array)
    assert found.chunks == (23,)
    assert np.array_equal(found[...], values)


def test_what_is_not_split(tmp_path: Path) -> None:
    ingot.array(np.arange(9), tmp_path / "a", format="blsk", chunks=3).shard(2, tmp_path / "s")
    for path in (tmp_path / "s", tmp_path / "a" / "data" / "__1__.bin"):
        whole = ingot.open(path)
        assert isinstance(whole, ingot.Array)
        with pytest.raises(UnsupportedError, match="shards"):
            whole.shard(2, tmp_path / "again")
    with pytest.raises(UnsupportedError, match="with an axis"):
        ingot.array(np.int64(3), format="blsk").shard(2, tmp_path / "again")


def test_a_damaged_chunk_is_not_copied() -> None:
    store = MemoryStore()
    array = ingot.array(np.arange(1, 21), store, format="blsk", chunks=5)
    data = bytearray(content(store)["data/__1__.bin"])
    data[-60] ^= 1
    put(store, {"data/__1__.bin": bytes(data)})
    array = ingot.open(store)
    assert isinstance(array, ingot.Array)
    with pytest.raises(CorruptionError):
        array.shard(2, MemoryStore())
