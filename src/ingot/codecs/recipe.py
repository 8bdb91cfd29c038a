"""What the native kernel is told of a codec chain.

Knows the few plain values that the kernel takes. Refuses to know which chains have such values:
the stages say it of themselves.
"""

from dataclasses import dataclass

__all__ = ["Recipe"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A chain that the native kernel can carry out by itself.

    `kind` is "raw" or the one compressor of the chain; `axes` is the order in which the axes are
    stored, slowest first. `sealed` chunks have a CRC-32C of all their bytes behind them; `framed`
    chunks of rows lie in files with a head and a trailer. The other fields are for encoding only.

    >>> Recipe("raw", sealed=True).level
    0
    """

    kind: str
    axes: tuple[int, ...] = ()
    level: int = 0
    codec: str = ""
    shuffle: str = "none"
    typesize: int = 1
    blocksize: int = 0
    checksum: bool = False
    sealed: bool = False
    framed: bool = False
