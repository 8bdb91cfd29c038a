"""Cases: one operation to time with one array library, as a value for another process.

Turns a case into a sampler, after checking that the library reads the right data. Does not know in
which process it runs and what the times mean.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from benchmarks.array_libraries import ArrayLibrary, Read, remove
from benchmarks.libraries import EVERY
from benchmarks.race import Sampler, stopwatch
from benchmarks.samples import Array, Key, Recipe, fill, parts
from benchmarks.verify import require

__all__ = ["Case", "digest", "pack", "parse", "sampling", "write_in_parts"]


@dataclass(frozen=True, slots=True)
class Case:
    """A library, a path, and an operation: ``keys`` to read, and a digest of their data.

    The operation "copy" reads everything and writes it to another path.
    """

    library: str
    action: Literal["write", "open", "read", "copy"]
    path: str
    recipe: Recipe
    keys: tuple[Key, ...] = ()
    digest: int | None = None


def pack(case: Case) -> str:
    """Write a case as one line of JSON.

    >>> case = Case("zarr2", "read", "x", Recipe((4, 4), "<f4", (2, 2)), ((1, slice(0, 2)),))
    >>> parse(pack(case)) == case
    True
    """
    keys = [[_pack_part(part) for part in key] for key in case.keys]
    return json.dumps({**asdict(replace(case, keys=())), "keys": keys})


def parse(line: str) -> Case:
    """Read what ``pack`` wrote.

    >>> parse(pack(Case("hdf5", "open", "x", Recipe((4,), "<f4", (2,))))).recipe.chunks
    (2,)
    """
    fields: dict[str, Any] = json.loads(line)
    for name in ("shape", "chunks", "blocks", "shards"):
        given = fields["recipe"][name]
        fields["recipe"][name] = None if given is None else tuple(given)
    keys = tuple(tuple(_parse_part(part) for part in key) for key in fields["keys"])
    return Case(**{**fields, "recipe": Recipe(**fields["recipe"]), "keys": keys})


def digest(arrays: Sequence[Array]) -> int:
    """Sum up the contents of arrays, to compare them across processes.

    >>> digest([np.zeros(2), np.ones(3)]) == digest([np.zeros((2, 1)), np.ones((1, 3))])
    True
    """
    checksum = 0
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1)
        checksum = zlib.crc32(flat.view(np.uint8).data, checksum)
    return checksum


@contextmanager
def sampling(case: Case) -> Iterator[Sampler]:
    """Prepare to time a case, and clean up afterwards; a written file stays.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = Case("zarr2", "write", folder + "/x", Recipe((8, 8), "<f4", (4, 4)))
    ...     with sampling(case) as sampler:
    ...         sampler(1) > 0, os.path.exists(case.path)
    (True, True)
    """
    library = EVERY[case.library]
    if case.action == "write":
        yield _write_sampler(library, case)
    elif case.action == "open":
        yield stopwatch(lambda: library.close(library.open(case.path)), prepare=library.select)
    else:
        library.select()
        handle = library.open(case.path)
        sampler = _copy_sampler if case.action == "copy" else _read_sampler
        try:
            yield sampler(library.read(handle), case)
        finally:
            library.close(handle)


def write_in_parts(case: Case) -> None:
    """Write the case's array part by part, so that it need not fit into memory."""
    library = EVERY[case.library]
    remove(case.path)
    library.select()
    library.write(case.path, case.recipe, parts(case.recipe))


def _write_sampler(library: ArrayLibrary, case: Case) -> Sampler:
    whole = [(slice(None), _fill_once(case.recipe))]

    def prepare() -> None:
        remove(case.path)
        library.select()

    return stopwatch(partial(library.write, case.path, case.recipe, whole), prepare)


def _read_sampler(read: Read, case: Case) -> Sampler:
    if case.digest is not None:
        found = digest([np.asarray(read(key)) for key in case.keys])
        require(found == case.digest, f"{case.library} reads other data than were written")
    if len(case.keys) == 1:
        return stopwatch(partial(read, case.keys[0]))

    def read_each() -> None:
        for key in case.keys:
            read(key)

    return stopwatch(read_each)


def _copy_sampler(read: Read, case: Case) -> Sampler:
    library, copy = EVERY[case.library], case.path + ".copy"

    def prepare() -> None:
        remove(copy)
        library.select()

    def read_and_write() -> None:
        library.write(copy, case.recipe, [(slice(None), read(case.keys[0]))])

    return stopwatch(read_and_write, prepare)


@lru_cache(maxsize=1)
def _fill_once(recipe: Recipe) -> Array:
    """Return the data, made once for all cases: making them takes longer than writing them."""
    return fill(recipe)


def _pack_part(part: int | slice) -> object:
    return [part.start, part.stop, part.step] if isinstance(part, slice) else part


def _parse_part(part: Any) -> int | slice:
    return slice(*part) if isinstance(part, list) else int(part)
