"""What Ingot writes as Zarr, zarr-python and tensorstore read; and the other way round."""

import json
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.checksum32 import CRC32C

import ingot
from ingot.codecs.codec import parse_stage
from ingot.codecs.compressors import Blosc
from ingot.codecs.text import VlenBytes
from ingot.errors import CorruptionError, UnsafeError
from tests.kernels import on_each_kernel
from tests.property.array_strategies import items
from tests.property.zarr_examples import (
    FOR_TENSORSTORE,
    FOR_ZARR,
    folder_with,
    read_by_zarr,
    tensorstore_at,
)

some = settings(max_examples=80, deadline=None)
in_each_version = pytest.mark.parametrize("version", [2, 3])


@on_each_kernel
@in_each_version
@some
@given(draw=st.data())
def test_zarr_reads_what_we_write(kernel_name: str, version: int, draw: st.DataObject) -> None:
    example = draw.draw(FOR_ZARR[version])
    with folder_with(kernel_name) as folder:
        example.write(folder)
        array = zarr.open_array(folder, mode="r", zarr_format=version)
        example.assert_described(array)
        example.assert_read(read_by_zarr(array), ordered=example.zarr_keeps_byte_order)


@on_each_kernel
@in_each_version
@some
@given(draw=st.data())
def test_we_read_what_zarr_writes(kernel_name: str, version: int, draw: st.DataObject) -> None:
    example = draw.draw(FOR_ZARR[version])
    with folder_with(kernel_name) as folder:
        array = example.create_by_zarr(folder, {"units": "m", "limits": [1, 2.5]})
        array[example.box] = example.data[example.box]
        ours = ingot.open(folder)
        example.assert_read(ours[...])
        assert ours.chunks == example.chunks
        assert dict(ours.attrs) == {"units": "m", "limits": [1, 2.5]}
        again = ingot.open(folder, "r+")
        again[...] = example.data
        again.attrs["units"] = "km"
        changed = zarr.open_array(folder, mode="r", zarr_format=version)
        example.assert_read(read_by_zarr(changed), ordered=example.zarr_keeps_byte_order)
        assert dict(changed.attrs) == {"units": "km", "limits": [1, 2.5]}


@on_each_kernel
@in_each_version
@some
@given(draw=st.data())
def test_tensorstore_reads_what_we_write(
    kernel_name: str, version: int, draw: st.DataObject
) -> None:
    example = draw.draw(FOR_TENSORSTORE[version])
    with folder_with(kernel_name) as folder:
        example.write(folder)
        found = tensorstore_at(folder, version).read().result()
        example.assert_read(np.asarray(found), ordered=False)


@on_each_kernel
@in_each_version
@some
@given(draw=st.data())
def test_we_read_what_tensorstore_writes(
    kernel_name: str, version: int, draw: st.DataObject
) -> None:
    example = draw.draw(FOR_TENSORSTORE[version])
    with folder_with(kernel_name) as folder:
        theirs = example.create_by_tensorstore(folder)
        theirs[example.box].write(example.native[example.box]).result()
        example.assert_read(ingot.open(folder)[...])


@on_each_kernel
@in_each_version
@some
@given(texts=st.lists(st.text(), max_size=8), chunk=st.integers(1, 9))
def test_text_of_any_length_goes_both_ways(
    kernel_name: str, version: int, texts: list[str], chunk: int
) -> None:
    with folder_with(kernel_name) as folder:
        data = np.array(texts, np.dtypes.StringDType())
        ingot.array(data, folder, chunks=chunk, format=f"zarr{version}")
        assert zarr.open_array(folder, mode="r", zarr_format=version)[...].tolist() == texts
    with folder_with(kernel_name) as folder:
        array = zarr.create_array(
            folder, shape=len(texts), dtype=str, chunks=(chunk,), zarr_format=version
        )
        array[...] = np.array(texts, object)
        assert ingot.open(folder)[...].tolist() == texts


@on_each_kernel
@in_each_version
@some
@given(
    first=st.integers(0, 20),
    second=st.integers(0, 20),
    third=st.integers(0, 20),
    chunk=st.integers(1, 9),
)
def test_both_libraries_resize_one_array(
    kernel_name: str, version: int, first: int, second: int, third: int, chunk: int
) -> None:
    """zarr-python leaves the end of edge chunks as it is when an array shrinks."""
    with folder_with(kernel_name) as folder:
        ingot.array(np.arange(1, first + 1), folder, chunks=chunk, format=f"zarr{version}")
        theirs = zarr.open_array(folder, mode="r+", zarr_format=version)
        theirs.resize((second,))
        ours = ingot.open(folder, "r+")
        ours.resize(third)
        expected = np.zeros(third, np.int64)
        kept = min(first, second, third)
        expected[:kept] = np.arange(1, kept + 1)
        np.testing.assert_array_equal(ours[...], expected)
        ours.append([7, 8])
        theirs = zarr.open_array(folder, mode="r+", zarr_format=version)
        np.testing.assert_array_equal(theirs[...], [*expected, 7, 8])


# Version 2 ----------------------------------------------------------------------------------------

FILTERS2: list[tuple[str, list[dict[str, Any]]]] = [
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


def with_each(filters: list[tuple[str, list[dict[str, Any]]]]) -> pytest.MarkDecorator:
    names = ["+".join(each["id"] for each in configs) for _, configs in filters]
    return pytest.mark.parametrize(("dtype", "filters"), filters, ids=names)


@on_each_kernel
@pytest.mark.parametrize("order", ["C", "F"])
@with_each(FILTERS2)
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


# Version 3 ----------------------------------------------------------------------------------------

FILTERS3: list[tuple[str, list[dict[str, Any]]]] = [
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
@with_each(FILTERS3)
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
@with_each(FILTERS3)
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
@pytest.mark.parametrize("name", ["bfloat16", "int4", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_does_not_have_go_both_ways(kernel_name: str, name: str) -> None:
    dtype = getattr(tensorstore, name).numpy_dtype
    data = np.arange(-6, 8).astype("f4").astype(dtype)
    with folder_with(kernel_name) as folder:
        ingot.array(data, folder, chunks=4, format="zarr3", codec="none")
        found = np.asarray(tensorstore_at(folder, 3).read().result())
        assert (found.dtype, found.tolist()) == (data.dtype, data.tolist())
    with folder_with(kernel_name) as folder:
        theirs = tensorstore_at(
            folder, 3, dtype=name, schema={"domain": {"shape": [14]}}, create=True
        )
        theirs[...].write(data).result()
        ours = ingot.open(folder)
        assert (ours.dtype, ours[...].tolist()) == (data.dtype, data.tolist())


@on_each_kernel
@pytest.mark.parametrize("codec", ["blosc:lz4:5:shuffle", "zlib:3", "none"])
def test_checksums_of_version_2_go_both_ways(kernel_name: str, codec: str) -> None:
    data = items(np.dtype("<i4"), (10, 7))
    with folder_with(kernel_name) as folder:
        layout = {"codec": codec, "chunks": (4, 3), "format": "zarr2", "checksum": True}
        ingot.array(data, folder, **layout).close()
        theirs = zarr.open_array(folder, mode="r+")
        np.testing.assert_array_equal(theirs[...], data, strict=True)
        theirs[3:5] = data[3:5] = 7
        with ingot.open(folder, "r+") as ours:
            np.testing.assert_array_equal(ours[...], data, strict=True)
            ours[0, 0] = data[0, 0] = 99
        np.testing.assert_array_equal(zarr.open_array(folder)[...], data, strict=True)
        chunk = Path(folder, "1.1")
        chunk.write_bytes(chunk.read_bytes()[:-5] + b"?" + chunk.read_bytes()[-4:])
        with pytest.raises(RuntimeError, match="checksum"):
            zarr.open_array(folder)[...]
        with pytest.raises(CorruptionError, match="checksum"):
            ingot.open(folder)[...]


def test_a_checksum_as_compressor_of_version_2_is_read() -> None:
    data = items(np.dtype("<i4"), (10, 7))
    with folder_with("python") as folder:
        array = zarr.create_array(
            folder,
            shape=data.shape,
            dtype=data.dtype,
            chunks=(4, 3),
            zarr_format=2,
            filters=[numcodecs.Blosc()],
            compressors=CRC32C(),
        )
        array[...] = data
        np.testing.assert_array_equal(ingot.open(folder)[...], data, strict=True)


@pytest.mark.parametrize("dtype", ["<M8[ns]", ">M8[s]", "<m8[s]"])
def test_dates_without_a_fill_value_are_no_date(dtype: str) -> None:
    with folder_with("python") as folder:
        array = zarr.create_array(folder, shape=4, dtype=dtype, chunks=(2,), zarr_format=2)
        array[:2] = np.array([1, 2], dtype)
        document = Path(folder, ".zarray")
        values = json.loads(document.read_text()) | {"fill_value": None}
        document.write_text(json.dumps(values))
        theirs = zarr.open_array(folder)[...]
        assert np.isnat(theirs[2:]).all()
        np.testing.assert_array_equal(ingot.open(folder)[...], theirs, strict=True)


@in_each_version
@on_each_kernel
def test_names_that_end_with_a_dot_are_read_and_not_written(kernel_name: str, version: int) -> None:
    with folder_with(kernel_name) as folder:
        group = zarr.create_group(folder, zarr_format=version)
        array = group.create_array("a.", shape=4, dtype="i4", chunks=(2,))
        array[:] = np.arange(4)
        opened = ingot.open(folder)
        assert list(opened) == ["a."]
        assert opened["a."][...].tolist() == [0, 1, 2, 3]
        with pytest.raises(UnsafeError, match="a part ends with a dot"):
            ingot.open(folder, "r+")["a."][0] = 5
        with pytest.raises(UnsafeError, match="a part ends with a dot"):
            ingot.open(folder, "r+").array("b.", np.arange(3))
        assert opened["a."][...].tolist() == [0, 1, 2, 3]
