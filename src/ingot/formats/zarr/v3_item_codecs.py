"""Codecs of Zarr version 3 whose configuration speaks of items: of their types, bits and values.

Knows how `packbits`, `cast_value`, `scale_offset` and `reshape` are spelled. Refuses to know how
they work, and in which order codecs may stand.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from ingot.codecs.bits import PackedBits, Padding
from ingot.codecs.codec import ChunkSpec, Stage
from ingot.codecs.filters import Reshape
from ingot.codecs.numeric import CastValue, OutOfRange, Pairs, Rounding, ScaleOffset
from ingot.dtypes import DType
from ingot.errors import FormatError
from ingot.fields import FieldReader
from ingot.formats.zarr import v3_fills, v3_types

__all__ = ["PARSERS", "configuration"]

_PADDINGS: Final[tuple[Padding, ...]] = get_args(Padding)
_ROUNDINGS: Final[tuple[Rounding, ...]] = get_args(Rounding)
_RULES: Final[tuple[OutOfRange, ...]] = get_args(OutOfRange)
_MOST_PAIRS: Final = 2**16
_MOST_BITS: Final = 64


def configuration(stage: Stage) -> dict[str, Any] | None:
    """Return how a stage is configured in a document; None for one that is not of this kind.

    >>> configuration(PackedBits("first_byte", last_bit=11))
    {'padding_encoding': 'first_byte', 'last_bit': 11}
    >>> configuration(Reshape(((0, 1), -1)))
    {'shape': [[0, 1], -1]}
    """
    if isinstance(stage, Reshape):
        return {"shape": [list(axis) if isinstance(axis, tuple) else axis for axis in stage.shape]}
    if isinstance(stage, PackedBits):
        bits = {"first_bit": stage.first_bit, "last_bit": stage.last_bit}
        given = {key: bit for key, bit in bits.items() if bit is not None}
        return {"padding_encoding": stage.padding, **given}
    if isinstance(stage, ScaleOffset):
        return {"offset": _spelled(stage.offset), "scale": _spelled(stage.scale)}
    return _packed_cast(stage) if isinstance(stage, CastValue) else None


def _packed_cast(stage: CastValue) -> dict[str, Any]:
    values: dict[str, Any] = {
        "data_type": v3_types.pack(stage.dtype),
        "rounding": stage.rounding,
    }
    if stage.out_of_range is not None:
        values["out_of_range"] = stage.out_of_range
    maps = {
        key: [[_spelled(item), _spelled(other)] for item, other in pairs]
        for key, pairs in (("encode", stage.encoding), ("decode", stage.decoding))
        if pairs
    }
    return {**values, "scalar_map": maps} if maps else values


def _spelled(item: Any) -> Any:
    """Return a number as documents spell it, which depends on the type of it."""
    if isinstance(item, float):
        item = v3_fills.pack(item, v3_types.parse("float64"))
    return v3_fills.pack(item, item.dtype) if hasattr(item, "dtype") else item


def _parse_packed(claims: FieldReader, spec: ChunkSpec) -> PackedBits:
    padding = claims.choice("padding_encoding", _PADDINGS, "none")
    first, last = (
        None if claims.value(key, None) is None else claims.integer(key, high=_MOST_BITS)
        for key in ("first_bit", "last_bit")
    )
    claims.finish()
    return PackedBits(padding, first, last)


def _parse_reshape(claims: FieldReader, spec: ChunkSpec) -> Reshape:
    return Reshape.parse(claims)


def _parse_scale(claims: FieldReader, spec: ChunkSpec) -> ScaleOffset:
    ScaleOffset().encoded(ChunkSpec(spec.shape, spec.dtype))  # Are they numbers at all?
    offset, scale = (
        v3_fills.parse(claims.value(key, default), spec.dtype, f"{claims.where}: {key}")
        for key, default in (("offset", 0), ("scale", 1))
    )
    claims.finish()
    return ScaleOffset(offset, scale)


def _parse_cast(claims: FieldReader, spec: ChunkSpec) -> CastValue:
    dtype = v3_types.parse(claims.value("data_type"), f"{claims.where}: data_type")
    rounding = claims.choice("rounding", _ROUNDINGS, "nearest-even")
    rule = None
    if claims.value("out_of_range", None) is not None:
        rule = claims.choice("out_of_range", _RULES)
    maps = FieldReader(f"{claims.where}: scalar_map", claims.mapping("scalar_map") or {})
    encoding = _parse_pairs(maps, "encode", spec.dtype, dtype)
    decoding = _parse_pairs(maps, "decode", dtype, spec.dtype)
    maps.finish()
    claims.finish()
    return CastValue(dtype, rounding, rule, encoding, decoding)


def _parse_pairs(maps: FieldReader, key: str, source: DType, target: DType) -> Pairs:
    found = maps.value(key, None)
    if found is None:
        return ()
    where = f"{maps.where}: {key}"
    if not isinstance(found, list) or len(found) > _MOST_PAIRS:
        raise maps.wrong(key, found, f"a list of at most {_MOST_PAIRS} pairs")
    pairs = []
    for pair in found:
        if not isinstance(pair, list) or len(pair) != 2:
            raise FormatError(f"{where}: {pair!r} is no pair")
        # Only here is the sign of what is above all numbers written by some.
        item, other = ("Infinity" if each == "+Infinity" else each for each in pair)
        pairs.append((v3_fills.parse(item, source, where), v3_fills.parse(other, target, where)))
    return tuple(pairs)


PARSERS: Final[Mapping[str, Callable[[FieldReader, ChunkSpec], Stage]]] = {
    "packbits": _parse_packed,
    "reshape": _parse_reshape,
    "scale_offset": _parse_scale,
    "cast_value": _parse_cast,
}
"""What reads the configuration of a codec, for arrays of a spec, by its name."""
