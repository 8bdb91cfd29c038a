"""BloscLZ, operation by operation, from the description of its byte stream."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.blosc.pure import blosclz
from ingot.errors import CorruptionError


@pytest.mark.parametrize(
    ("stream", "decoded"),
    [
        ("02 61 62 63", b"abc"),
        ("e2 61 62 63", b"abc"),  # the first byte's upper bits mean nothing
        ("00 61 20 00", b"aaaa"),  # l = 1: three bytes from one back
        ("01 61 62 40 01", b"ababab"),  # l = 2: four bytes from two back, overlapping
        ("00 61 c0 00", b"a" * 9),  # l = 6: eight bytes
        ("00 61 e0 00 00", b"a" * 10),  # l = 7: nine bytes and none more
        ("00 61 e0 05 00 00 62", b"a" * 15 + b"b"),
        ("00 61 e0 ff 01 00", b"a" * (1 + 9 + 256)),
        ("00 61 e0 ff ff 00 00", b"a" * (1 + 9 + 510)),
        ("00 61 20 00 01 62 63 20 01", b"aaaabcbcb"),
    ],
)
def test_operations_do_what_the_format_says(stream: str, decoded: bytes) -> None:
    assert blosclz.decode(bytes.fromhex(stream), len(decoded)) == decoded


def literals(data: bytes) -> bytes:
    runs = [data[at : at + 32] for at in range(0, len(data), 32)]
    return b"".join(bytes([len(run) - 1]) + run for run in runs)


@pytest.mark.parametrize(
    ("operation", "distance"),
    [
        ("3f fe", 8191),  # the furthest near one
        ("3f ff 00 00", 8192),  # the nearest far one
        ("3f ff 01 02", 8192 + 258),
        ("3f ff ff ff", 8192 + 65535),
        ("21 00", 257),
    ],
)
def test_distances_near_and_far(operation: str, distance: int) -> None:
    before = random.Random(7).randbytes(80_000)
    decoded = blosclz.decode(literals(before) + bytes.fromhex(operation), len(before) + 3)
    assert decoded == before + before[-distance:][:3]


@pytest.mark.parametrize(
    ("stream", "nbytes", "text"),
    [
        ("", 1, "ends inside an operation"),
        ("02 61 62", 3, "ends inside an operation"),
        ("00 61 20", 4, "ends inside an operation"),
        ("00 61 e0 ff ff", 4000, "ends inside an operation"),
        ("00 61 e0 05", 4000, "ends inside an operation"),
        ("00 61 3f ff 00", 4000, "ends inside an operation"),
        ("00 61 20 01", 4, "reaches 2 bytes back, 1 are decoded"),
        ("00 61 3f ff 00 00", 4, "reaches 8192 bytes back, 1 are decoded"),
        ("01 61 62", 3, "holds 2 bytes, 3 are due"),
        ("01 61 62", 1, "holds 2 bytes or more, 1 are due"),
        ("00 61 20 00", 3, "holds 4 bytes or more, 3 are due"),
        ("01 61 62 00 63", 2, "holds 3 bytes or more, 2 are due"),
    ],
)
def test_bad_streams_are_corruption(stream: str, nbytes: int, text: str) -> None:
    with pytest.raises(CorruptionError, match=text):
        blosclz.decode(bytes.fromhex(stream), nbytes)


def test_a_run_of_a_megabyte_compresses_to_its_lengths() -> None:
    data = bytes(1 << 20)
    encoded = blosclz.encode(data)
    assert len(encoded) < len(data) // 250
    assert blosclz.decode(encoded, len(data)) == data


def test_repetition_far_back_is_found() -> None:
    block = random.Random(3).randbytes(50_000)
    encoded = blosclz.encode(block + block)
    assert len(encoded) < 53_000
    assert blosclz.decode(encoded, 100_000) == block + block


@pytest.mark.parametrize("distance", [1, 256, 257, 8190, 8191, 8192, 8193, 73_726, 73_727])
@pytest.mark.parametrize("length", [4, 8, 9, 10, 263, 264, 265, 519])
def test_every_match_is_written_right(
    distance: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = random.Random(5).randbytes(73_727)
    repeated = (before[-distance:] * (length // distance + 1))[:length]
    data = before + repeated + bytes(12)

    def find_one(data: bytes, window: int, tail: int) -> list[tuple[int, int, int]]:
        assert (window, tail) == (73_727, 12)
        return [(len(before), length, distance)]

    monkeypatch.setattr(blosclz, "find_matches", find_one)
    encoded = blosclz.encode(data)
    assert blosclz.decode(encoded, len(data)) == data
    assert len(encoded) < len(literals(before)) + 8 + 13


def test_streams_end_with_literals() -> None:
    """C-Blosc 1 and 2 refuse a stream that ends with a match."""
    encoded = blosclz.encode(b"spam" * 50)
    assert encoded.endswith(b"\x0bspamspamspam")


pieces = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda byte, count: byte * count, st.binary(min_size=1, max_size=5), st.integers(0, 200)
    ),
)


@given(st.lists(pieces, max_size=20).map(b"".join))
def test_what_is_encoded_decodes(data: bytes) -> None:
    if data:
        assert blosclz.decode(blosclz.encode(data), len(data)) == data
