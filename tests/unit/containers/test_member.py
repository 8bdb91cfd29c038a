"""Transactions of arrays and groups: one commit for all members, or nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.handle import Handle
from ingot.containers.member import MemberHandle, tree_transactions
from ingot.errors import LockedError, MemberError, ReadOnlyError
from ingot.stores import Commit, Extent, LocalStore, MemoryStore, Put, Store
from ingot.stores.buffered import BufferedStore
from ingot.stores.transaction import TransactionStore
from tests.storage import Place, content


@pytest.fixture(params=["memory", "local", "zip"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return MemoryStore()
    return tmp_path / ("root" if request.param == "local" else "root.zip")


@pytest.fixture(params=["zarr2", "zarr3"])
def root(request: pytest.FixtureRequest, place: Place) -> ingot.Group:
    root = ingot.group(place, format=request.param, attrs={"title": "sample"})
    root.array("a", np.arange(10), chunks=4)
    root.array("b/c", [1.5, 2.5])
    return root


class _Abandoned(Exception):
    """What ends a transaction that is to change nothing."""


@contextmanager
def abandoned(transaction: AbstractContextManager[None]) -> Iterator[None]:
    """Run a block inside a transaction that an exception ends."""
    with suppress(_Abandoned), transaction:
        yield
        raise _Abandoned


def change(root: ingot.Group) -> None:
    """Change members in every way there is."""
    a: Any = root["a"]
    a[2:6] = -1
    a.append([10, 11])
    a.attrs["units"] = "m"
    root.array("b/d", [7, 8])[0] = 9
    root.group("e", attrs={"n": 1}).array("f", [1])
    root.attrs["title"] = "changed"
    del root["b/c"]


def seen(root: ingot.Group) -> Any:
    """Return all that a reader sees of a tree."""
    found: dict[str, Any] = {"": dict(root.attrs)}
    for name, member in root.items():
        if isinstance(member, ingot.Group):
            found |= {f"{name}/{path}": each for path, each in seen(member).items()}
        else:
            found[name] = member[...].tolist(), dict(member.attrs)
    return found


def test_a_transaction_of_a_group_is_one_commit(root: ingot.Group, place: Place) -> None:
    before = seen(root)
    other: Any = ingot.open(place)
    kept: Any = root["a"]
    with root.transaction():
        change(root)
        inside = seen(root)
        assert kept[2] == -1
        assert len(kept) == 12
        assert seen(other) == before
    expected = {
        "": {"title": "changed"},
        "a": ([0, 1, -1, -1, -1, -1, 6, 7, 8, 9, 10, 11], {"units": "m"}),
        "b/": {},
        "b/d": ([9, 8], {}),
        "e/": {"n": 1},
        "e/f": ([1], {}),
    }
    assert inside == expected
    assert seen(root) == seen(other) == seen(ingot.open(place)) == expected  # type: ignore[arg-type]
    assert kept[2] == -1


def test_all_of_it_is_one_version(tmp_path: Path) -> None:
    root = ingot.group(tmp_path / "root")
    root.array("a", np.arange(10), chunks=4)
    root.array("b/c", [1.5, 2.5])
    turns: list[LocalStore] = []
    original = LocalStore.writing

    def counted(self: LocalStore, **settings: Any) -> Any:
        turns.append(self)
        return original(self, **settings)

    with pytest.MonkeyPatch.context() as patch, root.transaction():
        patch.setattr(LocalStore, "writing", counted)
        change(root)
        assert turns == []
    assert len(turns) == 1


def test_an_exception_discards_everything(root: ingot.Group, place: Place) -> None:
    before, stored = seen(root), content(_store(place))
    kept: Any = root["a"]
    with abandoned(root.transaction()):
        change(root)
        made = root["e/f"]
    assert seen(root) == before
    assert content(_store(place)) == stored
    assert kept[2] == 2
    with pytest.raises(ingot.errors.NotFoundError):
        made[...]  # type: ignore[index]
    with pytest.raises(MemberError):
        root["e"]


def test_another_writer_ends_a_transaction(root: ingot.Group, place: Place) -> None:
    member: Any = root["a"]

    def overtaken() -> None:
        with root.transaction():
            member[0] = 100
            other: Any = ingot.open(place, "r+")
            other["b/c"][0] = 50
            member[1] = 200

    with pytest.raises(LockedError, match="another writer"):
        overtaken()
    assert (member[0], root["b/c"][0]) == (0, 50)  # type: ignore[index]


def test_a_member_begins_a_transaction_of_its_group(root: ingot.Group) -> None:
    member: Any = root["a"]
    inner: Any = root["b"]
    with abandoned(member.transaction()):
        inner.array("d", [1])
        with inner.transaction():
            member[0] = 100
    assert list(inner) == ["c"]
    assert member[0] == 0
    root.close()
    with member.transaction():
        member[0] = 5
    assert member[0] == 5


def test_other_threads_are_outside(root: ingot.Group) -> None:
    member: Any = root["a"]
    found: list[Any] = []
    with root.transaction():
        member[0] = 100
        reader = threading.Thread(target=lambda: found.extend([member[0], list(root)]))
        reader.start()
        reader.join()
        root.array("z", [1])
    assert found == [0, ["a", "b"]]
    assert list(root) == ["a", "b", "z"]


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "zarr3": lambda place: ingot.array(np.arange(10), place, chunks=4, format="zarr3"),
    "zarr2": lambda place: ingot.array(np.arange(10), place, chunks=4, format="zarr2"),
    "bcolz": lambda place: ingot.array(np.arange(10), place, chunks=4, format="bcolz"),
    "zarr1": lambda place: ingot.array(np.arange(10), place, chunks=4, format="zarr1"),
}


@pytest.mark.parametrize("format", ARRAYS)
def test_a_transaction_of_an_array(format: str, place: Place) -> None:
    array = ARRAYS[format](place)
    other: Any = ingot.open(place)
    with array.transaction():
        array[3:5] = 0
        array.append([10])
        array.attrs["units"] = "m"
        assert array[...].tolist() == [0, 1, 2, 0, 0, 5, 6, 7, 8, 9, 10]
        assert other[...].tolist() == list(range(10))
    assert other[...].tolist() == array[...].tolist() == [0, 1, 2, 0, 0, 5, 6, 7, 8, 9, 10]
    assert dict(other.attrs) == {"units": "m"}
    with abandoned(array.transaction()):
        array.resize(2)
        assert len(array) == 2
    assert len(array) == len(other) == 11


def test_a_column_begins_a_transaction_of_its_table() -> None:
    table = ingot.table({"a": [1, 2], "b": [3, 4]})
    column: Any = table["a"]
    with abandoned(column.transaction()):
        column[0] = 10
        table.append({"a": [5], "b": [6]})
        assert len(table) == 3
    assert table.to_numpy().tolist() == [(1, 3), (2, 4)]


def test_reading_only(root: ingot.Group, place: Place) -> None:
    found: Any = ingot.open(place)
    with pytest.raises(ReadOnlyError):
        found.transaction()
    with pytest.raises(ReadOnlyError):
        found["a"].transaction()


def test_a_store_without_versions_shows_what_a_transaction_changed() -> None:
    class Plain(MemoryStore):
        version = None  # type: ignore[assignment]

    store: Store = Plain({"a": b"1"})

    def load(view: Store) -> bytes | None:
        return view.read([Extent("a")])[0]

    tree = tree_transactions(store, "full")
    handle = MemberHandle(tree, Handle(store, load), load)
    assert handle.value == b"1"
    with handle.transaction(), handle.writing() as turn:
        turn.commit(b"2", Commit(publish=(Put("a", b"2"),)))
    assert handle.value == b"2"


def test_the_store_of_a_transaction_counts_changes() -> None:
    store = TransactionStore(BufferedStore(MemoryStore({"a": b"1"})))
    first = store.version()
    store.apply(Commit(publish=(Put("a", b"2"),)))
    assert store.version() != first
    assert store.read([Extent("a")]) == [b"2"]
    with store.pin() as view:
        assert view is store.view()


def _store(place: Place) -> Store:
    if isinstance(place, Path) and place.suffix == ".zip":
        return ingot.stores.ZipStore(place)
    return place if not isinstance(place, Path) else LocalStore(place)
