"""What Ingot writes as Zarr version 3, zarr-python and tensorstore read; and the other way round.

Left out is only what the others cannot do: zarr-python up to 3.1 has no ``struct`` but the older
``structured``, tensorstore has no dates, no text, no bytes of fixed length, no structures, and
keeps no byte order.
"""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import Stage, parse_spelling, parse_stage
from ingot.codecs.compressors import Blosc, Gzip
from ingot.codecs.text import VlenBytes
from tests.kernels import on_each_kernel
from tests.property.array_strategies import Shape, items
from tests.property.test_zarr2_peers import FILLS, NUMBERS, fill_text, read_by_zarr
from tests.storage import use_kernel

some = settings(max_examples=80, deadline=None)

OTHERS = ["<M8[ns]", ">m8[s]", "|S3", "<U3", ">U2", "|V5"]

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
class Example:
    """An array, of which a box was written, in one of the ways to store it."""

    data: NDArray[Any]
    fill: Any
    box: tuple[slice, ...]
    chunks: Shape
    shards: Shape | None
    order: str
    encoding: str
    separator: str
    codec: tuple[Stage, ...]

    def write(self, folder: str) -> None:
        """Let Ingot write it."""
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
            dimension_names=[None, "x", "y"][: self.data.ndim],
            attrs={"units": "m"},
        )
        array[self.box] = self.data[self.box]

    def assert_read(self, found: NDArray[Any], *, ordered: bool = True) -> None:
        """Compare to the last bit; not every peer keeps the byte order."""
        native = self.data.astype(self.data.dtype.newbyteorder("="))
        expected = self.data if ordered else native
        found = found if ordered else found.astype(found.dtype.newbyteorder("="))
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@st.composite
def examples(draw: st.DrawFn, dtypes: list[Any]) -> Example:
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    fill = draw(st.sampled_from(FILLS[dtype.kind]))
    box = tuple(slice(*sorted(draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    data = np.zeros(shape, dtype)
    if dtype.kind != "V":
        data[...] = fill
    data[box] = items(dtype, data[box].shape)
    chunks = tuple(draw(st.integers(1, length + 2)) for length in shape)
    shards = None
    # Without axes, or of raw bytes, zarr-python cannot write shards.
    if shape and dtype.kind != "V" and draw(st.booleans()):
        shards = tuple(chunk * draw(st.integers(1, 3)) for chunk in chunks)
    return Example(
        data,
        fill,
        box,
        chunks,
        shards,
        draw(st.sampled_from("CF")),
        draw(st.sampled_from(["default", "v2"])),
        draw(st.sampled_from("./")),
        draw(st.sampled_from(CODECS)),
    )


@contextmanager
def folder_with(kernel_name: str) -> Iterator[str]:
    """A new folder, with one kernel at work and the warnings of others silenced."""
    with ExitStack() as stack:
        use_kernel(kernel_name, stack.enter_context(pytest.MonkeyPatch.context()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield f"{stack.enter_context(tempfile.TemporaryDirectory())}/array"


def codecs_of(example: Example) -> list[dict[str, Any]]:
    """Return the compressors of an example as the others take them."""
    found = []
    for stage in example.codec:
        values = {key: value for key, value in stage.config().items() if key != "id"}
        if isinstance(stage, Blosc):
            values |= {"shuffle": stage.shuffle_word, "typesize": example.data.dtype.itemsize}
        elif isinstance(stage, Crc32c):
            values = {}
        elif stage.name == "zstd":
            values |= {"checksum": False}
        found.append({"name": stage.name, "configuration": values})
    return found


# zarr-python --------------------------------------------------------------------------------------


@on_each_kernel
@some
@given(example=examples(NUMBERS + OTHERS))
def test_zarr_reads_what_we_write(kernel_name: str, example: Example) -> None:
    with folder_with(kernel_name) as folder:
        example.write(folder)
        array = zarr.open_array(folder, mode="r", zarr_format=3)
        assert (array.chunks, array.shards) == (example.chunks, example.shards)
        assert dict(array.attrs) == {"units": "m"}
        assert list(array.metadata.dimension_names) == [None, "x", "y"][: array.ndim]
        example.assert_read(read_by_zarr(array), ordered=False)


@on_each_kernel
@some
@given(example=examples(NUMBERS + OTHERS))
def test_we_read_what_zarr_writes(kernel_name: str, example: Example) -> None:
    dtype = example.data.dtype
    endian = "big" if dtype.byteorder == ">" else "little"
    single = dtype.kind in "SV" or dtype.itemsize == 1
    axes = range(example.data.ndim)
    with folder_with(kernel_name) as folder:
        fill = {} if dtype.kind == "V" else {"fill_value": example.fill}
        array = zarr.create_array(
            folder,
            shape=example.data.shape,
            dtype=dtype.newbyteorder("="),
            chunks=example.chunks,
            shards=example.shards,
            filters=[zarr.codecs.TransposeCodec(order=tuple(reversed(axes)))] if axes else [],
            serializer=zarr.codecs.BytesCodec(endian=None if single else endian),
            compressors=codecs_of(example),
            chunk_key_encoding={"name": example.encoding, "separator": example.separator},
            attributes={"units": "m", "limits": [1, 2.5]},
            dimension_names=[None, "x", "y"][: len(axes)],
            zarr_format=3,
            **fill,
        )
        array[example.box] = example.data[example.box]
        ours = ingot.open(folder)
        example.assert_read(ours[...])
        assert ours.chunks == example.chunks
        again = ingot.open(folder, "r+")
        again[...] = example.data
        again.attrs["units"] = "km"
        changed = zarr.open_array(folder, mode="r", zarr_format=3)
        example.assert_read(read_by_zarr(changed), ordered=False)
        assert dict(changed.attrs) == {"units": "km", "limits": [1, 2.5]}


FILTERS: list[tuple[str, list[dict[str, Any]]]] = [
    ("<i4", [{"id": "delta", "dtype": "<i4", "astype": "<i4"}]),
    (
        "<f8",
        [{"id": "fixedscaleoffset", "offset": 1, "scale": 10, "dtype": "<f8", "astype": "<i4"}],
    ),
    ("<f8", [{"id": "quantize", "digits": 3, "dtype": "<f8", "astype": "<f8"}]),
    ("<f4", [{"id": "bitround", "keepbits": 12}]),
    ("|b1", [{"id": "packbits"}]),
    ("<i4", [{"id": "shuffle", "elementsize": 4}]),
    ("<i4", [{"id": "crc32"}]),
    ("<i4", [{"id": "adler32"}]),
    ("<i4", [{"id": "fletcher32"}]),
    ("<i4", [{"id": "jenkins_lookup3"}]),
    ("<i4", [{"id": "zlib", "level": 1}]),
    ("<i4", [{"id": "bz2", "level": 1}]),
    ("<i4", [{"id": "lzma", "preset": 1}]),
    ("<i4", [{"id": "lz4", "acceleration": 1}]),
]


@on_each_kernel
@pytest.mark.parametrize(
    ("dtype", "filters"), FILTERS, ids=["+".join(f["id"] for f in fs) for _, fs in FILTERS]
)
def test_codecs_of_numcodecs_are_read(
    kernel_name: str, dtype: str, filters: list[dict[str, Any]]
) -> None:
    data = items(dtype, (7, 6))
    arrays = {"delta", "fixedscaleoffset", "quantize", "bitround", "packbits"}
    named = [
        {"name": f"numcodecs.{f['id']}", "configuration": {k: v for k, v in f.items() if k != "id"}}
        for f in filters
    ]
    before = [each for each, f in zip(named, filters, strict=True) if f["id"] in arrays]
    behind = [each for each, f in zip(named, filters, strict=True) if f["id"] not in arrays]
    with folder_with(kernel_name) as folder:
        array = zarr.create_array(
            folder,
            shape=data.shape,
            dtype=data.dtype,
            chunks=(3, 4),
            filters=before,
            compressors=behind,
            zarr_format=3,
        )
        array[...] = data
        found = ingot.open(folder)[...]
        np.testing.assert_array_equal(found, array[...], strict=True)
        again = ingot.open(folder, "r+")
        again[...] = data
        np.testing.assert_array_equal(
            zarr.open_array(folder, mode="r", zarr_format=3)[...], found, strict=True
        )


@on_each_kernel
@pytest.mark.parametrize(
    ("dtype", "filters"), FILTERS, ids=["+".join(f["id"] for f in fs) for _, fs in FILTERS]
)
def test_zarr_reads_the_codecs_of_numcodecs_that_we_write(
    kernel_name: str, dtype: str, filters: list[dict[str, Any]]
) -> None:
    data = items(dtype, (7, 6))
    with folder_with(kernel_name) as folder:
        codec = [parse_stage(config) for config in filters]
        ours = ingot.array(data, folder, chunks=(3, 4), codec=codec, format="zarr3")
        theirs = zarr.open_array(folder, mode="r", zarr_format=3)
        np.testing.assert_array_equal(theirs[...], ours[...], strict=True)


@on_each_kernel
@some
@given(texts=st.lists(st.text(), max_size=8), chunk=st.integers(1, 9))
def test_text_of_any_length_goes_both_ways(kernel_name: str, texts: list[str], chunk: int) -> None:
    with folder_with(kernel_name) as folder:
        data = np.array(texts, np.dtypes.StringDType())
        ingot.array(data, folder, chunks=chunk, format="zarr3")
        assert zarr.open_array(folder, mode="r", zarr_format=3)[...].tolist() == texts
    with folder_with(kernel_name) as folder:
        array = zarr.create_array(
            folder, shape=len(texts), dtype=str, chunks=(chunk,), zarr_format=3
        )
        array[...] = np.array(texts, object)
        assert ingot.open(folder)[...].tolist() == texts


@on_each_kernel
@some
@given(values=st.lists(st.binary(), max_size=8), chunk=st.integers(1, 9))
def test_bytes_of_any_length_go_both_ways(
    kernel_name: str, values: list[bytes], chunk: int
) -> None:
    data = np.empty(len(values), object)
    data[:] = values
    with folder_with(kernel_name) as folder:
        codec = [VlenBytes(), Blosc()]
        ingot.array(data, folder, chunks=chunk, codec=codec, fill=b"", format="zarr3")
        assert zarr.open_array(folder, mode="r", zarr_format=3)[...].tolist() == values
    with folder_with(kernel_name) as folder:
        array = zarr.create_array(
            folder,
            shape=len(values),
            dtype="variable_length_bytes",
            chunks=(chunk,),
            zarr_format=3,
        )
        array[...] = data
        assert ingot.open(folder)[...].tolist() == values


def test_structures_of_older_releases_are_read() -> None:
    data = items(np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S3")]), (7,))
    with folder_with("python") as folder:
        array = zarr.create_array(folder, shape=7, dtype=data.dtype, chunks=(3,), zarr_format=3)
        array[:] = data
        np.testing.assert_array_equal(ingot.open(folder)[...], data, strict=True)


@on_each_kernel
@some
@given(
    first=st.integers(0, 20),
    second=st.integers(0, 20),
    third=st.integers(0, 20),
    chunk=st.integers(1, 9),
)
def test_lengths_change_in_turns(
    kernel_name: str, first: int, second: int, third: int, chunk: int
) -> None:
    """zarr-python leaves the end of edge chunks as it is when an array shrinks."""
    with folder_with(kernel_name) as folder:
        ours = ingot.array(np.arange(1, first + 1), folder, chunks=chunk, format="zarr3")
        theirs = zarr.open_array(folder, mode="r+", zarr_format=3)
        theirs.resize((second,))
        ours = ingot.open(folder, "r+")
        ours.resize(third)
        expected = np.zeros(third, np.int64)
        kept = min(first, second, third)
        expected[:kept] = np.arange(1, kept + 1)
        np.testing.assert_array_equal(ours[...], expected)
        ours.append([7, 8])
        theirs = zarr.open_array(folder, mode="r+", zarr_format=3)
        np.testing.assert_array_equal(theirs[...], [*expected, 7, 8])


# tensorstore --------------------------------------------------------------------------------------


def tensorstore_at(folder: str, **settings: Any) -> Any:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    return tensorstore.open({**spec, **settings}).result()


@on_each_kernel
@some
@given(example=examples(NUMBERS))
def test_tensorstore_reads_what_we_write(kernel_name: str, example: Example) -> None:
    with folder_with(kernel_name) as folder:
        example.write(folder)
        found = tensorstore_at(folder).read().result()
        example.assert_read(np.asarray(found), ordered=False)


@on_each_kernel
@some
@given(example=examples(NUMBERS))
def test_we_read_what_tensorstore_writes(kernel_name: str, example: Example) -> None:
    dtype = example.data.dtype
    native = example.data.astype(dtype.newbyteorder("="))
    endian = "big" if dtype.byteorder == ">" else "little"
    axes = list(reversed(range(native.ndim)))
    codecs = [
        {"name": "transpose", "configuration": {"order": axes}},
        {"name": "bytes", "configuration": {"endian": endian} if dtype.itemsize > 1 else {}},
        *codecs_of(example),
    ]
    if example.shards is not None:
        index = [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]
        sharding = {"chunk_shape": list(example.chunks), "codecs": codecs, "index_codecs": index}
        sharding["index_location"] = "start"
        codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    separator = {"separator": example.separator}
    grid = {"chunk_shape": list(example.shards or example.chunks)}
    metadata = {
        "shape": list(native.shape),
        "chunk_grid": {"name": "regular", "configuration": grid},
        "chunk_key_encoding": {"name": example.encoding, "configuration": separator},
        "data_type": native.dtype.name,
        "codecs": codecs,
        "fill_value": fill_text(example.fill),
    }
    with folder_with(kernel_name) as folder:
        theirs = tensorstore_at(folder, metadata=metadata, create=True)
        theirs[example.box].write(native[example.box]).result()
        example.assert_read(ingot.open(folder)[...])


@on_each_kernel
@pytest.mark.parametrize("name", ["bfloat16", "int4", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_does_not_have_go_both_ways(kernel_name: str, name: str) -> None:
    dtype = getattr(tensorstore, name).numpy_dtype
    data = np.arange(-6, 8).astype("f4").astype(dtype)
    with folder_with(kernel_name) as folder:
        ingot.array(data, folder, chunks=4, format="zarr3", codec="none")
        found = np.asarray(tensorstore_at(folder).read().result())
        assert (found.dtype, found.tolist()) == (data.dtype, data.tolist())
    with folder_with(kernel_name) as folder:
        theirs = tensorstore_at(folder, dtype=name, schema={"domain": {"shape": [14]}}, create=True)
        theirs[...].write(data).result()
        ours = ingot.open(folder)
        assert (ours.dtype, ours[...].tolist()) == (data.dtype, data.tolist())
