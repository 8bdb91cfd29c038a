"""Arrays in shards beside NumPy, and beside the other libraries that read and write them.

Left out of the contest with others is only what they cannot do: zarr-python has no codecs around a
shard on every path, tensorstore has no dates.
"""

import contextlib
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import ChunkSpec, CodecChain, parse_spelling
from ingot.errors import IngotError
from ingot.formats.format import Request
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.schema import ArraySchema
from ingot.stores import LocalStore, MemoryStore
from tests.kernels import on_each_kernel
from tests.property.array_strategies import Shape, items
from tests.storage import Place, use_kernel

some = settings(max_examples=60, deadline=None)

NUMBERS = ["|b1", "|i1", "<i2", ">u4", "<i8", "<f4", ">f8", "<c8"]
CODECS = ["none", "blosc:lz4:5:shuffle", "blosc:zstd:1:bitshuffle", "zstd:1", "gzip:1"]
PIPELINES = {
    "zarr": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}
NAMES = [
    "zarr",
    pytest.param(
        "zarrs",
        marks=pytest.mark.skipif(find_spec("zarrs") is None, reason="zarrs is not installed"),
    ),
]


@dataclass(frozen=True)
class Example:
    """An array in shards, and the boxes that are written one after the other."""

    schema: ArraySchema
    boxes: tuple[tuple[slice, ...], ...]

    def create(self, place: Place) -> ingot.Array:
        store = LocalStore(place, writable=True) if isinstance(place, Path) else place
        _, commit = Zarr3Format().create(store, self.schema)
        store.apply(commit)
        return ingot.open(place, "r+")

    def writes(self) -> list[tuple[tuple[slice, ...], NDArray[Any]]]:
        whole = items(self.schema.dtype, self.schema.shape)
        return [
            (box, np.full(whole[box].shape, self.schema.fill) if turn % 4 == 3 else whole[box])
            for turn, box in enumerate(self.boxes)
        ]

    def expected(self) -> NDArray[Any]:
        data = np.full(self.schema.shape, self.schema.fill, self.schema.dtype)
        for box, part in self.writes():
            data[box] = part
        return data


@st.composite
def examples(
    draw: st.DrawFn, *, levels: int = 2, ends: tuple[str, ...] = ("start", "end")
) -> Example:
    shape: Shape = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(NUMBERS)))
    fill = items(dtype, (1,), draw(st.integers(0, 3)))[0]
    chunk = tuple(draw(st.integers(1, 4)) for _ in shape)
    stages = parse_spelling(draw(st.sampled_from(CODECS)))
    request = Request(shape, dtype, fill, chunk, stages)
    order, checksum = draw(st.sampled_from("CF")), draw(st.booleans())
    chain = Zarr3Format().design(request, order=order, checksum=checksum).chain
    for _ in range(draw(st.integers(1, levels))):
        seals = (Crc32c(),) if draw(st.booleans()) else ()
        index = CodecChain((), Bytes(draw(st.sampled_from(("little", "big")))), seals)
        sharding = Sharding(chunk, chain, index, draw(st.sampled_from(ends)))  # type: ignore[arg-type]
        chain = CodecChain((), sharding, ())
        chunk = tuple(length * draw(st.integers(1, 3)) for length in chunk)
    schema = ArraySchema(shape, dtype, chunk, chain, fill)
    return Example(schema, tuple(draw(st.lists(boxes(shape), min_size=1, max_size=5))))


@st.composite
def boxes(draw: st.DrawFn, shape: Shape) -> tuple[slice, ...]:
    if draw(st.booleans()):
        return (slice(None),) * len(shape)
    starts = [draw(st.integers(0, length - 1)) for length in shape]
    stops = [draw(st.integers(start + 1, n)) for start, n in zip(starts, shape, strict=True)]
    return tuple(map(slice, starts, stops))


@on_each_kernel
@pytest.mark.parametrize("place_name", ["memory", "local"])
@some
@given(example=examples(), data=st.data())
def test_an_array_in_shards_is_a_numpy_array(
    kernel_name: str, place_name: str, example: Example, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        use_kernel(kernel_name, patch)
        place: Place = MemoryStore() if place_name == "memory" else Path(folder)
        array = example.create(place)
        for box, part in example.writes():
            array[box] = part
        expected = example.expected()
        assert array[...].tobytes() == expected.tobytes()
        box = data.draw(boxes(expected.shape))
        assert np.array_equal(ingot.open(place)[box], expected[box])
        axes = [
            data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=4))
            for length in expected.shape
        ]
        assert np.array_equal(array.oindex[tuple(axes)], expected[np.ix_(*axes)])
        assert np.array_equal(array[tuple(axes[:1])], expected[axes[0]])


@on_each_kernel
@some
@given(example=examples(levels=2), data=st.data())
def test_growth_and_shrinkage_are_those_of_a_numpy_array(
    kernel_name: str, example: Example, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        use_kernel(kernel_name, patch)
        array = example.create(Path(folder))
        for box, part in example.writes():
            array[box] = part
        expected = example.expected()
        for _ in range(data.draw(st.integers(1, 4))):
            if data.draw(st.booleans()):
                added = items(expected.dtype, (data.draw(st.integers(1, 7)), *expected.shape[1:]))
                array.append(added)
                expected = np.concatenate([expected, added], dtype=expected.dtype)
            else:
                shape = tuple(data.draw(st.integers(0, length + 5)) for length in expected.shape)
                array.resize(shape)
                grown = np.full(shape, example.schema.fill, expected.dtype)
                kept = tuple(
                    slice(0, min(pair)) for pair in zip(shape, expected.shape, strict=True)
                )
                grown[kept] = expected[kept]
                expected = grown
            assert array[...].tobytes() == expected.tobytes()
            assert ingot.open(folder)[...].tobytes() == expected.tobytes()


@on_each_kernel
@settings(max_examples=150, deadline=None)
@given(example=examples(), data=st.data())
def test_a_damaged_shard_is_read_or_refused(
    kernel_name: str, example: Example, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        use_kernel(kernel_name, patch)
        array = example.create(Path(folder))
        for box, part in example.writes():
            array[box] = part
        shards = sorted(path for path in Path(folder, "c").rglob("*") if path.is_file())
        if not shards:
            return
        path = data.draw(st.sampled_from(shards))
        path.write_bytes(data.draw(damage(path.read_bytes())))
        for use in (
            lambda: array[...],
            lambda: array.oindex[tuple([0] for _ in array.shape)],
            lambda: array.__setitem__((slice(0, 1),) * array.ndim, 1),
            lambda: array.resize(tuple(length + 3 for length in array.shape)),
        ):
            with contextlib.suppress(IngotError):
                use()


@st.composite
def damage(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes flipped, cut off or added, or numbers of an index replaced by those that overflow."""
    kind = draw(st.sampled_from(["flip", "cut", "add", "number"]))
    place = draw(st.integers(0, len(whole) - 1))
    if kind == "cut":
        return whole[:place]
    if kind == "add":
        return whole[:place] + draw(st.binary(max_size=20)) + whole[place:]
    if kind == "flip":
        return (
            whole[:place] + bytes([whole[place] ^ draw(st.integers(1, 255))]) + whole[place + 1 :]
        )
    near = st.integers(0, 2 * len(whole)) | st.integers(0, 2**64 - 1) | st.just(2**64 - 1)
    number = draw(near).to_bytes(8, draw(st.sampled_from(["little", "big"])))  # type: ignore[arg-type]
    return whole[:place] + number + whole[place + 8 :]


@pytest.mark.parametrize("pipeline", NAMES)
@some
@given(example=examples())
def test_zarr_reads_what_we_write(pipeline: str, example: Example) -> None:
    with tempfile.TemporaryDirectory() as folder:
        array = example.create(Path(folder))
        for box, part in example.writes():
            array[box] = part
        with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
            found = zarr.open_array(folder, mode="r")[...]
        assert np.array_equal(found, example.expected())


@pytest.mark.parametrize("pipeline", NAMES)
@on_each_kernel
@some
@given(example=examples())
def test_we_read_what_zarr_writes(pipeline: str, kernel_name: str, example: Example) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        example.create(Path(folder))
        with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
            theirs = zarr.open_array(folder, mode="r+")
            for box, part in example.writes():
                theirs[box] = part
        use_kernel(kernel_name, patch)
        assert np.array_equal(ingot.open(folder)[...], example.expected())
        array = ingot.open(folder, "r+")
        array[...] = example.expected()
        assert np.array_equal(array[...], example.expected())


def opened_by_tensorstore(folder: str) -> Any:
    kvstore = {"driver": "file", "path": folder}
    return tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result()


@some
@given(example=examples())
def test_tensorstore_reads_what_we_write(example: Example) -> None:
    with tempfile.TemporaryDirectory() as folder:
        array = example.create(Path(folder))
        for box, part in example.writes():
            array[box] = part
        found = opened_by_tensorstore(folder).read().result()
        assert np.array_equal(found, example.expected())


@on_each_kernel
@some
@given(example=examples())
def test_we_read_what_tensorstore_writes(kernel_name: str, example: Example) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        use_kernel(kernel_name, patch)
        example.create(Path(folder))
        theirs = opened_by_tensorstore(folder)
        for box, part in example.writes():
            theirs[box].write(part).result()
        assert np.array_equal(ingot.open(folder)[...], example.expected())


def test_the_examples_have_shards_in_shards() -> None:
    """Were the strategy to lose a kind of layout, the tests above would not tell."""
    seen: set[object] = set()

    @settings(max_examples=300, database=None, derandomize=True)
    @given(example=examples())
    def look(example: Example) -> None:
        sharding = example.schema.chain.serializer
        assert isinstance(sharding, Sharding)
        inner = sharding.inner_chain.serializer
        seen.add(isinstance(inner, Sharding))
        seen.add(sharding.index_location)
        seen.add(sharding.index_chain.serializer)
        assert ChunkSpec(example.schema.chunks, example.schema.dtype).count > 0

    look()
    assert seen == {True, False, "start", "end", Bytes("little"), Bytes("big")}
