"""Changes of one chunk of a super-chunk file, which the native kernel commits by itself."""

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import CorruptionError, LockedError, ReadOnlyError
from ingot.stores import LocalStore
from ingot.stores.local import lock
from ingot.stores.local.store import COMMITTED, DECIDED, LocalTurn
from tests.blsk_reader import read
from tests.limited import CAN_LIMIT_FILES, short_files

pytestmark = pytest.mark.skipif(
    native.choice().name != "native" or not lock.OFD,
    reason="needs the native kernel, and locks of open files",
)

FILE = Path("data", "__1__.bin")
PROCESS = ingot.Options(durability="process")


def made(path: Path, values: Any, *, warm: bool = True, **settings: Any) -> ingot.Array:
    """Make an array, and let this process find out that locks hold on its device."""
    settings = {"chunks": 8, "superchunksize": 4, "options": PROCESS, **settings}
    array = ingot.array(values, path, format="blsk", **settings)
    if warm:
        # The first writer of a dataset makes the lock file, which Python does.
        array.attrs["warm"] = 1
    return array


@pytest.mark.parametrize("durability", ["process", "full"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_change_of_one_chunk_takes_no_turn(
    tmp_path: Path, turns: list[LocalTurn], order: str, durability: Any
) -> None:
    expected = np.arange(1.0, 601).reshape(10, 12, 5)
    options = ingot.Options(durability=durability)
    array = made(tmp_path / "a", expected, chunks=(4, 5, 3), order=order, options=options)
    reader, size = ingot.open(tmp_path / "a"), (tmp_path / "a" / FILE).stat().st_size
    turns.clear()
    for number, key in enumerate([(0, 0, 0), (9, 11, 4), (5, slice(6, 9), 1), (5, 7, slice(3))]):
        for _ in range(5):
            array[key] = expected[key] = expected[key] + number + 0.5
            assert np.array_equal(array[...], expected)
            assert np.array_equal(reader[...], expected)
    array[4:8, 5:10, :3] = expected[4:8, 5:10, :3] = 7
    array[7:4:-2, 8, 2] = expected[7:4:-2, 8, 2] = [1, 2]
    assert turns == []
    assert np.array_equal(ingot.open(tmp_path / "a")[...], expected)
    assert np.array_equal(read(tmp_path / "a"), expected)
    # Room that is free again is used again.
    assert (tmp_path / "a" / FILE).stat().st_size < 2 * size
    assert ingot.check(tmp_path / "a").ok


def test_what_the_kernel_does_not_do_is_done_by_turns(
    tmp_path: Path, turns: list[LocalTurn]
) -> None:
    expected = np.arange(64)
    expected[40:48] = 0
    array = made(tmp_path / "a", expected)
    for key, value in [
        (slice(6, 10), 5),  # Two chunks.
        (41, 7),  # A chunk that is not stored.
        (41, 0),  # Nothing but the fill value is left.
        ([3, 60], 9),
        (slice(48, 64), 1),
    ]:
        turns.clear()
        array[key] = expected[key] = value
        assert len(turns) == 1, key
        assert array[...].tolist() == expected.tolist()
        array[20] = expected[20] = expected[20] + 1
        array[33] = expected[33] = expected[33] + 1
        assert len(turns) == 1, key
    array.append([1, 2, 3])
    array[66] = 4
    array.resize(65)
    array[64] = 5
    assert array[...].tolist() == [*expected.tolist(), 5]
    assert read(tmp_path / "a").tolist() == [*expected.tolist(), 5]


def test_files_get_anew_when_most_of_them_is_dead(tmp_path: Path) -> None:
    expected = np.random.default_rng(1).integers(0, 2**62, 1 << 17)
    array = made(tmp_path / "a", expected, chunks=1 << 15, spare=0.0)
    sizes = set()
    for number in range(60):
        # Chunks of all sizes, each of which leaves a hole behind.
        length = 512 * (number % 60)
        array[1 << 15 : (1 << 15) + length] = expected[1 << 15 : (1 << 15) + length] = number
        array[number] = expected[number] = number
        sizes.add((tmp_path / "a" / FILE).stat().st_size)
    assert np.array_equal(array[...], expected)
    assert max(sizes) < 3 * expected.nbytes


def test_two_handles_see_each_others_changes(tmp_path: Path) -> None:
    expected = np.arange(64)
    one = made(tmp_path / "a", expected)
    other = ingot.open(tmp_path / "a", "r+", options=PROCESS)
    for number in range(40):
        array = (one, other, other)[number % 3]
        place = number * 23 % 64
        array[place] = expected[place] = 1000 + number
        assert one[...].tolist() == other[...].tolist() == expected.tolist()
    assert read(tmp_path / "a").tolist() == expected.tolist()


def test_threads_that_read_while_others_change(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.zeros(64, "i8") + 1)
    failures: list[object] = []
    until = time.monotonic() + 1

    def look() -> None:
        while time.monotonic() < until:
            array.explain(slice(5, 30))  # It asks where chunks lie.
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

    threads = [threading.Thread(target=look) for _ in range(2)]
    threads += [threading.Thread(target=count, args=(place,)) for place in (3, 4, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ingot.check(tmp_path / "a").ok


def test_statistics_are_those_of_the_new_state(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(64.0))
    assert (array.max(), array.min()) == (63, 0)
    array[10], array[20] = 100, -5
    assert (array.max(), array.min(), array.sum()) == (100, -5, 63 * 32 - 30 + 95)


def test_a_table_and_a_transaction_are_changed_by_turns(tmp_path: Path) -> None:
    table = ingot.table({"a": np.arange(20)}, tmp_path / "t", format="blsk", options=PROCESS)
    table["a"][3] = 7
    table["a"][4] = 8
    assert ingot.open(tmp_path / "t")["a"][:5].tolist() == [0, 1, 2, 7, 8]
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    with array.transaction():
        array[2] = 6
        assert (array[2], ingot.open(tmp_path / "a")[2]) == (6, 2)
    array[3] = 7
    assert ingot.open(tmp_path / "a")[:5].tolist() == [0, 5, 6, 7, 4]


def test_only_the_first_writer_of_a_dataset_takes_a_turn(
    tmp_path: Path, turns: list[LocalTurn]
) -> None:
    made(tmp_path / "a", np.arange(20), warm=False)
    (tmp_path / "a" / ".lock").unlink()
    taken = []
    for number in range(3):
        turns.clear()
        ingot.open(tmp_path / "a", "r+", options=PROCESS)[number] = 5
        taken.append(len(turns))
    assert taken == [1, 0, 0]
    assert ingot.open(tmp_path / "a")[:4].tolist() == [5, 5, 5, 3]


# Other programs -----------------------------------------------------------------------------------


def test_documents_that_another_program_changed_are_read_again(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    (tmp_path / "a" / "meta" / "nrows").write_text("18\n")
    with pytest.raises(ingot.errors.SelectionError):
        array[19] = 1
    array[17] = 3
    assert len(array) == 18


@pytest.mark.parametrize("replaced", [False, True])
def test_files_that_another_program_changed_are_read_again(tmp_path: Path, replaced: bool) -> None:
    array = made(tmp_path / "a", np.arange(32), warm=True)
    array[1] = 5
    other = made(tmp_path / "b", np.arange(32))
    path = tmp_path / "a" / FILE
    data = bytearray(path.read_bytes())
    # Chunk 2 moves to the end of the file.
    starts = np.frombuffer(data, "<i8", 4, 16).tolist()
    first = starts[2]
    end = min((start for start in starts if start > first), default=len(data))
    image = bytes(data[first:end])
    data[32:40] = len(data).to_bytes(8, "little")
    data += image
    data[first : first + len(image)] = bytes(len(image))
    if replaced:
        path.rename(tmp_path / "old")
    path.write_bytes(data)
    assert array[16] == 16
    array[17] = 9
    array[25] = 8
    expected = np.arange(32)
    expected[[1, 17, 25]] = 5, 9, 8
    assert array[...].tolist() == expected.tolist()
    assert other[17] == 17


def test_an_image_that_another_program_made_longer_in_its_place_stays(tmp_path: Path) -> None:
    noise = np.random.default_rng(2)
    values = np.full(2048, 3)
    values[1024:] = noise.integers(0, 2**40, 1024)
    array = made(tmp_path / "a", values, chunks=1024, superchunksize=2, spare=0.0)
    array[1024:] = 5  # It leaves a large gap, at the beginning of which chunk 0 goes.
    array[0] = 9
    path, other = tmp_path / "a" / FILE, tmp_path / "b"
    data = path.read_bytes()
    for name in ("meta/storage", "meta/nrows", "meta/attributes"):
        (other / name).parent.mkdir(exist_ok=True, parents=True)
        (other / name).write_bytes((tmp_path / "a" / name).read_bytes())
    (other / "data").mkdir()
    (other / FILE).write_bytes(data)
    longer = noise.integers(0, 2**8, 1024)
    ingot.open(other, "r+")[:1024] = longer
    (start, behind), found = np.frombuffer(data, "<i8", 2, 16).tolist(), (other / FILE).read_bytes()
    (new,) = np.frombuffer(found, "<i8", 1, 16).tolist()
    image = found[new : new + int.from_bytes(found[new + 12 : new + 16], "little") + 200]
    assert start + len(image) < behind, "it fits in its place"
    time.sleep(0.02)  # File systems count time in steps.
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(image)
    array[1024:1500] = longer[:476]  # Behind the image that was shorter there is room for it.
    assert np.array_equal(array[:1024], longer)
    assert np.array_equal(array[1024:1500], longer[:476])


def test_a_dead_writer_is_recovered_by_a_turn(tmp_path: Path, turns: list[LocalTurn]) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    with open(tmp_path / "a" / ".lock", "r+b") as file:
        file.seek(24)
        file.write(bytes([lock.LockState.BUSY]))
    turns.clear()
    array[2] = 6
    array[3] = 7
    assert len(turns) == 1
    assert array[:5].tolist() == [0, 5, 6, 7, 4]


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
    assert len(turns) == 1


# Readers that pin the state, other processes ------------------------------------------------------


def test_a_snapshot_keeps_changes_out(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(20))
    array[1] = 5
    store = LocalStore(tmp_path / "a", writable=True, wait=0.02)
    impatient = ingot.open(store, "r+", options=PROCESS)
    impatient[2] = 6
    size = (tmp_path / "a" / FILE).stat().st_size
    with array.snapshot():
        for _ in range(3):
            with pytest.raises(LockedError):
                impatient[2] = 7
            assert array[2] == 6
        with pytest.raises(ReadOnlyError):
            array[2] = 7
        assert (tmp_path / "a" / FILE).stat().st_size == size
    impatient[2] = 8
    assert array[2] == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_both_sides_of_a_fork_change_items(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.zeros(32, "i8") + 1)
    array[0] = 2
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number in range(200):
                array[1 + number % 8] = 100 + number
            code = 0
        finally:
            os._exit(code)
    for number in range(200):
        array[20 + number % 8] = 200 + number
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    expected = np.ones(32, "i8")
    expected[0] = 2
    expected[1:9] = 292 + np.arange(8)
    expected[20:28] = 392 + np.arange(8)
    assert array[...].tolist() == expected.tolist()
    assert ingot.check(tmp_path / "a").ok


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not CAN_LIMIT_FILES, reason="the system limits no files")
def test_a_change_that_cannot_be_written_leaves_the_array_as_it_was(tmp_path: Path) -> None:
    expected = np.arange(2048)
    array = made(tmp_path / "a", expected, chunks=512, superchunksize=4, spare=0.0)
    noise = np.random.default_rng(3).integers(0, 2**62, 512)
    path = tmp_path / "a" / FILE
    array[1] = expected[1] = 7
    size = path.stat().st_size
    with short_files(size), pytest.raises(OSError, match="File too large") as caught:
        array[512:1000] = noise[:488]
    assert caught.value.errno == errno.EFBIG
    assert path.stat().st_size == size
    assert np.array_equal(array[...], expected)
    array[512:1000] = expected[512:1000] = noise[:488]
    assert np.array_equal(array[...], expected)
    assert ingot.check(tmp_path / "a").ok


def test_a_damaged_chunk_is_refused(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(64), chunks=16)
    array[1] = 5
    path = tmp_path / "a" / FILE
    data = bytearray(path.read_bytes())
    start = int.from_bytes(data[24:32], "little")
    data[start + 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        array[17] = 3
    array[2] = 6
    assert array[:4].tolist() == [0, 5, 6, 3]
    assert path.read_bytes()[start + 30] == data[start + 30]


class _Failing:
    """A change of which the system says that it failed."""

    def __init__(self, *failure: Any) -> None:
        self.failure = failure

    def make(self, *given: Any) -> Any:
        return None, self.failure


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("syncing", [False, True])
def test_a_failure_says_what_became_of_the_commit(
    tmp_path: Path, syncing: bool, decided: bool
) -> None:
    store = LocalStore(tmp_path, writable=True)
    change: Any = _Failing(errno.EIO, syncing, decided)
    with pytest.raises(OSError, match="Input/output") as caught:
        store.switch(change, None, 1, durability="full")  # type: ignore[arg-type]
    assert getattr(caught.value, "__notes__", []) == ([DECIDED] if decided else [])
    change.make = lambda *given: (7, None)
    if syncing:
        with pytest.raises(ReadOnlyError, match="failed sync"):
            store.switch(change, None, 1, durability="full")  # type: ignore[arg-type]
    else:
        assert store.switch(change, None, 1, durability="full") == 7  # type: ignore[arg-type]


def test_ctrl_c_behind_a_change_says_that_it_is_done(tmp_path: Path) -> None:
    import signal

    store = LocalStore(tmp_path, writable=True)
    change: Any = _Failing()

    def make(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return 7, None

    change.make = make
    with pytest.raises(KeyboardInterrupt) as caught:
        store.switch(change, None, 1, durability="full")  # type: ignore[arg-type]
    assert caught.value.__notes__ == [COMMITTED]


def test_a_store_without_locks_takes_turns(tmp_path: Path) -> None:
    made(tmp_path / "a", np.arange(20))
    store = LocalStore(tmp_path / "a", writable=True, locking=False)
    array = ingot.open(store, "r+", options=PROCESS)
    array[1], array[2] = 5, 6
    assert array[:4].tolist() == [0, 5, 6, 3]
