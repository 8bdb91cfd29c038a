"""The libraries that store chunked arrays in files, each with its fastest settings.

Each class writes, opens and reads with one library, with its caches off and its threads on.
Packages are imported when they are used: these classes also run under interpreters that lack most
of them, Ingot's own included.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from benchmarks.packages import NOT_INSTALLED, installed, load, version
from benchmarks.samples import Array, Key, Recipe

__all__ = ["LIBRARIES", "ArrayLibrary", "Part", "Read", "remove"]

Read = Callable[[Key], Any]
Part = tuple[Any, Array]
"""The position of a part, as a key for the first axis, and its content."""


class ArrayLibrary(Protocol):
    """One way to store an array in a file or folder called ``path``."""

    suffix: str

    def missing(self) -> str | None:
        """Return why the library cannot be used here; None when it can."""

    def label(self) -> str:
        """Return the name to show, with the version."""

    def select(self) -> None:
        """Apply the library's global settings; called before it creates or opens."""

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create the array and write its parts."""

    def open(self, path: str) -> Any:
        """Open the array for reading."""

    def read(self, handle: Any) -> Read:
        """Return the function that reads a key into new memory."""

    def close(self, handle: Any) -> None:
        """Close the handle."""


class _Plain:
    """The defaults of most libraries: one package, and handles that need no closing."""

    suffix = ".zarr"
    packages: tuple[str, ...] = ()

    def missing(self) -> str | None:
        return None if all(map(installed, self.packages)) else NOT_INSTALLED

    def label(self) -> str:
        return f"{self.packages[0]} {version(self.packages[0])}"

    def select(self) -> None:
        """Do nothing: most libraries have no global settings."""

    def read(self, handle: Any) -> Read:
        read: Read = handle.__getitem__
        return read

    def close(self, handle: Any) -> None:
        """Do nothing: dropping the last reference closes the handle."""


class Ingot(_Plain):
    """Ingot, in Zarr v2; ``durability`` as in ``ingot.Options``."""

    packages = ("ingot",)

    def __init__(self, durability: str = "process") -> None:
        self.durability = durability

    def missing(self) -> str | None:
        """Return why Ingot is missing: an early version without arrays counts as missing."""
        return super().missing() or (None if hasattr(load("ingot"), "create") else "not there yet")

    def label(self) -> str:
        """Name the durability when it differs from that of the peers."""
        return "ingot" if self.durability == "process" else f"ingot, durability {self.durability}"

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and assign."""
        array = load("ingot").create(
            path,
            shape=recipe.shape,
            dtype=recipe.dtype,
            chunks=recipe.chunks,
            codec=f"blosc:{recipe.codec}:{recipe.level}:shuffle",
            format="zarr2",
            options=self._options(),
        )
        for rows, part in parts:
            array[rows] = part
        array.close()

    def open(self, path: str) -> Any:
        """Open by path."""
        return load("ingot").open(path, options=self._options())

    def close(self, handle: Any) -> None:
        """Close."""
        handle.close()

    def _options(self) -> Any:
        return load("ingot").Options(durability=self.durability, cache_bytes=0)


class Zarr(_Plain):
    """zarr-python in either version of the format, with its fastest pipeline."""

    BATCHED = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"

    def __init__(self, zarr_format: int, pipeline: str = "fastest") -> None:
        self.zarr_format = zarr_format
        self.pipeline = pipeline
        self.packages = ("zarr", "zarrs") if pipeline == "zarrs" else ("zarr",)

    def label(self) -> str:
        """Name the format and the pipeline."""
        if self.pipeline == "zarrs":
            engine = f" + zarrs {version('zarrs')}"
        else:
            engine = ", fused" if self._has_fused() else ""
        return f"zarr {version('zarr')} v{self.zarr_format}{engine}"

    def select(self) -> None:
        """Choose the pipeline for all of zarr; arrays keep the one they were opened with."""
        path = "zarrs.ZarrsCodecPipeline"
        if self.pipeline != "zarrs":
            path = self.FUSED if self._has_fused() else self.BATCHED
        load("zarr").config.set({"codec_pipeline.path": path})

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and assign."""
        zarr = load("zarr")
        if self.zarr_format == 2:
            codec = load("numcodecs").Blosc(recipe.codec, recipe.level, 1)
        else:
            itemsize = load("numpy").dtype(recipe.dtype).itemsize
            codec = load("zarr.codecs").BloscCodec(
                cname=recipe.codec, clevel=recipe.level, shuffle="shuffle", typesize=itemsize
            )
        array = zarr.create_array(
            path,
            shape=recipe.shape,
            dtype=recipe.dtype,
            chunks=recipe.chunks,
            compressors=codec,
            zarr_format=self.zarr_format,
        )
        for rows, part in parts:
            array[rows] = part

    def open(self, path: str) -> Any:
        """Open by path and format: without the format zarr tries both."""
        return load("zarr").open_array(path, mode="r", zarr_format=self.zarr_format)

    def _has_fused(self) -> bool:
        return hasattr(load("zarr.core.codec_pipeline"), "FusedCodecPipeline")


class TensorStore(_Plain):
    """TensorStore on Zarr v2, without its cache; ``sync`` for files that survive a power cut."""

    packages = ("tensorstore",)

    def __init__(self, sync: bool = False) -> None:
        self.sync = sync

    def label(self) -> str:
        """Name the sync setting when it is on."""
        return super().label() + (", synced" if self.sync else "")

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and write."""
        codec = {"id": "blosc", "cname": recipe.codec, "clevel": recipe.level, "shuffle": 1}
        metadata = {
            "shape": list(recipe.shape),
            "chunks": list(recipe.chunks),
            "dtype": recipe.dtype,
            "compressor": codec,
        }
        array = self._open(path, create=True, metadata=metadata)
        for rows, part in parts:
            array[rows].write(part).result()

    def open(self, path: str) -> Any:
        """Open by path and driver, which TensorStore does not detect."""
        return self._open(path, read=True, open=True)

    def read(self, handle: Any) -> Read:
        """Read by a view of the key."""
        return lambda key: handle[key].read().result()

    def _open(self, path: str, metadata: Mapping[str, object] | None = None, **mode: bool) -> Any:
        tensorstore = load("tensorstore")
        spec: dict[str, object] = {"driver": "zarr", "kvstore": {"driver": "file", "path": path}}
        if metadata is not None:
            spec["metadata"] = metadata
        return tensorstore.open(spec, context=self._context, **mode).result()

    @cached_property
    def _context(self) -> Any:
        return load("tensorstore").Context({"file_io_sync": self.sync})


class Blosc2(_Plain):
    """python-blosc2's b2nd files, which have blocks of a shape; ``mapped`` reads them by mmap."""

    suffix = ".b2nd"
    packages = ("blosc2",)

    def __init__(self, mapped: bool = False) -> None:
        self.mapped = mapped

    def label(self) -> str:
        """Name how the file is read."""
        return super().label() + (" b2nd, mapped" if self.mapped else " b2nd")

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and assign, which is faster than ``asarray``."""
        blosc2 = load("blosc2")
        codec = {
            "codec": blosc2.Codec[recipe.codec.upper()],
            "clevel": recipe.level,
            "filters": [blosc2.Filter.SHUFFLE],
            "filters_meta": [0],
        }
        shapes = {"chunks": recipe.chunks, "blocks": recipe.blocks}
        array = blosc2.empty(
            recipe.shape, dtype=recipe.dtype, urlpath=path, cparams=codec, **shapes
        )
        for rows, part in parts:
            array[rows] = part

    def open(self, path: str) -> Any:
        """Open for reading."""
        mapping = {"mmap_mode": "r"} if self.mapped else {}
        return load("blosc2").open(path, mode="r", **mapping)


class Hdf5(_Plain):
    """h5py with the Blosc filter, its chunk cache off."""

    suffix = ".h5"
    packages = ("h5py", "hdf5plugin")

    def label(self) -> str:
        """Name both packages."""
        return f"h5py {version('h5py')} + Blosc"

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and assign."""
        codec = load("hdf5plugin").Blosc(recipe.codec, recipe.level, 1)
        with load("h5py").File(path, "w") as file:
            dataset = file.create_dataset(
                "data",
                shape=recipe.shape,
                dtype=recipe.dtype,
                chunks=recipe.chunks,
                compression=codec,
            )
            for rows, part in parts:
                dataset[rows] = part

    def open(self, path: str) -> Any:
        """Open the file and its one data set."""
        load("hdf5plugin")
        return load("h5py").File(path, "r", rdcc_nbytes=0)["data"]

    def close(self, handle: Any) -> None:
        """Close the file."""
        handle.file.close()


LIBRARIES: dict[str, ArrayLibrary] = {
    "ingot": Ingot(),
    "ingot full": Ingot("full"),
    "zarr2": Zarr(2),
    "zarr3": Zarr(3),
    "zarrs": Zarr(2, "zarrs"),
    "tensorstore": TensorStore(),
    "tensorstore synced": TensorStore(sync=True),
    "blosc2": Blosc2(),
    "blosc2 mapped": Blosc2(mapped=True),
    "hdf5": Hdf5(),
}
"""Every library by the name that cases use."""


def remove(path: str) -> None:
    """Delete a file or a folder, if it exists.

    >>> remove("no such file")
    """
    if Path(path).is_dir():
        shutil.rmtree(path)
    elif Path(path).exists():
        os.remove(path)
