"""A writer on real files is killed again and again; what it acknowledged is always there."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.formats.bloscpack import array as bloscpack_array
from ingot.stores import Commit, Extent, FileStore, LocalStore, Patch, Put, Store, read_state
from ingot.stores.store import Durability, extend
from ingot.stores.versions import writing
from tests.crash.kills import kill_one

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KEYS = [f"f{number % 3}/{number}" for number in range(5)]
KILLS = 100
"""Of each kind of writer."""


def _left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith((".g-", ".commit"))]


def _write_for_ever(folder: Path, acknowledged: int, first: int) -> None:
    store = LocalStore(folder, writable=True)
    for number in range(first, first + 1_000_000):
        value = b"%d" % number
        keys = KEYS if number % 3 else KEYS[:1]
        edits = tuple(Put(key, value) for key in keys)
        store.apply(Commit(publish=edits), durability="full" if number % 7 == 0 else "process")
        os.write(acknowledged, value.ljust(12))


def _state(folder: Path) -> list[int]:
    found = read_state(LocalStore(folder), lambda view: view.read([Extent(key) for key in KEYS]))
    return [int(value or b"0") for value in found]


@pytest.mark.slow
def test_a_hundred_kills_of_a_writer(tmp_path: Path) -> None:
    chance = random.Random(1)
    last = 0
    for _ in range(KILLS):
        said = kill_one(lambda pipe, first=last + 1: _write_for_ever(tmp_path, pipe, first), chance)
        last = max(last, said)
        first, *others = _state(tmp_path)
        # Commits change all keys or the first alone, so at most one may be ahead of the others.
        assert len(set(others)) == 1
        assert first in (last, last + 1)
        expected = first if first % 3 else max((n for n in range(first) if n % 3), default=0)
        assert others[0] in (expected, 0) if not first else others[0] == expected
        last = first
    LocalStore(tmp_path, writable=True).recover()
    assert _left_over(tmp_path) == []


# A single file ------------------------------------------------------------------------------------


def _append_for_ever(path: Path, acknowledged: int, first: int) -> None:
    store = FileStore(path, writable=True)
    for number in range(first, first + 1_000_000):
        with writing(store, durability="full" if number % 5 == 0 else "process") as turn:
            (head,) = turn.store.read([Extent(store.key, 0, 12)])
            pieces = [b"%12d" % number] * (1 + number % 3)
            grown = extend(turn.store, store.key, pieces, end=int(head or b"0"))
            header = b"%12d" % (grown.start + grown.size)
            turn.commit(Commit(prepare=(grown,), publish=(Patch(store.key, 0, header),)))
        os.write(acknowledged, b"%12d " % number)


def _frame(path: Path) -> list[int]:
    store = FileStore(path)

    def read(view: Store) -> list[int]:
        (head,) = view.read([Extent(store.key, 0, 12)])
        assert head is not None
        (body,) = view.read([Extent(store.key, 12, int(head) - 12)])
        assert body is not None
        assert len(body) == int(head) - 12
        return [int(body[at : at + 12]) for at in range(0, len(body), 12)]

    return read_state(store, read)


def test_fifty_kills_of_a_writer_that_extends_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.frame"
    path.write_bytes(b"%12d" % 12)
    chance = random.Random(3)
    last = 0
    for _ in range(KILLS // 2):
        said = kill_one(lambda pipe, first=last + 1: _append_for_ever(path, pipe, first), chance)
        last = max(last, said)
        found = _frame(path)
        last += bool(found) and found[-1] == last + 1
        assert found == [number for number in range(1, last + 1) for _ in range(1 + number % 3)]
    assert last > KILLS // 4
    FileStore(path, writable=True).recover()
    assert _left_over(tmp_path) == []


# Arrays -------------------------------------------------------------------------------------------


def _items(number: int) -> list[int]:
    """Return what the array holds after the commit of this number, and of no other."""
    first = number - number % 5
    return [
        [first] * 12,
        [first] * 12 + [number] * 12,
        [first] + [number] * 22 + [number - 1],
        [first] + [number - 1] * 22 + [number - 2] + [0] * 16,
        [first] + [number - 2] * 11,
    ][number % 5]


def _change_once(array: ingot.Array, number: int) -> None:
    """Replace three chunks, append three, change six in part, grow, shrink; then again."""
    match number % 5:
        case 0:
            array[...] = number
        case 1:
            array.append([number] * 12)
        case 2:
            array[1:23] = number
        case 3:
            array.resize(40)
        case _:
            array.resize(12)


def _change_for_ever(folder: Path, acknowledged: int, first: int) -> None:
    array = ingot.open(folder, "r+", options=ingot.Options(durability="process"))
    for number in range(first, first + 1_000_000):
        _change_once(array, number)
        os.write(acknowledged, b"%12d " % number)


def test_kills_of_a_writer_of_bloscpack_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short files grow in place, as long ones do: the journal takes part.
    monkeypatch.setattr(bloscpack_array, "_SMALLEST_IN_PLACE", 0)
    chance, path, kills = random.Random(4), tmp_path / "a.blp", KILLS // 4
    ingot.array(np.zeros(12, "u8"), path, chunks=4, checksum="crc32")
    last = 0
    for _ in range(kills):
        said = kill_one(lambda pipe, first=last + 1: _change_for_ever(path, pipe, first), chance)
        last = max(last, said)
        items = ingot.open(path)[...].tolist()
        assert items in (_items(last), _items(last + 1))
        last += items == _items(last + 1)
    assert last > kills // 5
    FileStore(path, writable=True).recover()
    assert sorted(os.listdir(tmp_path)) == [".a.blp.lock", "a.blp"]
    assert ingot.open(path)[...].tolist() == _items(last)


@pytest.mark.parametrize(("format", "kills"), [("zarr2", KILLS // 2), ("zarr3", KILLS // 2)])
def test_a_hundred_kills_of_a_writer_of_arrays(tmp_path: Path, format: str, kills: int) -> None:
    chance = random.Random(2)
    ingot.array(np.zeros(12, "u8"), tmp_path, chunks=4, format=format)
    last = 0
    for _ in range(kills):
        said = kill_one(
            lambda pipe, first=last + 1: _change_for_ever(tmp_path, pipe, first), chance
        )
        last = max(last, said)
        items = ingot.open(tmp_path)[...].tolist()
        assert items in (_items(last), _items(last + 1))
        last += items == _items(last + 1)
    assert last > kills // 2
    LocalStore(tmp_path, writable=True).recover()
    assert _left_over(tmp_path) == []
    assert ingot.open(tmp_path)[...].tolist() == _items(last)


def _little(number: int) -> list[int]:
    """Return what the array holds after the little change of this number."""

    def last(which: int) -> int:
        return max(0, number - (number - which) % 4)

    grown = [number] if number % 4 == 3 else []
    return [0, last(1), last(2), last(2), *grown]


def _change_little(array: ingot.Array, number: int) -> None:
    """Change one item, or two, append one, or shrink, all in one chunk."""
    match number % 4:
        case 1:
            array[1] = number
        case 2:
            array[2:4] = number
        case 3:
            array.append([number])
        case _:
            array.resize(4)


def _change_little_for_ever(
    folder: Path, durability: Durability, acknowledged: int, first: int
) -> None:
    array = ingot.open(folder, "r+", options=ingot.Options(durability=durability))
    for number in range(first, first + 1_000_000):
        _change_little(array, number)
        os.write(acknowledged, b"%12d " % number)


@pytest.mark.parametrize("durability", ["process", "full"])
@pytest.mark.parametrize("format", ["zarr2", "zarr3", "bcolz"])
def test_kills_of_a_writer_of_one_chunk(
    tmp_path: Path, format: str, durability: Durability
) -> None:
    chance, kills = random.Random(5), KILLS // 4
    ingot.array(np.zeros(4, "u8"), tmp_path, chunks=8, format=format)
    last = 0
    for _ in range(kills):
        said = kill_one(
            lambda pipe, first=last + 1: _change_little_for_ever(tmp_path, durability, pipe, first),
            chance,
        )
        last = max(last, said)
        items = ingot.open(tmp_path)[...].tolist()
        assert items in (_little(last), _little(last + 1))
        last += items == _little(last + 1)
    assert last > kills // 2
    LocalStore(tmp_path, writable=True).recover()
    assert _left_over(tmp_path) == []
    assert ingot.open(tmp_path)[...].tolist() == _little(last)


# Rows of tables -----------------------------------------------------------------------------------


def _rows(first: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + count)
    return {"n": numbers, "half": numbers / 2, "text": numbers.astype("S6")}


def _add_rows_for_ever(folder: Path, acknowledged: int, first: int) -> None:
    table = ingot.open(folder, "r+", options=ingot.Options(durability="process"))
    count = len(table)
    for number in range(first, first + 1_000_000):
        table.append(_rows(count, 1 + number % 3))
        count += 1 + number % 3
        os.write(acknowledged, b"%12d " % count)


def test_kills_of_a_writer_that_adds_rows(tmp_path: Path) -> None:
    """The journal that the kernel writes is applied by the next writer, and read until then."""
    chance, kills = random.Random(6), KILLS // 2
    ingot.table(_rows(0, 3), tmp_path, chunks=64, format="bcolz")
    last = 3
    for number in range(kills):
        said = kill_one(
            lambda pipe, first=number: _add_rows_for_ever(tmp_path, pipe, first), chance
        )
        found = ingot.open(tmp_path).read()
        count = len(found["n"])
        assert max(last, said) <= count <= max(last, said) + 3
        for name, values in _rows(0, count).items():
            assert found[name].tolist() == values.tolist(), name
        last = count
    assert last > kills // 4
    LocalStore(tmp_path, writable=True).recover()
    assert _left_over(tmp_path) == []
