"""Carrying out a conversion: a plan becomes edits of the target, and one commit publishes it."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ingot.containers.conversion import PENDING, Conversion
from ingot.containers.create import blocks, one_state
from ingot.containers.dataset import Dataset
from ingot.containers.group import GroupState
from ingot.containers.replacement import replace_dataset
from ingot.containers.resolve import (
    DatasetPath,
    NewDataset,
    Path,
    remove_existing,
    resolve_new,
)
from ingot.containers.table_state import TableState
from ingot.conversion.extras import extra_files, path_of, read_extra
from ingot.conversion.plan import (
    ArrayPlan,
    Findings,
    GroupPlan,
    Plan,
    RaggedPlan,
    TablePlan,
    Wanted,
    differences,
    kinds_of,
    leaves,
    make_plan,
)
from ingot.conversion.record import (
    PendingStore,
    Progression,
    folder_state,
    is_stored,
    read_progression,
    read_windows,
    removal,
    remove_empty_folders,
    remove_folder,
    window_put,
)
from ingot.engine import transfer
from ingot.engine.payload import engine_of
from ingot.engine.ragged import RaggedEngine
from ingot.engine.run import Engine
from ingot.errors import ExistsError, IngotError, NotFoundError, UnsupportedError
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    ColumnSchema,
    Format,
    GroupFormat,
    Node,
    RaggedNode,
    SequenceFormat,
    TableFormat,
    TableNode,
    as_annotated,
    manifested,
    recorded,
    stored_map,
)
from ingot.formats.keys import stored
from ingot.formats.paths import joined, prefix
from ingot.options import Options
from ingot.stores import MemoryStore
from ingot.stores.buffered import BufferedStore
from ingot.stores.store import (
    Commit,
    Delete,
    Edit,
    Feature,
    Put,
    Store,
    native_root,
    whole_keys,
)
from ingot.stores.versions import discard, writing

__all__ = ["Progress", "check_apart", "check_folders_apart", "convert", "new_place", "node_of"]

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes that are done and the bytes there are."""


def node_of(source: Dataset[Any]) -> tuple[Node, Store]:
    """Return what an open dataset is, and the store that it is read from."""
    value = source._handle.value
    if isinstance(value, Engine):
        return ArrayNode(value.chunks), value.chunks.store
    if isinstance(value, TableState):
        return TableNode(value.table.reopened(value.table.store)), value.table.store
    if isinstance(value, RaggedEngine):
        return RaggedNode(value.packs), value.packs.store
    assert isinstance(value, GroupState)
    return value.node, value.store


def new_place(source: Dataset[Any], path: Path | None, format: str | None) -> NewDataset:
    """Return where a conversion goes, as the first kind of dataset that the format holds.

    Without a format, and without a suffix that says one, it is that of the source.
    """
    kinds = kinds_of(node_of(source)[0])
    for kind in kinds:
        try:
            return resolve_new(path, format, kind, source.format)
        except UnsupportedError:
            if kind is kinds[-1]:
                raise
    raise AssertionError("there is at least one kind")


def convert(
    source: Dataset[Any],
    new: NewDataset,
    wanted: Wanted,
    *,
    overwrite: bool,
    progress: Progress | None,
    verify: bool,
) -> Conversion:
    """Store a dataset at another place in another layout, by one commit, and return the record.

    The source is read in one state: writers of it wait until the end.
    """
    place, target, inner = new
    check_apart(source, place, inner)
    with one_state(source, place.store):
        node, store = node_of(source)
        found = Findings()
        plan = make_plan(node, source._format, store, target, wanted, found)
        name = source.path or store.location
        found.check(name, target.name)
        assert plan is not None
        reported = _Progress(progress, plan, 2 if verify else 1)
        run = _ConversionRun(target, wanted.options, reported, verify)
        run.rehearse(inner, plan, wanted, found)
        run.keep_extras(node, source._format, store, place, found)
        state = folder_state(source.path, *_described(source, target, plan, wanted))
        if not _store_windows(run, place, inner, plan, name, state, overwrite=overwrite):
            _store(run, place, inner, plan, overwrite=overwrite)
    return Conversion(
        source=name,
        source_format=source.format,
        target=place.name,
        format=target.name,
        changes=tuple(found.changes),
        chunks=run.tally.chunks,
        untouched=run.tally.untouched,
        nbytes=run.progress.nbytes,
        verified=verify,
    )


def check_apart(source: Dataset[Any], place: DatasetPath, inner: str) -> None:
    """Raise `UnsupportedError` when a source and its target are the same, or one inside the other.

    Files and folders are compared by what they are, not by their names.
    """
    own = source._handle.store
    if place.store is own and place.path is None:
        node, _ = node_of(source)
        path = path_of(node)
        pair = f"{path}/", f"{inner}/"
        if not path or not inner or pair[0].startswith(pair[1]) or pair[1].startswith(pair[0]):
            raise UnsupportedError(f"{place.name}: the target is the source, or overlaps it")
    check_folders_apart(source.path, place.path)


def check_folders_apart(source: str | None, target: str | None) -> None:
    """Raise `UnsupportedError` when two paths are the same, or one of them lies inside the other.

    >>> check_folders_apart("/usr", "/usr/lib/../new")
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: /usr/lib/../new: the target lies inside its source /usr
    """
    if source is None or target is None:
        return
    here, there = _folders(source), _folders(target)
    if here[0] is not None and here[0] == there[0]:
        raise UnsupportedError(f"{target}: the target is the source itself")
    if here[0] is not None and here[0] in there:
        raise UnsupportedError(f"{target}: the target lies inside its source {source}")
    if there[0] is not None and there[0] in here:
        raise UnsupportedError(f"{target}: the source lies inside its target {source}")


def _folders(path: str) -> list[tuple[int, int] | None]:
    """Return the identity of a file or folder, and those of all folders above it.

    None stands for one that does not exist.
    """
    found: list[tuple[int, int] | None] = []
    place = os.path.realpath(path)
    while True:
        try:
            facts = os.stat(place)
            found.append((facts.st_dev, facts.st_ino))
        except OSError:
            found.append(None)
        above = os.path.dirname(place)
        if above == place:
            return found
        place = above


def _described(
    source: Dataset[Any], target: Format, plan: Plan, wanted: Wanted
) -> Iterator[object]:
    """Yield what decides which bytes a conversion stores."""
    yield source.format, target.name, wanted.options.limits.window_bytes
    for name, leaf in leaves(plan):
        yield name, leaf.schema.shape, str(leaf.schema.dtype), dict(leaf.layout)
        if isinstance(leaf, ArrayPlan):
            yield leaf.schema.chunks, leaf.schema.order, leaf.schema.codec, repr(leaf.schema.fill)
        yield dict(leaf.schema.attrs)


def _store_windows(
    run: "_ConversionRun",
    place: DatasetPath,
    inner: str,
    plan: Plan,
    name: str,
    state: str,
    *,
    overwrite: bool,
) -> bool:
    """Write a new dataset window by window, so that an interruption leaves what is done.

    Return False where that is not possible: the target exists, is part of another dataset, or its
    chunks are no files. The documents are published last, by one commit.
    """
    store, durability = place.store, run.options.durability
    if inner or place.file or place.enclosing or Feature.NATIVE not in store.features:
        return False
    found = read_progression(store)
    if found is not None and found.state != state:
        if not overwrite:
            raise ExistsError(
                f"{place.name}: holds an unfinished conversion of {found.source}, in another state "
                "or layout; overwrite=True discards it"
            )
        _abandon(store)
        found = None
    if found is None and not place.is_empty():
        return False
    created = not os.path.lexists(native_root(store))
    nodes: list[tuple[ArrayNode, ArrayPlan]] = []
    done: set[tuple[int, int]] = set()
    if found is None:
        made = run.documents(store, inner, plan, nodes)
        if made is None:
            return False
        found = Progression(name, state, {edit.key: bytes(edit.data) for edit in made})
    else:
        run.opened(PendingStore(native_root(store), found.documents), inner, plan, nodes)
        windows = read_windows(store)
        done |= {(leaf, window) for leaf, window, files in windows if is_stored(store, files)}
    try:
        store.apply(Commit(prepare=(found.put(),)), durability=durability)
        for number, (node, part) in enumerate(nodes):
            source, target = (
                engine_of(part.source, run.options),
                engine_of(node.chunks, run.options),
            )
            kept = frozenset(window for leaf, window in done if leaf == number)
            moved = transfer.transferred_windows(source, target, run.tally, kept.__contains__)
            for window, edits in moved:
                # First of all, so that whatever is left of a window is named.
                record = window_put(number, window, edits)
                store.apply(Commit(prepare=(record, *edits)), durability=durability)
        documents = {**found.documents, **dict(_manifests(nodes))}
        if run.verify:
            run.compare(PendingStore(native_root(store), documents), inner, plan, store.location)
        publish = tuple(Put(key, data) for key, data in documents.items())
        store.apply(Commit(publish=publish, cleanup=removal(store)), durability=durability)
        with suppress(OSError):
            os.rmdir(os.path.join(native_root(store), os.path.dirname(PENDING)))
    except Exception as error:
        # An error of the system may pass, as an interruption does: then what is done stays.
        if isinstance(error, IngotError) or not isinstance(error, OSError):
            _abandon(store)
            if created:
                remove_folder(native_root(store))
        raise
    return True


def _manifests(nodes: Iterable[tuple[ArrayNode, ArrayPlan]]) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and the bytes of the manifests of arrays whose chunks are stored."""
    for node, _ in nodes:
        named = manifested(node.chunks)
        if named is not None:
            files = stored_map(node.chunks)
            assert files.template is not None, "what has a manifest has files"
            made = named.naming(stored(files.store, files.template, len(files.schema.shape)))
            yield made.key, bytes(made.data)


def _abandon(store: Store) -> None:
    """Remove the record of a conversion, and all files that it names."""
    files = tuple(Delete(key) for _, _, found in read_windows(store) for key, _, _ in found)
    store.apply(Commit(prepare=files, cleanup=removal(store)))
    remove_empty_folders(native_root(store))


def _store(
    run: "_ConversionRun", place: DatasetPath, inner: str, plan: Plan, *, overwrite: bool
) -> None:
    """Write a dataset by one commit, which replaces an existing one where that is allowed."""
    store, durability = place.store, run.options.durability

    def clear(store: Store) -> Commit | None:
        return remove_existing(place, store, overwrite=overwrite, groups=True)

    def write(store: Store) -> None:
        with writing(store, durability=durability) as turn:
            old = clear(turn.store) if store is place.store else None
            edits: list[Edit] = []
            try:
                made = run.write(turn.store, inner, plan, edits)
                commit = _joined(old, made, edits)
                for chunks in run.filled:
                    commit = recorded(chunks, commit)
                if run.verify:
                    preview = _preview(turn.store, commit)
                    run.compare(preview, inner, plan, place.store.location)
            except BaseException:
                discard(turn.store, edits)
                raise
            turn.commit(commit)

    old = clear(store)  # Before a lock file is made.
    if old is None or not run.is_blocked(old, store, inner, plan):
        write(store)
    else:
        replace_dataset(store, inner, old, place.name, write)


def _preview(store: Store, commit: Commit) -> Store:
    """Return a store that reads what a commit makes of another one, which is not changed."""
    # All values of the commit are in memory or staged already: nothing is staged for the preview.
    preview = BufferedStore(store, most=sys.maxsize)
    whole = commit if Feature.PATCH in store.features else whole_keys(store, commit)
    preview.apply(whole)
    return preview


def _joined(old: Commit | None, made: Commit, data: list[Edit]) -> Commit:
    """Return the commit of a new dataset: files that get chunks, the chunks, and documents last."""
    filled = {edit.key for edit in data}
    files = tuple(edit for edit in made.publish if edit.key in filled)
    documents = tuple(edit for edit in made.publish if edit.key not in filled)
    publish = (*files, *data, *documents)
    if old is None:
        return Commit(made.prepare, publish, made.cleanup)
    kept = {edit.key for edit in publish}
    strays = tuple(edit for edit in made.prepare if edit.key not in kept)
    return Commit((), (*old.edits, *publish), (*strays, *made.cleanup))


class _Progress:
    """Counts bytes that are done, and reports them to the caller."""

    def __init__(self, progress: Progress | None, plan: Plan, passes: int) -> None:
        self._progress = progress
        self._passes = passes
        self.nbytes = sum(_nbytes(leaf) for _, leaf in leaves(plan))
        self._done = 0

    def __call__(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            total = self.nbytes * self._passes
            self._progress(self._done, max(total, self._done))


def _nbytes(leaf: ArrayPlan | RaggedPlan) -> int:
    if isinstance(leaf, RaggedPlan):
        return RaggedEngine(leaf.source, Options()).stored_bytes()
    return leaf.schema.nbytes


@dataclass(slots=True)
class _ConversionRun:
    """Writes the parts of a plan: their documents become a commit, their chunks edits."""

    format: Format
    options: Options
    progress: _Progress
    verify: bool
    """Whether all items are compared with those of the source before they are published."""
    tally: transfer.Tally = field(init=False)
    dropped: dict[str, None] = field(default_factory=dict)
    """The nested tables whose attributes the format has no place for."""
    names: frozenset[str] = frozenset()
    """The documents of the target."""
    extras: dict[str, bytes] = field(default_factory=dict)
    """Files of the source that are no part of it, and that the target keeps."""
    filled: list[ChunkMap] = field(default_factory=list)
    """The arrays whose chunks are stored by the commit of the documents."""

    def __post_init__(self) -> None:
        self.tally = transfer.Tally(self.progress)

    def rehearse(self, inner: str, plan: Plan, wanted: Wanted, found: Findings) -> None:
        """Make the documents of a dataset in memory, and list what they have in another way.

        What the format refuses is refused here, before the first byte is written.
        """

        def look(node: Node, part: Plan, path: str) -> None:
            where = f"{path}: " if path else ""
            if isinstance(part, ArrayPlan):
                assert isinstance(node, ArrayNode)
                made = node.schema
                changes = list(differences(part.source, made, self.format, wanted, path))
                lost = [name for name in part.schema.attrs if name not in made.attrs]
                changes += (f"attribute {name!r} is dropped" for name in lost)
                found.changes.extend(where + change for change in changes)
            elif isinstance(part, RaggedPlan):
                assert isinstance(node, RaggedNode)
                lost = [name for name in part.schema.attrs if name not in node.schema.attrs]
                found.changes.extend(f"{where}attribute {name!r} is dropped" for name in lost)
            elif isinstance(part, TablePlan):
                assert isinstance(node, TableNode)
                for name, column in part.columns.items():
                    look(node.columns[name], column, joined(path, name))

        made = self._made(MemoryStore(), inner, plan, look)
        self.names = frozenset(edit.key.removeprefix(prefix(inner)) for edit in made.edits)
        for name in self.dropped:
            found.changes.append(f"{name}: attributes of nested tables are dropped")

    def keep_extras(
        self, node: Node, origin: Format, store: Store, place: DatasetPath, found: Findings
    ) -> None:
        """Find the files beside the source that the target keeps, and list the others."""
        for name in extra_files(node, origin, store):
            if place.file is None:
                same = origin.name == self.format.name
                data, reason = read_extra(store, path_of(node), name, self.names, same=same)
            else:
                data, reason = None, "the target is a file"
            if data is None:
                found.changes.append(f"file {name} is not copied: {reason}")
            else:
                self.extras[name] = data

    def documents(
        self, store: Store, inner: str, plan: Plan, nodes: list[tuple[ArrayNode, ArrayPlan]]
    ) -> list[Put] | None:
        """Return the documents of a dataset, and add its arrays to `nodes`.

        None where it has other parts than arrays whose chunks are files.
        """
        windowed = True

        def look(node: Node, part: Plan, path: str) -> None:
            nonlocal windowed
            if isinstance(part, TablePlan):
                assert isinstance(node, TableNode)
                for name, column in part.columns.items():
                    look(node.columns[name], column, path)
            elif isinstance(part, ArrayPlan) and isinstance(node, ArrayNode):
                windowed = windowed and transfer.is_windowed(engine_of(node.chunks, self.options))
                nodes.append((node, part))
            else:
                windowed = False

        commit = self._made(store, inner, plan, look)
        made = [edit for edit in commit.publish if isinstance(edit, Put)]
        return made if windowed and nodes and len(made) == len(commit.edits) else None

    def opened(
        self, store: Store, inner: str, plan: Plan, nodes: list[tuple[ArrayNode, ArrayPlan]]
    ) -> None:
        """Add the arrays of a dataset whose documents are in `store` to `nodes`."""

        def look(node: Node, part: Plan) -> None:
            if isinstance(part, TablePlan):
                assert isinstance(node, TableNode)
                for name, column in part.columns.items():
                    look(node.columns[name], column)
            else:
                assert isinstance(node, ArrayNode)
                assert isinstance(part, ArrayPlan)
                nodes.append((node, part))

        if isinstance(plan, GroupPlan):
            for name, member in plan.members.items():
                self.opened(store, joined(inner, name), member, nodes)
        else:
            look(self.format.open(store, inner), plan)

    def is_blocked(self, old: Commit, store: Store, inner: str, plan: Plan) -> bool:
        """Return whether removed files have the names of new folders; then they go first."""
        found = False

        def look(node: Node, part: Plan, path: str) -> None:
            nonlocal found
            if isinstance(node, ArrayNode):
                files, ndim = stored_map(node.chunks), len(node.schema.shape)
                template = files.template
                if template is not None:
                    found = found or any(template.is_folder(e.key, ndim) for e in old.edits)
            elif isinstance(node, TableNode) and isinstance(part, TablePlan):
                for name, column in part.columns.items():
                    look(node.columns[name], column, path)

        documents = self._made(store, inner, plan, look)
        return found or blocks(old, documents)

    def write(self, store: Store, inner: str, plan: Plan, edits: list[Edit]) -> Commit:
        """Return the commit of the documents, and add the edits of all chunks to `edits`."""
        return self._made(store, inner, plan, lambda node, part, _: self._fill(node, part, edits))

    def _made(
        self, store: Store, inner: str, plan: Plan, fill: Callable[[Node, Plan, str], None]
    ) -> Commit:
        extras = tuple(Put(prefix(inner) + name, data) for name, data in self.extras.items())
        if isinstance(plan, GroupPlan):
            commit = self._group(store, inner, plan, fill)
        else:
            node, commit = self._created(store, inner, plan)
            fill(node, plan, "")
        return replace(commit, publish=(*extras, *commit.publish)) if extras else commit

    def _created(
        self, store: Store, inner: str, plan: ArrayPlan | RaggedPlan | TablePlan
    ) -> tuple[Node, Commit]:
        format = self.format
        if isinstance(plan, ArrayPlan):
            node, commit = format.create(store, plan.schema, inner, **plan.layout)
            assert isinstance(node, ArrayNode)
            return node, _annotated(node, commit, plan.fields)
        if isinstance(plan, RaggedPlan):
            assert isinstance(format, SequenceFormat)
            return format.create_ragged(store, plan.schema, inner, **plan.layout)
        assert isinstance(format, TableFormat)
        schema = {name: _schema_of(each) for name, each in plan.columns.items()}
        node, commit = format.create_table(store, schema, plan.attrs, inner, **plan.layout)
        nested = tuple(self._nested_attrs(node, plan, ""))
        commit = _annotated_columns(node, commit, plan)
        return node, Commit(commit.prepare, (*nested, *commit.publish), commit.cleanup)

    def _nested_attrs(self, node: TableNode, plan: TablePlan, path: str) -> Iterator[Edit]:
        """Yield the edits that store the attributes of nested tables, where the format has them."""
        for name, column in plan.columns.items():
            if not isinstance(column, TablePlan):
                continue
            inner, place = node.columns[name], joined(path, name)
            assert isinstance(inner, TableNode)
            if column.attrs:
                try:
                    yield from inner.table.described(column.attrs)[1].edits
                except UnsupportedError:
                    self.dropped.setdefault(place)
            yield from self._nested_attrs(inner, column, place)

    def _group(
        self, store: Store, inner: str, plan: GroupPlan, fill: Callable[[Node, Plan, str], None]
    ) -> Commit:
        """Return the commit of all documents of a tree.

        Each node is created as if it were alone; a buffer joins the documents of the groups above.
        """
        format = self.format
        assert isinstance(format, GroupFormat)
        buffered = BufferedStore(store)
        groups: list[tuple[str, GroupPlan]] = []

        def add(own: str, part: GroupPlan) -> None:
            groups.append((joined(inner, own), part))
            for name, member in part.members.items():
                below = joined(own, name)
                if isinstance(member, GroupPlan):
                    add(below, member)
                    continue
                node, commit = self._created(store, joined(inner, below), member)
                buffered.apply(commit)
                fill(node, member, below)

        add("", plan)
        for path, part in groups:
            try:
                format.open(buffered, path)
            except NotFoundError:
                buffered.apply(format.create_group(buffered, path, part.attrs)[1])
            else:
                buffered.apply(format.describe_group(buffered, path, part.attrs))
        if plan.consolidated:
            buffered.apply(format.consolidated(buffered, inner))
        return buffered.commit()

    def _fill(self, node: Node, plan: Plan, edits: list[Edit]) -> None:
        """Add the edits that store the chunks of a new dataset."""
        if isinstance(plan, ArrayPlan):
            assert isinstance(node, ArrayNode)
            source, target = (
                engine_of(plan.source, self.options),
                engine_of(node.chunks, self.options),
            )
            for commit in transfer.transferred(source, target, self.tally):
                edits.extend(commit.edits)
            self.filled.append(node.chunks)
        elif isinstance(plan, RaggedPlan):
            assert isinstance(node, RaggedNode)
            origin, items = (RaggedEngine(each, self.options) for each in (plan.source, node.packs))
            edits.extend(transfer.transferred_items(origin, items, self.progress).edits)
            self.tally.chunks += origin.pack_count
        elif isinstance(plan, TablePlan):
            assert isinstance(node, TableNode)
            for name, column in plan.columns.items():
                self._fill(node.columns[name], column, edits)

    def compare(self, store: Store, inner: str, plan: Plan, place: str) -> None:
        """Compare all items of a dataset with those of its source.

        `store` reads the dataset as it will be published. Errors name it by `place`.
        """
        if isinstance(plan, GroupPlan):
            for name, member in plan.members.items():
                self.compare(store, joined(inner, name), member, place)
        else:
            self._compare(self.format.open(store, inner), plan, place)

    def _compare(self, node: Node, plan: Plan, place: str) -> None:
        if isinstance(plan, ArrayPlan):
            assert isinstance(node, ArrayNode)
            source, target = (
                engine_of(plan.source, self.options),
                engine_of(node.chunks, self.options),
            )
            transfer.compare(source, target, self.progress, place)
        elif isinstance(plan, RaggedPlan):
            assert isinstance(node, RaggedNode)
            origin, items = (RaggedEngine(each, self.options) for each in (plan.source, node.packs))
            transfer.compare_items(origin, items, self.progress, place)
        else:
            assert isinstance(node, TableNode)
            assert isinstance(plan, TablePlan)
            for name, column in plan.columns.items():
                self._compare(node.columns[name], column, place)


def _annotated(node: ArrayNode, commit: Commit, fields: Mapping[str, Any]) -> Commit:
    """Return the commit of a new array, with unknown fields in its document."""
    annotated = as_annotated(node.chunks) if fields else None
    if annotated is None:
        return commit
    changed = {edit.key: edit for edit in annotated.annotated(fields).publish}
    parts = (commit.prepare, commit.publish, commit.cleanup)
    return Commit(*(tuple(changed.get(edit.key, edit) for edit in part) for part in parts))


def _annotated_columns(node: TableNode, commit: Commit, plan: TablePlan) -> Commit:
    """Return the commit of a new table, with unknown fields in the documents of its columns."""
    for name, column in plan.columns.items():
        made = node.columns[name]
        if isinstance(made, ArrayNode) and isinstance(column, ArrayPlan):
            commit = _annotated(made, commit, column.fields)
        elif isinstance(made, TableNode) and isinstance(column, TablePlan):
            commit = _annotated_columns(made, commit, column)
    return commit


def _schema_of(plan: Plan) -> ColumnSchema:
    if isinstance(plan, TablePlan):
        return {name: _schema_of(each) for name, each in plan.columns.items()}
    assert isinstance(plan, ArrayPlan | RaggedPlan)
    return plan.schema
