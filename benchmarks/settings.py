"""What a run is asked to do, apart from which workloads.

Knows the choices and their defaults. Refuses to know where they come from.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.race import Effort

__all__ = ["QUICK_EFFORT", "QUICK_SCALE", "Settings", "say"]

QUICK_EFFORT = Effort(repetitions=2, seconds=0.001)
QUICK_SCALE = 1 / 64


def say(text: str) -> None:
    """Tell what happens meanwhile, beside the results."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard to try, how large, where, and with which other Python.

    ``folder`` is a place for files that the caller removes. ``python`` is another interpreter, for
    zarr; None runs it in this one.

    >>> Settings(Path("."), scale=0.5).judged
    False
    """

    folder: Path
    effort: Effort = field(default_factory=Effort)
    scale: float = 1.0
    python: str | None = None
    say: Callable[[str], None] = say

    @property
    def judged(self) -> bool:
        """Whether bars are held against the results: they are set for the full size."""
        return self.scale >= 1

    def verdict(self, held: bool) -> bool | None:
        """Judge a bar, or leave it open when the sizes are not those it was set for."""
        return held if self.judged else None

    def shrunk(self, nbytes: int) -> int:
        """Scale a size down, to whole items of eight bytes and not below 4 KiB.

        >>> Settings(Path("."), scale=0.5).shrunk(1 << 20), Settings(Path(".")).shrunk(1 << 20)
        (524288, 1048576)
        """
        return max(4096, int(nbytes * min(self.scale, 1.0)) // 8 * 8)
