"""Super-chunk files without metadata: arrays of one axis, of raw bytes or of a given type."""

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, ExistsError, IngotError, UnsupportedError
from ingot.stores import MemoryStore, ZipStore
from tests.kernels import on_each_kernel
from tests.limited import run_limited
from tests.storage import content, put, use_kernel

VALUES = np.arange(1, 101, dtype="<i4")


def made(folder: Path, values: Any = VALUES, **settings: Any) -> Path:
    ingot.array(values, folder / "a", format="blsk", **{"chunks": 30, **settings})
    return folder / "a" / "data" / "__1__.bin"


def opened(path: Any, **settings: Any) -> ingot.Array:
    found = ingot.open(path, **settings)
    assert isinstance(found, ingot.Array)
    return found


@on_each_kernel
def test_items_are_raw_bytes_or_of_a_type(
    tmp_path: Path, kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    file = made(tmp_path)
    array = opened(file)
    assert (array.shape, array.dtype, array.chunks) == ((120,), np.dtype("V4"), (30,))
    padded = np.concatenate([VALUES, np.zeros(20, "<i4")])
    assert array[...].tobytes() == padded.tobytes()
    typed = opened(file, dtype="<i4")
    assert np.array_equal(typed[...], padded)
    assert typed[95:103].tolist() == [96, 97, 98, 99, 100, 0, 0, 0]
    assert typed[[3, 99]].tolist() == [4, 100]
    again = pickle.loads(pickle.dumps(typed))
    assert again.dtype == np.dtype("<i4")
    typed.refresh()
    assert typed[0] == 1
    assert "V4" in repr(array.info)
    assert opened(made(tmp_path / "b", np.arange(9, dtype="u1"))).dtype == np.dtype("u1")


@on_each_kernel
def test_files_behind_the_first_have_other_numbers(
    tmp_path: Path, kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    made(tmp_path, superchunksize=2)
    array = opened(tmp_path / "a" / "data" / "__2__.bin", dtype="<i4")
    assert array[:40].tolist() == list(range(61, 101))
    assert array.shape == (60,)


def test_a_file_in_any_store(tmp_path: Path) -> None:
    data = made(tmp_path).read_bytes()
    store = MemoryStore({"part.bin": data})
    assert opened(store, dtype="<u4")[:100].tolist() == VALUES.tolist()
    assert opened(store, format="blsk").shape == (120,)
    archive = ZipStore(tmp_path / "z.zip", writable=True)
    put(archive, {"part.bin": data})
    assert opened(archive, dtype="<i4")[99] == 100


def test_chunks_that_are_not_stored_are_zeros(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[30:60] = 0
    assert opened(made(tmp_path, values), dtype="<i4")[:100].tolist() == values.tolist()


def test_files_are_only_read(tmp_path: Path) -> None:
    file = made(tmp_path)
    before = file.read_bytes()
    array = opened(file, mode="r+")
    for change in (
        lambda: array.__setitem__(0, b"1234"),
        lambda: array.append(array[:1]),
        lambda: array.resize((3,)),
        lambda: array.attrs.update(a=1),
        lambda: array.compact(),
    ):
        with pytest.raises(UnsupportedError, match="only read"):
            change()
    with pytest.raises(ExistsError, match="blsk needs a folder"):
        ingot.array([1], file, format="blsk", overwrite=True)
    with pytest.raises(ExistsError, match="something already"):
        ingot.array([1], MemoryStore({"f": before}), format="blsk", overwrite=True)
    assert file.read_bytes() == before


def test_types_that_do_not_fit(tmp_path: Path) -> None:
    file = made(tmp_path)
    for dtype in ("<i8", "u1", "O"):
        with pytest.raises(UnsupportedError, match="is no type of them"):
            ingot.open(file, dtype=dtype)
    with pytest.raises(UnsupportedError, match="only a super-chunk file without metadata"):
        ingot.open(tmp_path / "a", dtype="<i4")
    ingot.array([1], tmp_path / "z.zarr")
    with pytest.raises(UnsupportedError, match="zarr3 take no dtype"):
        ingot.open(tmp_path / "z.zarr", dtype="<i4")


def test_damaged_files(tmp_path: Path) -> None:
    data = bytearray(made(tmp_path).read_bytes())
    store = MemoryStore()
    start = struct.unpack_from("<q", data, 16)[0]
    struct.pack_into("<I", data, start + 12, 1 << 20)
    put(store, {"a.bin": bytes(data)})
    with pytest.raises(CorruptionError, match="larger than its slot"):
        ingot.open(store)
    put(store, {"a.bin": b"blsk\1\1\0\0" + struct.pack("<ii", 4, 100) + bytes(8)})
    with pytest.raises(CorruptionError, match="nchunks claims 100 chunks"):
        ingot.open(store)
    assert content(store)


@on_each_kernel
def test_any_damage_gives_data_or_an_error(kernel_name: str) -> None:
    code = """
from ingot.stores import MemoryStore
from tests.storage import content, put

store = MemoryStore()
ingot.array(np.arange(1, 41, dtype="<i4"), store, format="blsk", chunks=16, superchunksize=4)
data = content(store)["data/__1__.bin"]
right = ingot.open(MemoryStore({"f": data}))[...].tobytes()
for place in [*range(48), *range(48, len(data), 5)]:
    changed = bytearray(data)
    changed[place] ^= 1 << place % 8
    try:
        found = ingot.open(MemoryStore({"f": bytes(changed)}))[...].tobytes()
    except IngotError:
        continue
    # Without metadata, the size of items and the number of chunks are what the head says.
    assert found == right or place < 16, place
for length in range(0, len(data), 11):
    try:
        found = ingot.open(MemoryStore({"f": data[:length]}))[...].tobytes()
    except IngotError:
        continue
    assert found == right, length
"""
    run_limited(code, kernel_name)


def test_an_empty_file(tmp_path: Path) -> None:
    store = MemoryStore({"f": b"blsk\1\1\0\0" + struct.pack("<ii", 4, 0) + b"\xff" * 16})
    assert opened(store).shape == (0,)
    with pytest.raises(IngotError):
        ingot.open(MemoryStore({"f": b"blsk"}))
