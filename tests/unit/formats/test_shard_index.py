"""The bytes of a shard: its index in every form, and what becomes of old chunks."""

import struct

import numpy as np
import pytest

from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import CodecChain
from ingot.codecs.compressors import Gzip
from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.formats.shard_index import IndexForm, ShardIndex, build_shard

ABSENT = 2**64 - 1
PLAIN = CodecChain((), Bytes("little"), ())
SEALED = CodecChain((), Bytes("little"), (Crc32c(),))
BIG = CodecChain((), Bytes("big"), (Crc32c(), Crc32c()))


def handmade(chunks: bytes, *entries: tuple[int, int]) -> bytes:
    """Return a shard with a plain index at its end."""
    return chunks + b"".join(struct.pack("<QQ", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("chain", "nbytes"), [(PLAIN, 96), (SEALED, 100), (BIG, 104)], ids=["plain", "sealed", "big"]
)
@pytest.mark.parametrize("location", ["start", "end"])
def test_an_index_is_read_back(chain: CodecChain, nbytes: int, location: str) -> None:
    form = IndexForm((2, 3), chain, location)
    assert form.nbytes == nbytes
    shard = build_shard(form, {5: b"last", 1: b"", 0: b"first"})
    assert shard is not None
    index = form.find(shard)
    assert index.present.tolist() == [True, True, False, False, False, True]
    starts, lengths = index.ranges(np.arange(6))
    assert lengths.tolist() == [5, 0, -1, -1, -1, 4]
    found = [shard[a : a + n] for a, n in zip(starts, lengths, strict=True) if n > 0]
    assert found == [b"first", b"last"]
    assert len(shard) == nbytes + 9


def test_the_bytes_of_a_shard_are_those_of_the_format() -> None:
    form = IndexForm((2,), PLAIN, "end")
    assert build_shard(form, {0: b"ab"}) == handmade(b"ab", (0, 2), (ABSENT, ABSENT))
    start = IndexForm((2,), CodecChain((), Bytes("big"), ()), "start")
    packed = struct.pack(">QQQQ", ABSENT, ABSENT, 32, 2)
    assert build_shard(start, {1: b"ab"}) == packed + b"ab"


def test_a_shard_without_chunks_is_none() -> None:
    form = IndexForm((2,), SEALED)
    shard = build_shard(form, {0: b"a", 1: b"b"})
    assert build_shard(form, {}) is None
    assert build_shard(form, {0: None, 1: None}, shard) is None


def test_old_chunks_are_kept_in_order_and_gaps_closed() -> None:
    form = IndexForm((4,), PLAIN)
    old = handmade(b"--ccc..aa", (7, 2), (ABSENT, ABSENT), (2, 3), (0, 2))
    assert build_shard(form, {1: b"B"}, old) == handmade(
        b"aaBccc--", (0, 2), (2, 1), (3, 3), (6, 2)
    )


def test_shared_bytes_stay_shared() -> None:
    form = IndexForm((4,), PLAIN)
    old = handmade(b"abcdefgh", (0, 6), (4, 4), (0, 6), (2, 1))
    new = build_shard(form, {}, old)
    assert new == old
    changed = build_shard(form, {0: b"x"}, old)
    # Two overlap still, and the third shares nothing any more.
    assert changed == handmade(b"xabcdefgh", (0, 1), (5, 4), (1, 6), (3, 1))


def test_a_rewritten_shard_does_not_grow() -> None:
    count, size = 1000, 100_000
    form = IndexForm((count,), PLAIN)
    old = handmade(bytes(size), *((n, size - count) for n in range(count)))
    new = build_shard(form, {}, old)
    assert new is not None
    assert len(new) <= len(old)


@pytest.mark.parametrize(
    "entry",
    [(0, 9), (8, 1), (9, 0), (ABSENT, 1), (1, ABSENT), (ABSENT - 3, 8), (2**63, 2**63), (0, 2**63)],
)
def test_chunks_outside_the_shard_are_refused(entry: tuple[int, int]) -> None:
    index = ShardIndex(np.array([(0, 8), entry], np.uint64), 8)
    assert index.ranges(np.array([0]))[1].tolist() == [8]
    with pytest.raises(CorruptionError, match=r"inner chunk 1 claims \d+ bytes from \d+ on"):
        index.ranges(np.array([0, 1]))


def test_inner_shards_are_the_same_bytes_or_do_not_overlap() -> None:
    absent = (2**64 - 1, 2**64 - 1)
    for second, refused in [((60, 40), False), ((0, 60), False), ((59, 41), True), (absent, False)]:
        entries = np.array([(0, 60), second, (2**64 - 4, 8), (90, 50)], np.uint64)
        index = ShardIndex(entries, 100)
        if refused:
            with pytest.raises(CorruptionError, match="2 inner shards claim 101 bytes, the shard"):
                index.check_shards()
        else:
            index.check_shards()


def test_an_index_that_does_not_fit_its_shard_is_refused() -> None:
    form = IndexForm((4,), SEALED)
    with pytest.raises(CorruptionError, match="67 bytes are stored, its index alone takes 68"):
        form.find(bytes(67))
    with pytest.raises(CorruptionError, match="68 bytes are due, 67 are stored"):
        form.parse(bytes(67), 1000)


@pytest.mark.parametrize("position", [0, 20, 63, 64, 67])
def test_a_damaged_index_is_refused(position: int) -> None:
    form = IndexForm((4,), SEALED, "start")
    shard = bytearray(build_shard(form, {0: b"a", 3: b"b"}) or b"")
    shard[position] ^= 1
    with pytest.raises(CorruptionError, match="shard index: crc32c: the checksum is"):
        form.find(shard)


def test_old_chunks_outside_are_refused_before_anything_is_built() -> None:
    form = IndexForm((2,), PLAIN)
    with pytest.raises(CorruptionError, match="inner chunk 1"):
        build_shard(form, {0: b"new"}, handmade(b"old", (0, 3), (1, 2**40)))


def test_impossible_forms_are_refused() -> None:
    with pytest.raises(FormatError, match="middle"):
        IndexForm((2,), PLAIN, "middle")
    with pytest.raises(FormatError, match="varies"):
        IndexForm((2,), CodecChain((), Bytes("little"), (Gzip(1),)))
    with pytest.raises(LimitError, match="index is too large"):
        IndexForm((2**20, 2**20), PLAIN)


def test_the_kernel_is_given_the_indexes_that_it_knows() -> None:
    assert IndexForm((2, 3), PLAIN, "end").native_form == ((2, 3), False, False, False)
    assert IndexForm((2,), SEALED, "start").native_form == ((2,), True, False, True)
    assert IndexForm((2,), CodecChain((), Bytes("big"), ()), "end").native_form == (
        *((2,), False, True, False),
    )
    assert IndexForm((2,), CodecChain((), Bytes("big"), (Crc32c(),))).native_form == (
        *((2,), False, True, True),
    )
    assert IndexForm((2,), BIG).native_form is None


def test_the_largest_index_is_allowed() -> None:
    assert IndexForm((2**12, 2**12), PLAIN).nbytes == 2**28
    with pytest.raises(LimitError):
        IndexForm((2**12, 2**12 + 1), PLAIN)


def test_a_chunk_that_is_replaced_leaves_no_bytes() -> None:
    form = IndexForm((2,), PLAIN)
    old = build_shard(form, {0: b"x" * 100, 1: b"y"})
    assert build_shard(form, {0: b"new"}, old) == handmade(b"newy", (0, 3), (3, 1))
