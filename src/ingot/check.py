"""Checking datasets: every chunk, checksum, index, length and document, without a write.

`check` opens what lies at a path, has the engine read every chunk once with all checksums compared,
and asks the format what is wrong beside the chunks (`ingot.formats.checkable.Checkable`). A format
that does not answer gets the checks that hold for all formats. Nothing is written.
"""

import errno
import html
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot._lazy import make_callable
from ingot.containers.array import array_handle
from ingot.containers.ragged import ragged_handle
from ingot.containers.resolve import (
    Address,
    DatasetPath,
    FoundDataset,
    Path,
    RemotePath,
    open_complete,
    resolve_store,
    with_settings,
)
from ingot.containers.table_state import TableState, table_handle
from ingot.engine.ragged import RaggedEngine
from ingot.engine.run import LOST, ChunkFailure, Engine
from ingot.engine.sparse import MANY
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    CorruptionError,
    FormatError,
    IngotError,
    NotFoundError,
    RemoteError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats.checkable import Finding, Severity, as_checkable, as_suspecting
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    ConsolidatedMetadata,
    Coords,
    Format,
    GroupFormat,
    GroupNode,
    Node,
    RaggedNode,
    TableNode,
    addressed,
    as_sharded,
    stored_map,
)
from ingot.formats.keys import stored
from ingot.formats.paths import joined
from ingot.formats.registry import FORMATS, detect, detect_folder
from ingot.options import Options, given_options
from ingot.stores import FileStore, LocalStore, Store, ZipStore
from ingot.stores.store import SPARES, Feature, is_staged
from ingot.stores.versions import read_state, versioned

__all__ = [
    "KEPT_ASIDE",
    "CheckRun",
    "Finding",
    "Progress",
    "Report",
    "Severity",
    "check",
    "format_of",
    "is_damage",
    "name_of",
]

Progress: TypeAlias = Callable[[int], object]
"""Is called with the number of bytes that were decoded so far."""

Value = TypeVar("Value", covariant=True)
Result = TypeVar("Result")

_WINDOW: Final = 16 << 20
"""About how many bytes of items are verified by one call into the kernel."""
_PACKS: Final = 1024
_LOCATED: Final = 1 << 16
_MOST_CHUNKS: Final = 1 << 26
"""Chunks of a grid that are asked for one by one; a file may claim any number."""
_MOST_FAILURES: Final = 1000
"""Findings of chunks of one array; the rest is counted."""
_DEEPEST: Final = 64
KEPT_ASIDE: Final = ".before-repair"
"""A part of the name of folders in which repairs keep the old bytes; checks leave them out."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a check found, or what a repair did.

    >>> report = Report("prices", (Finding("prices", "chunk", "checksum differs", chunk=(1,)),))
    >>> report.ok, bool(report)
    (False, False)
    >>> report
    error: prices: chunk (1,): checksum differs
    prices: 1 error; 0 datasets, 0 chunks, 0 bytes checked
    """

    path: str
    findings: tuple[Finding, ...] = ()
    """What is wrong, in the order of the datasets."""
    datasets: int = 0
    """The arrays, tables, items and groups that were checked."""
    chunks: int = 0
    """The chunks and packs that were checked."""
    nbytes: int = 0
    """The bytes that were decoded."""
    quick: bool = False
    """Whether only metadata and indexes were checked."""
    done: tuple[Finding, ...] = ()
    """What a repair has mended."""
    backup: str | None = None
    """Where a repair has kept the old bytes; None where it kept none."""

    @property
    def ok(self) -> bool:
        """Whether nothing is lost or damaged; there may be warnings and notes."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of lost or damaged data."""
        return tuple(each for each in self.findings if each.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings of faults that cost no data."""
        return tuple(each for each in self.findings if each.severity == "warning")

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        lines = [*(f"repaired: {each}" for each in self.done), *map(str, self.findings)]
        if self.backup is not None:
            lines.append(f"the old bytes are in {self.backup}")
        return "\n".join((*lines, self.summary))

    @property
    def summary(self) -> str:
        """One line: how many findings there are, and what was checked."""
        counts = [
            (len(self.errors), "error"),
            (len(self.warnings), "warning"),
            (len(self.findings) - len(self.errors) - len(self.warnings), "note"),
        ]
        found = ", ".join(_counted(count, word) for count, word in counts if count)
        mended = f"{_counted(len(self.done), 'repair')}, " if self.done else ""
        what = ", ".join(
            (_counted(self.datasets, "dataset"), _counted(self.chunks, "chunk"))
            if self.quick
            else (
                _counted(self.datasets, "dataset"),
                _counted(self.chunks, "chunk"),
                f"{_counted(self.nbytes, 'byte')}",
            )
        )
        quick = ", metadata and indexes only" if self.quick else ""
        return f"{self.path}: {mended}{found or 'no fault'}; {what} checked{quick}"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it.

        >>> sorted(Report("prices").as_dict())
        ['backup', 'chunks', 'datasets', 'done', 'findings', 'nbytes', 'ok', 'path', 'quick']
        """
        return {
            "path": self.path,
            "ok": self.ok,
            "quick": self.quick,
            "datasets": self.datasets,
            "chunks": self.chunks,
            "nbytes": self.nbytes,
            "findings": [each.as_dict() for each in self.findings],
            "done": [each.as_dict() for each in self.done],
            "backup": self.backup,
        }

    def _repr_html_(self) -> str:
        names = ("severity", "dataset", "file", "chunk", "problem", "lost", "repair")
        head = "".join(f"<th {_CELL}>{name}</th>" for name in names)
        rows = "".join(_html_row(each, names, "repaired") for each in self.done)
        rows += "".join(_html_row(each, names, each.severity) for each in self.findings)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<p>{html.escape(self.summary)}</p>{table if rows else ''}"


def check(
    path: Path,
    *,
    quick: bool = False,
    progress: Progress | None = None,
    options: Options | None = None,
) -> Report:
    """Check a dataset, or all datasets of a folder, and return what is wrong with them.

    Every chunk is read once, with all checksums compared, and so are documents, indexes and
    lengths. `quick` leaves out the chunks. Nothing is written, not even a lock file, and writers go
    on meanwhile; what they add after the check began may be left out. `progress` is called with
    the bytes that were decoded so far.

    >>> import numpy as np
    >>> import ingot
    >>> from ingot.stores import Commit, MemoryStore, Patch
    >>> store = MemoryStore()
    >>> _ = ingot.array(np.arange(100), store, chunks=50)
    >>> ingot.check(store).ok
    True
    >>> store.apply(Commit(publish=(Patch("c/1", 40, b"?"),)))
    >>> finding, = ingot.check(store).findings
    >>> finding.file, finding.chunk, finding.lost
    ('c/1', (1,), 'items [50:100]')
    """
    chosen = given_options(options)
    run = CheckRun(quick, progress, chosen)
    run.path(with_settings(path, chosen.storage))
    return run.report(name_of(path))


class _HandleLike(Protocol[Value]):
    """What the check needs of a handle."""

    def read(self, use: Callable[[Value], Result]) -> Result: ...

    def refresh(self) -> None: ...


@dataclass(slots=True)
class CheckRun:
    """One run of a check: what was found so far.

    >>> run = CheckRun(False, None, Options())
    >>> run.report("nothing").summary
    'nothing: no fault; 0 datasets, 0 chunks, 0 bytes checked'
    """

    quick: bool
    progress: Progress | None
    options: Options
    findings: list[Finding] = field(default_factory=list)
    roots: list[tuple[Address, int]] = field(default_factory=list)
    """The paths of datasets that are part of no other, with the findings before each."""
    datasets: int = 0
    chunks: int = 0
    nbytes: int = 0
    refuses_missing: bool = False
    """Whether chunks that are not stored count as lost."""
    memory: NDArray[np.uint8] = field(default_factory=lambda: np.empty(_WINDOW, np.uint8))

    def __post_init__(self) -> None:
        self.refuses_missing = self.options.missing == "error"
        self.options = replace(
            self.options, verify="always", cache_bytes=0, damaged="error", missing="fill"
        )

    def report(self, path: str) -> Report:
        """Return what was found."""
        return Report(
            path,
            tuple(self.findings),
            self.datasets,
            self.chunks,
            self.nbytes,
            self.quick,
        )

    # Where datasets are --------------------------------------------------------------------------

    def path(self, path: Address) -> None:
        """Check what lies at a path; raise an error if nothing does.

        What a server does not answer, or refuses, is an error as well: nothing is known of it.
        """
        try:
            found = open_complete(path, None, writable=False)
        except RemoteError:
            raise
        except (IngotError, OSError) as error:
            if isinstance(error, UnsupportedError) and isinstance(path, RemotePath):
                raise
            if not self._unopened(path, error):
                raise
            return
        self._found(path, found)

    def _unopened(self, path: Address, error: IngotError | OSError) -> bool:
        """Check what does not open; return False where there is no dataset at all."""
        try:
            place = resolve_store(path, None, writable=False)
        except (IngotError, OSError):
            if isinstance(path, RemotePath):
                raise  # There is no such address; it is not repeated, for it may have a secret.
            return not isinstance(error, NotFoundError) and self._refused(path, error)
        if not isinstance(place.store, LocalStore | FileStore | ZipStore) and place.is_empty():
            return False
        format = format_of(place)
        if format is not None:
            self.datasets += 1
            self.roots.append((path, len(self.findings)))
            self._store(place.store, place.name)
            self._broken(format, place.store, place.inner, place.name, error)
            return True
        if isinstance(place.store, LocalStore) and place.path is not None:
            if not os.path.isdir(place.path):
                return False
            return self._folder(place.path, 0)
        if place.file is None and Feature.LIST in place.store.features:
            self.roots.append((path, len(self.findings)))
            self._store(place.store, place.name)
            return self._members(place.store, place.inner, place.name, 0)
        return not isinstance(error, FormatError | NotFoundError) and self._refused(path, error)

    def _refused(self, path: Address, error: IngotError | OSError) -> bool:
        if isinstance(error, ArgumentError | ArgumentTypeError):
            raise error  # There is no path to find anything at.
        self.datasets += 1
        self._add(_unread(name_of(path), error))
        return True

    def _folder(self, folder: str, depth: int) -> bool:
        """Check all datasets below a plain folder; return whether there are any."""
        found = False
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self._add(_unread(folder, error))
            return True
        for entry in entries:
            if KEPT_ASIDE in entry.name:
                continue
            if not _is_unicode(entry.name):
                self._add(Finding(entry.path, "unsafe", _NO_UNICODE, severity="warning"))
                continue
            try:
                facts = entry.stat(follow_symlinks=not entry.is_symlink() or entry.is_file())
            except OSError as error:
                self._add(_unread(entry.path, error))
                continue
            if stat.S_ISLNK(facts.st_mode) and not os.path.exists(entry.path):
                problem = "a symbolic link that leads nowhere"
                self._add(Finding(entry.path, "link", problem, severity="warning"))
            elif (stat.S_ISDIR(facts.st_mode) and depth < _DEEPEST) or (
                stat.S_ISREG(facts.st_mode) and not entry.name.startswith(".")
            ):
                found |= self._entry(entry.path, depth)
        return found

    def _entry(self, path: str, depth: int) -> bool:
        try:
            self._found(path, open_complete(path, None, writable=False))
        except (FormatError, NotFoundError) as error:
            if os.path.isdir(path) and format_of(DatasetPath.of(path, writable=False)) is None:
                return self._folder(path, depth + 1)
            return self._unopened(path, error)
        except (IngotError, OSError) as error:
            return self._unopened(path, error)
        return True

    def _members(self, store: Store, folder: str, name: str, depth: int) -> bool:
        """Check the datasets below a plain folder of a store; return whether there are any."""
        found = False
        for each in list(store.names(folder)):
            inner = joined(folder, each.removesuffix("/"))
            shown = f"{name}/{inner}"
            file = None if each.endswith("/") else inner
            entry = detect(store, FORMATS.entries.values(), file, path=inner)
            if entry is not None:
                found = True
                self._member(FORMATS[entry.name], store, inner, shown)
            elif file is None and depth < _DEEPEST:
                found |= self._members(store, inner, name, depth + 1)
        return found

    # One dataset ---------------------------------------------------------------------------------

    def _found(self, path: Address, found: FoundDataset) -> None:
        place = found.place
        self.roots.append((path, len(self.findings)))
        self._store(place.store, place.name)
        self._node(found.format, place.store, place.inner, found.node, place.name)

    def _member(self, format: Format, store: Store, inner: str, name: str) -> None:
        """Open and check a dataset inside a store."""
        try:
            node = read_state(store, lambda view: format.open(view, inner))
        except RemoteError:
            raise
        except (IngotError, OSError) as error:
            self.datasets += 1
            self._broken(format, store, inner, name, error)
            return
        self._node(format, store, inner, node, name)

    def _broken(
        self, format: Format, store: Store, inner: str, name: str, error: IngotError | OSError
    ) -> None:
        """Say what is wrong with a dataset that does not open."""
        found: list[Finding] = []
        checkable, quick = as_checkable(format), self.quick
        if checkable is not None:
            with suppress(IngotError, OSError):
                found += read_state(
                    store,
                    lambda view: list(checkable.findings(view, inner, None, name, quick=quick)),
                )
        if not any(each.severity == "error" for each in found):
            found.insert(0, _unread(name, error))
        self.findings += found

    def _node(self, format: Format, store: Store, inner: str, node: Node, name: str) -> None:
        self.datasets += 1
        checkable, quick = as_checkable(format), self.quick
        if checkable is not None:
            self.findings += self._asked(
                name,
                lambda: read_state(
                    store,
                    lambda view: list(checkable.findings(view, inner, node, name, quick=quick)),
                ),
            )
        try:
            if isinstance(node, ArrayNode):
                handle = array_handle(format, store, inner, self.options)
                self._array(handle, name)
            elif isinstance(node, TableNode):
                self._table(table_handle(format, store, inner, self.options), name)
            elif isinstance(node, RaggedNode):
                self._items(ragged_handle(format, store, inner, self.options), name)
            elif isinstance(node, GroupNode) and isinstance(format, GroupFormat):
                self._consolidated(format, store, inner, name)
                children = read_state(store, lambda view: format.children(view, inner))
                for child in children:
                    self._member(format, store, joined(inner, child), f"{name}/{child}")
        except RemoteError:
            raise
        except (IngotError, OSError) as error:
            self._add(_unread(name, error))

    def _consolidated(self, format: GroupFormat, store: Store, inner: str, name: str) -> None:
        def compare(view: Store) -> ConsolidatedMetadata | None:
            return format.compare_consolidated(view, inner)

        try:
            found = read_state(store, compare)
        except RemoteError:
            raise
        except (IngotError, OSError) as error:
            problem, count = f"consolidated metadata cannot be read: {_text(error)}", 1
        else:
            count = 0 if found is None else len(found.stale)
            first = "" if found is None or not count else f", such as {found.stale[0]}"
            problem = f"consolidated metadata differ from {count} documents{first}"
        if count:
            repair = "consolidate the metadata again"
            self._add(Finding(name, "consolidated", problem, repair=repair, severity="warning"))

    def _asked(self, name: str, ask: Callable[[], list[Finding]]) -> list[Finding]:
        try:
            return ask()
        except RemoteError:
            raise
        except (IngotError, OSError) as error:
            return [_unread(name, error)]

    def _table(self, handle: _HandleLike[TableState], name: str) -> None:
        for column in handle.read(lambda state: state.stored_leaves):
            shown = f"{name}: column {column}"
            items = _ColumnItems(handle, column)
            try:
                if items.is_present():
                    self._items(items, shown)
                else:
                    self._array(_ColumnArray(handle, column), shown)
            except RemoteError:
                raise
            except (IngotError, OSError) as error:
                self._add(_unread(shown, error))

    # Chunks --------------------------------------------------------------------------------------

    def _array(self, handle: _HandleLike[Engine], name: str) -> None:
        listed, stray = handle.read(lambda engine: _listed(engine.chunks))
        schema = handle.read(lambda engine: engine.chunks.schema)
        grid = schema.grid
        count = grid.chunk_count if schema.flat is None else schema.payload.grid.chunk_count
        if stray:
            self._add(_stray(name, handle.read(lambda engine: engine.chunks), stray))
        must = not schema.sparse or (self.refuses_missing and grid.chunk_count <= _MOST_CHUNKS)
        if listed is not None and len(listed) < grid.chunk_count and must:
            missing = handle.read(lambda engine: list(_missing(name, engine.chunks, listed)))
            if handle.read(lambda engine: len(_listed(engine.chunks)[0] or ())) == len(listed):
                self.findings += missing
        self.chunks += count if listed is None else len(listed)
        if self.quick:
            self._indexes(handle, name)
            return
        if count > _MOST_CHUNKS and listed is None:
            problem = f"{count} chunks are claimed, more than {_MOST_CHUNKS} are not checked"
            self._add(Finding(name, "length", problem, severity="warning"))
            return
        failures = self.failures(handle)
        self.findings += handle.read(
            lambda engine: list(_chunk_findings(name, failures, engine.chunks))
        )

    def failures(self, handle: _HandleLike[Engine]) -> list[ChunkFailure]:
        """Return the chunks of an array that cannot be read, or that are lost."""
        failures = self._unreadable(handle)
        known = {each.coords for each in failures}
        with suppress(IngotError):  # The format says what is wrong with a manifest.
            lost = self._twice(handle, Engine.lost_chunks)
            failures += (each for each in lost if each.coords not in known)
        return failures

    def _unreadable(self, handle: _HandleLike[Engine]) -> list[ChunkFailure]:
        """Return the stored chunks of an array that cannot be read."""
        listed, _ = handle.read(lambda engine: _listed(engine.chunks))
        schema = handle.read(lambda engine: engine.chunks.schema)
        failures: list[ChunkFailure] = []
        total, size = schema.grid.chunk_count, math.prod(schema.chunks) * schema.dtype.itemsize
        if (
            listed is not None
            and len(listed) < total
            and (not schema.sparse or schema.grid.chunk_count > MANY)
        ):
            step = max(1, _WINDOW // max(1, size))
            for start in range(0, len(listed), step):
                part = listed[start : start + step]
                failures += self._twice(handle, lambda engine, p=part: _chosen(engine, p))  # type: ignore[misc]
                self._advance(len(part) * size)
            return failures
        unit = (schema if schema.flat is None else schema.payload).dtype.itemsize
        for key in handle.read(lambda engine: list(engine.windows(_WINDOW))):
            failures += self._twice(
                handle,
                lambda engine, k=key: engine.verify(k, self.memory),  # type: ignore[misc]
            )
            self._advance(math.prod(axis.stop - axis.start for axis in key) * unit)
        return failures

    def missing(self, handle: _HandleLike[Engine]) -> list[ChunkFailure]:
        """Return the chunks that are not stored although every chunk must be."""

        def find(engine: Engine) -> list[ChunkFailure]:
            chunks = engine.chunks
            listed, _ = _listed(chunks)
            grid, template = chunks.schema.grid, chunks.template
            if listed is None or chunks.schema.sparse or template is None:
                return []
            present, error = set(listed), CorruptionError("the chunk is missing")
            absent = (each for each in map(grid.coords, range(grid.chunk_count)))
            found = (each for each in absent if each not in present)
            return [
                ChunkFailure(each, template.key(each), error)
                for each in islice(found, _MOST_CHUNKS)
            ]

        return handle.read(find)

    def _twice(
        self, handle: _HandleLike[Value], verify: Callable[[Value], list[ChunkFailure]]
    ) -> list[ChunkFailure]:
        """Return the failures of chunks; each is confirmed on the metadata as they are now.

        Another program may have changed them, which reads do not notice.
        """
        failures = handle.read(verify)
        if failures:
            handle.refresh()
            again = {each.coords for each in failures}
            failures = [each for each in handle.read(verify) if each.coords in again]
        return failures

    def _indexes(self, handle: _HandleLike[Engine], name: str) -> None:
        """Check the indexes of shards and the tables of places, without a chunk."""

        def verify(engine: Engine) -> list[ChunkFailure]:
            found = list(_index_failures(engine.chunks))
            with suppress(IngotError):  # The format says what is wrong with a manifest.
                found += engine.lost_chunks()
            return found

        failures = self._twice(handle, verify)
        self.findings += handle.read(
            lambda engine: list(_chunk_findings(name, failures, engine.chunks))
        )

    def _items(self, handle: _HandleLike[RaggedEngine], name: str) -> None:
        count = handle.read(lambda engine: engine.pack_count)
        self.chunks += count
        if self.quick:
            return
        failures = self.pack_failures(handle)
        self.nbytes += handle.read(lambda engine: engine.stored_bytes())

        def lost(failure: ChunkFailure) -> str:
            span = handle.read(lambda engine: engine.span(failure.coords[0]))
            return f"items [{span.start}:{span.stop}]"

        self.findings += _merged(name, failures, lost)

    def pack_failures(self, handle: _HandleLike[RaggedEngine]) -> list[ChunkFailure]:
        """Return the packs that cannot be read."""
        count = handle.read(lambda engine: engine.pack_count)
        failures: list[ChunkFailure] = []
        for start in range(0, count, _PACKS):
            numbers = range(start, min(start + _PACKS, count))

            def verify(engine: RaggedEngine, numbers: range = numbers) -> list[ChunkFailure]:
                found = engine.verify(numbers)
                return [ChunkFailure((number,), key, error) for number, key, error in found]

            failures += self._twice(handle, verify)
            self._advance(0)
            if len(failures) > _MOST_FAILURES:
                break
        return failures

    # Around the chunks ---------------------------------------------------------------------------

    def _store(self, store: Store, name: str) -> None:
        """Check what a store itself keeps: the journal of a commit, and staged files."""
        states = versioned(store)
        if states is not None:
            try:
                pending = states.view() is not store
                if isinstance(store, LocalStore):
                    store.check_journal()
            except RemoteError:
                raise
            except (IngotError, OSError) as error:
                problem = f"the journal or the log is damaged: {_text(error)}"
                self._add(Finding(name, "journal", problem, lost="a commit", repair=_SET_ASIDE))
            else:
                if pending:
                    problem = "a commit is decided and not finished; readers see its state"
                    self._add(
                        Finding(
                            name, "commit", problem, repair="finish the commit", severity="warning"
                        )
                    )
        if Feature.LIST in store.features:
            with suppress(IngotError, OSError):
                self._staged(store, name)

    def _staged(self, store: Store, name: str) -> None:
        staged = sorted(_staged_keys(store, ""))
        if staged:
            problem = (
                f"{_counted(len(staged), 'staged file')} of a writer that died, or that is at work"
            )
            first = staged[0] if len(staged) == 1 else ""
            self._add(
                Finding(name, "staged", problem, first, repair="remove them", severity="note")
            )

    def _advance(self, nbytes: int) -> None:
        self.nbytes += nbytes
        if self.progress is not None:
            self.progress(self.nbytes)

    def _add(self, finding: Finding) -> None:
        self.findings.append(finding)


_SET_ASIDE: Final = "set it aside; the dataset is then as the files have it"


@dataclass(frozen=True, slots=True)
class _ColumnArray:
    """The handle of a column that is an array: that of its table."""

    whole: _HandleLike[TableState]
    name: str

    def read(self, use: Callable[[Engine], Result]) -> Result:
        return self.whole.read(lambda state: use(state.engine(self.name)))

    def refresh(self) -> None:
        self.whole.refresh()


@dataclass(frozen=True, slots=True)
class _ColumnItems:
    """The handle of a column of variable-length items: that of its table."""

    whole: _HandleLike[TableState]
    name: str

    def is_present(self) -> bool:
        return self.whole.read(lambda state: state.items(self.name) is not None)

    def read(self, use: Callable[[RaggedEngine], Result]) -> Result:
        def find(state: TableState) -> Result:
            engine = state.items(self.name)
            if engine is None:
                raise FormatError(f"column {self.name!r} no longer has items of variable length")
            return use(engine)

        return self.whole.read(find)

    def refresh(self) -> None:
        self.whole.refresh()


def format_of(place: DatasetPath) -> Format | None:
    """Return the format of a dataset, which may not open; None where no format recognises it."""
    entries, store = FORMATS.entries.values(), place.store
    # What is left of a dataset may bear the marker of another format.
    for name in FORMATS if place.file is None else ():
        suspecting = as_suspecting(FORMATS[name])
        with suppress(IngotError, OSError):
            if suspecting is not None and suspecting.suspects(store, place.inner):
                return FORMATS[name]
    with suppress(IngotError, OSError):
        if place.file is not None:
            entry = detect(store, entries, place.file)
        else:
            found = detect_folder(store, entries, place.inner)
            entry = None if found is None else found.entry
        if entry is not None:
            return FORMATS[entry.name]
    return None


def _listed(chunks: ChunkMap) -> tuple[list[Coords] | None, list[Coords]]:
    """Return the stored chunks or shards of a grid by listing, and those outside of the grid.

    None where chunks have no keys of their own, or the store cannot list.
    """
    files = stored_map(chunks)
    if files.template is None or Feature.LIST not in files.store.features:
        return None, []
    counts = files.schema.grid.counts
    inside: list[Coords] = []
    stray: list[Coords] = []
    for coords in stored(files.store, files.template, len(counts)):
        (inside if all(map(int.__lt__, coords, counts)) else stray).append(coords)
    if as_sharded(chunks) is not None:
        return None, stray
    return sorted(inside), stray


def _stray(name: str, chunks: ChunkMap, stray: Sequence[Coords]) -> Finding:
    template = stored_map(chunks).template
    assert template is not None
    problem = f"{_counted(len(stray), 'chunk file')} outside of the array, which nothing reads"
    return Finding(name, "stray", problem, template.key(min(stray)), severity="note")


def _missing(name: str, chunks: ChunkMap, listed: Iterable[Coords]) -> Iterator[Finding]:
    """Yield the chunks that are not stored although every chunk must be, in runs of numbers."""
    grid, template = chunks.schema.grid, chunks.template
    assert template is not None
    numbers = sorted(grid.linear(coords) for coords in listed)
    following, runs = 0, []
    for number in (*numbers, grid.chunk_count):
        if number > following:
            runs.append((following, number))
        following = number + 1
    for start, stop in runs[:_MOST_FAILURES]:
        first = grid.coords(start)
        box = grid.box(first)
        if stop - start == 1:
            lost, problem = f"items {_box(box)}", "the chunk is missing"
        else:
            lost = f"{stop - start} chunks"
            problem = f"the chunks {first} to {grid.coords(stop - 1)} are missing"
            if len(grid.counts) == 1:
                lost = f"items [{box[0].start}:{grid.box(grid.coords(stop - 1))[0].stop}]"
        behind = stop == grid.chunk_count
        repair = _SHORTEN if behind else _DROP
        yield Finding(name, "missing", problem, template.key(first), first, lost, repair)


_CELL: Final = 'style="text-align:left;vertical-align:top;padding-right:1em"'
_NO_UNICODE: Final = "not checked: a name that is no Unicode"
_GONE: Final = {errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
"""Errors of the system that say that bytes are gone: no file, or one that a disk does not give."""

_DROP: Final = "with drop: replace it by the fill value"
_SHORTEN: Final = "shorten the array to what is stored"


def _index_failures(chunks: ChunkMap) -> Iterator[ChunkFailure]:
    """Yield chunks whose place cannot be found, or lies outside of their file."""
    sharded = as_sharded(chunks)
    if sharded is None:
        stated = addressed(chunks)
        if stated is not None:
            try:
                stated.addresses()
            except RemoteError:
                raise
            except (IngotError, OSError) as error:
                yield ChunkFailure((), "", error)
        return
    files, grid = sharded.shards, chunks.schema.grid
    unit = [
        shard // chunk
        for shard, chunk in zip(files.schema.chunks, chunks.schema.chunks, strict=True)
    ]
    template, counts = files.template, files.schema.grid.counts
    if template is None or Feature.LIST not in files.store.features:
        return
    listed = stored(files.store, template, len(counts))
    inside = (shard for shard in listed if all(map(int.__lt__, shard, counts)))
    size = max(1, _LOCATED // max(1, math.prod(unit)))
    while some := list(islice(inside, size)):
        tables = [_chunks_in(shard, unit, grid.counts) for shard in some]
        try:
            chunks.locate(np.concatenate(tables))
        except (IngotError, OSError):
            for shard, table in zip(some, tables, strict=True):
                try:
                    chunks.locate(table)
                except RemoteError:
                    raise
                except (IngotError, OSError) as error:
                    yield ChunkFailure(tuple(table[0].tolist()), template.key(shard), error)


def _chunks_in(shard: Coords, unit: Sequence[int], counts: Coords) -> NDArray[np.int64]:
    """Return the coordinates of the chunks of a shard, a row for each."""
    if not counts:
        return np.zeros((1, 0), np.int64)
    box = (
        np.arange(place * count, min((place + 1) * count, total))
        for place, count, total in zip(shard, unit, counts, strict=True)
    )
    axes = np.meshgrid(*box, indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1).astype(np.int64)


def _chosen(engine: Engine, coords: Sequence[Coords]) -> list[ChunkFailure]:
    counts = engine.chunks.schema.grid.counts
    inside = (each for each in coords if all(map(int.__lt__, each, counts)))
    return list(engine.verify_chunks(inside))


def _chunk_findings(
    name: str, failures: Sequence[ChunkFailure], chunks: ChunkMap
) -> Iterator[Finding]:
    grid, outer = chunks.schema.grid, stored_map(chunks).schema.grid

    def lost(failure: ChunkFailure) -> str:
        coords = failure.coords
        if chunks.schema.flat is not None:
            return f"chunk {coords[0]} of the flattened items"
        if len(coords) != len(grid.counts) or not all(map(int.__lt__, coords, grid.counts)):
            return "its items"
        if outer is not grid and str(failure.error).startswith(("shard index", LOST)):
            # Without its index no chunk of a shard can be found.
            per_shard = zip(coords, chunks.schema.chunks, outer.chunk, strict=True)
            coords = tuple(at * chunk // shard for at, chunk, shard in per_shard)
            return f"items {_box(outer.box(coords))}"
        return f"items {_box(grid.box(coords))}"

    return _merged(name, failures, lost)


def _merged(
    name: str, failures: Sequence[ChunkFailure], lost: Callable[[ChunkFailure], str]
) -> Iterator[Finding]:
    """Yield the findings of failures; chunks of one file with the same fault make one finding."""
    groups: dict[tuple[str, str], list[ChunkFailure]] = {}
    for failure in failures:
        text = _text(failure.error)
        groups.setdefault((failure.key, text if failure.key else f"{failure.coords}"), []).append(
            failure
        )
    shown = list(groups.items())
    for (key, _), same in shown[:_MOST_FAILURES]:
        first, problem = same[0], _text(same[0].error)
        is_lost = problem.startswith(LOST)
        if not is_damage(first.error):
            if len(same) > 1:
                problem = f"{problem}; the same of {len(same)} chunks, to {same[-1].coords}"
            yield Finding(name, "chunk", f"cannot be read: {problem}", key, first.coords or None)
        elif len(same) == 1:
            kind = "missing" if is_lost else "chunk"
            yield Finding(name, kind, problem, key, first.coords or None, lost(first), _DROP)
        else:
            problem = f"{problem}; the same of {len(same)} chunks, to {same[-1].coords}"
            # All chunks of a shard without its index are lost with the shard.
            places = list(dict.fromkeys(map(lost, same)))
            what = places[0] if len(places) == 1 else f"{len(same)} chunks, the first {places[0]}"
            kind = "missing" if is_lost else "index"
            yield Finding(name, kind, problem, key, first.coords, what, _DROP)
    if len(shown) > _MOST_FAILURES:
        count = sum(len(same) for _, same in shown[_MOST_FAILURES:])
        problem = f"{count} more chunks cannot be read"
        yield Finding(name, "chunk", problem, lost=f"{count} chunks", repair=_DROP)


def _box(box: Sequence[slice]) -> str:
    return f"[{', '.join(f'{axis.start}:{axis.stop}' for axis in box)}]"


def _staged_keys(store: Store, folder: str) -> Iterator[str]:
    folders = [folder]
    while folders:
        current = folders.pop()
        for name in store.names(current, hidden=True):
            key = joined(current, name.removesuffix("/"))
            if name.endswith("/"):
                folders.append(key)
            elif is_staged(name) and key not in SPARES:
                yield key


def name_of(path: Address) -> str:
    """Return a path as a report shows it."""
    if isinstance(path, Store):
        return path.location
    return path.url if isinstance(path, RemotePath) else os.fspath(path)


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that the stored bytes of a chunk are wrong or gone.

    Bytes that may not be read, or that are larger than a limit, may be sound: nothing replaces
    them. A chunk that claims a version or a filter that does not exist has a damaged header; what
    the whole dataset needs and Ingot lacks is refused before chunks are read.

    >>> is_damage(CorruptionError("a checksum differs")), is_damage(PermissionError(13, "no"))
    (True, False)
    """
    if isinstance(error, IngotError):
        kinds = CorruptionError | FormatError | NotFoundError | UnsupportedError
        return isinstance(error, kinds)
    return not isinstance(error, OSError) or error.errno in _GONE


def _unread(name: str, error: IngotError | OSError) -> Finding:
    """Return the finding of what cannot be opened or read at all."""
    if isinstance(error, UnsafeError):
        # Nothing is known to be wrong, and only the caller can allow to look.
        return Finding(name, "unsafe", f"not checked: {_text(error)}", severity="warning")
    kind = "file" if not isinstance(error, IngotError) else "document"
    unsure = isinstance(error, UnsupportedError) or not is_damage(error)
    lost = "" if unsure else "the whole, until repaired"
    return Finding(name, kind, f"cannot be read: {_text(error)}", lost=lost)


def _text(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, IngotError) and error.errno:
        # The finding has the name of the file; the number says nothing more.
        text = (error.strerror or os.strerror(error.errno)).partition(" (os error ")[0]
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        text = f"{where}: {text}" if where and where not in text else text
    return " ".join(text.split()) or type(error).__name__


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _html_row(finding: Finding, names: Sequence[str], severity: str) -> str:
    """Return a row of HTML: how severe a finding is, and what its fields of some names hold."""
    cells = (severity, *(getattr(finding, name) for name in names[1:]))
    texts = ("" if cell is None else html.escape(str(cell)) for cell in cells)
    return f"<tr>{''.join(f'<td {_CELL}>{text}</td>' for text in texts)}</tr>"


make_callable(__name__, check)
