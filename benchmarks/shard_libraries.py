"""The libraries that store arrays in shards: Zarr version 3, each with its fastest settings.

Each class writes and reads arrays with and without shards. ``Recipe.codec`` is a spelling of
Ingot's: ``"none"``, ``"zstd:0"``, or ``"blosc:blosclz:9:bitshuffle"``. Chunks have no checksums,
since no peer writes them.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from benchmarks.array_libraries import ArrayLibrary, Ingot, Part, Read, TensorStore, Zarr
from benchmarks.packages import load
from benchmarks.samples import Recipe

__all__ = ["SHARD_LIBRARIES"]


class ShardedIngot(Ingot):
    """Ingot."""

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and assign."""
        array = load("ingot").create(
            path,
            shape=recipe.shape,
            dtype=recipe.dtype,
            chunks=recipe.chunks,
            shards=recipe.shards,
            codec=recipe.codec,
            checksum=False,
            format="zarr3",
            options=self._options(),
        )
        for rows, part in parts:
            array[rows] = part
        array.close()


class ShardedZarr(Zarr):
    """zarr-python with its fastest pipeline, or with zarrs."""

    def __init__(self, pipeline: str = "fastest") -> None:
        super().__init__(3, pipeline)

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and assign."""
        array = load("zarr").create_array(
            path,
            shape=recipe.shape,
            dtype=recipe.dtype,
            chunks=recipe.chunks,
            shards=recipe.shards,
            compressors=self._codec(recipe),
        )
        for rows, part in parts:
            array[rows] = part

    def _codec(self, recipe: Recipe) -> Any:
        codecs = load("zarr.codecs")
        name, *settings = recipe.codec.split(":")
        if name == "none":
            return None
        if name == "zstd":
            return codecs.ZstdCodec(level=int(settings[0]))
        cname, level, shuffle = settings
        itemsize = load("numpy").dtype(recipe.dtype).itemsize
        return codecs.BloscCodec(cname=cname, clevel=int(level), shuffle=shuffle, typesize=itemsize)


class ShardedTensorStore(TensorStore):
    """TensorStore without its cache."""

    def write(self, path: str, recipe: Recipe, parts: Iterable[Part]) -> None:
        """Create and write."""
        array = self._open_v3(path, create=True, metadata=_metadata(recipe))
        for rows, part in parts:
            array[rows].write(part).result()

    def open(self, path: str) -> Any:
        """Open with the driver, which TensorStore does not detect."""
        return self._open_v3(path, read=True, open=True)

    def read(self, handle: Any) -> Read:
        """Read by a view of the key; a step that does not divide its range is cut off."""
        return lambda key: handle[key].read().result()

    def _open_v3(self, path: str, metadata: object = None, **mode: bool) -> Any:
        spec: dict[str, object] = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
        if metadata is not None:
            spec["metadata"] = metadata
        return load("tensorstore").open(spec, context=self._unsynced, **mode).result()

    @cached_property
    def _unsynced(self) -> Any:
        return load("tensorstore").Context({"file_io_sync": False})


def _metadata(recipe: Recipe) -> dict[str, object]:
    dtype = load("numpy").dtype(recipe.dtype)
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    name, *settings = recipe.codec.split(":")
    codecs: list[dict[str, object]] = [little if dtype.itemsize > 1 else {"name": "bytes"}]
    if name == "zstd":
        codecs.append({"name": "zstd", "configuration": {"level": int(settings[0])}})
    elif name == "blosc":
        cname, level, shuffle = settings
        blosc = {"cname": cname, "clevel": int(level), "shuffle": shuffle, "blocksize": 0}
        configuration = blosc | {"typesize": dtype.itemsize}
        codecs.append({"name": "blosc", "configuration": configuration})
    if recipe.shards is not None:
        configuration = {
            "chunk_shape": list(recipe.chunks),
            "codecs": codecs,
            "index_codecs": [little, {"name": "crc32c"}],
        }
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
    grid = {"chunk_shape": list(recipe.shards or recipe.chunks)}
    return {
        "shape": list(recipe.shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": grid},
        "codecs": codecs,
        "fill_value": 0,
    }


SHARD_LIBRARIES: dict[str, ArrayLibrary] = {
    "ingot shards": ShardedIngot(),
    "zarr shards": ShardedZarr(),
    "zarrs shards": ShardedZarr("zarrs"),
    "tensorstore shards": ShardedTensorStore(),
}
"""Every library by the name that cases use."""
