"""The native kernel, compiled from Rust; absent where it was not built."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from ingot.native import Description

Coords = tuple[int, ...]
Trouble = tuple[Coords, str, BaseException]
Staged = tuple[Coords, str, str | None, int, int]
Image = tuple[int, str, str | bytes | None, int, int]
FileRange = tuple[OpenFile, int, int]
HeldChunk = Buffer | tuple[bytes] | tuple[int, list[tuple[int, bytes]]] | FileRange | None
Held = dict[int, HeldChunk]
Offsets = tuple[int, int, int] | NDArray[np.int64]

ABI: int

def decompress(
    chunk: Buffer, out: Buffer | None = None, threads: int = 1, limit: int = 2147483647
) -> bytes | int: ...
def decompress_slice(
    chunk: Buffer, start: int, stop: int, out: Buffer | None = None, limit: int = 2147483647
) -> bytes | int: ...
def compress(
    data: Buffer,
    typesize: int,
    codec: str,
    level: int,
    filter: str,
    blocksize: int,
    threads: int = 1,
) -> bytes: ...
def compress2(
    data: Buffer,
    typesize: int,
    codec: str,
    level: int,
    filters: Sequence[tuple[int, int]],
    blocksize: int = 0,
    split: str = "auto",
    dictionary: Buffer | None = None,
    threads: int = 1,
) -> bytes: ...
def train_dictionary(
    data: Buffer,
    typesize: int,
    codec: str,
    level: int,
    filters: Sequence[tuple[int, int]],
    blocksize: int = 0,
    split: str = "auto",
) -> bytes: ...
def describe() -> Description: ...

class OpenFile:
    def __init__(self, descriptor: int) -> None: ...
    @property
    def settled(self) -> bool: ...
    def crc32(self, ranges: Sequence[tuple[int, int]], threads: int) -> list[int]: ...

def digests(kind: str, buffers: Sequence[Buffer], threads: int) -> list[bytes]: ...
def decode_packs(
    packs: Sequence[Buffer],
    counts: Sequence[int],
    checksum: str,
    lengths: Buffer,
    most: int,
    threads: int,
) -> bytes: ...
def encode_packs(
    lengths: Buffer,
    data: Buffer,
    cuts: Sequence[int],
    ends: Sequence[int],
    coding: tuple[str, int, str, int, int],
    checksum: str,
    threads: int,
) -> list[bytes]: ...
def begin_turn(
    root: str | PathLike[str],
    names: tuple[str, str],
    magic: bytes,
    system: bytes,
    busy: int,
    holder: bytes,
    byte: int,
    devices: Sequence[int],
) -> tuple[int, int, int, int, int, bool] | None: ...
def run_steps(
    directory: int,
    lock: int,
    places: tuple[int, int, int],
    steps: Sequence[tuple[int, str, str, int, object]],
    done: int,
    changed: Sequence[str],
    sequence: int,
    applying: bool,
) -> tuple[int, list[str], int, bool, list[tuple[int, str]], tuple[int, str | None] | None]: ...
def stage_arrays(
    boxes: Sequence[tuple[Layout, NDArray[Any], Sequence[int]]], threads: int, transaction: str
) -> list[tuple[list[Staged], list[Trouble]]]: ...
def open_files(directory: int, keys: Sequence[str]) -> list[tuple[int, int] | None]: ...
def read_ranges(
    wanted: Sequence[tuple[int, int, int]], memory: Buffer, threads: int
) -> tuple[int, int, int | None] | None: ...
def reserve(descriptor: int, start: int, size: int) -> None: ...
def crc32(data: Buffer, before: int = 0) -> int: ...
def crc32c(data: Buffer) -> int: ...
def join_crc32(before: int, behind: int, length: int) -> int: ...
def read_pieces(
    root: str | PathLike[str], pieces: Sequence[tuple[str, int, int | None]]
) -> list[bytes | None] | None: ...

class Addresses:
    def __new__(
        cls,
        *,
        root: str | PathLike[str] | None = None,
        names: tuple[str, str, str, str] | None = None,
        leading: int | None = None,
        shards: Sequence[tuple[Sequence[int], bool, bool, bool]] | None = None,
        table: tuple[
            Sequence[str], Sequence[int], Sequence[int], Sequence[int], bytes, dict[int, bytes]
        ]
        | None = None,
        parts: Sequence[tuple[int, str]] = (),
        super_chunks: Sequence[tuple[int, int, str, str, int]] | None = None,
        patches: Mapping[str, Sequence[tuple[int, bytes]]] = {},
    ) -> Self: ...

class Coding:
    def __new__(
        cls,
        *,
        kind: str,
        codec: str = "",
        level: int = 0,
        filter: str = "none",
        typesize: int = 1,
        blocksize: int = 0,
        frame_checksum: bool = False,
        checksum: bool = False,
        verify: str = "first",
        framed: bool = False,
        slotted: bool = False,
    ) -> Self: ...

class Grid:
    def __new__(
        cls,
        *,
        shape: Sequence[int],
        chunk: Sequence[int],
        order: Sequence[int],
        fill: bytes,
        kind: str | None = None,
        big_endian: bool = False,
        short: tuple[int, int] | None = None,
        parts: Sequence[tuple[int, int | None]] = (),
        bounds: Sequence[NDArray[np.int64] | None] = (),
    ) -> Self: ...

class WindowPlan:
    def __new__(
        cls,
        itemsize: int,
        sizes: Sequence[int | None],
        regions: Sequence[Sequence[tuple[object, ...]]],
    ) -> Self: ...
    def sizes(self) -> tuple[int, int]: ...
    def needed(
        self, numbers: Sequence[int], heads: Sequence[bytes]
    ) -> list[tuple[int, list[tuple[int, int]]] | None]: ...
    def build(
        self, memory: NDArray[np.uint8] | None, stored: Sequence[object], threads: int
    ) -> tuple[list[bytes], int, int, list[tuple[int, int, int, int]], list[int]]: ...

class Layout:
    def __new__(cls, addresses: Addresses, coding: Coding, grid: Grid) -> Self: ...
    def resized(self, shape: Sequence[int], short: tuple[int, int] | None) -> Self: ...
    def read(
        self,
        out: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        threads: int,
        only: Sequence[int] | None = None,
        held: Held | None = None,
    ) -> tuple[int, list[Trouble]] | None: ...
    def read_runs(
        self,
        out: NDArray[Any],
        axes: Sequence[tuple[Offsets, Offsets]],
        start: int,
        length: int,
        threads: int,
        only: Sequence[int] | None = None,
        held: Held | None = None,
    ) -> tuple[int, list[Trouble]] | None: ...
    def read_outer(
        self,
        out: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        indices: Sequence[NDArray[np.int64] | None],
        threads: int,
        only: Sequence[int] | None = None,
        held: Held | None = None,
    ) -> tuple[int, list[Trouble]] | None: ...
    def stage(
        self,
        values: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        first: int,
        last: int,
        threads: int,
        transaction: str,
    ) -> tuple[list[Staged], list[Trouble]]: ...
    def encode(
        self,
        values: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        first: int,
        last: int,
        threads: int,
        held: Held,
    ) -> tuple[list[tuple[Coords, bytes | None]], list[Trouble]]: ...
    def assign_rows(
        self,
        rows: NDArray[np.int64],
        values: NDArray[Any],
        threads: int,
        transaction: str | None = None,
        held: Held | None = None,
    ) -> tuple[list[Image], list[Trouble]]: ...
    def copy_chunks(
        self,
        target: Layout,
        first: int,
        last: int,
        offset: int,
        threads: int,
        transaction: str | None = None,
        held: Held | None = None,
    ) -> tuple[list[Image], list[Trouble]]: ...
    def move_chunks(
        self, target: Layout, numbers: Sequence[int], threads: int, transaction: str
    ) -> tuple[list[Staged], list[Trouble]]: ...
    def remove_rows(
        self,
        target: Layout,
        removed: NDArray[np.int64],
        first: int,
        last: int,
        threads: int,
        transaction: str | None = None,
        held: Held | None = None,
    ) -> tuple[list[Image], list[Trouble]]: ...
    def decode_chunks(
        self, outs: Sequence[tuple[NDArray[Any], int, HeldChunk]], threads: int
    ) -> list[Trouble] | None: ...
    def encode_chunks(
        self, arrays: Sequence[tuple[NDArray[Any], int]], sparse: bool, threads: int
    ) -> list[bytes | None]: ...
    def top_up(
        self, stored: Buffer | None, held: int, added: NDArray[Any], threads: int
    ) -> tuple[EncodedBytes, list[int]] | None: ...
    def write_box(
        self,
        values: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        only: Sequence[int],
        target: int,
        gaps: Sequence[tuple[int, int]],
        end: int,
        spare: float,
        threads: int,
    ) -> tuple[bytes, int, int | None, list[Trouble]]: ...
    def write_rows(
        self,
        rows: NDArray[np.int64],
        values: NDArray[Any],
        target: int,
        gaps: Sequence[tuple[int, int]],
        end: int,
        spare: float,
        threads: int,
    ) -> tuple[bytes, int, int | None, list[Trouble]]: ...
    def write_chunks(self, items: NDArray[Any], target: int, start: int, threads: int) -> bytes: ...
    def zones(self, numbers: Sequence[int], held: Held | None = None) -> list[bytes]: ...
    def gather(
        self, out: NDArray[Any], rows: NDArray[Any], threads: int, held: Held | None = None
    ) -> list[Trouble] | None: ...
    def compare(
        self,
        out: NDArray[Any],
        start: int,
        comparisons: Sequence[tuple[str, bytes]],
        threads: int,
        held: Held | None = None,
    ) -> list[Trouble] | None: ...
    def search(
        self,
        comparisons: Sequence[tuple[str, bytes]],
        others: Sequence[tuple[Layout, Sequence[tuple[str, bytes]], int, Held | None]],
        spans: Sequence[tuple[int, int]],
        numbers: bool,
        threads: int,
        held: Held | None = None,
    ) -> tuple[int, bytearray | None, list[tuple[int, list[Trouble]]]]: ...

def is_checking_signals() -> bool: ...
def pack_file(
    source: int,
    target: int,
    size: int,
    start: int,
    chunk_size: int,
    recipe: tuple[str, int, str, int, int],
    checksum: str,
    threads: int,
    report: Callable[[int], object] | None = None,
) -> bytes: ...
def unpack_file(
    source: int,
    target: int | None,
    stored: Buffer,
    plain: Buffer,
    checksum: str,
    threads: int,
    report: Callable[[int], object] | None = None,
) -> None: ...
def walk_chunks(data: Buffer, room: int, gap: int, most: int) -> bytes: ...

class EncodedBytes:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class VersionProbe:
    def __new__(
        cls, path: str | PathLike[str], magic: bytes, system: bytes, settled: bytes
    ) -> Self: ...
    def read(self) -> tuple[int, bool] | None: ...
    def confirms(self, number: int | None) -> bool: ...
    def moved(self, number: int | None) -> bool: ...
    def read_settled(
        self, root: str | PathLike[str], journal: str, files: SmallFiles
    ) -> tuple[int | None, tuple[int, list[bytes | None], str | None] | None] | None: ...

class SmallFiles:
    def __new__(
        cls,
        groups: Sequence[Sequence[tuple[str, int, int | None]]],
        above: Sequence[str],
        resolved: Sequence[int],
    ) -> Self: ...
    def name_further(
        self, group: int, marker: bytes, pieces: Sequence[tuple[str, int, int | None]]
    ) -> None: ...
    def read(self, root: str | PathLike[str]) -> list[bytes | None] | None: ...

class Dataset:
    def __new__(
        cls,
        path: str | PathLike[str],
        names: tuple[str, str],
        magic: bytes,
        system: bytes,
        locks: tuple[int, int],
        states: tuple[int, int, int],
    ) -> Self: ...

class SlotFile:
    def __new__(
        cls, key: str, first: int, index: bytes, lengths: NDArray[np.int64], size: int
    ) -> Self: ...
    def known(self) -> tuple[bytes, bytes, int] | None: ...
    def free(self) -> tuple[int, int] | None: ...
    def change(
        self,
        layout: Layout,
        values: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        spare: float,
        dataset: Dataset,
        documents: Documents,
        version: int,
        holder: bytes,
        devices: Sequence[int],
        sync: bool,
    ) -> tuple[int | None, tuple[int, bool, bool] | None] | None: ...

class Documents:
    def __new__(
        cls, root: str | PathLike[str], contents: Sequence[tuple[str, bytes | None]]
    ) -> Self: ...
    def check(self, strict: bool) -> bool: ...
    def put(self, key: str, content: bytes | None) -> bool: ...
