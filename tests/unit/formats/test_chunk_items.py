"""Arrays of variable-length items of Zarr, read as items: those of zarr and numcodecs."""

import json
import struct
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr

import ingot
from ingot.errors import CorruptionError, ReadOnlyError, UnsupportedError
from ingot.stores import MemoryStore
from tests.storage import put

WORDS = ["ape", "", "bée", "日本", "x"]
ROWS: list[Any] = [[1, -2], [], [3], [4, 5, 6], [7]]
OCTETS = [b"\xff\0", b"", b"a", b"bb", b"c"]

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")


def objects(values: list[Any]) -> Any:
    made = np.empty(len(values), object)
    for number, value in enumerate(values):
        made[number] = value
    return made


def by_hand(
    codec: Any, values: list[Any], *, fill: Any = 0, stored: tuple[int, ...] = (0, 1)
) -> MemoryStore:
    """Return an array of zarr 2 with 5 items in chunks of 3, encoded by numcodecs."""
    described = {
        "zarr_format": 2,
        "shape": [5],
        "chunks": [3],
        "dtype": "|O",
        "compressor": None,
        "fill_value": fill,
        "order": "C",
        "filters": [codec.get_config()],
    }
    files = {".zarray": json.dumps(described).encode()}
    padded = [*values, values[0]]
    for number in stored:
        chunk = objects([np.asarray(each) if isinstance(each, list) else each for each in padded])
        files[str(number)] = bytes(codec.encode(chunk[3 * number : 3 * number + 3]))
    return MemoryStore(files)


@pytest.mark.parametrize(
    ("codec", "values", "kind"),
    [
        (numcodecs.VLenUTF8(), WORDS, "utf8"),
        (numcodecs.VLenBytes(), OCTETS, "bytes"),
        (numcodecs.VLenArray("<i4"), ROWS, np.dtype("<i4")),
    ],
)
def test_chunks_of_numcodecs(codec: Any, values: list[Any], kind: Any) -> None:
    items = ingot.open(by_hand(codec, values)).ragged()
    assert isinstance(items, ingot.Ragged)
    assert (items.kind, len(items), items.mode) == (kind, 5, "r")
    found = [each.tolist() if isinstance(each, np.ndarray) else each for each in items]
    assert found == values
    assert items.to_arrow().to_pylist() == values
    last = items[-1]
    assert (last.tolist() if isinstance(last, np.ndarray) else last) == values[-1]
    assert len(repr(items.info)) > 0
    assert items.explain(4).chunks == 1


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("shards", [None, (6,)])
def test_text_of_zarr(tmp_path: Path, zarr_format: int, shards: Any) -> None:
    if shards and zarr_format == 2:
        pytest.skip("zarr 2 has no shards")
    array: Any = zarr.create_array(
        tmp_path / "a", shape=(9,), chunks=(3,), shards=shards, dtype=str, zarr_format=zarr_format
    )
    array[:5] = np.array(WORDS, object)
    opened = ingot.open(tmp_path / "a", "r+")
    items = opened.ragged()
    assert list(items) == [*WORDS, "", "", "", ""]
    assert items[[3, 0]].tolist() == ["日本", "ape"]
    # Items follow the changes of the array.
    opened[7] = "late"
    assert items[7] == "late"
    with pytest.raises(ReadOnlyError):
        items[0] = "x"


def test_bytes_of_zarr(tmp_path: Path) -> None:
    array: Any = zarr.create_array(
        tmp_path / "a", shape=(5,), chunks=(2,), dtype="variable_length_bytes", zarr_format=3
    )
    array[:] = objects(OCTETS)
    assert list(ingot.open(tmp_path / "a").ragged()) == OCTETS


@pytest.mark.parametrize(
    ("fill", "codec", "expected"),
    [
        ("none", numcodecs.VLenUTF8(), "none"),
        (0, numcodecs.VLenUTF8(), ""),
        (0, numcodecs.VLenBytes(), b""),
    ],
)
def test_chunks_that_are_not_stored(fill: Any, codec: Any, expected: Any) -> None:
    values = [each.encode() for each in WORDS] if isinstance(expected, bytes) else WORDS
    store = by_hand(codec, values, fill=fill, stored=(1,))
    array = ingot.open(store)
    assert list(array.ragged()) == [expected] * 3 + values[3:]
    strict = ingot.open(store, options=ingot.Options(missing="error")).ragged()
    assert strict[4] == values[4]
    with pytest.raises(CorruptionError, match="pack 0 of the items is not stored"):
        strict[0]


def test_items_become_a_column(tmp_path: Path) -> None:
    words = ingot.array(np.array(WORDS, "T"), format="zarr3", chunks=2).ragged()
    table = ingot.table({"w": words}, tmp_path / "t", format="blsk")
    assert list(table["w"]) == WORDS


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3),
        np.array(["a", "bb"]),
        np.array([["a"], ["b"]], "T"),
    ],
)
def test_other_arrays_are_refused(array: Any) -> None:
    with pytest.raises(UnsupportedError):
        ingot.array(array, format="zarr3").ragged()


COUNT = struct.Struct("<I")


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (b"", "the chunk is empty"),
        (COUNT.pack(2**32 - 1), "the count is 4294967295"),
        (COUNT.pack(3) + bytes(8), "cannot hold 3 items"),
        (COUNT.pack(3) + COUNT.pack(2**31) + bytes(20), "ends at byte 2147483656"),
        (COUNT.pack(3) + bytes(12) + b"x", "1 bytes follow the last item"),
        (COUNT.pack(3) + COUNT.pack(1) + b"\xff" + bytes(8), "item 0 is no text in UTF-8"),
    ],
)
def test_hostile_chunks(chunk: bytes, message: str) -> None:
    store = by_hand(numcodecs.VLenUTF8(), WORDS, stored=())
    put(store, {"0": chunk})
    items = ingot.open(store).ragged()
    with pytest.raises(CorruptionError, match=message):
        items[0]
