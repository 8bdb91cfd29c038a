"""What a native layout says of the files it writes, held against the files themselves."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, UnsafeError
from ingot.native import Layout
from ingot.stores import Extent, MemoryStore
from tests.kernels import load, needs_native

pytestmark = needs_native

SHAPE, CHUNKS = (10, 12), (4, 5)


ADDRESSES = {"names": ("c/", "/", "", "0")}
CODING = {"kind": "blosc", "codec": "lz4", "level": 5, "filter": "shuffle", "typesize": 4}
GRID = {"shape": SHAPE, "chunk": CHUNKS, "order": (0, 1), "fill": bytes(4)}


def make_layout(root: Path, **changes: Any) -> Layout:
    """Return the layout of a small array of 4-byte items."""
    kernel: Any = load("native")
    values = [
        kind(**{name: changes.get(name, value) for name, value in given.items()})
        for kind, given in (
            (kernel.Addresses, ADDRESSES | {"root": root}),
            (kernel.Coding, CODING | {"blocksize": 0}),
            (kernel.Grid, GRID),
        )
    ]
    layout: Layout = kernel.Layout(*values)
    return layout


@pytest.mark.parametrize("kind", ["raw", "blosc", "zlib", "zstd", "lz4"])
def test_staged_files_have_the_size_and_the_checksum_that_are_reported(
    tmp_path: Path, kind: str
) -> None:
    values = np.arange(120, dtype="<i4").reshape(SHAPE)
    # A chunk that holds nothing but fill gets no file.
    values[4:8, 5:10] = 0
    layout = make_layout(tmp_path, kind=kind)
    staged, troubles = layout.stage(values, (0, 0), (1, 1), 0, 9, 2, "00112233aabbccdd")
    assert not troubles
    assert [coords for coords, *_ in staged] == [(i, j) for i in range(3) for j in range(3)]
    for coords, key, source, size, checksum in staged:
        assert key == f"c/{coords[0]}/{coords[1]}"
        if coords == (1, 1):
            assert (source, size, checksum) == (None, 0, 0)
            continue
        assert source == f"c/{coords[0]}/.g-00112233aabbccdd-{coords[1]}"
        stored = (tmp_path / source).read_bytes()
        assert (size, checksum) == (len(stored), zlib.crc32(stored))


@pytest.mark.parametrize("dtype", ["<f4", "<i2", "<c16", "V3", "u1"])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_chunks_are_encoded_the_same_wherever_their_items_lie(
    tmp_path: Path, dtype: str, axes: tuple[int, int]
) -> None:
    shape, chunk = (200, 300), (100, 150)
    size = np.dtype(dtype).itemsize
    rng = np.random.default_rng(3)
    # Bytes that repeat, and some that do not: streams of every kind, in several blocks.
    items = rng.integers(0, 4, (*shape, size), dtype=np.uint8).cumsum(axis=1, dtype=np.uint8)
    items[..., 0] = rng.integers(0, 256, shape)
    items[:, 150:, :] = rng.integers(0, 256, (200, 150, size))
    values = items.view(np.dtype((np.void, size)))[..., 0]
    recipe = {"typesize": size, "codec": "lz4", "level": 5, "filter": "shuffle", "blocksize": 12000}
    layout = make_layout(tmp_path, shape=shape, chunk=chunk, order=axes, fill=bytes(size), **recipe)
    staged, troubles = layout.stage(values, (0, 0), (1, 1), 0, 4, 2, "00112233aabbccdd")
    assert not troubles
    for (i, j), _, source, _, _ in staged:
        part = values[100 * i : 100 * (i + 1), 150 * j : 150 * (j + 1)].transpose(axes)
        assert source is not None
        stored = (tmp_path / source).read_bytes()
        assert stored == load("native").compress(part.tobytes(), **recipe)


def test_places_that_share_memory_hold_the_last_item_of_each(tmp_path: Path) -> None:
    shape, chunk = (1000, 2000), (10, 1000)
    values = np.arange(2_000_000, dtype="<i4").reshape(shape)
    layout = make_layout(tmp_path, shape=shape, chunk=chunk)
    staged, troubles = layout.stage(values, (0, 0), (1, 1), 0, 200, 2, "00112233aabbccdd")
    assert not troubles
    for _, key, source, _, _ in staged:
        assert source is not None
        (tmp_path / source).rename(tmp_path / key)
    # Enough to read for several threads, all of which would write the same row.
    row = np.zeros(2000, "<i4")
    out = np.lib.stride_tricks.as_strided(row, shape, (0, 4))
    assert layout.read(out, (0, 0), (1, 1), 4) is None
    assert (row == values[-1]).all()
    # Such memory can be written from all the same.
    again, troubles = layout.stage(out, (0, 0), (1, 1), 0, 200, 4, "ffffffffffffffff")
    assert not troubles
    assert len(again) == 200


@pytest.mark.parametrize("key", [(slice(0, 2),), (slice(0, 8),)], ids=["one chunk", "several"])
def test_links_are_followed_inside_of_a_dataset_and_not_out_of_it(
    tmp_path: Path, key: tuple[slice]
) -> None:
    array = ingot.array(np.arange(8), tmp_path / "a", chunks=4, format="zarr2")
    chunk = tmp_path / "a" / "0"
    chunk.rename(tmp_path / "a" / "elsewhere")
    chunk.symlink_to("elsewhere")
    assert array[key].tolist() == list(range(key[0].stop))
    chunk.unlink()
    (tmp_path / "a" / "elsewhere").rename(tmp_path / "outside")
    chunk.symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeError, match=r"leads out of the store"):
        array[key]
    chunk.unlink()
    chunk.mkdir()
    with pytest.raises(UnsafeError, match=r"not a regular file|a folder"):
        array[key]


@pytest.mark.parametrize(
    ("axes", "start", "length"),
    [
        ([], 0, 61),
        ([], 60, 1),
        ([], 0, 0),
        ([((0, 30, 3), (0, 5, 3))], 0, 5),
        ([((0, 20, 3), (0, 5, 2))], 0, 5),
        ([((0, 20, 3), (0, 28, 3))], 0, 5),
        ([((0, 20, 3), (-1, 5, 3))], 0, 5),
        ([((40, -20, 3), (0, 5, 3))], 0, 5),
        ([(np.array([3, 3]), (0, 5, 2))], 0, 5),
        ([(np.array([-1, 3]), (0, 5, 2))], 0, 5),
        ([((0, 2**62, 3), (0, 5, 3))], 0, 5),
        ([((0, 1, 2**62), (0, 1, 2**62)), ((0, 1, 9), (0, 1, 9))], 0, 1),
        ([(np.zeros(0, np.int64), np.zeros(0, np.int64))], 0, 5),
    ],
)
def test_runs_outside_of_the_payload_or_the_memory_are_refused(
    axes: Any, start: int, length: int
) -> None:
    kernel: Any = load("native")
    grid = {"shape": (60,), "chunk": (7,), "order": (0,), "fill": bytes(1)}
    coding = kernel.Coding(kind="raw")
    layout: Layout = kernel.Layout(kernel.Addresses(), coding, kernel.Grid(**grid))
    out = np.zeros(60, np.uint8)
    with pytest.raises(ValueError, match="runs"):
        layout.read_runs(out, axes, start, length, 1, None, {})


def test_a_flat_array_is_topped_up_in_memory_that_is_used_again(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, shape=(5000,), chunk=(1000,), order=(0,))
    values = np.arange(5000, dtype="<i4")

    def encoded(first: int, end: int) -> bytes:
        (data,) = layout.encode_chunks([(values[first:end], first // 1000)], False, 1)
        assert data is not None
        return data

    views: dict[int, memoryview] = {}
    for end in (1000, 2500, 5000):
        made = layout.top_up(encoded(0, 300), 300, values[300:end], 2)
        assert made is not None
        data, sizes = made
        assert len(data) == sum(sizes)
        # The memory is not used again while it is still looked at.
        views[end] = memoryview(data)
        assert views[end].readonly
        del data, made
    for end, view in views.items():
        parts = [encoded(at, min(at + 1000, end)) for at in range(0, end, 1000)]
        assert view == b"".join(parts)


def test_what_cannot_be_topped_up(tmp_path: Path) -> None:
    values = np.arange(100, dtype="<i4")
    layout = make_layout(tmp_path, shape=(5000,), chunk=(1000,), order=(0,))
    (stored,) = layout.encode_chunks([(values, 0)], False, 1)
    assert stored is not None
    with pytest.raises(CorruptionError, match="holds 400 bytes, the array needs 396"):
        layout.top_up(stored, 99, values, 1)
    with pytest.raises(CorruptionError):
        layout.top_up(stored[:-1], 100, values, 1)
    for held, added in ((1000, values), (100, values[:0])):
        with pytest.raises(ValueError, match="nothing is added"):
            layout.top_up(stored, held, added, 1)
    with pytest.raises(ValueError, match="only flat arrays"):
        make_layout(tmp_path).top_up(stored, 100, values, 1)
    other = make_layout(tmp_path, shape=(5000,), chunk=(1000,), order=(0,), kind="zlib")
    assert other.top_up(stored, 100, values, 1) is None


def columns(root: Path) -> dict[str, tuple[Layout, np.ndarray[Any, Any]]]:
    """Return the layouts of arrays of several types below one folder, with their values."""
    made = {}
    for name, dtype, kind in (("a", "<i4", "blosc"), ("b", "<f8", "zstd"), ("c", "<i2", "raw")):
        size = np.dtype(dtype).itemsize
        layout = make_layout(
            root, names=(f"{name}/", "/", "", "0"), kind=kind, typesize=size, fill=bytes(size)
        )
        made[name] = layout, np.arange(1, 121).reshape(SHAPE).astype(dtype)
    return made


def test_arrays_that_are_staged_together_get_the_files_that_each_would(tmp_path: Path) -> None:
    kernel: Any = load("native")
    alone = columns(tmp_path / "alone")
    together = columns(tmp_path / "together")
    boxes = [(layout, values, (0, 0)) for layout, values in together.values()]
    found = kernel.stage_arrays(boxes, 2, "00112233aabbccdd")
    for (layout, values), (staged, troubles) in zip(alone.values(), found, strict=True):
        assert not troubles
        assert len(staged) == 9
        expected, _ = layout.stage(values, (0, 0), (1, 1), 0, 9, 1, "00112233aabbccdd")
        assert staged == expected
        for _, _, source, _, _ in staged:
            assert (tmp_path / "together" / source).read_bytes() == (
                tmp_path / "alone" / source
            ).read_bytes()


def test_the_failures_of_arrays_that_are_staged_together_are_kept_apart(tmp_path: Path) -> None:
    kernel: Any = load("native")
    made = columns(tmp_path)
    (tmp_path / "b/0").mkdir(parents=True)
    (tmp_path / "b/0/0").write_bytes(b"no chunk")
    # The first item of each: of chunks that exist, the others are read.
    boxes = [(layout, values[:1, :1], (0, 0)) for layout, values in made.values()]
    found = kernel.stage_arrays(boxes, 1, "00112233aabbccdd")
    assert [len(staged) for staged, _ in found] == [1, 0, 1]
    assert [[key for _, key, _ in troubles] for _, troubles in found] == [[], ["b/0/0"], []]


def test_arrays_that_cannot_be_staged_together_leave_no_files(tmp_path: Path) -> None:
    kernel: Any = load("native")
    (first, values), (second, _), _ = columns(tmp_path).values()
    with pytest.raises(ValueError, match="items have 4 bytes, the array's have 8"):
        kernel.stage_arrays([(first, values, (0, 0)), (second, values, (0, 0))], 1, "0" * 16)
    handed = make_layout(tmp_path, names=None)
    with pytest.raises(ValueError, match="have no files of their own"):
        kernel.stage_arrays([(first, values, (0, 0)), (handed, values, (0, 0))], 1, "0" * 16)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("checksum", ["none", "crc32c"])
def test_moved_chunks_are_the_files_of_the_source(tmp_path: Path, checksum: str) -> None:
    """Their checksums are those of the target; a chunk that is not stored has no image."""
    values = np.arange(120, dtype="<i4").reshape(SHAPE)
    source = make_layout(tmp_path / "a")
    staged, _ = source.stage(values, (0, 0), (1, 1), 0, 9, 2, "00112233aabbccdd")
    for _, key, image, _, _ in staged:
        assert image is not None
        (tmp_path / "a" / image).rename(tmp_path / "a" / key)
    (tmp_path / "a" / "c" / "2" / "1").unlink()
    kernel: Any = load("native")
    target = kernel.Layout(
        kernel.Addresses(root=tmp_path / "b", **ADDRESSES),
        kernel.Coding(blocksize=0, checksum=checksum, **CODING),
        kernel.Grid(**GRID),
    )
    moved, troubles = source.move_chunks(target, [8, 7, 0], 2, "8899aabbccddeeff")
    assert not troubles
    assert [(coords, image is None) for coords, _, image, _, _ in moved] == [
        ((2, 2), False),
        ((2, 1), True),
        ((0, 0), False),
    ]
    for _, key, image, size, crc in moved:
        if image is not None:
            chunk = (tmp_path / "a" / key).read_bytes()
            found = (tmp_path / "b" / image).read_bytes()
            behind = b"" if checksum == "none" else crc32c(chunk)
            assert found == chunk + behind
            assert (size, crc) == (len(found), zlib.crc32(found))


def crc32c(data: bytes) -> bytes:
    """Return the CRC-32C of bytes, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def test_chunks_move_between_arrays_that_are_cut_alike(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "a")
    with pytest.raises(ValueError, match="fewer chunks"):
        layout.move_chunks(make_layout(tmp_path / "b"), [9], 1, "00112233aabbccdd")
    other = make_layout(tmp_path / "b", chunk=(4, 4), shape=(10, 20))
    with pytest.raises(ValueError, match="alike"):
        layout.move_chunks(other, [0], 1, "00112233aabbccdd")


def test_large_images_reach_python_whole() -> None:
    """Several threads copy them; a chunk that holds nothing but fill has none."""
    values = np.random.default_rng(8).integers(1, 2**31, (40, 50_000), dtype="<i4")
    values[4:8] = 0
    store = MemoryStore()
    ingot.array(values, store, format="zarr2", chunks=(4, 50_000), codec="none")
    found = store.read([Extent(f"{row}.0") for row in range(10)])
    rows = [values[4 * row : 4 * row + 4].tobytes() for row in range(10)]
    assert found == [*rows[:1], None, *rows[2:]]
