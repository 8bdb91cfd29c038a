"""Checksums: known values, both places, and nothing damaged passes."""

import hashlib
import zlib
from typing import Any

import google_crc32c
import numcodecs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.codecs.checksums import DIGEST_BYTES, Digest, crc32c, digest, digests
from ingot.codecs.codec import Compressor, parse_stage
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.fields import FieldReader

LIMIT = 2**20
NINE = b"123456789"

# The check values of the catalogue of parametrised CRC algorithms, and of RFC 1950 for Adler-32.
CHECKS = {"crc32": 0xCBF43926, "crc32c": 0xE3069283, "adler32": 0x091E01DE}
CONFIGS = [
    *({"id": name, "location": place} for name in CHECKS for place in ("start", "end")),
    {"id": "fletcher32"},
    {"id": "jenkins_lookup3", "initval": 0, "prefix": None},
    {"id": "jenkins_lookup3", "initval": 4711, "prefix": None},
]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=str)


def stage_of(config: dict[str, Any]) -> Compressor:
    stage = parse_stage(config)
    assert isinstance(stage, Compressor)
    return stage


@pytest.mark.parametrize("name", CHECKS)
def test_the_check_value_stands_where_it_should(name: str) -> None:
    check = CHECKS[name].to_bytes(4, "little")
    assert stage_of({"id": name, "location": "start"}).encode(NINE) == check + NINE
    assert stage_of({"id": name, "location": "end"}).encode(NINE) == NINE + check


@pytest.mark.parametrize(
    ("name", "place"), [("crc32", "start"), ("crc32c", "end"), ("adler32", "start")]
)
def test_the_usual_place(name: str, place: str) -> None:
    assert stage_of({"id": name}).config() == {"id": name, "location": place}
    assert stage_of({"id": name, "location": None}).config()["location"] == place


@each_config
@given(data=st.binary(min_size=1, max_size=300))
def test_bytes_are_those_of_numcodecs(config: dict[str, Any], data: bytes) -> None:
    ours, theirs = stage_of(config), numcodecs.get_codec(config)
    assert bytes(ours.encode(data)) == bytes(theirs.encode(data))
    assert bytes(ours.decode(bytes(theirs.encode(data)), len(data), LIMIT)) == data
    assert ours.encoded_size(len(data)) == len(bytes(theirs.encode(data)))


@each_config
def test_every_flipped_bit_is_found(config: dict[str, Any]) -> None:
    stage = stage_of(config)
    stored = bytes(stage.encode(NINE))
    for bit in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError, match="checksum"):
            stage.decode(damaged, 9, LIMIT)


@each_config
def test_too_few_bytes_hold_no_checksum(config: dict[str, Any]) -> None:
    for length in range(4):
        with pytest.raises(CorruptionError, match="no checksum"):
            stage_of(config).decode(bytes(length), None, LIMIT)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 8191, 8192, 8193, 8192 + 256, 99_999, 2**18])
def test_crc32c_of_any_length(size: int) -> None:
    data = bytes(n * n % 251 for n in range(size))
    assert crc32c(data) == google_crc32c.value(data)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="'polynomial'"):
        parse_stage({"id": "crc32", "polynomial": 5})
    with pytest.raises(UnsupportedError, match="prefix"):
        parse_stage({"id": "jenkins_lookup3", "prefix": "x"})
    with pytest.raises(FormatError, match="initval"):
        parse_stage({"id": "jenkins_lookup3", "initval": 2**32})


KINDS = [kind for kind in DIGEST_BYTES if kind != "none"]


def expected_digest(kind: str, data: bytes) -> bytes:
    words = {"adler32": zlib.adler32, "crc32": zlib.crc32, "crc32c": google_crc32c.value}
    if kind in words:
        return words[kind](data).to_bytes(4, "little")
    return hashlib.new(kind, data).digest()


@pytest.mark.parametrize("kind", KINDS)
# Around the ends of blocks of 64 and 128 bytes, where padding needs one block more.
@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 111, 112, 127, 128, 129, 70_000])
def test_digests_are_those_of_the_standard_library(kind: str, size: int) -> None:
    data = bytes(n * n % 251 for n in range(size))
    assert digest(kind, data) == expected_digest(kind, data)
    assert len(digest(kind, memoryview(data))) == DIGEST_BYTES[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_several_buffers_are_digested_in_their_order(kind: str) -> None:
    buffers = [bytes([n]) * (n * 10_000) for n in range(8)]
    found = digests(kind, buffers, threads=3)
    assert found == [expected_digest(kind, each) for each in buffers]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 40])
def test_buffers_of_other_lengths_are_digested_together(kind: str, threads: int) -> None:
    lengths = [40_000, 0, 40_063, 39_999, 64, 1, 40_000, 119, 120, 40_055, 3, 40_056, 128, 8, 90, 5]
    buffers = [bytes(n * (n + at) % 253 for n in range(each)) for at, each in enumerate(lengths)]
    for count in (1, 2, 3, len(buffers)):
        some = buffers[:count]
        found = digests(kind, some, threads=threads)
        assert found == [expected_digest(kind, each) for each in some]


def test_no_checksum_takes_no_bytes() -> None:
    assert (digest("none", NINE), digests("none", [NINE, NINE])) == (b"", [b"", b""])
    assert digests("sha1", []) == []
    with pytest.raises(ValueError, match="'sha3' is unknown"):
        digest("sha3", NINE)
    for kind in ("none", "sha3"):
        with pytest.raises(ValueError, match="checksum"):
            Digest(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_behind_the_bytes(kind: str) -> None:
    stage = Digest.parse(FieldReader("digest", {"kind": kind}))
    stored = bytes(stage.encode(NINE))
    assert stored == NINE + expected_digest(kind, NINE)
    assert len(stored) == stage.encoded_size(len(NINE))
    assert bytes(stage.decode(stored, 9, LIMIT)) == NINE
    assert stage.appended == kind
    for bit in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError, match=f"{kind}: the checksum is"):
            stage.decode(damaged, 9, LIMIT)
    with pytest.raises(CorruptionError, match="no checksum"):
        stage.decode(bytes(DIGEST_BYTES[kind] - 1), None, LIMIT)


@pytest.mark.parametrize("name", CHECKS)
def test_only_a_checksum_behind_the_bytes_is_appended(name: str) -> None:
    assert stage_of({"id": name, "location": "end"}).appended == name
    assert stage_of({"id": name, "location": "start"}).appended is None
