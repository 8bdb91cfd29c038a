"""Pickled metadata: what real pickles say, and that nothing else is ever done."""

import os
import pickle
import pickletools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import dtypes
from ingot.errors import FormatError, IngotError, LimitError, UnsafeError
from ingot.formats.zarr import pickled

PLAIN = {
    "shape": (70, 33),
    "chunks": (32, 16),
    "dtype": np.dtype("<i4"),
    "cname": b"blosclz",
    "clevel": 5,
    "shuffle": 1,
    "fill_value": None,
}


def dumped(**changes: Any) -> bytes:
    return pickle.dumps({**PLAIN, **changes}, protocol=0)


def parse(data: bytes) -> dict[str, Any]:
    return pickled.parse(data, "__zmeta__")


def test_a_plain_pickle() -> None:
    assert parse(dumped()) == {
        "shape": [70, 33],
        "chunks": [32, 16],
        "dtype": "<i4",
        "cname": b"blosclz",
        "clevel": 5,
        "shuffle": 1,
        "fill_value": None,
    }


DTYPES = [
    *("|b1", "|i1", "|u1", "<i4", ">i4", "<u8", ">f2", "<f4", "<f16", "<c8", ">c16"),
    *("S5", "S300", "<U4", ">U4", "V7", "<M8[ns]", ">M8[10us]", "<m8[25s]", "<M8[D]"),
    [("a", "<i4"), ("b", "S3"), ("c", ">f4")],
    [("a", "<i4"), ("b", [("x", "<f8"), ("y", "<M8[s]")])],
    [("a", "<i4", (2, 3)), ("b", "<f8", 4), ("é", "|u1")],
]


@pytest.mark.parametrize("claim", DTYPES, ids=str)
def test_types_are_those_that_were_pickled(claim: Any) -> None:
    dtype = np.dtype(claim)
    assert dtypes.parse(parse(dumped(dtype=dtype))["dtype"]) == dtype


def test_gaps_between_fields_stay() -> None:
    dtype = np.dtype("i1,i4,i2", align=True)
    assert dtypes.parse(parse(dumped(dtype=dtype))["dtype"]) == np.dtype(
        {
            "names": dtype.names,
            "formats": ["i1", "<i4", "<i2"],
            "offsets": [0, 4, 8],
            "itemsize": 12,
        }
    )


FILLS = [
    *(None, True, False, 0, -7, 2**63, 1.5, float("inf"), "text", "é\n", "", 1 + 2j),
    *(b"", b"ab\x00\xff", b"new\nline"),
    *(np.float64(2.5), np.int16(-3), np.bool_(True), np.complex64(1j), np.datetime64(5, "ns")),
    *(np.str_("ab"), np.bytes_(b"ab")),
]


@pytest.mark.parametrize("fill", FILLS, ids=repr)
def test_fill_values_are_those_that_were_pickled(fill: Any) -> None:
    found = parse(dumped(fill_value=fill))["fill_value"]
    assert found == fill
    if isinstance(fill, np.generic):
        assert found.dtype == fill.dtype


def test_shapes_of_numpy_integers() -> None:
    assert parse(dumped(shape=(np.int64(3), 4)))["shape"] == [3, 4]
    assert parse(dumped(shape=[3, 4]))["shape"] == [3, 4]


def test_pickles_of_python_2() -> None:
    data = b"(dp0\nS'shape'\np1\n(I3\nL4L\ntp2\nsS'cname'\np3\nS'a\\x00\\'\\n'\np4\ns."
    assert parse(data) == {"shape": [3, 4], "cname": b"a\x00'\n"}


class Caller:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


HOSTILE: list[tuple[bytes, type[IngotError]]] = [
    (dumped(fill_value=Caller(os.system, "true")), UnsafeError),
    (dumped(fill_value=Caller(eval, "1")), UnsafeError),
    (dumped(fill_value=Caller(getattr, "", "join")), UnsafeError),
    (b"cnumpy\nload\n(Vx\ntR.", UnsafeError),
    (b"cnumpy.core.multiarray\n_reconstruct\n(Vx\ntR.", UnsafeError),
    (b"cbuiltins\nbytes\n(I9999999999\ntR.", FormatError),
    (b"c_codecs\nencode\n(Vx\nVzlib\ntR.", FormatError),
    (b"c_codecs\nencode\n(V\\u1234\nVlatin1\ntR.", FormatError),
    # Other protocols, whose operations take memory before they have read a byte.
    (pickle.dumps(PLAIN, protocol=2), FormatError),
    (pickle.dumps(PLAIN, protocol=4), FormatError),
    (b"\x80\x05\x96\x00\x00\x00\x00\x00\x01\x00\x00.", FormatError),
    (b"Nr\xff\xff\xff\x7f.", FormatError),
    # Objects as items, types that lie about themselves.
    (dumped(dtype=np.dtype("i4,i4")).replace(b"I8\nI1\nI16", b"I7\nI1\nI16"), FormatError),
    (b"(dVfill_value\ncnumpy.core.multiarray\nscalar\n(Vi4\nVabc\ntRs.", FormatError),
    (b"(dVdtype\ncnumpy\ndtype\n(I5\nI0\nI1\ntRs.", FormatError),
    (b"(dVdtype\ncnumpy\ndtype\n(Vi4\nI0\nI1\ntR(I3\nV<\ntbs.", FormatError),
    (b"(dVdtype\ncnumpy\ndtype\n(Vi4\nI0\nI1\ntR(I3\nV?\nNNNI-1\nI-1\nI0\ntbs.", FormatError),
    (b"(dVdtype\ncnumpy\ndtype\n(VM8\nI0\nI1\ntR(I4\nV<\nNNNI-1\nI-1\nI0\nI5\ntbs.", FormatError),
    (b"(dVshape\n(Vx\nVy\nts.", FormatError),
    (b"(dVshape\n(dsVx.", FormatError),
    # Stacks and memories that are empty, and pickles that end.
    *((data, FormatError) for data in (b"", b".", b"(", b"(d", b"(dV", b"t.", b"s.", b"R.", b"b.")),
    *((data, FormatError) for data in (b"p0\n.", b"g0\n.", b"I\n.", b"Ix\n.", b"F1x\n.", b"Sx\n.")),
    *(
        (data, FormatError)
        for data in (b"(I1\nd.", b"(I1\nI2\nd.", b"I5\n.", b"(l.", b"Na.", b"Nb.")
    ),
    *((data, FormatError) for data in (b"I" + b"9" * 5000 + b"\n.", b"V\\u12\n.", b"S'\\q'\n.")),
    (b"(" * 100_000 + b"t" * 100_000 + b".", FormatError),
    (b"(dVshape\n" + b"(" * 50_000 + b"t" * 50_000 + b"s.", FormatError),
    (b"(dp0\nVshape\n(lp1\ng1\nasVa\ng0\ns.", FormatError),
    (b"#" * (pickled.LARGEST + 1), LimitError),
]


@pytest.mark.parametrize(("data", "error"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_pickles_are_refused(data: bytes, error: type[IngotError]) -> None:
    with pytest.raises(error, match="__zmeta__"):
        parse(data)


def test_a_type_used_again_and_again_is_no_bomb() -> None:
    dtype = np.dtype("u1")
    for _ in range(12):
        dtype = np.dtype([(f"f{n}", dtype) for n in range(4)])
    data = dumped(dtype=dtype)
    assert len(data) < pickled.LARGEST
    with pytest.raises(LimitError, match="4096 fields"):
        parse(data)


def test_a_type_inside_itself_is_refused() -> None:
    inner = b"(I3\nV|\nN(Va\nt(dVa\n(g9\nI0\ntsI4\nI1\nI0\ntb"
    with pytest.raises(IngotError):
        parse(b"(dVdtype\ncnumpy\ndtype\n(VV4\nI0\nI1\ntRp9\n" + inner + b"s.")


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), number=st.integers(0, 2))
def test_damaged_pickles_are_read_or_refused(seed: int, number: int) -> None:
    chance = random.Random(seed)
    source = dumped(dtype=np.dtype(DTYPES[-1 - number]), fill_value=np.float64(1.5))
    data = bytearray(source)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(data))
        action = chance.randrange(3)
        if action == 0:
            data[place] = chance.choice(
                b"(tdlasbpgcRVSINL.0123456789\n" + bytes([chance.randrange(256)])
            )
        elif action == 1:
            del data[place : place + chance.randrange(1, 9)]
        else:
            start = chance.randrange(len(source))
            data[place:place] = source[start : start + chance.randrange(1, 30)]
        if not data:
            return
    try:
        found = parse(bytes(data))
    except IngotError:
        return
    assert isinstance(found, dict)


def test_the_operations_are_those_of_protocol_0() -> None:
    used = {op.code.encode() for op, _, _ in pickletools.genops(dumped(dtype=np.dtype(DTYPES[-1])))}
    assert used - {b"."} <= set(pickled._STEPS)
    first = {op.code.encode("latin-1") for op in pickletools.opcodes if op.proto == 0}
    assert set(pickled._STEPS) <= first
