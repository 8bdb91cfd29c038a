"""The contract fails for stores that break it: each of its tests has something to catch."""

import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pytest

from ingot.errors import IngotError, UnsupportedError
from ingot.stores import Commit, Delete, Extent, Feature, MemoryStore, Patch, Put, Store
from ingot.stores.store import Buffer, Edit, Grown, Phase, Truncate
from ingot.testing import StoreContract


class FillsWhatIsAbsent(MemoryStore):
    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        return [data or b"" for data in super().read(extents)]


class TakesEmptyForAbsent(MemoryStore):
    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        return [data or None for data in super().read(extents)]


class PadsShortReads(MemoryStore):
    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        return [
            data and data.ljust(min(extent.length or 0, 50), b"\0")
            for data, extent in zip(super().read(extents), extents, strict=True)
        ]


class EditByEdit(MemoryStore):
    """A store that applies one edit after the other, so that one kind of edit can be broken."""

    def _apply_phase(self, phase: Phase, edits: Sequence[Edit]) -> None:
        for edit in edits:
            self._perform(edit)

    def _perform(self, edit: Edit) -> None:
        super()._apply_phase("publish", (edit,))


class SortsExtents(MemoryStore):
    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        return super().read(sorted(extents, key=lambda extent: (extent.key, extent.start)))


class ForgetsToCheckReads(MemoryStore):
    def _value(self, key: str) -> bytes | None:
        return self._values.get(key)


class ForgetsToCheckCommits(EditByEdit):
    def apply(self, commit: Commit) -> None:
        for edit in commit.edits:
            self._perform(edit)


class ChecksEachEditAlone(MemoryStore):
    def apply(self, commit: Commit) -> None:
        for edit in commit.edits:
            super().apply(Commit(publish=(edit,)))


class PublishesFirst(MemoryStore):
    def apply(self, commit: Commit) -> None:
        super().apply(Commit(commit.publish, commit.prepare, commit.cleanup))


class GoesOnAfterFailures(MemoryStore):
    def apply(self, commit: Commit) -> None:
        failure: IngotError | None = None
        for edit in commit.edits:
            try:
                super().apply(Commit(publish=(edit,)))
            except IngotError as error:
                failure = error
        if failure:
            raise failure


class LeavesStagedNames(MemoryStore):
    def apply(self, commit: Commit) -> None:
        staged = [Put(f"{edit.key[:2]}.g-1-x", b"") for edit in commit.edits]
        super().apply(Commit(prepare=tuple(staged)))
        super().apply(commit)
        super().apply(Commit(cleanup=tuple(Delete(edit.key) for edit in staged)))


class KeepsTheCallersBuffer(EditByEdit):
    def _perform(self, edit: Edit) -> None:
        super()._perform(edit)
        if isinstance(edit, Put):
            self._values[edit.key] = edit.data  # type: ignore[assignment]


class PatchesWithHoles(EditByEdit):
    def _perform(self, edit: Edit) -> None:
        if isinstance(edit, Patch):
            value = self._values.get(edit.key) or b""
            super()._perform(Put(edit.key, value.ljust(edit.start, b"\0")))
        super()._perform(edit)


class PatchesCommittedBytes(MemoryStore):
    def _apply_phase(self, phase: Phase, edits: Sequence[Edit]) -> None:
        super()._apply_phase("publish", edits)


class TruncatesNothing(EditByEdit):
    def _perform(self, edit: Edit) -> None:
        if not isinstance(edit, Truncate):
            super()._perform(edit)


class ExtendsAtOnce(MemoryStore):
    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        grown = super().extend(key, pieces, end=end)
        super()._apply_phase("prepare", (grown,))
        return grown


class BelievesInGrowth(EditByEdit):
    def _perform(self, edit: Edit) -> None:
        if isinstance(edit, Grown):
            value = self._values.get(edit.key) or b""
            edit = Put(edit.key, value.ljust(edit.start + edit.size, b"?"))
        super()._perform(edit)


class PutsInTwoSteps(EditByEdit):
    def _perform(self, edit: Edit) -> None:
        if isinstance(edit, Put):
            self._values[edit.key] = bytes(edit.data)[: len(edit.data) // 2]
            time.sleep(0.0001)
        super()._perform(edit)


class ReadsEachExtentAnew(MemoryStore):
    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        found = []
        for extent in extents:
            found += super().read([extent])
            time.sleep(0.0001)
        return found


class IdentifiesBySize(MemoryStore):
    def identity(self, key: str) -> Hashable | None:
        return self.size(key)


class IdentifiesByValue(MemoryStore):
    def identity(self, key: str) -> Hashable | None:
        return self._value(key)


class IdentifiesWhatIsAbsent(MemoryStore):
    def identity(self, key: str) -> Hashable | None:
        self.size(key)
        return self._change_count


class IdentifiesEachCall(MemoryStore):
    def identity(self, key: str) -> Hashable | None:
        return None if self.size(key) is None else object()


class ListsEverything(MemoryStore):
    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        return super().names(prefix, hidden=True)


class ListsUnsorted(MemoryStore):
    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        return iter(list(super().names(prefix, hidden=hidden))[::-1])


class ListsNeighbours(MemoryStore):
    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        return (key for key in sorted(self._values) if key.startswith(prefix))


class DeletesOnce(EditByEdit):
    def _perform(self, edit: Edit) -> None:
        if isinstance(edit, Delete):
            del self._values[edit.key]
        else:
            super()._perform(edit)


class ClaimsToBeNative(MemoryStore):
    @property
    def features(self) -> Feature:
        return super().features | Feature.NATIVE


class LosesRacingWrites(EditByEdit):
    def __init__(self) -> None:
        super().__init__()
        self._two_writers = threading.Barrier(2)

    def _perform(self, edit: Edit) -> None:
        if isinstance(edit, Put):
            values = {**self._values, edit.key: bytes(edit.data)}
            # The first two writers meet here, each with its own copy of the same state.
            with suppress(threading.BrokenBarrierError):
                self._two_writers.wait(60)
                self._two_writers.abort()
            self._values = values

    def apply(self, commit: Commit) -> None:
        for edit in commit.edits:
            self._perform(edit)


BROKEN: tuple[tuple[type[MemoryStore], str, dict[str, object]], ...] = (
    (FillsWhatIsAbsent, "test_only_absence_is_none", {}),
    (FillsWhatIsAbsent, "test_an_empty_store_is_absent_everywhere", {}),
    (TakesEmptyForAbsent, "test_only_absence_is_none", {}),
    (PadsShortReads, "test_reads_what_an_extent_finds", {"length": 2**40}),
    (SortsExtents, "test_reads_extents_in_the_order_asked", {}),
    (ForgetsToCheckReads, "test_hostile_keys_are_not_read", {"use": "read"}),
    (ForgetsToCheckReads, "test_hostile_keys_are_not_read", {"use": "size"}),
    (ForgetsToCheckReads, "test_hostile_keys_are_not_read", {"use": "identity"}),
    (IdentifiesBySize, "test_a_change_of_a_value_changes_its_identity", {}),
    (IdentifiesByValue, "test_a_change_of_a_value_changes_its_identity", {}),
    (IdentifiesWhatIsAbsent, "test_what_is_absent_has_no_identity", {}),
    (IdentifiesEachCall, "test_an_identity_stays_while_the_value_does", {}),
    (ForgetsToCheckCommits, "test_hostile_keys_are_not_written", {"use": "put"}),
    (ForgetsToCheckCommits, "test_hostile_keys_are_not_written", {"use": "delete"}),
    (ChecksEachEditAlone, "test_a_commit_is_checked_before_its_first_edit", {}),
    (PublishesFirst, "test_edits_take_effect_in_order", {}),
    (PublishesFirst, "test_a_failing_edit_ends_the_commit", {}),
    (PublishesFirst, "test_any_commits_act_as_on_a_dictionary", {"seed": 0}),
    (GoesOnAfterFailures, "test_a_failing_edit_ends_the_commit", {}),
    (LeavesStagedNames, "test_a_failing_edit_leaves_nothing_staged", {}),
    (KeepsTheCallersBuffer, "test_put_takes_any_buffer_and_keeps_its_own_bytes", {}),
    (PatchesWithHoles, "test_a_patch_leaves_no_hole_and_creates_nothing", {}),
    (PatchesCommittedBytes, "test_a_patch_outside_of_publish_does_not_touch_committed_bytes", {}),
    (TruncatesNothing, "test_truncate_shortens_a_value", {}),
    (ExtendsAtOnce, "test_an_extend_without_a_commit_changes_nothing", {}),
    (BelievesInGrowth, "test_only_what_an_extend_has_written_grows_a_key", {}),
    (PutsInTwoSteps, "test_a_put_is_seen_whole_by_other_threads", {}),
    (ReadsEachExtentAnew, "test_a_put_is_seen_whole_by_other_threads", {}),
    (ListsEverything, "test_staged_names_are_hidden", {}),
    (ListsUnsorted, "test_names_are_children_sorted_folders_marked", {}),
    (ListsNeighbours, "test_names_are_children_sorted_folders_marked", {}),
    (ListsNeighbours, "test_what_is_absent_has_no_names", {}),
    (ListsNeighbours, "test_hostile_prefixes_are_not_listed", {}),
    (DeletesOnce, "test_delete_removes_and_may_be_repeated", {}),
    (ClaimsToBeNative, "test_native_stores_have_a_root", {}),
    (LosesRacingWrites, "test_threads_write_their_own_keys", {}),
)


@pytest.mark.parametrize(("kind", "test", "parameters"), BROKEN)
def test_a_broken_store_fails_the_contract(
    kind: type[MemoryStore], test: str, parameters: dict[str, object]
) -> None:
    # A sound store passes the same call, so the failure is the store's.
    getattr(StoreContract(), test)(MemoryStore(), **parameters)
    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError)):
        getattr(StoreContract(), test)(kind(), **parameters)


class Modest(EditByEdit):
    """Reads one value, does nothing else, and says so."""

    def __init__(self) -> None:
        super().__init__({"a": b"alpha"}, writable=False)

    @property
    def features(self) -> Feature:
        return Feature.RANGES

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        raise UnsupportedError("no names here")


class DoesMoreThanItSays(Modest):
    names = MemoryStore.names

    def apply(self, commit: Commit) -> None:
        for edit in commit.edits:
            self._perform(edit)


class WritesButCannotPatch(EditByEdit):
    @property
    def features(self) -> Feature:
        return Feature.RANGES | Feature.WRITE


class PatchesAnyway(WritesButCannotPatch):
    def apply(self, commit: Commit) -> None:
        for edit in commit.edits:
            self._perform(edit)


class FilledContract(StoreContract):
    def fill(self, store: Store, content: Mapping[str, bytes]) -> Store:
        return store


@pytest.mark.parametrize(
    ("sound", "broken", "test"),
    [
        (Modest, DoesMoreThanItSays, "test_a_store_that_does_not_write_refuses"),
        (Modest, DoesMoreThanItSays, "test_listing_without_the_feature_is_refused"),
        (WritesButCannotPatch, PatchesAnyway, "test_patching_without_the_feature_is_refused"),
    ],
)
def test_what_is_not_advertised_must_be_refused(
    sound: type[Store], broken: type[Store], test: str
) -> None:
    getattr(FilledContract(), test)(sound())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(FilledContract(), test)(broken())


def test_a_contract_asks_for_its_store() -> None:
    with pytest.raises(NotImplementedError, match="fixture"):
        StoreContract.store.__wrapped__(StoreContract())  # type: ignore[attr-defined]
