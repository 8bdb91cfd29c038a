"""The metadata of a file of variable-length items: a JSON object, and spaces up to its room.

`dtype` says what an item is: "bytes", "utf8" ("varchar" is read as well), "json", or the type of
the numbers of a row. `shape` is the number of items, in a list. `nulls` allows items that are null.
`reserve` is the room behind each pack, in bytes or as a fraction. `user` has the attributes.
Three keys are Ingot's own: `x_codec` (how new chunks are compressed), `x_pack` (about how many
bytes of items a pack has) and `x_dead` (how many bytes no entry of the table reaches). Other keys
are kept as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ingot import dtypes
from ingot.codecs.codec import Buffer
from ingot.codecs.compressors import Blosc
from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader, shown
from ingot.formats import json
from ingot.formats.bloscpack.header import LARGEST_CHUNK
from ingot.formats.packs import default_codec
from ingot.ragged_array import BYTES, UTF8, ItemKind

__all__ = ["PACK_BYTES", "Reserve", "VarlenMetadata", "room_for"]

PACK_BYTES: Final = 1 << 16
"""About how many bytes of items a pack has, unless the file says otherwise."""

Reserve = int | float
"""The room behind each pack: a number of bytes, or a fraction of the pack."""

_WHERE: Final = "varlen metadata"
_ALIAS: Final = "varchar"
_CODEC: Final = "x_codec"
_PACK: Final = "x_pack"
_DEAD: Final = "x_dead"
_LEAST_ROOM: Final = 64
_MOST_ROOM: Final = 4096


@dataclass(frozen=True, slots=True)
class VarlenMetadata:
    """What the metadata say; `others` are the keys without a meaning here.

    >>> made = VarlenMetadata(UTF8, 3, attrs={"unit": "m"})
    >>> VarlenMetadata.parse(made.pack(200)) == made
    True
    >>> VarlenMetadata.parse(b'{"dtype": "varchar", "shape": [1024], "others": []}').others
    {'others': []}
    """

    kind: ItemKind = BYTES
    length: int | None = None
    """The number of items; None where the metadata do not say."""
    nulls: bool = False
    codec: Blosc = field(default_factory=lambda: Blosc(shuffle=0))
    pack_bytes: int = PACK_BYTES
    reserve: Reserve = 0
    dead: int = 0
    """The bytes that no entry of the table reaches, as far as writers counted them."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Buffer) -> "VarlenMetadata":
        """Return what the bytes between header and table say.

        >>> VarlenMetadata.parse(b'{"dtype": "tree"}')
        Traceback (most recent call last):
        ingot.errors.FormatError: varlen metadata: dtype: 'tree' is not a type string
        """
        if len(data) > json.LARGEST:
            raise LimitError(f"{_WHERE}: {len(data)} bytes, the limit is {json.LARGEST}")
        values = json.parse_object(bytes(data), _WHERE)
        fields = FieldReader(_WHERE, values)
        kind = _parse_kind(fields.value("dtype", "bytes"))
        length = None
        if "shape" in values:
            shape = fields.integers("shape", low=0)
            if len(shape) != 1:
                raise fields.wrong("shape", list(shape), "a list of one length")
            length = shape[0]
        codec = default_codec(kind)
        if (stated := fields.mapping(_CODEC)) is not None:
            itemsize = 1 if kind.item is None else kind.item.itemsize
            codec = Blosc.parse(FieldReader(f"{_WHERE}: {_CODEC}", stated)).bind(itemsize)
        user = fields.value("user", {})
        if not isinstance(user, dict):
            raise fields.wrong("user", user, "an object")
        return cls(
            kind,
            length,
            fields.flag("nulls", False),
            codec,
            fields.integer(_PACK, PACK_BYTES, low=1, high=LARGEST_CHUNK),
            check_reserve(fields.value("reserve", 0)),
            fields.integer(_DEAD, 0),
            user,
            {key: value for key, value in values.items() if key not in _KNOWN},
        )

    def pack(self, room: int | None = None) -> bytes:
        """Return the bytes that `parse` reads, with spaces up to `room`.

        Without a room they get that of `room_for`. `LimitError` for a room that is too small.
        """
        text = self.text()
        room = room_for(len(text)) if room is None else room
        if len(text) > room:
            raise LimitError(f"{_WHERE}: {len(text)} bytes in a room of {room}")
        return text.ljust(room)

    def text(self) -> bytes:
        """Return the JSON object without spaces behind it."""
        values: dict[str, Any] = {"dtype": _spelled(self.kind)}
        if self.length is not None:
            values["shape"] = [self.length]
        if self.nulls:
            values["nulls"] = True
        if self.reserve:
            values["reserve"] = self.reserve
        config = self.codec.config()
        del config["id"]
        values[_CODEC] = config
        if self.pack_bytes != PACK_BYTES:
            values[_PACK] = self.pack_bytes
        if self.dead:
            values[_DEAD] = self.dead
        values |= self.others
        if self.attrs:
            values["user"] = dict(self.attrs)
        return json.pack_compact(values, _WHERE)


_KNOWN: Final = ("dtype", "shape", "nulls", "reserve", "user", _CODEC, _PACK, _DEAD)


def room_for(size: int) -> int:
    """Return the room for a document of `size` bytes: it may grow, and is rewritten in place.

    >>> room_for(30), room_for(1000), room_for(10_000)
    (94, 2000, 14096)
    """
    return size + min(max(size, _LEAST_ROOM), _MOST_ROOM)


def check_reserve(claim: object) -> Reserve:
    """Return the room behind each pack, or raise `FormatError`.

    >>> check_reserve(-1)
    Traceback (most recent call last):
    ingot.errors.FormatError: varlen metadata: reserve is -1, not bytes or a fraction from 0 on
    """
    whole = type(claim) is int and 0 <= claim <= LARGEST_CHUNK
    part = type(claim) is float and 0 <= claim <= 1
    if not whole and not part:
        raise FormatError(f"{_WHERE}: reserve is {shown(claim)}, not bytes or a fraction from 0 on")
    assert isinstance(claim, int | float)
    return claim


def _spelled(kind: ItemKind) -> str:
    return kind.name if kind.item is None else kind.item.str


def _parse_kind(spelling: object) -> ItemKind:
    if spelling == _ALIAS:
        return UTF8
    if isinstance(spelling, str) and spelling in ("bytes", "utf8", "json"):
        return ItemKind(spelling)
    if not isinstance(spelling, str):
        raise FormatError(f"{_WHERE}: dtype is {shown(spelling)}, not a string")
    dtype = dtypes.parse(spelling, f"{_WHERE}: dtype")
    if dtypes.is_variable(dtype) or not dtype.itemsize:
        raise UnsupportedError(f"{_WHERE}: dtype {spelling}: rows of items of no fixed size")
    return ItemKind("list", dtype)
