"""What becomes of each key when the edits of one phase are done.

Knows how edits of the same key add up; refuses to know how an outcome is brought about. A journal
is carried out again after a crash, perhaps more than once, so each key may have one outcome only:
"written, removed, written" cannot be repeated from the middle, "written" can.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ingot.errors import CorruptionError, NotFoundError
from ingot.stores.store import Buffer, Delete, Edit, Move, Patch, Put

__all__ = ["Outcome", "Patches", "bytes_to_write", "check_reach", "compose", "patched"]


@dataclass(frozen=True, slots=True)
class Patches:
    """Some patches of a key whose other bytes stay."""

    key: str
    patches: tuple[Patch, ...]


Outcome: TypeAlias = Put | Move | Delete | Patches
"""All that becomes of one key."""


def compose(edits: Iterable[Edit]) -> tuple[tuple[Outcome, ...], tuple[Patch, ...]]:
    """Return one outcome for each key, in the order of their last edits; and what comes first.

    What comes first are patches of values that are still staged: nobody sees those yet.

    >>> compose([Put("a", b"012"), Delete("b"), Patch("a", 1, b"xyz"), Put("b", b"")])
    ((Put('a', 4 bytes), Put('b', 0 bytes)), ())
    >>> compose([Move(".g-1-a", "a"), Patch("a", 0, b"x")])
    ((Move(source='.g-1-a', key='a'),), (Patch('.g-1-a', 0, 1 byte),))
    """
    found: dict[str, Outcome] = {}
    early: list[Patch] = []
    for edit in edits:
        before = found.pop(edit.key, None)
        if isinstance(edit, Move):
            found[edit.key] = _moved(found.pop(edit.source, None), edit, early)
        elif not isinstance(edit, Patch):
            found[edit.key] = edit
        elif isinstance(before, Move):
            early.append(Patch(before.source, edit.start, edit.data))
            found[edit.key] = Move(before.source, before.key)  # What was known of it, changes.
        else:
            found[edit.key] = _added(before, edit)
    return tuple(found.values()), tuple(early)


def bytes_to_write(edits: Iterable[Edit]) -> int:
    """Return for how many bytes edits need room; a patch is written to the journal first.

    >>> bytes_to_write([Put("a", b"012"), Patch("b", 1, b"xy"), Delete("c")])
    7
    """
    written = (edit for edit in edits if isinstance(edit, Put | Patch))
    return sum(memoryview(e.data).nbytes * (1 + isinstance(e, Patch)) for e in written)


def patched(value: Buffer, patch: Patch, where: str) -> bytes:
    """Return a value after a patch of it, which must begin inside of it or at its end."""
    check_reach(patch, memoryview(value).nbytes, where)
    old, data = bytes(value), bytes(patch.data)
    return old[: patch.start] + data + old[patch.start + len(data) :]


def check_reach(patch: Patch, size: int, where: str) -> None:
    """Complain about a patch that would leave a hole behind a value of `size` bytes."""
    if patch.start > size:
        raise CorruptionError(
            f"{where}: key {patch.key!r} holds {size} bytes, a patch starts at {patch.start}"
        )


def _moved(source: Outcome | None, move: Move, early: list[Patch]) -> Outcome:
    if isinstance(source, Put):
        return Put(move.key, source.data)
    if isinstance(source, Delete):
        raise NotFoundError(f"a commit removes key {move.source!r} and moves it afterwards")
    if isinstance(source, Patches):
        early += source.patches
        return Move(move.source, move.key)
    if isinstance(source, Move):
        return replace(source, key=move.key)
    return move


def _added(before: Put | Delete | Patches | None, patch: Patch) -> Outcome:
    if isinstance(before, Put):
        return Put(patch.key, patched(before.data, patch, "a commit"))
    if isinstance(before, Delete):
        raise NotFoundError(f"a commit removes key {patch.key!r} and patches it afterwards")
    earlier = before.patches if isinstance(before, Patches) else ()
    return Patches(patch.key, (*earlier, patch))
