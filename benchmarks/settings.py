"""The settings of a run, apart from the choice of workloads."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.race import Effort

__all__ = ["QUICK_EFFORT", "QUICK_SCALE", "Settings", "say"]

QUICK_EFFORT = Effort(repetitions=2, seconds=0.001)
QUICK_SCALE = 1 / 64


def say(text: str) -> None:
    """Print progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """The effort, the scale, the folder, and the other Python of a run.

    ``folder`` is for files; the caller removes it. ``python`` is another interpreter, for
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
        """Whether bars are judged: they apply to the full size only."""
        return self.scale >= 1

    def verdict(self, held: bool) -> bool | None:
        """Return the verdict on a bar; None when the size is not the one it applies to."""
        return held if self.judged else None

    def shrunk(self, nbytes: int) -> int:
        """Return a size scaled down, in whole items of eight bytes and at least 4 KiB.

        >>> Settings(Path("."), scale=0.5).shrunk(1 << 20), Settings(Path(".")).shrunk(1 << 20)
        (524288, 1048576)
        """
        return max(4096, int(nbytes * min(self.scale, 1.0)) // 8 * 8)
