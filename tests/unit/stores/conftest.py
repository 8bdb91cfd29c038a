"""Fixtures for stores that touch real files."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from ingot import native
from ingot.stores.local import beneath
from tests.storage import open_files


@pytest.fixture
def _soon() -> Iterator[None]:
    """Fail instead of waiting for ever for the other end of a pipe."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 30)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def _no_leaks(tmp_path: Path) -> Iterator[None]:
    """Fail when a descriptor stays open, but for those by which stores look at lock files."""
    if not os.path.isdir("/proc/self/fd"):
        yield
        return
    before = _without_locks(open_files(tmp_path))
    yield
    assert _without_locks(open_files(tmp_path)) == before


def _without_locks(paths: list[str]) -> list[str]:
    return [path for path in paths if ".lock" not in os.path.basename(path)]


@pytest.fixture(params=["native", "kernel", "walk"])
def _resolution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with all ways of opening a key below a root; the first is only for reading."""
    if request.param == "native":
        if native.choice().name != "native":
            pytest.skip("the native kernel is not there to read small files")
        return
    monkeypatch.setattr(native, "read_pieces", lambda root, pieces: None)
    if request.param == "walk":
        monkeypatch.setattr(beneath, "_kernel_resolves", lambda: False)
    elif not beneath._kernel_resolves():
        pytest.skip("the kernel does not resolve paths below a folder")
