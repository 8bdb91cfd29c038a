"""The codec of packs: lengths and bytes of items in two Blosc chunks, each with its digest.

A pack is the chunk of the lengths (u32, the largest number for a null), its digest, the chunk of
the bytes of all items, and its digest. Where every item has a chunk of its own, that chunk and its
digest are all. What follows has no meaning: it is room for a longer pack.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.codecs.checksums import Digest, digest
from ingot.codecs.codec import Buffer, Stage
from ingot.codecs.compressors import Blosc
from ingot.errors import CorruptionError, FormatError
from ingot.formats.bloscpack.header import CHECKSUMS, LARGEST_CHUNK
from ingot.formats.packs import (
    LENGTH,
    KernelPacks,
    PackGuards,
    items_of,
    lengths_codec,
    lengths_of,
    total_bytes,
)
from ingot.ragged_array import ItemKind, RaggedArray

__all__ = ["VarlenPacks", "chunk_bytes"]

_NEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class VarlenPacks(KernelPacks):
    """Encodes and decodes packs, or single items unless `packed`.

    >>> from ingot.ragged_array import UTF8
    >>> codec = VarlenPacks(Blosc(shuffle=0))
    >>> pack = codec.encode(RaggedArray.of(["ape", None, "bee"]), 0)
    >>> codec.decode(pack, UTF8, 3, 0).to_list(), len(pack)
    (['ape', None, 'bee'], 58)
    """

    blosc: Blosc
    checksum: str = "crc32"
    packed: bool = True
    nulls: bool = True
    """Whether items may be null; in a file that does not say so, a null is damage."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The codec of the bytes, and the checksum of chunks."""
        if self.checksum == "none":
            return (self.blosc,)
        return self.blosc, Digest(self.checksum)

    def encode(self, items: RaggedArray, number: int) -> bytes:
        """Return the image of a pack; that of a single null has no bytes."""
        if not self.packed:
            if items.validity is not None and not items.validity[0]:
                return b""
            return b"".join(self._chunk(items.payload, self.blosc))
        lengths, held = lengths_of(items), items.payload
        blosc = lengths_codec(self.blosc)
        return b"".join((*self._chunk(lengths, blosc), *self._chunk(held, self.blosc)))

    def decode(self, data: bytes, kind: ItemKind, count: int, number: int) -> RaggedArray:
        """Return the `count` items of a pack; bytes behind the pack are left alone."""
        view = memoryview(data)
        if not self.packed:
            return self._decode_item(view, kind)
        stored, behind = self._decode_chunk(view, "lengths", count * LENGTH.itemsize)
        lengths = np.frombuffer(stored, LENGTH)
        total = total_bytes(lengths)
        if total > LARGEST_CHUNK:
            raise CorruptionError(
                f"varlen pack: the lengths add up to {total} bytes, a chunk has {LARGEST_CHUNK}"
            )
        held, _ = self._decode_chunk(view[behind:], "bytes", total)
        return items_of(lengths, held, kind, "varlen pack", nulls=self.nulls)

    def encode_many(
        self, items: RaggedArray, cuts: Sequence[int], first: int, threads: int
    ) -> list[bytes] | None:
        """Return the images of many packs; None where the native kernel does not make them."""
        encode = native.encode_packs()
        if encode is None or not self.packed:
            return None
        ends = items.offsets[cuts[1:]] - items.offsets[0]
        blosc = self.blosc.native_coding()
        coding = blosc.codec, blosc.level, blosc.shuffle, blosc.typesize, blosc.blocksize
        lengths = lengths_of(items)
        return encode(
            lengths, items.payload, list(cuts[1:]), ends.tolist(), coding, self.checksum, threads
        )

    def guards(self, numbers: Sequence[int]) -> PackGuards | None:
        """Return what the kernel verifies of packs; None where each item has its own chunk."""
        return PackGuards(self.checksum, nulls=self.nulls) if self.packed else None

    def measure(self, data: Buffer) -> int:
        """Return how many of the given bytes a pack or an item has; nothing is decoded."""
        view, behind = memoryview(data), 0
        for _ in range(2 if self.packed else 1):
            behind += chunk_bytes(view[behind:]) + CHECKSUMS[self.checksum]
        if behind > len(view):
            raise CorruptionError(
                f"varlen pack: it claims {behind} bytes, its room has {len(view)}"
            )
        return behind

    def _chunk(self, raw: NDArray[np.generic], blosc: Blosc) -> tuple[Buffer, bytes]:
        chunk = blosc.encode(np.ascontiguousarray(raw).data)
        return chunk, digest(self.checksum, chunk)

    def _decode_item(self, view: memoryview, kind: ItemKind) -> RaggedArray:
        if not len(view):
            return RaggedArray.nulls(kind, 1)
        held, _ = self._decode_chunk(view, "bytes", None)
        offsets = np.array([0, len(held)])
        return RaggedArray.checked(
            kind, offsets, np.frombuffer(held, np.uint8), None, "varlen item"
        )

    def _decode_chunk(self, view: memoryview, what: str, size: int | None) -> tuple[Buffer, int]:
        """Return the content of the chunk at the start of some bytes, and where its digest ends."""
        extra = CHECKSUMS[self.checksum]
        end = chunk_bytes(view)
        if end + extra > len(view):
            raise CorruptionError(
                f"varlen chunk of {what}: it claims {end} bytes and {extra} of a digest, "
                f"its room has {len(view)}"
            )
        chunk = view[:end]
        if extra:
            claim, fact = bytes(view[end : end + extra]), digest(self.checksum, chunk)
            if claim != fact:
                raise CorruptionError(
                    f"varlen chunk of {what}: the {self.checksum} is {fact.hex()}, "
                    f"{claim.hex()} is stored"
                )
        header = ChunkHeader.parse(chunk)
        if header.version > _NEWEST or header.extended:
            raise FormatError(
                f"varlen chunk of {what}: a chunk of Blosc version {header.version}, "
                f"files of items have version {_NEWEST}"
            )
        if size is not None and header.nbytes != size:
            raise CorruptionError(
                f"varlen chunk of {what}: it holds {header.nbytes} bytes, {size} are due"
            )
        return Blosc().decode(chunk, header.nbytes, LARGEST_CHUNK), end + extra


def chunk_bytes(head: Buffer) -> int:
    """Return the stored bytes that the header of a chunk claims, given its first bytes.

    >>> chunk_bytes(ChunkHeader(nbytes=0).pack())
    16
    """
    if len(head) < HEADER_BYTES:
        raise CorruptionError(
            f"varlen chunk: a header needs {HEADER_BYTES} bytes, {len(head)} are stored"
        )
    claim = int.from_bytes(head[12:HEADER_BYTES], "little", signed=True)
    if claim < HEADER_BYTES:
        raise CorruptionError(f"varlen chunk: cbytes is {claim}, the header has {HEADER_BYTES}")
    return claim
