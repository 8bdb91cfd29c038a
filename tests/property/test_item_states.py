"""Any changes of variable-length items in packs of one length, beside a Python list."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from ingot.formats.bcolz import ragged
from tests import blsk_reader
from tests.property.item_life import ItemLife


class BcolzItemLife(ItemLife):
    """Items in a folder of bcolz."""

    format = "bcolz"
    suffix = ".bcolz"
    compacts = False
    layouts = st.just({})


class BlskItemLife(ItemLife):
    """Items in super-chunk files."""

    format = "blsk"
    suffix = ".blsk"
    compacts = True
    layouts = st.fixed_dictionaries(
        {"superchunksize": st.integers(1, 3), "spare": st.sampled_from([0.0, 0.1, 2.0])}
    )

    def check_stored(self) -> None:
        if self.place_name == "local":
            assert isinstance(self.place, Path)
            assert blsk_reader.read(self.place) == self.data


@pytest.mark.parametrize("place_name", ["memory", "local", "zip"])
@pytest.mark.parametrize("life", [BcolzItemLife, BlskItemLife])
def test_items_change_as_a_list_does(
    life: type[ItemLife], place_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Packs of a few items.
    monkeypatch.setattr(ragged, "_LEAST_PACK", 40)
    machine = type(life.__name__, (life,), {"place_name": place_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=12, stateful_step_count=15, deadline=None)
    )
