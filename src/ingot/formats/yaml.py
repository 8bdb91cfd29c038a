"""YAML documents: parsed strictly and within limits, packed so that people can edit them.

This module accepts the plain part of YAML: mappings with text as keys, lists, and scalars of the
core schema (null, true and false, integers of 64 bits, floats, text). Tags, aliases, merge keys and
repeated keys are refused. A `Document` keeps its text: when some of its values change, comments and
order stay where they do not. The meaning of keys is not the concern of this module.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ingot._lazy import deferred
from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.fields import shown

if TYPE_CHECKING:
    import yaml
else:
    # Only datasets with YAML documents need it.
    yaml = deferred("yaml")

__all__ = ["DEEPEST", "LARGEST", "Document", "pack", "parse"]

LARGEST: Final = 2**24
"""The largest size of a document, in bytes."""

DEEPEST: Final = 64
"""The largest number of lists and mappings around a value."""

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1
_INDENT: Final = "  "
_MOST_PARSED: Final = 256

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.A)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.A)
_INFINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN: Final = frozenset({".nan", ".NaN", ".NAN"})
# Text that every reader of YAML takes for text, also one of version 1.1.
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./<>|-]*", re.A)
# What cannot stand for itself in double quotes, or cannot be seen there.
_SPECIAL: Final = re.compile(
    r'["\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\U00010000-\U0010ffff]'
)
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"})


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a document whose outermost value is a mapping, and its text.

    >>> document = Document.parse(b"shape: [3]  # rows\\norder: C\\n", "meta/storage")
    >>> document.values
    {'shape': [3], 'order': 'C'}
    >>> document.changed({"shape": [3], "order": "F"}).text
    b'shape: [3]  # rows\\norder: F\\n'
    """

    values: Mapping[str, Any]
    text: bytes
    where: str

    @classmethod
    def parse(cls, text: bytes, where: str) -> "Document":
        """Return the document in a text; `where` names it in errors."""
        values = parse(text, where)
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise FormatError(f"{where}: {shown(values)} is no mapping")
        return cls(values, text, where)

    def changed(self, values: Mapping[str, Any]) -> "Document":
        """Return the document with other values.

        The lines of a member whose value stays the same are kept as they are, with the comments
        around them. New members come last.
        """
        if _same(dict(values), self.values):
            return self
        text = self.text.decode()
        lines = _member_lines(text, self.where) if values else None
        if lines is None:
            packed = pack(values, self.where)
        else:
            packed = _joined(text, lines, self.values, values, self.where)
        # What is written must be read back, whatever the text around it was.
        if not _same(parse(packed, self.where), dict(values)):
            packed = pack(values, self.where)
        return Document(dict(values), packed, self.where)


def parse(text: bytes, where: str) -> Any:
    """Return the value of a document; `where` names it in errors.

    >>> parse(b"shape: [3, 4]\\nfill: 1.5\\n", "meta/storage")
    {'shape': [3, 4], 'fill': 1.5}
    >>> parse(b"a: !!python/name:os.system ''", "meta/storage")
    Traceback (most recent call last):
    ingot.errors.FormatError: meta/storage: line 1: tags are refused
    """
    value = _parsed(bytes(text), where)
    return _copied(value)


def pack(value: Any, where: str) -> bytes:
    """Return a document that `parse` reads back: mappings by lines, lists in brackets.

    >>> print(pack({"shape": [3, 4], "compression": {"level": 5}}, "meta/storage").decode(), end="")
    shape: [3, 4]
    compression:
      level: 5
    """
    if not isinstance(value, Mapping):
        raise FormatError(f"{where}: {shown(value)} is no mapping")
    _check(value, where, 0)
    text = "".join(_lines(value, "")) if value else "{}\n"
    packed = text.encode()
    if len(packed) > LARGEST:
        raise LimitError(f"{where}: {len(packed)} bytes, the most is {LARGEST}")
    return packed


# Opening reads the same few documents again and again.
@lru_cache(maxsize=_MOST_PARSED)
def _parsed(text: bytes, where: str) -> Any:
    if len(text) > LARGEST:
        raise LimitError(f"{where}: more than {LARGEST} bytes")
    if not text.strip():
        raise CorruptionError(f"{where}: the document is empty")
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: byte {error.start} is no UTF-8") from None
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(where)
    try:
        for event in yaml.parse(decoded, Loader=loader):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        said = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise FormatError(f"{where}: {place}{said}") from None
    return builder.finished()


class _Builder:
    """Makes a value of the events of a parser, without recursion."""

    __slots__ = ("_documents", "_keys", "_open", "_value", "_where")

    def __init__(self, where: str) -> None:
        self._where = where
        self._open: list[Any] = []
        self._keys: list[str | None] = []
        self._documents = 0
        self._value: Any = None

    def take(self, event: Any) -> None:
        """Take the next event."""
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self._refused(event, "a second document is refused")
        elif kind == "AliasEvent":
            raise self._refused(event, "aliases are refused")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._keys.pop()
            value = self._open.pop()
            if not self._open:
                self._value = value
        elif kind in ("MappingStartEvent", "SequenceStartEvent", "ScalarEvent"):
            if event.anchor is not None:
                raise self._refused(event, "anchors are refused")
            if event.tag is not None:
                raise self._refused(event, "tags are refused")
            self._add(event, kind)

    def finished(self) -> Any:
        """Return the value of the only document."""
        return self._value

    def _add(self, event: Any, kind: str) -> None:
        if kind == "ScalarEvent":
            # A scalar in quotes, or in a block, is text.
            value: Any = self._scalar(event) if event.style in (None, "") else event.value
        else:
            value = {} if kind == "MappingStartEvent" else []
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._keys[-1] = self._key(event, kind)
            return
        if self._open:
            self._put(value)
        elif kind == "ScalarEvent":
            self._value = value
        if kind != "ScalarEvent":
            if len(self._open) >= DEEPEST:
                raise LimitError(f"{self._where}: values are nested more than {DEEPEST} deep")
            self._open.append(value)
            self._keys.append(None)

    def _key(self, event: Any, kind: str) -> str:
        if kind != "ScalarEvent":
            raise self._refused(event, "a key must be text")
        key: str = event.value
        if key == "<<" and event.style in (None, ""):
            raise self._refused(event, "merge keys are refused")
        if key in self._open[-1]:
            raise self._refused(event, f"the key {key!r} is repeated in one mapping")
        return key

    def _put(self, value: Any) -> None:
        around = self._open[-1]
        if isinstance(around, dict):
            around[self._keys[-1]] = value
            self._keys[-1] = None
        else:
            around.append(value)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if text in _NULL:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if _INTEGER.fullmatch(text):
            return self._integer(event, text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _INFINITE.fullmatch(text):
            return -math.inf if text[0] == "-" else math.inf
        return math.nan if text in _NAN else text

    def _integer(self, event: Any, text: str) -> int:
        if len(text) > 24:
            raise self._refused(event, f"{shown(text)} has more than 64 bits", LimitError)
        # Octal and hexadecimal numbers say so; a leading zero alone means nothing.
        value = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if not _LOWEST <= value <= _HIGHEST:
            raise self._refused(event, f"{text} has more than 64 bits", LimitError)
        return value

    def _refused(
        self, event: Any, text: str, error: type[FormatError | LimitError] = FormatError
    ) -> FormatError | LimitError:
        return error(f"{self._where}: line {event.start_mark.line + 1}: {text}")


def _copied(value: Any) -> Any:
    """Return a value that shares no mapping and no list with another."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


# Packing


def _check(value: Any, where: str, depth: int) -> None:
    """Raise an error for a value that `parse` would not give back."""
    if isinstance(value, Mapping | list | tuple):
        if depth >= DEEPEST:
            raise LimitError(f"{where}: values are nested more than {DEEPEST} deep")
        inner = value.items() if isinstance(value, Mapping) else ((None, each) for each in value)
        for key, each in inner:
            if key is not None and not isinstance(key, str):
                raise FormatError(f"{where}: the key {shown(key)} is no text")
            _check(each, where, depth + 1)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FormatError(f"{where}: {shown(value)} is no text of Unicode") from None
    elif type(value) is int:
        if not _LOWEST <= value <= _HIGHEST:
            raise LimitError(f"{where}: {shown(value)} has more than 64 bits")
    elif value is not None and type(value) not in (bool, float):
        raise FormatError(f"{where}: YAML cannot hold {shown(value)}")


def _lines(values: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in values.items():
        name = f"{indent}{_text(key)}:"
        if isinstance(value, Mapping) and value:
            lines.append(f"{name}\n")
            lines += _lines(value, indent + _INDENT)
        else:
            lines.append(f"{name} {_flow(value)}\n")
    return lines


def _flow(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return "-.inf" if value < 0 else ".inf"
    text = repr(value)
    # YAML 1.1 takes 1e20 for text.
    mantissa, letter, exponent = text.partition("e")
    if letter and "." not in mantissa:
        mantissa += ".0"
    return mantissa + letter + exponent


def _text(value: str) -> str:
    """Return text without quotes where no reader takes it for anything else."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return f'"{_SPECIAL.sub(_escaped, value)}"'


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    if match[0] in _ESCAPES:
        return _ESCAPES[match[0]]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


# Changing a text


def _member_lines(text: str, where: str) -> dict[str, tuple[int, int, int]] | None:
    """Return where the lines of each member begin, where its value ends, and where the lines end.

    None for a text whose outermost mapping is not written by lines.
    """
    if "\r" in text or "\t" in text or text.startswith("\ufeff"):
        return None
    key: str | None = None
    keys: list[tuple[str, int]] = []
    ends: dict[str, int] = {}
    flow: list[bool] = []
    # Where the last scalar or bracket ended: a collection by lines ends with the next token.
    end = 0
    # Only the parser in Python counts characters.
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            if not flow and event.flow_style:
                return None
            flow.append(bool(event.flow_style))
            continue
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            end = event.end_mark.index if flow.pop() else end
        elif kind != "ScalarEvent":
            continue
        elif not flow:
            # The document is a null.
            return None
        elif len(flow) == 1 and key is None:
            if event.start_mark.column:
                return None
            key = str(event.value)
            keys.append((key, event.start_mark.index))
            end = event.end_mark.index
            continue
        else:
            end = event.end_mark.index
        if len(flow) == 1 and key is not None:
            ends[key], key = end, None
    found = {}
    ends_of_lines = [start for _, start in keys[1:]] + [len(text)] * bool(keys)
    for (name, start), behind in zip(keys, ends_of_lines, strict=True):
        found[name] = (start, min(ends.get(name, behind), behind), behind)
    return found


def _joined(
    text: str,
    lines: Mapping[str, tuple[int, int, int]],
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    where: str,
) -> bytes:
    """Return the text of other values, with the lines of those that stay the same."""
    first = min((start for start, _, _ in lines.values()), default=len(text))
    parts = [text[:first]]
    for name, (start, value_end, end) in lines.items():
        if name in new and _same(old[name], new[name]):
            parts.append(text[start:end])
        elif name in new:
            behind = text[value_end:end]
            # What stands behind the value on its line is a comment, or nothing.
            comment, newline, rest = behind.partition("\n")
            made = "".join(_lines({name: new[name]}, ""))
            if comment.strip() and made.count("\n") == 1:
                made = f"{made[:-1]}{comment}\n"
            parts.append(made + (rest if newline else ""))
        else:
            # The comments behind a member that goes stay with the next one.
            parts.append(text[value_end:end].partition("\n")[2])
    if parts[-1] and not parts[-1].endswith("\n"):
        parts.append("\n")
    added = {name: value for name, value in new.items() if name not in lines}
    _check(added, where, 0)
    parts += _lines(added, "")
    return "".join(parts).encode()


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are written alike: 1, 1.0 and true differ, NaN equals itself."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)
