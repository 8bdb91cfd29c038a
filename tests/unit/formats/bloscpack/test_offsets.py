"""Offsets of Bloscpack files and the walk over the chunks: by hand, and with damage."""

import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ingot.errors import CorruptionError, IngotError
from ingot.formats.bloscpack import offsets
from ingot.formats.bloscpack.header import UNKNOWN, Header
from tests.kernels import needs_native
from tests.storage import use_kernel

SIZE = 100


def memcpyed(content: bytes) -> bytes:
    """Return a Blosc chunk that holds its content as it is."""
    head = struct.pack("<BBBBiii", 2, 1, 0x13, 1, len(content), len(content), 16 + len(content))
    return head + content


def file_of(lengths: list[int], digest: int = 4, begin: int = 32) -> bytes:
    chunks = [memcpyed(bytes(length)) + b"#" * digest for length in lengths]
    return bytes(begin) + b"".join(chunks)


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda start, length: data[start : start + length]


def walked(data: bytes, header: Header) -> offsets.ChunkRow:
    return offsets.walk(reader(data), header, 32, len(data))


def test_a_table() -> None:
    data = struct.pack("<4q", 56, 99, -1, -1)
    assert offsets.pack([56, 99], spare=2) == data
    assert offsets.parse(data, 2).tolist() == [56, 99]
    with pytest.raises(CorruptionError, match="5 entries need 40 bytes, 32 are stored"):
        offsets.parse(data, 5)


@pytest.mark.parametrize(
    ("starts", "text"),
    [
        ([40, 60, 80], "entry 0 is 40, the first chunk starts at 32"),
        ([16, 60, 80], "entry 0 is 16"),
        ([32, 80, 60], "entry 2 is 60, the chunk before it starts at 80"),
        ([60, 32, 80], "entry 0 is 60"),
        ([32, 32, 80], "entry 1 is 32"),
        ([32, 51, 80], "entry 1 is 51, the chunk before it starts at 32"),
        ([32, 60, 81], "entry 2 is 81, a chunk with its digest needs 20 bytes"),
        ([32, 60, 101], "entry 2 is 101, the file has 100 bytes"),
        ([32, 2**63 - 1, 80], "entry 1 is 9223372036854775807"),
        ([32, -2, 80], "entry 1 is -2"),
        ([32, -(2**63), 80], "entry 1 is -9223372036854775808"),
    ],
)
def test_tables_that_are_refused(starts: list[int], text: str) -> None:
    with pytest.raises(CorruptionError, match=text):
        offsets.check(np.array(starts), 32, SIZE, 4)


def test_tables_that_are_possible() -> None:
    assert offsets.check(np.array([32, 52, 80]), 32, SIZE, 4)
    assert offsets.check(np.array([], np.int64), 32, 32, 4)
    assert not offsets.check(np.array([32, -1, 80]), 32, SIZE, 4)
    assert not offsets.check(np.array([-1, -1, -1]), 32, SIZE, 4)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("lengths", [[10], [1000, 1000, 30], [9000, 9000], [1] * 500, [0]])
def test_a_walk(lengths: list[int], known: bool) -> None:
    header = Header(chunk_size=lengths[0], last_chunk=lengths[-1], nchunks=len(lengths))
    if not known:
        header = Header(has_offsets=False, chunk_size=UNKNOWN, last_chunk=UNKNOWN, nchunks=UNKNOWN)
    row = walked(file_of(lengths), header)
    assert row.nbytes.tolist() == lengths
    assert row.cbytes.tolist() == [length + 16 for length in lengths]
    steps = np.cumsum([32] + [length + 20 for length in lengths])
    assert row.start.tolist() == steps[:-1].tolist()
    assert row.uniform() == (lengths[0], lengths[-1])
    assert row.payload == sum(lengths)


def test_a_walk_over_nothing() -> None:
    row = walked(bytes(32), Header(has_offsets=False, nchunks=UNKNOWN))
    assert (len(row), row.payload, row.uniform()) == (0, 0, (0, 0))


def test_a_walk_stops_at_the_number_of_chunks() -> None:
    data = file_of([10, 10, 5]) + b"stale"
    assert len(walked(data, Header(chunk_size=10, last_chunk=5, nchunks=3))) == 3


def test_chunks_of_several_lengths() -> None:
    header = Header(has_offsets=False, chunk_size=UNKNOWN, last_chunk=UNKNOWN, nchunks=3)
    assert walked(file_of([10, 20, 5]), header).uniform() is None
    assert walked(file_of([10, 10, 11]), header).uniform() is None


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (Header(chunk_size=10, last_chunk=6, nchunks=3), "last_chunk claims 6 bytes"),
        (Header(chunk_size=11, last_chunk=5, nchunks=3), "chunk_size claims 11 bytes, chunk 0"),
        (Header(chunk_size=10, last_chunk=5, nchunks=4), "a header needs 16 bytes"),
        (Header(chunk_size=10, last_chunk=5, nchunks=2), "last_chunk claims 5 bytes"),
        (Header(checksum="none", chunk_size=10, last_chunk=5, nchunks=3), "chunk: "),
        (Header(checksum="sha512", chunk_size=10, last_chunk=5, nchunks=3), "chunk: "),
    ],
)
def test_headers_that_disagree_with_the_chunks(header: Header, text: str) -> None:
    with pytest.raises(IngotError, match=text):
        walked(file_of([10, 10, 5]), header)


@pytest.mark.parametrize("nchunks", [3, UNKNOWN])
def test_a_file_that_is_cut(nchunks: int) -> None:
    data = file_of([10, 10, 5])
    ends = {32, 62, 92} if nchunks == UNKNOWN else set()
    header = Header(has_offsets=False, chunk_size=UNKNOWN, last_chunk=UNKNOWN, nchunks=nchunks)
    for length in range(32, len(data)):
        if length in ends:
            assert len(walked(data[:length], header)) == (length - 32) // 30
            continue
        with pytest.raises(CorruptionError) as caught:
            walked(data[:length], header)
        assert "in chunk" in caught.value.__notes__[0]


@pytest.mark.parametrize("claim", [-1, 0, 15, 2**31 - 1])
def test_a_chunk_that_claims_another_size(claim: int) -> None:
    data = bytearray(file_of([10, 10, 5]))
    struct.pack_into("<i", data, 32 + 12, claim)
    with pytest.raises(IngotError, match="cbytes"):
        walked(bytes(data), Header(chunk_size=10, last_chunk=5, nchunks=3))


def test_a_chunk_that_claims_to_decode_to_more_than_its_codec_can() -> None:
    data = bytearray(file_of([10, 10, 5]))
    struct.pack_into("<BBBBi", data, 32, 2, 1, 0x21, 1, 2**31 - 17)
    with pytest.raises(IngotError):
        walked(bytes(data), Header(chunk_size=10, last_chunk=5, nchunks=3))


def outcome(data: bytes, header: Header) -> object:
    """Return the chunks that a walk finds, or its error."""
    try:
        row = walked(data, header)
    except IngotError as error:
        return type(error), str(error), error.__notes__
    return row.start.tolist(), row.cbytes.tolist(), row.nbytes.tolist()


@needs_native
def test_both_kernels_walk_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = file_of([40, 40, 0, 40, 7])
    unknown = Header(has_offsets=False, chunk_size=UNKNOWN, last_chunk=UNKNOWN, nchunks=UNKNOWN)
    cases = [whole[:length] for length in range(32, len(whole))]
    for at in range(32, len(whole)):
        for mask in (0x01, 0x04, 0x20, 0x80, 0xFF):
            cases.append(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
    for header in (unknown, replace(unknown, nchunks=5)):
        use_kernel("native", monkeypatch)
        found = [outcome(case, header) for case in cases]
        use_kernel("python", monkeypatch)
        for case, each in zip(cases, found, strict=True):
            assert each == outcome(case, header)


@needs_native
def test_very_many_chunks_are_walked_by_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel("native", monkeypatch)
    data, reads = file_of([0] * 100_000, digest=0), 0

    def read(start: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        return data[start : start + length]

    header = Header(has_offsets=False, checksum="none", chunk_size=0, last_chunk=0, nchunks=100_000)
    row = offsets.walk(read, header, 32, len(data))
    assert (len(row), row.payload, int(row.start[-1])) == (100_000, 0, len(data) - 16)
    assert reads < 20
