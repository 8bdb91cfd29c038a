"""Items in as many bits as they need, held against whole numbers made of all the bits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot.codecs import bits
from ingot.codecs.bits import PackedBits
from ingot.codecs.codec import ChunkSpec, CodecChain
from ingot.errors import CorruptionError, FormatError, UnsupportedError

TYPES = ["?", "i1", "u1", "<i2", ">u2", "<i4", ">i8", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"]


def one_number(array: NDArray[Any], first: int, last: int) -> bytes:
    """Return the bits of all items, the first item lowest, as the bytes of one number."""
    parts = 2 if array.dtype.kind == "c" else 1
    whole = array.astype(array.dtype.newbyteorder("<")).tobytes()
    size = array.dtype.itemsize // parts
    width, total = last - first + 1, 0
    for place in range(array.size * parts):
        item = int.from_bytes(whole[place * size : (place + 1) * size], "little")
        total |= (item >> first & (1 << width) - 1) << place * width
    return total.to_bytes(-(-array.size * parts * width // 8), "little")


@given(dtype=st.sampled_from(TYPES), content=st.binary(max_size=200), data=st.data())
def test_bits_follow_each_other(dtype: str, content: bytes, data: st.DataObject) -> None:
    kind = np.dtype(dtype)
    content = content[: len(content) // kind.itemsize * kind.itemsize]
    array = np.frombuffer(content, kind)
    if kind.kind == "b":
        array = np.frombuffer(content, "u1") % 2 == 1
    most = 0 if kind.kind == "b" else 8 * kind.itemsize // (2 if kind.kind == "c" else 1) - 1
    first, last = sorted(data.draw(st.tuples(st.integers(0, most), st.integers(0, most))))
    stage = PackedBits("none", first, last)
    packed = bytes(stage.encode(array))
    assert packed == one_number(array, first, last)
    spec = ChunkSpec(array.shape, kind)
    assert stage.serialized_size(spec) == len(packed)
    found = stage.decode(packed, spec)
    assert (found.dtype, found.shape) == (kind, array.shape)
    assert bytes(stage.encode(found)) == packed
    if (first, last) == (0, most):
        assert found.tobytes() == array.tobytes()


def test_bits_that_were_left_out_are_those_of_the_sign() -> None:
    numbers = np.array([-8, -1, 0, 7], np.int16)
    stage = PackedBits(last_bit=3)
    assert bytes(stage.encode(numbers)) == bytes([0xF8, 0x70])
    np.testing.assert_array_equal(
        stage.decode(b"\xf8\x70", ChunkSpec((4,), numbers.dtype)), numbers
    )
    unsigned = stage.decode(b"\xf8\x70", ChunkSpec((4,), np.dtype("u2")))
    assert unsigned.tolist() == [8, 15, 0, 7]
    shifted = PackedBits(first_bit=4, last_bit=7).decode(b"\x1f", ChunkSpec((2,), np.dtype("i1")))
    assert shifted.tolist() == [-16, 16]


@pytest.mark.parametrize(
    ("padding", "packed"),
    [("none", "ff01"), ("first_byte", "07ff01"), ("last_byte", "ff0107")],
)
def test_padding_is_stored(padding: Any, packed: str) -> None:
    stage, spec = PackedBits(padding), ChunkSpec((9,), np.dtype(bool))
    assert bytes(stage.encode(np.ones(9, bool))).hex() == packed
    assert stage.decode(bytes.fromhex(packed), spec).all()
    assert stage.serialized_size(spec) == len(packed) // 2


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4"])
def test_narrow_integers(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    low, high = int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    numbers = np.arange(low, high + 1).astype(dtype)
    packed = bytes(PackedBits().encode(numbers))
    width = int(name[-1])
    whole = sum((number % 2**width) << at * width for at, number in enumerate(range(low, high + 1)))
    assert packed == whole.to_bytes(len(packed), "little")
    assert len(packed) == len(numbers) * width // 8
    found = PackedBits().decode(packed, ChunkSpec(numbers.shape, dtype))
    assert found.tolist() == list(range(low, high + 1))


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_narrow_floats(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    width = int(name[5])
    numbers = np.arange(2**width, dtype=np.uint8).view(dtype)
    packed = bytes(PackedBits().encode(numbers))
    assert int.from_bytes(packed, "little") == sum(n << n * width for n in range(2**width))
    found = PackedBits().decode(packed, ChunkSpec(numbers.shape, dtype))
    np.testing.assert_array_equal(found.astype(float), numbers.astype(float))


def test_many_items_are_packed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_SLAB_ITEMS", 8)
    numbers = np.arange(1000, dtype=np.uint16) % 4096
    stage = PackedBits(last_bit=11)
    packed = stage.encode(numbers)
    assert bytes(packed) == one_number(numbers, 0, 11)
    np.testing.assert_array_equal(stage.decode(packed, ChunkSpec((1000,), np.dtype("u2"))), numbers)


@pytest.mark.parametrize(
    ("stage", "dtype"),
    [
        (PackedBits(last_bit=8), "u1"),
        (PackedBits(first_bit=1), "?"),
        (PackedBits(first_bit=5, last_bit=4), "<u2"),
        (PackedBits(first_bit=-1), "<u2"),
        (PackedBits(), "S3"),
        (PackedBits(), "<M8[s]"),
        (PackedBits(), "O"),
        (PackedBits(), [("a", "<i4")]),
    ],
)
def test_bits_that_items_do_not_have(stage: PackedBits, dtype: Any) -> None:
    with pytest.raises(FormatError, match="packbits"):
        stage.serialized_size(ChunkSpec((3,), np.dtype(dtype)))


@pytest.mark.parametrize("padding", ["first_byte", "last_byte"])
@pytest.mark.parametrize("claimed", [0, 1, 6, 8, 255])
def test_padding_that_lies(padding: Any, claimed: int) -> None:
    stage, spec = PackedBits(padding), ChunkSpec((9,), np.dtype(bool))
    packed = b"\xff\x01"
    stored = bytes([claimed]) + packed if padding == "first_byte" else packed + bytes([claimed])
    with pytest.raises(CorruptionError, match=f"packbits: {claimed} bits of padding, 7 are due"):
        CodecChain((), stage).decode(stored, spec)


def test_chunks_of_another_size() -> None:
    chain, spec = CodecChain((), PackedBits("first_byte")), ChunkSpec((9,), np.dtype(bool))
    for stored in (b"", b"\x07", b"\x07\xff", b"\x07\xff\x01\x00"):
        with pytest.raises(CorruptionError):
            chain.decode(stored, spec)


def test_the_registry_has_another_codec_of_the_name() -> None:
    from ingot.fields import FieldReader

    with pytest.raises(UnsupportedError):
        PackedBits.parse(FieldReader("packbits", {}))
