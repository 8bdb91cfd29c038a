"""A cache of objects on the local disk: what was fetched is kept with the tag of its object.

A kept range is used again only after the server has said that the object still has the tag, or when
the tag is known already. So the cache saves bytes, and never shows old ones. Each range is a file;
when all files together are larger than the limit, those that were not used for longest are removed.
"""

import hashlib
import os
import struct
import tempfile
import threading
import zlib
from contextlib import suppress
from typing import Final, NamedTuple

from ingot.errors import ArgumentError
from ingot.stores.objects.ranges import ObjectRange

__all__ = ["KeptRange", "RangeCache"]

_MAGIC: Final = b"IngotR\x01\n"
_HEAD: Final = struct.Struct("<8sIQHH")
_SUFFIX: Final = ".range"
# When files are removed, so many of ten parts of the limit stay.
_STAYING: Final = 9


class KeptRange(NamedTuple):
    """Bytes of an object, the ETag that it had, its number if it had one, and its size."""

    data: bytes
    etag: str
    number: str | None
    size: int


class RangeCache:
    """Ranges of the objects of one store in a folder, of at most `limit` bytes.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = RangeCache(folder, 1 << 20, "s3://data")
    ...     cache.keep(ObjectRange("a", 0, 4), KeptRange(b"abcd", "7f", None, 99))
    ...     cache.find(ObjectRange("a", 0, 4)), cache.find(ObjectRange("a", 0, 5))
    (KeptRange(data=b'abcd', etag='7f', number=None, size=99), None)
    """

    def __init__(self, folder: str, limit: int, store: str) -> None:
        if limit < 0:
            raise ArgumentError(f"cache_bytes is {limit}, at least 0 is needed")
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._limit = limit
        self._store = store
        self._lock = threading.Lock()
        # What the files take, as far as this process knows; None before it has looked.
        self._total: int | None = None

    def find(self, span: ObjectRange) -> KeptRange | None:
        """Return what is kept of a range; None if nothing is, or if the file is damaged."""
        name = self._name(span)
        try:
            with open(name, "rb") as file:
                found = _parsed(file.read())
        except OSError:
            return None
        if found is not None:
            with suppress(OSError):
                os.utime(name)
        return found

    def keep(self, span: ObjectRange, kept: KeptRange) -> None:
        """Keep a range; a disk that is full, or another failure, only means that it is not kept."""
        data = _packed(kept)
        if len(data) > self._limit:
            return
        with suppress(OSError):
            descriptor, temporary = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(temporary, self._name(span))
            except OSError:
                os.unlink(temporary)
                raise
            self._make_room(len(data))

    def _name(self, span: ObjectRange) -> str:
        text = f"{self._store}\n{span.key}\n{span.start}\n{span.stop}"
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=20)
        return os.path.join(self._folder, digest.hexdigest() + _SUFFIX)

    def _make_room(self, added: int) -> None:
        with self._lock:
            if self._total is not None:
                self._total += added
            if self._total is not None and self._total <= self._limit:
                return
            files = []
            for entry in os.scandir(self._folder):
                with suppress(OSError):
                    if entry.name.endswith(_SUFFIX):
                        facts = entry.stat()
                        files.append((facts.st_mtime_ns, facts.st_size, entry.path))
            self._total = sum(size for _, size, _ in files)
            if self._total <= self._limit:
                return
            for _, size, path in sorted(files):
                if self._total <= self._limit // 10 * _STAYING:
                    break
                with suppress(OSError):
                    os.unlink(path)
                    self._total -= size


def _packed(kept: KeptRange) -> bytes:
    etag, number = kept.etag.encode(), (kept.number or "").encode()
    body = etag + number + kept.data
    rest = _HEAD.pack(_MAGIC, 0, kept.size, len(etag), len(number))[12:] + body
    return _MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest


def _parsed(data: bytes) -> KeptRange | None:
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        return None
    _, checksum, size, tags, numbers = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[12:]) != checksum:
        return None
    first, second = _HEAD.size + tags, _HEAD.size + tags + numbers
    number = data[first:second].decode() or None
    return KeptRange(data[second:], data[_HEAD.size : first].decode(), number, size)
