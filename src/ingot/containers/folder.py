"""The folder: a plain folder as a read-only group of the datasets in it, of any format.

The members are the datasets that lie in the folder, and the folders that have datasets below them.
Names that begin with a dot are left out, as are files that are no dataset. An entry that cannot be
looked at, such as a broken link, is a problem and not a member.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, TypeAlias

from ingot.containers.array import Array
from ingot.containers.attributes import Attributes
from ingot.containers.conversion import PENDING
from ingot.containers.display import Info, Tree, group_info
from ingot.containers.group import Group
from ingot.containers.resolve import detect_dataset
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    IngotError,
    MemberError,
    NotFoundError,
    ReadOnlyError,
)
from ingot.fields import printable
from ingot.formats.paths import normalised
from ingot.options import Options

__all__ = ["FolderGroup", "Found", "Opener", "folder_group", "holds_datasets", "members", "walk"]

Opener: TypeAlias = Callable[..., Any]
"""Opens what lies at a path: `ingot.open`."""

_NAME: Final = "folder"
_MOST_SHOWN: Final = 1000
_REFUSED: Final = "\\\x7f" + "".join(map(chr, range(32)))
"""Characters that no store takes in the name of a file."""

_DEEPEST: Final = 50
"""How many folders are looked into, one in the other."""


class FolderGroup(Group):
    """A plain folder that holds datasets, opened by `ingot.open`; it cannot be changed.

    >>> import tempfile
    >>> import ingot
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingot.array([1, 2], f"{folder.name}/a.zarr")
    >>> _ = ingot.table({"x": [1, 2, 3]}, f"{folder.name}/old/prices.bcolz")
    >>> group = ingot.open(folder.name)
    >>> list(group), group["old/prices.bcolz"].names
    (['a.zarr', 'old'], ('x',))
    >>> group.tree()
    /
    ├── a.zarr (2,) int64, zarr3
    └── old/
        └── prices.bcolz 3 rows, 1 column, bcolz
    >>> folder.cleanup()
    """

    __slots__ = ("_closed", "_open")

    def __init__(self, path: str, options: Options, open: Opener) -> None:
        # A folder has no state to be read: neither format nor handle.
        self._path = path
        self._mode = "r"
        self._options = options
        self._inner = ""
        self._open = open
        self._closed = False

    @property
    def format(self) -> str:
        """The name that stands for the format, "folder"."""
        return _NAME

    @property
    def folder(self) -> str:
        """The path of the folder."""
        if self._closed:
            raise ArgumentError(f"the group {self._path} is closed")
        assert self._path is not None
        return self._path

    @property
    def attrs(self) -> Attributes:
        """No attributes: a folder has none, and cannot get any."""
        return Attributes(dict, self._refuse)

    @property
    def consolidated(self) -> None:
        """None: a folder has no consolidated metadata."""
        return None

    def entries(self) -> dict[str, str | None]:
        """Return the names of all members, sorted, and of entries with a problem, which is a text.

        >>> import tempfile
        >>> import ingot
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = ingot.array([1, 2], f"{folder}/a.zarr")
        ...     os.symlink("nowhere", f"{folder}/b")
        ...     ingot.open(folder).entries()
        {'a.zarr': None, 'b': 'a broken link'}
        """
        found = {}
        for name in _listed(self.folder):
            path = os.path.join(self.folder, name)
            problem = _problem(path)
            if problem is not None or _is_member(path):
                found[name] = problem
        return found

    def __getitem__(self, name: str) -> "Array | Group":
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the name of a member is text, not {type(name).__name__}")
        parts = normalised(name).split("/")
        if not parts[0] or ".." in parts or "." in parts:
            raise MemberError(f"{self._location}: no member {name!r}")
        try:
            found = self._open(os.path.join(self.folder, *parts), "r", options=self._options)
        except NotFoundError:
            raise MemberError(f"{self._location}: no member {name!r}") from None
        except FormatError as error:
            if _is_member(os.path.join(self.folder, *parts)):
                raise
            raise MemberError(f"{self._location}: no member {name!r}") from error
        member: Array | Group = found
        return member

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except MemberError:
            return False

    def __iter__(self) -> Iterator[str]:
        return (name for name, problem in self.entries().items() if problem is None)

    def __len__(self) -> int:
        return sum(problem is None for problem in self.entries().values())

    def tree(self, depth: int | None = None) -> Tree:
        """Return all datasets below the folder, to print; no deeper than `depth`."""
        return _Growth(self._options, self._open).grown(self, "/", depth)

    @property
    def info(self) -> Info:
        """The properties of the folder, as a table to print."""
        return group_info(list(self), {}, _NAME, self._path, "r")

    def flush(self) -> None:
        """Do nothing: a folder is not changed."""
        _ = self.folder

    def refresh(self) -> None:
        """Do nothing: a folder is listed by every call."""
        _ = self.folder

    def snapshot(self) -> AbstractContextManager[None]:
        """Do nothing for the time of a block: the datasets have states of their own."""
        _ = self.folder
        return nullcontext()

    def close(self) -> None:
        """Close the folder; its members can still be used."""
        self._closed = True

    def __reduce__(self) -> tuple[Any, ...]:
        return FolderGroup, (self.folder, self._options, self._open)

    def _refuse(self) -> Any:
        raise ReadOnlyError(
            f"{self._path}: a plain folder of datasets cannot be changed; open the dataset in it"
        )

    def _writable(self) -> Any:
        return self._refuse()


def folder_group(path: str, options: Options, open: Opener) -> FolderGroup | None:
    """Return a plain folder as a group; None if it is none, or holds no dataset."""
    if not os.path.isdir(path) or _is_dataset(path):
        return None
    if os.path.lexists(os.path.join(path, PENDING)):
        raise FormatError(
            f"{path}: holds an unfinished conversion, no dataset yet; the same convert continues it"
        )
    if not holds_datasets(path):
        return None
    return FolderGroup(os.path.abspath(path), options, open)


def holds_datasets(folder: str) -> bool:
    """Return whether a dataset lies in a folder, or in a folder below it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     holds_datasets(folder)
    False
    """
    return _holds(folder, ())


class Found(NamedTuple):
    """What lies below a group: a dataset, or the reason why it cannot be opened."""

    name: str
    """The path from the group."""
    dataset: Any
    """An array, a table, items or a group; None where it cannot be opened."""
    problem: str | None = None


def walk(group: Group, name: str = "") -> Iterator[Found]:
    """Yield every dataset below a group, groups before their members, and what cannot be opened.

    >>> import ingot
    >>> root = ingot.group()
    >>> _ = root.array("day/temperature", [20.5, 21.0])
    >>> [each.name for each in walk(root)]
    ['day', 'day/temperature']
    """
    for each, member, problem in members(group):
        place = f"{name}/{each}" if name else each
        if not isinstance(member, FolderGroup):
            yield Found(place, member, problem)
        if isinstance(member, Group):
            yield from walk(member, place)


def members(group: Group) -> Iterator[Found]:
    """Yield the members of a group, and the entries of a folder that cannot be opened.

    >>> import ingot
    >>> root = ingot.group()
    >>> _ = root.array("day/temperature", [20.5, 21.0])
    >>> [each.name for each in members(root)]
    ['day']
    """
    problems: Mapping[str, str | None] = {}
    if isinstance(group, FolderGroup):
        problems = group.entries()
    for name in problems or group:
        problem = problems.get(name)
        if problem is not None:
            yield Found(name, None, problem)
            continue
        try:
            found = Found(name, group[name])
        except (IngotError, OSError) as error:
            found = Found(name, None, str(error))
        yield found


class _Growth:
    """A tree of datasets while it grows; its size is limited."""

    def __init__(self, options: Options, open: Opener) -> None:
        self._left = _MOST_SHOWN
        self._options = options
        self._open = open

    def grown(self, group: FolderGroup, name: str, depth: int | None) -> Tree:
        """Return the tree of a folder."""
        below: list[Tree] = []
        deeper = None if depth is None else depth - 1
        for each, problem in ({} if depth == 0 else group.entries()).items():
            if not self._left:
                return Tree(name, below=tuple(below), more=True)
            self._left -= 1
            below.append(self._branch(group, each, problem, deeper))
        return Tree(name, below=tuple(below))

    def _branch(
        self, group: FolderGroup, name: str, problem: str | None, depth: int | None
    ) -> Tree:
        shown = printable(name)
        if problem is not None:
            return Tree(shown, problem)
        try:
            member: Any = group[name]
        except (IngotError, OSError) as error:
            return Tree(shown, f"cannot be opened: {error}")
        if isinstance(member, FolderGroup):
            return self.grown(member, f"{shown}/", depth)
        if isinstance(member, Group):
            inside = member.tree(depth)
            return Tree(f"{shown}/", member.format, inside.below, inside.more)
        return Tree(shown, f"{member.info.summary}, {member.format}")


def _listed(folder: str) -> list[str]:
    """Return the names in a folder that may be datasets, sorted."""
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def _problem(path: str) -> str | None:
    """Return why nothing can be said of a path; None if it can be looked at."""
    try:
        if os.path.islink(path):
            if not os.path.exists(path):
                return "a broken link"
            real = os.path.realpath(path)
            if os.path.commonpath([real, os.path.realpath(os.path.dirname(path))]) == real:
                return "a link to a folder above"
        if os.path.isdir(path):
            with os.scandir(path):
                pass
        elif os.path.isfile(path):
            with open(path, "rb"):
                pass
            if any(map(os.path.basename(path).__contains__, _REFUSED)):
                return "a name with a backslash or a control character"
        path.encode()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    except UnicodeEncodeError:
        return "a name that is no Unicode"
    return None


def _is_member(path: str) -> bool:
    """Return whether a path is a dataset, or a folder with datasets below it."""
    return _is_dataset(path) or (os.path.isdir(path) and holds_datasets(path))


def _is_dataset(path: str) -> bool:
    try:
        # Pipes and devices would be waited for.
        known = os.path.isfile(path) or os.path.isdir(path)
        return known and detect_dataset(path) is not None
    except (IngotError, OSError, ValueError):
        return False


def _holds(folder: str, above: tuple[str, ...]) -> bool:
    real = os.path.realpath(folder)
    if real in above or len(above) > _DEEPEST:
        return False
    try:
        paths = [os.path.join(folder, name) for name in _listed(folder)]
    except OSError:
        return False
    if any(map(_is_dataset, paths)):
        return True
    return any(_holds(path, (*above, real)) for path in paths if os.path.isdir(path))
