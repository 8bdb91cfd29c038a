"""Checks of the files of other writers: sound ones have no error, damaged ones a finding."""

from collections.abc import Iterator
from typing import Any

import pytest

import ingot
from ingot.errors import IngotError
from ingot.stores import MemoryStore
from tests.golden import test_bcolz, test_bloscpack, test_zarr, test_zarr_early

Files = dict[str, bytes]

# What is true of sound files, and costs no data.
KNOWN = {
    "v3-zarr316/group_consolidated_stale": "consolidated",
    "bcolz-1.2.1/ctable_object_column": "unsafe",
    "bcolz-1.2.1/object_strings": "unsafe",
    "bcolz-zipline-1.13.0/object": "unsafe",
    "bcolz-1.2.1/resize0_stale_chunk": "stray",
    "bcolz-zipline-1.13.0/trim_exact_leftover": "stray",
    "bcolz-zipline-1.13.0/ctable_orphan_column_dir": "stray",
    "handmade/trailing_bytes": "dead",
}


def cases() -> Iterator[tuple[str, bool, Files]]:
    """Yield the name of each case, whether it is sound, and its files."""
    for case in (*test_zarr.CASES[2], *test_zarr.CASES[3]):
        if case["expect"] != "any":
            yield case["id"], case["expect"] != "error", test_zarr.content(case)
    for case in test_zarr_early.CASES:
        yield case["id"], case["expect"] == "equal", test_zarr_early.content(case)
    for case in (*test_bcolz.SOUND, *test_bcolz.DAMAGED):
        yield case["id"], case in test_bcolz.SOUND, test_bcolz.content(case)
    for case in (*test_bloscpack.SOUND, *test_bloscpack.DAMAGED):
        files = {"case.blp": test_bloscpack.FILES[case["file"]]}
        yield test_bloscpack.named(case), case in test_bloscpack.SOUND, files


CASES = list(cases())
SOUND = [pytest.param(*case, id=case[0]) for case in CASES if case[1]]
DAMAGED = [pytest.param(*case, id=case[0]) for case in CASES if not case[1]]


def kinds(report: Any) -> set[str]:
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize(("name", "_", "files"), SOUND)
def test_a_sound_case_has_no_finding_but_those_known(name: str, _: bool, files: Files) -> None:
    known = {KNOWN[name]} if name in KNOWN else set()
    report = ingot.check(MemoryStore(files))
    assert report.ok
    assert kinds(report) == known
    assert kinds(ingot.check(MemoryStore(files), quick=True)) <= known


@pytest.mark.parametrize(("name", "_", "files"), DAMAGED)
def test_a_damaged_case_is_found(name: str, _: bool, files: Files) -> None:
    try:
        report = ingot.check(MemoryStore(files))
    except IngotError:
        return  # It is no dataset at all.
    assert not report.ok or kinds(report) == {"unsafe"}


def test_every_known_case_is_here() -> None:
    assert KNOWN.keys() <= {name for name, sound, _ in CASES if sound}
