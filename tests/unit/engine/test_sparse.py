"""Arrays that claim far more chunks than are stored."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.engine import sparse
from ingot.selection import parse, parse_orthogonal
from ingot.stores import LocalStore, MemoryStore
from tests.kernels import KERNELS
from tests.limited import run_limited


def claim(
    path: Path, shape: list[int], chunks: list[int], shard: list[int] | None = None, fill: int = 0
) -> Path:
    """Write a document of a few hundred bytes that claims an array of bytes."""
    codecs: list[object] = [{"name": "bytes"}]
    if shard is not None:
        inner = {
            "chunk_shape": chunks,
            "codecs": codecs,
            "index_codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "crc32c"},
            ],
        }
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    path.mkdir()
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shard or chunks}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": fill,
        "codecs": codecs,
    }
    (path / "zarr.json").write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "shard", [None, [2**16], [2**24]], ids=["chunks", "shards", "large shards"]
)
def test_a_claim_of_many_chunks_costs_no_more_than_the_result(
    tmp_path: Path, kernel: str, shard: list[int] | None
) -> None:
    path = claim(tmp_path / "a", [2**28], [1], shard, fill=7)
    code = """
a = ingot.open(sys.argv[1])
found = a[...]
assert found.shape == (2**28,) and (found[::4099] == 7).all()
out = np.zeros(2**25, "u1")
a.read(slice(None, None, 8), out=out)
assert (out[::4099] == 7).all()
assert (a[::-9][::4099] == 7).all()
assert (a[[5, 2**28 - 1, 3]] == 7).all()
"""
    run_limited(code, kernel, path)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shard", [None, [16, 2**16]], ids=["chunks", "shards"])
def test_huge_arrays_answer_at_once(tmp_path: Path, kernel: str, shard: list[int] | None) -> None:
    path = claim(tmp_path / "a", [2**20, 2**40], [1, 4096], shard, fill=2)
    code = """
a = ingot.open(sys.argv[1], "r+")
a[5, 7:9] = 9
a[2**20 - 1, -1] = 200
count = 2**60
assert int(a.sum(dtype="u8")) == (2 * count + 14 + 198) % 2**64
assert (a.min(), a.max(), a.any(), a.all()) == (2, 200, True, True)
assert a.mean() == 2.0
rows = np.full(2**20, 2)
rows[[5, -1]] = 9, 200
assert np.array_equal(a.max(axis=1), rows)
assert a.explain().chunks == 2**48 and "chunks" in str(a.explain((slice(None), [1, 2**39])))
assert a.stored_bytes > 0 and str(a.info) and repr(a)
a[...] = 2
assert a.stored_bytes == 0 and a.sum(dtype="u8") == 2 * count % 2**64
a[5, 4000:4100] = 9
a[4:9, 4050:] = 2
assert a[5, 3999:4052].tolist() == [2] + [9] * 50 + [2] * 2
a[:, 4000:4050:2] = 2
assert a[5, 4000:4004].tolist() == [2, 9, 2, 9]
a.oindex[[5, 2**20 - 1], 3000:] = 2
assert a.stored_bytes == 0
a[5, 2**40 - 1] = 8
a.resize((2**20 + 3, 2**40 + 5))
assert a[5, 2**40 - 1 :].tolist() == [8, 2, 2, 2, 2, 2]
a.resize((1, 8))
assert a.stored_bytes == 0
"""
    run_limited(code, kernel, path)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_array_larger_than_memory_is_refused(tmp_path: Path, kernel: str) -> None:
    path = claim(tmp_path / "a", [2**40], [1])
    code = """
a = ingot.open(sys.argv[1], "r+")
for use in (lambda: a[...], lambda: a[::16], a.to_numpy, lambda: a.oindex[:]):
    try:
        use()
    except LimitError:
        continue
    raise AssertionError
a[...] = 0
a[1:] = 0
a[::3] = 0
assert not a.any() and a.sum() == 0 and a.stored_bytes == 0
a.append([1, 2, 3])
assert a[-4:].tolist() == [0, 1, 2, 3] and a.sum() == 6
"""
    run_limited(code, kernel, path)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_large_chunk_is_not_added_up_when_absent(tmp_path: Path, kernel: str) -> None:
    path = claim(tmp_path / "a", [2**40], [2**27], fill=3)
    code = """
a = ingot.open(sys.argv[1])
assert a.sum(dtype="u8") == 3 * 2**40 and a.min() == 3 and a.mean() == 3.0
assert a.explain().chunks == 2**13
"""
    run_limited(code, kernel, path)


KEYS = [
    (..., ...),
    (slice(None), slice(3, 250)),
    (slice(200, 3, -1), slice(None, None, 3)),
    (slice(5, 290, 7), slice(280, 2, -11)),
]


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_sparse_reads_and_writes_are_numpys(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: tuple[object, ...],
    sharded: bool,
    local: bool,
) -> None:
    # One file of 50 is stored, so a random sample may meet many of them.
    monkeypatch.setattr(sparse, "_mostly_stored", lambda *_: False)
    key = key[:1] if key[0] is ... else key
    model = np.full((301, 299), 4, "i2")
    store = LocalStore(tmp_path / "a", writable=True) if local else MemoryStore()
    layout = {"shards": (9, 12)} if sharded else {}
    array = ingot.create(store, shape=model.shape, dtype="i2", chunks=(3, 4), fill=4, **layout)
    random = np.random.default_rng(7)
    for row, column in random.integers(0, 298, (12, 2)).tolist():
        array[row : row + 2, column] = row
        model[row : row + 2, column] = row
    files = sparse.stored_files(array._chunks, parse(..., model.shape))
    assert files is not None
    assert 0 < len(files) <= 24
    assert np.array_equal(array[key], model[key])
    rows = random.integers(0, 301, 299)
    assert np.array_equal(array[rows], model[rows])
    assert np.array_equal(array.oindex[rows, ::-2], model[rows][:, ::-2])
    assert np.array_equal(array[rows, np.arange(299)], model[rows, np.arange(299)])
    for axis in (None, 0, 1):
        for name in ("sum", "min", "max", "mean", "any", "all"):
            assert np.array_equal(getattr(array, name)(axis), getattr(model, name)(axis)), name
    array[key] = 4
    model[key] = 4
    assert np.array_equal(array[...], model)


@pytest.mark.parametrize("stored", [0, 5000])
def test_a_sample_tells_whether_a_good_part_is_stored(stored: int) -> None:
    array = ingot.create(shape=5000, dtype="u1", chunks=1)
    array[:stored] = 1
    files = sparse.stored_files(array._chunks, parse(..., array.shape))
    assert (files is None) == bool(stored)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", ">f4"])
def test_sums_of_absent_chunks_are_numpys(value: float, dtype: str) -> None:
    array = ingot.create(shape=(5000, 2), dtype=dtype, chunks=(1, 2), fill=value)
    array[77] = 3
    model = np.full((5000, 2), value, dtype)
    model[77] = 3
    for axis in (None, 0, 1):
        # NumPy's own sum of float16 along the first axis is far off; ours is rounded once.
        exact = model.sum(axis, dtype="c16" if model.dtype.kind == "c" else "f8")
        assert np.array_equal(array.sum(axis), exact.astype(array.sum(axis).dtype), equal_nan=True)
        assert np.array_equal(array.min(axis), model.min(axis), equal_nan=True)
        assert array.sum(axis).dtype == model.sum(axis).dtype


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "u8", "m8[s]"])
def test_sums_of_integers_wrap_around_as_numpys(dtype: str) -> None:
    fill = np.array(1, dtype) if dtype in "?m8[s]" else np.iinfo(dtype).max
    array = ingot.create(shape=5000, dtype=dtype, chunks=1, fill=fill)
    model = np.full(5000, fill, dtype)
    assert array.sum() == model.sum()
    assert array.sum().dtype == model.sum().dtype
    assert array.mean() == model.mean()


def test_the_numbers_of_files_are_their_places_in_the_selection() -> None:
    array = ingot.create(shape=(400, 400), dtype="u1", chunks=(3, 4))
    grid = array._chunks.schema.grid
    keys = [
        (slice(7, 390), slice(390, 5, -1)),
        (slice(0, 400, 5), slice(1, 400, 2)),
        (slice(399, 3, -7), [5, 9, 4, 399]),
    ]
    for key in keys:
        selection = parse_orthogonal(key, (400, 400))
        touched = [
            sorted({n // size for n in np.arange(400)[part]})
            for part, size in zip(key, (3, 4), strict=True)
        ]
        everything = list(product(*touched))
        numbers = sparse.file_numbers(np.array(everything), selection, grid)
        assert numbers == list(range(len(everything)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_are_not_stored_are_missing(tmp_path: Path, kernel: str) -> None:
    code = """
import json, pathlib
from ingot.errors import CorruptionError
root = pathlib.Path(sys.argv[1])
ingot.table({"x": np.arange(10)}, root, format="bcolz", chunks=1).close()
sizes = root / "x/meta/sizes"
claim = json.loads(sizes.read_text()) | {"shape": [2**27], "nbytes": 2**30}
sizes.write_text(json.dumps(claim))
table = ingot.open(root)
column = table["x"]
uses = [
    lambda: column[: 2**20],
    lambda: column[::1024],
    lambda: column[[0, 2**26]],
    column.sum,
    lambda: table.where("x > 5").count(),
    lambda: table.read(where="x == 3"),
]
for use in uses:
    try:
        use()
    except CorruptionError as error:
        assert "missing" in str(error)
    else:
        raise AssertionError
assert column.explain().chunks == 2**27 and str(table.info) and column.stored_bytes
"""
    run_limited(code, kernel, tmp_path / "t")
