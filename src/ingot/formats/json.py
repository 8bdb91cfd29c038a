"""JSON documents: parsed strictly and within limits, packed deterministically.

This module limits the size, the depth and the numbers of a document before it is parsed, and
refuses what Python's parser accepts although JSON does not: a repeated key, NaN and infinities,
numbers beyond 64 bits. The meaning of keys is not its concern.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NoReturn

from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.fields import shown

__all__ = [
    "DEEPEST",
    "LARGEST",
    "check_values",
    "checked",
    "pack",
    "pack_around",
    "pack_compact",
    "pack_integers",
    "pack_line",
    "parse",
    "parse_object",
]

LARGEST: Final = 2**24
"""The largest size of a document, in bytes."""

DEEPEST: Final = 64
"""The largest number of lists and objects around a value."""

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1
_MOST_DIGITS: Final = 20
_MISSING: Final = object()
_PLACEHOLDER: Final = "\0the value of this member\0"
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.S)


def parse(data: bytes, where: str, *, allow_nan: bool = False) -> Any:
    """Return the value of a document; `where` names it in errors.

    Integers lie in the range of int64 or uint64. `allow_nan` accepts the words NaN, Infinity and
    -Infinity, which are not JSON but are written by older formats.

    >>> parse(b'{"shape": [3, 4]}', ".zarray")
    {'shape': [3, 4]}
    >>> parse(b'{"a": 1, "a": 2}', ".zattrs")
    Traceback (most recent call last):
    ingot.errors.FormatError: .zattrs: the key 'a' is repeated in one object
    >>> parse(b"", ".zarray")
    Traceback (most recent call last):
    ingot.errors.CorruptionError: .zarray: the document is empty
    """
    text = _text(data, where)
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(text, where)
    try:
        return (_LENIENT if allow_nan else _STRICT).decode(text)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{where}: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except _RefusedValue as error:
        raise error.kind(f"{where}: {error}") from None


def parse_object(data: bytes, where: str, *, allow_nan: bool = False) -> dict[str, Any]:
    """Return the value of a document that must be an object.

    >>> parse_object(b"[]", ".zattrs")
    Traceback (most recent call last):
    ingot.errors.FormatError: .zattrs: [] is no object
    """
    value = parse(data, where, allow_nan=allow_nan)
    if not isinstance(value, dict):
        raise FormatError(f"{where}: {shown(value)} is no object")
    return value


def pack(value: Any, where: str, *, allow_nan: bool = False, in_order: str | None = None) -> bytes:
    """Return a document: sorted keys, four spaces of indent, ASCII. `parse` reads it.

    A document that `parse` would refuse is refused with the same error. `in_order` is the end of
    the names of members in which the keys keep their order; the empty text stands for all.

    >>> print(pack({"b": 1, "a": [2]}, "attributes").decode())
    {
        "a": [
            2
        ],
        "b": 1
    }
    """
    style = partial(_indented, in_order=in_order)
    return _packed(value, where, style, allow_nan=allow_nan)


def pack_around(
    values: Mapping[str, Any],
    name: str,
    where: str,
    *,
    allow_nan: bool = False,
    in_order: str | None = None,
) -> tuple[bytes, bytes] | None:
    """Return the bytes that `pack` puts before and after the value of one member.

    They do not depend on the value. None when its position in the document is ambiguous. Used for
    documents that differ in one member only.

    >>> pack_around({"b": 1, "a": [2]}, "a", "attributes")
    (b'{\\n    "a": ', b',\\n    "b": 1\\n}')
    """
    packed = pack({**values, name: _PLACEHOLDER}, where, allow_nan=allow_nan, in_order=in_order)
    parts = packed.split(json.dumps(_PLACEHOLDER).encode())
    return (parts[0], parts[1]) if len(parts) == 2 else None


def pack_integers(numbers: Iterable[int]) -> bytes:
    """Return a list of integers in the spelling of `pack` for the value of a member.

    >>> head, tail = pack_around({"a": [], "b": 1}, "a", "attributes")
    >>> head + pack_integers([2, 3]) + tail == pack({"a": [2, 3], "b": 1}, "attributes")
    True
    """
    lines = ",\n        ".join(map(str, numbers))
    return f"[\n        {lines}\n    ]".encode("ascii") if lines else b"[]"


def pack_line(value: Any, where: str, *, allow_nan: bool = False) -> bytes:
    """Return a document on one line, with the keys in the order of the mapping. `parse` reads it.

    >>> pack_line({"b": 1, "a": [2]}, "meta/sizes")
    b'{"b": 1, "a": [2]}\\n'
    """
    return _packed(value, where, _line, allow_nan=allow_nan)


def pack_compact(value: Any, where: str, *, allow_nan: bool = False) -> bytes:
    """Return a document without spaces, with the keys in the order of the mapping.

    >>> pack_compact({"b": 1, "a": [2, 3]}, "metadata")
    b'{"b":1,"a":[2,3]}'
    """
    return _packed(value, where, _compact, allow_nan=allow_nan)


def check_values(value: Any, where: str) -> None:
    """Raise `FormatError` for a value that JSON cannot hold, such as NaN or an object of a program.

    Limits apply to whole documents, and are checked when one is packed.

    >>> check_values({"a": float("nan")}, "attributes")
    Traceback (most recent call last):
    ingot.errors.FormatError: attributes: cannot be written as JSON: Out of range float values...
    """
    try:
        _WITHOUT_NAN.encode(value)
    except RecursionError:
        raise _too_deep(where) from None
    except (TypeError, ValueError) as error:
        raise FormatError(f"{where}: cannot be written as JSON: {error}") from None


def checked(data: bytes, where: str) -> bytes:
    """Return a document that is made of packed parts, unless it is too large to be parsed.

    >>> checked(b"[]", "zarr.json")
    b'[]'
    """
    if len(data) > LARGEST:
        raise LimitError(f"{where}: {len(data)} bytes, the limit is {LARGEST}")
    return data


def _packed(
    value: Any, where: str, style: Callable[[Any, json.JSONEncoder], str], *, allow_nan: bool
) -> bytes:
    encoder = _WITH_NAN if allow_nan else _WITHOUT_NAN
    try:
        try:
            text = style(value, encoder)
        except RecursionError:
            encoder.encode(value)  # Raises ValueError for a value that contains itself.
            raise
    except RecursionError:
        raise _too_deep(where) from None
    except (TypeError, ValueError) as error:
        raise FormatError(f"{where}: cannot be written as JSON: {error}") from None
    data = text.encode("ascii")
    # What is nested around the value counts too: only the document shows whether it can be read.
    parse(data, where, allow_nan=allow_nan)
    return data


def _line(value: Any, encoder: json.JSONEncoder) -> str:
    return encoder.encode(value) + "\n"


def _compact(value: Any, encoder: json.JSONEncoder) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=encoder.allow_nan)


def _indented(
    value: Any, encoder: json.JSONEncoder, start: str = "\n", in_order: str | None = None
) -> str:
    """Return the text of ``json.dumps(value, indent=4, sort_keys=True)``.

    The encoder of the standard library indents in generators, which takes several times as long.
    `start` begins the lines around the value; `in_order` as in `pack`.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is int:
        return int.__repr__(value)
    inner = start + "    "
    if kind is list and value:
        items = [inner + _indented(item, encoder, inner, in_order) for item in value]
        return f"[{','.join(items)}{start}]"
    if kind is dict and value:
        try:
            members: list[str] = []
            for key in value if in_order == "" else sorted(value):
                below = "" if in_order is not None and key.endswith(in_order) else in_order
                text = _indented(value[key], encoder, inner, below)
                members.append(f"{inner}{encode_basestring_ascii(key)}: {text}")
        except (TypeError, AttributeError):
            pass  # A key is no text, or a value is none of JSON: the library says what is wrong.
        else:
            return f"{{{','.join(members)}{start}}}"
    text = encoder.encode(value)
    # Kinds other than those above come from callers of plug-ins: leave them to the library.
    if text[0] in "[{" and len(text) > 2:
        nan, sort = encoder.allow_nan, in_order != ""
        text = json.dumps(value, indent=4, sort_keys=sort, allow_nan=nan).replace("\n", start)
    return text


_WITH_NAN: Final = json.JSONEncoder(allow_nan=True)
_WITHOUT_NAN: Final = json.JSONEncoder(allow_nan=False)


class _RefusedValue(Exception):
    """Raised by the hooks of the decoder for a value that is refused."""

    def __init__(self, kind: type[FormatError] | type[LimitError], text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _text(data: bytes, where: str) -> str:
    checked(data, where)
    if not data.strip(b"\x00 \t\r\n"):
        # A power cut leaves such a file when its directory reached the disk and its bytes did not.
        state = "empty" if not data.strip() else f"{len(data)} zeros"
        raise CorruptionError(f"{where}: the document is {state}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: not UTF-8 from byte {error.start} on") from None


def _check_depth(text: str, where: str) -> None:
    # Python's parser recurses at each bracket, so brackets are counted first.
    depth = 0
    for match in _BRACKETS.finditer(text):
        bracket = match.group()
        if bracket in "[{":
            depth += 1
            if depth > DEEPEST:
                raise _too_deep(where)
        elif bracket in "]}":
            depth -= 1


def _too_deep(where: str) -> LimitError:
    return LimitError(f"{where}: lists and objects are nested more than {DEEPEST} deep")


def _parse_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, _ in pairs if found.pop(key, _MISSING) is _MISSING)
        raise _RefusedValue(FormatError, f"the key {shown(twice)} is repeated in one object")
    return found


def _parse_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS or not _LOWEST <= (value := int(digits)) <= _HIGHEST:
        raise _RefusedValue(LimitError, f"the integer {shown(digits)} is beyond 64 bits")
    return value


def _parse_number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _RefusedValue(LimitError, f"the number {shown(digits)} is beyond 64 bits")
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise _RefusedValue(FormatError, f"{word} is no JSON value")


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_parse_pairs,
    parse_int=_parse_integer,
    parse_float=_parse_number,
    parse_constant=_refuse_constant,
)
_LENIENT: Final = json.JSONDecoder(
    object_pairs_hook=_parse_pairs,
    parse_int=_parse_integer,
    parse_float=_parse_number,
)
