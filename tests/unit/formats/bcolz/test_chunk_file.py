"""Chunk files: what is refused before their rows or their zone maps are used."""

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, UnsupportedError
from ingot.formats.bcolz.chunk_file import PickledObject, zone_in
from ingot.stores import MemoryStore
from tests.kernels import KERNELS
from tests.storage import content, identity_of, put, use_kernel


def test_zone_maps_are_not_taken_from_chunks_that_cannot_be_decoded() -> None:
    store = MemoryStore()
    ingot.array(np.arange(10), store, format="bcolz", chunks=10)
    data = bytearray(content(store)["data/__0.blp"])
    identity = identity_of(store)
    assert len(zone_in(bytes(data), 0, identity)) == 32
    data[16 + 2] |= 7 << 5  # A codec that Blosc does not have.
    with pytest.raises(UnsupportedError):
        zone_in(bytes(data), 0, identity)


@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_say_how_many_rows_a_chunk_may_hold(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel, monkeypatch)
    store, other = MemoryStore(), MemoryStore()
    array = ingot.array(np.arange(10), store, format="bcolz", chunks=4)
    ingot.array(np.arange(1), other, format="bcolz", chunks=4)
    short = content(other)["data/__0.blp"]
    put(store, {"data/__0.blp": short, "data/__2.blp": short})
    with pytest.raises(CorruptionError, match="8 bytes, 4 rows of 8 bytes are due\n"):
        array[0]
    with pytest.raises(CorruptionError, match="8 bytes, 2 rows of 8 bytes are due, or up to 4\n"):
        array[9]


def test_a_chunk_lies_behind_the_head_of_its_file() -> None:
    chunks = ingot.array(np.arange(10), format="bcolz")._chunks
    assert chunks.schema.chain.head_bytes == 16


def test_objects_are_pickled_for_python_2_as_well() -> None:
    pickled = bytes(PickledObject().encode(np.array(["text"], object)))
    assert pickled.startswith(b"\x80\x02"), "bcolz 1.0 reads protocols up to 2"


def test_stages_of_objects_are_equal() -> None:
    assert PickledObject() == PickledObject()
    assert len({PickledObject(), PickledObject()}) == 1
