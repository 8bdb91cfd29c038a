"""Codecs for numcodecs: `blosc` that is safe against hostile bytes, and `blosc2`.

    import ingot.interop.numcodecs

registers both. The decoder of numcodecs' own `blosc` trusts what a chunk says of itself, and reads
outside of its memory where that is a lie. This one compares every claim with the bytes there are.
"""

from typing import Any, ClassVar, Final, Literal

import numpy as np
from numcodecs.abc import Codec
from numcodecs.blosc import Blosc as NumcodecsBlosc
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from ingot.blosc.chunk import compress, decompress
from ingot.errors import ArgumentError

__all__ = ["Blosc2Chunks", "SafeBlosc"]

_FILTERS: Final[tuple[tuple[str, ...], ...]] = ((), ("shuffle",), ("bitshuffle",))
_LARGEST_TYPE: Final = 255


class SafeBlosc(NumcodecsBlosc):  # type: ignore[misc]
    """The codec `blosc` of numcodecs, with its parameters, by the kernels of Ingot.

    >>> import numpy as np
    >>> codec = SafeBlosc("zstd", shuffle=2)
    >>> np.frombuffer(codec.decode(codec.encode(np.arange(3))), "i8")
    array([0, 1, 2])
    >>> codec.get_config() == NumcodecsBlosc("zstd", shuffle=2).get_config()
    True
    """

    def encode(self, buf: Any) -> bytes:
        """Return a chunk of Blosc 1."""
        # Older versions have no item size of their own.
        return _encoded(self, buf, getattr(self, "_typesize", None), version=1)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return the content of a chunk, or write it to `out`."""
        return _decoded(buf, out)


class Blosc2Chunks(Codec):  # type: ignore[misc]
    """The codec `blosc2`: one chunk of Blosc 2, of which runs of one value take a few bytes.

    >>> import numpy as np
    >>> codec = Blosc2Chunks(clevel=9)
    >>> len(codec.encode(np.zeros(1_000_000))), codec
    (32, Blosc2Chunks(blocksize=0, clevel=9, cname='lz4', shuffle=1))
    """

    codec_id: ClassVar[str] = "blosc2"

    def __init__(
        self, cname: str = "lz4", clevel: int = 5, shuffle: int = 1, blocksize: int = 0
    ) -> None:
        self.cname = cname
        self.clevel = clevel
        self.shuffle = shuffle
        self.blocksize = blocksize

    def encode(self, buf: Any) -> bytes:
        """Return a chunk of Blosc 2."""
        return _encoded(self, buf, None, version=2)

    def encode_items(self, buf: Any, typesize: int) -> bytes:
        """Return a chunk of Blosc 2 of items of a size, which the buffer does not tell."""
        return _encoded(self, buf, typesize, version=2)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return the content of a chunk, or write it to `out`."""
        return _decoded(buf, out)


def _encoded(
    codec: SafeBlosc | Blosc2Chunks, buf: Any, typesize: int | None, *, version: Literal[1, 2]
) -> bytes:
    data = ensure_contiguous_ndarray(buf)
    size = min(typesize or data.dtype.itemsize, _LARGEST_TYPE)
    shuffle = codec.shuffle
    if shuffle == NumcodecsBlosc.AUTOSHUFFLE:
        shuffle = NumcodecsBlosc.BITSHUFFLE if size == 1 else NumcodecsBlosc.SHUFFLE
    if not 0 <= shuffle < len(_FILTERS):
        raise ArgumentError(f"shuffle is {shuffle}, not -1, 0, 1 or 2")
    return compress(
        data.view(np.uint8),
        typesize=size,
        codec=codec.cname,
        level=codec.clevel,
        filters=_FILTERS[shuffle],
        blocksize=codec.blocksize or None,
        version=version,
    )


def _decoded(buf: Any, out: Any) -> Any:
    data = decompress(ensure_contiguous_ndarray(buf).view(np.uint8))
    return data if out is None else ndarray_copy(np.frombuffer(data, np.uint8), out)


register_codec(SafeBlosc)
register_codec(Blosc2Chunks)
