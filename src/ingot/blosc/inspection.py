"""Inspection of a Blosc chunk: its header, blocks and streams, as text and as JSON.

It needs no kernel, and decodes nothing.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from ingot.blosc.blocks import Block, Dictionary, Stream, locate, locate_dictionary
from ingot.blosc.header import FILTERS, ChunkHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ingot.blosc.header import BytesLike

__all__ = ["Inspection", "inspect"]

_BIG_ENDIAN = 0x02


@dataclass(frozen=True, slots=True)
class Inspection:
    """The parts of a chunk; ``print`` shows a map of them.

    A chunk that is empty, stored uncompressed or special has no blocks.

    >>> print(inspect(bytes.fromhex("02013201 03000000 03000000 13000000 616263")))
    Blosc chunk: 3 bytes in 19 (ratio 0.16)
      version 2, versionlz 1, flags 0x32, typesize 1, blocksize 3
      codec lz4, filter none, stored uncompressed
    """

    header: ChunkHeader
    blocks: tuple[Block, ...]
    dictionary: Dictionary | None = None

    @property
    def ratio(self) -> float:
        """How many decoded bytes each stored byte stands for."""
        return self.header.nbytes / self.header.cbytes

    def to_dict(self) -> dict[str, Any]:
        """Return the same as nested dicts and lists for JSON."""
        header = self.header
        described = asdict(header) | {
            "codec": header.codec,
            "filter": header.filter,
            "filters": [list(step) for step in _named_filters(header)],
            "special": header.special,
            "memcpyed": header.memcpyed,
            "variable": header.variable,
            "split": header.split,
            "block_count": header.block_count,
            "ratio": self.ratio,
        }
        return {
            "header": described,
            "dictionary": None if self.dictionary is None else asdict(self.dictionary),
            "blocks": [_describe_block(block) for block in self.blocks],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        header = self.header
        yield (f"Blosc chunk: {header.nbytes} bytes in {header.cbytes} (ratio {self.ratio:.2f})")
        yield (
            f"  version {header.version}, versionlz {header.versionlz}, "
            f"flags {header.flags:#04x}, typesize {header.typesize}, blocksize {header.blocksize}"
        )
        if header.extension is not None:
            yield f"  blosc2_flags {_describe_flags(header.extension.blosc2_flags)}"
        yield f"  codec {header.codec}, {_describe_filters(header)}, {_describe_layout(header)}"
        if self.dictionary is not None:
            yield f"  dictionary at {self.dictionary.offset}: {self.dictionary.nbytes} bytes"
        for block in self.blocks:
            yield f"  block {block.index} at {block.offset}: {block.nbytes} bytes in {block.cbytes}"
            for stream in block.streams:
                yield (
                    f"    stream at {stream.offset}: {stream.nbytes} bytes in {stream.cbytes}, "
                    f"{_describe_kind(stream)} (ratio {stream.ratio:.2f})"
                )


def inspect(chunk: "BytesLike") -> Inspection:
    """Return the parts of a chunk; a malformed chunk raises the error that decoding would.

    >>> inspect(bytes.fromhex("02013201 03000000 03000000 13000000 616263")).header.typesize
    1
    """
    header = ChunkHeader.parse(chunk)
    header.check_decodable()
    view = cast("Buffer", chunk)
    return Inspection(header, tuple(locate(header, view)), locate_dictionary(header, view))


def _named_filters(header: ChunkHeader) -> list[tuple[str, int]]:
    """Return the filters by name; those that cannot be decoded keep their numbers."""
    return [(FILTERS.get(number, str(number)), meta) for number, meta in header.pipeline]


def _describe_filters(header: ChunkHeader) -> str:
    if not header.extended:
        return f"filter {header.filter}"
    steps = [f"{name} {meta}" if meta else name for name, meta in _named_filters(header)]
    return f"filters {', then '.join(steps) or 'none'}"


def _describe_layout(header: ChunkHeader) -> str:
    if header.special != "none":
        return f"special value: {header.special}"
    if header.memcpyed:
        return "stored uncompressed"
    if header.variable:
        return "blocks of variable length"
    return "blocks split by byte" if header.split else "blocks not split"


def _describe_flags(flags: int) -> str:
    """Return the flags as text; the writer's byte order has no effect on the data."""
    return f"{flags:#04x}" + (" (big-endian writer)" if flags & _BIG_ENDIAN else "")


def _describe_kind(stream: Stream) -> str:
    return stream.kind if stream.value is None else f"run of {stream.value}"


def _describe_block(block: Block) -> dict[str, Any]:
    return {
        "index": block.index,
        "offset": block.offset,
        "nbytes": block.nbytes,
        "cbytes": block.cbytes,
        "streams": [
            {
                "offset": stream.offset,
                "nbytes": stream.nbytes,
                "cbytes": stream.cbytes,
                "kind": stream.kind,
                "value": stream.value,
                "ratio": stream.ratio,
            }
            for stream in block.streams
        ],
    }
