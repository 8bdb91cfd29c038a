"""The record of a conversion, which the new dataset carries: what was kept, and what was not."""

from dataclasses import dataclass

__all__ = ["Conversion"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a dataset was made by `ingot.convert`.

    `changes` lists what the target holds in another way than the source, or has no place for.
    """

    source: str
    source_format: str
    target: str
    format: str
    changes: tuple[str, ...] = ()
    chunks: int = 0
    """The number of chunks, or packs, that were stored."""
    untouched: int = 0
    """The number of those whose encoded bytes were moved without being decoded."""
    nbytes: int = 0
    """The bytes of the items, uncompressed."""
    verified: bool = False
    """Whether all items of the target were read again and compared with those of the source."""

    def __str__(self) -> str:
        """Return the record as lines of text."""
        moved = f"{self.chunks} chunks, {self.untouched} of them untouched"
        lines = [f"{self.source} ({self.source_format}) to {self.target} ({self.format}): {moved}"]
        return "\n".join(lines + [f"  {change}" for change in self.changes])
