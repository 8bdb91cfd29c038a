"""Zip archives: what other programs make of ours and we of theirs, and archives that lie."""

import io
import os
import pickle
import random
import stat
import struct
import threading
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot import native
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    ReadOnlyError,
    UnsafeError,
    UnsupportedError,
)
from ingot.stores import Commit, Delete, Extent, Patch, Put, ZipStore, read_state, zip_format
from ingot.stores.store import is_staged
from ingot.stores.zip_format import Member, pack_directory, pack_header

TEXT = b"the quick brown fox " * 50


def packed(content: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for key, data in content.items():
            archive.writestr(key, data)
    return file.getvalue()


def stored(path: Path, data: bytes) -> ZipStore:
    path.write_bytes(data)
    return ZipStore(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "example.zip"


# Other programs ----------------------------------------------------------------------------------


def test_zipfile_reads_what_we_write(path: Path) -> None:
    content = {"a": b"alpha", "b/c": TEXT, "データ/é": b"", "b/d": bytes(70_000)}
    ZipStore(path, writable=True).apply(
        Commit(publish=tuple(Put(key, data) for key, data in content.items()))
    )
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == content


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_of_others_are_kept_as_they_are_stored(path: Path, method: int) -> None:
    path.write_bytes(packed({"a": TEXT, "b": TEXT * 2, "c": b""}, method))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"a comment"
        before = {info.filename: info for info in archive.infolist()}
    ZipStore(path, writable=True).apply(Commit(publish=(Put("d", b"new"), Delete("b"))))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment == b"a comment"
        after = {info.filename: info for info in archive.infolist()}
        assert archive.read("a") == TEXT
    assert after.keys() == {"a", "c", "d"}
    for name in ("a", "c"):
        for field in ("compress_type", "compress_size", "file_size", "CRC", "date_time"):
            assert getattr(after[name], field) == getattr(before[name], field)


def test_a_comment_may_look_like_an_end(path: Path) -> None:
    comment = b"PK\x05\x06 is how an end begins" + bytes(30)
    data = bytearray(packed({"a": TEXT}))
    data[-2:] = len(comment).to_bytes(2, "little")
    store = stored(path, bytes(data) + comment)
    assert store.read([Extent("a")]) == [TEXT]


def test_folders_as_members_are_no_keys(path: Path) -> None:
    store = stored(path, packed({"a/": b"", "a/b": b"x"}))
    assert list(store.names()) == ["a/"]
    assert list(store.names("a")) == ["b"]


def test_sizes_that_follow_the_data(path: Path) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", TEXT)
        archive.writestr("b", b"")
    assert stored(path, bytes(pipe.data)).read([Extent("a"), Extent("b")]) == [TEXT, b""]


def test_large_archives_use_wide_fields(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ZipStore(path, writable=True)
    content = {f"c/{number}": str(number).encode() for number in range(70_000)}
    store.apply(
        Commit(publish=tuple(Put(key, data) for key, data in content.items())),
        durability="process",
    )
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 70_000
        assert archive.read("c/69999") == b"69999"
    again = ZipStore(path)
    assert again.read([Extent("c/0"), Extent("c/69999")]) == [b"0", b"69999"]


def test_members_beyond_32_bits(path: Path) -> None:
    # A sparse file: 5 GB need not be written for this.
    size = 5 * 2**30
    small = Member("last", 3, 3, zlib.crc32(b"end"))
    large = Member("large", size, size, 0)
    with path.open("wb") as file:
        file.write(pack_header(large))
        file.seek(size, os.SEEK_CUR)
        second = file.tell()
        small = Member("last", 3, 3, zlib.crc32(b"end"), offset=second)
        file.write(pack_header(small) + b"end")
        file.write(pack_directory([large, small], file.tell()))
    with zipfile.ZipFile(path) as archive:
        assert [info.file_size for info in archive.infolist()] == [size, 3]
        assert archive.read("last") == b"end"
    store = ZipStore(path)
    assert store.size("large") == size
    assert store.read([Extent("last"), Extent("large", size - 2)]) == [b"end", b"\0\0"]


def test_a_commit_never_holds_the_whole_archive(path: Path) -> None:
    large = np.random.default_rng(2).bytes(3 << 20)
    content = {f"c/{number}": large[number:] for number in range(8)}
    store = ZipStore(path, writable=True)
    store.apply(Commit(publish=tuple(Put(key, data) for key, data in content.items())))
    tracemalloc.start()
    try:
        store.apply(Commit(publish=(Put("c/0", b"new"), Put("d", b""), Delete("c/1"))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(large) < path.stat().st_size / 5
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("c/0") == b"new"
        assert archive.read("c/7") == content["c/7"]
        assert sorted(archive.namelist()) == ["c/0", *(f"c/{n}" for n in range(2, 8)), "d"]


def test_a_member_that_cannot_be_copied_leaves_the_archive_as_it_is(path: Path) -> None:
    store = ZipStore(path, writable=True)
    store.apply(Commit(publish=(Put("a", b"alpha"), Put("b", b"beta"))))
    data = path.read_bytes()
    damaged = data.replace(b"PK\x03\x04", b"PK\x03\x03")
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError, match="no header at byte 0"):
        store.apply(Commit(publish=(Put("c", b"gamma"),)))
    assert path.read_bytes() == damaged
    assert [name for name in os.listdir(path.parent) if is_staged(name)] == []


# States ------------------------------------------------------------------------------------------


def test_a_state_is_known_by_the_file(path: Path) -> None:
    store = ZipStore(path, writable=True)
    assert store.version() is None
    store.apply(Commit(publish=(Put("a", b"1"),)))
    first = store.version()
    assert first is not None
    assert store.version() == first
    path.with_suffix(".new").write_bytes(packed({"a": b"2"}))
    path.with_suffix(".new").replace(path)
    assert store.version() != first
    assert store.read([Extent("a")]) == [b"2"]
    assert read_state(store, lambda view: view.read([Extent("a")])) == [b"2"]
    with store.pin() as view:
        assert view.read([Extent("a")]) == [b"2"]


def test_members_have_the_identity_of_the_archive(path: Path) -> None:
    store = ZipStore(path, writable=True)
    assert store.identity("a") is None
    seen = set()
    for number, value in enumerate((b"1", b"2", b"1")):
        store.apply(Commit(publish=(Put("a", value),)))
        assert store.identity("a") is None  # Changed just now.
        os.utime(path, (number, number))
        assert store.identity("a") == store.identity("a") is not None
        assert store.identity("b") is None
        seen.add(store.identity("a"))
    assert len(seen) == 3


def test_changes_of_several_writers_are_not_lost(path: Path) -> None:
    def work() -> None:
        store = ZipStore(path, writable=True)
        for _ in range(20):
            with store.writing(durability="process") as turn:
                [data] = turn.store.read([Extent("count")])
                count = str(int(data or b"0") + 1).encode()
                turn.commit(Commit(publish=(Put("count", count),)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ZipStore(path).read([Extent("count")]) == [b"80"]


def facts(path: Path) -> tuple[object, ...]:
    """Return all that a writer changes of a file: every reader may change the time of access."""
    found = path.stat()
    times = found.st_mtime_ns, found.st_ctime_ns
    return found.st_ino, found.st_mode, found.st_nlink, found.st_size, times, path.read_bytes()


def test_reading_touches_nothing(path: Path) -> None:
    path.write_bytes(packed({"a": TEXT}))
    before = facts(path)
    store = ZipStore(path)
    assert store.read([Extent("a"), Extent("b")]) == [TEXT, None]
    with pytest.raises(ReadOnlyError):
        store.apply(Commit(publish=(Put("a", b""),)))
    with pytest.raises(ReadOnlyError), store.writing():
        pass
    assert facts(path) == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_store_is_pickled_by_its_path(path: Path) -> None:
    store = stored(path, packed({"a": TEXT}))
    store.size("a")
    again = pickle.loads(pickle.dumps(store))
    assert again.read([Extent("a")]) == [TEXT]
    assert again.location == str(path)


def test_nothing_changes_no_archive(path: Path) -> None:
    store = ZipStore(path, writable=True)
    store.apply(Commit(cleanup=(Delete("a"),)))
    assert not path.exists()
    store.apply(Commit(publish=(Put("a", b"1"),)))
    before = path.stat().st_ino
    store.apply(Commit(cleanup=(Delete("b"),)))
    assert path.stat().st_ino == before


# Archives that lie -------------------------------------------------------------------------------


def entry(name: bytes = b"a", **changes: Any) -> tuple[bytes, dict[str, Any]]:
    return name, changes


def built(*entries: tuple[bytes, dict[str, Any]], gap: int = 0, count: int | None = None) -> bytes:
    """Return an archive whose members have the given headers."""
    data, directory = bytearray(), bytearray()
    for name, changes in entries:
        value = changes.get("data", b"12345")
        fields = {"flags": 0, "method": 0, "crc": zlib.crc32(value), "stored": len(value)}
        fields |= {"size": len(value), "attributes": 0, "offset": len(data), "extra": b""}
        central = fields | {key: item for key, item in changes.items() if key in fields}
        local = fields | changes.get("local", {})
        data += struct.pack(
            "<4s5H3L2H", b"PK\3\4", 20, local["flags"], local["method"], 0, 33, local["crc"],
            local["stored"], local["size"], len(changes.get("header", name)), 0,
        )  # fmt: skip
        data += changes.get("header", name) + value
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\1\2", 20, 20, central["flags"], central["method"], 0, 33,
            central["crc"], central["stored"], central["size"], len(name), len(central["extra"]),
            0, 0, 0, central["attributes"], central["offset"],
        )  # fmt: skip
        directory += name + central["extra"]
    data += bytes(gap)
    number = len(entries) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number, number, len(directory), len(data), 0)
    return bytes(data + directory + end)


def test_the_builder_builds_what_is_sound(path: Path) -> None:
    data = built(entry(), entry(b"b", data=b""))
    assert stored(path, data).read([Extent("a"), Extent("b")]) == [b"12345", b""]


LIES: dict[str, tuple[bytes, type[IngotError], str]] = {
    "twice": (built(entry(), entry()), FormatError, "two members are called 'a'"),
    "dots": (built(entry(b"../a")), UnsafeError, "leaves its folder"),
    "absolute": (built(entry(b"/etc/passwd")), UnsafeError, "leaves the store"),
    "backslash": (built(entry(b"..\\a")), UnsafeError, "backslash"),
    "drive": (built(entry(b"C:/a")), UnsafeError, "drive"),
    "zero byte": (built(entry(b"a\0b")), UnsafeError, "control"),
    "no text": (built(entry(b"\xff\xfe", flags=0x800)), UnsafeError, "no text"),
    "empty name": (built(entry(b"")), UnsafeError, "empty"),
    "link": (built(entry(attributes=(stat.S_IFLNK | 0o777) << 16)), UnsafeError, "symbolic link"),
    "encrypted": (built(entry(flags=1)), UnsupportedError, "encrypted"),
    "method": (built(entry(method=14)), UnsupportedError, "method 14"),
    "stored size": (built(entry(size=6)), CorruptionError, "5 bytes stored, the size is 6"),
    "both sizes": (built(entry(size=2**31, stored=2**31)), CorruptionError, "reach beyond"),
    "growth": (built(entry(method=8, size=2**31)), CorruptionError, "cannot become"),
    "offset": (built(entry(offset=1000)), CorruptionError, "reach beyond"),
    "overlap": (built(entry(), entry(b"b", offset=0)), CorruptionError, "reach beyond"),
    "nested": (built(entry(data=bytes(90)), entry(b"b", offset=40)), CorruptionError, "beyond"),
    "few": (built(entry(), entry(b"b"), count=1), CorruptionError, "claims"),
    "many": (built(entry(), count=2), CorruptionError, "members in a directory|no member"),
    "count": (built(entry(), count=60_000), CorruptionError, "60000 members"),
    "wide": (built(entry(size=2**32 - 1)), CorruptionError, "64 bits are missing"),
    "short wide": (
        built(entry(size=2**32 - 1, extra=b"\1\0\4\0abcd")),
        CorruptionError,
        "64 bits are missing",
    ),
    "cut": (built(entry())[:-1], CorruptionError, "no end"),
    "cut in half": (built(entry())[:40], CorruptionError, "no end"),
    "empty": (b"", CorruptionError, "no end"),
    "prefix": (b"#!/bin/sh\n" + built(entry()), CorruptionError, "claims"),
    "no archive": (b"PK\3\4" + bytes(1000), CorruptionError, "no end"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_in_the_directory_are_refused(lie: str, path: Path) -> None:
    data, error, message = LIES[lie]
    store = stored(path, data)
    for use in (lambda: store.read([Extent("a")]), lambda: list(store.names())):
        with pytest.raises(error, match=message) as caught:
            use()
        assert str(path) in str(caught.value)


LOCAL_LIES: dict[str, tuple[bytes, str]] = {
    "name": (built(entry(header=b"b")), "another name"),
    "size": (built(entry(local={"size": 4})), "size is 4 in the header, 5 in the directory"),
    "stored": (built(entry(local={"stored": 4})), "stored is 4"),
    "crc": (built(entry(local={"crc": 4})), "crc is 4"),
    "method": (built(entry(local={"method": 8})), "method"),
    "encrypted": (built(entry(local={"flags": 1})), "method"),
    "checksum": (built(entry(crc=1, local={"crc": 1})), "checksum"),
    "long name": (built(entry(header=b"a" * 40, data=b"")), "another name"),
    "no header": (built(entry()).replace(b"PK\3\4", b"PK\3\5"), "no header at byte 0"),
    "no stream": (built(entry(method=8, local={"method": 8})), "member 'a'"),
}


@pytest.mark.parametrize("lie", LOCAL_LIES)
def test_lies_in_a_header_are_refused_when_it_is_read(lie: str, path: Path) -> None:
    data, message = LOCAL_LIES[lie]
    store = stored(path, data)
    assert list(store.names()) == ["a"]
    with pytest.raises(CorruptionError, match=message):
        store.read([Extent("a")])


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (deflated(TEXT), len(TEXT) - 1),
        (deflated(TEXT), len(TEXT) + 1),
        (deflated(TEXT)[:-3], len(TEXT)),
        (deflated(TEXT) + b"more", len(TEXT)),
        (deflated(TEXT) + bytes(100_000), len(TEXT)),
        (deflated(b""), 1),
    ],
)
def test_streams_that_are_not_what_they_claim(path: Path, value: bytes, size: int) -> None:
    claims = {"method": 8, "size": size, "crc": zlib.crc32(TEXT)}
    local = claims | {"stored": len(value)}
    store = stored(path, built(entry(data=value, **claims, local=local)))
    with pytest.raises(CorruptionError, match="member 'a'"):
        store.read([Extent("a")])


def test_a_bomb_is_refused_before_it_takes_memory(path: Path) -> None:
    value = deflated(bytes(2**28 + 1))
    assert len(value) < 300_000
    claims = {"method": 8, "size": 2**28 + 1}
    local = claims | {"stored": len(value), "crc": 0}
    store = stored(path, built(entry(data=value, crc=0, **claims, local=local)))
    with pytest.raises(LimitError, match="the limit is 268435456"):
        store.read([Extent("a")])
    # Its beginning costs no more than that.
    assert store.read([Extent("a", 0, 1000)]) == [bytes(1000)]


def test_parts_of_compressed_members(path: Path) -> None:
    store = stored(path, packed({"a": TEXT}, zipfile.ZIP_DEFLATED))
    extents = [Extent("a", 5, 10), Extent("a", 990), Extent("a", 0, 1), Extent("a", 2000, 5)]
    assert store.read(extents) == [TEXT[5:15], TEXT[990:], TEXT[:1], b""]


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), method=st.sampled_from([0, 8]))
def test_damaged_archives_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, seed: int, method: int
) -> None:
    chance = random.Random(seed)
    content = {"a": TEXT, "b/c": b"", "b/d": bytes(200)}
    data = bytearray(packed(content, method))
    for _ in range(chance.randrange(1, 4)):
        place = chance.choice([chance.randrange(len(data)), len(data) - chance.randrange(1, 250)])
        data[place] = chance.randrange(256)
    if chance.random() < 0.2:
        del data[chance.randrange(len(data)) :]
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    store = stored(path, bytes(data))
    try:
        names = [*store.names(), *store.names("b")]
        found = store.read([Extent(key) for key in content])
    except IngotError:
        return
    assert names
    # The checksums of members see to it that what is read is what was written.
    for key, value in zip(content, found, strict=True):
        assert value in (None, content[key])


# Arrays in archives ------------------------------------------------------------------------------


def test_an_array_in_an_archive(path: Path) -> None:
    data = np.arange(1000, dtype="<i4").reshape(20, 50)
    ingot.array(data, path, chunks=(7, 9), attrs={"a": 1}, format="zarr2")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert ".zarray" in archive.namelist()
    renamed = path.rename(path.with_name("without a suffix"))
    array = ingot.open(renamed, "r+")
    assert (array.path, dict(array.attrs)) == (str(renamed), {"a": 1})
    assert array[3:9, ::7].tolist() == data[3:9, ::7].tolist()
    array[0] = -1
    array.append(data[:2])
    assert ingot.open(renamed)[...].tolist() == [[-1] * 50, *data[1:].tolist(), *data[:2].tolist()]


def test_zarr_reads_our_archives_and_we_read_theirs(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    data = np.arange(100, dtype="<f8").reshape(10, 10)
    ingot.array(data, tmp_path / "ours.zip", chunks=(4, 4), format="zarr2")
    with zarr.storage.ZipStore(tmp_path / "ours.zip", mode="r") as store:
        assert zarr.open_array(store, mode="r", zarr_format=2)[...].tolist() == data.tolist()
    with zarr.storage.ZipStore(tmp_path / "theirs.zip", mode="w") as store:
        made = zarr.create_array(store, shape=(10, 10), chunks=(4, 4), dtype="f8", zarr_format=2)
        made[...] = data
    assert ingot.open(tmp_path / "theirs.zip")[...].tolist() == data.tolist()


def test_only_archives_are_opened_as_such(tmp_path: Path) -> None:
    (tmp_path / "x.zip").mkdir()
    ingot.array([1, 2], tmp_path / "x.zip" / "a", format="zarr2")
    assert ingot.open(tmp_path / "x.zip" / "a")[...].tolist() == [1, 2]
    (tmp_path / "y.zip").write_bytes(b"no archive")
    with pytest.raises(IngotError):
        ingot.open(tmp_path / "y.zip")


def test_growth_is_what_deflate_can_do() -> None:
    sizes: list[Callable[[], int]] = [
        lambda n=n: len(deflated(bytes(n))) for n in (1, 10**4, 10**7)
    ]
    for size, measure in zip((1, 10**4, 10**7), sizes, strict=True):
        most = measure() * zip_format._LARGEST_GROWTH + zip_format._SHORTEST_STREAM
        assert size <= most


# Names in the directory --------------------------------------------------------------------------


def test_no_changed_byte_of_a_name_makes_a_chunk_absent(path: Path) -> None:
    values = np.arange(100)
    ingot.array(values, ZipStore(path, writable=True), chunks=10, codec="none", format="zarr2")
    sound = path.read_bytes()
    for name in (b"0", b"5", b".zarray"):
        at = sound.index(name, sound.index(b"PK\x01\x02"))
        while sound[at - 46 : at - 42] != b"PK\x01\x02":
            at = sound.index(name, at + 1)
        for offset in range(len(name)):
            for bit in range(8):
                changed = bytearray(sound)
                changed[at + offset] ^= 1 << bit
                path.write_bytes(changed)
                with pytest.raises(IngotError):
                    ingot.open(ZipStore(path))[...]


def test_a_damaged_name_is_reported_every_time(path: Path) -> None:
    data = bytearray(packed({"a/0": b"x", "a/1": b"y"}))
    at = data.rindex(b"a/1")
    data[at + 2] = ord("7")
    store = stored(path, bytes(data))
    for _ in range(2):
        with pytest.raises(CorruptionError, match="the header has another name"):
            store.read([Extent("a/1")])
        with pytest.raises(CorruptionError, match="the header has another name"):
            store.size("a/1")
    assert store.read([Extent("a/0")]) == [b"x"]
    # No damage of a single name makes a key of another length absent.
    assert store.read([Extent("a/10")]) == [None]


def test_an_error_when_the_old_archive_is_closed_leaves_nothing_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ZipStore(tmp_path / "a.zip", writable=True)
    store.apply(Commit(publish=(Put("a", b"alpha"),)))
    close = os.close

    def fail(descriptor: int) -> None:
        archive = os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path / "a.zip")
        close(descriptor)
        if archive:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "close", fail)
    store.apply(Commit(publish=(Put("b", b"beta"),)))
    assert store.read([Extent("a"), Extent("b")]) == [b"alpha", b"beta"]
    assert [each for each in os.listdir(tmp_path) if is_staged(each)] == []


def without(data: bytes, *names: str) -> bytes:
    """Return an archive whose directory has lost some entries; everything else stays."""
    end = data.rindex(b"PK\5\6")
    count, _, start = struct.unpack("<HLL", data[end + 10 : end + 20])
    kept, place = [], start
    for _ in range(count):
        lengths = struct.unpack("<HHH", data[place + 28 : place + 34])
        entry = data[place : place + 46 + sum(lengths)]
        place += len(entry)
        if entry[46 : 46 + lengths[0]].decode() not in names:
            kept.append(entry)
    directory = b"".join(kept)
    numbers = struct.pack("<HHLL", len(kept), len(kept), len(directory), start)
    return data[:start] + directory + data[end : end + 8] + numbers + data[end + 20 :]


class Stream(io.RawIOBase):
    """A file that cannot be sought: zipfile then writes sizes after the data."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.data += bytes(piece)
        return len(piece)


def streamed(content: dict[str, bytes]) -> bytes:
    file = Stream()
    with zipfile.ZipFile(file, "w") as archive:  # type: ignore[call-overload]
        for key, data in content.items():
            archive.writestr(key, data)
    return file.data


def wide(content: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for key, data in content.items():
            with archive.open(key, "w", force_zip64=True) as member:
                member.write(data)
    return file.getvalue()


MEMBERS = {f"c/{number}": bytes([number]) * 50 for number in range(5)}


@pytest.mark.parametrize("make", [packed, streamed, wide])
@pytest.mark.parametrize("lost", [("c/0",), ("c/2",), ("c/4",), ("c/0", "c/3")])
def test_a_member_that_the_directory_does_not_name_is_reported(
    path: Path, make: Callable[[dict[str, bytes]], bytes], lost: tuple[str, ...]
) -> None:
    """Without its entry a chunk would be read as the fill value."""
    store = stored(path, without(make(MEMBERS), *lost))
    for key, data in MEMBERS.items():
        if key in lost:
            for ask in (lambda: store.read([Extent(key)]), lambda: store.size(key)):  # noqa: B023
                with pytest.raises(CorruptionError, match="directory does not name it"):
                    ask()
        else:
            assert store.read([Extent(key)]) == [data]
    assert store.read([Extent("c/9")]) == [None]
    assert list(store.names("c/")) == [str(number) for number in range(5)]


def test_several_lost_members_in_a_row(path: Path) -> None:
    store = stored(path, without(packed(MEMBERS), "c/1", "c/2", "c/3"))
    for number in (1, 2, 3):
        with pytest.raises(CorruptionError, match="does not name it"):
            store.read([Extent(f"c/{number}")])


def test_an_archive_with_a_lost_member_is_not_written_anew_without_it(path: Path) -> None:
    path.write_bytes(without(packed(MEMBERS), "c/1", "c/3"))
    before = path.read_bytes()
    store = ZipStore(path, writable=True)
    with pytest.raises(CorruptionError, match="would lose it"):
        store.apply(Commit(publish=(Put("c/0", b"new"), Put("c/1", b"new"))))
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == sorted({path.name, f".{path.name}.lock"})
    store.apply(Commit(publish=(Put("c/1", b"new"), Delete("c/3"))))
    assert store.read([Extent(f"c/{number}") for number in (0, 1, 3)]) == [
        MEMBERS["c/0"],
        b"new",
        None,
    ]


@pytest.mark.parametrize("make", [packed, streamed, wide])
def test_sound_archives_of_others_have_no_lost_members(
    path: Path, make: Callable[[dict[str, bytes]], bytes]
) -> None:
    sound = make({**MEMBERS, "folder/": b"", "empty": b""})
    store = stored(path, sound)
    assert store.read([Extent("c/9"), Extent("c/1")]) == [None, MEMBERS["c/1"]]
    assert list(store.names()) == ["c/", "empty"]


def test_what_a_program_left_that_replaced_a_member_is_no_lost_member(path: Path) -> None:
    """The old bytes stay in front of, between or behind the members; their name is known."""
    old = pack_header(Member("c/1", 3, 3, zlib.crc32(b"old"))) + b"old"
    data, members = b"", []
    for key, value in MEMBERS.items():
        data += old
        members.append(Member(key, len(value), len(value), zlib.crc32(value), offset=len(data)))
        data += pack_header(members[-1]) + value
    data += old
    store = stored(path, data + pack_directory(members, len(data)))
    assert store.read([Extent("c/1"), Extent("c/9")]) == [MEMBERS["c/1"], None]


@pytest.mark.parametrize("filler", [b"\0" * 500, b"#!/bin/sh\n" * 50, b"PK\3\4" * 100, TEXT])
def test_bytes_that_are_no_header_may_lie_anywhere(path: Path, filler: bytes) -> None:
    data, members = filler, []
    for key, value in MEMBERS.items():
        members.append(Member(key, len(value), len(value), zlib.crc32(value), offset=len(data)))
        data += pack_header(members[-1]) + value + filler
    store = stored(path, data + pack_directory(members, len(data)))
    assert store.read([Extent("c/1"), Extent("c/9")]) == [MEMBERS["c/1"], None]


def test_our_archives_are_recognised_without_reading_their_headers(path: Path) -> None:
    store = ZipStore(path, writable=True)
    store.apply(Commit(publish=tuple(Put(key, data) for key, data in MEMBERS.items())))
    data = path.read_bytes()
    found = zip_format.parse_directory(
        lambda start, size: data[start : start + size], len(data), ""
    )
    assert found.gaps == ()


def test_very_many_lost_members_are_refused(path: Path) -> None:
    data = b"".join(pack_header(Member(f"lost/{n}", 0, 0, 0)) for n in range(2000))
    store = stored(path, data + pack_directory([], len(data)))
    with pytest.raises(CorruptionError, match="more than 1000"):
        store.read([Extent("a")])


def test_an_array_with_a_lost_chunk_is_not_read_as_fill(path: Path) -> None:
    ingot.array(np.arange(40), path, chunks=10)
    name = "c/2"
    path.write_bytes(without(path.read_bytes(), name))
    array = ingot.open(path)
    assert array[:20].tolist() == list(range(20))
    with pytest.raises(CorruptionError, match=name):
        array[...]


def test_a_patch_of_a_large_member_takes_memory_for_the_patch(tmp_path: Path) -> None:
    store = ZipStore(tmp_path / "x.zip", writable=True)
    size = 128 << 20
    store.apply(Commit(publish=(Put("a", bytes(size)),)), durability="process")
    tracemalloc.start()
    try:
        patches = Patch("a", 3, b"12345678"), Patch("a", size - 1, b"xy")
        store.apply(Commit(publish=patches), durability="process")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    found = store.read([Extent("a", 0, 12), Extent("a", size - 2)])
    assert found == [b"\0\0\x0012345678\0", b"\0xy"]


def test_a_patch_does_not_hide_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    store = ZipStore(path, writable=True)
    store.apply(Commit(publish=(Put("a", TEXT),)))
    path.write_bytes(path.read_bytes().replace(b"brown", b"green", 1))
    with pytest.raises(CorruptionError, match="'a': the checksum is wrong"):
        store.apply(Commit(publish=(Patch("a", 0, b"THE"),)))


# Places in the archive, for the native kernel ----------------------------------------------------


on_the_native_kernel = pytest.mark.skipif(
    native.choice().name != "native", reason="the Python kernel takes bytes only"
)


def natively(store: ZipStore, extents: list[Extent], verify: str = "first") -> list[bytes | None]:
    """Return the bytes at the places that the store hands over; fail where it hands over bytes."""
    data = Path(store.location).read_bytes()
    found: list[bytes | None] = []
    for each in store.locate_bytes(extents, threads=2, verify=verify):
        assert not isinstance(each, bytes)
        found.append(None if each is None else data[each[1] : each[1] + each[2]])
    return found


@on_the_native_kernel
def test_places_are_those_of_the_bytes(path: Path) -> None:
    content = {"a": TEXT, "b/c": bytes(range(256)) * 5000, "empty": b""}
    store = stored(path, packed(content))
    extents = [
        Extent("b/c"),
        Extent("a", 3, 20),
        Extent("absent"),
        Extent("a", 990, 2**40),
        Extent("a", 2**40, 5),
        Extent("empty"),
    ]
    assert natively(store, extents) == store.read(extents)


@on_the_native_kernel
def test_compressed_members_come_as_bytes(path: Path) -> None:
    store = stored(path, packed({"a": TEXT}, zipfile.ZIP_DEFLATED))
    assert store.locate_bytes([Extent("a", 4, 5)], threads=2, verify="first") == [TEXT[4:9]]


class CountingFile:
    """An open file that counts the ranges whose checksums are asked for."""

    count = 0

    def __init__(self, file: native.OpenFile) -> None:
        self.file = file
        self.settled = file.settled

    def crc32(self, ranges: list[tuple[int, int]], threads: int) -> list[int]:
        CountingFile.count += len(ranges)
        return self.file.crc32(ranges, threads)


@on_the_native_kernel
@pytest.mark.parametrize(
    ("verify", "young", "counts"),
    [
        ("first", False, [1, 2, 2, 2]),
        ("first", True, [1, 3, 5, 5]),
        ("always", False, [1, 3, 5, 5]),
        ("never", False, [0, 0, 0, 0]),
    ],
)
def test_a_checksum_is_compared_as_often_as_asked(
    path: Path, monkeypatch: pytest.MonkeyPatch, verify: str, young: bool, counts: list[int]
) -> None:
    store = stored(path, packed({"a": TEXT, "b": TEXT[::-1]}))
    # A file that was changed now may change again without another time of change.
    time = 4_000_000_000 if young else 1_000_000_000
    os.utime(path, (time, time))
    opened = native.open_file

    def counting(descriptor: int) -> CountingFile:
        file = opened(descriptor)
        assert file is not None
        return CountingFile(file)

    monkeypatch.setattr(native, "open_file", counting)
    monkeypatch.setattr(CountingFile, "count", 0)
    both = [Extent("a"), Extent("b")]
    found = []
    for extents in ([Extent("a")], both, both, [Extent("a", 1), Extent("b", 0, 3)]):
        natively(store, extents, verify)
        found.append(CountingFile.count)
    assert found == counts


@on_the_native_kernel
@pytest.mark.parametrize("verify", ["first", "always"])
def test_a_wrong_checksum_is_found_before_a_place_is_handed_over(path: Path, verify: str) -> None:
    data = bytearray(packed({"a": TEXT, "b": TEXT[::-1]}))
    data[data.index(TEXT) + 7] ^= 1
    store = stored(path, bytes(data))
    for _ in range(2):
        with pytest.raises(CorruptionError, match="member 'a': the checksum is wrong"):
            store.locate_bytes([Extent("b"), Extent("a")], threads=2, verify=verify)
    # A part of a member has no checksum.
    assert natively(store, [Extent("a", 0, 3), Extent("b")], verify) == [TEXT[:3], TEXT[::-1]]


@on_the_native_kernel
@pytest.mark.parametrize("format", ["zarr2", "zarr3", "bcolz"])
def test_arrays_in_an_archive_are_read_natively_from_its_file(path: Path, format: str) -> None:
    values = np.random.default_rng(3).integers(0, 2**31, 60_000).reshape(-1, 10)
    if format == "bcolz":
        values = values.ravel()
    store = ZipStore(path, writable=True)
    ingot.array(values, store, chunks=(1000, *values.shape[1:]), format=format)
    array = ingot.open(path)
    assert isinstance(array, ingot.Array)
    rows = np.array([5, 700, 5999])
    for _ in range(2):
        assert np.array_equal(array[...], values)
        assert np.array_equal(array[rows], values[rows])
        os.utime(path, (1_000_000_000, 1_000_000_000))
    # The bytes of a chunk that the archive says are wrong are never used, by any read of it whole.
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        chunks = [info for info in archive.infolist() if info.file_size > 1000]
    header = chunks[2].header_offset
    data[header + 30 + len(chunks[2].filename) + chunks[2].file_size // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="the checksum is wrong"):
        ingot.open(path)[...]
