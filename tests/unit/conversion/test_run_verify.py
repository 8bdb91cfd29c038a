"""What `verify=True` finds: the target is compared before it is published."""

import os
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.conversion import run
from ingot.conversion.record import PendingStore
from ingot.errors import CorruptionError, FormatError, NotFoundError
from ingot.stores import MemoryStore
from ingot.stores.store import Commit, Move, Put

# Blosc does not make them smaller: nearly every byte of a stored chunk belongs to an item.
VALUES = np.random.default_rng(3).integers(0, 2**62, 3000)
OLD = np.arange(700)
SMALL = ingot.Options(limits=ingot.Limits(window_bytes=6000))

# Targets, and what is asked of them.
TARGETS = {
    "b.zarr": {"format": "zarr3", "codec": "none", "checksum": False},
    "b1.zarr": {"format": "zarr1"},
    "b2.zarr": {"format": "zarr2", "codec": "none"},
    "shards.zarr": {
        "format": "zarr3",
        "codec": "none",
        "checksum": False,
        "chunks": 300,
        "shards": 900,
    },
    "b.bcolz": {},
    "b.blsk": {},
    "b.blp": {},
    "b.zarr.zip": {"format": "zarr3", "codec": "none", "checksum": False},
}


def flipped(data):
    changed = bytearray(data)
    # Among the items: in files of blsk an index lies before them, and free space behind them.
    changed[len(changed) * 4 // 7] ^= 1
    return bytes(changed)


def contents(folder):
    """Return the bytes of all files below a folder, but for locks."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if not path.name.endswith(".lock")}


@contextmanager
def damaging(folder):
    """Flip one bit of what a conversion has written, after its last byte and before it compares.

    Yields a list that gets the key or the file.
    """
    joined, compare = run._joined, run._ConversionRun.compare
    flips = []

    def damaged(old, made, data):
        """Flip a bit of what one commit would publish, in memory or in a staged file."""
        commit = joined(old, made, data)
        keys, sizes = {edit.key for edit in data}, {}
        for number, edit in enumerate(commit.publish):
            if edit.key in keys and isinstance(edit, Put):
                sizes[number] = len(edit.data)
            elif edit.key in keys and isinstance(edit, Move):
                sizes[number] = staged(edit).stat().st_size
        number = max(sizes, key=sizes.get)
        edit = commit.publish[number]
        flips.append(edit.key)
        if isinstance(edit, Move):
            staged(edit).write_bytes(flipped(staged(edit).read_bytes()))
            return commit
        changed = Put(edit.key, flipped(edit.data))
        publish = (*commit.publish[:number], changed, *commit.publish[number + 1 :])
        return Commit(commit.prepare, publish, commit.cleanup)

    def staged(edit):
        (file,) = folder.rglob(edit.source.rpartition("/")[2])
        return file

    def begun(self, store, *rest):
        """Flip a bit of a file of chunks, whose documents are not stored yet."""
        if not flips:
            assert isinstance(store, PendingStore)
            there = sorted(contents(store.root))
            chunks = [file for file in there if f"{os.sep}.convert{os.sep}" not in file]
            file = max(chunks, key=os.path.getsize)
            flips.append(file)
            Path(file).write_bytes(flipped(Path(file).read_bytes()))
        compare(self, store, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_joined", damaged)
        patch.setattr(run._ConversionRun, "compare", begun)
        yield flips


@pytest.fixture
def source(tmp_path):
    return ingot.array(VALUES, tmp_path / "source" / "a.bcolz", chunks=300)


def refused(source, target, **wanted):
    """Convert with damage; nothing changes, and the error names the chunk and both sides."""
    folder = target.parent.parent
    before = contents(folder)
    with damaging(folder) as flips, pytest.raises(CorruptionError) as caught:
        ingot.convert(source, target, verify=True, options=SMALL, **wanted)
    assert len(flips) == 1
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert contents(folder) == before
    return text


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_differs_never_opens(kernel, source, tmp_path, name):
    target, wanted = tmp_path / "new" / name, TARGETS[name]
    target.parent.mkdir()
    text = refused(source, target, **wanted)
    assert re.search(r"chunk \(\d,\)", text)
    assert str(target) in text
    if wanted.get("codec") == "none":  # Without checksums, only the comparison finds it.
        assert re.search(r"items of chunk \(\d,\)", text)
        assert source.path in text
    with pytest.raises(NotFoundError):
        ingot.open(target)
    made = ingot.convert(source, target, verify=True, options=SMALL, **wanted)
    assert np.array_equal(made[...], VALUES)


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_target_would_replace_is_kept(kernel, source, tmp_path, name):
    target, wanted = tmp_path / "new" / name, {"overwrite": True, **TARGETS[name]}
    target.parent.mkdir()
    ingot.convert(ingot.array(OLD, chunks=100), target, **wanted)
    refused(source, target, **wanted)
    assert np.array_equal(ingot.open(target)[...], OLD)
    made = ingot.convert(source, target, verify=True, options=SMALL, **wanted)
    assert np.array_equal(made[...], VALUES)


def test_a_target_that_files_of_the_old_one_block(kernel, source, tmp_path):
    """Such a target is written beside the old one, which it replaces by two renames."""
    target = tmp_path / "new" / "b"
    target.parent.mkdir()
    ingot.array(OLD, target, format="zarr1", chunks=100)
    text = refused(source, target, format="bcolz", overwrite=True)
    assert re.search(r"chunk \(\d,\)", text)
    assert np.array_equal(ingot.open(target)[...], OLD)
    assert [path.name for path in target.parent.iterdir()] == ["b"]


def _group(path):
    root = ingot.group(path, format="zarr3", attrs={"title": "ours"})
    root.array("deep/x", VALUES, chunks=300)
    root.array("y", VALUES[:50])
    return root


def _table(path):
    return ingot.table({"a": VALUES, "b": np.arange(3000) % 7}, path)


def _items(path):
    return ingot.ragged([b"%d" % each for each in VALUES.tolist()], path)


RAW = {"format": "zarr3", "codec": "none", "checksum": False}

# A source, a target, what is asked of it, and what it replaces.
KINDS = {
    "group": (_group, "a.zarr", "b.zarr", RAW, lambda path: ingot.group(path, attrs={"old": 1})),
    "bcolz": (_table, "a.bcolz", "b.bcolz", {}, lambda path: ingot.table({"old": OLD}, path)),
    "blsk": (_table, "a.bcolz", "b.blsk", {}, lambda path: ingot.array(OLD, path)),
    "items": (_items, "a.blv", "b.blv", {}, lambda path: ingot.ragged([b"old"], path)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_groups_tables_and_items(kernel, tmp_path, kind, there):
    make, own, name, wanted, make_old = KINDS[kind]
    source, target = make(tmp_path / own), tmp_path / "new" / name
    target.parent.mkdir()
    if there:
        make_old(target)
        wanted = {**wanted, "overwrite": True}
    text = refused(source, target, **wanted)
    assert str(target) in text
    if not there:
        with pytest.raises(NotFoundError):
            ingot.open(target)
    made = ingot.convert(source, target, verify=True, **wanted)
    assert made.conversion.verified


class Stop(BaseException):
    """What ends a conversion in these tests."""


def test_a_comparison_that_is_interrupted_is_done_again(kernel, source, tmp_path):
    target = tmp_path / "b.zarr"

    def stop(done, total):
        if done > total * 3 // 4:
            raise Stop

    with pytest.raises(Stop):
        ingot.convert(source, target, progress=stop, verify=True, options=SMALL)
    with pytest.raises(FormatError, match="unfinished conversion"):
        ingot.open(target)
    files = {path: path.stat().st_mtime_ns for path in (target / "c").rglob("*") if path.is_file()}
    assert files
    with damaging(tmp_path), pytest.raises(CorruptionError):
        ingot.convert(source, target, verify=True, options=SMALL)
    with pytest.raises(NotFoundError):
        ingot.open(target)
    with pytest.raises(Stop):
        ingot.convert(source, target, progress=stop, verify=True, options=SMALL)
    made = ingot.convert(source, target, verify=True, options=SMALL)
    assert np.array_equal(made[...], VALUES)


def test_a_target_in_memory_is_compared_first(source, tmp_path):
    store = MemoryStore()
    with damaging(tmp_path), pytest.raises(CorruptionError, match=r"items of chunk \(\d,\)"):
        ingot.convert(source, store, verify=True, **RAW)
    assert list(store.names()) == []
    made = ingot.convert(source, store, verify=True, **RAW)
    assert np.array_equal(made[...], VALUES)
