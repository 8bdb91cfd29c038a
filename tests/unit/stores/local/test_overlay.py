"""Readers beside a journal that is not applied: native, of one state, and loaded once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.stores import Commit, Extent, LocalStore, Patch, Put
from ingot.stores.local.commit import CommitRun
from ingot.stores.local.journal import Written, parse
from ingot.stores.local.overlay import Overlay
from ingot.stores.store import Feature, Truncate, native_names, native_patches

VALUES = np.arange(400, dtype="<i4").reshape(20, 20)
LAYOUTS: dict[str, dict[str, Any]] = {
    "zarr2": {"format": "zarr2", "chunks": (5, 5)},
    "zarr3": {"format": "zarr3", "chunks": (5, 5)},
    "shards": {"format": "zarr3", "chunks": (5, 5), "shards": (10, 10)},
    "bcolz": {"format": "bcolz", "chunks": 5},
    "blsk": {"format": "blsk", "chunks": (5, 5), "superchunksize": 7},
}


class Died(BaseException):
    """The end of a writer."""


def _die(run: CommitRun, *_: object, **__: object) -> None:
    run._run()
    raise Died


def _leave_journal(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let a writer die after its commit was decided, before anything of it was applied."""
    with monkeypatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", _die)
        patch.setattr(CommitRun, "abandon", lambda self: None)
        with pytest.raises(Died):
            change()


@pytest.fixture(params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "a"
    ingot.array(VALUES, path, **LAYOUTS[request.param])
    return path


def _expected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    expected = VALUES.copy()
    expected[3:17] = 0
    expected[5, 5] = -1

    def change() -> None:
        array = ingot.open(folder, "r+")
        array[...] = expected

    _leave_journal(monkeypatch, change)
    assert (folder / ".commit").exists()
    return expected


def test_a_reader_beside_a_journal_is_native(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ingot.open(folder)
    usual = before.explain()
    before[...]
    expected = _expected(folder, monkeypatch)
    for array in (before, ingot.open(folder)):
        np.testing.assert_array_equal(array[...], expected)
        assert (array[5, 5], array[4, 4], array[19, 0]) == (-1, 0, 380)
        np.testing.assert_array_equal(array[[1, 18, 5], 2:7], expected[[1, 18, 5], 2:7])
        np.testing.assert_array_equal(array.oindex[[3, 19], [5, 1]], expected[[3, 19]][:, [5, 1]])
        assert (array.explain().kernel, array.explain().reason) == (usual.kernel, usual.reason)
    ingot.open(folder, "r+").append(VALUES[:1])
    np.testing.assert_array_equal(before[:20], expected)
    assert before.shape == (21, 20)


def test_a_writer_that_applies_the_journal_meanwhile_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = ingot.open(folder)
    expected = _expected(folder, monkeypatch)
    np.testing.assert_array_equal(array[...], expected)
    journal = parse((folder / ".commit").read_bytes(), "j")
    for entry in journal.entries:
        if isinstance(entry, Written):
            with (folder / entry.key).open("r+b") as file:
                os.pwrite(file.fileno(), entry.data, entry.start)
        elif hasattr(entry, "staged"):
            os.rename(folder / entry.staged, folder / entry.key)
        else:
            os.unlink(folder / entry.key)
        np.testing.assert_array_equal(array[...], expected)
        assert array[5, 5] == -1
    LocalStore(folder, writable=True).recover()
    np.testing.assert_array_equal(array[...], expected)


def test_what_is_loaded_through_a_journal_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _expected(folder, monkeypatch)
    array = ingot.open(folder)
    array[0, 0]
    handle = array._handle._handle
    loads: list[object] = []
    load = handle._load
    monkeypatch.setattr(handle, "_load", lambda view: loads.append(view) or load(view))
    view = handle.store.view()
    assert isinstance(view, Overlay)
    for _ in range(3):
        np.testing.assert_array_equal(array[...], expected)
        assert handle.store.view() is view
    assert loads == []
    handle.store.__class__(folder, writable=True).recover()
    np.testing.assert_array_equal(array[...], expected)
    assert handle.store.view() is handle.store
    assert len(loads) == 1


def test_only_other_names_are_native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a/0", b"old"), Put("b/0", b"0123"), Put("c/0", b"x"))))
    new = b"new" * 2000
    edits = Put("a/0", new), Patch("b/0", 1, b"?"), Put("d/0", b"small")
    _leave_journal(monkeypatch, lambda: store.apply(Commit(publish=edits)))
    view = LocalStore(tmp_path).view()
    assert Feature.NATIVE in view.features
    (staged,) = (native_names(view, lambda key: key == "a/0") or {}).values()
    assert staged is not None
    assert (tmp_path / staged).read_bytes() == new
    # Their bytes are in the journal.
    assert native_names(view, lambda key: key == "b/0") is None
    assert native_names(view, lambda key: key == "d/0") is None
    assert native_names(view) is None
    assert native_names(view, lambda key: key == "c/0") == native_names(store) == {}
    found = view.read([Extent("a/0"), Extent("b/0"), Extent("d/0"), Extent("d/0", 2, 9)])
    assert found == [new, b"0?23", b"small", b"all"]
    assert (view.size("d/0"), view.identity("d/0"), list(view.names("d"))) == (5, None, ["0"])


def test_bytes_over_files_are_native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path, writable=True)
    keys = ("patched", "cut", "grown", "placed", "other")
    store.apply(Commit(publish=tuple(Put(key, b"0123456789") for key in keys)))
    edits = (
        Patch("patched", 1, b"?"),
        Patch("patched", 4, b"!!"),
        Truncate("cut", 4),
        Patch("grown", 9, b"abc"),
        Put("placed", b"new" * 2000),
    )
    _leave_journal(monkeypatch, lambda: store.apply(Commit(publish=edits)))
    view = LocalStore(tmp_path).view()
    assert native_patches(view, "patched".__eq__) == {"patched": ((1, b"?"), (4, b"!!"))}
    assert native_patches(view, "other".__eq__) == {}
    assert native_patches(store, "patched".__eq__) == {}
    for key in ("cut", "grown", "placed"):
        assert native_patches(view, key.__eq__) is None
