"""Open files, read into memory of the caller, by the native kernel and by threads of Python."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingot import native
from ingot.errors import CorruptionError, UnsafeError
from ingot.stores.local.beneath import Root
from ingot.stores.local.open_values import OpenValues, open_values
from ingot.stores.store import Extent
from tests.kernels import KERNELS

on_each_way = pytest.mark.usefixtures("way")


@pytest.fixture(params=KERNELS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have files opened and read by the native kernel, or by Python."""
    way: str = request.param
    if way == "python":
        monkeypatch.setattr(native, "open_files", lambda: None)
        monkeypatch.setattr(native, "read_ranges", lambda: None)
    elif native.read_ranges() is None:
        pytest.skip("the twin runs")
    return way


def parts_of(values: OpenValues) -> list[tuple[int, int, int]]:
    """Return all values as parts."""
    return [(n, 0, size) for n, size in enumerate(values.sizes) if size is not None]


EXTENTS = [Extent("a"), Extent("b"), Extent("a", 2, 3), Extent("a", 90)]


@on_each_way
def test_values_are_read_one_behind_the_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    memory = bytearray(12)
    with open_values(Root(tmp_path), EXTENTS) as values, ThreadPoolExecutor(2) as executor:
        assert values.sizes == [9, None, 3, 0]
        values.begin_reading(memoryview(memory), parts_of(values), executor, 2)
        values.finish_reading()
    assert memory == b"spam eggsam "


@on_each_way
def test_parts_of_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    (tmp_path / "b").write_bytes(b"ham")
    parts = [(1, 1, 3), (0, 5, 8), (2, 1, 2), (0, 0, 0), (0, 0, 4)]
    extents = [Extent("a"), Extent("b"), Extent("a", 2, 3)]
    memory = bytearray(12)
    with open_values(Root(tmp_path), extents) as values, ThreadPoolExecutor(2) as executor:
        values.read_parts(memoryview(memory), parts, 2)
        assert memory == b"ameggmspam\0\0"
        memory[:] = bytes(12)
        values.begin_reading(memoryview(memory), parts, executor, 2)
        values.finish_reading()
    assert memory == b"ameggmspam\0\0"


@on_each_way
def test_a_file_that_shrinks_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    with open_values(Root(tmp_path), EXTENTS) as values, ThreadPoolExecutor(2) as executor:
        (tmp_path / "a").write_bytes(b"spam")
        values.begin_reading(memoryview(bytearray(12)), parts_of(values), executor, 2)
        with pytest.raises(CorruptionError, match="'a' ends at byte 4, it was longer when"):
            values.finish_reading()


@on_each_way
def test_large_values_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.stores.local.open_values._PART", 3)
    data = bytes(range(100))
    (tmp_path / "a").write_bytes(data)
    for extent, size in ((Extent("a"), 100), (Extent("a", 7, 10), 10), (Extent("a", 7, 1), 1)):
        memory = bytearray(size)
        with open_values(Root(tmp_path), [extent]) as values, ThreadPoolExecutor(3) as executor:
            values.begin_reading(memoryview(memory), parts_of(values), executor, 2)
            values.finish_reading()
        assert memory == data[extent.start :][:size]


@on_each_way
def test_the_first_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"spam eggs")
    extents = [Extent("a"), Extent("c"), Extent("b", 4), Extent("a", 2)]
    with open_values(Root(tmp_path), extents) as values, ThreadPoolExecutor(2) as executor:
        (tmp_path / "a").write_bytes(b"spam eg")
        (tmp_path / "b").write_bytes(b"spam e")
        values.begin_reading(memoryview(bytearray(30)), parts_of(values), executor, 2)
        with pytest.raises(CorruptionError, match="'a' ends at byte 7, it was longer when"):
            values.finish_reading()


@on_each_way
def test_what_is_no_plain_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    (tmp_path / "b").mkdir()
    (tmp_path / "c").symlink_to("/etc/hostname")
    for key, reason in (("b", "a folder, not a plain file"), ("c", "leads out of the store")):
        extents = [Extent("a"), Extent(key)]
        with (
            pytest.raises(UnsafeError, match=f"key '{key}': .*{reason}"),
            open_values(Root(tmp_path), extents),
        ):
            pass


@on_each_way
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    if way == "native":
        monkeypatch.setattr(native, "read_ranges", lambda: lambda *_: (0, 3, 5))
    else:

        def failing(descriptor: int, parts: object, offset: int) -> int:
            raise OSError(5, os.strerror(5))

        monkeypatch.setattr(os, "preadv", failing)
    with open_values(Root(tmp_path), EXTENTS) as values, ThreadPoolExecutor(2) as executor:
        values.begin_reading(memoryview(bytearray(12)), parts_of(values), executor, 2)
        with pytest.raises(OSError, match=r"Input/output error.*/a") as raised:
            values.finish_reading()
        assert "key 'a' of the store" in raised.value.__notes__[0]


def test_files_are_closed_when_no_thread_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read has begun when the caller gives up: it ends before its file is closed."""
    monkeypatch.setattr(native, "read_ranges", lambda: None)
    for name in "ab":
        (tmp_path / name).write_bytes(b"spam eggs")
    begun, go_on = threading.Event(), threading.Event()
    events: list[str] = []
    read, close = os.preadv, os.close

    def slow(descriptor: int, parts: list[memoryview], offset: int) -> int:
        begun.set()
        assert go_on.wait(60)
        count = read(descriptor, parts, offset)
        events.append("read")
        return count

    def closing(descriptor: int) -> None:
        events.append("closed")
        close(descriptor)

    with ThreadPoolExecutor(1) as executor:
        with open_values(Root(tmp_path), [Extent("a"), Extent("b")]) as values:
            monkeypatch.setattr(os, "preadv", slow)
            monkeypatch.setattr(os, "close", closing)
            values.begin_reading(memoryview(bytearray(18)), parts_of(values), executor, 2)
            assert begun.wait(60)
            threading.Timer(0.05, go_on.set).start()
        assert events == ["read", "closed", "closed"]


def test_files_are_closed_when_the_kernel_has_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    begun, go_on = threading.Event(), threading.Event()
    events: list[str] = []
    close = os.close

    def slow(wanted: object, memory: memoryview, threads: int) -> None:
        begun.set()
        assert go_on.wait(60)
        events.append("read")

    def closing(descriptor: int) -> None:
        events.append("closed")
        close(descriptor)

    monkeypatch.setattr(native, "read_ranges", lambda: slow)
    with ThreadPoolExecutor(1) as executor:
        with open_values(Root(tmp_path), [Extent("a")]) as values:
            monkeypatch.setattr(os, "close", closing)
            values.begin_reading(memoryview(bytearray(9)), parts_of(values), executor, 2)
            assert begun.wait(60)
            threading.Timer(0.05, go_on.set).start()
        assert events == ["read", "closed"]
