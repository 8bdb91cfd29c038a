"""Which compute kernel runs, and why.

Knows that two modules offer the same functions: ``ingot._native``, compiled from Rust when the
package is built, and ``ingot.blosc.decode``, its twin in NumPy. Chooses one at first use and
can say why. Refuses to know what the functions compute.

The environment decides: ``INGOT_KERNEL=native`` insists on the compiled kernel, ``python`` on the
twin, unset takes the compiled one if it was built. A compiled kernel that is there and cannot be
used (another ABI, another machine) is always an error, never a silent fallback.

The kernel is imported by name at first use, not at the top of this file. The twin stands above
this module and pulls in numcodecs, which costs as much as NumPy itself; who runs the compiled
kernel should not pay for it, and ``import ingot`` should stay light either way.
"""

import importlib
import importlib.util
import json
import os
import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, cast

from ingot.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    Coords: TypeAlias = tuple[int, ...]
    Trouble: TypeAlias = tuple[Coords, str, BaseException]
    Staged: TypeAlias = tuple[Coords, str, str | None, int, int]
    Piece: TypeAlias = tuple[str, int, int | None]

__all__ = [
    "ABI",
    "Choice",
    "Description",
    "Kernel",
    "KernelWarning",
    "Layout",
    "choice",
    "choose",
    "kernel",
    "make_layout",
    "reason",
]

ABI = 10
"""The version of the kernel's functions that this package calls; the native one must state it."""

_MODULES = {"native": "ingot._native", "python": "ingot.blosc.decode"}
_BUILD_RECORD = os.path.join(os.path.dirname(__file__), "_build.json")
_REBUILD = "reinstall Ingot (pip install --force-reinstall --no-cache-dir), or ./run in a checkout"


class Description(TypedDict):
    """What a kernel says of itself."""

    kernel: str
    simd: str
    codecs: list[str]


class Kernel(Protocol):
    """The functions both kernels offer, on single Blosc chunks. Both raise ``ingot.errors``."""

    def decompress(
        self,
        chunk: "Buffer",
        out: "Buffer | None" = None,
        threads: int = 1,
        limit: int = 2**31 - 1,
    ) -> bytes | int:
        """Decode a whole chunk: into new bytes, or into ``out``, returning how many bytes."""

    def decompress_slice(
        self,
        chunk: "Buffer",
        start: int,
        stop: int,
        out: "Buffer | None" = None,
        limit: int = 2**31 - 1,
    ) -> bytes | int:
        """Decode items ``start`` to ``stop``, touching only the blocks that hold them."""

    def compress(
        self,
        data: "Buffer",
        typesize: int,
        codec: str,
        level: int,
        filter: str,
        blocksize: int,
        threads: int = 1,
    ) -> bytes:
        """Encode one Blosc-1 chunk; ``blocksize`` 0 leaves the block size to the kernel."""

    def compress2(
        self,
        data: "Buffer",
        typesize: int,
        codec: str,
        level: int,
        filters: "Sequence[tuple[int, int]]",
        blocksize: int = 0,
        split: str = "auto",
        dictionary: "Buffer | None" = None,
        threads: int = 1,
    ) -> bytes:
        """Encode one Blosc-2 chunk; a filter is its number and its metadata, first one first."""

    def train_dictionary(
        self,
        data: "Buffer",
        typesize: int,
        codec: str,
        level: int,
        filters: "Sequence[tuple[int, int]]",
        blocksize: int = 0,
        split: str = "auto",
    ) -> bytes:
        """Learn a dictionary for the chunk that ``compress2`` would make; empty if none pays."""

    def describe(self) -> Description:
        """Name the kernel, its vector instructions and its codecs."""


class KernelWarning(RuntimeWarning):
    """Ingot runs on the slow kernel because building the fast one failed.

    >>> issubclass(KernelWarning, RuntimeWarning)
    True
    """


class Layout(Protocol):
    """Where the chunks of an array lie and how they are coded; only the native kernel has it.

    A *trouble* is what went wrong with one chunk: its coordinates, its key, the error. A *staged*
    chunk is its coordinates, its key, then key, size and CRC-32 of the file that waits to take its
    place; no key (and zeros) when the chunk holds nothing but the fill value.
    """

    def read(
        self,
        out: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        threads: int,
    ) -> "tuple[int, list[Trouble]] | None":
        """Read a box into ``out``; None if all was well, else the absent chunks and troubles."""

    def resized(self, shape: "Sequence[int]", short: tuple[int, int] | None) -> "Layout":
        """Return the same array in another shape; ``short`` is as for a new one. Not for shards."""

    def read_outer(
        self,
        out: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        indices: "Sequence[NDArray[np.int64] | None]",
        threads: int,
    ) -> "tuple[int, list[Trouble]] | None":
        """Read likewise; along the axes that have an index array, that counts."""

    def stage(
        self,
        values: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        first: int,
        last: int,
        threads: int,
        transaction: str,
    ) -> "tuple[list[Staged], list[Trouble]]":
        """Encode the chunks of a box, those with the numbers ``first`` to ``last``, into files."""

    def gather(
        self, out: "NDArray[Any]", rows: "NDArray[Any]", threads: int
    ) -> "list[Trouble] | None":
        """Copy rows with trailers, by ascending numbers, to ``out``; None if all was well."""

    def compare(
        self,
        out: "NDArray[Any]",
        start: int,
        comparisons: "Sequence[tuple[str, bytes]]",
        threads: int,
    ) -> "list[Trouble] | None":
        """Say in ``out`` of which rows from ``start`` on all comparisons are true."""

    def search(
        self,
        comparisons: "Sequence[tuple[str, bytes]]",
        others: "Sequence[tuple[Layout, Sequence[tuple[str, bytes]]]]",
        spans: "Sequence[tuple[int, int]]",
        numbers: bool,
        threads: int,
    ) -> "tuple[int, bytearray | None, list[tuple[int, list[Trouble]]]]":
        """Count the rows of which all comparisons are true, here and with other arrays.

        Their numbers as 64-bit integers come next, if these are wanted, then what was wrong with
        which array, this one being number 0.
        """

    def zones(self, numbers: "Sequence[int]") -> list[bytes]:
        """Read the zone maps of chunks that have trailers; empty where there is none."""


class NativeVersionProbe(Protocol):
    """A place to look at a lock file from; only the native kernel has it."""

    def look(self) -> "tuple[int, bool] | None":
        """Return the sequence number, and whether the state is certain; None without a file."""

    def confirms(self, number: int | None) -> bool:
        """Tell whether a look now would give ``number``, for certain."""

    def moved(self, number: int | None) -> bool:
        """Tell whether a look would no longer give ``number``, as far as that is quickly told."""

    def glance(
        self, root: str, journal: str, above: "Sequence[str]", pieces: "Sequence[Piece]"
    ) -> "tuple[int | None, list[bytes | None]] | None":
        """Return the sequence number, and pieces of files that were read while nobody wrote.

        None where that takes longer, and where one of the names `above` is in the folder above.
        """


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel, and why it is this one.

    >>> choose("python").reason
    'INGOT_KERNEL=python asks for it'
    """

    name: Literal["native", "python"]
    module: Kernel
    reason: str


def kernel() -> Kernel:
    """Return the kernel in use.

    >>> kernel().describe()["kernel"] in ("native", "python")
    True
    """
    return choice().module


def make_layout(**arguments: Any) -> Layout | None:
    """Return the layout that the arguments describe, or None when the twin runs."""
    compiled = _compiled()
    return None if compiled is None else cast(Layout, compiled.Layout(**arguments))


def make_version_probe(
    path: str, magic: bytes, system: bytes, settled: bytes
) -> NativeVersionProbe | None:
    """Return the way to look at a lock file at little cost, or None when the twin runs."""
    compiled = _compiled()
    if compiled is None:
        return None
    return cast(NativeVersionProbe, compiled.Lookout(path, magic, system, settled))


def read_pieces(root: str, pieces: "Sequence[Piece]") -> "list[bytes | None] | None":
    """Return short pieces of files below a folder (key, start, length); None for absent files.

    None altogether when the twin runs, and where only the longer way can say what is there: a piece
    is large, or something is no plain file.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast("list[bytes | None] | None", compiled.read_pieces(root, pieces))


def _compiled() -> Any:
    """Return the compiled module, with what the twin does not have; None when the twin runs."""
    chosen = choice()
    return chosen.module if chosen.name == "native" else None


def reason() -> str:
    """Say why the kernel in use is the one in use.

    >>> isinstance(reason(), str)
    True
    """
    return choice().reason


@cache
def choice() -> Choice:
    """Return the choice that holds for this process, made by the environment at first use.

    >>> choice() is choice()
    True
    """
    return choose(os.environ.get("INGOT_KERNEL") or None)


def choose(preference: str | None) -> Choice:
    """Choose and load a kernel: ``"native"``, ``"python"``, or ``None`` for the best there is.

    >>> choose("python").name
    'python'
    >>> choose("fortran")
    Traceback (most recent call last):
    ingot.errors.KernelError: INGOT_KERNEL is 'fortran'; it must be 'native', 'python' or unset
    """
    if preference == "python":
        return _load("python", "INGOT_KERNEL=python asks for it")
    if preference not in (None, "native"):
        raise KernelError(f"INGOT_KERNEL is {preference!r}; it must be 'native', 'python' or unset")
    if importlib.util.find_spec(_MODULES["native"]) is not None:
        return _load_native(
            "it is built" if preference is None else "INGOT_KERNEL=native asks for it"
        )
    record = _read_build_record()
    if preference == "native":
        raise KernelError(
            f"INGOT_KERNEL=native, but the native kernel is not built: {record.reason}; "
            f"to build it, {_REBUILD} with INGOT_NATIVE=require"
        )
    if record.failed:
        warnings.warn(
            f"Ingot runs on its slow Python kernel: {record.reason} "
            "(INGOT_KERNEL=python silences this)",
            KernelWarning,
            stacklevel=3,
        )
    return _load("python", f"the native kernel is not built: {record.reason}")


def _load(name: Literal["native", "python"], why: str) -> Choice:
    return Choice(name, cast(Kernel, importlib.import_module(_MODULES[name])), why)


def _load_native(why: str) -> Choice:
    try:
        loaded = _load("native", why)
    except ImportError as error:
        raise KernelError(
            f"the native kernel is built but cannot be loaded: {error}; {_REBUILD}, "
            "or set INGOT_KERNEL=python"
        ) from error
    stated = getattr(loaded.module, "ABI", None)
    if stated != ABI:
        raise KernelError(
            f"the native kernel states ABI {stated}, this package calls ABI {ABI}: "
            f"it was built for another version; {_REBUILD}, or set INGOT_KERNEL=python"
        )
    return loaded


@dataclass(frozen=True, slots=True)
class _BuildRecord:
    """What the build said of the native kernel when it left it out."""

    reason: str
    failed: bool


def _read_build_record() -> _BuildRecord:
    try:
        with open(_BUILD_RECORD, "rb") as file:
            record = json.load(file)
    except FileNotFoundError:
        return _BuildRecord("Ingot runs from its sources and was never built", failed=False)
    except (OSError, ValueError) as error:
        return _BuildRecord(f"the build's own record is unreadable ({error})", failed=False)
    if not isinstance(record, dict):
        return _BuildRecord("the build's own record is not a mapping", failed=False)
    if record.get("native") is True:
        return _BuildRecord("it was built, and its library has been removed since", failed=True)
    reason = record.get("reason")
    text = reason if isinstance(reason, str) and reason else "the build gave no reason"
    return _BuildRecord(text, failed=record.get("attempted") is True)
