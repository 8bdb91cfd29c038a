"""What Ingot writes as Zarr version 2, zarr-python and tensorstore read; and the other way round.

Left out is only what the others cannot do: zarr-python has no sub-arrays in structures; tensorstore
has no dates, no text, no structures as a whole, no LZ4 or LZMA by themselves and no filters.
"""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.codecs.codec import parse_stage
from tests.kernels import on_each_kernel
from tests.property.array_strategies import Shape, items
from tests.storage import use_kernel

some = settings(max_examples=80, deadline=None)

NUMBERS = ["|b1", "|i1", "<i2", ">u4", "<i8", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"]
OTHERS = ["<M8[ns]", ">m8[s]", "|S3", "<U3", ">U2", "|V5", [("a", "<i4"), ("b", ">f4")]]

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


@dataclass(frozen=True)
class Example:
    """An array, of which a box was written, in one of the ways to store it."""

    data: NDArray[Any]
    fill: Any
    box: tuple[slice, ...]
    chunks: Shape
    order: str
    separator: str
    compressor: dict[str, Any] | None

    def write(self, folder: str) -> None:
        """Let Ingot write it."""
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

    def assert_read(self, found: NDArray[Any], *, ordered: bool = True) -> None:
        """Compare to the last bit; not every peer keeps the byte order."""
        expected = self.data if ordered else self.data.astype(self.data.dtype.newbyteorder("="))
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@st.composite
def examples(draw: st.DrawFn, dtypes: list[Any], compressors: list[Any]) -> Example:
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    fill = draw(st.sampled_from(FILLS[dtype.kind]))
    box = tuple(slice(*sorted(draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    data = np.zeros(shape, dtype)
    if dtype.kind != "V":
        data[...] = fill
    data[box] = items(dtype, data[box].shape)
    return Example(
        data,
        fill,
        box,
        tuple(draw(st.integers(1, length + 2)) for length in shape),
        draw(st.sampled_from("CF")),
        draw(st.sampled_from("./")),
        draw(st.sampled_from(compressors)),
    )


@contextmanager
def folder_with(kernel_name: str) -> Iterator[str]:
    """A new folder, with one kernel at work and the warnings of others silenced."""
    with ExitStack() as stack:
        use_kernel(kernel_name, stack.enter_context(pytest.MonkeyPatch.context()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield f"{stack.enter_context(tempfile.TemporaryDirectory())}/array"


# zarr-python --------------------------------------------------------------------------------------

for_zarr = examples(NUMBERS + OTHERS, COMPRESSORS + ZARR_ALONE)


def read_by_zarr(array: Any) -> NDArray[Any]:
    # Without axes it is a single item that comes back, which has no byte order and no padding.
    return np.asarray(array[...], None if array.ndim else array.dtype)


@on_each_kernel
@some
@given(example=for_zarr)
def test_zarr_reads_what_we_write(kernel_name: str, example: Example) -> None:
    with folder_with(kernel_name) as folder:
        example.write(folder)
        array = zarr.open_array(folder, mode="r", zarr_format=2)
        assert array.chunks == example.chunks
        example.assert_read(read_by_zarr(array))


@on_each_kernel
@some
@given(example=for_zarr)
def test_we_read_what_zarr_writes(kernel_name: str, example: Example) -> None:
    with folder_with(kernel_name) as folder:
        # For structures zarr-python takes no fill value that it can write.
        fill = {} if example.data.dtype.kind == "V" else {"fill_value": example.fill}
        array = zarr.create_array(
            folder,
            shape=example.data.shape,
            dtype=example.data.dtype,
            chunks=example.chunks,
            order=example.order,
            compressors=example.compressor and numcodecs.get_codec(example.compressor),
            chunk_key_encoding={"name": "v2", "separator": example.separator},
            attributes={"units": "m", "limits": [1, 2.5]},
            zarr_format=2,
            **fill,
        )
        array[example.box] = example.data[example.box]
        ours = ingot.open(folder)
        example.assert_read(ours[...])
        assert dict(ours.attrs) == {"units": "m", "limits": [1, 2.5]}
        again = ingot.open(folder, "r+")
        again[...] = example.data
        again.attrs["units"] = "km"
        changed = zarr.open_array(folder, mode="r", zarr_format=2)
        example.assert_read(read_by_zarr(changed))
        assert dict(changed.attrs) == {"units": "km", "limits": [1, 2.5]}


FILTERS: list[tuple[str, list[dict[str, Any]]]] = [
    ("<i4", [{"id": "delta", "dtype": "<i4"}]),
    ("<i8", [{"id": "delta", "dtype": "<i8", "astype": "<i2"}]),
    (
        "<f8",
        [{"id": "fixedscaleoffset", "offset": 1, "scale": 10, "dtype": "<f8", "astype": "<i4"}],
    ),
    ("<f8", [{"id": "quantize", "digits": 3, "dtype": "<f8"}]),
    ("<f4", [{"id": "bitround", "keepbits": 12}]),
    ("|b1", [{"id": "packbits"}]),
    ("<f8", [{"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}]),
    ("<i4", [{"id": "shuffle", "elementsize": 4}]),
    ("<i4", [{"id": "crc32"}]),
    ("<i4", [{"id": "crc32c"}]),
    ("<i4", [{"id": "adler32"}]),
    ("<i4", [{"id": "fletcher32"}]),
    ("<i4", [{"id": "jenkins_lookup3"}]),
    ("<i4", [{"id": "delta", "dtype": "<i4"}, {"id": "shuffle", "elementsize": 4}]),
]


@on_each_kernel
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "filters"), FILTERS, ids=["+".join(f["id"] for f in fs) for _, fs in FILTERS]
)
def test_filters_go_both_ways(
    kernel_name: str, dtype: str, filters: list[dict[str, Any]], order: str
) -> None:
    data = items(dtype, (7, 6))
    zlib = {"id": "zlib", "level": 1}
    with folder_with(kernel_name) as folder:
        codec = [parse_stage(config) for config in [*filters, zlib]]
        ingot.array(data, folder, chunks=(3, 4), codec=codec, order=order, format="zarr2")
        theirs = zarr.open_array(folder, mode="r", zarr_format=2)
        np.testing.assert_array_equal(theirs[...], data)
    with folder_with(kernel_name) as folder:
        array = zarr.create_array(
            folder,
            shape=data.shape,
            dtype=data.dtype,
            chunks=(3, 4),
            order=order,
            filters=[numcodecs.get_codec(dict(config)) for config in filters],
            compressors=numcodecs.get_codec(zlib),
            zarr_format=2,
        )
        array[...] = data
        # Not `data`: with this order and `bitround` zarr-python mixes the items up by itself.
        np.testing.assert_array_equal(ingot.open(folder)[...], array[...], strict=True)


@on_each_kernel
@some
@given(texts=st.lists(st.text(), max_size=8), chunk=st.integers(1, 9))
def test_text_of_any_length_goes_both_ways(kernel_name: str, texts: list[str], chunk: int) -> None:
    with folder_with(kernel_name) as folder:
        ingot.array(np.array(texts, np.dtypes.StringDType()), folder, chunks=chunk, format="zarr2")
        assert zarr.open_array(folder, mode="r", zarr_format=2)[...].tolist() == texts
    with folder_with(kernel_name) as folder:
        array = zarr.create_array(
            folder, shape=len(texts), dtype=str, chunks=(chunk,), zarr_format=2
        )
        array[...] = np.array(texts, object)
        assert ingot.open(folder)[...].tolist() == texts


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
        ours = ingot.array(np.arange(1, first + 1), folder, chunks=chunk, format="zarr2")
        theirs = zarr.open_array(folder, mode="r+", zarr_format=2)
        theirs.resize((second,))
        ours = ingot.open(folder, "r+")
        ours.resize(third)
        expected = np.zeros(third, np.int64)
        kept = min(first, second, third)
        expected[:kept] = np.arange(1, kept + 1)
        np.testing.assert_array_equal(ours[...], expected)
        ours.append([7, 8])
        theirs = zarr.open_array(folder, mode="r+", zarr_format=2)
        np.testing.assert_array_equal(theirs[...], [*expected, 7, 8])


# tensorstore --------------------------------------------------------------------------------------

for_tensorstore = examples(NUMBERS, COMPRESSORS)


def tensorstore_at(folder: str, **settings: Any) -> Any:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    return tensorstore.open({**spec, **settings}).result()


@on_each_kernel
@some
@given(example=for_tensorstore)
def test_tensorstore_reads_what_we_write(kernel_name: str, example: Example) -> None:
    with folder_with(kernel_name) as folder:
        example.write(folder)
        found = tensorstore_at(folder).read().result()
        example.assert_read(np.asarray(found), ordered=False)


@on_each_kernel
@some
@given(example=for_tensorstore)
def test_we_read_what_tensorstore_writes(kernel_name: str, example: Example) -> None:
    native = example.data.astype(example.data.dtype.newbyteorder("="))
    with folder_with(kernel_name) as folder:
        metadata = {
            "shape": list(native.shape),
            "chunks": list(example.chunks),
            "dtype": example.data.dtype.str,
            "compressor": example.compressor,
            # With one axis there is only one order, and tensorstore insists on calling it C.
            "order": example.order if native.ndim > 1 else "C",
            "fill_value": fill_text(example.fill),
            "dimension_separator": example.separator,
        }
        theirs = tensorstore_at(folder, metadata=metadata, create=True)
        theirs[example.box].write(native[example.box]).result()
        example.assert_read(ingot.open(folder)[...])


def fill_text(fill: Any) -> Any:
    if isinstance(fill, complex):
        return [fill_text(fill.real), fill_text(fill.imag)]
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return words.get(str(fill), fill)
