"""Several changes as one, and what other handles see of them."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import (
    LockedError,
    ReadOnlyError,
)
from ingot.stores import LocalStore
from ingot.stores.buffered import BufferedStore
from tests.storage import Place, content
from tests.tables import ROWS, assert_holds, data, joined, make, without


def test_a_transaction_is_one_commit(place: Place) -> None:
    table, columns = make(place), data()
    reader = ingot.open(place)
    with table.transaction():
        table.append(data(100))
        table["i"][0] = 77
        table.delete(slice(1, 3))
        table.add_column("k", np.arange(ROWS + 98))
        table.rename_column("f", "g")
        table.attrs["done"] = True
        assert len(table) == ROWS + 98
        assert table.where("i == 77").count() == 1 + np.sum(columns["i"] == 77) + 1
        assert_holds(reader, columns)
        assert "done" not in reader.attrs
    expected = without(joined(columns, data(100)), [1, 2])
    expected["i"][0] = 77
    expected = {"g" if name == "f" else name: values for name, values in expected.items()}
    expected["k"] = np.arange(ROWS + 98)
    assert_holds(table, expected)
    assert_holds(reader, expected)
    assert reader.attrs["done"] is True


def test_an_exception_leaves_everything_as_it_was(place: Place) -> None:
    table = make(place)
    before = content(place)
    with pytest.raises(ZeroDivisionError):
        fail_inside(table)
    assert_holds(table, data())
    assert content(place) == before
    table.append(data(1))
    assert len(table) == ROWS + 1


def fail_inside(table: ingot.Table) -> None:
    with table.transaction():
        table.append(data(500))
        table.drop_column("i")
        raise ZeroDivisionError


@pytest.mark.usefixtures("_steps_in_python")
def test_a_transaction_that_fails_to_commit_keeps_what_is_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingot.table({"a": np.arange(10), "b": np.arange(10.0)}, tmp_path / "t", chunks=4)
    monkeypatch.setattr(BufferedStore.__init__, "__kwdefaults__", {"most": 0})
    real = os.rename

    def rename(source: str, target: str, **named: int) -> None:
        if target.endswith(".blp"):
            raise OSError(errno.EIO, "Input/output error")
        real(source, target, **named)

    transaction = table.transaction()
    transaction.__enter__()
    table.append({"a": [10, 11], "b": [10.0, 11.0]})
    table["b"][0] = -1
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="Input/output error"):
            transaction.__exit__(None, None, None)
    expected = {"a": np.arange(12), "b": np.array([-1.0, *range(1, 12)])}
    assert_holds(ingot.open(tmp_path / "t"), expected)
    table.append({"a": [12], "b": [12.0]})
    assert len(ingot.open(tmp_path / "t")) == 13
    assert not list(tmp_path.rglob(".g-*"))


def test_an_aborted_transaction_leaves_no_staged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BufferedStore.__init__, "__kwdefaults__", {"most": 0})
    table = make(tmp_path / "t")
    with pytest.raises(ZeroDivisionError):
        fail_inside(table)
    assert not list(tmp_path.rglob(".g-*"))
    other = ingot.open(tmp_path / "t", "r+")
    transaction = table.transaction()
    transaction.__enter__()
    table.append(data(500))
    assert list(tmp_path.rglob(".g-*"))
    other.resize(5)
    # Another writer does not sweep them: their owner runs.
    assert list(tmp_path.rglob(".g-*"))
    with pytest.raises(LockedError, match="another writer"):
        transaction.__exit__(None, None, None)
    assert not list(tmp_path.rglob(".g-*"))
    assert len(table) == 5


def test_a_transaction_that_gets_no_lock_leaves_no_staged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BufferedStore.__init__, "__kwdefaults__", {"most": 0})
    make(tmp_path / "t")
    table = ingot.open(LocalStore(tmp_path / "t", writable=True, wait=0.05), "r+")
    transaction = table.transaction()
    transaction.__enter__()
    table["i"][:] = 7
    assert list(tmp_path.rglob(".g-*"))
    with (
        LocalStore(tmp_path / "t", writable=True).writing(),
        pytest.raises(LockedError, match="locked by"),
    ):
        transaction.__exit__(None, None, None)
    assert not list(tmp_path.rglob(".g-*"))
    assert_holds(table, data())


def test_a_value_that_a_transaction_replaces_is_staged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BufferedStore.__init__, "__kwdefaults__", {"most": 0})
    table = make(tmp_path / "t")
    with table.transaction():
        table["i"][:] = 7
        table["i"][:] = 8
        assert (table["i"][:] == 8).all()
        # What was staged for the first values is removed at once.
        assert len(list(tmp_path.rglob(".g-*"))) == len(list((tmp_path / "t/i").rglob("__*.blp")))
    assert not list(tmp_path.rglob(".g-*"))
    assert (table["i"][:] == 8).all()


def test_transactions_inside_of_each_other_are_one(place: Place) -> None:
    table, reader = make(place), ingot.open(place)
    with table.transaction():
        with table.transaction():
            table.resize(5)
        assert len(reader) == ROWS
    assert len(reader) == 5


def test_other_threads_do_not_see_a_transaction(place: Place) -> None:
    table = make(place)
    seen: list[int] = []
    with table.transaction():
        table.resize(3)
        thread = threading.Thread(target=lambda: seen.append(len(table)))
        thread.start()
        thread.join()
        assert len(table) == 3
    assert seen == [ROWS]


def test_readers_that_load_the_table_anew_do_not_stop_a_transaction(place: Place) -> None:
    table = make(place)
    with table.transaction():
        table.append(data(5))
        thread = threading.Thread(target=table.refresh)
        thread.start()
        thread.join()
    assert_holds(table, joined(data(), data(5)))


def test_a_snapshot_of_another_thread_is_of_the_committed_state(place: Place) -> None:
    table = make(place)
    seen: list[int] = []
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with table.snapshot():
            seen.append(len(table))
            entered.set()
            assert leave.wait(10)
            seen.append(len(table))

    with table.transaction():
        table.resize(3)
        thread = threading.Thread(target=hold)
        thread.start()
        assert entered.wait(10)
        # The snapshot is not one of the transaction, which goes on.
        table.append(data(4))
        assert len(table) == 7
        leave.set()
        thread.join(10)
    assert seen == [ROWS, ROWS]
    assert len(table) == 7


def test_the_first_change_of_a_table_that_another_library_wrote(tmp_path: Path) -> None:
    make(tmp_path / "t").close()
    (tmp_path / "t" / ".lock").unlink()
    table = ingot.open(tmp_path / "t", "r+")
    with table.transaction():
        table.append(data(5))
        table.append(data(3))
    assert_holds(table, joined(data(), data(5), data(3)))


def test_a_transaction_does_not_undo_what_others_did(place: Place) -> None:
    table, other = make(place), ingot.open(place, "r+")
    transaction = table.transaction()
    transaction.__enter__()
    table.resize(5)
    other.append(data(1))
    with pytest.raises(LockedError, match="another writer"):
        transaction.__exit__(None, None, None)
    assert_holds(table, joined(data(), data(1)))


def test_a_transaction_overtaken_by_another_writer_fails_at_once(place: Place) -> None:
    table, other = make(place), ingot.open(place, "r+")
    calls: list[Callable[[], object]] = [
        lambda: table["i"][:],
        lambda: len(table),
        lambda: table.where("i < 5").rows(),
        lambda: table.append(data(1)),
        lambda: table["i"].__setitem__(0, 1),
    ]
    for number, call in enumerate(calls):
        with table.transaction():
            assert len(table["i"][:]) == ROWS - 100 * number
            # What the transaction goes by is no longer there, or is that of another state.
            other.resize(ROWS - 100 * (number + 1))
            with pytest.raises(LockedError, match="another writer"):
                call()
    assert len(table) == ROWS - 500


@pytest.mark.usefixtures("_steps_in_python")
def test_a_transaction_begins_with_what_a_dead_writer_had_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingot.table({"a": np.arange(10), "b": np.arange(10)}, tmp_path / "t", chunks=4)
    other, real = ingot.open(tmp_path / "t", "r+"), os.rename

    def rename(source: str, target: str, **named: int) -> None:
        real(source, target, **named)
        if target == ".commit":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            other.update(slice(None), {"a": np.arange(10) + 50, "b": np.arange(10) + 70})
    with table.transaction():
        assert table["a"][:].tolist() == list(range(50, 60))
        table["a"][0] = 0
    assert table["a"][:].tolist() == [0, *range(51, 60)]
    assert table["b"][:].tolist() == list(range(70, 80))


def test_snapshots_stay(place: Place) -> None:
    table = make(place)
    with table.snapshot():
        assert len(table) == ROWS
        with pytest.raises(ReadOnlyError):
            table.append(data(1))
    table.append(data(1))
    assert len(table) == ROWS + 1


def test_two_handles_see_each_others_commits(place: Place) -> None:
    first, second = make(place), ingot.open(place, "r+")
    column = second["i"]
    first.append(data(10))
    assert len(second) == len(column) == ROWS + 10
    second.delete(slice(0, ROWS))
    assert_holds(first, data(10))


def test_a_column_opened_alone_is_locked_with_its_table(tmp_path: Path) -> None:
    make(tmp_path / "t")
    store = LocalStore(tmp_path / "t", writable=True)
    before = store.version()
    assert before is not None
    column = ingot.open(tmp_path / "t" / "i", "r+")
    assert column[5] == 5
    column[5] = 55
    assert not (tmp_path / "t" / "i" / ".lock").exists()
    after = store.version()
    assert after is not None
    assert after.sequence > before.sequence
    assert ingot.open(tmp_path / "t")["i"][5] == 55
