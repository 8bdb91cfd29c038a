"""Arguments and options that several commands have, and how their texts are read."""

import re
from pathlib import Path
from types import EllipsisType
from typing import Annotated, Final, TypeAlias

from ingot.cli.parameters import Argument, Option
from ingot.options import Options, parse_size

__all__ = [
    "AllowPickle",
    "Chunks",
    "Codec",
    "Dataset",
    "Format",
    "Json",
    "Key",
    "Overwrite",
    "parse_chunks",
    "parse_key",
    "parse_names",
    "parse_shape",
    "reading_options",
]

Json: TypeAlias = Annotated[bool, Option("--json", help="Print JSON instead of text.")]

Dataset: TypeAlias = Annotated[
    Path,
    Argument(metavar="PATH", help="A dataset: a folder, a file, or a member of a group."),
]

Overwrite: TypeAlias = Annotated[
    bool, Option("--overwrite", help="Replace a dataset or a file that exists.")
]

Format: TypeAlias = Annotated[
    str | None, Option("-f", "--format", help="The format; else by the suffix.")
]

Codec: TypeAlias = Annotated[
    str | None, Option("-c", "--codec", help="Such as zstd:3 or blosc:lz4:5:shuffle.")
]

Chunks: TypeAlias = Annotated[
    str | None, Option("--chunks", help="A shape, 250,250; a number of rows; or auto.")
]

AllowPickle: TypeAlias = Annotated[
    bool,
    Option("--allow-pickle", help="Read Python objects, whose pickles may run any code."),
]

Key: TypeAlias = tuple[int | slice | EllipsisType | list[int], ...]
"""A key as NumPy takes it."""

_COMMA: Final = re.compile(r",(?![^\[\]]*\])")
"""A comma that stands outside of brackets."""
_BOUND: Final = re.compile(r"[+-]?\d+")


def reading_options(allow_pickle: bool) -> Options | None:
    """Return the options of a command that may be allowed to read pickles.

    >>> reading_options(False) is None, reading_options(True).allow_pickle
    (True, True)
    """
    return Options(allow_pickle=True) if allow_pickle else None


def parse_key(text: str) -> Key:
    """Return the key that a text spells: integers, slices, lists of integers, and "...".

    >>> parse_key("0:10, ::5")
    (slice(0, 10, None), slice(None, None, 5))
    >>> parse_key("..., -1, [1, 3]")
    (Ellipsis, -1, [1, 3])
    >>> parse_key("a")
    Traceback (most recent call last):
    ValueError: key 'a' is no integer, slice, list of integers or "..."
    """
    parts = [part.strip() for part in _COMMA.split(text)]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    return tuple(map(_parse_part, parts))


def parse_names(text: str | None) -> list[str] | None:
    """Return the names in a text with commas; None without a text.

    >>> parse_names("a, b")
    ['a', 'b']
    """
    return None if text is None else [name.strip() for name in text.split(",")]


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the lengths that a text spells, with commas or crosses between them.

    >>> parse_shape("250,250"), parse_shape("1000x20")
    ((250, 250), (1000, 20))
    """
    parts = re.split(r"\s*[,x×]\s*", text.strip(" ()").rstrip(","))
    if not all(re.fullmatch(r"\d+", part) for part in parts):
        raise ValueError(f"{text!r} is no shape, such as 250,250")
    return tuple(map(int, parts))


def _parse_part(part: str) -> int | slice | EllipsisType | list[int]:
    if part == "...":
        return ...
    if part.startswith("["):
        numbers = [number.strip() for number in part[1:-1].split(",")]
        if all(_BOUND.fullmatch(number) for number in numbers):
            return [int(number) for number in numbers]
    bounds = [bound.strip() for bound in part.split(":")]
    if len(bounds) == 1 and _BOUND.fullmatch(part):
        return int(part)
    if 2 <= len(bounds) <= 3 and all(not each or _BOUND.fullmatch(each) for each in bounds):
        return slice(*(int(each) if each else None for each in bounds))
    raise ValueError(f'key {part!r} is no integer, slice, list of integers or "..."')


def parse_chunks(text: str) -> tuple[int, ...] | int | str:
    """Return the shape of chunks or shards as `ingot.create` takes it.

    >>> parse_chunks("250,250"), parse_chunks("1000"), parse_chunks("auto"), parse_chunks("1M")
    ((250, 250), 1000, 'auto', '1M')
    """
    if text == "auto" or (not text[-1:].isdecimal() and parse_size(text) is not None):
        return text
    found = parse_shape(text)
    return found if len(found) > 1 or "," in text else found[0]
