"""Python literals in metadata: text, integers, and lists, tuples and dicts of them.

This module parses the few literals that ``repr`` of a NumPy type consists of, those of Python 2
included, and refuses everything else. It does not use Python's own parser, whose recursion a file
could exhaust.
"""

import re
from typing import Any, Final

from ingot.errors import FormatError, LimitError
from ingot.fields import shown

__all__ = ["parse"]

_DEEPEST: Final = 32
_LONGEST: Final = 2**20
_TOKEN: Final = re.compile(
    r"""\s*(?:
        u?(?P<text>'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")
      | (?P<number>-?[0-9]{1,18})L?(?![0-9A-Za-z_])
      | (?P<word>True|False|None)\b
      | (?P<mark>[\[\](){},:])
    )""",
    re.X | re.A,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\\'\"nrt]))", re.A
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final = {"True": True, "False": False, "None": None}
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}


def parse(text: str, where: str) -> Any:
    """Return the value of a literal; `where` names it in errors.

    >>> parse("[('a', '<i4'), (u'b', '<f8', (2L,))]", "dtype")
    [('a', '<i4'), ('b', '<f8', (2,))]
    >>> parse("__import__('os')", "dtype")
    Traceback (most recent call last):
    ingot.errors.FormatError: dtype: "__import__('os')" is no literal: unexpected text at 0
    """
    if len(text) > _LONGEST:
        raise LimitError(f"{where}: {len(text)} characters, the limit is {_LONGEST}")
    reader = _LiteralReader(text, where)
    value = reader.value(0)
    reader.finish()
    return value


class _LiteralReader:
    """Parses the tokens of a text from left to right."""

    __slots__ = ("_at", "_text", "_where")

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise LimitError(f"{self._where}: brackets are nested more than {_DEEPEST} deep")
        token = self._take()
        if token["text"] is not None:
            return self._unescaped(token["text"][1:-1])
        if token["number"] is not None:
            return int(token["number"])
        if token["word"] is not None:
            return _WORDS[token["word"]]
        closing = _CLOSING.get(token["mark"])
        if closing is None:
            raise self._wrong(f"unexpected {token['mark']!r}")
        if closing == "}":
            return self._pairs(depth)
        items, comma = self._items(closing, depth)
        if closing == "]":
            return items
        return items[0] if len(items) == 1 and not comma else tuple(items)

    def finish(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong("more than one value")

    def _items(self, closing: str, depth: int) -> tuple[list[Any], bool]:
        items: list[Any] = []
        while not self._passes(closing):
            items.append(self.value(depth + 1))
            if not self._passes(","):
                self._pass(closing)
                return items, False
        return items, True

    def _pairs(self, depth: int) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        while not self._passes("}"):
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in pairs:
                raise self._wrong(f"{shown(key)} is no key, or is repeated")
            self._pass(":")
            pairs[key] = self.value(depth + 1)
            if not self._passes(","):
                self._pass("}")
                return pairs
        return pairs

    def _take(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._wrong(f"unexpected text at {self._at}")
        self._at = match.end()
        return match

    def _passes(self, mark: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["mark"] != mark:
            return False
        self._at = match.end()
        return True

    def _pass(self, mark: str) -> None:
        if not self._passes(mark):
            raise self._wrong(f"{mark!r} is missing at {self._at}")

    def _unescaped(self, text: str) -> str:
        if "\\" not in text:
            return text
        if "\\" in _ESCAPE.sub("", text):
            raise self._wrong("an unknown escape")
        return _ESCAPE.sub(self._escaped, text)

    def _escaped(self, match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        if digits is None:
            return _ESCAPED.get(match[4], match[4])
        number = int(digits, 16)
        if number > 0x10FFFF:
            raise self._wrong("a character beyond Unicode")
        return chr(number)

    def _wrong(self, why: str) -> FormatError:
        return FormatError(f"{self._where}: {shown(self._text)} is no literal: {why}")
