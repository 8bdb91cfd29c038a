"""What arrays, tables, groups and items share: a format, a path, a mode, and a handle."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NoReturn, Self, TypeAlias, TypeVar

from ingot.containers.conversion import Conversion
from ingot.containers.handle import HandleProtocol
from ingot.errors import ReadOnlyError, UnknownNameError
from ingot.formats.format import Format
from ingot.stores.versions import close_log, versioned

__all__ = ["Dataset", "Mode"]

State = TypeVar("State")

Mode: TypeAlias = Literal["r", "r+"]


class Dataset(Generic[State]):
    """Something stored in a format, at a path, and opened in a mode.

    It can be used as a context manager, which closes it.
    """

    __slots__ = ("__weakref__", "_conversion", "_format", "_handle", "_mode", "_path")

    _WORD: ClassVar[str] = "dataset"
    """What a message calls it."""

    _ELSEWHERE: ClassVar[Mapping[str, str]] = {}
    """Names that other libraries have, with what to use instead."""

    def __init__(
        self, format: Format, handle: HandleProtocol[State], *, path: str | None, mode: Mode
    ) -> None:
        self._format = format
        self._handle = handle
        self._path = path
        self._mode: Mode = mode
        self._conversion: Conversion | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise the error for a name that does not exist; type checkers find it themselves."""
            raise UnknownNameError(
                f"ingot.{type(self).__name__} has no attribute {name!r}{self._instead_of(name)}",
                name=name,
                obj=self,
            )

    def _instead_of(self, name: str) -> str:
        """Return what a message adds for a name that does not exist."""
        found = self._ELSEWHERE.get(name)
        return "" if found is None else f"; use {found}"

    @property
    def conversion(self) -> Conversion | None:
        """How `ingot.convert` made the dataset that it returned; None of any other dataset."""
        # A folder of datasets has no state, and sets nothing.
        return getattr(self, "_conversion", None)

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._format.name

    @property
    def path(self) -> str | None:
        """Where the data are stored; None in memory."""
        return self._path

    @property
    def mode(self) -> Mode:
        """Whether the data may only be read, "r", or changed as well, "r+"."""
        return self._mode

    def flush(self) -> None:
        """Do nothing: every change was stored when its call returned."""
        _ = self._handle.value  # The value of a closed handle raises an error.

    def refresh(self) -> None:
        """Read the metadata again; other calls do that when they have to."""
        self._handle.refresh()

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state while a block runs; writers wait until it ends.

        >>> import ingot
        >>> array = ingot.array([1, 2, 3])
        >>> with array.snapshot():
        ...     share = array[...] / array.sum()
        """
        return self._handle.snapshot()

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes of a block; an exception discards all of them.

        Reads in the block see the changes, other handles see them after it. If another writer
        commits meanwhile, the transaction fails and changes nothing. The transaction of a member of
        a group, or of a column, is one of the group or table that it was taken from.

        >>> import ingot
        >>> array = ingot.array([1, 2, 3])
        >>> with array.transaction():
        ...     array.append([4])
        ...     array[0] = 10
        ...     array.attrs["units"] = "m"
        >>> array[...], dict(array.attrs)
        (array([10,  2,  3,  4]), {'units': 'm'})
        """
        return self._writable().transaction()

    def close(self) -> None:
        """Close the handle; after that it cannot be used. The members of a group can."""
        store = self._handle.store
        self._handle.close(f"the {self._WORD} {'in memory' if self._path is None else self._path}")
        if self._mode != "r":
            close_log(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _where(self) -> str:
        """The place, as a repr names it."""
        return "in memory" if self._path is None else f"at {self._path!r}"

    @property
    def _unfinished(self) -> bool:
        """Whether a writer has died in a commit, which is then read through its journal."""
        store = self._handle.store
        below = versioned(store)
        return below is not None and below.view() is not store

    def _writable(self) -> HandleProtocol[State]:
        """Return the handle; raise an error if the mode is "r"."""
        if self._mode == "r":
            place = self._handle.store.location if self._path is None else self._path
            raise ReadOnlyError(f"{place}: opened with mode 'r', changes need 'r+'")
        return self._handle
