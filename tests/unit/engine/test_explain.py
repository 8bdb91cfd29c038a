"""What a selection is said to cost is what it costs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import blosc
from ingot.codecs.codec import ChunkSpec, parse_spelling
from ingot.engine import kernel as kernels
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.formats.zarr.v2 import Zarr2Format, build_chain
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores import Commit, Extent, Put
from ingot.stores.memory import MemoryStore
from tests.kernels import needs_native
from tests.storage import use_kernel


def engine(spelling: str) -> Engine:
    dtype = np.dtype("<i4")
    chain = build_chain(parse_spelling(spelling), ChunkSpec((64, 1024), dtype), "C")
    schema = ArraySchema((128, 2048), dtype, (64, 1024), chain, np.int32(0))
    store = MemoryStore()
    node, commit = Zarr2Format().create(store, schema)
    store.apply(commit)
    made = engine_of(node.chunks, Options())
    numbers = np.random.default_rng(0).integers(0, 1000, (64, 2048), np.int32)
    made.chunks.store.apply(made.assign(parse((slice(0, 64),), (128, 2048)), numbers))
    return made


def test_blocks_and_bytes_are_those_of_the_chunk() -> None:
    made = engine("blosc:lz4:5:shuffle:65536")
    explanation = made.explain(parse((3, slice(0, 100)), (128, 2048)))
    (chunk,) = made.chunks.store.read(list(made.chunks.locate(np.array([[0, 0]]))))
    inspection = blosc.inspect(chunk)
    assert len(inspection.blocks) == 4
    (cost,) = explanation.costs
    assert (cost.key, cost.stored, cost.items) == ("0.0", len(chunk), 100)
    if explanation.kernel == "python":
        assert (cost.blocks, cost.read) == ((4, 4), len(chunk))
        return
    assert cost.blocks == (1, 4)
    assert cost.read == 4096 + inspection.blocks[0].cbytes
    assert explanation.to_dict()["costs"][0]["blocks"] == [1, 4]
    assert "1 of 4 blocks" in str(explanation)


def test_absent_chunks_are_constant() -> None:
    explanation = engine("zlib:1").explain(parse((slice(60, 70),), (128, 2048)))
    assert (explanation.chunks, explanation.constants, explanation.files) == (4, 2, 2)
    assert explanation.read == sum(cost.stored for cost in explanation.costs)
    assert "constant" in str(explanation)


def test_nothing_costs_nothing() -> None:
    explanation = engine("zlib:1").explain(parse((slice(3, 3),), (128, 2048)))
    assert (explanation.chunks, explanation.read, explanation.costs) == (0, 0, ())
    assert str(explanation).startswith("0 bytes")


def test_index_arrays_are_explained_by_chunk() -> None:
    explanation = engine("zlib:1").explain(parse(([0, 127, 1], [0, 2047, 1]), (128, 2048)))
    assert sorted((cost.coords, cost.items) for cost in explanation.costs) == [
        ((0, 0), 2),
        ((1, 1), 1),
    ]


@pytest.mark.parametrize("place", [4, 8, 16, 28])
def test_damaged_chunks_are_explained_or_refused_by_name(place: int) -> None:
    made = engine("blosc:lz4:5:shuffle:65536")
    key = parse((3, slice(0, 100)), (128, 2048))
    (chunk,) = made.chunks.store.read([Extent("0.0")])
    for value in (0, 1, 255, 65536, 2**31 - 1, 2**32 - 1):
        damaged = bytearray(chunk)
        damaged[place : place + 4] = value.to_bytes(4, "little")
        made.chunks.store.apply(Commit(publish=(Put("0.0", bytes(damaged)),)))
        (cost,) = made.explain(key).costs
        assert 0 <= cost.read <= cost.stored


def test_small_chunks_of_any_size_are_explained() -> None:
    for length in range(1, 40):
        array = ingot.array(np.arange(length) // 9, format="zarr2", codec="blosc:lz4:5:shuffle")
        (cost,) = array.explain().costs
        assert cost.read == cost.stored == array.stored_bytes


@needs_native
def test_what_stands_around_a_chunk_in_its_file_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel("native", monkeypatch)
    numbers = np.random.default_rng(0).integers(0, 1000, 100_000, np.int32)
    array = ingot.array(numbers, tmp_path / "a", format="bcolz", chunks=100_000)
    (cost,) = array.explain(5).costs
    data = (tmp_path / "a" / cost.key).read_bytes()
    head = len(b"blpk") + 12
    inspection = blosc.inspect(
        data[head : head + int.from_bytes(data[head + 12 : head + 16], "little")]
    )
    around = len(data) - inspection.header.cbytes
    assert around > head
    assert cost.blocks == (1, len(inspection.blocks)) != (1, 1)
    # The first bytes begin with the head; the trailer is read as a whole.
    assert cost.read == 4096 + around - head + inspection.blocks[0].cbytes
    # It is the same in a store without files.
    store = MemoryStore()
    array = ingot.array(numbers, store, format="bcolz", chunks=100_000)
    (whole,) = array.explain(5).costs
    assert (whole.blocks, whole.read) == (cost.blocks, cost.read)


def test_points_with_other_axes_touch_the_chunks_of_both() -> None:
    made = engine("zlib:1")
    # Rows of two chunks, and all columns, which are two chunks.
    explanation = made.explain(parse(([0, 127, 1],), (128, 2048)))
    assert explanation.chunks == len(explanation.costs) == 4
    assert sorted((cost.coords, cost.items) for cost in explanation.costs) == [
        *(((0, 0), 2048), ((0, 1), 2048), ((1, 0), 1024), ((1, 1), 1024)),
    ]
    assert explanation.shape == (3, 2048)
    assert explanation.nbytes == 3 * 2048 * 4
    cube = ingot.create(shape=(4, 6, 8), dtype="u1", chunks=(2, 3, 4), format="zarr2")
    # The points lie in chunks (0, 0) and (1, 1) of the outer axes, the other axis has two.
    points = cube.explain(([0, 1, 3], slice(None), [0, 3, 7]))
    assert points.shape == (3, 6)
    assert points.chunks == len(points.costs) == 4
    assert sorted((cost.coords, cost.items) for cost in points.costs) == [
        *(((0, 0, 0), 6), ((0, 1, 0), 6), ((1, 0, 1), 3), ((1, 1, 1), 3)),
    ]


def test_the_kernel_is_the_one_that_reads(kernel: str, tmp_path: Path) -> None:
    data = np.arange(60).reshape(6, 10)
    array = ingot.array(data, tmp_path / "a", chunks=(4, 4), format="zarr2")
    points, box = ([0, 5], [1, 9]), np.s_[1:3]
    assert array.explain(box).kernel == kernel
    assert array.explain(points).kernel == kernel
    assert array.explain().to_dict()["kernel"] == kernel
    assert f"by the {kernel} kernel" in str(array.explain(box))
    cached = ingot.open(tmp_path / "a", options=Options(cache_bytes=1000))
    assert cached.explain(box).kernel == "python"
    assert ingot.array(data, format="zarr2").explain(box).kernel == kernel
    assert ingot.array(data, format="zarr2", codec="bz2").explain(box).kernel == "python"
    calls: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        decode = kernels.decode
        patch.setattr(kernels, "decode", lambda *a, **k: calls.append(a) or decode(*a, **k))
        for key in (box, points):
            calls.clear()
            np.testing.assert_array_equal(array[key], data[key])
            assert bool(calls) == (array.explain(key).kernel == "python")
