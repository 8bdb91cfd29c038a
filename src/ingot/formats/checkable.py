"""The contract of formats that check and repair their datasets, and the values that it speaks of.

A format knows what lies beside the chunks: documents, lengths, indexes, offsets, spare and dead
bytes. It says what is wrong with them (`Checkable`) and which commits mend it (`Repairable`).
Chunks are verified by the engine. A format never writes: `ingot.repair` applies the commits.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from ingot.fields import printable
from ingot.formats.format import ArrayNode, Format, Node, RaggedNode
from ingot.stores.store import Commit, Store

__all__ = [
    "Checkable",
    "Finding",
    "Repair",
    "RepairRequest",
    "Repairable",
    "Severity",
    "Suspecting",
    "as_checkable",
    "as_repairable",
    "as_suspecting",
]

Severity: TypeAlias = Literal["error", "warning", "note"]
"""An error: data is lost, damaged or cannot be read. A warning: no data is lost, but something is
wrong or unfinished. A note: nothing is wrong, such as bytes that hold nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    >>> finding = Finding("prices", "chunk", "torn", file="c/1", chunk=(1,), lost="chunk")
    >>> print(finding)
    error: prices: c/1: chunk (1,): torn; lost: chunk
    """

    dataset: str
    """The dataset, as users call it: a path, and of a column its name behind it."""
    kind: str
    """What is wrong, as one word for programs: chunk, missing, index, length, document, …"""
    problem: str
    """What is wrong, for people."""
    file: str = ""
    """The key of the file in the store of the dataset; empty where it is no single file."""
    chunk: tuple[int, ...] | None = None
    """The coordinates of the chunk, or the number of the pack; None where it is none."""
    lost: str = ""
    """What is lost; empty where nothing is."""
    repair: str = ""
    """What `ingot.repair` does about it; empty where it does nothing."""
    severity: Severity = "error"

    def __str__(self) -> str:
        named = self.problem.startswith(f"{self.file} ")
        where = [self.dataset, "" if named else self.file]
        if self.chunk is not None:
            where.append(f"chunk {self.chunk}")
        text = f"{self.severity}: {printable(': '.join(filter(None, where)))}: {self.problem}"
        if self.lost:
            text += f"; lost: {self.lost}"
        return f"{text}; repair: {self.repair}" if self.repair else text

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them.

        >>> Finding("a", "chunk", "lost", chunk=(1, 2)).as_dict()["chunk"]
        [1, 2]
        """
        fields = asdict(self)
        return {**fields, "chunk": None if self.chunk is None else list(self.chunk)}


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What the caller of a repair allows.

    `grow` returns the commit that gives a column more rows: the fill value, or nulls in items of
    variable length.
    """

    grow: Callable[[ArrayNode | RaggedNode, int], Commit]
    drop: bool = False
    """Whether items that cannot be read are given up."""
    longest: bool = False
    """Whether columns of different length get the length of the longest, not of the shortest."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One step of a repair: what was wrong, and the commit that mends it."""

    finding: Finding
    commit: Commit


@runtime_checkable
class Checkable(Protocol):
    """A format that checks what lies beside the chunks of its datasets."""

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with documents, indexes, lengths and files of a dataset.

        `node` is what opening yields; None where opening fails, and then the findings say why, as
        far as the format can tell. `name` is what findings call the dataset. No chunk is decoded;
        with `quick`, no chunk is looked at.
        """
        ...


@runtime_checkable
class Repairable(Protocol):
    """A format that mends its datasets."""

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends a dataset, which may not open; None without a fault.

        Called by the one writer, again after each step was applied, until no step is left. Only
        what lies beside the chunks is mended; the engine replaces chunks.
        """
        ...


@runtime_checkable
class Suspecting(Protocol):
    """A format that recognises what is left of its datasets when the markers are lost."""

    def suspects(self, store: Store, path: str) -> bool:
        """Return whether a folder or file that no format recognises was a dataset of this one."""
        ...


def as_checkable(format: Format) -> Checkable | None:
    """Return a format as one that checks its datasets; None when it does not."""
    return cast(Checkable, format) if hasattr(type(format), "findings") else None


def as_repairable(format: Format) -> Repairable | None:
    """Return a format as one that mends its datasets; None when it does not."""
    return cast(Repairable, format) if hasattr(type(format), "repair") else None


def as_suspecting(format: Format) -> Suspecting | None:
    """Return a format as one that recognises what is left of datasets; None when it does not."""
    return cast(Suspecting, format) if hasattr(type(format), "suspects") else None
