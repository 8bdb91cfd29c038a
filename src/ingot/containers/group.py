"""The group: arrays and other groups by their names, as one tree in one store.

A member has the store of its group, with its lock and its journal: a tree has one writer at a time.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from numpy.typing import DTypeLike

from ingot._lazy import deferred
from ingot.containers.array import Array, array_handle
from ingot.containers.attributes import Attributes, converted
from ingot.containers.create import ArraySpec, Destination, create_array, one_state
from ingot.containers.dataset import Dataset, Mode
from ingot.containers.display import Info, Tree, group_info
from ingot.containers.handle import Handle, HandleProtocol, TransactionalHandle
from ingot.containers.member import MemberHandle, tree_transactions
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import (
    ArgumentTypeError,
    ExistsError,
    FormatError,
    MemberError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats.format import (
    ArrayNode,
    Documents,
    GroupFormat,
    GroupMembers,
    GroupNode,
    Node,
)
from ingot.formats.paths import above, joined, normalised, prefix
from ingot.options import Options
from ingot.stores.documents import documents_after
from ingot.stores.store import Commit, Delete, Extent, Feature, Put, Store
from ingot.stores.versions import NO_VERSION, WriteTurn, read_versioned, writing

if TYPE_CHECKING:
    from ingot.containers import table as tables
else:
    tables = deferred("ingot.containers.table")

__all__ = ["Group", "GroupState", "group_handle"]

# The most members, and levels, that a display shows.
_MOST_SHOWN: Final = 1000
_DEEPEST_SHOWN: Final = 50
# About how many bytes of a copy are in memory at a time, beside those of the transaction.
_COPIED_BYTES: Final = 16 << 20


@dataclass(slots=True)
class GroupState:
    """A group in one state of its store; its members are listed when they are asked for."""

    format: GroupFormat
    store: Store
    node: GroupNode
    _children: tuple[str, ...] | None = None

    def children(self) -> tuple[str, ...]:
        """Return the names of the members, sorted."""
        if self._children is None:
            self._children = self.format.children(self.store, self.node.path)
        return self._children


class Group(Dataset[GroupState], Mapping[str, "Array | Group"]):
    """Arrays and groups by their names, stored together.

    Made by `ingot.open` and `ingot.group`. A name may be a path, such as ``"day/temperature"``.
    Every call that changes the group has stored the change when it returns, all of it or nothing.

    >>> import ingot
    >>> root = ingot.group(attrs={"station": 7})
    >>> _ = root.array("day/temperature", [20.5, 21.0], attrs={"units": "°C"})
    >>> list(root), root["day/temperature"][0]
    (['day'], np.float64(20.5))
    >>> root.tree()
    /
    └── day/
        └── temperature (2,) float64
    >>> del root["day"]
    >>> len(root)
    0
    """

    __slots__ = ("_inner", "_options", "_tree")

    _WORD = "group"
    _ELSEWHERE: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("create_dataset", "require_dataset"), "create_array or require_array"),
        **dict.fromkeys(("array_keys", "array_values"), "arrays"),
        **dict.fromkeys(("group_keys", "group_values"), "groups"),
        **dict.fromkeys(("visit", "visititems", "members"), "items, or tree"),
    }

    _format: GroupFormat

    def __init__(
        self,
        format: GroupFormat,
        tree: TransactionalHandle[object],
        handle: HandleProtocol[GroupState],
        inner: str,
        *,
        path: str | None,
        mode: Mode,
        options: Options,
    ) -> None:
        super().__init__(format, handle, path=path, mode=mode)
        self._tree = tree
        self._inner = inner
        self._options = options

    @classmethod
    def of(
        cls,
        format: GroupFormat,
        store: Store,
        inner: str,
        path: str | None,
        mode: Mode,
        options: Options,
        first: tuple[GroupState | None, int | None] = (None, NO_VERSION),
    ) -> "Group":
        """Return the group at `inner` of a store, as a tree of its own."""
        tree = tree_transactions(store, options.durability)
        handle = group_handle(format, store, inner, options, tree, first)
        return cls(format, tree, handle, inner, path=path, mode=mode, options=options)

    # What it is ----------------------------------------------------------------------------------

    @property
    def attrs(self) -> Attributes:
        """Names and values that describe the group; setting one stores it.

        >>> import ingot
        >>> root = ingot.group()
        >>> root.attrs["title"] = "ours"
        >>> dict(root.attrs)
        {'title': 'ours'}
        """
        return Attributes(lambda: self._handle.value.node.attrs, self._describing)

    @property
    def consolidated(self) -> bool | None:
        """Whether the consolidated metadata of the group is up to date; None when it has none.

        Other programs may read the consolidated copies alone, to save reading many documents.
        Ingot reads the documents themselves, and updates copies that exist: see `consolidate`.
        """
        found = self._handle.read(
            lambda now: self._format.compare_consolidated(now.store, self._inner)
        )
        return None if found is None else found.current

    # Members -------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> "Array | Group":
        inner, store = self._place(name), self._handle.store
        try:
            node, number = read_versioned(store, lambda view: self._format.open(view, inner))
        except NotFoundError:
            raise MemberError(f"{self._location}: no member {name!r}") from None
        if isinstance(node, ArrayNode):
            handle = self._array_handle(inner, engine_of(node.chunks, self._options), number)
            return Array(self._format, handle, path=self._path_of(name), mode=self._mode)
        if not isinstance(node, GroupNode):
            raise UnsupportedError(f"{self._location}: {name!r} is a {type(node).__name__}")
        return self._group(name, inner, (GroupState(self._format, store, node), number))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not normalised(name):
            return False
        try:
            self._handle.read(lambda now: self._format.open(now.store, self._place(name)))
        except NotFoundError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._handle.read(GroupState.children))

    def __len__(self) -> int:
        return len(self._handle.read(GroupState.children))

    def tree(self, depth: int | None = None) -> Tree:
        """Return all members, and their members, to print; no deeper than `depth`.

        >>> import ingot
        >>> root = ingot.group()
        >>> _ = root.group("a/b"), root.create_array("c", shape=(2, 3), dtype="i4")
        >>> root.tree(depth=1)
        /
        ├── a/
        └── c (2, 3) int32
        """
        name = f"/{self._inner}" if self._inner else "/"
        return self._handle.read(lambda now: self._grown(now.store, name, depth))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the names of the members that are arrays, and the arrays.

        >>> import ingot
        >>> root = ingot.group()
        >>> _ = root.array("prices", [1, 2]), root.group("day")
        >>> [name for name, _ in root.arrays()], [name for name, _ in root.groups()]
        (['prices'], ['day'])
        """
        members = ((name, self[name]) for name in self)
        return ((name, member) for name, member in members if isinstance(member, Array))

    def groups(self) -> Iterator[tuple[str, "Group"]]:
        """Yield the names of the members that are groups, and the groups; see `arrays`."""
        members = ((name, self[name]) for name in self)
        return ((name, member) for name, member in members if isinstance(member, Group))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    # Changing ------------------------------------------------------------------------------------

    def __setitem__(self, name: str, data: object) -> None:
        if isinstance(data, Group):
            raise ArgumentTypeError(f"{name!r}: the value is a group, which `copy` stores")
        if isinstance(data, Dataset) and not isinstance(data, Array):
            self.copy(data, name)  # type: ignore[arg-type]
            return
        self.array(name, data, overwrite=True)

    def create_array(self, name: str, **as_create: Any) -> Array:
        """Create an array that holds the fill value; takes what `ingot.create` takes.

        >>> import ingot
        >>> ingot.group().create_array("prices", shape=1000, dtype="f4").chunks
        (1000,)
        """
        spec, layout = _separated(as_create)
        return self._created(name, ArraySpec(**spec, layout=layout), None)

    def array(self, name: str, data: object, **as_create: Any) -> Array:
        """Create an array that holds `data`; takes what `ingot.array` takes.

        >>> import ingot
        >>> ingot.group().array("prices", [1, 2, 3], codec="zlib:1")[1:]
        array([2, 3])
        """
        spec, items = ArraySpec.of_data(data, as_create)
        return self._created(name, spec, items)

    def group(self, name: str, *, attrs: Mapping[str, object] | None = None) -> "Group":
        """Create a group, and the groups above it.

        >>> import ingot
        >>> list(ingot.group().group("a/b", attrs={"n": 1}).attrs)
        ['n']
        """
        inner, described = self._place(name), converted(attrs or {})
        with self._writing() as turn:
            self._clear(turn.store, name, overwrite=None)
            turn.commit(self._format.create_group(turn.store, inner, described)[1])
            return self._group(name, inner)

    def create_group(self, name: str, *, attrs: Mapping[str, object] | None = None) -> "Group":
        """Create a group, as `group` does."""
        return self.group(name, attrs=attrs)

    def require_group(self, name: str) -> "Group":
        """Return the group of a name; create it, and the groups above it, if it does not exist.

        >>> import ingot
        >>> root = ingot.group()
        >>> _ = root.require_group("a/b").array("c", [1])
        >>> list(root.require_group("a/b"))
        ['c']
        """
        found = self._required(name, lambda: self.group(name))
        if not isinstance(found, Group):
            raise ExistsError(f"{self._location}: the member {name!r} is an array, not a group")
        return found

    def require_array(
        self, name: str, *, shape: int | Sequence[int], dtype: DTypeLike, **as_create: Any
    ) -> Array:
        """Return the array of a name; create it as `create_array` does if it does not exist.

        An array of another shape or type is an `ExistsError`.

        >>> import ingot
        >>> root = ingot.group()
        >>> root.require_array("a", shape=3, dtype="i4", fill=7)[0] = 1
        >>> root.require_array("a", shape=3, dtype="i4")[...]
        array([1, 7, 7], dtype=int32)
        """
        arguments = {"shape": shape, "dtype": dtype, **as_create}
        found = self._required(name, lambda: self.create_array(name, **arguments))
        if not isinstance(found, Array):
            raise ExistsError(f"{self._location}: the member {name!r} is a group, not an array")
        wanted = ArraySpec(shape, dtype).request()
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise ExistsError(
                f"{self._location}: the member {name!r} has shape {found.shape} and type "
                f"{found.dtype}, not {wanted.shape} and {wanted.dtype}"
            )
        return found

    def copy(self, source: "str | Array | tables.Table | Group", name: str) -> "Array | Group":
        """Store a copy of an array or of a group with all its members; return the copy.

        `source` is the name of a member, or a dataset from anywhere. The stored bytes of one of the
        same format are copied as they are, with chunks, codecs and attributes. One of another
        format is stored anew, with its chunks, codec and attributes where this format has a place
        for them; a table becomes a group of its columns. It is one commit. `ingot.convert` says
        what a format does not keep.

        >>> import ingot
        >>> root = ingot.group()
        >>> _ = root.array("day/rain", [1, 2], attrs={"units": "mm"})
        >>> backup = root.copy("day", "backup/day")
        >>> backup["rain"][...], dict(backup["rain"].attrs)
        (array([1, 2]), {'units': 'mm'})
        """
        self._writable()
        given = self[source] if isinstance(source, str) else source
        if not isinstance(given, Array | Group | tables.Table):
            raise ArgumentTypeError(f"a member or a dataset is copied, not {type(given).__name__}")
        with one_state(given, self._handle.store), self._one_commit():
            if given.format != self.format or isinstance(given, tables.Table):
                self._stored_anew(given, name)
            else:
                inner = given._inner if isinstance(given, Group) else given._chunks.path
                self._copied(given._handle.store, inner, name)
        return self[name]

    def _stored_anew(self, source: object, name: str) -> None:
        """Store a dataset of another format, inside a transaction."""
        if isinstance(source, Array):
            self._store_array(source, name)
            return
        if not isinstance(source, Group | tables.Table):
            raise UnsupportedError(
                f"{self._location}: a {self.format} group holds no items of variable length "
                f"({name}); ingot.convert stores them in another format"
            )
        self.group(name, attrs=dict(source.attrs))
        # Iterating a table gives its rows.
        members = source.names if isinstance(source, tables.Table) else source
        for each in members:
            self._stored_anew(source[each], f"{name}/{each}")

    def _store_array(self, source: Array, name: str) -> None:
        """Store an array of another format, with its chunks and codec where that is possible."""
        kept: dict[str, Any] = {"fill": source.fill, "attrs": dict(source.attrs)}
        names = source.dimension_names
        if names is not None and "dimension_names" in self._format.settings:
            kept["dimension_names"] = names
        try:
            self.array(name, source, chunks=source.chunks, codec=source.codec, **kept)
        except UnsupportedError:  # The format knows another codec only, or other chunks.
            self.array(name, source, **kept)

    def move(self, source: str, name: str) -> None:
        """Give a member another name, which may be a path; a group moves with all its members.

        It is one commit. A member of the new name is an `ExistsError`.

        >>> import ingot
        >>> root = ingot.group()
        >>> _ = root.array("day/rain", [1, 2])
        >>> root.move("day/rain", "rain")
        >>> list(root), list(root["day"]), root["rain"][0]
        (['day', 'rain'], [], np.int64(1))
        """
        self._writable()
        inner = self._place(source)
        if self._place(name) == inner and source in self:
            return
        with self._one_commit():
            if self._found(self._handle.store, inner) is None:
                raise MemberError(f"{self._location}: no member {source!r}")
            self._copied(self._handle.store, inner, name)
            del self[source]

    def __delitem__(self, name: str) -> None:
        inner = self._place(name)
        with self._writing() as turn:
            if self._found(turn.store, inner) is None:
                raise MemberError(f"{self._location}: no member {name!r}")
            turn.commit(self._format.removed(turn.store, inner))

    def consolidate(self) -> None:
        """Consolidate the metadata: store copies of all of it at the group, for other programs.

        From then on Ingot updates them with every change. Other programs may not; `consolidated`
        says whether the copies are up to date.

        >>> import ingot
        >>> root = ingot.group()
        >>> root.consolidate()
        >>> _ = root.array("a", [1])
        >>> root.consolidated
        True
        """
        with self._writing() as turn:
            turn.commit(self._format.consolidated(turn.store, self._inner))

    def _required(self, name: str, create: "Callable[[], Array | Group]") -> "Array | Group":
        """Return a member, made by `create` if it does not exist."""
        try:
            return self[name]
        except MemberError:
            pass
        try:
            return create()
        except ExistsError:  # Another writer was faster.
            return self[name]

    def _one_commit(self) -> AbstractContextManager[None]:
        """Return a block whose changes are one commit, that of a transaction around it if any."""
        return nullcontext() if self._tree.is_inside() else self.transaction()

    def _copied(self, source: Store, old: str, name: str) -> None:
        """Copy the stored bytes of a node and of all below it, inside a transaction."""
        new, own = self._place(name), self._handle.store
        for store in (source, own):
            if Feature.LIST not in store.features:
                raise UnsupportedError(f"{store.location}: cannot list its keys, as a copy needs")
        self._clear(own, name, overwrite=None)
        if source is own and new.startswith(prefix(old)):
            raise UnsupportedError(f"{self._location}: {name!r} lies in the source itself")
        self._format.create_group(own, new)  # Refuses names that a node cannot have.
        *_, parent = above(new)
        found = self._found(own, parent)
        if isinstance(found, ArrayNode):
            raise ExistsError(f"{self._location}: {parent!r} is an array, and has no members")
        if found is None:
            with self._writing() as turn:
                turn.commit(self._format.create_group(turn.store, parent)[1])
        edits = self._format.removed(source, old).edits
        keys = [edit.key for edit in edits if isinstance(edit, Delete)]
        for data in _values(source, keys):
            puts = (Put(prefix(new) + key.removeprefix(prefix(old)), data[key]) for key in data)
            with self._writing() as turn:
                turn.commit(Commit(publish=tuple(puts)))
        for group in above(new):
            if self._format.compare_consolidated(self._handle.store, group) is not None:
                with self._writing() as turn:
                    turn.commit(self._format.consolidated(turn.store, group))

    def _created(self, name: str, spec: ArraySpec, items: Any) -> Array:
        if spec.format not in (None, self.format):
            raise UnsupportedError(
                f"{self._location}: a {self.format} group holds no {spec.format}"
            )
        self._writable()
        if spec.options is None:
            spec = dataclasses.replace(spec, options=self._options)
        place = Destination(
            self._handle.store,
            self._place(name),
            self._path_of(name),
            lambda store: self._clear(store, name, overwrite=spec.overwrite),
            partial(self._array_handle, self._place(name)),
        )
        return create_array(self._format, place, spec, items)

    def _clear(self, store: Store, name: str, *, overwrite: bool | None) -> Commit | None:
        """Return the commit that removes a member; `overwrite` is None where it cannot be asked."""
        inner = self._place(name)
        node = self._found(store, inner)
        if node is None:
            return None
        if not overwrite:
            hint = "; overwrite=True replaces it" if overwrite is not None else ""
            raise ExistsError(f"{self._location}: the member {name!r} exists already{hint}")
        if not isinstance(node, ArrayNode):
            raise ExistsError(f"{self._location}: only arrays are replaced, {name!r} is a group")
        return self._format.removed(store, inner)

    @contextmanager
    def _describing(self) -> Iterator[dict[str, Any]]:
        with self._writable().writing() as turn:
            now = turn.value
            attrs = dict(now.node.attrs)
            yield attrs
            commit = self._format.describe_group(now.store, self._inner, attrs)
            documents = documents_after(now.node.documents, commit)
            node = GroupNode(now.node.path, attrs, documents)
            turn.commit(GroupState(self._format, now.store, node), commit)

    def _writing(self) -> AbstractContextManager[WriteTurn]:
        return writing(self._writable().store, durability=self._options.durability)

    # State and display ---------------------------------------------------------------------------

    @property
    def info(self) -> Info:
        """The properties of the group, as a table to print."""
        names, attrs = self._handle.read(lambda now: (now.children(), now.node.attrs))
        place = self.format, self._path, self._mode
        return group_info(names, attrs, *place, self._unfinished)

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes of a block; an exception discards all of them.

        The transaction spans the group and all members that are taken from it, or were before: new
        members, their values, lengths and attributes, and removals. Reads in the block see the
        changes, other handles see them after it. If another writer commits meanwhile, the
        transaction fails and changes nothing.

        >>> import ingot
        >>> root = ingot.group()
        >>> day = root.array("day", [1, 2])
        >>> with root.transaction():
        ...     day.append([3])
        ...     _ = root.array("sums/day", [day[...].sum()])
        ...     root.attrs["days"] = len(day)
        >>> root["sums/day"][0], root.attrs["days"]
        (np.int64(6), 3)
        >>> with root.transaction():
        ...     del root["sums"]
        ...     raise RuntimeError("nothing was changed")
        Traceback (most recent call last):
        RuntimeError: nothing was changed
        >>> list(root)
        ['day', 'sums']
        """
        return self._writable().transaction()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        place = self._below, self._inner
        return Group.of, (self._format, *place, self._path, self._mode, self._options)

    def __repr__(self) -> str:
        try:
            names = list(self)
        except ValueError:
            return "<ingot.Group, closed>"
        members = f"{len(names)} member" if len(names) == 1 else f"{len(names)} members"
        return f"<ingot.Group of {members}, {self.format} {self._where}, {self._mode}>"

    def _repr_html_(self) -> str:
        return self.info._repr_html_() + self.tree()._repr_html_()

    # Internals -----------------------------------------------------------------------------------

    @property
    def _location(self) -> str:
        """The place, as an error names it."""
        return "in memory" if self._path is None else self._path

    def _place(self, name: str) -> str:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the name of a member is text, not {type(name).__name__}")
        if not normalised(name):
            raise MemberError(f"{self._location}: no member {name!r}")
        return joined(self._inner, normalised(name))

    def _path_of(self, name: str) -> str | None:
        return (
            None if self._path is None else os.path.join(self._path, *normalised(name).split("/"))
        )

    def _found(self, store: Store, inner: str) -> Node | None:
        try:
            return self._format.open(store, inner)
        except NotFoundError:
            return None

    def _group(
        self,
        name: str,
        inner: str,
        first: tuple[GroupState | None, int | None] = (None, NO_VERSION),
    ) -> "Group":
        tree, options = self._tree, self._options
        # What is read inside a transaction is not the committed state.
        first = (None, NO_VERSION) if tree.is_inside() else first
        handle = group_handle(self._format, self._below, inner, options, tree, first)
        path, mode = self._path_of(name), self._mode
        return Group(self._format, tree, handle, inner, path=path, mode=mode, options=options)

    def _array_handle(
        self, inner: str, engine: Engine, number: int | None
    ) -> HandleProtocol[Engine]:
        options, tree = engine.options, self._tree
        first = (None, NO_VERSION) if tree.is_inside() else (engine, number)
        return array_handle(self._format, self._below, inner, options, first, tree)

    @property
    def _below(self) -> Store:
        """The store itself, inside a transaction too."""
        return self._tree.below

    def _grown(self, store: Store, name: str, depth: int | None) -> Tree:
        """Return the tree of all members, each level of which is read at once."""
        levels: list[list[tuple[str, GroupMembers]]] = []
        groups, left = [self._inner], _MOST_SHOWN - 1
        deepest = _DEEPEST_SHOWN if depth is None else min(depth, _DEEPEST_SHOWN)
        while groups and left > 0 and len(levels) < deepest:
            found = list(zip(groups, self._format.members(store, groups, left), strict=True))
            levels.append(found)
            nodes = [node for _, members in found for node in members.nodes.values()]
            groups = [node.path for node in nodes if isinstance(node, GroupNode)]
            left -= len(nodes)
        shown = {group: Tree("") for group in groups}
        if depth is None or len(levels) < depth:
            # Nothing is read, only whether there would be anything to show.
            rest = self._format.members(store, groups, 0)
            shown = {
                group: Tree("", more=not members.complete)
                for group, members in zip(groups, rest, strict=True)
            }
        for level in reversed(levels):
            shown = {group: _branch(group, members, shown) for group, members in level}
        return dataclasses.replace(shown[self._inner], name=name)


def _branch(group: str, members: GroupMembers, shown: Mapping[str, Tree]) -> Tree:
    """Return the tree of a group, with the trees of the groups below it."""
    below = (
        Tree(name, f"{node.schema.shape} {node.schema.dtype}")
        if isinstance(node, ArrayNode)
        else dataclasses.replace(shown[joined(group, name)], name=f"{name}/")
        for name, node in members.nodes.items()
    )
    return Tree("", "", tuple(below), more=not members.complete)


def _values(store: Store, keys: Sequence[str]) -> Iterator[dict[str, bytes]]:
    """Yield the values of keys, as many at a time as memory should hold; absent ones are left out.

    A transaction stages what it is given, so that no more is in memory.
    """
    batch: list[str] = []
    size = 0
    for key in keys:
        batch.append(key)
        size += store.size(key) or 0
        if size >= _COPIED_BYTES or key is keys[-1]:
            found = zip(batch, store.read([Extent(each) for each in batch]), strict=True)
            yield {each: value for each, value in found if value is not None}
            batch, size = [], 0


def group_handle(
    format: GroupFormat,
    store: Store,
    inner: str,
    options: Options,
    tree: TransactionalHandle[object],
    first: tuple[GroupState | None, int | None] = (None, NO_VERSION),
) -> HandleProtocol[GroupState]:
    """Return a handle of the group at `inner` of a store, as a member of a tree."""

    def load(view: Store) -> GroupState:
        node = format.open(view, inner)
        if not isinstance(node, GroupNode):
            raise FormatError(f"{store.location}: no longer a group")
        return GroupState(format, view, node)

    handle = Handle(store, load, documents=_documents, durability=options.durability, first=first)
    return MemberHandle(tree, handle, load)


def _documents(state: GroupState) -> Documents:
    return state.node.documents


def _separated(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    own = ArraySpec.__dataclass_fields__.keys() - {"layout"}
    layout = {name: arguments[name] for name in arguments if name not in own}
    return {name: arguments[name] for name in arguments if name in own}, layout
