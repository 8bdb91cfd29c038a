"""What is proved in memory holds for the system calls of a real process, staged chunks included."""

import shutil
import subprocess
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from ingot.formats.bloscpack import array as bloscpack_array
from ingot.formats.varlen import ragged as varlen_ragged
from ingot.stores import LocalStore
from ingot.stores.store import is_staged
from ingot.testing import Disk, prove
from tests.crash.replay import LAYOUTS, record, replayed
from tests.kernels import needs_native


def _strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0
    )


pytestmark = pytest.mark.skipif(not _strace_works(), reason="needs strace, and the right to use it")

RUNS = [
    *(pytest.param(layout, "native", marks=needs_native) for layout in LAYOUTS),
    ("zarr2", "python"),
    ("bloscpack", "python"),
    ("a log", "python"),
]


@pytest.fixture(autouse=True)
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short files grow in place, as long ones do."""
    monkeypatch.setattr(bloscpack_array, "_SMALLEST_IN_PLACE", 0)
    monkeypatch.setattr(varlen_ragged, "_SMALLEST_IN_PLACE", 0)


@pytest.mark.parametrize(("layout", "kernel"), RUNS)
def test_every_crash_leaves_a_committed_state(tmp_path: Path, layout: str, kernel: str) -> None:
    steps = record(layout, kernel, tmp_path / "data")
    proof = prove(replayed(layout, steps), kills=False)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(steps) + 1))


def _may_be_left_out(disk: Disk) -> bool:
    """Return whether the sync that is the next step has nothing to do, or nothing that matters."""
    if len(disk.steps) > 1 and disk.steps[-2].startswith("unlink"):
        return True  # Nothing follows here that would mind if a removal were undone.
    if not disk.steps[-1].startswith("sync folder"):
        return False
    # Folders on the way to a chunk are synced since other processes may have made them.
    pending = disk._pending.get(disk.steps[-1].removeprefix("sync folder ").removeprefix("."), [])
    # The staged names of a document and of the journal need not last: they are renamed, and no
    # journal speaks of them.
    own = ("zarr.json", ".commit")
    names = [name for change in pending for name, _ in change]
    return all(any(is_staged(name, target) for target in own) for name in names)


@needs_native
@pytest.mark.parametrize("layout", ["zarr2", "zarr3"])
def test_no_sync_can_be_left_out(tmp_path: Path, layout: str) -> None:
    appended_and_assigned = record(layout, "native", tmp_path / "data")[:2]
    scenario = replayed(layout, appended_and_assigned)
    needless: list[bool] = []

    def watch(what: str) -> None:
        needless.append(not what.startswith("sync") or _may_be_left_out(disk))

    disk = Disk(scenario.files)
    disk.watch = watch
    for change in scenario.steps:
        change(LocalStore(disk, writable=True))
    needed = [number for number, step in enumerate(disk.steps) if not needless[number]]
    assert len(needed) >= 12
    missed = [n for n in needed if prove(scenario, kills=False, skip=n).holds]
    assert [(n, disk.steps[n]) for n in missed] == []


@needs_native
def test_no_sync_around_a_log_can_be_left_out(tmp_path: Path) -> None:
    scenario = replayed("a log", record("a log", "native", tmp_path / "data")[:4])
    disk = Disk(scenario.files)
    for change in scenario.steps:
        change(LocalStore(disk, writable=True))
    assert disk.steps.count("rename .log") == 1
    # The first step makes the name of the lock file last, which this disk does not model.
    assert disk.steps[0] == "sync folder ."
    steps = list(enumerate(disk.steps))[1:]
    tried = [n for n, step in steps if step.startswith(("sync", "name log"))]
    missed = [n for n in tried if prove(scenario, kills=False, skip=n).holds]
    assert [(n, disk.steps[n], disk.steps[n - 2 : n + 2]) for n in missed] == []


@needs_native
def test_changes_that_the_kernel_commits_need_all_of_their_syncs(tmp_path: Path) -> None:
    steps = record("blsk", "native", tmp_path / "data")[:5]
    scenario = replayed("blsk", steps)
    disk = Disk(scenario.files)
    for number, change in enumerate(scenario.steps):
        if number == 3:
            before = len(disk.steps)
        change(LocalStore(disk, writable=True))
    # An image where nothing reaches, and one word: no staged file and no journal.
    made = [step.split()[0] for step in disk.steps[before:]]
    assert made in (["write", "sync"] * 4, ["write", "truncate", "sync", "write", "sync"] * 2)
    # The first image lies in the same half of the file as its entry, and is torn with that only.
    needed = [before + at for at, step in enumerate(made) if step == "sync"][1:]
    missed = [n for n in needed if prove(scenario, kills=False, skip=n).holds]
    assert [(n, disk.steps[n]) for n in missed] == []


@needs_native
@pytest.mark.parametrize("layout", ["zarr2", "zarr3"])
def test_chunks_that_the_kernel_commits_need_all_of_their_syncs(
    tmp_path: Path, layout: str
) -> None:
    steps = record(layout, "native", tmp_path / "data")[:6]
    scenario = replayed(layout, steps)
    disk = Disk(scenario.files)
    begins = []
    for change in scenario.steps:
        begins.append(len(disk.steps))
        change(LocalStore(disk, writable=True))
    one, other, growth = (disk.steps[begin:end] for begin, end in pairwise([*begins[3:], None]))
    folder = "sync folder ." if layout == "zarr2" else "sync folder c"
    chunk = ["create", "write", "sync", "rename"]
    # The first change does not know that the folders above last.
    assert _kinds(one) == [*chunk, *([] if layout == "zarr2" else ["sync folder ."]), folder]
    assert _kinds(other) == [*chunk, folder]
    # The chunk that is filled up, then the document with the length.
    staged = ["create", "write"] * 2 + ["sync"] * 2
    assert _kinds(growth) == [*staged, "rename", folder, "rename", "sync folder ."]
    needless = [] if layout == "zarr2" else [(begins[3] + 4, "sync folder .")]
    needed = [
        number
        for number, step in enumerate(disk.steps)
        if number >= begins[3] and step.startswith("sync") and (number, step) not in needless
    ]
    missed = [n for n in needed if prove(scenario, kills=False, skip=n).holds]
    assert [(n, disk.steps[n]) for n in missed] == []


def _kinds(steps: Iterable[str]) -> list[str]:
    """Return what steps do, without the names of files."""
    return [step if step.startswith("sync folder") else step.split()[0] for step in steps]
