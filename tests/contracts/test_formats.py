"""Every registered format keeps the contract of formats; so does one that is registered here."""

from collections.abc import Iterator

import pytest

import ingot
from ingot.formats.format import Kind
from ingot.formats.registry import FORMATS, FormatEntry, register, unregister
from ingot.stores import MemoryStore
from ingot.testing import FormatContract

# A class for every format: a format joins by being registered.
for _name in FORMATS:
    _class = f"Test{_name.capitalize()}"
    globals()[_class] = type(_class, (FormatContract,), {"format": _name})

TOY = FormatEntry(
    "toy",
    "tests.contracts.toy.format:ToyFormat",
    Kind.ARRAY,
    markers=("toy.json",),
    documents=(("toy.json",),),
    suffixes=(".toy",),
)


class TestToy(FormatContract):
    """A format that is one folder and one entry."""

    format = "toy"

    @pytest.fixture(autouse=True)
    def registered(self) -> Iterator[None]:
        """Register the format for one test."""
        register(TOY)
        yield
        unregister("toy")


def test_the_toy_is_gone() -> None:
    assert "toy" not in ingot.formats()
    with pytest.raises(ingot.errors.FormatError, match="no dataset of a known format"):
        ingot.open(MemoryStore({"toy.json": b"{}"}))
