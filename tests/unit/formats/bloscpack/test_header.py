"""Headers of Bloscpack files: bytes of the original library, and claims that no file can keep."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from ingot.errors import CorruptionError, FormatError, IngotError, UnsupportedError
from ingot.formats.bloscpack.header import CHECKSUMS, UNKNOWN, Header, is_bloscpack

FIELDS = struct.Struct("<4sBBBBiiqq")


def packed(**changes: Any) -> bytes:
    """Return a header of version 3 of three chunks, with some fields changed."""
    values = {
        "magic": b"blpk",
        "version": 3,
        "options": 1,
        "checksum": 1,
        "typesize": 8,
        "chunk_size": 8192,
        "last_chunk": 3616,
        "nchunks": 3,
        "max_app_chunks": 30,
        **changes,
    }
    return FIELDS.pack(*values.values())


def test_the_header_that_bloscpack_writes() -> None:
    data = bytes.fromhex("626c706b03010108 00200000 200e0000 0300000000000000 1e00000000000000")
    header = Header.parse(data, 13661)
    assert header == Header(3, True, False, "adler32", 8, 8192, 3616, 3, 30)
    assert header.pack() == data
    assert (header.header_bytes, header.digest_bytes) == (32, 4)
    assert (header.table_entries, header.table_bytes) == (33, 264)
    assert header.payload == 20000


def test_the_header_of_a_chunk_file_of_bcolz() -> None:
    data = b"blpk\x01\0\0\0" + struct.pack("<q", 1)
    header = Header.parse(data + b"\2\1", 100)
    assert (header.version, header.nchunks, header.checksum) == (1, 1, "none")
    assert (header.header_bytes, header.table_bytes, header.payload) == (16, 0, None)
    assert header.pack() == data


def test_version_2_has_a_single_chunk_larger_than_the_others() -> None:
    data = packed(version=2, options=0, chunk_size=0, last_chunk=20000, nchunks=1, max_app_chunks=0)
    assert Header.parse(data).payload == 20000
    with pytest.raises(FormatError, match="last_chunk is 20000"):
        Header.parse(data[:4] + b"\3" + data[5:])


def test_a_stream_of_unknown_length() -> None:
    data = packed(options=0, chunk_size=-1, last_chunk=-1, nchunks=-1, max_app_chunks=0)
    header = Header.parse(data, 40)
    assert (header.nchunks, header.payload) == (UNKNOWN, None)
    assert header.pack() == data


@pytest.mark.parametrize(("number", "name"), [*enumerate(CHECKSUMS)])
def test_every_checksum(number: int, name: str) -> None:
    header = Header.parse(packed(checksum=number))
    assert header.checksum == name
    assert header.pack() == packed(checksum=number)


def test_digests_have_the_sizes_of_their_kinds() -> None:
    assert list(CHECKSUMS.values()) == [0, 4, 4, 16, 20, 28, 32, 48, 64]


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"magic": b"BLPK"}, FormatError, "begins with b'BLPK'"),
        ({"version": 0}, UnsupportedError, "version 0 is unknown"),
        ({"version": 4}, UnsupportedError, "version 4 is unknown"),
        ({"version": 4, "options": 5}, UnsupportedError, "items of any length"),
        ({"version": 255}, UnsupportedError, "version 255 is unknown"),
        ({"options": 4}, UnsupportedError, "development versions of 2012"),
        ({"options": 0x83}, FormatError, "options are 0x83, version 3 has 0x03"),
        ({"version": 2, "options": 2, "max_app_chunks": 0}, FormatError, "version 2 has 0x01"),
        ({"version": 2}, FormatError, "reserved bytes 24 to 31"),
        ({"checksum": 9}, FormatError, "checksum is 9"),
        ({"checksum": 255}, FormatError, "checksum is 255"),
        ({"typesize": 0}, FormatError, "typesize is 0"),
        ({"chunk_size": -2}, FormatError, "chunk_size is -2"),
        ({"chunk_size": 2**31 - 16}, FormatError, "chunk_size is 2147483632"),
        ({"last_chunk": -2}, FormatError, "last_chunk is -2"),
        ({"last_chunk": 9000}, FormatError, "last_chunk is 9000, chunk_size is 8192"),
        ({"nchunks": -2}, FormatError, "nchunks is -2"),
        ({"nchunks": -1}, FormatError, "length of the offsets is unknown"),
        ({"nchunks": -1, "options": 0}, FormatError, "length of the offsets is unknown"),
        ({"max_app_chunks": -1}, FormatError, "max_app_chunks is -1"),
        ({"nchunks": 2**63 - 1}, CorruptionError, "do not fit into the 968 bytes"),
        ({"max_app_chunks": 2**63 - 1}, CorruptionError, "do not fit into the 968 bytes"),
        ({"nchunks": 40, "max_app_chunks": 0}, CorruptionError, "has room for 32"),
        ({"nchunks": 49, "options": 0, "max_app_chunks": 0}, CorruptionError, "has room for 48"),
    ],
)
def test_claims_that_are_refused(
    changes: dict[str, Any], kind: type[IngotError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        Header.parse(packed(**changes), 1000)


def test_as_many_chunks_as_the_file_has_room_for() -> None:
    assert Header.parse(packed(nchunks=48, options=0, max_app_chunks=0), 1000).nchunks == 48
    header = Header(nchunks=34, max_app_chunks=0)
    header.check(1000, 16)
    with pytest.raises(CorruptionError, match="has room for 33"):
        header.check(1000, 17)


@pytest.mark.parametrize("length", range(32))
def test_a_header_that_is_cut(length: int) -> None:
    with pytest.raises(CorruptionError):
        Header.parse(packed()[:length])


def test_reserved_bytes_of_version_1() -> None:
    with pytest.raises(FormatError, match="reserved"):
        Header.parse(b"blpk\x01\0\1\0" + struct.pack("<q", 1))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_first_release_candidates_are_named(count: int) -> None:
    chunk = bytes.fromhex("02012108 00200000 00200000 74170000")
    data = b"blpk" + struct.pack("<I", count) + chunk + bytes(40)
    with pytest.raises(IngotError) as caught:
        Header.parse(data, 20000)
    assert "release candidates of 2012" in caught.value.__notes__[0]


def test_a_file_is_recognised_by_its_first_bytes() -> None:
    assert is_bloscpack(packed()[:8], b"")
    assert is_bloscpack(b"blpk", b"")
    assert is_bloscpack(b"blpk\x04\0\0\0", b"")
    assert not is_bloscpack(b"blpk\x04\x05\0\0", b"")
    assert not is_bloscpack(b"BLPK\x03", b"")
    assert not is_bloscpack(b"", b"")


def test_no_header_is_made_that_is_not_read() -> None:
    with pytest.raises(FormatError, match="no checksum 'xxhash'"):
        replace(Header(), checksum="xxhash")
    with pytest.raises(FormatError, match="version is 4"):
        Header(version=4)
