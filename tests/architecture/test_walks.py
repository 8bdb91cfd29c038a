"""The page of the walks is true: the steps happen in that order, in these files and no others."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from tests.architecture.source import PACKAGE, ROOT

PART = slice(12, 15), slice(3, 5)
"""A part of one chunk."""

TITLES = ["Reading", "Writing", "A change inside one chunk", "Opening"]

PAGE = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")


pytestmark = pytest.mark.skipif(
    native.choice().name != "native", reason="the walks are those of the native kernel"
)


class Walk:
    """The calls of functions of the package, in their order, each with its caller's file."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.calls: list[tuple[str, str]] = []
        self.callers: list[str | None] = []
        sys.setprofile(self._record)
        try:
            action()
        finally:
            sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, argument: Any) -> None:
        file = _file(frame)
        if event == "call" and file is not None:
            self.calls.append((file, frame.f_code.co_qualname))
            self.callers.append(None if frame.f_back is None else _file(frame.f_back))

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.calls}


def _file(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def section(title: str) -> str:
    [found] = [part for part in PAGE.split("\n## ") if part.startswith(title)]
    return found


def steps(title: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| `([^`]+\.py)` \| `([^`]+)` \|", section(title), re.MULTILINE)


def is_in_order(expected: list[tuple[str, str]], calls: list[tuple[str, str]]) -> bool:
    remaining = iter(calls)
    return all(any(call == step for call in remaining) for step in expected)


@pytest.fixture
def array(tmp_path: Path) -> ingot.Array:
    values = np.arange(10_000.0).reshape(100, 100)
    ingot.array(values, tmp_path / "a", chunks=(10, 10))
    found = ingot.open(tmp_path / "a", "r+")
    assert isinstance(found, ingot.Array)
    # What is loaded and prepared by the first call is not part of the walk.
    assert found[10:20, ::3].shape == (10, 34)
    found[12:17] = 1.0
    found[PART] = 1.5
    return found


def walks(array: ingot.Array) -> dict[str, Walk]:
    return {
        "Reading": Walk(lambda: array[10:20, ::3]),
        "Writing": Walk(lambda: array.__setitem__(slice(12, 17), 2.0)),
        "A change inside one chunk": Walk(lambda: array.__setitem__(PART, 2.0)),
        "Opening": Walk(lambda: ingot.open(os.fspath(array.path or ""))),
    }


@pytest.mark.parametrize("title", TITLES)
def test_the_steps_happen_in_this_order(array: ingot.Array, title: str) -> None:
    walk = walks(array)[title]
    assert steps(title)
    assert is_in_order(steps(title), walk.calls)


@pytest.mark.parametrize("title", TITLES)
def test_no_other_file_takes_part(array: ingot.Array, title: str) -> None:
    named = set(re.findall(r"`([^`]+\.py)`", section(title)))
    assert walks(array)[title].files == named


def test_the_read_walk_is_short(array: ingot.Array) -> None:
    assert len(walks(array)["Reading"].calls) <= 12


@pytest.mark.parametrize("title", ["Writing", "A change inside one chunk"])
def test_a_write_walk_goes_down_once(array: ingot.Array, title: str) -> None:
    walk = walks(array)[title]
    back_up = [
        (caller, call)
        for caller, call in zip(walk.callers, walk.calls, strict=True)
        if caller is not None
        and caller.startswith(("stores/", "formats/", "engine/"))
        and call[0].startswith(("containers/", "api"))
    ]
    assert back_up == []


def test_the_order_is_really_compared() -> None:
    calls = [("a.py", "f"), ("b.py", "g")]
    assert is_in_order(calls, calls)
    assert not is_in_order(calls[::-1], calls)
    assert not is_in_order([("c.py", "h")], calls)
