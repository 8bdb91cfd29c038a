"""Options: what a caller decides about how data is moved.

Options are values that are passed along, never globals.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from ingot.errors import ArgumentError, ArgumentTypeError

__all__ = ["Limits", "Options", "given_options", "parse_size", "without_secrets"]

_DURABILITIES: Final = ("full", "process")
_VERIFICATIONS: Final = ("first", "always", "never")
_DAMAGED: Final = ("error", "fill")
_MISSING: Final = ("fill", "error")
_SECRET: Final = re.compile("key|secret|token|password|credential|sas|header|auth", re.IGNORECASE)
_SIZE: Final = re.compile(r"([1-9][0-9]{0,9}) ?(B|[KMG](?:i?B)?)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest sizes that are accepted, whatever a file claims.

    - `chunk_bytes`: The most bytes that one chunk may decode to.
    - `window_bytes`: About how many bytes of chunks are held in memory at a time, beside the
      result.
    - `commit_chunks`: The most chunks, or shards, that one commit may store; each takes some memory
      until then.
    - `device_window_bytes`: What `window_bytes` is, for chunks on their way to a device, which has
      two windows at a time.

    >>> Limits().chunk_bytes
    2147483631
    """

    chunk_bytes: int = 2**31 - 1 - 16
    window_bytes: int = 64 << 20
    commit_chunks: int = 2**22
    device_window_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for name in ("chunk_bytes", "window_bytes", "device_window_bytes", "commit_chunks"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} is {getattr(self, name)}, at least 1 is needed")


@dataclass(frozen=True, slots=True)
class Options:
    """How data is moved: threads, caching, durability, verification and limits.

    - `threads`: How many threads one call may use; None means one for each available processor.
    - `cache_bytes`: How many bytes of decoded chunks an open array may keep.
    - `durability`: What committed data survives: a power cut, or only the end of the process.
    - `verify`: When checksums of chunks and blocks are compared: when a file is first read, and
      again when it has changed; always; or, over whole chunks, never.
    - `damaged`: What a read makes of chunks that cannot be read: an error, or the fill value (null
      for items of variable length) with a `DamageWarning` that names them. Only for mode "r";
      queries raise always.
    - `missing`: What a read makes of chunks that are not stored, where a format allows that: the
      fill value, or a `CorruptionError`. A lost chunk that a manifest names is
      always an error.
    - `allow_pickle`: Whether objects may be unpickled, which runs code from the file.
    - `limits`: The largest sizes that are accepted.
    - `storage`: The settings of an object store, see `docs/object-stores.md`: those of obstore,
      such as `endpoint` and `region`, and some of Ingot's own. They are neither shown nor compared,
      and credentials among them are not pickled.

    >>> Options(threads=1).cache_bytes
    0
    >>> Options(durability="paper")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: durability is 'paper', not one of 'full', 'process'
    """

    threads: int | None = None
    cache_bytes: int = 0
    durability: Literal["full", "process"] = "full"
    verify: Literal["first", "always", "never"] = "first"
    damaged: Literal["error", "fill"] = "error"
    missing: Literal["fill", "error"] = "fill"
    allow_pickle: bool = False
    limits: Limits = field(default_factory=Limits)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("threads", "cache_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int | None) or (value is None and name != "threads"):
                raise ArgumentTypeError(f"{name} is {value!r}, not a whole number")
        if self.threads is not None and self.threads < 1:
            raise ArgumentError(f"threads is {self.threads}, at least 1 is needed")
        if self.cache_bytes < 0:
            raise ArgumentError(f"cache_bytes is {self.cache_bytes}, at least 0 is needed")
        choices_of = {
            "durability": _DURABILITIES,
            "verify": _VERIFICATIONS,
            "damaged": _DAMAGED,
            "missing": _MISSING,
        }
        for name, known in choices_of.items():
            if getattr(self, name) not in known:
                choices = ", ".join(map(repr, known))
                raise ArgumentError(f"{name} is {getattr(self, name)!r}, not one of {choices}")

    def __reduce__(self) -> tuple[object, ...]:
        values = [getattr(self, each.name) for each in fields(self)]
        return type(self), (*values[:-1], without_secrets(self.storage))

    def thread_count(self) -> int:
        """Return the number of threads that `threads` stands for.

        >>> Options(threads=3).thread_count()
        3
        """
        if self.threads is not None:
            return self.threads
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


def given_options(options: object) -> Options:
    """Return the options that a caller gave: the defaults for None.

    >>> given_options(None) == Options()
    True
    >>> given_options(5)
    Traceback (most recent call last):
    ingot.errors.ArgumentTypeError: options is 5, not an ingot.Options
    """
    if options is None:
        return _DEFAULT
    if not isinstance(options, Options):
        raise ArgumentTypeError(f"options is {options!r}, not an ingot.Options")
    return options


def without_secrets(storage: Mapping[str, object]) -> dict[str, object]:
    """Return settings without those that may be credentials.

    >>> without_secrets({"region": "eu-1", "secret_access_key": "xyz", "aws_session_token": "abc"})
    {'region': 'eu-1'}
    """
    return {name: value for name, value in storage.items() if not _SECRET.search(name)}


_DEFAULT: Final = Options()


def parse_size(text: str) -> int | None:
    """Return the bytes that a text like "1M" or "500 KiB" stands for; None when it is no size.

    A unit is a power of 1024, and a number alone counts bytes.

    >>> parse_size("1M"), parse_size("2 kb"), parse_size("1000"), parse_size("1.5M")
    (1048576, 2048, 1000, None)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    unit = (found[2] or "B")[0].upper()
    return int(found[1]) << 10 * "BKMG".index(unit)
