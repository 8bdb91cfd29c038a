"""Reading onto a device: errors, absent chunks, options, and chunks that the device refuses."""

import gc
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import Limits, Options, blosc, native
from ingot.codecs.codec import Stage, parse_spelling, parse_stage
from ingot.engine.device import device_dtype
from ingot.errors import ArgumentError, CorruptionError, DamageWarning, IngotError, UnsupportedError
from ingot.stores import LocalStore, MemoryStore
from ingot.stores.local.open_values import OpenValues
from ingot.stores.store import Extent
from ingot.testing.counting import CountingStore
from tests.host_device import HostDevice, needs_compiler
from tests.kernels import needs_native
from tests.property.test_device_reads import same_items
from tests.storage import content, put

pytestmark = needs_compiler

DATA = (np.arange(4000) // 3).astype("i4").reshape(40, 100)


def stored(codec: str = "blosc:lz4:5:shuffle", **settings: object) -> MemoryStore:
    store = MemoryStore()
    ingot.array(DATA, store, chunks=(10, 100), codec=codec, format="zarr2", **settings)
    return store


def damage(store: MemoryStore, key: str, place: int) -> None:
    data = bytearray(content(store)[key])
    data[place] ^= 0x7F
    put(store, {key: bytes(data)})


def outcome(read: Callable[[], Any]) -> tuple[object, ...]:
    """Return the items, or the class, the message and the notes of the error."""
    try:
        return (read().tolist(),)
    except IngotError as error:
        return type(error), str(error), getattr(error, "__notes__", [])


@pytest.mark.parametrize("place", [2, 4, 12, 16, 21, 40, 100, -1])
def test_damage_is_refused_as_without_a_device(place: int) -> None:
    store = stored()
    damage(store, "2.0", place)
    array = ingot.open(store)
    expected = outcome(lambda: array[15:25])
    assert outcome(lambda: array.read(slice(15, 25), device=HostDevice())) == expected
    assert same_items(array.read(slice(0, 20), device=HostDevice()), DATA[:20])
    if len(expected) > 1:
        assert "in chunk (2, 0), key '2.0'" in str(expected[2])


@pytest.mark.parametrize("kind", ["bcolz", "blsk"])
def test_checksums_are_compared_first(kind: str) -> None:
    """A byte of items that are stored as they are changes, which no decoder can notice."""
    store = MemoryStore()
    noise = np.random.default_rng(1).integers(0, 2**31, (40, 100))
    ingot.array(noise, store, chunks=10, format=kind, codec="blosc:lz4:5:noshuffle")
    files = content(store)
    key = max(files, key=lambda name: len(files[name]))
    damage(store, key, len(files[key]) // 3)
    array = ingot.open(store)
    expected, found = outcome(lambda: array[...]), outcome(lambda: array.read(device=HostDevice()))
    assert found[0] == expected[0] == CorruptionError
    assert found[2] == expected[2]


def test_the_cpu_decides_on_chunks_that_the_device_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device, refused = HostDevice(), []
    run = HostDevice.submit

    def submit(self, window, result):  # type: ignore[no-untyped-def]
        statuses = run(self, window, result)()
        if not refused:
            refused.append(window.chunk_owners.max())
            result[...] = -1
            statuses[window.chunk_owners[window.block_owners] == refused[0]] = 5
        return lambda: statuses

    array = ingot.open(stored(), options=Options(limits=Limits(device_window_bytes=1)))
    with monkeypatch.context() as patch:
        patch.setattr(HostDevice, "submit", submit)
        assert same_items(array.read(slice(20, 40), device=device), DATA[20:])
    assert refused == [0]


def test_windows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    run = HostDevice.submit

    def submit(self, window, result):  # type: ignore[no-untyped-def]
        rooms.append(window.room)
        return run(self, window, result)

    monkeypatch.setattr(HostDevice, "submit", submit)
    array = ingot.open(stored(), options=Options(limits=Limits(device_window_bytes=8000)))
    assert same_items(array.read(device=HostDevice()), DATA)
    assert rooms == [8000, 8000]


def test_absent_chunks_hold_the_fill_value() -> None:
    array = ingot.create(shape=(40, 100), dtype=">i4", chunks=(10, 30), fill=-7, format="zarr3")
    array[5:12] = DATA[5:12]
    assert same_items(array.read(device=HostDevice()), array[...])
    strict = Options(missing="error")
    store = MemoryStore()
    sparse = ingot.create(store, shape=100, dtype="i4", chunks=10, options=strict)
    sparse[20:30] = 1
    assert same_items(sparse.read(slice(20, 30), device=HostDevice()), np.ones(10, "i4"))
    with pytest.raises(CorruptionError, match="not stored, and missing chunks are refused"):
        sparse.read(device=HostDevice())


def test_few_chunks_of_a_huge_grid() -> None:
    array = ingot.create(shape=(30_000, 3000), dtype="u1", chunks=(1, 3000), fill=9)
    array[777] = 5
    found = array.read(device=HostDevice())
    assert found[777].tolist() == [5] * 3000
    assert (np.delete(found, 777, 0) == 9).all()


def test_damaged_chunks_are_filled_where_that_is_asked_for() -> None:
    store = stored()
    damage(store, "2.0", 4)
    array = ingot.open(store, options=Options(damaged="fill"))
    with pytest.warns(DamageWarning):
        found = array.read(device=HostDevice())
    assert same_items(found[:20], DATA[:20])
    assert not found[20:30].any()


def test_cached_chunks_are_read() -> None:
    array = ingot.open(stored(), options=Options(cache_bytes=1 << 20))
    for _ in range(2):
        assert same_items(array[3], DATA[3])
        assert same_items(array.read(slice(2, 30), device=HostDevice()), DATA[2:30])


def test_files_are_read(tmp_path: Path) -> None:
    array = ingot.array(DATA, tmp_path / "a", chunks=(7, 30), shards=(14, 60))
    assert same_items(
        array.read((slice(3, 33), slice(5, 99, 2)), device=HostDevice()), DATA[3:33, 5:99:2]
    )


def test_out_must_fit() -> None:
    array = ingot.open(stored())
    device = HostDevice()
    with pytest.raises(
        ArgumentError, match=r"out is float64\[100\], the selection is int32\[100\]"
    ):
        array.read(0, device=device, out=np.zeros(100))
    reversed_out = np.zeros((40, 100), "i4")[::-1]
    array.read(device=device, out=reversed_out)
    assert same_items(reversed_out, DATA)


@pytest.mark.parametrize("dtype", ["M8[ns]", "S4", "V3", [("a", "i4")]])
def test_types_that_no_device_has(dtype: object) -> None:
    array = ingot.create(shape=3, dtype=dtype)
    with pytest.raises(UnsupportedError, match="cannot be read onto a device"):
        array.read(device=HostDevice())
    with pytest.raises(UnsupportedError):
        device_dtype(np.dtype(np.longdouble))


def test_columns() -> None:
    table = ingot.table({"a": [1.5, 2.5, 3.5], "b": [1, None, 3]})
    assert same_items(table["a"].read(device=HostDevice()), np.array([1.5, 2.5, 3.5]))
    for read in (table["b"].read, lambda device: list(table["b"].blocks(device=device))):
        with pytest.raises(UnsupportedError, match="column 'b' has nulls"):
            read(device=HostDevice())


def test_blocks_inside_a_transaction_see_it() -> None:
    array = ingot.array(np.arange(10), chunks=4)
    with array.transaction():
        array[:] = 5
        assert all((block == 5).all() for _, block in array.blocks(device=HostDevice()))


LARGE = (np.arange(400_000) // 7).astype("i4").reshape(400, 1000)
CROPS = [
    (slice(3, 5), slice(None)),
    (slice(100, 380, 90), slice(10, 20)),
    ([7, 399, 200], slice(None)),
    ([7, 399, 200], [1, 2, 3]),
    350,
]


def blocked(codec: str) -> Stage:
    """Return a codec of Blosc with blocks of 16 KB."""
    return parse_stage(parse_spelling(codec)[0].config() | {"blocksize": 16_000})


class BytesCounter(CountingStore):
    """A store that sends ranges of bytes, and counts the bytes."""

    sent = 0

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        found = super().read(extents)
        self.sent += sum(len(each or b"") for each in found)
        return found


def large(codec: object, kind: str) -> BytesCounter:
    """Store chunks of 800 KB; those of zarr3 have checksums."""
    store = BytesCounter()
    ingot.array(LARGE, store, chunks=(200, 1000), codec=codec, format=kind)
    return store


@pytest.mark.parametrize("codec", ["blosc:lz4:5:shuffle", "blosc:blosclz:9:noshuffle"])
def test_only_needed_blocks_are_read(codec: str) -> None:
    store = large(blocked(codec), "zarr2")
    array = ingot.open(store)
    whole = array.stored_bytes
    for key in CROPS:
        before = store.sent
        assert same_items(array.read(key, device=HostDevice()), LARGE[key])
        assert store.sent - before < whole // 2
    assert same_items(array.read(device=HostDevice()), LARGE)


def test_a_checksum_is_compared_before_parts_are_used() -> None:
    store = large(blocked("blosc:lz4:5:shuffle"), "zarr3")
    array = ingot.open(store)
    read = []
    for _ in range(2):
        before = store.sent
        assert same_items(array.read(CROPS[0], device=HostDevice()), LARGE[CROPS[0]])
        read.append(store.sent - before)
    assert read[1] < read[0] // 4


def test_damage_in_a_block_that_is_needed() -> None:
    store = CountingStore()
    codec = blocked("blosc:lz4:5:shuffle")
    ingot.array(LARGE, store, chunks=(200, 1000), codec=codec, format="zarr2")
    damage(store, "0.0", blosc.inspect(content(store)["0.0"]).blocks[20].offset)
    array = ingot.open(store)
    expected = outcome(lambda: array[80:85])
    assert len(expected) == 3
    assert outcome(lambda: array.read(slice(80, 85), device=HostDevice())) == expected
    assert same_items(array.read(slice(3, 5), device=HostDevice()), LARGE[3:5])


def test_parts_of_files_are_read(tmp_path: Path) -> None:
    for settings in ({"shards": (400, 1000)}, {"codec": "blosc:zstd:1:shuffle"}, {"order": "F"}):
        path = tmp_path / str(len(settings))
        ingot.array(LARGE, path, chunks=(200, 1000), overwrite=True, **settings)
        array = ingot.open(path)
        for key in CROPS:
            assert same_items(array.read(key, device=HostDevice()), LARGE[key])


def test_any_store(tmp_path: Path) -> None:
    places: list[Path | str] = [tmp_path / "a.zip", tmp_path / "a"]
    if importlib.util.find_spec("obstore") is not None:
        places.append(f"memory://{tmp_path.name}/a")
    for place in places:
        ingot.array(LARGE, place, chunks=(200, 1000))
        array = ingot.open(place)
        for key in (..., *CROPS):
            assert same_items(array.read(key, device=HostDevice()), LARGE[key])


def test_an_error_waits_for_what_the_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored()
    put(store, {"1.0": b"too short"})
    events: list[str] = []
    run = HostDevice.submit

    def submit(self, window, result):  # type: ignore[no-untyped-def]
        wait = run(self, window, result)
        events.append("begun")
        return lambda: (events.append("ended"), wait())[1]

    monkeypatch.setattr(HostDevice, "submit", submit)
    array = ingot.open(store, options=Options(limits=Limits(device_window_bytes=1)))
    with pytest.raises(CorruptionError):
        array.read(device=HostDevice())
    assert events == ["begun", "ended"]


def test_files_are_read_into_memory_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole chunks take no other copy; absent ones, checksums and other codecs work as well."""
    given: list[int] = []
    staging = HostDevice.staging

    def counted(self, nbytes):  # type: ignore[no-untyped-def]
        given.append(nbytes)
        return staging(self, nbytes)

    monkeypatch.setattr(HostDevice, "staging", counted)
    array = ingot.create(
        tmp_path / "a", shape=(400, 1000), dtype="i4", chunks=(90, 1000), format="zarr2", fill=3
    )
    array[:300] = LARGE[:300]
    files = [
        path for path in (tmp_path / "a").rglob("*") if path.name[0].isdigit() and path.is_file()
    ]
    assert same_items(array.read(device=HostDevice()), array[...])
    assert given == [sum(path.stat().st_size for path in files)]
    for number, settings in enumerate(({"format": "zarr3"}, {"codec": "blosc:zstd:1:shuffle"})):
        path = tmp_path / f"b{number}"
        other = ingot.array(LARGE, path, chunks=(100, 1000), shards=None, **settings)
        assert same_items(other.read(device=HostDevice()), LARGE)
    assert len(given) == 3
    many = ingot.array(LARGE[:, 0], tmp_path / "many", chunks=1, format="zarr2")
    assert same_items(many.read(device=HostDevice()), LARGE[:, 0])


def test_the_next_window_is_read_while_one_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    staging, run = HostDevice.staging, HostDevice.submit

    def staged(self, nbytes):  # type: ignore[no-untyped-def]
        events.append("read")
        return staging(self, nbytes)

    def submit(self, window, result):  # type: ignore[no-untyped-def]
        events.append("decode")
        return run(self, window, result)

    monkeypatch.setattr(HostDevice, "staging", staged)
    monkeypatch.setattr(HostDevice, "submit", submit)
    ingot.array(LARGE, tmp_path / "a", chunks=(100, 1000), format="zarr2")
    options = Options(limits=Limits(device_window_bytes=1))
    assert same_items(ingot.open(tmp_path / "a", options=options).read(device=HostDevice()), LARGE)
    assert "".join(event[0] for event in events) == "rrdrdrdd"


@pytest.mark.parametrize("second", ["absent", "short", "folder"])
def test_errors_come_in_the_order_of_chunks(tmp_path: Path, second: str) -> None:
    """The file of the second window cannot be read, which is known before the first is decoded."""
    ingot.array(LARGE, tmp_path / "a", chunks=(100, 1000), format="zarr2")
    first, other = tmp_path / "a" / "0.0", tmp_path / "a" / "1.0"
    stored, content = first.read_bytes(), other.read_bytes()
    other.unlink()
    if second == "short":
        other.write_bytes(content[:50])
    elif second == "folder":
        other.mkdir()
    options = Options(limits=Limits(device_window_bytes=1), missing="error")
    array = ingot.open(tmp_path / "a", options=options)
    alone = outcome(lambda: array[...])
    assert len(alone) == 3
    assert outcome(lambda: array.read(device=HostDevice()))[0] is alone[0]
    first.write_bytes(stored[:40] + bytes(40) + stored[80:])
    expected = outcome(lambda: array[:100])
    assert len(expected) == 3
    assert outcome(lambda: array.read(device=HostDevice())) == expected


def test_a_file_that_shrinks_while_it_is_read_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = ingot.array(LARGE, tmp_path / "a", chunks=(400, 1000), format="zarr2")
    staging = HostDevice.staging

    def shrinking(self, nbytes):  # type: ignore[no-untyped-def]
        with (tmp_path / "a" / "0.0").open("r+b") as file:
            file.truncate(1000)
        return staging(self, nbytes)

    with monkeypatch.context() as patch:
        patch.setattr(HostDevice, "staging", shrinking)
        with pytest.raises(CorruptionError, match=r"'0.0' ends at byte 1000, it was longer when"):
            array.read(device=HostDevice())
    (tmp_path / "a" / "0.0").unlink()
    with pytest.raises(CorruptionError, match="not stored"):
        ingot.open(tmp_path / "a", options=Options(missing="error")).read(device=HostDevice())


@pytest.mark.parametrize("natively", [False, pytest.param(True, marks=needs_native)])
def test_ctrl_c_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, natively: bool
) -> None:
    """The next window is being read when it comes: threads and files of both end with the read."""
    reading: list[bool] = []
    read, read_natively = os.preadv, native.read_ranges()
    if natively and read_natively is None:
        pytest.skip("the twin runs")

    def slow(descriptor: int, parts: list[memoryview], offset: int) -> int:
        reading.append(True)
        time.sleep(0.05)
        count = read(descriptor, parts, offset)
        reading.pop()
        return count

    def slow_natively(ranges: Any, memory: memoryview, threads: int) -> Any:
        assert read_natively is not None
        reading.append(True)
        time.sleep(0.05)
        failed = read_natively(ranges, memory, threads)
        reading.pop()
        return failed

    def interrupted(self, window, result):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    ingot.array(LARGE, tmp_path / "a", chunks=(100, 1000), format="zarr2")
    array = ingot.open(tmp_path / "a", options=Options(limits=Limits(device_window_bytes=1)))
    device = HostDevice()
    monkeypatch.setattr("ingot.engine.device._SOON", 0)
    monkeypatch.setattr(os, "preadv", slow)
    monkeypatch.setattr(native, "read_ranges", lambda: slow_natively if natively else None)
    monkeypatch.setattr(HostDevice, "submit", interrupted)
    # What other tests have left open is not to be closed in between.
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt) as caught:
        array.read(device=device)
    # The traceback still holds what the read has opened.
    assert caught.tb is not None
    assert not reading
    assert set(os.listdir("/proc/self/fd")) == before


def test_parts_of_files_are_read_into_memory_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of chunks without checksums only the blocks that are needed are read, in place."""
    given: list[int] = []
    staging = HostDevice.staging

    def counted(self, nbytes):  # type: ignore[no-untyped-def]
        given.append(nbytes)
        return staging(self, nbytes)

    monkeypatch.setattr(HostDevice, "staging", counted)
    ingot.array(
        LARGE,
        tmp_path / "a",
        chunks=(200, 1000),
        codec=blocked("blosc:lz4:5:shuffle"),
        format="zarr2",
    )
    array = ingot.open(tmp_path / "a")
    for key in CROPS:
        given.clear()
        assert same_items(array.read(key, device=HostDevice()), LARGE[key])
        assert 0 < sum(given) < array.stored_bytes // 2
    given.clear()
    assert same_items(array.read(slice(10, 390), device=HostDevice()), LARGE[10:390])
    assert sum(given) == array.stored_bytes


@pytest.mark.parametrize("change", ["header", "starts", "cut", "longer", "block"])
def test_damage_in_files_that_are_read_in_part(tmp_path: Path, change: str) -> None:
    codec = blocked("blosc:lz4:5:shuffle")
    ingot.array(LARGE, tmp_path / "a", chunks=(200, 1000), codec=codec, format="zarr2")
    file = tmp_path / "a" / "0.0"
    chunk = bytearray(file.read_bytes())
    if change == "header":
        chunk[4] ^= 1
    elif change == "starts":
        chunk[16 + 4 * 20] ^= 0x7F
    elif change == "block":
        chunk[blosc.inspect(bytes(chunk)).blocks[20].offset] ^= 0x7F
    file.write_bytes(chunk[:-1] if change == "cut" else chunk + bytes(change == "longer"))
    array = ingot.open(tmp_path / "a")
    expected = outcome(lambda: array[80:85])
    assert len(expected) == 3
    assert outcome(lambda: array.read(slice(80, 85), device=HostDevice())) == expected
    assert same_items(array.read(slice(203, 205), device=HostDevice()), LARGE[203:205])


@pytest.mark.parametrize("codec", ["none", "zlib:1"])
def test_codecs_without_blosc(codec: str) -> None:
    store = MemoryStore()
    array = ingot.array(DATA, store, chunks=(10, 100), codec=codec, format="zarr2")
    assert same_items(array.read((slice(3, 33), 5), device=HostDevice()), DATA[3:33, 5])


TRAILED = ["bcolz", "blsk"]
DUE = slice(280, 285)


def trailed(path: Path, kind: str, codec: object, data: Any = LARGE) -> tuple[Path, int]:
    """Store two chunks that have trailers; return the file of the second, and where it begins."""
    # One thread puts the slots into their order.
    one = Options(threads=1)
    ingot.array(data, path, chunks=200, codec=codec, format=kind, options=one)
    if kind == "bcolz":
        return path / "data" / "__1.blp", 16
    file = path / "data" / "__1__.bin"
    return file, int.from_bytes(file.read_bytes()[24:32], "little")


def block_places(file: Path, begin: int) -> tuple[list[tuple[int, int]], int]:
    """Return where the blocks of a chunk lie in its file, and where the chunk ends."""
    content = file.read_bytes()[begin:]
    end = int.from_bytes(content[12:16], "little")
    starts = [block.offset for block in blosc.inspect(content[:end]).blocks]
    ends = [min((other for other in starts if other > start), default=end) for start in starts]
    places = [(begin + start, begin + end) for start, end in zip(starts, ends, strict=True)]
    return places, begin + end


def flip(file: Path, *places: int) -> None:
    content = bytearray(file.read_bytes())
    for place in places:
        content[place] ^= 0x7F
    file.write_bytes(content)


@pytest.mark.parametrize("kind", TRAILED)
def test_parts_of_chunks_with_trailers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Read are the first bytes, the wanted blocks, and the trailer; nothing else of the files."""
    file, begin = trailed(tmp_path / "a", kind, blocked("blosc:lz4:5:shuffle"))
    places, end = block_places(file, begin)
    read: list[int] = []
    read_parts, read_values = OpenValues.read_parts, LocalStore.read

    def counted(self, memory, parts, threads):  # type: ignore[no-untyped-def]
        read.extend(stop - start for _, start, stop in parts)
        return read_parts(self, memory, parts, threads)

    def counted_too(self, extents):  # type: ignore[no-untyped-def]
        found = read_values(self, extents)
        for extent, data in zip(extents, found, strict=True):
            read.append(len(data or b"") if extent.key.startswith("data/") else 0)
        return found

    array = ingot.open(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(OpenValues, "read_parts", counted)
        patch.setattr(LocalStore, "read", counted_too)
        assert same_items(array.read(DUE, device=HostDevice()), LARGE[DUE])
    # Rows of 4000 bytes: 80 to 84 of this chunk lie in its blocks 20 and 21, of 16 000 bytes.
    blocks = sum(stop - start for start, stop in places[20:22])
    # Spare bytes behind the trailer are read as far as it could reach.
    behind = min(file.stat().st_size - end, 4 * 50 + 4096)
    index = 0 if kind == "bcolz" else 16 + 8 * 20
    due = index + 4096 + blocks + behind
    # Small gaps between blocks may be read along.
    assert due <= sum(read) <= due + 4096
    assert sum(read) < (end - begin) // 4
    for key in CROPS:
        assert same_items(array.read(key, device=HostDevice()), LARGE[key])


@pytest.mark.parametrize("kind", TRAILED)
@pytest.mark.parametrize(
    "change",
    [
        *("nbytes", "cbytes", "flags", "blocksize", "starts", "first", "last"),
        *("magic", "number", "head", "sum", "foot", "cut", "short"),
    ],
)
def test_damage_in_chunks_with_trailers_that_are_read_in_part(
    tmp_path: Path, kind: str, change: str
) -> None:
    file, begin = trailed(tmp_path / "a", kind, blocked("blosc:lz4:5:shuffle"))
    places, end = block_places(file, begin)
    content = file.read_bytes()
    at = {
        "flags": begin + 2,
        "nbytes": begin + 5,
        "blocksize": begin + 9,
        "cbytes": begin + 13,
        "starts": begin + 16 + 4 * 20,
        "first": places[20][0],
        "last": places[21][1] - 1,
        # Of a trailer of version 2: its own checksum of the front, and that of block 20.
        "magic": end,
        "number": end + 12,
        "head": end + 32,
        "sum": end + 36 + 4 * 20,
        "foot": end + 36 + 4 * 50,
    }
    if change in at:
        flip(file, at[change])
    else:
        file.write_bytes(content[: end + 30] if change == "cut" else content[: end - 1])
    array = ingot.open(tmp_path / "a")
    expected = outcome(lambda: array[DUE])
    assert len(expected) == 3
    assert outcome(lambda: array.read(DUE, device=HostDevice())) == expected
    assert same_items(array.read(slice(3, 5), device=HostDevice()), LARGE[3:5])


@pytest.mark.parametrize("kind", TRAILED)
def test_damage_in_blocks_that_are_not_wanted(tmp_path: Path, kind: str) -> None:
    """They are no concern of a read, also where the chunk is read as a whole."""
    file, begin = trailed(tmp_path / "a", kind, blocked("blosc:lz4:5:shuffle"))
    places, _ = block_places(file, begin)
    flip(file, places[48][0])
    array = ingot.open(tmp_path / "a")
    for key in (DUE, slice(200, 390)):
        assert same_items(array.read(key, device=HostDevice()), LARGE[key])
        # The twin decodes whole chunks on the CPU.
        if native.read_ranges() is not None:
            assert same_items(array[key], LARGE[key])
    expected = outcome(lambda: array[391:395])
    assert "block 48" in str(expected[1])
    assert outcome(lambda: array.read(slice(391, 395), device=HostDevice())) == expected


@pytest.mark.parametrize("kind", TRAILED)
def test_blocks_that_are_stored_as_they_are_have_checksums_too(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(5).integers(0, 2**31, (400, 1000)).astype("i4")
    file, begin = trailed(tmp_path / "a", kind, blocked("blosc:lz4:0:noshuffle"), noise)
    array = ingot.open(tmp_path / "a")
    assert same_items(array.read(DUE, device=HostDevice()), noise[DUE])
    # Rows 280 and 281 lie in block 20, which has 282 as well.
    place = begin + 16 + 20 * 16_000 + 9000
    flip(file, place + 16_000)
    assert same_items(array.read(slice(280, 282), device=HostDevice()), noise[280:282])
    flip(file, place)
    expected = outcome(lambda: array[280:282])
    assert "block 20" in str(expected[1])
    assert outcome(lambda: array.read(slice(280, 282), device=HostDevice())) == expected


def test_a_block_that_others_refer_to_is_compared_too(tmp_path: Path) -> None:
    codec = blocked("blosc2:lz4:5:shuffle:0:items")
    file, begin = trailed(tmp_path / "a", "blsk", codec)
    array = ingot.open(tmp_path / "a")
    assert same_items(array.read(DUE, device=HostDevice()), LARGE[DUE])
    places, _ = block_places(file, begin)
    flip(file, places[0][0] + 8)
    array = ingot.open(tmp_path / "a")
    expected = outcome(lambda: array[DUE])
    assert "block 0" in str(expected[1])
    assert outcome(lambda: array.read(DUE, device=HostDevice())) == expected


@pytest.mark.parametrize("kind", TRAILED)
def test_damage_in_chunks_with_trailers_comes_in_their_order(tmp_path: Path, kind: str) -> None:
    """The first chunk has a front that is not sound, the second one a block that is not."""
    file, begin = trailed(tmp_path / "a", kind, blocked("blosc:lz4:5:shuffle"))
    places, _ = block_places(file, begin)
    flip(file, places[0][0])
    other = file if kind == "blsk" else tmp_path / "a" / "data" / "__0.blp"
    flip(other, (16 if kind == "bcolz" else 16 + 8 * 20) + 16 + 4 * 20)
    array = ingot.open(tmp_path / "a")
    key = slice(190, 205)
    expected = outcome(lambda: array[key])
    assert "in chunk (0, 0)" in str(expected[2])
    assert outcome(lambda: array.read(key, device=HostDevice())) == expected


@pytest.mark.parametrize("kind", TRAILED)
def test_chunks_of_other_programs_have_no_trailers(tmp_path: Path, kind: str) -> None:
    file, begin = trailed(tmp_path / "a", kind, blocked("blosc:lz4:5:shuffle"))
    places, end = block_places(file, begin)
    file.write_bytes(file.read_bytes()[:end])
    array = ingot.open(tmp_path / "a")
    assert same_items(array.read(DUE, device=HostDevice()), LARGE[DUE])
    # The sizes of streams in front of them.
    flip(file, places[20][0] + 3)
    array = ingot.open(tmp_path / "a")
    expected = outcome(lambda: array[DUE])
    assert len(expected) == 3
    assert outcome(lambda: array.read(DUE, device=HostDevice())) == expected


@pytest.mark.parametrize("kind", TRAILED)
def test_a_chunk_of_another_place_is_refused(tmp_path: Path, kind: str) -> None:
    """All its checksums agree; the number of the chunk does not."""
    file, _ = trailed(tmp_path / "a", kind, blocked("blosc:lz4:5:shuffle"))
    if kind == "bcolz":
        file.write_bytes((tmp_path / "a" / "data" / "__0.blp").read_bytes())
    else:
        content = bytearray(file.read_bytes())
        content[16:24], content[24:32] = content[24:32], content[16:24]
        file.write_bytes(content)
    array = ingot.open(tmp_path / "a")
    expected = outcome(lambda: array[DUE])
    assert "this is chunk 0, not 1" in str(expected[1])
    assert outcome(lambda: array.read(DUE, device=HostDevice())) == expected


@pytest.mark.parametrize("place", [0, 4, 8])
def test_damage_in_the_head_of_a_chunk_file(tmp_path: Path, place: int) -> None:
    file, _ = trailed(tmp_path / "a", "bcolz", blocked("blosc:lz4:5:shuffle"))
    flip(file, place)
    array = ingot.open(tmp_path / "a")
    expected = outcome(lambda: array[DUE])
    assert len(expected) == 3
    assert outcome(lambda: array.read(DUE, device=HostDevice())) == expected
