"""Small assignments to large chunks do what NumPy does, and leave other blocks as they are."""

from pathlib import Path
from typing import Any

import blosc as python_blosc
import blosc2
import numcodecs.blosc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot import blosc
from ingot.codecs.zone_maps import zone_map_of
from ingot.errors import CorruptionError
from ingot.formats.bcolz.chunk_file import HEAD_BYTES, zone_in
from ingot.stores import Commit, Extent, MemoryStore, Put, Store, ZipStore
from tests.kernels import KERNELS, needs_native
from tests.storage import content, identity_of, use_kernel

CODECS = ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]
# Ten blocks of 64 items of eight bytes, the last of them short.
SHAPE, BLOCK = (25, 25), 512
LAYOUTS: list[dict[str, Any]] = [
    {"format": "zarr2", "order": "C"},
    {"format": "zarr2", "order": "F"},
    {"format": "zarr2", "order": "C", "checksum": True},
    {"format": "zarr3"},
    {"format": "zarr3", "shards": (50, 25)},
]
on_layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def spelling(codec: str = "lz4", filter: str = "shuffle") -> str:
    return f"blosc:{codec}:5:{filter}:{BLOCK}"


def smooth(dtype: str = "<f8") -> NDArray[Any]:
    """Items that every codec shrinks, and none of which is the fill value."""
    return (np.arange(25 * 25) // 5 + 1).reshape(SHAPE).astype(dtype)


def chunk_of(store: Store, key: str) -> bytes:
    (found,) = store.read([Extent(key)])
    assert found is not None
    return found


def block_bytes(chunk: bytes) -> list[bytes]:
    found = blosc.inspect(chunk)
    return [chunk[block.offset : block.offset + block.cbytes] for block in found.blocks]


def reads(chunk: bytes) -> set[bytes]:
    """What three other libraries make of a chunk."""
    return {
        python_blosc.decompress(chunk),
        bytes(numcodecs.blosc.decompress(chunk)),
        bytes(blosc2.decompress2(chunk)),
    }


@pytest.mark.parametrize("kernel_name", KERNELS)
@pytest.mark.parametrize("filter", ["shuffle", "bitshuffle", "noshuffle"])
@pytest.mark.parametrize("codec", CODECS)
def test_other_libraries_read_a_chunk_that_changed_in_part(
    codec: str, filter: str, kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    store, values = MemoryStore(), smooth()
    array = ingot.array(values, store, chunks=SHAPE, format="zarr2", codec=spelling(codec, filter))
    for key, value in [((3, 4), 17.5), ((slice(20, 22),), 3.25), ((24, 24), -1.0)]:
        array[key] = values[key] = value
        assert reads(chunk_of(store, "0.0")) == {values.tobytes()}
        assert np.array_equal(array[...], values)


@pytest.fixture
def native_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernel at work; the twin encodes whole chunks."""
    use_kernel("native", monkeypatch)


@needs_native
@pytest.mark.usefixtures("native_kernel")
@pytest.mark.parametrize("codec", CODECS)
def test_blocks_that_hold_no_new_item_keep_their_bytes(codec: str) -> None:
    store, values = MemoryStore(), smooth()
    # Encoded at another level: blocks that are encoded again would differ.
    array = ingot.array(values, store, chunks=SHAPE, format="zarr2", codec=spelling(codec))
    strong = f"blosc:{codec}:9:shuffle:{BLOCK}"
    other = MemoryStore()
    ingot.array(values, other, chunks=SHAPE, format="zarr2", codec=strong)
    store.apply(Commit(publish=(Put("0.0", chunk_of(other, "0.0")),)))
    before = block_bytes(chunk_of(store, "0.0"))
    assert len(before) == 10
    array[4, :] = values[4, :] = 0.5  # Items 100 to 124: in block 1, which ends at 128.
    after = block_bytes(chunk_of(store, "0.0"))
    assert [place for place in range(10) if before[place] != after[place]] == [1]
    array[0, 0] = values[0, 0] = 0.5
    array[24, 24] = values[24, 24] = 0.5
    last = block_bytes(chunk_of(store, "0.0"))
    assert [place for place in range(10) if after[place] != last[place]] == [0, 9]
    assert np.array_equal(array[...], values)


@needs_native
@pytest.mark.usefixtures("native_kernel")
def test_blocks_of_a_chunk_file_keep_their_bytes_and_the_trailer_is_new() -> None:
    store = MemoryStore()
    values = np.random.default_rng(5).integers(0, 1000, 70_000)
    array = ingot.array(values, store, chunks=70_000, format="bcolz", codec="blosc:lz4:5:shuffle")
    (key,) = {cost.key for cost in array.explain().costs}

    def blocks() -> list[bytes]:
        chunk = chunk_of(store, key)[HEAD_BYTES:]
        return block_bytes(chunk[: int.from_bytes(chunk[12:16], "little")])

    before = blocks()
    assert len(before) == 5
    array[20_000] = values[20_000] = 77
    assert [place for place in range(5) if before[place] != blocks()[place]] == [1]
    assert np.array_equal(array[...], values)
    zone = zone_map_of(values)
    assert zone is not None
    assert zone_in(chunk_of(store, key), 0, identity_of(store)) == zone.pack(values.dtype)


@needs_native
@pytest.mark.parametrize("dtype", ["<i4", "<f8", "<M8[s]", "S3", "<U2", ">i8", "?"])
@settings(max_examples=25)
@given(data=st.data())
def test_zone_maps_follow_small_assignments(dtype: str, data: st.DataObject) -> None:
    size = 2000
    numbers = np.arange(size) if data.draw(st.booleans()) else np.arange(size) * 7919 % 100
    values = numbers.astype(np.dtype(dtype)) if dtype != "?" else numbers % 3 == 0
    store = MemoryStore()
    array = ingot.array(values, store, chunks=size, format="bcolz", codec=spelling())
    key = array.explain().costs[0].key
    for _ in range(3):
        start = data.draw(st.sampled_from([0, 1, 100, 511, 1300, size - 1]))
        stop = min(size, start + data.draw(st.sampled_from([1, 2, 100])))
        new = data.draw(st.sampled_from([-1, 0, 50, 99, 100_000]))
        item = np.array([new]).astype(values.dtype)[0]
        if values.dtype.kind in "fM" and data.draw(st.booleans()):
            item = np.array(["nan" if values.dtype.kind == "f" else "nat"]).astype(values.dtype)[0]
        array[start:stop] = item
        values[start:stop] = item
        assert array[...].tobytes() == values.tobytes()
        zone = zone_map_of(values)
        assert zone is not None
        assert zone_in(chunk_of(store, key), 0, identity_of(store)) == zone.pack(values.dtype)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[slice, slice]:
    """A small box, or one of any size and step."""
    axes = []
    for length in SHAPE:
        start = draw(st.integers(0, length - 1))
        count = draw(st.integers(1, 3) | st.integers(1, length))
        axes.append(slice(start, min(start + count, length), draw(st.sampled_from([1, 1, 2, 5]))))
    return axes[0], axes[1]


@pytest.mark.parametrize("kernel_name", KERNELS)
@on_layouts
@settings(max_examples=20)
@given(data=st.data())
def test_any_small_assignments_do_what_numpy_does(
    layout: dict[str, Any], kernel_name: str, data: st.DataObject
) -> None:
    codec = spelling(data.draw(st.sampled_from(CODECS)))
    dtype = data.draw(st.sampled_from(["<f8", "<i4", "u1", "S5"]))
    values = smooth(dtype)
    with pytest.MonkeyPatch.context() as patch:
        use_kernel(kernel_name, patch)
        store = MemoryStore()
        array = ingot.array(values, store, chunks=SHAPE, codec=codec, **layout)
        for _ in range(data.draw(st.integers(1, 4))):
            key = data.draw(boxes())
            new = np.array(data.draw(st.sampled_from([0, 1, 7, 90]))).astype(dtype)
            array[key] = values[key] = new
            assert array[...].tobytes() == values.tobytes()
        assert ingot.open(store)[...].tobytes() == values.tobytes()


@pytest.mark.parametrize("kernel_name", KERNELS)
@on_layouts
def test_a_chunk_that_becomes_fill_is_no_longer_stored(
    layout: dict[str, Any], kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    store = MemoryStore()
    array = ingot.create(store, shape=SHAPE, dtype="<f8", chunks=SHAPE, codec=spelling(), **layout)
    empty = set(content(store))
    array[24, 24] = 1.0
    array[24, 23] = 2.0
    assert set(content(store)) > empty
    array[24, 24] = 0.0
    assert array[24, 23] == 2.0
    assert set(content(store)) > empty
    array[24, 23] = 0.0
    assert set(content(store)) == empty
    assert not array[...].any()


@needs_native
@pytest.mark.parametrize("layout", LAYOUTS[2:4], ids=str)
def test_damage_of_another_block_is_noticed_before_a_checksum_covers_it(
    layout: dict[str, Any],
) -> None:
    store, values = MemoryStore(), smooth()
    array = ingot.array(values, store, chunks=SHAPE, codec=spelling(), **layout)
    key = array.explain().costs[0].key
    sound = chunk_of(store, key)
    place = len(sound) - 30
    store.apply(Commit(publish=(Put(key, sound[:place] + b"\xa5" + sound[place + 1 :]),)))
    with pytest.raises(CorruptionError):
        array[0, 0] = 5.0


@needs_native
@pytest.mark.usefixtures("native_kernel")
def test_damage_without_a_checksum_stays_where_it_is() -> None:
    store, values = MemoryStore(), smooth()
    array = ingot.array(values, store, chunks=SHAPE, codec=spelling("zlib"), format="zarr2")
    sound = chunk_of(store, "0.0")
    last = blosc.inspect(sound).blocks[-1]
    damaged = bytearray(sound)
    damaged[last.offset + 12] ^= 0xFF
    store.apply(Commit(publish=(Put("0.0", bytes(damaged)),)))
    with pytest.raises(CorruptionError):
        array[24, 24]
    array[0, 0] = 5.0
    assert array[0, 0] == 5.0
    with pytest.raises(CorruptionError):
        array[24, 24]


@needs_native
@pytest.mark.usefixtures("native_kernel")
def test_stores_without_files_encode_as_little(tmp_path: Path) -> None:
    stores: list[Any] = [MemoryStore(), ZipStore(tmp_path / "a.zip", writable=True), tmp_path / "a"]
    images = []
    for place in stores:
        array = ingot.array(smooth(), place, chunks=SHAPE, format="zarr2", codec=spelling("zstd"))
        array[7, 3] = 99.0
        chunks = array._handle.value.chunks
        images.append(chunk_of(chunks.store, "0.0"))
    assert images[0] == images[1] == images[2]
