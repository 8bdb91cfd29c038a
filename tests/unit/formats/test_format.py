"""The contract of formats: locations, and that ours keep it."""

import numpy as np

from ingot.codecs.codec import CodecChain
from ingot.formats.format import ArrayNode, ChunkMap, Format, Kind, Locations
from ingot.formats.zarr.v2 import V2ArrayMetadata, Zarr2Format, Zarr2Map
from ingot.schema import ArraySchema
from ingot.stores import MemoryStore
from ingot.stores.store import Constant, Extent, Inline


def test_locations_without_ranges_are_whole_keys() -> None:
    locations = Locations(("a", "b"))
    assert len(locations) == 2
    assert list(locations) == [Extent("a"), Extent("b")]


def test_locations_with_ranges_and_others() -> None:
    locations = Locations(
        ("a", "a", "", ""),
        starts=np.array([16, 40, 0, 0]),
        lengths=np.array([24, -1, 0, 0]),
        others={2: Constant(7), 3: Inline(b"x")},
    )
    assert list(locations) == [Extent("a", 16, 24), Extent("a", 40), Constant(7), Inline(b"x")]
    assert type(locations[0].start) is int  # type: ignore[union-attr]


def test_zarr2_keeps_the_contract() -> None:
    schema = ArraySchema((4,), np.dtype("<i4"), (2,), CodecChain(), np.int32(0))
    chunks = Zarr2Map(MemoryStore(), V2ArrayMetadata.of(schema))
    assert isinstance(Zarr2Format(), Format)
    assert isinstance(chunks, ChunkMap)
    assert ArrayNode(chunks).schema is schema
    assert Zarr2Format.holds == Kind.ARRAY | Kind.GROUP
