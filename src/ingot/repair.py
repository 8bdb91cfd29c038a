"""Repairing datasets: what a check found is mended, and the old bytes are kept aside.

A repair finishes what dead writers left, and asks the format for the steps that mend documents,
lengths and indexes (`ingot.formats.checkable.Repairable`). It consolidates metadata again, and,
where the caller allows it, replaces chunks that cannot be read by the fill value. Every step is one
commit, so a repair that is interrupted is continued by the next one, and a second repair changes
nothing.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ingot._lazy import make_callable
from ingot.check import KEPT_ASIDE, CheckRun, Finding, Report, format_of, is_damage, name_of
from ingot.containers.array import array_handle
from ingot.containers.handle import HandleProtocol
from ingot.containers.ragged import ragged_handle
from ingot.containers.resolve import Address, DatasetPath, Path, resolve_store, with_settings
from ingot.containers.table_state import column_handle, items_handle, table_handle
from ingot.engine import changes, ragged
from ingot.engine.payload import engine_of
from ingot.engine.ragged import RaggedEngine
from ingot.engine.run import ChunkFailure, Engine
from ingot.errors import IngotError, ReadOnlyError, RemoteError
from ingot.formats.checkable import RepairRequest, as_repairable
from ingot.formats.format import (
    ArrayNode,
    Format,
    GroupFormat,
    GroupNode,
    Node,
    RaggedNode,
    TableNode,
)
from ingot.formats.paths import joined
from ingot.options import Options, given_options
from ingot.stores import FileStore, LocalStore, Store, ZipStore
from ingot.stores.store import Commit, Extent, Feature, Grown, Put
from ingot.stores.versions import writing

__all__ = ["repair"]

_MOST_STEPS: Final = 10_000
_OFFSET: Final = "shard index"


def repair(
    path: Path,
    *,
    backup: bool = True,
    drop: bool = False,
    longest: bool = False,
    options: Options | None = None,
) -> Report:
    """Mend a dataset, or all datasets of a folder, and return what was done and what is left.

    Unfinished commits are finished. Documents, lengths and indexes are rebuilt from what is
    stored, as far as that tells. Lengths get those of the rows that are stored, and columns of a
    table that of the shortest, or with `longest` that of the longest, filled up with the fill
    value. With `drop`, chunks that cannot be read are replaced by the fill value, and items by
    nulls. Unless `backup` is false, the old bytes of everything that changes are kept in a folder
    beside the dataset, whose name ends with ".before-repair".

    >>> import numpy as np
    >>> import ingot
    >>> from ingot.stores import Commit, Delete, MemoryStore
    >>> store = MemoryStore()
    >>> _ = ingot.array(np.arange(100), store, format="bcolz", chunks=50)
    >>> store.apply(Commit(publish=(Delete("meta/sizes"),)))
    >>> report = ingot.repair(store)
    >>> [finding.problem for finding in report.done], report.ok
    (['meta/sizes is lost'], True)
    >>> ingot.open(store)[98:]
    array([98, 99])
    """
    chosen = given_options(options)
    before = CheckRun(False, None, chosen)
    address = with_settings(path, chosen.storage)
    before.path(address)
    run = _Mending(chosen, drop, longest, backup)
    after = CheckRun(False, None, chosen)
    # A path that cannot be looked at is a finding without a dataset.
    for number, (root, start) in enumerate(before.roots):
        end = before.roots[number + 1][1] if number + 1 < len(before.roots) else None
        found = before.findings[start:end]
        if not any(each.repair or each.severity == "error" for each in found):
            continue
        try:
            run.mend(root, found)
        except (IngotError, OSError) as error:
            if len(before.roots) == 1:
                raise
            problem = f"not repaired: {error}"
            after.findings.append(Finding(name_of(root), "repair", problem, severity="warning"))
    after.path(address)
    report = after.report(name_of(address))
    return replace(report, done=tuple(run.done), backup=run.kept)


@dataclass(slots=True)
class _Mending:
    """One run of a repair: what was done so far."""

    options: Options
    drop: bool
    longest: bool
    backup: bool
    done: list[Finding] = field(default_factory=list)
    kept: str | None = None

    def mend(self, path: Address, found: Iterable[Finding]) -> None:
        """Mend one dataset, or group, and all below it."""
        place = resolve_store(path, None, writable=True)
        if Feature.WRITE not in place.store.features:
            raise ReadOnlyError(f"{place.name}: opened for reading only, and cannot be repaired")
        keeper = _Keeper(place, self.backup)
        self._recover(place, found, keeper)
        format = format_of(place)
        if format is not None:
            self._dataset(format, place.store, place.inner, place.name, keeper)
        self.kept = self.kept or keeper.kept

    def _recover(self, place: DatasetPath, found: Iterable[Finding], keeper: "_Keeper") -> None:
        """Finish what dead writers left; a journal that is damaged is set aside."""
        mended = [each for each in found if each.kind in ("journal", "commit", "staged")]
        if not mended:
            return
        if any(each.kind == "journal" for each in mended):
            for path in (
                getattr(place.store, "journal_path", None),
                getattr(place.store, "log_path", None),
            ):
                if path is not None and os.path.lexists(path):
                    keeper.set_aside(path)
        recover: Callable[[], None] | None = getattr(place.store, "recover", None)
        if recover is not None:
            recover()
            self.done += mended

    def _dataset(
        self, format: Format, store: Store, inner: str, name: str, keeper: "_Keeper"
    ) -> None:
        self._steps(format, store, inner, name, keeper)
        try:
            node: Node = format.open(store, inner)
        except (IngotError, OSError):
            return  # The check that follows says what is left.
        if isinstance(node, GroupNode) and isinstance(format, GroupFormat):
            self._consolidated(format, store, inner, name, keeper)
            for child in format.children(store, inner):
                self._dataset(format, store, joined(inner, child), f"{name}/{child}", keeper)
        elif self.drop:
            # What cannot be replaced stays, and the check that follows says so.
            with suppress(IngotError):
                self._drop(format, store, inner, node, name, keeper)

    def _steps(
        self, format: Format, store: Store, inner: str, name: str, keeper: "_Keeper"
    ) -> None:
        """Apply the steps that the format knows, one after the other."""
        repairable, last = as_repairable(format), None
        if repairable is None:
            return

        def grow(column: ArrayNode | RaggedNode, rows: int) -> Commit:
            if isinstance(column, RaggedNode):
                return ragged.resized(RaggedEngine(column.packs, self.options), rows).commit
            shape = (rows, *column.schema.shape[1:])
            return changes.resized(engine_of(column.chunks, self.options), shape).commit

        request = RepairRequest(grow, self.drop, self.longest)
        for _ in range(_MOST_STEPS):
            # A turn changes the lock file, so it is taken only for a step.
            if repairable.repair(store, inner, request, name) is None:
                return
            with writing(store, durability=self.options.durability) as turn:
                step = repairable.repair(turn.store, inner, request, name)
                if step is None or step == last:
                    return
                last = step
                turn.commit(keeper.keep(turn.store, step.commit))
            self.done.append(step.finding)

    def _consolidated(
        self, format: GroupFormat, store: Store, inner: str, name: str, keeper: "_Keeper"
    ) -> None:
        try:
            found = format.compare_consolidated(store, inner)
            problem = (
                "" if found is None or found.current else f"{len(found.stale)} documents differ"
            )
        except RemoteError:
            raise
        except (IngotError, OSError) as error:
            problem = f"cannot be read: {error}"
        if not problem:
            return
        with writing(store, durability=self.options.durability) as turn:
            turn.commit(keeper.keep(turn.store, format.consolidated(turn.store, inner)))
        problem = f"consolidated metadata: {problem}"
        self.done.append(Finding(name, "consolidated", problem, severity="warning"))

    # Chunks --------------------------------------------------------------------------------------

    def _drop(
        self, format: Format, store: Store, inner: str, node: Node, name: str, keeper: "_Keeper"
    ) -> None:
        if isinstance(node, ArrayNode):
            self._drop_chunks(array_handle(format, store, inner, self.options), name, keeper)
        elif isinstance(node, RaggedNode):
            self._drop_packs(ragged_handle(format, store, inner, self.options), name, keeper)
        elif isinstance(node, TableNode):
            whole = table_handle(format, store, inner, self.options)
            for column in whole.value.leaves:
                shown = f"{name}: column {column}"
                try:
                    is_array = whole.value.items(column) is None
                except IngotError:
                    continue
                if is_array:
                    self._drop_chunks(column_handle(whole, column), shown, keeper)
                else:
                    self._drop_packs(items_handle(whole, column), shown, keeper)

    def _drop_chunks(self, handle: HandleProtocol[Engine], name: str, keeper: "_Keeper") -> None:
        run = CheckRun(False, None, self.options)
        failures = [each for each in run.failures(handle) if is_damage(each.error)]
        failures += run.missing(handle)
        lost = [each for each in failures if str(each.error).startswith(_OFFSET)]
        files = {each.key for each in lost}
        rest = [each for each in failures if each.key not in files or not each.key]
        for chosen, whole in ((lost, True), (rest, False)):
            if not chosen:
                continue
            coords = [each.coords for each in chosen]
            with handle.writing() as turn:
                engine = turn.value
                data = engine.dropped_files(coords) if whole else engine.dropped(coords)
                after, commit = changes.change_of(engine.committed(), data)
                turn.commit(after, keeper.keep(handle.store, commit))
            self.done += (_dropped(name, each, "the fill value") for each in chosen)

    def _drop_packs(
        self, handle: HandleProtocol[RaggedEngine], name: str, keeper: "_Keeper"
    ) -> None:
        found = CheckRun(False, None, self.options).pack_failures(handle)
        failures = [each for each in found if is_damage(each.error)]
        if failures:
            with handle.writing() as turn:
                after, commit = turn.value.dropped(each.coords[0] for each in failures)
                turn.commit(after, keeper.keep(handle.store, commit))
            self.done += (_dropped(name, each, "nulls") for each in failures)


def _dropped(name: str, failure: ChunkFailure, by: str) -> Finding:
    problem = f"{' '.join(str(failure.error).split())}"
    return Finding(
        name, "chunk", problem, failure.key, failure.coords, "its items", f"replaced by {by}"
    )


@dataclass(slots=True)
class _Keeper:
    """Keeps the old bytes of what a repair changes: beside the dataset, or under keys of it."""

    place: DatasetPath
    wanted: bool
    kept: str | None = None
    seen: set[str] = field(default_factory=set)

    def keep(self, store: Store, commit: Commit) -> Commit:
        """Keep the old bytes of all keys that a commit changes, and return the commit to apply."""
        keys = {edit.key for edit in commit.edits if not isinstance(edit, Grown)} - self.seen
        if not self.wanted or not keys:
            return commit
        target = self.place.store
        if isinstance(target, LocalStore | FileStore | ZipStore):
            if isinstance(target, ZipStore):
                self._copy_file(target.location, os.path.basename(target.location))
            else:
                folder = target.root
                for key in sorted(keys):
                    self._copy_file(os.path.join(folder, *key.split("/")), key)
            self.seen |= keys
            return commit
        old = store.read([Extent(key) for key in sorted(keys)])
        present = [
            (key, data) for key, data in zip(sorted(keys), old, strict=True) if data is not None
        ]
        self.seen |= keys
        if not present:
            return commit
        if self.kept is None:
            self.kept = _free_name(lambda name: any(store.names(name)), KEPT_ASIDE)
        puts = tuple(Put(f"{self.kept}/{key}", data) for key, data in present)
        return replace(commit, prepare=(*puts, *commit.prepare))

    def set_aside(self, path: str) -> None:
        """Move a file out of the dataset: it is kept, or removed where nothing is kept."""
        if self.wanted:
            self._copy_file(path, os.path.basename(path))
        os.remove(path)

    def _copy_file(self, path: str, key: str) -> None:
        if not os.path.isfile(path):
            return
        if self.kept is None:
            whole = os.path.realpath(self.place.path or self.place.store.location)
            self.kept = _free_name(os.path.lexists, f"{whole}{KEPT_ASIDE}")
        target = os.path.join(self.kept, *key.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(path, target)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _free_name(is_taken: Callable[[str], Any], stem: str) -> str:
    """Return a name that is not taken: the stem, or the stem and a number."""
    name, number = stem, 1
    while is_taken(name):
        number += 1
        name = f"{stem}-{number}"
    return name


make_callable(__name__, repair)
