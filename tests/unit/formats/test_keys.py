"""Chunk keys: made, parsed, listed; which chunks leave when a grid changes."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.formats.format import KeyTemplate
from ingot.formats.keys import grid_difference, stored, stored_difference
from ingot.stores import MemoryStore

TEMPLATES = [
    KeyTemplate(),
    KeyTemplate("a/b/", "/"),
    KeyTemplate("__zdata__/", ".", ".blosc"),
    KeyTemplate("c/", "/", scalar="c"),
]
coords = st.lists(st.integers(0, 2**62), min_size=0, max_size=4).map(tuple)


@given(st.sampled_from(TEMPLATES), coords)
def test_a_key_is_parsed_back(template: KeyTemplate, place: tuple[int, ...]) -> None:
    assert template.parse(template.key(place), len(place)) == place


@pytest.mark.parametrize("count", [1, 63, 64, 300])
@pytest.mark.parametrize("ndim", [0, 1, 3])
def test_many_keys_are_those_of_one(count: int, ndim: int) -> None:
    table = np.random.default_rng(5).integers(0, 40, (count, ndim))
    for template in TEMPLATES:
        expected = tuple(template.key(row) for row in table.tolist())
        assert template.keys(table) == expected


@pytest.mark.parametrize(
    "key",
    ["", "0", "0.1.2", "00.1", "0.-1", "0.1 ", "0.x", ".zarray", "0.١", "a/0.1", "0.1.", "+1.0"],
)
def test_other_keys_are_no_chunks(key: str) -> None:
    assert KeyTemplate().parse(key, 2) is None


@pytest.mark.parametrize("template", TEMPLATES[:3], ids=str)
def test_stored_chunks_are_found(template: KeyTemplate) -> None:
    places = [(0, 0), (0, 12), (7, 3), (10**12, 0)]
    content = {template.key(place): b"x" for place in places}
    strange = [f"{template.prefix}{name}" for name in (".zarray", "README", "x/1", "5/x/1")]
    store = MemoryStore(content | dict.fromkeys(strange, b"x"))
    assert sorted(stored(store, template, 2)) == sorted(places)


grids = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3)


@given(grids)
def test_the_difference_of_two_grids(pairs: list[tuple[int, int]]) -> None:
    inside, outside = map(tuple, zip(*pairs, strict=True))
    found = list(grid_difference(inside, outside))
    every = set(itertools.product(*map(range, inside)))
    assert len(set(found)) == len(found)
    assert set(found) == every - set(itertools.product(*map(range, outside)))


def test_a_large_difference_is_looked_up() -> None:
    template = KeyTemplate()
    places = [(0, 0), (5, 5), (10**9, 3), (3, 10**9), (10**10, 0)]
    store = MemoryStore({template.key(place): b"" for place in places})
    found = stored_difference(store, template, (2 * 10**9, 2 * 10**9), (5, 5))
    assert sorted(found) == [(3, 10**9), (5, 5), (10**9, 3)]


def test_a_small_difference_is_not_looked_up() -> None:
    class Unlisted(MemoryStore):
        def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
            raise AssertionError("listing a folder of many chunks costs more than it saves")

    assert list(stored_difference(Unlisted(), KeyTemplate(), (10**9,), (10**9 + 1,))) == []
    assert list(stored_difference(Unlisted(), KeyTemplate(), (10**9,), (10**9 - 2,))) == [
        (10**9 - 2,),
        (10**9 - 1,),
    ]


def test_a_prefix_may_end_in_a_name() -> None:
    template = KeyTemplate("t/data/__", suffix=".blp", leading=1)
    names = ("__0.blp", "__12.blp", "__01.blp", ".keep", "___1.blp", "__1.blp.bak")
    store = MemoryStore({f"t/data/{name}": b"" for name in names})
    assert sorted(stored(store, template, 2)) == [(0, 0), (12, 0)]
