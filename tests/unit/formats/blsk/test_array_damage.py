"""Damaged datasets of blsk: the right data or an error, in a child with little memory."""

import pytest

from tests.kernels import needs_native, on_each_kernel
from tests.limited import run_limited

MAKE = """
from ingot.stores import MemoryStore
from tests.storage import content, put

def make(order="C", **settings):
    store = MemoryStore()
    values = np.arange(1, 43, dtype="<i4").reshape(7, 6) // 2
    values[3:5, :4] = 0
    array = ingot.array(
        values, store, format="blsk", chunks=(3, 4), superchunksize=4, order=order, **settings
    )
    array[2, 2] = values[2, 2] = 77
    array.attrs["a"] = 1.5
    return content(store), values

def outcome(files):
    store = MemoryStore()
    put(store, files)
    try:
        return ingot.open(store)[...]
    except IngotError:
        return None
"""


@on_each_kernel
def test_every_flipped_byte_of_a_file_is_noticed_or_means_nothing(kernel_name: str) -> None:
    code = """
files, values = make()
noticed = 0
for key in sorted(files):
    if key.endswith(".bin"):
        for place in range(len(files[key])):
            data = bytearray(files[key])
            data[place] ^= 1 << place % 8
            found = outcome(files | {key: bytes(data)})
            noticed += found is None
            assert found is None or np.array_equal(found, values), (key, place)
assert noticed > 500, noticed
"""
    run_limited(MAKE + code, kernel_name)


@on_each_kernel
def test_every_truncated_file_is_noticed_or_lost_spare_bytes(kernel_name: str) -> None:
    code = """
files, values = make("F", spare=0.5)
for key in sorted(files):
    if key.endswith(".bin"):
        for length in range(len(files[key])):
            found = outcome(files | {key: files[key][:length]})
            assert found is None or np.array_equal(found, values), (key, length)
"""
    run_limited(MAKE + code, kernel_name)


@on_each_kernel
def test_documents_with_any_damage_give_data_or_errors(kernel_name: str) -> None:
    code = """
files, values = make()
for key in ("meta/nrows", "meta/storage", "meta/attributes"):
    for place in range(len(files[key])):
        for damaged in (b"", b"9", b":", b"[", b"&", b"-"):
            outcome(files | {key: files[key][:place] + damaged + files[key][place + 1 :]})
        outcome(files | {key: files[key][:place]})
"""
    run_limited(MAKE + code, kernel_name)


@on_each_kernel
def test_claims_cost_no_memory(kernel_name: str) -> None:
    code = """
files, values = make()
text = files["meta/storage"]
for old, new in [
    (b"shape: [7, 6]", b"shape: [7, 4611686018427387904]"),
    (b"chunkshape: [3, 4]", b"chunkshape: [1, 1]"),
    (b"chunkshape: [3, 4]", b"chunkshape: [400000, 400000]"),
    (b"superchunksize: 4", b"superchunksize: 1048576"),
    (b"superchunksize: 4", b"superchunksize: 1"),
    (b"dtype: int32", b"dtype: S400000000"),
    (b"dtype: int32", b"dtype: int64"),
]:
    assert old in text
    assert outcome(files | {"meta/storage": text.replace(old, new)}) is None, new
"""
    run_limited(MAKE + code, kernel_name)


@on_each_kernel
def test_a_huge_array_of_few_chunks_takes_little(kernel_name: str) -> None:
    code = """
array = ingot.create(
    MemoryStore(), shape=(1 << 40, 6), dtype="u1", format="blsk", chunks=(4, 6), superchunksize=64
)
array[1 << 39, 3] = 5
assert array[(1 << 39) - 1 : (1 << 39) + 2, 2:5].tolist() == [[0, 0, 0], [0, 5, 0], [0, 0, 0]]
assert array[0, 0] == 0
array.resize((1 << 41, 6))
assert array[1 << 39, 3] == 5
array.resize((100, 6))
assert not array[...].any()
"""
    run_limited(MAKE + code, kernel_name)


@pytest.mark.parametrize("order", ["C", "F"])
@needs_native
def test_the_kernel_notices_every_flipped_byte_and_every_truncation_of_a_file(order: str) -> None:
    # It reads heads and entries by itself, where files lie in a folder.
    code = f"""
import tempfile
from pathlib import Path

files, values = make({order!r}, spare=0.5)
with tempfile.TemporaryDirectory() as folder:
    for key, data in files.items():
        path = Path(folder, key)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    def outcome(path, data):
        path.write_bytes(data)
        try:
            array = ingot.open(folder)
            found = np.array([[array[row, column] for column in range(6)] for row in range(7)])
            assert np.array_equal(found, array[...])
            return found
        except IngotError:
            return None

    noticed = 0
    for key in sorted(files):
        if not key.endswith(".bin"):
            continue
        whole, path = files[key], Path(folder, key)
        flipped = ((place, 1 << bit) for place in range(len(whole)) for bit in (0, place % 8))
        for place, change in flipped:
            data = bytearray(whole)
            data[place] ^= change
            found = outcome(path, bytes(data))
            noticed += found is None
            assert found is None or np.array_equal(found, values), (key, place)
        for length in range(len(whole)):
            found = outcome(path, whole[:length])
            noticed += found is None
            assert found is None or np.array_equal(found, values), (key, length)
        path.write_bytes(whole)
    assert noticed > 1000, noticed
    text = files["meta/storage"]
    for old, new in [
        (b"shape: [7, 6]", b"shape: [7, 4611686018427387904]"),
        (b"chunkshape: [3, 4]", b"chunkshape: [1, 1]"),
        (b"superchunksize: 4", b"superchunksize: 1048576"),
        (b"superchunksize: 4", b"superchunksize: 1"),
        (b"dtype: int32", b"dtype: int64"),
    ]:
        assert old in text
        assert outcome(Path(folder, "meta/storage"), text.replace(old, new)) is None, new
"""
    run_limited(MAKE + code, "native")
