"""The native kernel, compiled from Rust; absent where it was not built."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from ingot.native import Description

Coords = tuple[int, ...]
Trouble = tuple[Coords, str, BaseException]
Staged = tuple[Coords, str, str | None, int, int]

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
def decompress_box(
    chunk: Buffer,
    shape: Sequence[int],
    starts: Sequence[int],
    steps: Sequence[int],
    out: Buffer,
) -> None: ...
def read_box(
    path: str | PathLike[str],
    shape: Sequence[int],
    starts: Sequence[int],
    steps: Sequence[int],
    out: Buffer,
    offset: int = 0,
    length: int | None = None,
) -> bool: ...

class Layout:
    def __new__(
        cls,
        *,
        root: str | PathLike[str],
        names: tuple[str, str, str, str],
        shape: Sequence[int],
        chunk: Sequence[int],
        axes: Sequence[int],
        itemsize: int,
        fill: bytes,
        kind: str,
        codec: str = "",
        level: int = 0,
        filter: str = "none",
        typesize: int = 1,
        blocksize: int = 0,
        checksum: bool = False,
        sealed: bool = False,
        verify: str = "first",
        sharding: tuple[Sequence[int], bool, bool, bool] | None = None,
    ) -> Self: ...
    def read(
        self, out: NDArray[Any], starts: Sequence[int], steps: Sequence[int], threads: int
    ) -> tuple[int, list[Trouble]] | None: ...
    def read_outer(
        self,
        out: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        indices: Sequence[NDArray[np.int64] | None],
        threads: int,
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
    def zones(self, numbers: Sequence[int]) -> list[bytes]: ...
    def gather(
        self, out: NDArray[Any], rows: NDArray[Any], threads: int
    ) -> list[Trouble] | None: ...
    def compare(
        self,
        out: NDArray[Any],
        start: int,
        comparisons: Sequence[tuple[str, bytes]],
        threads: int,
    ) -> list[Trouble] | None: ...
    def search(
        self,
        comparisons: Sequence[tuple[str, bytes]],
        others: Sequence[tuple[Layout, Sequence[tuple[str, bytes]]]],
        spans: Sequence[tuple[int, int]],
        numbers: bool,
        threads: int,
    ) -> tuple[int, bytearray | None, list[tuple[int, list[Trouble]]]]: ...

class Lookout:
    def __new__(cls, path: str, magic: bytes, system: bytes, settled: bytes) -> Self: ...
    def look(self) -> tuple[int, bool] | None: ...

class SmallFiles:
    def __new__(
        cls, groups: Sequence[Sequence[tuple[str, int, int | None]]], above: Sequence[str]
    ) -> Self: ...
    def read(self, root: str) -> list[bytes | None] | None: ...
