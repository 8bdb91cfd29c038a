"""The edits that publish staged values, and their removal when staging fails."""

import os
from collections.abc import Callable, Iterable, Iterator

from ingot import native
from ingot.stores.store import Commit, Delete, Edit, Move, Put, Store
from ingot.stores.versions import announce_staging, discard, versioned, withdraw_staging

__all__ = ["edits_of", "edits_of_images", "stage_values", "staged_edits"]


def staged_edits(store: Store, stage: Callable[[str, list[Edit]], None]) -> list[Edit]:
    """Return the edits that publish what `stage` stages, given a transaction and a list for them.

    What was staged is removed when it fails.
    """
    transaction = os.urandom(8).hex()
    edits: list[Edit] = []
    try:
        announce_staging(store, transaction)
        stage(transaction, edits)
    except BaseException:
        discard(store, edits)
        withdraw_staging(store, transaction)
        raise
    if not any(isinstance(edit, Move) for edit in edits):
        # Nothing was staged, so no commit or discard ends the announcement.
        withdraw_staging(store, transaction, staged=False)
    return edits


def edits_of(staged: "Iterable[native.Staged]") -> list[Edit]:
    """Return the edits that publish what the kernel has staged."""
    return [
        Delete(key) if source is None else Move(source, key, size, checksum)
        for _, key, source, size, checksum in staged
    ]


def edits_of_images(images: "Iterable[native.Image]") -> Iterator[Edit]:
    """Yield the edits that publish images which the kernel has staged."""
    for _, key, source, size, checksum in images:
        assert not isinstance(source, bytes), "all images are staged"
        yield Delete(key) if source is None else Move(source, key, size, checksum)


def stage_values(store: Store, commit: Commit) -> Iterator[Edit]:
    """Yield the published edits of a commit, the values of puts staged where the store can."""
    states = versioned(store)
    for edit in commit.publish:
        if isinstance(edit, Put) and states is not None:
            yield states.stage(edit.key, edit.data)
        else:
            yield edit
