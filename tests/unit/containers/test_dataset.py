"""What all containers share: their path and mode in errors, closing, and the context manager."""

from pathlib import Path

import pytest

import ingot
from ingot.errors import ReadOnlyError


def made(kind: str, path: Path) -> None:
    if kind == "array":
        ingot.array([1, 2], path)
    elif kind == "table":
        ingot.table({"a": [1, 2]}, path)
    else:
        ingot.group(path).array("a", [1, 2])


KINDS = pytest.mark.parametrize("kind", ["array", "table", "group"])


@KINDS
def test_mode_r_is_refused_with_the_path(tmp_path: Path, kind: str) -> None:
    made(kind, tmp_path / "d")
    opened = ingot.open(tmp_path / "d")
    assert (opened.mode, opened.path) == ("r", str(tmp_path / "d"))
    for change in (lambda: opened.attrs.update(a=1), opened.transaction):
        with pytest.raises(ReadOnlyError) as caught:
            change()
        assert str(caught.value) == f"{tmp_path / 'd'}: opened with mode 'r', changes need 'r+'"


def test_a_part_is_named_by_its_own_path(tmp_path: Path) -> None:
    made("group", tmp_path / "g")
    made("table", tmp_path / "t")
    for whole in ("g", "t"):
        part = ingot.open(tmp_path / whole)["a"]
        with pytest.raises(ReadOnlyError, match="mode 'r'") as caught:
            part[0] = 5
        assert str(caught.value).startswith(f"{tmp_path / whole / 'a'}: ")


@KINDS
def test_a_block_closes(tmp_path: Path, kind: str) -> None:
    made(kind, tmp_path / "d")
    with ingot.open(tmp_path / "d") as opened:
        opened.flush()
    for use in (opened.flush, opened.refresh, opened.snapshot().__enter__):
        with pytest.raises(ValueError, match=f"the {kind} {tmp_path / 'd'}"):
            use()
    assert repr(opened) == f"<ingot.{kind.capitalize()}, closed>"
