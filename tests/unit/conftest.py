"""Fixtures for the tests of containers: every place, every kernel."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from ingot import native
from ingot.stores import MemoryStore
from ingot.stores.local import lock
from ingot.stores.local.store import LocalTurn
from tests.kernels import needs_native
from tests.storage import Place, use_kernel


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test on both kernels."""
    use_kernel(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def _steps_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the steps of commits in Python, where a test can replace a system call."""

    def not_here(*arguments: object) -> None:
        return None

    monkeypatch.setattr(native, "begin_turn", not_here)
    monkeypatch.setattr(native, "run_steps", not_here)
    # Without it the kernel makes no commit by itself.
    monkeypatch.setattr(lock, "_dataset", not_here)


@pytest.fixture(params=["memory", "local"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path, kernel: str) -> Callable[[], Place]:
    """Run the test in memory and on disk, on both kernels: each call gives an empty place."""
    numbers = count()
    return MemoryStore if request.param == "memory" else lambda: tmp_path / str(next(numbers))


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """Run the test in memory and on disk, on both kernels, at one empty place."""
    return new_place()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[LocalTurn]:
    """The turns to write that are taken: the kernel takes none of Python's."""
    taken: list[LocalTurn] = []
    enter = LocalTurn.__enter__

    def note(turn: LocalTurn) -> LocalTurn:
        taken.append(turn)
        return enter(turn)

    monkeypatch.setattr(LocalTurn, "__enter__", note)
    return taken
