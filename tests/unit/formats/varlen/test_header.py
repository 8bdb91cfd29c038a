"""The header of a file of variable-length items."""

import struct
import zlib

import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.formats.varlen.header import VarlenHeader, is_varlen
from ingot.stores import MemoryStore
from tests import varlen_files as by_hand


def test_fields_lie_where_the_document_draws_them() -> None:
    made = VarlenHeader(7, 300, True, "sha1", 8, 0xDEADBEEF).pack()
    assert len(made) == 32
    assert made[:4] == b"blpk"
    assert made[4] == 4  # version
    assert made[5] == 0b11111  # options: offsets, metadata, variable length, packed, CRC-32
    assert made[6] == 4  # checksum: hashlib.sha1
    assert made[7] == 8  # typesize
    assert struct.unpack("<ii", made[8:16]) == (-1, -1)  # chunk-size, last-chunk: not uniform
    assert struct.unpack("<q", made[16:24]) == (7,)  # nchunks
    assert struct.unpack("<i", made[24:28]) == (300,)  # meta-size
    assert struct.unpack("<I", made[28:]) == (0xDEADBEEF,)  # reserved


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("meta", [0, 5])
@pytest.mark.parametrize("crc", [None, 0, 9])
@pytest.mark.parametrize("checksum", ["none", "adler32", "sha512"])
def test_headers_come_back(packed: bool, meta: int, crc: int | None, checksum: str) -> None:
    header = VarlenHeader(3, meta, packed, checksum, 4, crc)
    assert VarlenHeader.parse(header.pack()) == header


def test_a_header_by_hand_is_parsed() -> None:
    found = VarlenHeader.parse(by_hand.header(5, 40, typesize=8, crc=3))
    assert found == VarlenHeader(5, 40, True, "crc32", 8, 3)
    assert (found.entry_bytes, found.table_start, found.least_pack) == (16, 72, 40)
    single = VarlenHeader.parse(by_hand.header(5, 0, options=0x05))
    assert (single.packed, single.crc, single.entry_bytes, single.least_pack) == (
        False,
        None,
        8,
        20,
    )


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (by_hand.header(0, 0)[:31], CorruptionError, "needs 32 bytes, 31 are stored"),
        (b"blp!" + by_hand.header(0, 5)[4:], FormatError, "begins with b'blp!'"),
        (by_hand.header(0, 5, version=3), UnsupportedError, "version is 3, not 4"),
        (by_hand.header(0, 5, options=0x1B), UnsupportedError, "without option bit 2"),
        (by_hand.header(0, 5, options=0x3F), FormatError, "options are 0x3f"),
        (by_hand.header(0, 5, options=0x9F), FormatError, "options are 0x9f"),
        (by_hand.header(0, 5, options=0x1E), FormatError, "bit 0 is clear"),
        (by_hand.header(0, 0), FormatError, "bit 1 is set, the metadata have 0 bytes"),
        (by_hand.header(0, 5, options=0x1D), FormatError, "bit 1 is clear, the metadata have 5"),
        (by_hand.header(0, -5), FormatError, "meta_bytes is -5"),
        (by_hand.header(-2, 5), FormatError, "count is -2"),
        (by_hand.header(0, 5, checksum=9), FormatError, "checksum is 9"),
        (by_hand.header(0, 5, options=0x0F, crc=1), FormatError, "bytes 28 to 31 are not 0"),
    ],
)
def test_wrong_headers_are_refused(data: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        VarlenHeader.parse(data)


def test_claims_are_compared_with_the_size_of_the_file() -> None:
    VarlenHeader(4, 16).check(32 + 16 + 64)
    with pytest.raises(CorruptionError, match=r"count claims 4 entries, .* has room for 3"):
        VarlenHeader(4, 16).check(32 + 16 + 63)
    with pytest.raises(CorruptionError, match="metadata claim 16 bytes, 15 follow"):
        VarlenHeader(0, 16).check(47)


def test_a_file_that_was_not_finished_is_refused_with_a_hint() -> None:
    with pytest.raises(CorruptionError, match="did not finish") as caught:
        VarlenHeader(-1, 16).check(1000)
    assert "ingot.repair" in caught.value.__notes__[0]


def test_the_checksum_covers_all_before_the_packs() -> None:
    behind = b'{"dtype": "utf8"}' + bytes(16)
    header = VarlenHeader(1, 17).sealed(behind)
    front = header.pack() + behind
    assert header.crc == zlib.crc32(behind, zlib.crc32(front[:28]))
    header.check_crc(front)
    for place in [*range(28), *range(32, len(front))]:
        damaged = bytearray(front)
        damaged[place] ^= 0x40
        with pytest.raises(CorruptionError, match="CRC-32"):
            header.check_crc(damaged)


def test_only_version_4_with_bit_2_is_recognised() -> None:
    assert is_varlen(by_hand.header(0, 5), b"")
    assert not is_varlen(by_hand.header(0, 5, version=3), b"")
    assert not is_varlen(by_hand.header(0, 5, options=0x1B), b"")
    assert not is_varlen(b"blpk", b"")
    assert not is_varlen(b"blpk\x04", b"")


@pytest.mark.parametrize("data", [{"version": 3}, {"options": 0x1B}])
def test_files_of_other_versions_are_no_items(data: dict[str, int]) -> None:
    store = MemoryStore({"a.blv": by_hand.header(0, 5, **data) + bytes(100)})
    with pytest.raises(UnsupportedError):
        ingot.open(store)
