"""The choice of the compute kernel, and the functions that kernels offer.

Two modules offer the same functions on Blosc chunks: ``ingot._native``, compiled from Rust when the
package is built, and ``ingot.blosc.decode``, its twin in NumPy. One of them is chosen at first use,
with a reason that ``ingot doctor`` prints.

The environment decides: ``INGOT_KERNEL=native`` requires the compiled kernel, ``python`` requires
the twin, and without it the compiled kernel is used if it was built. A compiled kernel that exists
and cannot be used (another ABI, another machine) is always an error, never a silent fallback.

The kernel is imported by name at first use, not at the top of this file. The twin is in a higher
row and imports numcodecs, which costs as much as NumPy itself: programs that run the compiled
kernel should not pay for it, and ``import ingot`` should stay light either way.
"""

import importlib
import importlib.util
import json
import os
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, cast

from ingot._lazy import load
from ingot.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    Coords: TypeAlias = tuple[int, ...]
    Trouble: TypeAlias = tuple[Coords, str, BaseException]
    Staged: TypeAlias = tuple[Coords, str, str | None, int, int]
    Image: TypeAlias = tuple[int, str, str | bytes | None, int, int]
    Piece: TypeAlias = tuple[str, int, int | None]
    Ran: TypeAlias = tuple[
        int, list[str], int, bool, list[tuple[int, str]], tuple[int, str | None] | None
    ]
    FileRange: TypeAlias = tuple["OpenFile", int, int]
    HeldChunk: TypeAlias = (
        Buffer
        | tuple[bytes]
        | tuple[bytes, int]
        | tuple[int, list[tuple[int, bytes]]]
        | FileRange
        | None
    )
    Held: TypeAlias = dict[int, HeldChunk]
    Report: TypeAlias = tuple[int, list[Trouble]]
    ReadRanges: TypeAlias = Callable[
        [Sequence[tuple[int, int, int]], Buffer, int], tuple[int, int, int | None] | None
    ]
    Offsets: TypeAlias = tuple[int, int, int] | NDArray[np.int64]
    Box: TypeAlias = tuple["Layout", NDArray[Any], Sequence[int], Sequence[int]]
    """An array, the values of a box of it, where the box starts, and its steps."""
    Changed: TypeAlias = tuple[int | None, tuple[int, bool, bool] | None]
    """The new version; or a system error, whether a sync failed, whether readers see the change."""

__all__ = [
    "ABI",
    "Choice",
    "Description",
    "FramedItems",
    "Iterators",
    "Kernel",
    "KernelWarning",
    "Layout",
    "NativeWindowPlan",
    "OpenFile",
    "choice",
    "choose",
    "framed_items",
    "iterators",
    "kernel",
    "make_layout",
    "make_window_plan",
    "open_file",
    "open_files",
    "read_ranges",
    "reason",
]

ABI = 46
"""The version of the functions that this package calls; the native kernel must state the same."""

_MODULES = {"native": "ingot._native", "python": "ingot.blosc.decode"}
_BUILD_RECORD = os.path.join(os.path.dirname(__file__), "_build.json")
_REBUILD = "reinstall Ingot (pip install --force-reinstall --no-cache-dir), or ./run in a checkout"


class Description(TypedDict):
    """The properties of a kernel, as `Kernel.describe` returns them."""

    kernel: str
    simd: str
    codecs: list[str]


class Kernel(Protocol):
    """The functions on single Blosc chunks that both kernels offer; both raise ``ingot.errors``."""

    def decompress(
        self,
        chunk: "Buffer",
        out: "Buffer | None" = None,
        threads: int = 1,
        limit: int = 2**31 - 1,
    ) -> bytes | int:
        """Decode a whole chunk into new bytes, or into ``out``; then return the number of bytes."""

    def decompress_slice(
        self,
        chunk: "Buffer",
        start: int,
        stop: int,
        out: "Buffer | None" = None,
        limit: int = 2**31 - 1,
    ) -> bytes | int:
        """Decode items ``start`` to ``stop``, reading only the blocks that hold them."""

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
        """Encode one Blosc-1 chunk; with ``blocksize`` 0 the kernel chooses the block size."""

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
        """Encode one Blosc-2 chunk; filters are numbers with metadata, in the order applied."""

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
        """Return a dictionary for the chunk that ``compress2`` would make; empty if none pays."""

    def describe(self) -> Description:
        """Return the name of the kernel, its vector instructions and its codecs."""


class NativeWindowPlan(Protocol):
    """What is wanted of the chunks of a window for a device; only the native kernel has it."""

    def sizes(self) -> tuple[int, int]:
        """Return in how many bytes the items lie, at most, and how many the chunks have."""
        ...

    def needed(
        self, numbers: "Sequence[int]", heads: "Sequence[bytes]"
    ) -> "list[tuple[int, list[tuple[int, int]]] | None]":
        """Return the sizes of chunks, and the ranges of bytes that are needed; None for all."""
        ...

    def build(
        self, memory: "NDArray[np.uint8] | None", stored: "Sequence[object]", threads: int
    ) -> "tuple[list[bytes], int, int, list[tuple[int, int, int, int]], list[int]]":
        """Return the tables of a window.

        These are blocks, owners of streams, owners of blocks, boxes, owners of units, axes and
        offsets; then the sizes of the input and of the room; the pieces that lie behind `memory`,
        each as a chunk, a piece of it, and where in that it begins and ends; and the chunks that
        are not taken. A piece of chunk -n is a value of n bytes.
        """
        ...


class KernelWarning(RuntimeWarning):
    """Ingot runs on the slow Python kernel because building the native one failed.

    >>> issubclass(KernelWarning, RuntimeWarning)
    True
    """


class Layout(Protocol):
    """Where the chunks of an array lie and how they are coded; only the native kernel has it.

    A *trouble* is the failure of one chunk: its coordinates, its key, the error. A *staged* chunk
    is its coordinates, its key, then key, size and CRC-32 of the staged file that replaces it; None
    and zeros when the chunk holds only the fill value.

    Where only the caller can read the chunks (an array whose addresses have no `root`), a call is
    `held` the chunks that it needs: bytes by the number of the chunk, in C order over the grid;
    None for an absent chunk, and a tuple of an item for a chunk of nothing but that item. Of a
    chunk that is read in part, only pieces may be held: a tuple of its size in front of the
    checksum, and a list of pieces, each with its first byte. Its checksum is not compared. Their
    keys are empty in troubles.
    """

    def read(
        self,
        out: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        threads: int,
        only: "Sequence[int] | None" = None,
        held: "Held | None" = None,
    ) -> "Report | None":
        """Read a box into ``out``; return None on success, else the absent chunks and troubles.

        ``only`` has the numbers of the files to read, among all that the box touches, in C order;
        the items of other files are left as they are in ``out``.
        """

    def read_runs(
        self,
        out: "NDArray[Any]",
        axes: "Sequence[tuple[Offsets, Offsets]]",
        start: int,
        length: int,
        threads: int,
        only: "Sequence[int] | None" = None,
        held: "Held | None" = None,
    ) -> "Report | None":
        """Read runs of ``length`` units of a flat array into ``out``, and return as ``read`` does.

        Runs begin at an outer product of offsets: those in the payload, behind ``start``, and those
        in ``out``. Offsets are first, step and count, or an array. ``only`` has numbers of chunks.
        """

    def resized(self, shape: "Sequence[int]", short: tuple[int, int] | None) -> "Layout":
        """Return the layout in another shape, ``short`` as in the constructor. Not for shards."""

    def read_outer(
        self,
        out: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        indices: "Sequence[NDArray[np.int64] | None]",
        threads: int,
        only: "Sequence[int] | None" = None,
        held: "Held | None" = None,
    ) -> "Report | None":
        """Read like ``read``, by an index array along the axes that have one."""

    def needed(
        self,
        out: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        indices: "Sequence[NDArray[np.int64] | None]",
        only: "Sequence[int]",
        heads: "Sequence[bytes]",
    ) -> "list[tuple[int, list[tuple[int, int]]] | None]":
        """Return which bytes ``read_outer`` needs of the files ``only`` beside their first ones.

        For each file, whose first bytes are in ``heads``: the size of the chunk in front of its
        checksum, and ranges of it; None where all are needed. Nothing is written to ``out``.
        """

    def is_verified(self, key: str, start: int) -> bool:
        """Return whether the chunk at byte ``start`` of a file is not compared with its checksum.

        It was before, or never is. Files that changed just now are compared each time.
        """

    def is_known(self, key: str, start: int) -> bool:
        """Return whether the parts around the blocks of a chunk were read before."""

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
        """Encode the chunks of a box with the numbers ``first`` to ``last`` into staged files."""

    def encode(
        self,
        values: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        first: int,
        last: int,
        threads: int,
        held: "Held",
    ) -> "tuple[list[tuple[Coords, bytes | None]], list[Trouble]]":
        """Encode the chunks of a box with the numbers ``first`` to ``last``, in memory.

        ``held`` has those that change in part. There are no bytes for a chunk that holds only the
        fill value.
        """

    def assign_rows(
        self,
        rows: "NDArray[np.int64]",
        values: "NDArray[Any]",
        threads: int,
        transaction: "str | None" = None,
        held: "Held | None" = None,
    ) -> "tuple[list[Image], list[Trouble]]":
        """Encode the chunks of some rows with new values, one for each row or one for all.

        The array is cut along its first axis only. Returns images as ``copy_chunks`` does.
        """

    def write_box(
        self,
        values: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        only: "Sequence[int]",
        target: int,
        gaps: "Sequence[tuple[int, int]]",
        end: int,
        spare: float,
        threads: int,
    ) -> "tuple[bytes, int, int | None, list[Trouble]]":
        """Encode the chunks ``only`` of a box into an open super-chunk file.

        They go into gaps, each a first byte and one behind the last, or from ``end`` on, with a
        fraction ``spare`` of its size behind each. Returns number, start and size of each, as
        64-bit integers, with a start of -1 for a chunk of nothing but the fill value; the new end;
        without gaps the CRC-32 of the bytes from ``end`` on; and the chunks that failed. Nothing
        refers to them yet.
        """

    def write_rows(
        self,
        rows: "NDArray[np.int64]",
        values: "NDArray[Any]",
        target: int,
        gaps: "Sequence[tuple[int, int]]",
        end: int,
        spare: float,
        threads: int,
    ) -> "tuple[bytes, int, int | None, list[Trouble]]":
        """Do the same with rows that get new values, see ``assign_rows``; they share one file."""

    def copy_chunks(
        self,
        target: "Layout",
        first: int,
        last: int,
        offset: int,
        threads: int,
        transaction: "str | None" = None,
        held: "Held | None" = None,
    ) -> "tuple[list[Image], list[Trouble]]":
        """Copy chunks with trailers, number + ``offset`` as the number in ``target``.

        These are the numbers ``first`` to ``last``. With a transaction the *images* are staged. An
        image is the number of the chunk, its key, and a staged key with its size and CRC-32, or the
        bytes; None when the chunk holds only the fill value.
        """

    def move_chunks(
        self, target: "Layout", numbers: "Sequence[int]", threads: int, transaction: str
    ) -> "tuple[list[Staged], list[Trouble]]":
        """Stage encoded chunks as files of ``target``, which is cut and coded alike.

        Checksums are compared, and those of ``target`` made; chunks without one are decoded to
        check them. Returns what ``stage`` does, without an image of a chunk that is not stored or
        that has another size.
        """

    def remove_rows(
        self,
        target: "Layout",
        removed: "NDArray[np.int64]",
        first: int,
        last: int,
        threads: int,
        transaction: "str | None" = None,
        held: "Held | None" = None,
    ) -> "tuple[list[Image], list[Trouble]]":
        """Encode chunks of ``target``, which is this array without the rows ``removed``.

        These are the chunks ``first`` to ``last``; the numbers of the rows ascend. Returns images
        as ``copy_chunks`` does.
        """

    def decode_chunks(
        self, outs: "Sequence[tuple[NDArray[Any], int, HeldChunk]]", threads: int
    ) -> "list[Trouble] | None":
        """Decode whole chunks, each into an array of its own shape; None on success.

        A trouble has the number of the chunk as its only coordinate.
        """

    def encode_chunks(
        self, arrays: "Sequence[tuple[NDArray[Any], int]]", sparse: bool, threads: int
    ) -> "list[bytes | None]":
        """Encode whole chunks, each an array of its own shape with its number.

        With ``sparse``, a chunk that holds only the fill value has no bytes.
        """

    def top_up(
        self, stored: "Buffer | None", held: int, added: "NDArray[Any]", threads: int
    ) -> "tuple[EncodedBytes, list[int]] | None":
        """Encode the last chunk of a flat array and those behind it, when items are appended.

        The last chunk holds ``held`` items, fewer than a whole chunk, and is ``stored``; without
        that it is read from its file. Returns the chunks one behind the other, and the length of
        each. None where chunks are not Blosc's.
        """

    def write_chunks(self, items: "NDArray[Any]", target: int, start: int, threads: int) -> bytes:
        """Encode the Blosc chunks of a flat array from its items, and write them into a file.

        ``target`` is an open file, the first chunk is written at ``start``. The result has 64-bit
        integers: where the chunks start, and where the last one ends.
        """

    def gather(
        self,
        out: "NDArray[Any]",
        rows: "NDArray[Any]",
        threads: int,
        held: "Held | None" = None,
    ) -> "list[Trouble] | None":
        """Copy rows of chunks with trailers, by ascending numbers, to ``out``; None on success."""

    def compare(
        self,
        out: "NDArray[Any]",
        start: int,
        comparisons: "Sequence[tuple[str, bytes]]",
        threads: int,
        held: "Held | None" = None,
    ) -> "list[Trouble] | None":
        """Mark in ``out`` the rows from ``start`` on for which all comparisons are true."""

    def search(
        self,
        comparisons: "Sequence[tuple[str, bytes]]",
        others: "Sequence[tuple[Layout, Sequence[tuple[str, bytes]], int, Held | None]]",
        spans: "Sequence[tuple[int, int]]",
        numbers: bool,
        threads: int,
        held: "Held | None" = None,
    ) -> "tuple[int, bytearray | None, list[tuple[int, list[Trouble]]]]":
        """Count the rows for which all comparisons of an alternative are true.

        Those of this array belong to the alternative number 0, those of each of the others to the
        one that is given with them; the numbers ascend. A comparison by "==" may have any number of
        items, ascending, of which one shall be equal.

        Return the count, the row numbers as 64-bit integers if ``numbers`` is true, and the
        troubles of each array by its position, this array being number 0.
        """

    def zones(self, numbers: "Sequence[int]", held: "Held | None" = None) -> list[bytes]:
        """Return the zone maps of chunks with trailers; empty bytes for a chunk without one."""


class EncodedBytes(Protocol):
    """Encoded bytes in memory that is used again when nothing refers to them any more."""

    def __len__(self) -> int:
        """The number of bytes."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return a view of the bytes, which nothing changes."""


class NativeVersionProbe(Protocol):
    """A cheap probe of the version in a lock file; only the native kernel has it."""

    def read(self) -> "tuple[int, bool] | None":
        """Return the sequence number, and whether the state is certain; None without a file."""

    def confirms(self, number: int | None) -> bool:
        """Return whether the sequence number is still ``number``, for certain."""

    def stays(self, number: int, records: "Sequence[str]") -> bool | None:
        """Return whether the sequence number is ``number``, and readers need to know no commit.

        None where one of the names of ``records`` is taken in the folder of the lock file.
        """

    def moved(self, number: int | None) -> bool:
        """Return whether the sequence number is known to differ from ``number``: a quick check."""

    def read_settled(
        self, root: str, journal: str, files: "SmallFiles"
    ) -> "tuple[int | None, tuple[int, list[bytes | None], str | None] | None] | None":
        """Return the sequence number, and files that were read while no commit was under way.

        Of the groups of ``files``, the first is read whose first file is present; it comes with its
        number, with the further files that its first file is known to name, and with the path of
        the folder without symbolic links if it is one of the groups ``resolved`` and the system
        knows the path. None where that takes more than one call, and where one of the names
        ``above`` of ``files`` lies in the folder above.
        """


class SmallFiles(Protocol):
    """Small files that are read together, prepared once; only the native kernel has it."""

    def name_further(self, group: int, marker: bytes, pieces: "Sequence[Piece]") -> None:
        """Read more files where the first file of a group holds ``marker``, from now on.

        ``read_settled`` returns them behind those of the group.
        """

    def read(self, root: str) -> "list[bytes | None] | None":
        """Return what the files of all groups hold, as ``read_pieces`` does."""


class NativeDocuments(Protocol):
    """Documents below one folder whose contents are known."""

    def check(self, strict: bool) -> bool:
        """Return whether the folder holds the documents, byte for byte.

        If `strict`, one that was written since the last comparison differs, whatever its bytes.
        """

    def committed(self, probe: NativeVersionProbe, records: "Sequence[str]") -> int | None:
        """Return the sequence number of the committed state, if it has these documents.

        `probe` is that of the lock file in the same folder. None as well where one look cannot
        tell: a commit is under way and has published something, or may have, since one of the names
        of `records` is taken in the folder.
        """

    def put(self, key: str, content: bytes | None) -> bool:
        """Expect another content of a document; return whether it is among them."""


class NativeDataset(Protocol):
    """A dataset in a folder: where its lock file lies, and what that holds."""

    def change(
        self,
        boxes: "Sequence[Box]",
        published: "Sequence[tuple[str, bytes]]",
        transaction: str,
        documents: NativeDocuments,
        version: int,
        holder: bytes,
        devices: "Sequence[int]",
        sync: bool,
    ) -> "Changed | None":
        """Assign values to boxes of arrays whose chunks are files, as one commit.

        There is one box in one chunk, or each one is an append of one chunk or two: then
        `published` are the keys and new values of the documents that make readers see them.
        `transaction` is a part of staged names, 16 hexadecimal digits. The state is that of
        `version`, `documents` are what the dataset must still hold.
        `holder` is recorded in the lock file, if that lies on one of `devices`. None where anything
        is unusual; then nothing has changed.
        """


class SlotFile(Protocol):
    """A super-chunk file as the writer knows it that changed it last; only the kernel has it."""

    def known(self) -> tuple[bytes, bytes, int] | None:
        """Return the head and the index, the lengths of all images, and the size of the file.

        The lengths are 64-bit integers. None where another program has changed the file, and in a
        fork that cannot tell.
        """

    def free(self) -> tuple[int, int] | None:
        """Return how many bytes of the slots no image uses, and how many there are.

        None as `known` does.
        """

    def change(
        self,
        layout: Layout,
        values: "NDArray[Any]",
        starts: "Sequence[int]",
        steps: "Sequence[int]",
        spare: float,
        dataset: NativeDataset,
        documents: NativeDocuments,
        version: int,
        holder: bytes,
        devices: "Sequence[int]",
        sync: bool,
    ) -> "Changed | None":
        """Change the chunk in which a box lies, as one commit.

        The file is known of `version`, `documents` are what the dataset must still hold. `holder`
        is recorded in the lock file, if that lies on one of `devices`. None where anything is
        unusual; then nothing has changed.
        """


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen kernel, and the reason for the choice.

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


def make_layout(
    addresses: "Mapping[str, Any]", coding: "Mapping[str, Any]", grid: "Mapping[str, Any]"
) -> Layout | None:
    """Return the layout of an array; None when the twin runs.

    The arguments are the keywords of ``Addresses`` (where the chunks lie), ``Coding`` (how they are
    coded) and ``Grid`` (which items they hold): three values that are independent of each other.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    values = compiled.Addresses(**addresses), compiled.Coding(**coding), compiled.Grid(**grid)
    return cast(Layout, compiled.Layout(*values))


def make_window_plan(
    itemsize: int, sizes: "Sequence[int | None]", regions: "Sequence[Sequence[tuple[Any, ...]]]"
) -> NativeWindowPlan | None:
    """Return what is wanted of the chunks of a window for a device; None when the twin runs.

    `sizes` are their decoded bytes, `regions` those of `ingot.device.plan`.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast(NativeWindowPlan, compiled.WindowPlan(itemsize, sizes, regions))


def make_version_probe(
    path: str, magic: bytes, system: bytes, settled: bytes
) -> NativeVersionProbe | None:
    """Return a cheap probe of the version in a lock file; None when the twin runs."""
    compiled = _compiled()
    if compiled is None:
        return None
    return cast(NativeVersionProbe, compiled.VersionProbe(path, magic, system, settled))


def make_small_files(
    groups: "Sequence[Sequence[Piece]]",
    above: "Sequence[str]" = (),
    resolved: "Sequence[int]" = (),
) -> SmallFiles | None:
    """Return groups of pieces in the form that the kernel reads at once; None for the twin."""
    compiled = _compiled()
    if compiled is None:
        return None
    return cast(SmallFiles, compiled.SmallFiles(groups, above, resolved))


def make_documents(
    root: str, contents: "Sequence[tuple[str, bytes | None]]"
) -> NativeDocuments | None:
    """Return documents that the kernel compares with the files of a folder; None for the twin."""
    compiled = _compiled()
    return None if compiled is None else cast(NativeDocuments, compiled.Documents(root, contents))


def make_dataset(
    root: str,
    names: tuple[str, str],
    magic: bytes,
    system: bytes,
    locks: tuple[int, int],
    states: tuple[int, int, int],
) -> NativeDataset | None:
    """Return a dataset whose commits the kernel makes by itself; None when the twin runs.

    `names` are the lock file and the journal, `locks` the bytes that writers lock, before they
    write and before they change the state; `states` are those of a writer at work, of one that has
    synced everything, and of one that has not.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast(NativeDataset, compiled.Dataset(root, names, magic, system, locks, states))


def make_slot_file(
    key: str, first: int, index: bytes, lengths: "NDArray[np.int64]", size: int
) -> SlotFile | None:
    """Return a super-chunk file that the kernel changes by itself; None when the twin runs.

    `first` is the number of its first chunk, `index` are its head and its index, `lengths` those of
    the images of all entries. Images that overlap are an `ArgumentError`.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast(SlotFile, compiled.SlotFile(key, first, index, lengths, size))


def read_pieces(root: str, pieces: "Sequence[Piece]") -> "list[bytes | None] | None":
    """Return short pieces of files below a folder (key, start, length); None for absent files.

    The result is None when the twin runs, and where the slow way is needed: a piece is large, or
    something is not a plain file.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast("list[bytes | None] | None", compiled.read_pieces(root, pieces))


def begin_turn(
    root: str,
    names: tuple[str, str],
    magic: bytes,
    system: bytes,
    busy: int,
    holder: bytes,
    byte: int,
    devices: "Collection[int]",
) -> "tuple[int, int, int, int, int, bool] | None":
    """Open a folder, take its writer lock and record `holder` in the lock file.

    The result is the folder, the lock file, the version number, the state that was left, the number
    of the process that has staged, and whether there may be a journal. None when the twin runs, and
    where anything is unusual; then nothing has changed.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    begun = compiled.begin_turn(root, names, magic, system, busy, holder, byte, list(devices))
    return cast("tuple[int, int, int, int, int, bool] | None", begun)


def run_steps(
    directory: int,
    lock: "tuple[int, tuple[int, int, int], int, bool]",
    steps: "Sequence[tuple[int, str, str, int, Any]]",
    done: int,
    changed: "list[str]",
) -> "Ran | None":
    """Run the steps of a commit from number `done` on; None when the twin runs.

    `lock` is a `HeldLock`. The result says how many steps are done, which folders are not synced,
    the version number, whether the apply lock is held, which files are open, and, if the next step
    failed, the system error and the key. Otherwise a step that is not done is left to the caller.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    file, places, sequence, applying = lock
    return cast(
        "Ran",
        compiled.run_steps(directory, file, places, steps, done, changed, sequence, applying),
    )


def stage_arrays(
    boxes: "Sequence[tuple[Layout, NDArray[Any], Sequence[int]]]", threads: int, transaction: str
) -> "list[tuple[list[Staged], list[Trouble]]]":
    """Encode all chunks of boxes of several arrays into staged files, as `Layout.stage` does.

    A box is a layout, the values, and where they begin; its step is 1. Only the native kernel has
    layouts.
    """
    return cast(
        "list[tuple[list[Staged], list[Trouble]]]",
        _compiled().stage_arrays(boxes, threads, transaction),
    )


def pack_file(
    source: int,
    target: int,
    size: int,
    start: int,
    chunk_size: int,
    recipe: tuple[str, int, str, int, int],
    checksum: str,
    threads: int,
    progress: "Callable[[int], object] | None",
) -> bytes | None:
    """Pack the first `size` bytes of a file into Blosc chunks and digests of another.

    The files are open descriptors, the first chunk is written at `start`. `recipe` is codec, level,
    filter, typesize and blocksize. The result has 64-bit integers: where the chunks start, and
    where the last one ends. None when the twin runs.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    packed = compiled.pack_file(
        source, target, size, start, chunk_size, recipe, checksum, threads, progress
    )
    return cast(bytes, packed)


def unpack_file(
    source: int,
    target: int | None,
    stored: "NDArray[np.int64]",
    plain: "NDArray[np.int64]",
    checksum: str,
    threads: int,
    progress: "Callable[[int], object] | None",
) -> bool:
    """Unpack Blosc chunks and digests of a file into another, or only verify them.

    `stored` says where the chunks start and where the last one ends, `plain` the same of their
    bytes. Return False, with nothing done, when the twin runs.
    """
    compiled = _compiled()
    if compiled is None:
        return False
    compiled.unpack_file(source, target, stored, plain, checksum, threads, progress)
    return True


def walk_chunks(data: "Buffer", room: int, gap: int, most: int) -> bytes:
    """Return the stored and the decoded bytes of Blosc chunks that follow each other in `data`.

    They are 64-bit integers, two for each of at most `most` chunks. Each chunk has `gap` bytes
    behind it, `room` bytes lie from the start of `data` to the end of the file. The walk ends at
    the first header that is wrong or does not lie in `data`. Nothing is found when the twin runs.
    """
    compiled = _compiled()
    return b"" if compiled is None else cast(bytes, compiled.walk_chunks(data, room, gap, most))


def checksum(name: Literal["crc32", "crc32c"]) -> "Callable[..., int] | None":
    """Return the function of the native kernel that computes a checksum; None when the twin runs.

    It takes the bytes; that of a CRC-32 also the checksum of the bytes before them.

    >>> crc32 = checksum("crc32")
    >>> crc32 is None or crc32(b"123456789") == 0xCBF43926
    True
    """
    compiled = _compiled()
    return None if compiled is None else cast("Callable[..., int]", getattr(compiled, name))


def join_crc32(before: int, behind: int, length: int) -> int | None:
    """Return the CRC-32 of bytes in two parts, given those of both and the length of the second.

    None when the twin runs.

    >>> join_crc32(0x2D98_4E36, 0, 0) in (0x2D98_4E36, None)
    True
    """
    compiled = _compiled()
    return None if compiled is None else compiled.join_crc32(before, behind, length)


class OpenFile(Protocol):
    """An open file of the native kernel: `(file, start, length)` stands for bytes of it."""

    @property
    def settled(self) -> bool:
        """Whether a change of the file from now on would show in its time of change."""
        ...

    def crc32(self, ranges: "Sequence[tuple[int, int]]", threads: int) -> list[int]:
        """Return the CRC-32 of ranges, each a start and a length."""
        ...


def open_file(descriptor: int) -> OpenFile | None:
    """Return an open file, whose ranges the native kernel takes for bytes; None when the twin runs.

    It has a descriptor of its own.
    """
    compiled = _compiled()
    return None if compiled is None else compiled.OpenFile(descriptor)


def open_files() -> "Callable[[int, Sequence[str]], list[tuple[int, int] | None]] | None":
    """Return the function of the native kernel that opens plain files below an open folder.

    It returns descriptors and sizes, None for whatever else a key names. None when the twin runs.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast("Callable[[int, Sequence[str]], list[tuple[int, int] | None]]", compiled.open_files)


def read_ranges() -> "ReadRanges | None":
    """Return the function of the native kernel that reads ranges of files; None for the twin.

    It takes descriptors with starts and sizes, memory for all of them, and the number of threads,
    and returns the first range that cannot be read: its number, how many of its bytes could be, and
    the code of the error, None where the file has ended.
    """
    compiled = _compiled()
    return None if compiled is None else cast("ReadRanges", compiled.read_ranges)


def reserve(descriptor: int, start: int, size: int) -> None:
    """Reserve room in a file for bytes that will be written; nothing where that is not possible."""
    compiled = _compiled()
    if compiled is not None:
        compiled.reserve(descriptor, start, size)


def digests() -> "Callable[[str, Sequence[Buffer], int], list[bytes]] | None":
    """Return the function of the native kernel that computes checksums of several buffers.

    It takes the kind, the buffers and the number of threads. None when the twin runs.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast("Callable[[str, Sequence[Buffer], int], list[bytes]]", compiled.digests)


def encode_packs() -> "Callable[..., list[bytes]] | None":
    """Return the function of the native kernel that encodes packs of variable-length items.

    It takes the lengths (u32) and the bytes of all items, the numbers of items and of bytes at the
    end of each pack, the coding (codec, level, filter, typesize, blocksize), the kind of checksum
    and the number of threads. Where chunks have trailers, it also takes what stands in front of
    each pack, the number of the first one, the identity of the column, and whether there are zone
    maps. None when the twin runs.
    """
    compiled = _compiled()
    return None if compiled is None else cast("Callable[..., list[bytes]]", compiled.encode_packs)


def decode_packs() -> "Callable[..., tuple[bytes, int]] | None":
    """Return the function of the native kernel that decodes packs of variable-length items.

    It takes the packs, their numbers of items, the kind of checksum; where chunks have trailers,
    what stands in front of each pack, whether nothing may stand behind it, and the number and the
    identity that each pack states, else None; whether items are text, which is checked; arrays that
    get the offsets (i64) and which items exist; the most bytes that the items may have in all, and
    the number of threads. It returns the bytes of all items and the number of nulls. None for the
    twin.
    """
    compiled = _compiled()
    return (
        None
        if compiled is None
        else cast("Callable[..., tuple[bytes, int]]", compiled.decode_packs)
    )


def mark_packs() -> "Callable[..., None] | None":
    """Return the function of the native kernel that finds the items of packs that pass tests.

    It takes a set of packs (those in memory, or key, start and length of those in files; the folder
    of the files; the numbers of items, the kind of checksum and the trailers as in `decode_packs`;
    the most bytes of a pack), tests (name and values), whether items are text, an array of booleans
    that it fills, and the number of threads. None for the twin.
    """
    compiled = _compiled()
    return None if compiled is None else cast("Callable[..., None]", compiled.mark_packs)


def take_packs() -> "Callable[..., tuple[bytes, bytes]] | None":
    """Return the function of the native kernel that takes some items out of packs.

    It takes a set of packs as `mark_packs` does, the numbers of items within their packs (u64,
    ascending), where those of each pack end, whether items are text, and the number of threads; it
    returns the lengths (u32) and the bytes of the items. None for the twin.
    """
    compiled = _compiled()
    return (
        None
        if compiled is None
        else cast("Callable[..., tuple[bytes, bytes]]", compiled.take_packs)
    )


def pack_strings() -> "Callable[..., None] | None":
    """Return the function of the native kernel that fills an array of NumPy's strings.

    It takes the array, the offsets (i64) and the bytes of the items, and which of them exist, or
    None. None for the twin.
    """
    compiled = _compiled()
    return None if compiled is None else cast("Callable[..., None]", compiled.pack_strings)


def pack_strings_of() -> "Callable[..., None] | None":
    """Return the function of the native kernel that fills NumPy's strings while it decodes packs.

    It takes a new array, a set of packs as `mark_packs` does, and the number of threads. None for
    the twin.
    """
    compiled = _compiled()
    return None if compiled is None else cast("Callable[..., None]", compiled.pack_strings_of)


class FramedItems(Protocol):
    """Items in a row, each behind its length (u32), behind a count of the items."""

    def split_items(self, framed: "Buffer", count: int) -> tuple[bytes, bytes] | None:
        """Return the offsets (i64) and the bytes of items; None where anything is wrong."""

    def join_items(self, offsets: "Buffer", items: "Buffer") -> bytes | None:
        """Return items between offsets (i64) behind their lengths; None where that is wrong."""


def framed_items() -> FramedItems | None:
    """Return the native kernel, which takes such items apart; None for the twin."""
    return cast("FramedItems | None", _compiled())


class Iterators(Protocol):
    """Iterators over what is in blocks, made without Python code for an item.

    A column of a block is an array of native numbers along one axis, or a list.
    """

    def iterate_items(self, blocks: "Iterable[Any]", source: object = None) -> "Iterator[Any]":
        """Iterate over the items of columns; ``source`` has the attributes that iterators lack."""

    def iterate_rows(
        self, blocks: "Iterable[list[Any]]", row: type[tuple[Any, ...]] | None = None
    ) -> "Iterator[Any]":
        """Iterate over the rows of lists of columns, as tuples or as objects of a subclass."""

    def iterate_true(self, blocks: "Iterable[NDArray[np.bool_]]") -> "Iterator[int]":
        """Iterate over the numbers of the items that are true."""


def iterators() -> Iterators | None:
    """Return the iterators of the native kernel; None for the twin."""
    return cast("Iterators | None", _compiled())


def load_strings() -> "Callable[..., tuple[bytes, bytes, bytes | None]] | None":
    """Return the function of the native kernel that takes an array of NumPy's strings apart.

    It takes the array, and returns the ends of the items (i64), their bytes, and which of them
    exist, or None where all do. None for the twin.
    """
    compiled = _compiled()
    if compiled is None:
        return None
    return cast("Callable[..., tuple[bytes, bytes, bytes | None]]", compiled.load_strings)


def is_checking_signals() -> bool:
    """Return whether a native call of this thread runs signal handlers now.

    What a handler raises then ends the call, and nothing else.
    """
    compiled = sys.modules.get(_MODULES["native"])
    return compiled is not None and bool(compiled.is_checking_signals())


def _compiled() -> Any:
    """Return the compiled module, which has more than `Kernel` says; None when the twin runs."""
    chosen = choice()
    return chosen.module if chosen.name == "native" else None


def reason() -> str:
    """Return the reason why the kernel in use was chosen.

    >>> isinstance(reason(), str)
    True
    """
    return choice().reason


@cache
def choice() -> Choice:
    """Return the choice for this process, made from the environment at first use.

    >>> choice() is choice()
    True
    """
    return choose(os.environ.get("INGOT_KERNEL") or None)


def choose(preference: str | None) -> Choice:
    """Choose and load a kernel: ``"native"``, ``"python"``, or ``None`` for the fastest one built.

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
    return Choice(name, cast(Kernel, load(_MODULES[name])), why)


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
    """What the build recorded about a native kernel that it did not build."""

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
