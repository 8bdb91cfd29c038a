"""Arrays that Ingot, zarr-python and tensorstore write for each other, in both versions of Zarr.

Left out is only what the others cannot do. In version 2, zarr-python has no sub-arrays in
structures; tensorstore has no dates, no text, no structures as a whole, no LZ4 or LZMA by
themselves and no filters. In version 3, zarr-python up to 3.1 has no ``struct`` but the older
``structured``; tensorstore has no dates, no text, no bytes of fixed length, no structures, and
keeps no byte order.
"""

import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import Stage, parse_spelling, parse_stage
from ingot.codecs.compressors import Blosc, Gzip
from tests.property.array_strategies import Shape, items
from tests.storage import use_kernel

__all__ = [
    "FOR_TENSORSTORE",
    "FOR_ZARR",
    "Example",
    "folder_with",
    "read_by_zarr",
    "tensorstore_at",
]

NUMBERS = ["|b1", "|i1", "<i2", ">u4", "<i8", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"]
OTHERS = ["<M8[ns]", ">m8[s]", "|S3", "<U3", ">U2", "|V5"]
STRUCTURE = [("a", "<i4"), ("b", ">f4")]

FILLS: dict[str, list[Any]] = {
    "b": [False, True],
    "i": [0, -1, 100],
    "u": [0, 200],
    "f": [0.0, -1.5, np.nan, np.inf, -np.inf],
    "c": [0j, 1 - 2j, complex(np.nan, np.inf)],
    "M": [np.datetime64("2024-02-29", "ns"), np.datetime64("NaT", "ns")],
    "m": [np.timedelta64(5, "s"), np.timedelta64("NaT", "s")],
    "S": [b"", b"ab"],
    "U": ["", "ab"],
    "V": [0],
}

COMPRESSORS: list[dict[str, Any] | None] = [
    None,
    {"id": "zlib", "level": 1},
    {"id": "gzip", "level": 5},
    {"id": "bz2", "level": 1},
    {"id": "zstd", "level": 1},
    *(
        {"id": "blosc", "cname": cname, "clevel": 5, "shuffle": shuffle, "blocksize": blocksize}
        for cname in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")
        for shuffle in (0, 1, 2)
        for blocksize in (0, 64)
    ),
]
ZARR_ALONE: list[dict[str, Any]] = [{"id": "lz4", "acceleration": 1}, {"id": "lzma", "format": 1}]

CODECS: list[tuple[Stage, ...]] = [
    (),
    (Crc32c(),),
    (Gzip(5),),
    parse_spelling("zstd:3"),
    (*parse_spelling("zstd:-5"), Crc32c()),
    *(
        (Blosc(cname, 5, shuffle, blocksize), *seal)
        for cname in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")
        for shuffle in (0, 1, 2)
        for blocksize, seal in ((0, (Crc32c(),)), (64, ()))
    ),
]


@dataclass(frozen=True)
class Example(ABC):
    """An array, of which a box is written, in one of the ways to store it."""

    data: NDArray[Any]
    fill: Any
    box: tuple[slice, ...]
    chunks: Shape
    order: str
    separator: str

    version: ClassVar[int]
    zarr_keeps_byte_order: ClassVar[bool]

    @property
    def native(self) -> NDArray[Any]:
        """The data in the byte order of the machine."""
        return self.data.astype(self.data.dtype.newbyteorder("="))

    @property
    def zarr_fill(self) -> dict[str, Any]:
        # For structures zarr-python takes no fill value that it can write.
        return {} if self.data.dtype.kind == "V" else {"fill_value": self.fill}

    @abstractmethod
    def write(self, folder: str) -> None:
        """Write the array by Ingot."""

    @abstractmethod
    def create_by_zarr(self, folder: str, attributes: dict[str, Any]) -> Any:
        """Create the array by zarr-python."""

    @abstractmethod
    def create_by_tensorstore(self, folder: str) -> Any:
        """Create the array by tensorstore."""

    def assert_described(self, array: Any) -> None:
        """Compare what zarr-python finds in the documents that Ingot wrote."""
        assert array.chunks == self.chunks

    def assert_read(self, found: NDArray[Any], *, ordered: bool = True) -> None:
        """Compare to the last bit; not every peer keeps the byte order."""
        expected = self.data if ordered else self.native
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@dataclass(frozen=True)
class Example2(Example):
    """An array of Zarr version 2."""

    compressor: dict[str, Any] | None

    version = 2
    zarr_keeps_byte_order = True

    def write(self, folder: str) -> None:
        array = ingot.create(
            folder,
            shape=self.data.shape,
            dtype=self.data.dtype,
            chunks=self.chunks,
            codec=() if self.compressor is None else parse_stage(self.compressor),
            fill=self.fill,
            order=self.order,
            dimension_separator=self.separator,
            format="zarr2",
        )
        array[self.box] = self.data[self.box]

    def create_by_zarr(self, folder: str, attributes: dict[str, Any]) -> Any:
        return zarr.create_array(
            folder,
            shape=self.data.shape,
            dtype=self.data.dtype,
            chunks=self.chunks,
            order=self.order,
            compressors=self.compressor and numcodecs.get_codec(self.compressor),
            chunk_key_encoding={"name": "v2", "separator": self.separator},
            attributes=attributes,
            zarr_format=2,
            **self.zarr_fill,
        )

    def create_by_tensorstore(self, folder: str) -> Any:
        metadata = {
            "shape": list(self.data.shape),
            "chunks": list(self.chunks),
            "dtype": self.data.dtype.str,
            "compressor": self.compressor,
            # With one axis there is only one order, and tensorstore insists on calling it C.
            "order": self.order if self.data.ndim > 1 else "C",
            "fill_value": fill_text(self.fill),
            "dimension_separator": self.separator,
        }
        return tensorstore_at(folder, 2, metadata=metadata, create=True)


@dataclass(frozen=True)
class Example3(Example):
    """An array of Zarr version 3."""

    shards: Shape | None
    encoding: str
    codec: tuple[Stage, ...]

    version = 3
    zarr_keeps_byte_order = False

    @property
    def endian(self) -> str:
        return "big" if self.data.dtype.byteorder == ">" else "little"

    @property
    def dimension_names(self) -> list[str | None]:
        return [None, "x", "y"][: self.data.ndim]

    def write(self, folder: str) -> None:
        array = ingot.create(
            folder,
            shape=self.data.shape,
            dtype=self.data.dtype,
            chunks=self.chunks,
            codec=self.codec,
            fill=self.fill,
            format="zarr3",
            order=self.order,
            checksum=False,
            shards=self.shards,
            chunk_key_encoding=self.encoding,
            dimension_separator=self.separator,
            dimension_names=self.dimension_names,
            attrs={"units": "m"},
        )
        array[self.box] = self.data[self.box]

    def create_by_zarr(self, folder: str, attributes: dict[str, Any]) -> Any:
        dtype, axes = self.data.dtype, range(self.data.ndim)
        single = dtype.kind in "SV" or dtype.itemsize == 1
        return zarr.create_array(
            folder,
            shape=self.data.shape,
            dtype=dtype.newbyteorder("="),
            chunks=self.chunks,
            shards=self.shards,
            filters=[zarr.codecs.TransposeCodec(order=tuple(reversed(axes)))] if axes else [],
            serializer=zarr.codecs.BytesCodec(endian=None if single else self.endian),
            compressors=self.compressors(),
            chunk_key_encoding={"name": self.encoding, "separator": self.separator},
            attributes=attributes,
            dimension_names=self.dimension_names,
            zarr_format=3,
            **self.zarr_fill,
        )

    def create_by_tensorstore(self, folder: str) -> Any:
        axes = list(reversed(range(self.data.ndim)))
        single = self.data.dtype.itemsize == 1
        codecs = [
            {"name": "transpose", "configuration": {"order": axes}},
            {"name": "bytes", "configuration": {} if single else {"endian": self.endian}},
            *self.compressors(),
        ]
        if self.shards is not None:
            index = [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]
            sharding = {"chunk_shape": list(self.chunks), "codecs": codecs, "index_codecs": index}
            sharding["index_location"] = "start"
            codecs = [{"name": "sharding_indexed", "configuration": sharding}]
        separator = {"separator": self.separator}
        grid = {"chunk_shape": list(self.shards or self.chunks)}
        metadata = {
            "shape": list(self.data.shape),
            "chunk_grid": {"name": "regular", "configuration": grid},
            "chunk_key_encoding": {"name": self.encoding, "configuration": separator},
            "data_type": self.native.dtype.name,
            "codecs": codecs,
            "fill_value": fill_text(self.fill),
        }
        return tensorstore_at(folder, 3, metadata=metadata, create=True)

    def compressors(self) -> list[dict[str, Any]]:
        """Return the compressors as the others take them."""
        found = []
        for stage in self.codec:
            values = {key: value for key, value in stage.config().items() if key != "id"}
            if isinstance(stage, Blosc):
                values |= {"shuffle": stage.shuffle_word, "typesize": self.data.dtype.itemsize}
            elif isinstance(stage, Crc32c):
                values = {}
            elif stage.name == "zstd":
                values |= {"checksum": False}
            found.append({"name": stage.name, "configuration": values})
        return found

    def assert_described(self, array: Any) -> None:
        assert (array.chunks, array.shards) == (self.chunks, self.shards)
        assert dict(array.attrs) == {"units": "m"}
        assert list(array.metadata.dimension_names) == self.dimension_names

    def assert_read(self, found: NDArray[Any], *, ordered: bool = True) -> None:
        super().assert_read(
            found if ordered else found.astype(found.dtype.newbyteorder("=")), ordered=ordered
        )


def fill_text(fill: Any) -> Any:
    """Return a fill value as JSON spells it."""
    if isinstance(fill, complex):
        return [fill_text(fill.real), fill_text(fill.imag)]
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return words.get(str(fill), fill)


@st.composite
def _common(draw: st.DrawFn, dtypes: list[Any]) -> dict[str, Any]:
    """Draw what examples of both versions have."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    fill = draw(st.sampled_from(FILLS[dtype.kind]))
    box = tuple(slice(*sorted(draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    data = np.zeros(shape, dtype)
    if dtype.kind != "V":
        data[...] = fill
    data[box] = items(dtype, data[box].shape)
    return {
        "data": data,
        "fill": fill,
        "box": box,
        "chunks": tuple(draw(st.integers(1, length + 2)) for length in shape),
        "order": draw(st.sampled_from("CF")),
        "separator": draw(st.sampled_from("./")),
    }


@st.composite
def _examples2(draw: st.DrawFn, dtypes: list[Any], compressors: list[Any]) -> Example:
    return Example2(**draw(_common(dtypes)), compressor=draw(st.sampled_from(compressors)))


@st.composite
def _examples3(draw: st.DrawFn, dtypes: list[Any]) -> Example:
    common = draw(_common(dtypes))
    shards = None
    # Without axes, or of raw bytes, zarr-python cannot write shards.
    if common["chunks"] and common["data"].dtype.kind != "V" and draw(st.booleans()):
        shards = tuple(chunk * draw(st.integers(1, 3)) for chunk in common["chunks"])
    return Example3(
        **common,
        shards=shards,
        encoding=draw(st.sampled_from(["default", "v2"])),
        codec=draw(st.sampled_from(CODECS)),
    )


FOR_ZARR = {
    2: _examples2([*NUMBERS, *OTHERS, STRUCTURE], COMPRESSORS + ZARR_ALONE),
    3: _examples3(NUMBERS + OTHERS),
}
FOR_TENSORSTORE = {2: _examples2(NUMBERS, COMPRESSORS), 3: _examples3(NUMBERS)}


@contextmanager
def folder_with(kernel_name: str) -> Iterator[str]:
    """Give a new folder, with one kernel in use and the warnings of others silenced."""
    with ExitStack() as stack:
        use_kernel(kernel_name, stack.enter_context(pytest.MonkeyPatch.context()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield f"{stack.enter_context(tempfile.TemporaryDirectory())}/array"


def read_by_zarr(array: Any) -> NDArray[Any]:
    # Without axes it is a single item that comes back, which has no byte order and no padding.
    return np.asarray(array[...], None if array.ndim else array.dtype)


def tensorstore_at(folder: str, version: int, **settings: Any) -> Any:
    driver = {2: "zarr", 3: "zarr3"}[version]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{folder}/"}}
    return tensorstore.open({**spec, **settings}).result()
