"""A second file with the bytes of a first, without holding them.

Knows that a file may have two names, and how it is copied where it may not. Refuses to publish
anything: the copy has a staged name.
"""

from typing import Final

from ingot.errors import NotFoundError
from ingot.stores.files import Inside
from ingot.stores.store import Extent

__all__ = ["put_copy_aside"]

_PIECE: Final = 1 << 24


def put_copy_aside(inside: Inside, source: str, key: str, aside: str, where: str) -> None:
    """Let a staged name lead to what `source` holds, before it becomes `key`."""
    # A key that leads to the same file already would let the rename do nothing.
    if inside.size(key) is None and inside.link(source, aside):
        return
    size = inside.size(source)
    if size is None:
        raise NotFoundError(f"{where}: no key {source!r} to be copied")
    file = inside.open_new(aside)
    try:
        for start in range(0, size, _PIECE):
            (piece,) = inside.read(source, [Extent(source, start, _PIECE)]) or (b"",)
            inside.write(file, start, piece)
    finally:
        inside.close_file(file)
