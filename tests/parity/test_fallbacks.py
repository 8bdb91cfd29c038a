"""The native build leaves to Python only what `docs/walks.md` lists, in every format and store."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.engine import kernel
from ingot.engine.payload import engine_of
from ingot.formats.bcolz import split
from ingot.options import Options
from ingot.selection import CoordinateSelection, parse
from ingot.stores import Commit, Extent, LocalStore, MemoryStore, Put, Store
from ingot.stores.buffered import BufferedStore
from tests.storage import STORES
from tests.unit.formats.zarr import test_shards as shards

pytestmark = pytest.mark.skipif(
    native.choice().name != "native", reason="the native kernel is not in use"
)

FORMATS = list(ingot.formats())
DTYPES = [
    *("?", "i1", "u2", "<i4", ">i4", "<i8", "<f2", "<f4", ">f8", "<c8", "<c16"),
    *("S5", "<U3", "V6", "<M8[ns]", "<m8[s]"),
]
KEYS = [..., (slice(3, 9, 2),), ([1, 5, 2],), ([1, 2], [0, 3])]


def values_of(dtype: str) -> np.ndarray[Any, Any]:
    items = np.arange(12 * 4, dtype="u1").reshape(12, 4)
    return items.view("V1").astype(dtype) if dtype == "V6" else items.astype(dtype)


def check_native(array: ingot.Array, values: np.ndarray[Any, Any]) -> None:
    for key in KEYS:
        found = array.explain(key)
        assert found.kernel == "native", (key, found.reason)
    assert np.array_equal(array[...], values)


@pytest.mark.parametrize("make", STORES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_no_format_falls_back(
    tmp_path: Path, format: str, dtype: str, make: Callable[[Path], Store], monkeypatch: Any
) -> None:
    values = values_of(dtype)
    try:
        ingot.create(MemoryStore(), shape=(12, 4), dtype=values.dtype, format=format)
    except ingot.errors.IngotError:
        pytest.skip(f"{format} does not hold {dtype}")
    monkeypatch.setattr(kernel, "decode", refuse)
    monkeypatch.setattr(kernel, "encode", refuse)
    array = ingot.array(values, make(tmp_path), chunks=(5, 4), format=format)
    check_native(array, values)
    for key in KEYS:
        array[key] = values[key]
    array.append(values[:3])
    assert np.array_equal(array[...], np.concatenate([values, values[:3]]))


@pytest.mark.parametrize("make", STORES)
@pytest.mark.parametrize(
    "layout",
    [
        {"format": "zarr2", "order": "F"},
        {"format": "zarr3", "order": "F"},
        {"format": "blsk", "order": "F"},
        {"format": "blsk", "superchunksize": 2},
        {"format": "zarr3", "shards": (10, 4)},
        {"format": "zarr3", "codec": "none"},
        {"format": "zarr3", "codec": "zstd:3"},
        {"format": "zarr2", "codec": "zlib:1"},
        {"format": "zarr2", "codec": "lz4:1"},
        {"format": "zarr2", "checksum": True},
        {"format": "zarr0", "codec": "blosc:zlib:5:shuffle"},
    ],
    ids=str,
)
def test_no_layout_falls_back(
    tmp_path: Path, layout: dict[str, Any], make: Callable[[Path], Store]
) -> None:
    values = values_of("<i4")
    check_native(ingot.array(values, make(tmp_path), chunks=(5, 2), **layout), values)


def refuse(*given: Any) -> Any:
    raise AssertionError("a chunk is coded in Python")


@pytest.mark.parametrize("make", STORES)
def test_rectilinear_grids_are_coded_natively(
    tmp_path: Path, make: Callable[[Path], Store], monkeypatch: Any
) -> None:
    store, values = make(tmp_path), values_of("<i4")
    ingot.create(store, shape=(12, 4), dtype="<i4", chunks=(5, 4), format="zarr3").close()
    (document,) = store.read([Extent("zarr.json")])
    assert document is not None
    grid = {"kind": "inline", "chunk_shapes": [[5, [3, 1], 4], 4]}
    changed = json.loads(document) | {"chunk_grid": {"name": "rectilinear", "configuration": grid}}
    store.apply(Commit(publish=(Put("zarr.json", json.dumps(changed).encode()),)))
    monkeypatch.setattr(kernel, "decode", refuse)
    monkeypatch.setattr(kernel, "encode", refuse)
    array = ingot.open(store, "r+")
    array[...] = values
    array[3:9] = values[3:9]
    check_native(array, values)


@pytest.mark.parametrize("make", STORES)
def test_shards_in_shards_are_coded_natively(
    tmp_path: Path, make: Callable[[Path], Store], monkeypatch: Any
) -> None:
    store, values = make(tmp_path), np.arange(90, dtype="u1").reshape(10, 9)
    engine = engine_of(shards.make(store, serializer=shards.NESTED), Options())
    monkeypatch.setattr(kernel, "decode", refuse)
    store.apply(engine.assign(parse(..., values.shape), values))
    monkeypatch.setattr(kernel, "encode", refuse)
    for key in (..., np.s_[3:9:2, 1:], ([1, 5, 2],), ([1, 2], [0, 3])):
        selection = parse(key, values.shape)
        explained = engine.explain(selection)
        assert explained.kernel == "native"
        if isinstance(store, LocalStore) and not isinstance(selection, CoordinateSelection):
            assert explained.reason == "in one call: the kernel reads the files"
        assert np.array_equal(engine.read(selection), values[key])


def test_shards_by_rows_are_native_and_so_are_stores_over_others(tmp_path: Path) -> None:
    values = values_of("<i4")
    array = ingot.array(values, MemoryStore(), chunks=2, format="bcolz")
    array.shard(3, tmp_path / "shards")
    check_native(ingot.open(tmp_path / "shards"), values)
    store = LocalStore(tmp_path / "plain", writable=True)
    plain = ingot.array(values, store, chunks=2, format="bcolz")
    buffered = engine_of(plain._handle.value.chunks.reopened(BufferedStore(store)), Options())
    assert type(buffered.layout()).__name__ == "HandedLayout"


@pytest.mark.parametrize("make", STORES)
def test_the_chunks_of_row_shards_are_copied_natively(
    tmp_path: Path, make: Callable[[Path], Store], monkeypatch: Any
) -> None:
    monkeypatch.setattr(split, "_image", refuse)
    values = {"a": np.arange(1000), "b": np.arange(1000) / 7}
    target = make(tmp_path / "shards")
    for source in (make(tmp_path / "table"), MemoryStore()):
        table = ingot.table(values, source, format="bcolz", chunks=90)
        table.shard(3, target)
        found = ingot.open(target)
        assert np.array_equal(found["a"][...], values["a"])
        assert np.array_equal(found["b"][...], values["b"])
        target = MemoryStore()


def test_what_is_left_to_python_says_why() -> None:
    objects = ingot.array(np.array(["a", 1], object), format="zarr2", codec="json2")
    assert objects.explain().kernel == "python"
    assert "lie outside" in objects.explain().reason
    packed = ingot.array(values_of("<i4"), format="zarr2", codec="bz2")
    assert packed.explain().reason == "the codec bz2 is not native"
    assert packed.explain().to_dict()["reason"] == packed.explain().reason
    cached = ingot.array(values_of("<i4"), options=Options(cache_bytes=1 << 20))
    assert cached.explain().reason == "decoded chunks are cached"


def test_the_list_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "walks.md").read_text(encoding="utf-8")
    words = " ".join(text.split())
    assert "objects and text of any length, JSON, and codecs without native code" in words
