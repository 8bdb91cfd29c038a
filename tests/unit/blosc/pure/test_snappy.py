"""Snappy, element by element, from the description of its block format."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.blosc.pure import snappy
from ingot.errors import CorruptionError


@pytest.mark.parametrize(
    ("block", "decoded"),
    [
        ("00", b""),
        ("03 08 61 62 63", b"abc"),
        ("05 00 61 01 01", b"aaaaa"),  # copy 4 from 1 back, one-byte offset
        ("0c 00 61 1d 01", b"a" * 12),  # copy 11
        ("08 04 61 62 16 02 00", b"abababab"),  # copy 6 from 2 back, two-byte offset
        ("08 04 61 62 17 02 00 00 00", b"abababab"),  # the same with a four-byte offset
        ("41 00 61 fe 01 00", b"a" * 65),  # copy 64
    ],
)
def test_elements_do_what_the_format_says(block: str, decoded: bytes) -> None:
    assert snappy.decode(bytes.fromhex(block), len(decoded)) == decoded


@pytest.mark.parametrize(
    ("prefix", "length"),
    [
        ("3c ec", 60),  # 60 literals: the last length that fits the tag
        ("3d f0 3c", 61),
        ("80 02 f0 ff", 256),
        ("81 02 f4 00 01", 257),
        ("81 80 04 f8 00 00 01", 65537),
        ("81 80 04 fc 00 00 01 00", 65537),
    ],
)
def test_literals_of_every_length_of_length(prefix: str, length: int) -> None:
    data = random.Random(1).randbytes(length)
    assert snappy.decode(bytes.fromhex(prefix) + data, length) == data


def test_an_eleven_bit_offset_has_its_upper_bits_in_the_tag() -> None:
    before = random.Random(2).randbytes(1500)
    block = bytes.fromhex("e0 0b f4 db 05") + before + bytes([0b101_000_01, 0x18])
    assert snappy.decode(block, 1504) == before + before[-0x518:][:4]


@pytest.mark.parametrize(
    ("block", "nbytes", "text"),
    [
        ("", 3, "ends inside an element"),
        ("80", 3, "ends inside an element"),
        ("ff ff ff ff ff 01", 3, "more than five bytes"),
        ("03 08 61 62", 3, "ends inside an element"),
        ("03 f0", 3, "ends inside an element"),
        ("05 00 61 01", 5, "ends inside an element"),
        ("05 00 61 02 01", 5, "ends inside an element"),
        ("05 00 61 03 01 00 00", 5, "ends inside an element"),
        ("05 00 61 01 00", 5, "reaches 0 bytes back"),
        ("05 00 61 01 02", 5, "reaches 2 bytes back, 1 are decoded"),
        ("04 00 61 01 01", 4, "holds 5 bytes or more, 4 are due"),
        ("06 00 61 01 01", 6, "holds 5 bytes, 6 are due"),
        ("02 08 61 62 63", 2, "holds 3 bytes, 2 are due"),
        ("05 00 61 01 01", 6, "claims 5 bytes, 6 are due"),
    ],
)
def test_bad_blocks_are_corruption(block: str, nbytes: int, text: str) -> None:
    with pytest.raises(CorruptionError, match=text):
        snappy.decode(bytes.fromhex(block), nbytes)


pieces = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda byte, count: byte * count, st.binary(min_size=1, max_size=5), st.integers(0, 200)
    ),
)


@given(st.lists(pieces, max_size=20).map(b"".join))
def test_what_is_encoded_decodes(data: bytes) -> None:
    assert snappy.decode(snappy.encode(data), len(data)) == data


def test_repetition_is_found() -> None:
    assert len(snappy.encode(b"spam" * 10_000)) < 2000
