"""Conversions that are interrupted: the record in the target, and how it is continued."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ingot
from ingot.conversion.record import (
    PendingStore,
    Progression,
    folder_state,
    is_stored,
    read_progression,
    read_windows,
)
from ingot.errors import CorruptionError, ExistsError, FormatError, IngotError
from ingot.stores import Extent, LocalStore

VALUES = np.arange(40_000, dtype="<i4").reshape(200, 200)
SMALL = ingot.Options(limits=ingot.Limits(window_bytes=20_000))


class Stop(BaseException):
    """What ends a conversion in these tests."""


def interrupted(source, target, after, **arguments):
    """Convert until some windows were reported, and stop there."""
    calls = 0

    def stop(done, total):
        nonlocal calls
        calls += 1
        if calls == after:
            raise Stop

    with pytest.raises(Stop):
        ingot.convert(source, target, progress=stop, options=SMALL, **arguments)


@pytest.fixture
def source(tmp_path):
    return ingot.array(VALUES, tmp_path / "a.zarr", chunks=(10, 200), attrs={"n": 1})


LAYOUTS = {
    "cut anew": {"format": "zarr3", "chunks": (30, 30)},
    "untouched": {"format": "zarr2"},
    "rows": {"format": "bcolz", "codec": "blosc:zstd:3:shuffle"},
    "shards": {"format": "zarr3", "shards": (40, 200)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_continued(kernel, source, tmp_path, layout):
    target = tmp_path / "b"
    interrupted(source, target, 5, **LAYOUTS[layout])
    with pytest.raises(FormatError, match="unfinished conversion"):
        ingot.open(target)
    store = LocalStore(target)
    assert read_progression(store).source == str(tmp_path / "a.zarr")
    before = [files for _, _, files in read_windows(store)]
    assert before
    kept = {key: os.stat(target / key) for files in before for key, _, _ in files}
    made = ingot.convert(source, target, options=SMALL, verify=True, **LAYOUTS[layout])
    assert np.array_equal(made[...], VALUES)
    assert dict(made.attrs) == {"n": 1}
    for key, facts in kept.items():
        assert os.path.samestat(os.stat(target / key), facts)
        assert os.stat(target / key).st_mtime_ns == facts.st_mtime_ns
    assert not (target / ".convert").exists()
    assert np.array_equal(ingot.open(target)[...], VALUES)


def test_what_is_damaged_is_stored_again(source, tmp_path):
    target = tmp_path / "b"
    interrupted(source, target, 8, **LAYOUTS["cut anew"])
    windows = [files for _, _, files in read_windows(LocalStore(target)) if files]
    (changed, *_), (gone, *_) = windows[0], windows[1]
    data = bytearray((target / changed[0]).read_bytes())
    data[-1] ^= 1
    (target / changed[0]).write_bytes(data)
    (target / gone[0]).unlink()
    assert not is_stored(LocalStore(target), [changed])
    assert not is_stored(LocalStore(target), [gone])
    made = ingot.convert(source, target, options=SMALL, verify=True, **LAYOUTS["cut anew"])
    assert np.array_equal(made[...], VALUES)


def test_another_source_or_layout_is_refused(source, tmp_path):
    target = tmp_path / "b"
    interrupted(source, target, 5, **LAYOUTS["cut anew"])
    with pytest.raises(ExistsError, match="unfinished"):
        ingot.convert(source, target, options=SMALL, **LAYOUTS["untouched"])
    time.sleep(0.02)
    source[0, 0] = -1
    with pytest.raises(ExistsError, match="unfinished"):
        ingot.convert(source, target, options=SMALL, **LAYOUTS["cut anew"])
    made = ingot.convert(source, target, overwrite=True, verify=True, **LAYOUTS["untouched"])
    assert made[0, 0] == -1
    assert not list(target.rglob("c"))


def test_a_group_and_a_table_are_continued(tmp_path):
    root = ingot.group(tmp_path / "g.zarr", attrs={"title": "ours"})
    root.array("x", VALUES, chunks=(10, 200))
    root.array("deep/y", VALUES[0])
    interrupted(root, tmp_path / "h.zarr", 5, chunks=50)
    made = ingot.convert(root, tmp_path / "h.zarr", options=SMALL, chunks=50, verify=True)
    assert dict(made.attrs) == {"title": "ours"}
    assert np.array_equal(made["x"][...], VALUES)
    columns = {"a": np.arange(9000), "in": {"b": np.linspace(0, 1, 9000)}}
    table = ingot.table(columns, tmp_path / "t.bcolz", chunks=300)
    interrupted(table, tmp_path / "u.bcolz", 4, chunks=500)
    with pytest.raises(IngotError):
        ingot.open(tmp_path / "u.bcolz")
    again = ingot.convert(table, tmp_path / "u.bcolz", options=SMALL, chunks=500, verify=True)
    assert np.array_equal(again["in.b"][:], columns["in"]["b"])


def test_damage_leaves_nothing(kernel, source, tmp_path):
    file = tmp_path / "a.zarr" / "c" / "15" / "0"
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)
    for layout in LAYOUTS.values():
        with pytest.raises(CorruptionError):
            ingot.convert(source, tmp_path / "b", options=SMALL, **layout)
        assert not (tmp_path / "b").exists()


PROGRAM = """
import sys, ingot
options = ingot.Options(limits=ingot.Limits(window_bytes=20_000))
print("ready", flush=True)
ingot.convert(sys.argv[1], sys.argv[2], chunks=(13, 17), options=options)
"""


def test_a_child_that_is_killed_at_any_point(source, tmp_path):
    """Whatever it has left, the target is absent or whole, and the same call makes it whole."""
    target = tmp_path / "b.zarr"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    chance, killed = random.Random(7), 0
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "a.zarr"), str(target)],
            env=environment,
            stdout=subprocess.PIPE,
        )
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0, 0.25))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        try:
            found = ingot.open(target)
        except IngotError:
            killed += 1
            continue
        assert np.array_equal(found[...], VALUES)
        break
    if killed == 6:
        ingot.convert(source, target, chunks=(13, 17), options=SMALL)
    assert np.array_equal(ingot.open(target)[...], VALUES)
    assert not (target / ".convert").exists()


def test_a_record_that_is_none():
    for data in (b"", b"{", b"[]", b'{"version": 1}', b'{"version": 2, "documents": {"a": "?"}}'):
        with pytest.raises(FormatError):
            Progression.parse(data)


def test_the_store_of_a_pending_target(tmp_path):
    (tmp_path / "data").write_bytes(b"stored")
    store = PendingStore(str(tmp_path), {"zarr.json": b"0123"})
    found = store.read(
        [Extent("zarr.json", 1, 2), Extent("data"), Extent("zarr.json"), Extent("x")]
    )
    assert found == [b"12", b"stored", b"0123", None]
    assert (store.size("zarr.json"), store.size("data"), store.size("x")) == (4, 6, None)


def test_the_state_of_a_folder(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    first = folder_state(str(tmp_path), 1)
    assert folder_state(str(tmp_path), 1) == first != folder_state(str(tmp_path), 2)
    alone = folder_state(str(tmp_path / "a"), 1)
    (tmp_path / "a").write_bytes(b"12")
    assert folder_state(str(tmp_path), 1) != first
    assert folder_state(str(tmp_path / "a"), 1) != alone
