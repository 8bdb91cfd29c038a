"""Small datasets of every registered format, and the stores that hold them.

Both are source text, so that a reproduction can make them again without this package. A format
joins by being listed in `ingot.formats()`, a store by a row of `STORES`.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ingot

__all__ = ["IMPATIENT", "METADATA", "STORES", "Sample", "files", "is_litter", "samples"]

STORES = {
    "folder": 'os.path.join(folder, "data")',
    "zip": 'os.path.join(folder, "data.zip")',
    "memory": "ingot.stores.MemoryStore()",
}
"""The place of a dataset, by the name of its store. `folder` is an empty folder."""

IMPATIENT = {
    "folder": 'ingot.stores.LocalStore(os.path.join(folder, "data"), writable=True, wait=0.5)',
    "file": 'ingot.stores.FileStore(os.path.join(folder, "data"), writable=True, wait=0.5)',
    "zip": 'ingot.stores.ZipStore(os.path.join(folder, "data.zip"), writable=True, wait=0.5)',
}
"""The same for stores on disk, with a short wait for the lock."""

METADATA = {
    "zarr.json",
    ".zarray",
    ".zattrs",
    ".zgroup",
    ".zmetadata",
    "__zmeta__",
    "meta",
    "attrs",
    "sizes",
    "storage",
    "nrows",
    "attributes",
    "__attrs__",
    "__rootdirs__",
    ".lock",
    ".commit",
}
"""The names of files that hold no chunks."""

MAKERS = {
    "array": (
        ("flat", 'ingot.array(np.arange(40, dtype="i4"), place, format="{format}", chunks=12)'),
        (
            "plane",
            'ingot.array(np.arange(60, dtype="f8").reshape(12, 5), place, format="{format}", '
            'chunks=(5, 5), attrs={{"unit": "m"}})',
        ),
        ("scalar", 'ingot.array(np.float32(1.5), place, format="{format}")'),
        ("empty", 'ingot.array(np.zeros((0, 3), "i2"), place, format="{format}")'),
    ),
    "table": (
        (
            "table",
            'ingot.table({{"a": np.arange(30), "b": np.arange(30) / 4, "c": np.full(30, b"xy")}}, '
            'place, format="{format}", chunks=12, attrs={{"unit": "m"}})',
        ),
    ),
    "group": (
        (
            "group",
            'ingot.group(place, format="{format}", attrs={{"unit": "m"}}); '
            'h.array("x", np.arange(9), chunks=4); h.array("deep/y", np.arange(5) / 2)',
        ),
    ),
}
"""Statements that make `h`, a dataset at `place`, by what a format holds."""


@dataclass(frozen=True)
class Sample:
    """A small dataset, as a statement that makes it."""

    format: str
    holds: str
    name: str
    source: str
    """A statement that binds `h` to the dataset made at `place`."""

    @property
    def title(self) -> str:
        """Return the format and the name."""
        return f"{self.format} {self.name}"


def samples(*holds: str) -> Iterator[Sample]:
    """Yield a sample of each kind of dataset for every registered format that holds it."""
    for name, kinds in sorted(ingot.formats().items()):
        for kind in kinds:
            if holds and kind not in holds:
                continue
            for title, source in MAKERS.get(kind, ()):
                sample = Sample(name, kind, title, "h = " + source.format(format=name))
                if is_held(sample):
                    yield sample


@functools.cache
def is_held(sample: Sample) -> bool:
    """Return whether the format holds the sample; bcolz, for instance, holds no scalars."""
    space = {"ingot": ingot, "np": np, "place": ingot.stores.MemoryStore()}
    try:
        exec(sample.source, space)
    except ingot.errors.UnsupportedError:
        return False
    return True


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder; a single file has no name there."""
    if folder.is_file():
        return {"": folder.read_bytes()}
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def is_litter(path: Path) -> bool:
    """Return whether a path is a staged file or a journal, which no finished write leaves."""
    name = path.name
    return name.startswith(".g-") or name == ".commit" or name.endswith(".commit")
