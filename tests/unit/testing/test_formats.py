"""The contract of formats fails for formats that break it."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingot.errors import CorruptionError
from ingot.formats.format import Kind
from ingot.formats.registry import FORMATS, FormatEntry, register, unregister
from ingot.stores import MemoryStore
from ingot.testing import FormatContract
from tests.contracts.toy import broken, broken_table
from tests.contracts.toy.table import ENTRY as TABLE

CASES = [
    ("LeavesChunks", "test_removing_leaves_nothing", {}),
    ("WritesByItself", "test_commits_are_values_and_stay_below_the_path", {}),
    ("WritesElsewhere", "test_commits_are_values_and_stay_below_the_path", {}),
    ("LosesAttributes", "test_attributes_come_back", {}),
    ("KeepsWhatIsCutOff", "test_arrays_are_resized", {"rows": 1}),
    (
        "TrustsItsDocument",
        "test_damaged_markers_give_errors_that_name_the_place",
        {"damage": "empty"},
    ),
    ("ForgetsFillValues", "test_fill_values_come_back", {"dtype": "<i4", "fill": -7}),
    ("TakesEveryTypeForNumbers", "test_types_come_back", {}),
    ("HoldsMoreThanItSays", "test_the_class_agrees_with_the_entry", {}),
    ("HasAnotherName", "test_the_class_agrees_with_the_entry", {}),
    ("HasAnotherName", "test_content_decides_the_format", {}),
    ("SaysSomethingElse", "test_documents_say_what_opening_finds", {}),
    ("AcceptsAnySetting", "test_unknown_settings_are_refused_before_anything_is_written", {}),
]


class ToyContract(FormatContract):
    format = "toy"


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[str]:
    """Register a class as the format `toy` for one test."""
    entry = FormatEntry(
        "toy",
        request.param,
        Kind.ARRAY,
        markers=("toy.json",),
        documents=(("toy.json",),),
    )
    register(entry)
    yield request.param
    unregister("toy")


def run(test: str, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Call a test of the contract with what its fixtures would give."""
    known = {
        "entry": FORMATS.entries["toy"],
        "loaded": FORMATS["toy"],
        "place": MemoryStore(),
        "tmp_path": tmp_path,
        **settings,
    }
    method = getattr(ToyContract(), test)
    method(**{name: known[name] for name in inspect.signature(method).parameters})


@pytest.mark.parametrize(
    ("home", "test", "settings"),
    [(f"tests.contracts.toy.broken:{name}", test, settings) for name, test, settings in CASES],
    indirect=["home"],
)
def test_a_broken_format_fails(
    home: str, test: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    # A format that trusts its document lets the errors of Python pass, and they end the test.
    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError)):
        run(test, tmp_path, settings)


@pytest.mark.parametrize("home", ["tests.contracts.toy.format:ToyFormat"], indirect=True)
@pytest.mark.parametrize(("test", "settings"), sorted({c[1]: c[2] for c in CASES}.items()))
def test_a_sound_format_passes(
    home: str, test: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    run(test, tmp_path, settings)


def test_every_broken_format_is_tried() -> None:
    classes = {name for name, each in vars(broken).items() if inspect.isclass(each)}
    own = {name for name in classes if getattr(broken, name).__module__ == broken.__name__}
    assert {name for name in own if not name.startswith("_")} - {"WithMap"} == {c[0] for c in CASES}


TABLE_CASES = [
    ("ForgetsNulls", "test_variable_length_items_come_back"),
    ("TurnsPacksAround", "test_expressions_compare_text"),
    ("LeavesPacks", "test_removing_leaves_nothing"),
    ("KeepsTheFirstPack", "test_variable_length_items_change_as_one"),
]


@pytest.mark.parametrize(("name", "test"), TABLE_CASES)
def test_a_broken_format_of_tables_fails(name: str, test: str) -> None:
    def run_table(home: str) -> None:
        register(replace(TABLE, name="toytable", home=home))
        try:
            given = FORMATS.entries["toytable"], FORMATS["toytable"], MemoryStore()
            known = dict(zip(("entry", "loaded", "place"), given, strict=True))
            contract = type("TableContract", (FormatContract,), {"format": "toytable"})()
            method = getattr(contract, test)
            method(**{each: known[each] for each in inspect.signature(method).parameters})
        finally:
            unregister("toytable")

    run_table(TABLE.home)
    # Where nulls are forgotten, an empty item is no JSON.
    with pytest.raises((AssertionError, CorruptionError)):
        run_table(f"tests.contracts.toy.broken_table:{name}")


def test_every_broken_format_of_tables_is_tried() -> None:
    classes = {name for name, each in vars(broken_table).items() if inspect.isclass(each)}
    own = {n for n in classes if getattr(broken_table, n).__module__ == broken_table.__name__}
    tried = {name for name, _ in TABLE_CASES}
    assert {name for name in own if not name.startswith("_")} - {"WithRaggedMap"} == tried
