"""Open files, read into memory of the caller."""

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
        values.read_into(memoryview(memory), executor)
    assert memory == b"spam eggsam "


def test_a_file_that_shrinks_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam eggs")
    with open_values(Root(tmp_path), EXTENTS) as values, ThreadPoolExecutor(2) as executor:
        (tmp_path / "a").write_bytes(b"spam")
        with pytest.raises(CorruptionError, match="'a' ends at byte 4, it was longer when"):
            values.read_into(memoryview(bytearray(12)), executor)
