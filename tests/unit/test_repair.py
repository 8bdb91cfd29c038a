"""`ingot.repair` mends what a check finds, keeps the old bytes, and does nothing twice."""

import contextlib
import errno
import importlib
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.check import KEPT_ASIDE
from ingot.codecs.checksums import crc32c
from ingot.errors import NotFoundError, ReadOnlyError
from ingot.stores import Commit, Delete, Extent, LocalStore, MemoryStore, Put, ZipStore
from tests.counted_kills import killed_at, steps_of

NUMBERS = np.arange(1000)

# `ingot.repair` is a function, and the module of that name as well.
repairs = importlib.import_module("ingot.repair")


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def repaired(path, **named):
    """Repair a dataset twice; the second time nothing changes."""
    report = ingot.repair(path, **named)
    if isinstance(path, os.PathLike):
        before = contents(path.parent)
        again = ingot.repair(path, **named)
        assert contents(path.parent) == before
        assert again.done == ()
        assert again.backup is None
    return report


def test_a_sound_dataset_is_not_touched(tmp_path):
    ingot.array(NUMBERS, tmp_path / "a.zarr", chunks=300)
    before = contents(tmp_path)
    report = ingot.repair(tmp_path / "a.zarr", drop=True)
    assert report.ok
    assert report.done == ()
    assert report.backup is None
    assert contents(tmp_path) == before


def test_nothing_to_repair_is_an_error(tmp_path):
    with pytest.raises(NotFoundError):
        ingot.repair(tmp_path / "absent")


@pytest.mark.parametrize("format", ["zarr3", "bcolz", "blsk"])
def test_bad_chunks_become_fill_only_with_drop(tmp_path, format):
    path = tmp_path / "a"
    layout = {"superchunksize": 4} if format == "blsk" else {}
    ingot.array(NUMBERS, path, format=format, chunks=300, fill=7, **layout)
    files = {"zarr3": "c/1", "bcolz": "data/__1.blp", "blsk": "data/__1__.bin"}
    place = (path / files[format]).stat().st_size // 2
    flip(path / files[format], place)
    damaged = contents(path)
    report = ingot.repair(path)
    assert not report.ok
    assert report.done == ()
    assert contents(path) == damaged
    report = repaired(path, drop=True)
    assert report.ok
    (done,) = report.done
    start = done.chunk[0] * 300
    due = NUMBERS.copy()
    due[start : start + 300] = 7
    assert np.array_equal(ingot.open(path)[...], due)
    assert contents(report.backup)[files[format]] == damaged[files[format]]


def test_a_chunk_of_a_bloscpack_file_is_replaced(tmp_path):
    path = tmp_path / "a.blp"
    ingot.array(NUMBERS, path, chunks="1K")
    flip(path, path.stat().st_size // 2)
    old = path.read_bytes()
    report = repaired(path, drop=True)
    assert report.ok
    (done,) = report.done
    due = NUMBERS.copy()
    due[done.chunk[0] * 128 : done.chunk[0] * 128 + 128] = 0
    assert np.array_equal(ingot.open(path)[...], due)
    assert contents(report.backup) == {"a.blp": old}


def test_items_that_cannot_be_read_become_nulls(tmp_path):
    path = tmp_path / "a.blv"
    ingot.ragged([b"abc" * 100, b"", b"x"], path, packed=False)
    flip(path, -2)
    assert not ingot.repair(path).ok
    assert repaired(path, drop=True).ok
    assert list(ingot.open(path)) == [b"abc" * 100, b"", None]


def shuffled_shard(file, count, chance):
    """Return a shard with the same chunks in another order, as writers may store them."""
    data = file.read_bytes()
    index = np.frombuffer(data[-16 * count - 4 : -4], "<u8").reshape(-1, 2).copy()
    present = [n for n in range(count) if index[n, 0] != 2**64 - 1]
    body = b""
    for n in chance.permutation(present):
        start, length = map(int, index[n])
        index[n, 0] = len(body)
        body += data[start : start + length]
    packed = index.tobytes()
    return body + packed + crc32c(packed).to_bytes(4, "little")


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("place", range(0, 6 * 16 + 4, 5))
def test_the_index_of_a_shard_is_rebuilt_by_a_walk(tmp_path, location, place):
    """Whatever byte of the index is changed, and whichever chunks are absent."""
    path = tmp_path / "a.zarr"
    values = np.arange(36).reshape(6, 6) * 1000 + 7
    values[0:2, 2:4] = 0
    array = ingot.array(values, path, chunks=(2, 2), shards=(4, 6))
    if location == "start":
        document = path / "zarr.json"
        text = document.read_text().replace('"index_location": "end"', '"index_location": "start"')
        document.write_text(text)
        array = ingot.open(path, "r+")
        array[...] = values
    file = path / "c" / "0" / "0"
    whole = file.read_bytes()
    flip(file, place if location == "start" else place - (6 * 16 + 4))
    assert not ingot.check(path).ok
    report = repaired(path)
    assert report.ok
    (done,) = report.done
    assert (done.kind, done.lost) == ("index", "")
    assert file.read_bytes() == whole
    assert np.array_equal(ingot.open(path)[...], values)


@pytest.mark.parametrize("mixed", [False, True], ids=["in order", "in any order"])
@pytest.mark.parametrize(
    "damage",
    [
        {0: b"\0" * 160},
        {16: b"\xff" * 64, 96: b"\0" * 16},
        {8: b"\0" * 8, 24: b"\0" * 8, 88: b"?"},
        {32: b"\0" * 48, 159: b"?"},
    ],
    ids=["all", "six", "lengths", "an absent one"],
)
def test_several_entries_of_an_index_are_rebuilt(tmp_path, damage, mixed):
    """By the checksum of the index, which stays whole: it tells which chunk is which."""
    path = tmp_path / "a.zarr"
    values = NUMBERS[:100].copy()
    values[30:50] = 0  # Two chunks are absent.
    ingot.array(values, path, chunks=10, shards=100)
    file = path / "c/0"
    if mixed:
        file.write_bytes(shuffled_shard(file, 10, np.random.default_rng(3)))
        assert np.array_equal(ingot.open(path)[...], values)
    whole = bytearray(file.read_bytes())
    begin = len(whole) - 164
    torn = whole.copy()
    for place, data in damage.items():
        torn[begin + place : begin + place + len(data)] = data
    file.write_bytes(torn)
    assert not ingot.check(path).ok
    if mixed and len(damage) == 1:
        # Eight chunks at ten places: too many ways to try.
        assert not ingot.repair(path).ok
        assert file.read_bytes() == bytes(torn)
        return
    report = repaired(path)
    assert report.ok, str(report)
    assert file.read_bytes() == bytes(whole)
    assert np.array_equal(ingot.open(path)[...], values)


def test_an_index_is_not_rebuilt_by_guessing(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(NUMBERS[:100], path, chunks=10, shards=100)
    file = path / "c/0"
    torn = bytearray(file.read_bytes())
    torn[-164:] = bytes(164)
    file.write_bytes(torn)
    report = ingot.repair(path)
    assert not report.ok
    assert file.read_bytes() == bytes(torn)


def test_drop_keeps_chunks_that_a_limit_refuses(tmp_path):
    ingot.array(NUMBERS, tmp_path / "a.zarr", chunks=500)
    before = contents(tmp_path)
    low = ingot.Options(limits=ingot.Limits(chunk_bytes=100))
    report = ingot.repair(tmp_path / "a.zarr", drop=True, backup=False, options=low)
    assert contents(tmp_path) == before
    assert report.done == ()
    assert not report.ok
    assert [(each.chunk, each.lost, each.repair) for each in report.findings] == [
        ((0,), "", ""),
        ((1,), "", ""),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files without permission")
@pytest.mark.parametrize("name", ["a.zarr/c/1", "a.zarr/zarr.json"])
def test_drop_keeps_what_may_not_be_read(tmp_path, name):
    ingot.array(NUMBERS, tmp_path / "a.zarr", chunks=500)
    before = contents(tmp_path)
    (tmp_path / name).chmod(0)
    report = ingot.repair(tmp_path / "a.zarr", drop=True, backup=False)
    (tmp_path / name).chmod(0o644)
    assert contents(tmp_path) == before
    assert report.done == ()
    assert [each.lost for each in report.errors] == [""]


def test_a_dataset_that_cannot_be_repaired_does_not_stop_the_others(tmp_path, monkeypatch):
    for name in ("a.bcolz", "b.bcolz"):
        ingot.array(NUMBERS, tmp_path / name, chunks=500)
        (tmp_path / name / "meta/sizes").unlink()
    whole = repairs.resolve_store

    def refuse(path, *rest, **named):
        if os.fspath(path).endswith("a.bcolz"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return whole(path, *rest, **named)

    monkeypatch.setattr(repairs, "resolve_store", refuse)
    report = ingot.repair(tmp_path)
    assert len(ingot.open(tmp_path / "b.bcolz")) == len(NUMBERS)
    (warning,) = report.warnings
    assert warning.dataset == str(tmp_path / "a.bcolz")
    assert "not repaired" in warning.problem
    assert "Permission denied" in warning.problem
    with pytest.raises(PermissionError):
        ingot.repair(tmp_path / "a.bcolz")


def test_a_shard_without_its_index_is_dropped_as_a_whole(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(NUMBERS, path, chunks=10, shards=100)
    for place in (-3, -20, -36):  # Two offsets and the checksum: which chunk is which is unknown.
        flip(path / "c/2", place)
    assert repaired(path, drop=True).ok
    due = NUMBERS.copy()
    due[200:300] = 0
    assert np.array_equal(ingot.open(path)[...], due)


def test_the_column_of_a_table_is_mended(tmp_path):
    path = tmp_path / "t.bcolz"
    ingot.table({"a": NUMBERS, "b": NUMBERS * 2.0}, path, chunks=300)
    flip(path / "b/data/__1.blp", 60)
    os.remove(path / "a/data/__0.blp")
    assert repaired(path, drop=True).ok
    table = ingot.open(path)
    assert not table["a"][:300].any()
    assert np.array_equal(table["a"][300:], NUMBERS[300:])
    assert not table["b"][300:600].any()


def test_consolidated_metadata_that_differ_are_made_anew(tmp_path):
    path = tmp_path / "g.zarr"
    group = ingot.group(path)
    group.array("x", NUMBERS, attrs={"a": 1})
    group.consolidate()
    document = path / "x/zarr.json"
    document.write_bytes(document.read_bytes().replace(b'"a": 1', b'"a": 2'))
    report = ingot.check(path)
    assert [each.kind for each in report.warnings] == ["consolidated"]
    report = repaired(path)
    assert [each.kind for each in report.done] == ["consolidated"]
    assert not ingot.check(path).findings
    assert b'"a": 1' in contents(report.backup)["zarr.json"]


def test_a_damaged_journal_is_set_aside(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(NUMBERS, path, chunks=300)
    (path / ".commit").write_bytes(b"no journal")
    report = repaired(path)
    assert report.ok
    assert contents(report.backup) == {".commit": b"no journal"}
    assert np.array_equal(ingot.open(path)[...], NUMBERS)


def test_staged_files_of_the_dead_are_removed(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(NUMBERS, path, chunks=300)
    (path / "c/.g-2f81-0").write_bytes(b"?")
    report = repaired(path)
    assert [each.kind for each in report.done] == ["staged"]
    assert not (path / "c/.g-2f81-0").exists()


def test_without_backup_nothing_is_kept(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(NUMBERS, path, chunks=300)
    flip(path / "c/1", 30)
    report = ingot.repair(path, drop=True, backup=False)
    assert report.backup is None
    assert [each.name for each in tmp_path.iterdir()] == ["a.zarr"]


def test_a_second_backup_gets_another_name(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(NUMBERS, path, chunks=300)
    names = []
    for number in (1, 2):
        flip(path / f"c/{number}", 30)
        names.append(os.path.basename(ingot.repair(path, drop=True).backup))
    assert names == ["a.zarr.before-repair", "a.zarr.before-repair-2"]
    assert ingot.check(tmp_path).datasets == 1


def test_a_folder_of_datasets_is_mended(tmp_path):
    for name in ("a", "b", "c"):
        ingot.array(NUMBERS, tmp_path / f"{name}.bcolz", chunks=300)
    os.remove(tmp_path / "a.bcolz/meta/sizes")
    os.remove(tmp_path / "c.bcolz/meta/sizes")
    untouched = contents(tmp_path / "b.bcolz")
    report = ingot.repair(tmp_path)
    assert report.ok
    assert len(report.done) == 2
    assert contents(tmp_path / "b.bcolz") == untouched


def test_old_bytes_of_a_store_are_kept_under_keys():
    store = MemoryStore()
    ingot.array(NUMBERS, store, chunks=300)
    store.apply(Commit(publish=(Put("c/1", b"?"),)))
    report = ingot.repair(store, drop=True)
    assert report.ok
    assert store.read([Extent(f"{report.backup}/c/1")]) == [b"?"]
    assert ingot.repair(store, drop=True).done == ()


def test_an_archive_is_kept_as_a_whole(tmp_path):
    store = ZipStore(tmp_path / "a.zip", writable=True)
    ingot.array(NUMBERS, store, format="bcolz", chunks=300)
    store.apply(Commit(publish=(Delete("meta/sizes"),)))
    old = (tmp_path / "a.zip").read_bytes()
    report = repaired(tmp_path / "a.zip")
    assert report.ok
    assert contents(report.backup) == {"a.zip": old}


def test_a_store_that_is_read_only_is_refused(tmp_path):
    ingot.array(NUMBERS, tmp_path / "a.bcolz", chunks=300)
    os.remove(tmp_path / "a.bcolz/meta/sizes")
    with pytest.raises(ReadOnlyError):
        ingot.repair(LocalStore(tmp_path / "a.bcolz"))


def test_an_interrupted_repair_is_continued(tmp_path, monkeypatch):
    class Interrupted(BaseException):
        pass

    columns = dict.fromkeys("abc", NUMBERS)
    for stop in range(1, 7):
        path = tmp_path / f"t{stop}.bcolz"
        ingot.table(columns, path, chunks=300)
        for name in "abc":
            os.remove(path / name / "meta/sizes")
        os.remove(path / "__rootdirs__")
        calls = []
        original = LocalStore.writing

        def writing(self, *args, calls=calls, stop=stop, original=original, **named):
            calls.append(1)
            if len(calls) == stop:
                raise Interrupted
            return original(self, *args, **named)

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "writing", writing)
            with contextlib.suppress(Interrupted):
                ingot.repair(path)
        assert ingot.repair(path).ok
        table = ingot.open(path)
        assert table.names == ("a", "b", "c")
        assert all(np.array_equal(table[name][...], NUMBERS) for name in "abc")


def _torn_table(path):
    columns = {name: np.arange(2000) * number for number, name in enumerate("abc", 1)}
    ingot.table(columns, path, format="bcolz", chunks=300)
    for name in "abc":
        os.remove(path / name / "meta/sizes")
    os.remove(path / "__rootdirs__")
    flip(path / "b" / "data" / "__2.blp", 40)


def _torn_manifest(path):
    group = ingot.group(path)
    for name in "abc":
        group.array(name, np.arange(2000), chunks=300, manifest=True)
        os.remove(path / name / ".manifest")
        flip(path / name / "c" / "2", 40)
    group.consolidate()
    del group["c"]


def _torn_items(path):
    path.mkdir()
    for number in range(4):
        ingot.ragged([b"a" * n for n in range(900)], path / f"{number}.blv", pack_bytes=2000)
        file = path / f"{number}.blv"
        file.write_bytes(file.read_bytes()[:-number] if number else file.read_bytes())
        flip(file, 5000)


def _torn_super_chunks(path):
    ingot.table({"a": np.arange(4000), "b": np.arange(4000) / 2}, path, format="blsk", chunks=300)
    for file in path.rglob("*.bin"):
        flip(file, file.stat().st_size // 3)  # An entry of the index that no chunk has.
        flip(file, file.stat().st_size - 2000)


def _torn_single_file(path):
    path.mkdir()
    for number in range(4):
        file = path / f"{number}.blp"
        ingot.array(np.arange(4000), file, chunks=300)
        flip(file, 3000)
        flip(file, 6000)


TORN = [_torn_table, _torn_manifest, _torn_items, _torn_super_chunks, _torn_single_file]


def _files(folder):
    """Return the bytes of all files below a folder, but for locks."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            key = os.path.relpath(os.path.join(place, name), folder)
            if not name.endswith(".lock") and KEPT_ASIDE not in key:
                found[key] = Path(place, name).read_bytes()
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the child is forked")
@pytest.mark.parametrize("tear", TORN, ids=lambda tear: tear.__name__.removeprefix("_torn_"))
def test_a_repair_that_is_killed_anywhere_is_continued(tmp_path, tear):
    def repair(path):
        return ingot.repair(path, drop=True, options=ingot.Options(threads=1))

    torn = tmp_path / "torn"
    tear(torn)
    before = _files(torn)
    for whole in (tmp_path / "first", tmp_path / "whole"):  # The first time, modules are loaded.
        shutil.copytree(torn, whole)
        report = repair(whole)
    assert report.done
    assert report.ok, report
    due, chance = _files(whole), random.Random(tear.__name__)
    changed = {key for key in before if before[key] != due.get(key)}
    assert changed
    counted = tmp_path / "counted" / "torn"
    shutil.copytree(torn, counted)
    steps = steps_of(lambda: repair(counted))
    assert _files(counted) == due
    shutil.rmtree(counted.parent)
    assert steps > 6
    # One kill before anything has changed, and one in each fifth of the repair.
    kills = [1, *(chance.randint(steps * n // 5 + 1, steps * (n + 1) // 5) for n in range(5))]
    for number, step in enumerate(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "torn"
        shutil.copytree(torn, path)
        assert killed_at(lambda path=path: repair(path), step), (step, steps)
        if step == 1:
            assert _files(path) == before
        assert ingot.repair(path, drop=True).ok
        assert _files(path) == due
        kept = [_files(each) for each in folder.rglob("*.before-repair*") if each.is_dir()]
        every = [data for one in kept for data in one.values()]
        assert all(before[key] in every for key in changed), (step, changed)
        assert ingot.repair(path, drop=True).done == ()
        shutil.rmtree(folder)


def test_an_entry_of_an_index_that_no_chunk_has_is_cleared(tmp_path):
    path = tmp_path / "a.blsk"
    array = ingot.array(NUMBERS, path, chunks=300)
    (file,) = path.rglob("*.bin")
    flip(file, 16 + 8 * 100)
    finding, *others = ingot.check(path).errors
    assert finding.kind == "index"
    # Without the native kernel no chunk is read by an index that is wrong somewhere.
    assert {each.kind for each in others} <= {"chunk"}
    report = repaired(path)
    assert report.ok
    assert not any(each.lost for each in report.done)
    assert np.array_equal(array[...], NUMBERS)
