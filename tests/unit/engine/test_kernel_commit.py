"""Changes of chunks that are files, and rows, which the native kernel commits by itself."""

import errno
import mmap
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import ArgumentError, CorruptionError, LockedError, SelectionError
from ingot.stores import LocalStore
from ingot.stores.local import lock
from ingot.stores.local.store import LocalTurn
from ingot.stores.store import SPARES
from tests.limited import CAN_LIMIT_FILES, short_files

pytestmark = pytest.mark.skipif(
    native.choice().name != "native" or not lock.OFD,
    reason="needs the native kernel, and locks of open files",
)

PROCESS = ingot.Options(durability="process")
FORMATS = ("zarr3", "zarr2", "bcolz")


def made(path: Path, values: Any, format: str = "zarr3", **settings: Any) -> ingot.Array:
    """Make an array, and let this process find out that locks hold on its device."""
    settings = {"chunks": 8, "options": PROCESS, **settings}
    array = ingot.array(values, path, format=format, **settings)
    # The first writer of a dataset makes the lock file, which Python does.
    array.attrs["warm"] = 1
    return array


def files(folder: Path) -> dict[str, bytes]:
    """Return what all files of a folder hold, but for the lock file and spare files."""
    found = (path for path in folder.rglob("*") if path.is_file())
    kept = (path for path in found if path.name not in {".lock", *SPARES})
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def change(array: ingot.Array, expected: Any) -> Any:
    """Change single chunks, and append, in ways that the kernel commits by itself."""
    for number, key in enumerate([3, 9, slice(10, 14), slice(15, 11, -2), slice(0, 8, 3)]):
        for _ in range(3):
            array[key] = expected[key] = expected[key] + number + 0.5
            assert array[...].tolist() == expected.tolist()
    for count in (3, 1, 8, 5, 8, 2, 2):
        items = np.arange(count) + 0.25
        array.append(items)
        expected = np.concatenate((expected, items))
        assert array[...].tolist() == expected.tolist()
        array[len(expected) - 1] = expected[-1] = -count
    return expected


@pytest.mark.parametrize("durability", ["process", "full"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_change_of_one_chunk_takes_no_turn(
    tmp_path: Path, turns: list[LocalTurn], format: str, durability: Any
) -> None:
    options = ingot.Options(durability=durability)
    array = made(tmp_path / "a", np.arange(1.0, 21), format, options=options)
    reader = ingot.open(tmp_path / "a")
    turns.clear()
    expected = change(array, np.arange(1.0, 21))
    assert turns == []
    assert reader[...].tolist() == expected.tolist()
    assert ingot.open(tmp_path / "a")[...].tolist() == expected.tolist()
    assert ingot.check(tmp_path / "a").findings == ()
    names = {name for name in os.listdir(tmp_path / "a") if name.startswith(".g-")}
    spares = {".g-spare-chunk", ".g-spare-document"} if durability == "process" else set()
    assert names == spares <= SPARES


@pytest.mark.parametrize("durability", ["process", "full"])
@pytest.mark.parametrize("format", FORMATS)
def test_turns_write_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, durability: Any
) -> None:
    options = ingot.Options(durability=durability)
    made(tmp_path / "a", np.arange(1.0, 21), format, options=options)
    for path, data in files(tmp_path / "a").items():
        (tmp_path / "b" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "b" / path).write_bytes(data)
    change(ingot.open(tmp_path / "a", "r+", options=options), np.arange(1.0, 21))
    monkeypatch.setattr(LocalStore, "switch", lambda *given, **named: None)
    change(ingot.open(tmp_path / "b", "r+", options=options), np.arange(1.0, 21))
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize("format", ["zarr3", "zarr2"])
def test_chunks_of_several_axes(tmp_path: Path, turns: list[LocalTurn], format: str) -> None:
    expected = np.arange(1.0, 601).reshape(10, 12, 5)
    separator = {"zarr2": {"dimension_separator": "/"}}.get(format, {})
    array = made(tmp_path / "a", expected, format, chunks=(4, 6, 5), **separator)
    turns.clear()
    for number, key in enumerate([(0, 0, 0), (9, 11, 4), (5, slice(6, 9), 1), (5, 7, slice(3))]):
        array[key] = expected[key] = expected[key] + number + 0.5
    array[7:4:-2, 8, 2] = expected[7:4:-2, 8, 2] = [1, 2]
    assert turns == []
    rows = np.ones((2, 12, 5))
    array.append(rows)  # Two chunks.
    assert turns == []
    array.append(rows)  # In folders of their own, which have to be made.
    assert len(turns) == (0 if format == "zarr2" and not separator else 1)
    expected = np.concatenate((expected, rows, rows))
    assert np.array_equal(array[...], expected)
    assert np.array_equal(ingot.open(tmp_path / "a")[...], expected)


def test_what_the_kernel_does_not_do_is_done_by_turns(
    tmp_path: Path, turns: list[LocalTurn]
) -> None:
    expected = np.arange(1, 65)
    array = made(tmp_path / "a", expected)
    for key, value in [
        (slice(6, 10), 5),  # Two chunks.
        (slice(40, 47), 0),
        (47, 0),  # Nothing but the fill value is left.
        ([3, 60], 9),
        (slice(40, 64), 1),
    ]:
        turns.clear()
        array[key] = expected[key] = value
        assert len(turns) == (key != slice(40, 47)), key
        array[20] = expected[20] = expected[20] + 1
        assert array[...].tolist() == expected.tolist()
    turns.clear()
    array[8:16] = expected[8:16] = 3  # All of a chunk.
    assert turns == []
    array.append(np.zeros(8, "i8"))  # No chunk at all.
    array.append(np.arange(24))  # Three chunks.
    array.append(np.arange(0))
    array.resize(90)
    assert len(turns) == 4
    assert array[...].tolist() == [*expected.tolist(), *[0] * 8, *range(18)]
    assert ingot.open(tmp_path / "a")[...].tolist() == array[...].tolist()


def test_a_chunk_that_is_not_stored_is_made(tmp_path: Path, turns: list[LocalTurn]) -> None:
    array = made(tmp_path / "a", np.arange(64))
    array[16:32] = 0
    turns.clear()
    array[17] = 5
    array[26:28] = 6
    assert turns == []
    expected = np.arange(64)
    expected[16:32] = 0
    expected[[17, 26, 27]] = 5, 6, 6
    assert ingot.open(tmp_path / "a")[...].tolist() == expected.tolist()


@pytest.mark.parametrize("settings", [{"shards": 16}, {"manifest": True}])
def test_shards_and_manifests_change_by_turns(
    tmp_path: Path, turns: list[LocalTurn], settings: Any
) -> None:
    array = made(tmp_path / "a", np.arange(1, 41), **settings)
    turns.clear()
    array[3] = 9
    array.append([7, 8])
    assert len(turns) == 2
    assert ingot.open(tmp_path / "a")[...].tolist() == [1, 2, 3, 9, *range(5, 41), 7, 8]


def test_what_a_smaller_array_has_left_does_not_come_back(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(1, 17))
    (tmp_path / "a" / "c" / "2").write_bytes((tmp_path / "a" / "c" / "1").read_bytes())
    array.append([5, 6, 7])
    array.append([8])
    assert ingot.open(tmp_path / "a")[16:].tolist() == [5, 6, 7, 8]
    (tmp_path / "a" / "c" / "3").write_bytes((tmp_path / "a" / "c" / "1").read_bytes())
    array.resize(30)
    assert ingot.open(tmp_path / "a")[20:].tolist() == [0] * 10


def test_values_that_do_not_fit_are_errors(tmp_path: Path, turns: list[LocalTurn]) -> None:
    array = made(tmp_path / "a", np.arange(20))
    for values in ([[1, 2]], [[[3]]]):
        with pytest.raises(ArgumentError, match="cannot be appended"):
            array.append(values)
    with pytest.raises(ArgumentError):
        array.append(["x"])
    with pytest.raises(SelectionError):
        array[20] = 1
    with pytest.raises(ValueError, match="broadcast"):
        array[2:5] = [1, 2]
    assert array[...].tolist() == list(range(20))


def test_members_of_a_group(tmp_path: Path, turns: list[LocalTurn]) -> None:
    group = ingot.group(tmp_path / "g", options=PROCESS)
    one, other = (group.array(name, np.arange(20), chunks=8) for name in ("one", "other"))
    turns.clear()
    one[3], other[4] = 7, 8
    one.append([5])
    other.append([6])
    assert turns == []
    again = ingot.open(tmp_path / "g")
    assert again["one"][...].tolist() == [0, 1, 2, 7, *range(4, 20), 5]
    assert again["other"][...].tolist() == [0, 1, 2, 3, 8, *range(5, 20), 6]
    del group["one"]
    assert list(ingot.open(tmp_path / "g")) == ["other"]
    assert files(tmp_path / "g" / "one") == {}


def test_two_handles_see_each_others_changes(tmp_path: Path) -> None:
    expected = list(range(20))
    one = made(tmp_path / "a", np.arange(20))
    other = ingot.open(tmp_path / "a", "r+", options=PROCESS)
    for number in range(40):
        array = (one, other, other)[number % 3]
        place = number * 23 % len(expected)
        array[place] = expected[place] = 1000 + number
        if number % 4 == 0:
            array.append([number])
            expected.append(number)
        assert one[...].tolist() == other[...].tolist() == expected


def test_threads_that_read_while_others_change(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.zeros(64, "i8") + 1)
    failures: list[object] = []
    until = time.monotonic() + 1

    def look() -> None:
        while time.monotonic() < until:
            items = array[...]
            if not (items >= 1).all():
                failures.append(items)

    def count(place: int) -> None:
        done = 1
        while time.monotonic() < until:
            done += 1
            array[place] = done
            if array[place] != done:
                failures.append((place, done))

    def extend() -> None:
        while time.monotonic() < until:
            array.append([7])

    threads = [threading.Thread(target=look) for _ in range(2)]
    threads += [threading.Thread(target=count, args=(place,)) for place in (3, 4, 40)]
    threads += [threading.Thread(target=extend)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(ingot.open(tmp_path / "a")[64:].tolist()) == {7}
    assert ingot.check(tmp_path / "a").ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_both_sides_of_a_fork_append(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.ones(8, "i8"))
    array[0] = 2
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(100):
                array.append([3])
            code = 0
        finally:
            os._exit(code)
    for _ in range(100):
        array.append([4])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = array[...].tolist()
    assert (len(found), found.count(3), found.count(4)) == (208, 100, 100)
    assert ingot.check(tmp_path / "a").ok


# Other programs -----------------------------------------------------------------------------------


def test_documents_that_another_program_changed_are_read_again(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    document = tmp_path / "a" / "zarr.json"
    document.write_text(document.read_text().replace("20", "18"))
    with pytest.raises(SelectionError):
        array[19] = 1
    array.append([3])
    assert array[16:].tolist() == [16, 17, 3]


def test_who_still_reads_an_old_file_reads_its_old_bytes(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(100.0), chunks=100, codec="none", checksum=False)
    array[0] = 1  # From now on there is a spare file.
    path = tmp_path / "a" / "c" / "0"
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        os.link(path, tmp_path / "second name")
        before = path.read_bytes()
        for number in range(5):
            array[1] = number
            assert bytes(mapped) == before
        file.seek(0)
        assert file.read() == before
    for number in range(5):
        array[2] = number
        assert (tmp_path / "second name").read_bytes() == before
    assert array[:4].tolist() == [1, 4, 4, 3]


def test_a_file_keeps_the_rights_that_new_files_have(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(20))
    path = tmp_path / "a" / "c" / "0"
    usual = path.stat().st_mode
    array[1] = 5
    path.chmod(0o600)
    for number in range(6, 10):
        array[1] = number
        assert path.stat().st_mode == usual


def test_spare_files_go_when_a_dead_writer_is_recovered(
    tmp_path: Path, turns: list[LocalTurn]
) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    array.append([20])
    assert len(SPARES & set(os.listdir(tmp_path / "a"))) == 2
    with open(tmp_path / "a" / ".lock", "r+b") as file:
        file.seek(24)
        file.write(bytes([lock.LockState.BUSY]))
    turns.clear()
    array[2] = 6
    assert not SPARES & set(os.listdir(tmp_path / "a"))
    array[3] = 7
    assert len(turns) == 1
    assert array[:5].tolist() == [0, 5, 6, 7, 4]
    LocalStore(tmp_path / "a", writable=True).recover()
    assert sorted(os.listdir(tmp_path / "a")) == [".lock", "c", "zarr.json"]


def test_a_synced_change_behind_one_that_was_not_takes_a_turn(
    tmp_path: Path, turns: list[LocalTurn]
) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    full = ingot.open(tmp_path / "a", "r+")
    turns.clear()
    full[2] = 6
    assert len(turns) == 1, "all that came before is synced"
    full[3] = 7
    full.append([8])
    assert len(turns) == 1


def test_a_snapshot_keeps_changes_out(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(20))
    store = LocalStore(tmp_path / "a", writable=True, wait=0.02)
    impatient = ingot.open(store, "r+", options=PROCESS)
    impatient[2] = 6
    with array.snapshot():
        for _ in range(3):
            with pytest.raises(LockedError):
                impatient[2] = 7
            with pytest.raises(LockedError):
                impatient.append([1])
            assert array[...].tolist() == [0, 1, 6, *range(3, 20)]
    impatient[2] = 8
    assert array[2] == 8


@pytest.mark.skipif(not CAN_LIMIT_FILES, reason="the system limits no files")
@pytest.mark.parametrize("durability", ["process", "full"])
def test_a_change_that_cannot_be_written_leaves_the_array_as_it_was(
    tmp_path: Path, durability: Any
) -> None:
    noise = np.random.default_rng(3).integers(0, 2**62, 2048)
    options = ingot.Options(durability=durability)
    array = made(tmp_path / "a", np.zeros(2048, "i8") + 1, chunks=1024, options=options)
    array[1] = 7
    before = files(tmp_path / "a")
    for failing in (
        lambda: array.__setitem__(slice(1023), noise[:1023]),
        lambda: array.append(noise[:800]),
    ):
        with short_files(4096), pytest.raises(OSError, match="File too large") as caught:
            failing()
        assert caught.value.errno == errno.EFBIG
        assert files(tmp_path / "a") == before
    array[:1023] = noise[:1023]
    array.append(noise[:800])
    assert array[...].tolist() == [*noise[:1023].tolist(), *[1] * 1025, *noise[:800].tolist()]


def test_a_damaged_chunk_is_refused(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    path = tmp_path / "a" / "c" / "2"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for failing in (lambda: array.__setitem__(17, 3), lambda: array.append([1])):
        with pytest.raises(CorruptionError):
            failing()
    array[2] = 6
    assert array[:4].tolist() == [0, 5, 6, 3]
    assert path.read_bytes() == data


def test_a_folder_in_the_way_is_an_error_of_a_turn(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(16))
    (tmp_path / "a" / "c" / "2").mkdir()
    (tmp_path / "a" / "c" / "2" / "mine").write_text("kept")
    with pytest.raises((OSError, ingot.errors.IngotError)):
        array.append([1])
    assert array[...].tolist() == list(range(16))
    assert (tmp_path / "a" / "c" / "2" / "mine").read_text() == "kept"


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    """A spare name that is a link is not followed, and what it names stays."""
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "a" / ".g-spare-chunk").unlink()
    (tmp_path / "a" / ".g-spare-chunk").symlink_to(tmp_path / "outside")
    for number in range(4):
        array[1] = number
    assert (tmp_path / "outside").read_text() == "kept"
    assert array[:3].tolist() == [0, 3, 2]


# Rows of tables -----------------------------------------------------------------------------------


def rows(first: int, count: int) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {
        "n": numbers,
        "half": numbers / 2,
        "even": numbers % 2 == 0,
        "name": np.char.add("n", numbers.astype("U5")).astype("S6"),
        "pair": np.stack([numbers, -numbers], axis=1).astype("i2"),
    }


def table_of(path: Path, count: int = 20, **settings: Any) -> ingot.Table:
    """Make a table whose chunks have eight rows, and let its first writer have been."""
    settings = {"format": "bcolz", "options": PROCESS, "chunks": 8, **settings}
    table = ingot.table(rows(0, count), path, **settings)
    table.attrs["warm"] = 1
    return table


def same_rows(table: ingot.Table, count: int) -> None:
    found = table.read()
    for name, values in rows(0, count).items():
        assert found[name].tolist() == values.tolist(), name


def add_rows(table: ingot.Table, count: int) -> int:
    """Append rows that fill up chunks, make new ones, and do both."""
    for more in (1, 3, 1, 7, 8, 2, 6, 5):
        table.append(rows(count, more))
        count += more
    return count


def test_rows_of_all_columns_take_no_turn(tmp_path: Path, turns: list[LocalTurn]) -> None:
    table = table_of(tmp_path / "t")
    reader = ingot.open(tmp_path / "t")
    turns.clear()
    count = 20
    for more in (1, 3, 1, 7, 8, 2, 6, 5):
        table.append(rows(count, more))
        count += more
        same_rows(table, count)
        same_rows(reader, count)
    assert turns == []
    same_rows(ingot.open(tmp_path / "t"), count)
    assert ingot.check(tmp_path / "t").findings == ()
    names = {name for name in os.listdir(tmp_path / "t") if name.startswith(".")}
    assert ".g-spare-journal" in names
    assert names - {".lock"} <= SPARES
    assert not list((tmp_path / "t").rglob("*/.g-*"))


def test_turns_write_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_of(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    add_rows(ingot.open(tmp_path / "a", "r+", options=PROCESS), 20)
    monkeypatch.setattr(LocalStore, "switch", lambda *given, **named: None)
    add_rows(ingot.open(tmp_path / "b", "r+", options=PROCESS), 20)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_rows_that_the_kernel_does_not_add(tmp_path: Path, turns: list[LocalTurn]) -> None:
    table = table_of(tmp_path / "t")
    turns.clear()
    table.append(rows(20, 30))  # Several chunks.
    table.append(rows(50, 0))
    assert len(turns) == 2
    ingot.open(tmp_path / "t", "r+").append(rows(50, 1))  # To survive a power cut.
    assert len(turns) == 3
    with table.transaction():
        table.append(rows(51, 2))
    assert len(turns) == 4
    table.append(rows(53, 2))
    assert len(turns) == 4
    with pytest.raises(ArgumentError):
        table.append({**rows(55, 2), "even": [True]})
    same_rows(table, 55)


def test_rows_with_nulls_and_words(tmp_path: Path, turns: list[LocalTurn]) -> None:
    columns = {"a": [1, None, 3], "b": ["x", "y", "z"]}
    table = ingot.table({"a": columns["a"]}, tmp_path / "t", format="bcolz", options=PROCESS)
    table.append({"a": [4]})
    turns.clear()
    table.append({"a": [None, 6]})
    assert turns == []
    assert table.to_arrow()["a"].to_pylist() == [1, None, 3, 4, None, 6]
    both = ingot.table(columns, tmp_path / "u", format="bcolz", options=PROCESS)
    both.append({"a": [4], "b": ["longer"]})
    both.append({"a": [None], "b": ["w"]})  # Items of variable length.
    assert both.to_arrow()["b"].to_pylist() == ["x", "y", "z", "longer", "w"]
    first = ingot.table({"a": [1, 2]}, tmp_path / "v", format="bcolz", options=PROCESS)
    first.append({"a": [3]})
    first.append({"a": [None]})  # The first null needs a column.
    assert first.to_arrow()["a"].to_pylist() == [1, 2, 3, None]


def test_more_columns_than_there_are_spare_files(tmp_path: Path, turns: list[LocalTurn]) -> None:
    table = ingot.table(
        {f"c{n}": np.arange(20) + n for n in range(30)},
        tmp_path / "t",
        format="bcolz",
        chunks=8,
        options=PROCESS,
    )
    table.attrs["warm"] = 1
    turns.clear()
    for number in range(20, 40, 2):
        table.append({f"c{n}": np.arange(number, number + 2) + n for n in range(30)})
    assert turns == []
    for n, values in enumerate(ingot.open(tmp_path / "t").read().values()):
        assert values.tolist() == list(range(n, 40 + n))
    assert ingot.check(tmp_path / "t").findings == ()


def test_a_table_opened_twice_loses_no_rows(tmp_path: Path) -> None:
    one = table_of(tmp_path / "t")
    other = ingot.open(tmp_path / "t", "r+", options=PROCESS)
    for number in range(20, 60):
        (one, other, other)[number % 3].append(rows(number, 1))
    same_rows(one, 60)
    same_rows(other, 60)


def test_readers_of_rows_see_whole_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    failures: list[object] = []
    until = time.monotonic() + 1

    def look() -> None:
        reader = ingot.open(tmp_path / "t")
        last = 0
        while time.monotonic() < until:
            found = reader.read()
            count = len(found["n"])
            expected = rows(0, count)
            same = [found[name].tolist() == expected[name].tolist() for name in expected]
            if not all(same) or count < last:
                failures.append((count, same))
            last = count

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    count = 20
    while any(thread.is_alive() for thread in threads):
        table.append(rows(count, 1 + count % 3))
        count += 1 + count % 3
    for thread in threads:
        thread.join()
    assert failures == []
    same_rows(ingot.open(tmp_path / "t"), count)


def test_a_snapshot_keeps_rows_out(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    store = LocalStore(tmp_path / "t", writable=True, wait=0.02)
    impatient = ingot.open(store, "r+", options=PROCESS)
    impatient.append(rows(20, 1))
    with table.snapshot():
        with pytest.raises(LockedError):
            impatient.append(rows(21, 1))
        same_rows(table, 21)
    impatient.append(rows(21, 1))
    same_rows(table, 22)


@pytest.mark.skipif(not CAN_LIMIT_FILES, reason="the system limits no files")
def test_rows_that_cannot_be_written_leave_the_table_as_it_was(tmp_path: Path) -> None:
    noise = np.random.default_rng(3).integers(0, 2**62, 2000)
    settings: dict[str, Any] = {"format": "bcolz", "chunks": 4096, "options": PROCESS}
    table = ingot.table({"a": noise[:100], "b": noise[:100]}, tmp_path / "t", **settings)
    table.append({"a": noise[:1], "b": noise[:1]})
    before = files(tmp_path / "t")
    with short_files(4096), pytest.raises(OSError, match="File too large") as caught:
        table.append({"a": noise[:800], "b": noise[:800]})
    assert caught.value.errno == errno.EFBIG
    assert files(tmp_path / "t") == before
    table.append({"a": noise[:800], "b": noise[:800]})
    assert table["b"][:].tolist() == [*noise[:100], noise[0], *noise[:800]]


def test_what_still_reads_an_old_file_of_a_column_reads_its_old_bytes(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    table.append(rows(20, 1))
    paths = [tmp_path / "t" / "n" / name for name in ("data/__2.blp", "meta/sizes")]
    with open(paths[0], "rb") as chunk, open(paths[1], "rb") as sizes:
        before = chunk.read(), sizes.read()
        for number in range(21, 24):
            table.append(rows(number, 1))
            chunk.seek(0)
            sizes.seek(0)
            assert (chunk.read(), sizes.read()) == before
    same_rows(table, 24)


def test_a_damaged_column_gets_no_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    table.append(rows(20, 1))
    path = tmp_path / "t" / "pair" / "data" / "__2.blp"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = files(tmp_path / "t")
    with pytest.raises(CorruptionError):
        table.append(rows(21, 1))
    assert files(tmp_path / "t") == before
