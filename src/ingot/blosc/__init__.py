"""Blosc chunks: compress, decompress and inspect one chunk at a time.

The names below are loaded on first use.

>>> from ingot import blosc
>>> chunk = blosc.compress(b"to be or not to be, " * 50, codec="zstd")
>>> blosc.decompress(chunk)[:5], blosc.decompress_slice(chunk, 3, 5)
(b'to be', b'be')
"""

from typing import TYPE_CHECKING

from ingot._lazy import lazy_names

if TYPE_CHECKING:
    from ingot.blosc.blocks import Block, Stream
    from ingot.blosc.chunk import (
        CODECS,
        FILTERS,
        FILTERS_2,
        LARGEST,
        compress,
        constant,
        decompress,
        decompress_slice,
    )
    from ingot.blosc.header import ChunkHeader, Extension
    from ingot.blosc.inspection import Inspection, inspect
    from ingot.blosc.lazy import LazyChunk

__all__ = [
    "CODECS",
    "FILTERS",
    "FILTERS_2",
    "LARGEST",
    "Block",
    "ChunkHeader",
    "Extension",
    "Inspection",
    "LazyChunk",
    "Stream",
    "compress",
    "constant",
    "decompress",
    "decompress_slice",
    "inspect",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CODECS": "ingot.blosc.chunk",
        "FILTERS": "ingot.blosc.chunk",
        "FILTERS_2": "ingot.blosc.chunk",
        "LARGEST": "ingot.blosc.chunk",
        "Block": "ingot.blosc.blocks",
        "ChunkHeader": "ingot.blosc.header",
        "Extension": "ingot.blosc.header",
        "Inspection": "ingot.blosc.inspection",
        "LazyChunk": "ingot.blosc.lazy",
        "Stream": "ingot.blosc.blocks",
        "compress": "ingot.blosc.chunk",
        "constant": "ingot.blosc.chunk",
        "decompress": "ingot.blosc.chunk",
        "decompress_slice": "ingot.blosc.chunk",
        "inspect": "ingot.blosc.inspection",
    },
)
