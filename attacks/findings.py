"""A finding: a promise that did not hold, with the program that shows it.

Findings with the same attack, kind and subject count as one fault, however often they occur.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["FOLDER", "Finding", "shrink"]

FOLDER = Path(__file__).resolve().parent / "findings"
"""Where reproductions are saved. Git ignores it."""

Part = TypeVar("Part")


@dataclass(frozen=True)
class Finding:
    """A promise that did not hold."""

    attack: str
    kernel: str
    seed: int
    case: int
    kind: str
    """One word for what went wrong: death, hang, lock, litter, state, wrong, error and so on."""
    subject: str
    """What was attacked, for instance the scenario and the format."""
    expected: str
    happened: str
    program: str = ""
    """A standalone Python program that shows it."""

    @property
    def fault(self) -> tuple[str, str, str]:
        """Return what findings of the same fault have in common."""
        return (self.attack, self.kind, self.subject)

    @property
    def command(self) -> str:
        """Return the command that repeats the case."""
        options = f"--kernel {self.kernel} --seed {self.seed} --case {self.case}"
        return f"python -m attacks {self.attack} {options}"

    def save(self, folder: Path = FOLDER) -> Path:
        """Save the program with what it shows; return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.kind} {self.subject}".lower()).strip("-")
        path = folder / f"{self.attack}-{words[:80]}-{self.kernel}.py"
        story = [self.subject, f"expected: {self.expected}", f"happened: {self.happened}"]
        lines = [line for entry in story for line in entry.splitlines()]
        comment = "\n".join(f"# {line}".rstrip() for line in [*lines, "", self.command])
        variable = f'# INGOT_KERNEL={self.kernel} python "{path.name}"'
        program = self.program or "# This case has no program of its own: repeat it by its command."
        path.write_text(f"{comment}\n{variable}\n{program}\n", encoding="utf-8")
        return path

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, to send them to another process."""
        return asdict(self)


def shrink(
    parts: Sequence[Part], fails: Callable[[list[Part]], bool], seconds: float = 3.0
) -> list[Part]:
    """Drop parts as long as the rest still fails; stop after some seconds.

    >>> shrink([1, 2, 3, 4, 5, 6], lambda parts: {2, 5} <= set(parts))
    [2, 5]
    """
    rest = list(parts)
    end = time.monotonic() + seconds
    size = max(1, len(rest) // 2)
    while time.monotonic() < end:
        dropped = False
        start = 0
        while start < len(rest) and time.monotonic() < end:
            candidate = rest[:start] + rest[start + size :]
            if candidate != rest and fails(candidate):
                rest = candidate
                dropped = True
            else:
                start += size
        if size == 1 and not dropped:
            break
        size = max(1, size // 2)
    return rest
