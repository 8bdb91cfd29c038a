"""Selections of flat arrays as runs of units, and runs as parts of chunks."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.codecs.checksums import DIGEST_BYTES
from ingot.codecs.codec import CodecChain
from ingot.engine import changes, flat
from ingot.engine.flat import PayloadMap, RunAxis, Runs
from ingot.engine.run import Engine
from ingot.errors import CorruptionError, UnsupportedError
from ingot.formats.format import Coords
from ingot.formats.registry import register, unregister
from ingot.options import Options
from ingot.schema import ArraySchema, Flat
from ingot.selection import parse, parse_orthogonal
from ingot.stores import Commit, MemoryStore
from tests.contracts.toy.flat import ENTRY, HEAD, FlatToyMap
from tests.kernels import on_each_kernel
from tests.storage import use_kernel


@pytest.fixture
def toyflat() -> Iterator[None]:
    """Register the format of flat arrays for one test."""
    register(ENTRY)
    yield
    unregister("toyflat")


def schema_of(shape: tuple[int, ...], order: str = "C", chunk_bytes: int = 8) -> ArraySchema:
    dtype, chain = np.dtype("<i4"), CodecChain()
    return ArraySchema(shape, dtype, (), chain, np.int32(7), order=order, flat=Flat(chunk_bytes))


@pytest.mark.parametrize(
    ("key", "order", "expected"),
    [
        (..., "C", (0, 24)),
        (..., "F", (0, 24)),
        (1, "C", (12, 12)),
        (slice(1, 2), "C", (12, 12)),
        ((..., 1), "F", (6, 6)),
        ((1, 2), "C", (20, 4)),
        ((1, 2, 3), "F", (23, 1)),
        ((1, slice(0, 2)), "C", (12, 8)),
        ((1, 1, slice(1, 3)), "C", (17, 2)),
    ],
)
def test_what_lies_together_is_one_run(key: Any, order: str, expected: tuple[int, int]) -> None:
    schema = schema_of((2, 3, 4), order)
    runs = flat.cut(parse(key, schema.shape), schema)
    assert runs.axes == ()
    assert (runs.start, runs.length) == expected
    assert runs.single == range(expected[0], sum(expected))


@pytest.mark.parametrize(
    ("key", "order", "count", "length"),
    [
        ((slice(None), 1), "C", 2, 4),
        ((..., slice(0, 2)), "C", 6, 2),
        ((..., slice(None, None, 2)), "C", 12, 1),
        (slice(None, None, -1), "C", 2, 12),
        ((0,), "F", 12, 1),
        (([1, 0],), "C", 2, 12),
        (([0, 1], slice(None), [1, 3]), "C", 6, 1),
        (([0, 1], [1, 2]), "C", 2, 4),
    ],
)
def test_runs_are_as_long_as_they_can_be(key: Any, order: str, count: int, length: int) -> None:
    schema = schema_of((2, 3, 4), order)
    runs = flat.cut(parse(key, schema.shape), schema)
    assert (runs.count, runs.length) == (count, length)


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 24, 30])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(
    "key",
    [
        (slice(None), 1),
        (..., slice(3, 0, -2)),
        ([1, 0], slice(1, 3)),
        ([1, 0, 1], slice(None), [3, 0, 3]),
        (slice(None), [2, 0], [0, 3]),
        ([1, 0], [2, 2], slice(None, None, 3)),
    ],
)
def test_parts_of_chunks_are_all_that_is_wanted(key: Any, order: str, chunk: int) -> None:
    schema = schema_of((2, 3, 4), order)
    # The payload holds its own places.
    numbers = np.arange(24).reshape((2, 3, 4), order=order)
    selection, repeats = flat.without_repeats(parse(key, schema.shape), schema.shape)
    runs = flat.cut(selection, schema)
    sources = [runs.source(number) for number in range(runs.count)]
    assert sources == sorted(set(sources))
    found = np.full(int(np.prod(selection.engine_shape)), -1)
    touched = list(runs.touched(chunk))
    for number in range(-(-24 // chunk)):
        begin = number * chunk
        parts = list(runs.parts(begin, min(begin + chunk, 24)))
        assert bool(parts) == (number in touched)
        for source, target in parts:
            found[target] = np.arange(begin, begin + chunk)[source]
    transposed = flat.is_transposed(selection, schema)
    shape = selection.engine_shape
    result = found.reshape(shape[::-1]).T if transposed else found.reshape(shape)
    for axis, places in repeats:
        result = result.take(places, axis)
    assert np.array_equal(parse(key, schema.shape).finish(result), numbers[key])


def test_items_are_cut_into_units() -> None:
    schema = schema_of((10,), chunk_bytes=6)
    runs = flat.cut(parse(slice(1, 3), (10,)), schema)
    assert (schema.payload.dtype, runs.single) == (np.dtype("u2"), range(2, 6))
    assert list(runs.touched(schema.payload.chunks[0])) == [0, 1]
    fill = np.array(7, "<i4")
    assert flat.repeated(fill, 1, 5, schema.payload.dtype).tolist() == [0, 7, 0, 7]


def test_long_runs_are_slices() -> None:
    runs = Runs((RunAxis(range(0, 3000, 1000), range(0, 1500, 500)),), start=100, length=500)
    assert list(runs.parts(0, 1300)) == [
        (slice(100, 600), slice(0, 500)),
        (slice(1100, 1300), slice(500, 700)),
    ]
    assert list(runs.touched(250)) == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_repeats_keep_the_last_value() -> None:
    selection, repeats = flat.without_repeats(parse_orthogonal(([3, 1, 3], [0, 0]), (5, 2)), (5, 2))
    assert selection.engine_shape == (2, 1)
    assert [(axis, flat.last_of(places).tolist()) for axis, places in repeats] == [
        (0, [1, 2]),
        (1, [1]),
    ]


@pytest.mark.parametrize(("order", "slowest"), [("C", (9, 3, 4)), ("F", (2, 3, 9))])
def test_only_the_slowest_axis_changes(order: str, slowest: tuple[int, ...]) -> None:
    schema = schema_of((2, 3, 4), order)
    flat.check_shape(schema, slowest)
    flat.check_shape(schema, (2, 0, 9))
    for shape in ((2, 9, 4), slowest[::-1]):
        with pytest.raises(UnsupportedError, match=f"only axis {slowest.index(9)} can change"):
            flat.check_shape(schema, shape)


def test_the_payload_has_no_shape_and_no_attributes() -> None:
    payload = PayloadMap.of(FlatToyMap(MemoryStore(), schema_of((3,)), "a", ()))
    with pytest.raises(UnsupportedError):
        payload.resized((4,))
    with pytest.raises(UnsupportedError):
        payload.described({})


class StreamedMap(FlatToyMap):
    """A map that takes chunks while they are encoded."""

    taken: list[tuple[int, int]]

    def stage(self, encoded: Any) -> Commit:
        raise AssertionError("a map that takes a stream gets no mapping")

    def stage_each(self, encoded: Iterable[tuple[Coords, bytes | None]]) -> Commit:
        self.taken.extend((number, len(data or b"")) for (number,), data in encoded)
        return Commit()


def test_a_map_may_take_chunks_while_they_are_encoded() -> None:
    schema = schema_of((100,), chunk_bytes=30)
    StreamedMap.taken = []
    chunks = StreamedMap(MemoryStore(), schema, "a", ())
    Engine(chunks, Options()).assign(parse(..., (100,)), np.arange(100))
    # Without codecs a chunk is as long as its bytes.
    assert StreamedMap.taken == [(number, 30) for number in range(13)] + [(13, 10)]
    StreamedMap.taken = []
    assert changes.filled(Engine(chunks, Options())) == Commit()
    assert len(StreamedMap.taken) == 14


DATA = np.arange(3000, dtype="<i4") // 7


@on_each_kernel
@pytest.mark.usefixtures("toyflat")
@pytest.mark.parametrize("checksum", DIGEST_BYTES)
@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_a_checksum_is_compared_before_bytes_are_used(
    kernel_name: str,
    checksum: str,
    verify: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernel(kernel_name, monkeypatch)
    path = tmp_path / "a"
    # Chunks of 1000 items: of the second one a byte is damaged.
    ingot.array(DATA, path, format="toyflat", chunk_bytes=4000, checksum=checksum).close()
    sizes = ingot.open(path)._handle.value.chunks.sizes
    content = bytearray(path.read_bytes())
    # The last byte of the checksum, where there is one.
    content[HEAD + sizes[0] + sizes[1] - 1] ^= 1
    if checksum == "none":
        content[HEAD + sizes[0] + sizes[1] - 1] ^= 1
    path.write_bytes(content)
    array = ingot.open(path, options=Options(verify=verify))
    assert np.array_equal(array[:1000], DATA[:1000])
    assert np.array_equal(array[2000:], DATA[2000:])
    # The Python kernel compares always.
    sound = checksum == "none" or (verify == "never" and kernel_name == "native")
    for key in (slice(None), slice(1100, 1110), slice(0, 3000, 900), [5, 1500]):
        if sound:
            assert np.array_equal(array[key], DATA[key])
        else:
            with pytest.raises(CorruptionError, match=f"{checksum}: the checksum is") as caught:
                array[key]
            assert "in chunk (1,)" in str(caught.value.__notes__)


@on_each_kernel
@pytest.mark.usefixtures("toyflat")
@pytest.mark.parametrize("change", ["claim more", "swap", "cut", "gone"])
def test_chunks_that_are_not_what_they_should_be(
    kernel_name: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    path = tmp_path / "a"
    made = ingot.array(DATA[:2500], path, format="toyflat", chunk_bytes=4000, checksum="none")
    sizes = made._handle.value.chunks._sizes()
    content = path.read_bytes()
    chunks = [content[HEAD + sum(sizes[:n]) :][: sizes[n]] for n in range(3)]
    if change == "claim more":
        # nbytes of the last chunk, which is shorter than the others.
        chunks[2] = chunks[2][:4] + (4000).to_bytes(4, "little") + chunks[2][8:]
    elif change == "swap":
        # The short chunk stands where a long one is due.
        chunks[0], chunks[2] = (chunks[2] + bytes(sizes[0]))[: sizes[0]], chunks[0][: sizes[2]]
    elif change == "cut":
        chunks[2] = chunks[2][:-1]
    else:
        chunks[2] = b""
    path.write_bytes(content[:HEAD] + b"".join(chunks))
    array = ingot.open(path)
    for key in (slice(None), slice(2400, 2410), [0, 2499]):
        with pytest.raises(CorruptionError):
            array[key]
