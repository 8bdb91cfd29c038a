"""Casts and scales, held against exact fractions."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingot.codecs.codec import ChunkSpec
from ingot.codecs.numeric import CastValue, ScaleOffset
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.fields import FieldReader

ml_dtypes = pytest.importorskip("ml_dtypes")

INTEGERS = ["i1", "u1", "<i2", ">u2", "<i4", "u4", "<i8", ">u8", "int4", "uint4", "int2", "uint2"]
FLOATS = [
    *("<f2", ">f4", "<f8", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn"),
    *("float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn"),
    "float4_e2m1fn",
]
ROUNDINGS = [
    *("nearest-even", "nearest-away", "towards-zero"),
    *("towards-positive", "towards-negative"),
]


def kind_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype) if dtype.isbuiltin == 2 else np.iinfo(dtype)
    return int(info.min), int(info.max)


def is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or "int" in dtype.type.__name__


@st.composite
def items(draw: st.DrawFn, dtype: np.dtype[Any]) -> Any:
    """Draw an item that is finite, often one at which something changes."""
    if is_integer(dtype):
        low, high = bounds(dtype)
        near = [2**power + step for power in range(65) for step in (-1, 0, 1)]
        edges = [n for n in (*near, *(-n for n in near)) if low <= n <= high]
        number: Any = draw(st.integers(low, high) | st.sampled_from(edges))
        return np.array(number).astype(dtype)
    halves = st.integers(-600, 600).map(lambda n: n / 2)
    with np.errstate(all="ignore"):
        item = np.array(draw(st.floats(allow_nan=False) | halves)).astype(dtype)
    return item if np.isfinite(item.astype(float)) else np.zeros((), dtype)


def exactly(item: Any) -> Fraction:
    return Fraction(int(item)) if is_integer(item.dtype) else Fraction(float(item))


def whole_number(value: Fraction, rounding: str) -> int:
    """Return a fraction rounded to an integer, by the definition of each way to do it."""
    floor = math.floor(value)
    rest = value - floor
    if rounding == "towards-negative" or rest == 0:
        return floor
    if rounding == "towards-positive":
        return floor + 1
    if rounding == "towards-zero":
        return floor if value > 0 else floor + 1
    if rest == Fraction(1, 2):
        even = floor if floor % 2 == 0 else floor + 1
        away = floor + 1 if value > 0 else floor
        return even if rounding == "nearest-even" else away
    return floor if rest < Fraction(1, 2) else floor + 1


def rounded(value: Fraction, dtype: np.dtype[Any], rounding: str) -> Fraction:
    """Return a fraction rounded to the digits of a float, however large it is."""
    info = ml_dtypes.finfo(dtype)
    exponent = -10_000
    if value:
        exponent = math.floor(math.log2(abs(value)))
        exponent += (abs(value) >= Fraction(2) ** (exponent + 1)) - (
            abs(value) < Fraction(2) ** exponent
        )
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    return whole_number(value / unit, rounding) * unit


@given(
    source=st.sampled_from(INTEGERS + FLOATS),
    target=st.sampled_from(INTEGERS),
    rounding=st.sampled_from(ROUNDINGS),
    rule=st.sampled_from([None, "clamp", "wrap"]),
    data=st.data(),
)
def test_casts_to_integers(
    source: str, target: str, rounding: Any, rule: Any, data: st.DataObject
) -> None:
    item, dtype = data.draw(items(kind_of(source))), kind_of(target)
    low, high = bounds(dtype)
    expected = whole_number(exactly(item), rounding)
    stage = CastValue(dtype, rounding, rule)
    if rule is None and not low <= expected <= high:
        with pytest.raises(FormatError, match="not a value of type"):
            stage.encode(item.reshape(1))
        return
    if rule == "clamp":
        expected = min(max(expected, low), high)
    elif rule == "wrap":
        expected = (expected - low) % (high - low + 1) + low
    found = stage.encode(item.reshape(1))
    assert found.dtype == dtype
    assert int(found[0]) == expected


@given(
    source=st.sampled_from(INTEGERS + FLOATS),
    target=st.sampled_from(FLOATS),
    rounding=st.sampled_from(ROUNDINGS),
    rule=st.sampled_from([None, "clamp"]),
    data=st.data(),
)
def test_casts_to_floats(
    source: str, target: str, rounding: Any, rule: Any, data: st.DataObject
) -> None:
    item, dtype = data.draw(items(kind_of(source))), kind_of(target)
    expected = rounded(exactly(item), dtype, rounding)
    highest = Fraction(float(ml_dtypes.finfo(dtype).max))
    stage = CastValue(dtype, rounding, rule)
    beyond = abs(expected) > highest
    if rule is None and beyond:
        with pytest.raises(FormatError, match="not a value of type"):
            stage.encode(item.reshape(1))
        return
    stored = stage.encode(item.reshape(1))
    assert stored.dtype == dtype
    found = stored[0]
    if beyond and np.isinf(np.array(np.inf).astype(dtype).astype(float)):
        assert float(found) == math.copysign(math.inf, expected)
    else:
        limit = highest if expected > 0 else -highest
        assert Fraction(float(found)) == (limit if beyond else expected)


def test_powers_of_two_have_neither_zero_nor_sign() -> None:
    dtype = np.dtype(ml_dtypes.float8_e8m0fnu)
    stage = CastValue(dtype, out_of_range="clamp")
    found = stage.encode(np.array([1.0, 1.4, 1.6, 3.0, 0.0, -5.0, 1e300]))
    assert found.astype(float).tolist() == [1, 1, 2, 4, 2.0**-127, 2.0**-127, 2.0**127]
    with pytest.raises(FormatError):
        CastValue(dtype).encode(np.array([0.0]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number(value: float) -> None:
    array = np.array([1.0, value])
    with pytest.raises(FormatError, match=f"cast_value: {value} is not a value of type int8"):
        CastValue(np.dtype("i1"), out_of_range="clamp").encode(array)
    narrow = np.dtype(ml_dtypes.float6_e2m3fn)
    with pytest.raises(FormatError):
        CastValue(narrow, out_of_range="clamp").encode(array)
    np.testing.assert_array_equal(CastValue(np.dtype("f4")).encode(array), array.astype("f4"))
    signed = CastValue(np.dtype("f4")).encode(np.array([-0.0, 0.0]))
    assert np.signbit(signed).tolist() == [True, False]


def test_items_that_stand_for_others_come_first() -> None:
    pairs = ((np.nan, 0), (np.inf, 255), (300.0, 1), (300.0, 2))
    back = ((np.uint8(0), np.float64(np.nan)), (np.uint8(255), np.float64(np.inf)))
    stage = CastValue(np.dtype("u1"), encoding=pairs, decoding=back)
    values = np.array([[np.nan, np.inf], [300.0, 7.0]])
    stored = stage.encode(values)
    assert stored.tolist() == [[0, 255], [1, 7]]
    found = stage.decode(stored, ChunkSpec((2, 2), np.dtype("f8")))
    np.testing.assert_array_equal(found, [[np.nan, np.inf], [1.0, 7.0]])


def test_what_is_stored_must_be_of_the_old_type() -> None:
    stage = CastValue(np.dtype("<i8"), out_of_range="wrap")
    spec = ChunkSpec((1,), np.dtype("i1"))
    assert stage.decode(np.array([300]), spec).tolist() == [44]
    with pytest.raises(CorruptionError, match="cast_value: 300 is not a value of type int8"):
        CastValue(np.dtype("<i8")).decode(np.array([300]), spec)
    # Nothing wraps around among floats.
    with pytest.raises(CorruptionError, match="not a value of type float16"):
        stage.decode(np.array([10**6]), ChunkSpec((1,), np.dtype("f2")))


@pytest.mark.parametrize(
    ("stage", "dtype", "match"),
    [
        (CastValue(np.dtype("?")), "f8", "bool are not real numbers"),
        (CastValue(np.dtype("f4")), "S3", "not real numbers"),
        (CastValue(np.dtype("f4")), "c8", "not real numbers"),
        (CastValue(np.dtype("f4")), "O", "not real numbers"),
        (CastValue(np.dtype("f4"), out_of_range="wrap"), "f8", "only integers wrap"),
        (ScaleOffset(1, 2), "M8[s]", "not real numbers"),
        (ScaleOffset(1, 0), "f8", "lose the data"),
        (ScaleOffset(1.5), "i4", "are not integers"),
    ],
)
def test_what_cannot_be_done(stage: Any, dtype: str, match: str) -> None:
    with pytest.raises(FormatError, match=match):
        stage.encoded(ChunkSpec((3,), np.dtype(dtype)))


def test_fill_values_go_the_same_way() -> None:
    spec = ChunkSpec((3,), np.dtype("f8"), np.float64(3.0))
    assert CastValue(np.dtype("u1")).encoded(spec).fill == 3
    assert ScaleOffset(1.0, 2.0).encoded(spec).fill == 4.0
    with pytest.raises(FormatError, match=r"the fill value 2\.5 comes back as 2\.0"):
        CastValue(np.dtype("u1")).encoded(ChunkSpec((3,), np.dtype("f8"), 2.5))
    with pytest.raises(FormatError, match=r"-1\.0 is not a value"):
        CastValue(np.dtype("u1")).encoded(ChunkSpec((3,), np.dtype("f8"), -1.0))
    whole = CastValue(np.dtype("u1"), encoding=((np.nan, 9),), decoding=((9, np.nan),))
    assert whole.encoded(ChunkSpec((3,), np.dtype("f8"), np.nan)).fill == 9


@given(
    name=st.sampled_from(INTEGERS),
    data=st.data(),
    numbers=st.lists(st.integers(-(2**64), 2**64), max_size=5),
)
@example("<i8", None, [-(2**63)])
def test_scales_of_integers_are_exact(
    name: str, data: st.DataObject | None, numbers: list[int]
) -> None:
    dtype = kind_of(name)
    low, high = bounds(dtype)
    values = [min(max(number, low), high) for number in numbers]
    inside = st.integers(low, high)
    offset = data.draw(inside) if data else 0
    scale = data.draw(inside.filter(bool)) if data else -1
    stage, array = ScaleOffset(offset, scale), np.array(values, object).astype(dtype)
    shifted = [value - offset for value in values]
    expected = [value * scale for value in shifted]
    if all(low <= number <= high for number in (*shifted, *expected)):
        stored = stage.encode(array)
        assert [int(number) for number in stored] == expected
        found = stage.decode(stored, ChunkSpec(array.shape, dtype))
        assert [int(number) for number in found] == values
    else:
        with pytest.raises(FormatError, match="not a value of type"):
            stage.encode(array)
    divided = [divmod(value, scale) for value in values]
    restored = [quotient + offset for quotient, _ in divided]
    quotients = [quotient for quotient, _ in divided]
    fits = all(low <= number <= high for number in (*quotients, *restored))
    if fits and not any(rest for _, rest in divided):
        found = stage.decode(array, ChunkSpec(array.shape, dtype))
        assert [int(number) for number in found] == restored
    else:
        with pytest.raises(CorruptionError):
            stage.decode(array, ChunkSpec(array.shape, dtype))


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", "bfloat16"])
def test_scales_of_floats_are_rounded_as_their_type_is(dtype: str) -> None:
    kind = kind_of(dtype)
    array = np.array([0.1, 100.7, -3.0, np.nan, np.inf]).astype(kind)
    offset, scale = np.array(5).astype(kind), np.array(0.1).astype(kind)
    stage = ScaleOffset(5, 0.1)
    stored = stage.encode(array)
    assert stored.dtype == kind
    expected = ((array - offset).astype(kind) * scale).astype(kind)
    assert stored.tobytes() == expected.tobytes()
    found = stage.decode(stored, ChunkSpec(array.shape, kind))
    assert found.tobytes() == ((stored / scale).astype(kind) + offset).astype(kind).tobytes()


@pytest.mark.parametrize("stage", [CastValue, ScaleOffset])
def test_older_versions_do_not_have_them(stage: Any) -> None:
    with pytest.raises(UnsupportedError):
        stage.parse(FieldReader("x", {}))
