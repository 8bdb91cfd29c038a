"""The document of row shards, and what is the same for shards of every format."""

import pytest

from ingot.errors import CorruptionError, NotFoundError, UnsupportedError
from ingot.formats.row_shards import SHARDS, RowShards, check_lengths, shard_of
from ingot.stores import MemoryStore


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_a_document_is_read_as_it_was_packed(format):
    shards = RowShards((4, 0, 2), format)
    assert RowShards.read(MemoryStore({f"a/{SHARDS}": shards.pack()}), "a") == shards


def test_a_document_of_no_shards_is_refused():
    with pytest.raises(CorruptionError, match=r"a/shards\.json: there are no shards"):
        RowShards.read(MemoryStore(), "a", RowShards(()).pack())


def test_a_document_that_is_not_stored_is_named():
    with pytest.raises(NotFoundError, match=r"no a/shards\.json"):
        RowShards.read(MemoryStore(), "a")


def test_shards_of_another_format_are_named():
    with pytest.raises(UnsupportedError, match="'parquet'"):
        RowShards.parse(b'{"version": 1, "format": "parquet", "rows": [1]}')


def test_a_shard_of_another_length_is_named():
    check_lengths([4, 4], RowShards((4, 4)), SHARDS)
    with pytest.raises(CorruptionError, match="shard-00001 has 3 rows, 4 are claimed"):
        check_lengths([4, 3], RowShards((4, 4)), SHARDS)


def test_a_path_is_in_a_shard_of_its_own_format_only():
    store = MemoryStore({SHARDS: RowShards((4, 4), "blsk").pack()})
    assert shard_of(store, "shard-00001/price", "blsk") == "shard-00001"
    assert shard_of(store, "shard-00001/price", "bcolz") == ""
    assert shard_of(store, "shard-00002", "blsk") == ""
