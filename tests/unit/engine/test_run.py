"""The engine: what an assignment stages, and what it leaves behind."""

from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import CorruptionError
from ingot.formats.format import ArrayNode
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import LocalStore


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    ingot.create(tmp_path / "a", shape=(8, 8), dtype="i4", chunks=(2, 2))
    node = Zarr3Format().open(LocalStore(tmp_path / "a", writable=True))
    assert isinstance(node, ArrayNode)
    return engine_of(node.chunks, Options())


def announced(engine: Engine) -> set[str]:
    store = engine.chunks.store
    assert isinstance(store, LocalStore)
    return store._staging._names


def test_an_assignment_that_stages_nothing_announces_nothing(engine: Engine) -> None:
    commit = engine.assign(parse(..., (8, 8)), np.zeros((8, 8), "i4"))
    assert not announced(engine)
    engine.chunks.store.apply(commit)
    # Were the announcement to stay, no writer could remove what dead processes staged.
    assert not announced(engine)


def test_a_discarded_assignment_announces_nothing(engine: Engine, tmp_path: Path) -> None:
    commit = engine.assign(parse(..., (8, 8)), np.ones((8, 8), "i4"))
    engine.discard(commit)
    assert not announced(engine)
    assert not list(tmp_path.rglob(".g-*"))


@pytest.mark.parametrize(
    ("format", "key"), [("bcolz", "data/__2.blp"), ("zarr2", "2"), ("zarr3", "c/2")]
)
def test_a_damaged_chunk_that_is_overwritten_in_part_is_named(
    format: str, key: str, tmp_path: Path
) -> None:
    array = ingot.array(np.arange(50), tmp_path / "a", chunks=10, format=format)
    file = tmp_path / "a" / key
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CorruptionError) as caught:
        array[15:25] = 1
    assert any(f"in chunk (2,), key {key!r}, of " in note for note in caught.value.__notes__)
    assert array[:20].tolist() == list(range(20))


@pytest.mark.parametrize("codec", ["none", "blosc", "zstd"])
def test_chunks_with_a_checksum_are_read_whatever_their_codec(codec: str, tmp_path: Path) -> None:
    values = np.arange(50)
    ingot.array(values, tmp_path / "a", chunks=10, format="zarr3", codec=codec, checksum=True)
    assert np.array_equal(ingot.open(tmp_path / "a")[...], values)
    file = tmp_path / "a/c/2"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    array = ingot.open(tmp_path / "a")
    assert array[19] == 19
    with pytest.raises(CorruptionError):
        array[20]
