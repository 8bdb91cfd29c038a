"""Variable-length items are converted between all formats that hold them."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot

WORDS = ["Bergen", None, "", "Å" * 9] * 40
KINDS: dict[str, list[Any]] = {
    "utf8": WORDS,
    "bytes": [None if word is None else word.encode() for word in WORDS],
    "json": [None if word is None else {"word": word} for word in WORDS],
    "<i4": [[1, -2], None, [], [3]] * 40,
}
PAIRS = list(permutations(["varlen", "bcolz", "blsk"], 2))


def plain(items: Any) -> list[Any]:
    """Return items as Python objects; a row of numbers as a list."""
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("kind", KINDS)
def test_lone_items(tmp_path: Path, kind: str, source: str, target: str) -> None:
    attrs = {"unit": "m"}
    ingot.ragged(KINDS[kind], tmp_path / "a", kind=kind, format=source, attrs=attrs)
    made = ingot.convert(tmp_path / "a", tmp_path / "b", format=target, verify=True)
    found: Any = ingot.open(tmp_path / "b")
    assert made.format == found.format == target
    assert plain(found) == KINDS[kind]
    assert dict(found.attrs) == attrs


@pytest.mark.parametrize(("source", "target"), [("bcolz", "blsk"), ("blsk", "bcolz")])
def test_columns(tmp_path: Path, source: str, target: str) -> None:
    items = {kind.strip("<"): ingot.ragged(each, kind=kind) for kind, each in KINDS.items()}
    numbers = np.ma.MaskedArray(np.arange(160), np.arange(160) % 3 == 1)
    columns = {"n": numbers, "in": items}
    ingot.table(columns, tmp_path / "a", format=source, chunks=33)
    ingot.convert(tmp_path / "a", tmp_path / "b", format=target, verify=True)
    found: Any = ingot.open(tmp_path / "b")
    assert found.format == target
    assert found["n"][:].tolist() == numbers.tolist()
    for kind, each in KINDS.items():
        assert plain(found[f"in.{kind.strip('<')}"]) == each
