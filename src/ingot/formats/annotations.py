"""The annotations of the columns of a table, as a table's metadata hold them.

One attribute of the outermost table, ``x_columns``, has an object for each column whose type does
not say everything: the words of categories, the scale of decimals, a time zone, the place of a
column in an index. Columns of nested tables are named with dots. Programs that do not know the
attribute see the stored values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.fields import FieldReader, shown
from ingot.formats.zarr import fills
from ingot.logical_types import (
    Annotation,
    CategoryType,
    DateType,
    DecimalType,
    FixedBytesType,
    IndexLevel,
    LogicalType,
    TimeType,
    ZonedType,
    words_of,
)
from ingot.schema import ArraySchema, RaggedSchema

__all__ = ["KEY", "check", "joined", "pack", "parse", "without"]

KEY: Final = "x_columns"
"""The attribute that holds the annotations."""

_TEXT: Final = "utf8"
_MOST_WORD_BYTES: Final = 4 << 20
_LONGEST_ZONE: Final = 255
_MOST_LEVELS: Final = 64
_UNITS: Final = (("s", 1), ("ms", 1), ("us", 1), ("ns", 1))
_SIMPLE: Final[Mapping[str, LogicalType]] = {
    "time": TimeType(),
    "date": DateType(),
    "fixed_bytes": FixedBytesType(),
}


def parse(attrs: Mapping[str, Any], where: str) -> dict[str, Annotation]:
    """Return the annotations among the attributes of a table, by the names of columns.

    >>> parse({"x_columns": {"at": {"type": "timestamp", "zone": "UTC"}}}, "table")
    {'at': Annotation(type=ZonedType(zone='UTC'), level=None)}
    """
    claim = attrs.get(KEY)
    if claim is None:
        return {}
    if not isinstance(claim, dict):
        raise FormatError(f"{where}: {KEY} is {shown(claim)}, not an object")
    found: dict[str, Annotation] = {}
    for name, values in claim.items():
        place = f"{where}: {KEY} of column {shown(name)}"
        if not isinstance(values, dict):
            raise FormatError(f"{place} is {shown(values)}, not an object")
        found[name] = _parse_one(FieldReader(place, values))
    return found


def pack(notes: Mapping[str, Annotation]) -> dict[str, Any]:
    """Return the attribute that `parse` reads back, empty where nothing is to be said.

    >>> pack({"at": Annotation(ZonedType("UTC"))})
    {'x_columns': {'at': {'type': 'timestamp', 'zone': 'UTC'}}}
    """
    made = {name: packed for name, note in notes.items() if (packed := _pack_one(name, note))}
    return {KEY: made} if made else {}


def without(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes that users see.

    >>> without({"units": "m", "x_columns": {}})
    {'units': 'm'}
    """
    if KEY not in attrs:
        return attrs
    return {name: value for name, value in attrs.items() if name != KEY}


def check(name: str, note: Annotation, schema: ArraySchema | RaggedSchema, where: str) -> None:
    """Refuse an annotation that does not fit the column that is stored."""
    if note.type is None:
        return
    if isinstance(schema, ArraySchema):
        dtype, shape = schema.dtype, schema.shape[1:]
        if _fits(note.type, dtype, shape):
            return
        stored = f"{dtype} {shape}" if shape else str(dtype)
    else:
        stored = str(schema.kind)
    kind = type(note.type).__name__.removesuffix("Type").lower()
    raise CorruptionError(f"{where}: column {shown(name)} of {stored} cannot be of the type {kind}")


def joined(attributes: Sequence[Mapping[str, Any]], where: str) -> Mapping[str, Any]:
    """Return the attributes of tables that are parts of one: those of the first.

    Words may have been added in some parts. They are those of the part that has the most, and all
    others must begin with the same words.
    """
    first = attributes[0]
    if all(each.get(KEY) == first.get(KEY) for each in attributes):
        return first
    parts = [parse(each, where) for each in attributes]
    found = dict(parts[0])
    for part in parts[1:]:
        if part.keys() != found.keys():
            raise CorruptionError(f"{where}: the parts of the table have different {KEY}")
        found = {name: _longer(name, found[name], part[name], where) for name in found}
    return {**without(first), **pack(found)}


def _longer(name: str, first: Annotation, second: Annotation, where: str) -> Annotation:
    """Return the annotation that has more words, where the other has the first of them."""
    packed = _pack_one(name, first), _pack_one(name, second)
    words = [each.pop("words", []) for each in packed]
    short, long = sorted(words, key=len)
    if packed[0] != packed[1] or long[: len(short)] != short:
        raise CorruptionError(f"{where}: the parts of column {shown(name)} have different {KEY}")
    return second if len(words[1]) > len(words[0]) else first


def _parse_one(fields: FieldReader) -> Annotation:
    kind = fields.value("type", None)
    found: LogicalType | None = None
    try:
        if kind == "category":
            found = _parse_category(fields)
        elif kind == "decimal":
            precision = fields.integer("precision", low=1, high=38)
            found = DecimalType(precision, fields.integer("scale", low=-38, high=38))
        elif kind == "timestamp":
            found = _parse_zone(fields)
        elif kind is not None:
            found = _SIMPLE[fields.choice("type", tuple(_SIMPLE))]
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, FormatError | LimitError):
            raise
        raise FormatError(f"{fields.where}: {error}") from None
    level = None
    if fields.value("index", None) is not None:
        name = fields.value("name", None)
        if name is not None and not isinstance(name, str):
            raise fields.wrong("name", name, "a string or null")
        level = IndexLevel(fields.integer("index", low=0, high=_MOST_LEVELS), name)
    fields.finish()
    return Annotation(found, level)


def _parse_zone(fields: FieldReader) -> ZonedType:
    zone = fields.text("zone")
    if not 0 < len(zone) <= _LONGEST_ZONE or not zone.isprintable():
        raise fields.wrong("zone", zone, "the name of a time zone")
    return ZonedType(zone)


def _parse_category(fields: FieldReader) -> CategoryType:
    words = fields.value("words")
    if not isinstance(words, list):
        raise fields.wrong("words", words, "a list")
    spelling = fields.text("of", _TEXT)
    flags = fields.flag("ordered", False), fields.flag("fixed", False)
    if spelling != _TEXT:
        dtype = dtypes.parse(spelling, f"{fields.where}: of")
        if dtype.kind not in "biufmMS":
            raise fields.wrong("of", spelling, "a type of words")
        parsed = [fills.parse(word, dtype, f"{fields.where}: words") for word in words]
        return CategoryType(words_of(np.array(parsed, dtype)), *flags)
    for word in words:
        if not isinstance(word, str):
            raise fields.wrong("words", word, "text")
    return CategoryType(words_of(words), *flags)


def _pack_one(name: str, note: Annotation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = note.type
    if isinstance(kind, CategoryType):
        found = {"type": "category", "words": _pack_words(name, kind)}
        if not kind.is_text:
            found["of"] = dtypes.pack(kind.words.dtype)
        if kind.ordered:
            found["ordered"] = True
        if kind.fixed:
            found["fixed"] = True
    elif isinstance(kind, DecimalType):
        found = {"type": "decimal", "precision": kind.precision, "scale": kind.scale}
    elif isinstance(kind, ZonedType):
        found = {"type": "timestamp", "zone": kind.zone}
    elif kind is not None:
        found = {"type": next(word for word, each in _SIMPLE.items() if each == kind)}
    if note.level is not None:
        found |= {"index": note.level.number, "name": note.level.name}
    return found


def _pack_words(name: str, kind: CategoryType) -> list[Any]:
    if kind.is_text:
        words: list[Any] = kind.words.tolist()
        size = sum(len(word.encode()) for word in words) + 4 * len(words)
    else:
        words = [fills.pack(word, kind.words.dtype) for word in kind.words]
        size = len(words) * (4 + 2 * kind.words.dtype.itemsize)
    if size > _MOST_WORD_BYTES:
        raise LimitError(
            f"column {name!r}: {len(words)} words of categories take {size} bytes, the limit is "
            f"{_MOST_WORD_BYTES}; text holds any number of different words"
        )
    return words


def _fits(kind: LogicalType, dtype: DType, shape: tuple[int, ...]) -> bool:
    if isinstance(kind, DecimalType):
        return (
            dtype.kind == "i" and dtype.itemsize == 8 and shape == (() if kind.is_short else (2,))
        )
    if isinstance(kind, CategoryType):
        return dtype.kind == "i" and not shape
    if isinstance(kind, DateType):
        return dtype.kind == "M" and not shape and np.datetime_data(dtype) == ("ms", 1)
    if isinstance(kind, FixedBytesType):
        return dtype.kind == "S" and not shape
    timed = dtype.kind == ("M" if isinstance(kind, ZonedType) else "m")
    return timed and not shape and np.datetime_data(dtype) in _UNITS
