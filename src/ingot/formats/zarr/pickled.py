"""Pickled array metadata, parsed without unpickling it.

A pickle is a program, and a file must not run one. This module interprets the few operations that a
pickle of protocol 0 with array metadata consists of, and the five functions that it may name: these
stand for plain values, and nothing is imported or called. Every other operation or name is refused.

The result is what the JSON document of the same layout would hold; only the fill value may also be
bytes, a complex number or a NumPy scalar.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from ingot import dtypes
from ingot.errors import FormatError, IngotError, LimitError, UnsafeError
from ingot.fields import shown

__all__ = ["LARGEST", "parse"]

LARGEST: Final = 2**18
"""The largest size of a pickle, in bytes."""

_MOST_DEEP: Final = 16
_MOST_FIELDS: Final = 4096
_STATE_LENGTHS: Final = range(6, 10)
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,20}", re.A)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.S)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}
_MARK: Final = object()


def parse(data: bytes, where: str) -> dict[str, Any]:
    r"""Return the mapping that was pickled; `where` names it in errors.

    >>> parse(b"(dp0\nVshape\np1\n(I3\nI4\ntp2\ns.", "__zmeta__")
    {'shape': [3, 4]}
    >>> parse(b"cos\nsystem\n(Vls\ntR.", "__zmeta__")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: __zmeta__: the pickle calls os.system
    """
    if len(data) > LARGEST:
        raise LimitError(f"{where}: {len(data)} bytes, the limit is {LARGEST}")
    try:
        found = _Machine(data).run()
    except _PickleError as error:
        raise error.kind(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise FormatError(f"{where}: {_shown(found)} is no mapping")
    names = [_key(key, where) for key in found]
    values = zip(names, found.values(), strict=True)
    return {name: _plain(value, f"{where}: {name}") for name, value in values}


class _PickleError(Exception):
    def __init__(self, text: str, kind: type[IngotError] = FormatError) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Name:
    """A function that a pickle may call."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class _Type:
    """A NumPy type as its pickle describes it: a type string, and a state that completes it."""

    spelling: str
    state: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An item of a NumPy type, as bytes."""

    kind: _Type
    data: bytes


class _Machine:
    """Runs the operations of a pickle on a stack of plain values."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._stack: list[Any] = []
        self._memo: dict[bytes, Any] = {}

    def run(self) -> Any:
        while (code := self._data[self._position : self._position + 1]) != b".":
            step = _STEPS.get(code)
            if step is None:
                fact = "ends early" if not code else f"has the operation {code!r}"
                raise _PickleError(f"the pickle {fact} at byte {self._position}")
            self._position += 1
            step(self)
        return self._pop()

    def line(self) -> bytes:
        end = self._data.find(b"\n", self._position)
        if end < 0:
            raise _PickleError(f"the pickle ends in a line, at byte {self._position}")
        found = self._data[self._position : end]
        self._position = end + 1
        return found

    def mark(self) -> None:
        self._stack.append(_MARK)

    def integer(self) -> None:
        line = self.line()
        if line in (b"00", b"01"):
            self._stack.append(line == b"01")
        else:
            self._stack.append(_integer(line))

    def long(self) -> None:
        self._stack.append(_integer(self.line().removesuffix(b"L")))

    def number(self) -> None:
        line = self.line()
        try:
            self._stack.append(float(line))
        except ValueError:
            raise _PickleError(f"{line[:40]!r} is no number") from None

    def none(self) -> None:
        self._stack.append(None)

    def text(self) -> None:
        line = self.line()
        try:
            self._stack.append(codecs.decode(line, "raw-unicode-escape"))
        except UnicodeDecodeError:
            raise _PickleError(f"{line[:40]!r} is no text") from None

    def string(self) -> None:
        line = self.line()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise _PickleError(f"{line[:40]!r} is no quoted string")
        self._stack.append(_ESCAPE.sub(_unescaped, line[1:-1]))

    def mapping(self) -> None:
        items = self._marked()
        if len(items) % 2:
            raise _PickleError("a mapping has a key without a value")
        pairs = zip(items[::2], items[1::2], strict=True)
        self._stack.append({_hashed(key): value for key, value in pairs})

    def sequence(self) -> None:
        self._stack.append(tuple(self._marked()))

    def items(self) -> None:
        self._stack.append(self._marked())

    def append(self) -> None:
        value = self._pop()
        if not self._stack or not isinstance(self._stack[-1], list):
            raise _PickleError("an item is appended to what is no list")
        self._stack[-1].append(value)

    def set_item(self) -> None:
        value, key = self._pop(), _hashed(self._pop())
        if not self._stack or not isinstance(self._stack[-1], dict):
            raise _PickleError("an item is set on what is no mapping")
        self._stack[-1][key] = value

    def put(self) -> None:
        number = self.line()
        if not self._stack:
            raise _PickleError("the pickle stores a value from an empty stack")
        self._memo[number] = self._stack[-1]

    def get(self) -> None:
        number = self.line()
        if number not in self._memo:
            raise _PickleError(f"the pickle has stored nothing as {number[:20]!r}")
        self._stack.append(self._memo[number])

    def name(self) -> None:
        module, name = (line.decode("latin-1") for line in (self.line(), self.line()))
        if (module, name) not in _CALLS:
            shown_name = f"{module[:60]}.{name[:60]}"
            raise _PickleError(f"the pickle calls {shown_name}", UnsafeError)
        self._stack.append(_Name(module, name))

    def call(self) -> None:
        arguments, target = self._pop(), self._pop()
        if not isinstance(target, _Name) or not isinstance(arguments, tuple):
            raise _PickleError("the pickle calls a value that is no function")
        self._stack.append(_CALLS[target.module, target.name](*_limited(arguments)))

    def build(self) -> None:
        state = self._pop()
        target = self._stack[-1] if self._stack else None
        if not isinstance(target, _Type) or target.state:
            raise _PickleError("a state is given to what is no type")
        if not isinstance(state, tuple) or len(state) not in _STATE_LENGTHS:
            raise _PickleError("a type has no such state")
        target.state = state

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise _PickleError(f"the pickle reads from an empty stack, at byte {self._position}")
        return self._stack.pop()

    def _marked(self) -> list[Any]:
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                found = self._stack[place + 1 :]
                del self._stack[place:]
                return found
        raise _PickleError(f"the pickle ends a list that never began, at byte {self._position}")


_STEPS: Final[Mapping[bytes, Callable[[_Machine], None]]] = {
    b"(": _Machine.mark,
    b"I": _Machine.integer,
    b"L": _Machine.long,
    b"F": _Machine.number,
    b"N": _Machine.none,
    b"V": _Machine.text,
    b"S": _Machine.string,
    b"d": _Machine.mapping,
    b"t": _Machine.sequence,
    b"l": _Machine.items,
    b"a": _Machine.append,
    b"s": _Machine.set_item,
    b"p": _Machine.put,
    b"g": _Machine.get,
    b"c": _Machine.name,
    b"R": _Machine.call,
    b"b": _Machine.build,
}


def _integer(line: bytes) -> int:
    if not _INTEGER.fullmatch(line):
        raise _PickleError(f"{line[:40]!r} is no integer of 64 bits")
    return int(line)


def _hashed(key: object) -> str | bytes:
    if not isinstance(key, str | bytes):
        raise _PickleError(f"{_shown(key)} is no key of a mapping")
    return key


def _limited(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(arguments) > 3:
        raise _PickleError(f"a call has {len(arguments)} arguments")
    return (*arguments, *[None] * (3 - len(arguments)))


def _call_dtype(spelling: Any, align: Any, copy: Any) -> _Type:
    text = spelling.decode("latin-1") if isinstance(spelling, bytes) else spelling
    if not isinstance(text, str):
        raise _PickleError(f"numpy.dtype of {_shown(spelling)}")
    return _Type(text)


def _call_scalar(kind: Any, data: Any, nothing: Any) -> _Item:
    if not isinstance(kind, _Type) or not isinstance(data, bytes) or nothing is not None:
        raise _PickleError("a NumPy scalar that is not made of a type and bytes")
    return _Item(kind, data)


def _call_encode(text: Any, encoding: Any, nothing: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1") or nothing is not None:
        raise _PickleError(f"_codecs.encode of {_shown(text)} as {_shown(encoding)}")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _PickleError(f"_codecs.encode of {shown(text)}, which is not latin-1") from None


def _call_bytes(*arguments: Any) -> bytes:
    if any(argument is not None for argument in arguments):
        raise _PickleError("bytes() with arguments")
    return b""


def _call_complex(real: Any, imaginary: Any, nothing: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float or nothing is not None:
        raise _PickleError("complex() of anything but two floats")
    return complex(real, imaginary)


_Call: TypeAlias = Callable[[Any, Any, Any], Any]
_CALLS: Final[Mapping[tuple[str, str], _Call]] = {
    ("numpy", "dtype"): _call_dtype,
    ("numpy.core.multiarray", "scalar"): _call_scalar,
    ("numpy._core.multiarray", "scalar"): _call_scalar,
    ("_codecs", "encode"): _call_encode,
    # Empty bytes and complex numbers: the module is __builtin__ in Python 2, builtins in Python 3.
    ("__builtin__", "bytes"): _call_bytes,
    ("builtins", "bytes"): _call_bytes,
    ("__builtin__", "complex"): _call_complex,
    ("builtins", "complex"): _call_complex,
}


def _key(key: str | bytes, where: str) -> str:
    if isinstance(key, str):
        return key
    try:
        return key.decode("ascii")
    except UnicodeDecodeError:
        raise FormatError(f"{where}: the key {key[:40]!r} is not ASCII") from None


def _plain(value: Any, where: str) -> Any:
    """Return a value as JSON would hold it, where JSON has the type."""
    if isinstance(value, _Type):
        return _Speller(where).spell(value)
    if isinstance(value, _Item):
        return _item(value, where)
    if isinstance(value, tuple | list):
        return [_number(entry, where) for entry in value]
    if isinstance(value, dict | _Name):
        _refuse(where, f"{_shown(value)} is no value of metadata")
    return value


def _number(entry: Any, where: str) -> int:
    found = _item(entry, where) if isinstance(entry, _Item) else entry
    if type(found) is int or isinstance(found, np.integer):
        return int(found)
    _refuse(where, f"{_shown(entry)} is no integer")


def _item(item: _Item, where: str) -> Any:
    dtype = dtypes.parse(_Speller(where).spell(item.kind), where)
    if dtype.hasobject:
        raise UnsafeError(f"{where}: a pickled scalar that is an object")
    if len(item.data) != dtype.itemsize:
        _refuse(where, f"a scalar of {dtype} has {len(item.data)} bytes")
    return np.frombuffer(item.data, dtype)[0]


class _Speller:
    """Converts types to the spelling of JSON, which `ingot.dtypes` parses and checks."""

    def __init__(self, where: str) -> None:
        self._where = where
        # A pickle can refer to one type many times, at every depth.
        self._left = _MOST_FIELDS

    def spell(self, kind: _Type, depth: int = 0) -> str | list[Any]:
        self._left -= 1
        if depth > _MOST_DEEP or self._left < 0:
            raise LimitError(
                f"{self._where}: a type of over {_MOST_FIELDS} fields, or {_MOST_DEEP} levels"
            )
        # A type without a state has no byte order.
        _, order, base, names, fields, size, *rest = kind.state or (3, "|", None, None, None, -1)
        if base is not None:
            _refuse(self._where, "a sub-array that is no field")
        if names is not None:
            return self._fields(names, fields, size, depth)
        text = order.decode("latin-1") if isinstance(order, bytes) else order
        if text not in ("<", ">", "|"):
            _refuse(self._where, f"{_shown(order)} is no byte order")
        unit = self._unit(rest[-1]) if kind.spelling[:1] in ("m", "M") and rest else ""
        return f"{text}{kind.spelling}{unit}"

    def _unit(self, metadata: Any) -> str:
        """Return the unit of a type of dates, from the last part of its state."""
        try:
            _, (name, count, *_) = metadata
            text = name.decode("ascii") if isinstance(name, bytes) else name
        except (TypeError, ValueError):
            _refuse(self._where, "a type of dates without a unit")
        if not isinstance(text, str) or type(count) is not int:
            _refuse(self._where, "a type of dates without a unit")
        return f"[{'' if count == 1 else count}{text}]"

    def _fields(self, names: Any, fields: Any, size: Any, depth: int) -> list[Any]:
        where = self._where
        if not isinstance(names, tuple) or not isinstance(fields, dict) or type(size) is not int:
            _refuse(where, "a struct without names and fields")
        found: list[Any] = []
        offset = 0
        for name in names:
            entry = fields.get(name) if isinstance(name, str | bytes) else None
            if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], _Type):
                _refuse(where, f"the field {_shown(name)} is not described")
            kind, start = entry
            if type(start) is not int or start < offset:
                _refuse(where, f"the field {_shown(name)} overlaps the one before")
            found += _padding(start - offset)
            found.append([_key(name, where), *self._field(kind, depth + 1)])
            offset = start + dtypes.parse([found[-1]], where).itemsize
        if size < offset:
            _refuse(where, f"a struct claims {size} bytes, its fields have {offset}")
        return found + _padding(size - offset)

    def _field(self, kind: _Type, depth: int) -> list[Any]:
        base = kind.state[2] if kind.state else None
        if base is None:
            return [self.spell(kind, depth)]
        if not isinstance(base, tuple) or len(base) != 2 or not isinstance(base[0], _Type):
            _refuse(self._where, "a sub-array of no type")
        lengths = base[1] if isinstance(base[1], tuple) else (base[1],)
        return [self.spell(base[0], depth), [_number(each, self._where) for each in lengths]]


def _padding(length: int) -> list[list[str]]:
    return [["", f"|V{length}"]] if length else []


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] == b"x" and len(code) == 3:
        return bytes([int(code[1:], 16)])
    if code not in _ESCAPED:
        raise _PickleError(f"the escape {match[0]!r} is unknown")
    return _ESCAPED[code]


def _shown(value: Any) -> str:
    # A pickle can nest values to any depth, even in themselves.
    plain = isinstance(value, str | bytes | int | float | complex | None)
    return shown(value) if plain else type(value).__name__


def _refuse(where: str, fact: str) -> NoReturn:
    raise FormatError(f"{where}: {fact}")
