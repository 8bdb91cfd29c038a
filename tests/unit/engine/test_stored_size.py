"""Bytes that chunks take, counted without reading them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import ingot
from ingot.codecs.codec import CodecChain
from ingot.engine import stored_size
from ingot.formats.format import Locations
from ingot.schema import ArraySchema
from ingot.stores import Constant, Inline, MemoryStore


@dataclass
class Listed:
    """A chunk map that knows where every chunk lies, in one file or nowhere."""

    locations: Locations
    store: MemoryStore
    template = None

    @property
    def schema(self) -> ArraySchema:
        return ArraySchema((len(self.locations),), np.dtype("u1"), (1,), CodecChain(), 0)

    def locate(self, coords: Any) -> list[Any]:
        return [self.locations[position] for (position,) in coords.tolist()]


def test_chunks_of_every_kind_count() -> None:
    locations = Locations(
        ("a", "a", "b", "", "", "absent"),
        starts=np.array([0, 5, 2, 0, 0, 0]),
        lengths=np.array([5, 7, -1, 0, 0, -1]),
        others={3: Inline(b"xyz"), 4: Constant(1)},
    )
    store = MemoryStore({"a": bytes(12), "b": bytes(10)})
    assert stored_size.stored_bytes(Listed(locations, store)) == 5 + 7 + 8 + 3  # type: ignore[arg-type]


def test_many_chunks_are_asked_for_in_windows(monkeypatch: Any) -> None:
    monkeypatch.setattr(stored_size, "_WINDOW", 4)
    array = ingot.create(shape=(9, 3), dtype="u1", chunks=(1, 1), codec="none", format="zarr2")
    array[:8] = 1
    assert array.stored_bytes == 24
