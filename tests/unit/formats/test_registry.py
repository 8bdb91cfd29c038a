"""The registry says nothing that the formats themselves do not say."""

import pytest

from ingot.formats.format import DocumentFormat, Format, Owner
from ingot.formats.registry import FORMATS, OWNERS


def test_formats_have_the_names_they_are_known_by() -> None:
    assert len(FORMATS) == len(set(FORMATS)) == len(list(FORMATS.values()))
    for name, each in FORMATS.items():
        assert isinstance(each, Format)
        assert each.name == name
        assert FORMATS[name] is each


def test_owners_have_the_marks_that_are_looked_for() -> None:
    owners = {name: each for name, each in FORMATS.items() if isinstance(each, Owner)}
    assert {name: (each.marks, each.between) for name, each in owners.items()} == OWNERS


def test_documents_of_a_format_have_its_markers() -> None:
    documented = [each for each in FORMATS.values() if isinstance(each, DocumentFormat)]
    assert [each.name for each in documented] == ["zarr3", "zarr2"]
    for each in documented:
        assert set(each.signature.markers) <= set(each.documents)


def test_an_unknown_format_is_no_key() -> None:
    assert "zarr4" not in FORMATS
    with pytest.raises(KeyError):
        FORMATS["zarr4"]
