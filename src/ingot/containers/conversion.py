"""The record of a conversion, which the new dataset carries: what was kept, and what was not."""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Final

from ingot.fields import printable

__all__ = ["PENDING", "Conversion"]

PENDING: Final = ".convert/plan"
"""The file that a conversion under way has in the folder of its target."""


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

    members: tuple["Conversion", ...] = ()
    """The records of the datasets of a folder."""
    failures: tuple[tuple[str, str], ...] = ()
    """The datasets of a folder that were not converted, each with the reason."""

    def __str__(self) -> str:
        """Return the record as lines of text."""
        lines = [f"{self.source} ({self.source_format}) to {self.target} ({self.format}): "]
        if self.members or self.failures:
            lines[0] += f"{_count(self.members, 'dataset')}, {len(self.failures)} failed"
        else:
            lines[0] += f"{_count(range(self.chunks), 'chunk')}, {self.untouched} untouched"
            if self.verified:
                lines[0] += ", compared with the source"
        lines += [f"  {change}" for change in self.changes]
        lines += [f"  {line}" for each in self.members for line in str(each).splitlines()]
        lines += [f"  {printable(name)} failed: {reason}" for name, reason in self.failures]
        return "\n".join(lines)


def _count(values: Sized, noun: str) -> str:
    return f"{len(values)} {noun}" if len(values) == 1 else f"{len(values)} {noun}s"
