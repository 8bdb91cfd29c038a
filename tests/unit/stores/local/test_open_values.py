"""Open files, read into memory of the caller."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingot.errors import CorruptionError
from ingot.stores.local.beneath import Root
from ingot.stores.local.open_values import open_values
from ingot.stores.store import Extent

EXTENTS = [Extent("a"), Extent("b"), Extent("a", 2, 3), Extent("a", 90)]


def test_values_are_read_one_behind_the_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    memory = bytearray(12)
    with open_values(Root(tmp_path), EXTENTS) as values, ThreadPoolExecutor(2) as executor:
        assert values.sizes == [9, None, 3, 0]
        values.begin_reading(memoryview(memory), executor)
        values.finish_reading()
    assert memory == b"spam eggsam "


def test_a_file_that_shrinks_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    with open_values(Root(tmp_path), EXTENTS) as values, ThreadPoolExecutor(2) as executor:
        (tmp_path / "a").write_bytes(b"spam")
        values.begin_reading(memoryview(bytearray(12)), executor)
        with pytest.raises(CorruptionError, match="'a' ends at byte 4, it was longer when"):
            values.finish_reading()


def test_large_values_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.stores.local.open_values._PART", 3)
    data = bytes(range(100))
    (tmp_path / "a").write_bytes(data)
    for extent, size in ((Extent("a"), 100), (Extent("a", 7, 10), 10), (Extent("a", 7, 1), 1)):
        memory = bytearray(size)
        with open_values(Root(tmp_path), [extent]) as values, ThreadPoolExecutor(3) as executor:
            values.begin_reading(memoryview(memory), executor)
            values.finish_reading()
        assert memory == data[extent.start :][:size]


def test_files_are_closed_when_no_thread_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read has begun when the caller gives up: it ends before its file is closed."""
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
            values.begin_reading(memoryview(bytearray(18)), executor)
            assert begun.wait(60)
            threading.Timer(0.05, go_on.set).start()
        assert events == ["read", "closed", "closed"]
