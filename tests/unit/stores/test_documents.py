"""Documents are compared by their identities, and read only where these do not suffice."""

import os
import time
from collections.abc import Hashable, Sequence
from pathlib import Path

import pytest

from ingot.native import NativeDocuments
from ingot.stores import Commit, Delete, Extent, LocalStore, MemoryStore, Put, Store
from ingot.stores.documents import ABSENT, DocumentCheck, Documents, documents_after, identities
from tests.kernels import needs_native


class Counting(LocalStore):
    """A folder that counts the documents that are read, unless the kernel reads them."""

    reads = 0
    natively = False

    def keep_documents(self, documents: Documents) -> NativeDocuments | None:
        return super().keep_documents(documents) if self.natively else None

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        self.reads += len(extents)
        return super().read(extents)


class Check(DocumentCheck[Documents]):
    """A check of values that are their own documents."""

    def holds(self, store: Store, value: Documents, *, strict: bool = False) -> bool:
        return self.is_known(store, value) or self.compare(store, value, value, strict=strict)


@pytest.fixture(params=[pytest.param("kernel", marks=needs_native), "python"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Counting:
    (tmp_path / "a").write_bytes(b"alpha")
    (tmp_path / "b").write_bytes(b"beta")
    settle(tmp_path / "a")
    settle(tmp_path / "b")
    counting = Counting(tmp_path, writable=True)
    counting.natively = request.param == "kernel"
    return counting


def settle(path: Path, seconds: float = 10) -> None:
    """Make a file one that was changed so long ago that a new change is noticed."""
    then = time.time_ns() - int(seconds * 1e9)
    os.utime(path, ns=(then, then))


def write(path: Path, data: bytes, seconds: float) -> None:
    path.write_bytes(data)
    settle(path, seconds)


VALUE: Documents = {"a": b"alpha", "b": b"beta", "c": None}


def test_documents_are_read_once(store: Counting) -> None:
    check = Check()
    assert [check.holds(store, VALUE) for _ in range(3)] == [True] * 3
    assert store.natively or store.reads == 2  # The third is known to be absent.


def test_a_file_that_was_changed_recently_is_read_each_time(store: Counting) -> None:
    check = Check()
    os.utime(Path(store.root) / "a")
    assert identities(store, ["a"]) == [None]
    assert check.holds(store, VALUE)
    store.reads = 0
    assert check.holds(store, VALUE)
    assert store.natively or store.reads == 1
    # The change that an identity of that moment would not show.
    (Path(store.root) / "a").write_bytes(b"Alpha")
    assert not check.holds(store, VALUE)


@pytest.mark.parametrize(
    ("name", "data"), [("a", b"alpha!"), ("a", b"alph"), ("a", b""), ("b", b"BETA"), ("c", b"")]
)
@pytest.mark.parametrize("known", [False, True])
def test_every_change_is_seen(store: Counting, name: str, data: bytes, known: bool) -> None:
    check = Check()
    assert not known or check.holds(store, VALUE)
    write(Path(store.root) / name, data, 5)
    assert not check.holds(store, VALUE)


def test_a_document_that_is_gone_is_seen(store: Counting) -> None:
    check = Check()
    assert check.holds(store, VALUE)
    (Path(store.root) / "b").unlink()
    assert not check.holds(store, VALUE)


def test_identities_hold_for_one_value_only(store: Counting) -> None:
    check = Check()
    assert check.holds(store, VALUE)
    assert not check.holds(store, {**VALUE, "a": b"other"})
    assert check.holds(store, VALUE)


def test_a_document_that_was_written_again_holds_unless_it_is_strict(store: Counting) -> None:
    check = Check()
    assert check.holds(store, VALUE, strict=True)
    write(Path(store.root) / "a", b"alpha", 5)
    assert check.holds(store, VALUE)
    write(Path(store.root) / "a", b"alpha", 4)
    assert not check.holds(store, VALUE, strict=True)
    assert check.holds(store, VALUE, strict=True)


def test_a_value_without_documents_never_holds() -> None:
    assert not Check().holds(MemoryStore(), {})


def test_a_commit_makes_a_check_read_only_what_it_wrote(store: Counting) -> None:
    check = Check()
    assert check.holds(store, VALUE)
    commit = Commit(publish=(Put("a", b"gamma"),))
    after = documents_after(VALUE, commit)
    store.apply(commit)
    check.follow(VALUE, after, commit.edits)
    store.reads = 0
    assert check.holds(store, after, strict=True)
    assert store.natively or store.reads == 1
    write(Path(store.root) / "b", b"BETA", 5)
    assert not check.holds(store, after)


def test_a_commit_of_another_value_makes_a_check_read_all(store: Counting) -> None:
    check = Check()
    assert check.holds(store, VALUE)
    check.follow({}, VALUE, ())
    store.reads = 0
    assert check.holds(store, VALUE)
    assert store.natively or store.reads == 2


def test_after_a_commit_other_keys_may_count(store: Counting) -> None:
    check = Check()
    assert check.holds(store, VALUE)
    check.follow(VALUE, after := {"b": b"beta"}, (Delete("a"),))
    assert check.holds(store, after)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_one_call_finds_all_identities(tmp_path: Path, count: int) -> None:
    names = [f"f{number}" for number in range(count)]
    store = LocalStore(tmp_path / "x", writable=True)
    assert identities(store, names) == [ABSENT] * count
    store.apply(Commit(publish=tuple(Put(name, b"1") for name in names)))
    recent: list[Hashable | None] = [None] * count
    assert identities(store, names) == recent
    for name in names:
        settle(tmp_path / "x" / name)
    assert identities(store, names) == [store.identity(name) for name in names]
    assert None not in identities(store, names)
    assert identities(store, [*names, "f0/absent"])[-1] == ABSENT
    (tmp_path / "x" / "folder").mkdir()
    assert identities(store, ["folder"]) == [None]
