"""Whole shards as a codec: the slow way, for shards with other codecs around them."""

import numpy as np
import pytest

from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import ChunkSpec, CodecChain
from ingot.codecs.compressors import Gzip
from ingot.codecs.filters import Transpose
from ingot.errors import CorruptionError, FormatError
from ingot.formats.shard_index import build_shard
from ingot.formats.zarr.v3_sharding import Sharding, auto_shards

INDEX = CodecChain((), Bytes("little"), (Crc32c(),))
ITEMS = CodecChain((), Bytes("big"), (Gzip(1),))
SPEC = ChunkSpec((8, 6), np.dtype("<i4"), np.int32(-1))


def chains() -> dict[str, CodecChain]:
    plain = Sharding((4, 3), ITEMS, INDEX)
    nested = Sharding((4, 6), CodecChain((), Sharding((2, 3), ITEMS, INDEX, "start"), ()), INDEX)
    sealed = CodecChain((), Sharding((2, 3), ITEMS, INDEX), (Crc32c(),))
    return {
        "bare": CodecChain((), plain, ()),
        "compressed": CodecChain((), plain, (Gzip(1), Crc32c())),
        "transposed": CodecChain((Transpose((1, 0)),), Sharding((3, 2), ITEMS, INDEX), ()),
        "nested": CodecChain((), nested, ()),
        "sealed inside": CodecChain((), Sharding((4, 6), sealed, INDEX), ()),
    }


@pytest.mark.parametrize("name", chains())
def test_a_whole_shard_is_read_back(name: str) -> None:
    chain = chains()[name]
    array = np.arange(48, dtype="<i4").reshape(8, 6)
    stored = chain.encode(array)
    assert np.array_equal(chain.decode(stored, SPEC), array)


def test_absent_chunks_hold_the_fill_value() -> None:
    sharding = Sharding((4, 3), ITEMS, INDEX)
    part = np.full((4, 3), 7, "<i4")
    shard = build_shard(sharding.form((8, 6)), {3: ITEMS.encode(part)})
    assert shard is not None
    expected = np.full((8, 6), -1)
    expected[4:, 3:] = 7
    assert np.array_equal(sharding.decode(shard, SPEC), expected)


def test_damage_is_found() -> None:
    sharding = Sharding((4, 3), ITEMS, INDEX)
    shard = sharding.encode(np.arange(48, dtype="<i4").reshape(8, 6))
    for length in (0, 10, len(shard) - 1):
        with pytest.raises(CorruptionError):
            sharding.decode(shard[:length], SPEC)
    with pytest.raises(CorruptionError):
        sharding.decode(b"x" + shard[1:], SPEC)


def test_inner_chunks_must_divide_the_shard() -> None:
    with pytest.raises(FormatError, match="do not divide"):
        Sharding((3, 3), ITEMS, INDEX).form((8, 6))


@pytest.mark.parametrize(("itemsize", "rows"), [(0, 2**25), (1, 2**25), (2, 2**24), (8, 2**22)])
def test_shards_hold_up_to_32_mib(itemsize: int, rows: int) -> None:
    assert auto_shards((2**30,), (2**20,), itemsize) == (rows,)
