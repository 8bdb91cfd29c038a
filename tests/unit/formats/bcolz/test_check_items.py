"""Lost and torn documents of variable-length items in bcolz: rebuilt from packs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.check import KEPT_ASIDE

WORDS = [None if number % 7 == 0 else f"wörd{number}" * (number % 5) for number in range(20_000)]


def lose(file: Path) -> None:
    os.remove(file)


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def empty(file: Path) -> None:
    file.write_bytes(b"")


damages = pytest.mark.parametrize("damage", [lose, tear, empty])


@pytest.fixture(params=["alone", "column"])
def items(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of items, alone or as a column of a table."""
    if request.param == "alone":
        ingot.ragged(WORDS, tmp_path / "items", format="bcolz")
        return tmp_path / "items"
    ingot.table({"a": np.arange(20_000), "items": WORDS}, tmp_path / "t.bcolz")
    return tmp_path / "t.bcolz" / "items"


def root_of(items: Path) -> Path:
    return items.parent if items.parent.suffix == ".bcolz" else items


def mended(items: Path) -> Any:
    root = root_of(items)
    assert not ingot.check(root).ok
    report = ingot.repair(root)
    assert report.ok, str(report)
    assert not ingot.repair(root).done
    return report


def read(items: Path) -> list[Any]:
    found = ingot.open(root_of(items))
    return list(found["items"] if isinstance(found, ingot.Table) else found)


@damages
def test_a_lost_number_of_items_is_counted(items: Path, damage: Callable[[Path], None]) -> None:
    damage(items / "meta" / "sizes")
    report = mended(items)
    assert [each.kind for each in report.done] == ["document"]
    assert read(items) == WORDS


@damages
def test_items_of_a_lost_kind_become_bytes(items: Path, damage: Callable[[Path], None]) -> None:
    old = (items / "meta" / "storage").read_bytes()
    damage(items / "meta" / "storage")
    report = mended(items)
    assert report.done[0].lost == "the kind of the items"
    assert read(items) == [None if word is None else word.encode() for word in WORDS]
    if damage is tear:
        kept = Path(f"{root_of(items)}{KEPT_ASIDE}")
        name = "items/meta/storage" if root_of(items) != items else "meta/storage"
        assert (kept / name).read_bytes() == old[:-4]


def test_both_documents_may_be_lost(items: Path) -> None:
    lose(items / "meta" / "storage")
    lose(items / "meta" / "sizes")
    assert len(mended(items).done) == 2
    assert read(items) == [None if word is None else word.encode() for word in WORDS]


def test_items_are_appended_to_what_was_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "items"
    ingot.ragged(WORDS, path, format="bcolz")
    lose(path / "meta" / "sizes")
    mended(path)
    with ingot.open(path, "r+") as items:
        items.extend(["one", None])
    assert list(ingot.open(path)) == [*WORDS, "one", None]


@pytest.mark.parametrize("damage", [tear, empty])
def test_torn_attributes_of_items_become_none(items: Path, damage: Callable[[Path], None]) -> None:
    damage(items / "__attrs__")
    mended(items)
    assert read(items) == WORDS


def test_a_lost_last_pack_shortens_items_that_are_alone(tmp_path: Path) -> None:
    path = tmp_path / "items"
    ingot.ragged(WORDS, path, format="bcolz")
    packs = sorted((path / "data").glob("__*.blp"))
    assert len(packs) > 1
    os.remove(packs[-1])
    report = mended(path)
    left = read(path)
    assert left == WORDS[: len(left)]
    assert report.done[0].lost == f"items [{len(left)}:{len(WORDS)}]"


def test_a_lost_first_pack_is_no_matter_of_documents(tmp_path: Path) -> None:
    path = tmp_path / "items"
    ingot.ragged(WORDS, path, format="bcolz")
    os.remove(path / "data" / "__0.blp")
    lose(path / "meta" / "sizes")
    assert not ingot.repair(path).ok


def test_chunks_that_only_look_like_packs_are_left_to_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.bcolz"
    ingot.array(np.zeros(1000, "i4"), path, chunks=300)
    lose(path / "meta" / "storage")
    report = ingot.repair(path)
    assert report.ok
    assert ingot.open(path).dtype == np.dtype("V4")
