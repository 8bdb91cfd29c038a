"""The engine: what an assignment stages, and what it leaves behind."""

from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.engine.run import Engine
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
    return Engine(node.chunks, Options())


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
