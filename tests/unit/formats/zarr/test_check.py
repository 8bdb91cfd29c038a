"""What a check says of Zarr beside the chunks: torn documents, and dead bytes of shards."""

import numpy as np
import pytest

import ingot
from ingot.formats.format import as_sharded
from ingot.formats.zarr.check import dead_bytes
from ingot.stores import Commit, Extent, MemoryStore, Put


@pytest.mark.parametrize("name", [".zarray", ".zattrs"])
def test_a_torn_document_is_named(name):
    store = MemoryStore()
    ingot.array(np.arange(9), store, format="zarr2", attrs={"n": 1})
    store.apply(Commit(publish=(Put(name, b"{"),)))
    (finding,) = ingot.check(store).findings
    assert (finding.file, finding.kind, finding.severity) == (name, "document", "error")


def test_bytes_of_shards_that_no_index_names_are_dead():
    store = MemoryStore()
    array = ingot.array(np.arange(60), store, chunks=10, shards=30)
    sharded = as_sharded(array._handle.value.chunks)
    assert dead_bytes(sharded) == 0
    assert ingot.check(store).findings == ()
    # The index lies at the end: what is put in front of it is named by no entry.
    (shard,) = store.read([Extent("c/0")])
    form = sharded.levels[0]
    front, index = shard[: -form.nbytes], shard[-form.nbytes :]
    store.apply(Commit(publish=(Put("c/0", front + b"spare" + index),)))
    assert dead_bytes(as_sharded(ingot.open(store)._handle.value.chunks)) == 5
    (finding,) = ingot.check(store).findings
    assert (finding.kind, finding.severity) == ("dead", "note")
    assert "5 bytes" in finding.problem
    assert ingot.check(store, quick=True).findings == ()
    # Of a shard without its index nothing can be told.
    store.apply(Commit(publish=(Put("c/0", front + bytes(form.nbytes)),)))
    assert dead_bytes(as_sharded(ingot.open(store)._handle.value.chunks)) == 0
