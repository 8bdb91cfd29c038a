"""Any changes of a file of variable-length items, beside a Python list."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from ingot.formats.varlen import ragged
from ingot.stores import Extent, MemoryStore
from tests import varlen_files as by_hand
from tests.property.item_life import ItemLife


class VarlenLife(ItemLife):
    """Items in one file; the tests below say where it is lived."""

    format = "varlen"
    suffix = ".blv"
    compacts = True
    layouts = st.fixed_dictionaries(
        {
            "packed": st.booleans(),
            "pack_bytes": st.integers(1, 200),
            "slots": st.integers(0, 6),
            "reserve": st.sampled_from([0, 7, 0.5]),
            "checksum": st.sampled_from(["crc32", "crc32", "none", "md5"]),
        }
    )

    def check_stored(self) -> None:
        if self.place_name == "zip" or self.layout["checksum"] != "crc32":
            return
        found, _ = by_hand.read_file(self.stored())
        assert [each is None for each in found] == [each is None for each in self.data]

    def stored(self) -> bytes:
        if isinstance(self.place, Path):
            return self.place.read_bytes()
        assert isinstance(self.place, MemoryStore)
        (data,) = self.place.read([Extent("data.blv")])
        assert data is not None
        return data


@pytest.mark.parametrize("place_name", ["memory", "local", "zip"])
@pytest.mark.parametrize("smallest", [0, 1 << 20])
def test_items_change_as_a_list_does(
    place_name: str, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place_name == "zip" and smallest:
        pytest.skip("an archive is written anew in any case")
    monkeypatch.setattr(ragged, "_SMALLEST_IN_PLACE", smallest)
    machine = type("VarlenLife", (VarlenLife,), {"place_name": place_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=15, stateful_step_count=15, deadline=None)
    )
