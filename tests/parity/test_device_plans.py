"""The plans of windows: the native kernel makes the tables that its twin makes.

Chunks of other writers, and damaged ones; as a whole and in part, in pieces, and in memory of a
device. The twin is the oracle.
"""

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import blosc, native
from ingot.device.plan import Region, Stored, WantedChunks, WindowPlan, make_plan
from ingot.device.window import ChunkPieces
from tests.fuzz import fuzz_chunks
from tests.kernels import needs_native
from tests.parity.test_device_kernels import golden

pytestmark = [
    needs_native,
    pytest.mark.skipif(native.choice().name != "native", reason="the twin runs"),
]

SEED = 77
LARGEST = 1 << 20
TABLES = ("blocks", "block_owners", "chunk_owners", "boxes", "box_owners", "axes", "offsets")


def chunks() -> Iterator[bytes]:
    """Yield golden and damaged chunks, and some with filters and blocks of every kind."""
    for row, chunk in golden():
        if row["nbytes"] <= LARGEST:
            yield chunk
    for execution in range(2000):
        yield fuzz_chunks.damaged(SEED, execution)[0]
    data = np.repeat(np.arange(20_000, dtype="<i4"), 3).tobytes()
    for filters in (["shuffle"], ["delta", "bitshuffle"], ["shuffle", ("bytedelta", 4)], []):
        for codec in ("lz4", "blosclz", "zstd"):
            for blocksize in (1600, 16_000):
                yield blosc.compress(
                    data,
                    typesize=4,
                    codec=codec,
                    filters=filters,  # type: ignore[arg-type]
                    blocksize=blocksize,
                    version=2,
                )
    yield blosc.constant(b"spam", 400_000)
    yield blosc.constant(b"\0", 400_000)


def decoded_size(chunk: bytes) -> int:
    return int.from_bytes(chunk[4:8], "little", signed=True) if len(chunk) >= 8 else 0


def region(choose: random.Random, nbytes: int) -> Region:
    """Return a region of bytes of a chunk: a run, a box, or positions."""
    kind = choose.choice(["all", "run", "far", "box", "positions", "item"])
    begin = choose.randrange(nbytes)
    length = choose.randrange(nbytes - begin) + 1
    target = choose.choice([0, 16, 5, 160])
    if kind == "all":
        return Region((slice(0, nbytes),), (1,), (slice(target, None),), (1,), (nbytes,))
    if kind == "run":
        return Region((slice(begin, None),), (1,), (slice(target, None),), (1,), (length,))
    if kind == "item":
        return Region((), (), (), (), ())
    if kind == "far":
        step = choose.choice([1, 7, 5000, 40_000])
        count = -(-length // step)
        last = begin + (count - 1) * step
        index, stride = choose.choice(
            [(slice(begin, None, step), 1), (slice(last, None, -step), 1)]
        )
        return Region((index,), (stride,), (slice(0, None, 2),), (1,), (count,))
    if kind == "box":
        rows = choose.choice([1, 2, 5])
        width = nbytes // rows
        if not width:
            return Region((slice(begin, None),), (1,), (slice(0, None),), (1,), (1,))
        columns = choose.randrange(width) + 1
        return Region(
            (slice(None), slice(0, columns)),
            (width, 1),
            (slice(None), slice(None)),
            (columns, 1),
            (rows, columns),
        )
    positions = np.array([choose.randrange(nbytes) for _ in range(choose.randrange(9) + 1)])
    places = np.arange(len(positions))[::-1].copy()
    return Region((positions,), (1,), (places,), (3,), (len(positions),))


def stored_as(choose: random.Random, chunk: bytes, memory: NDArray[np.uint8], at: int) -> Stored:
    """Return a chunk as bytes, in memory of a device, in pieces, or not at all."""
    kind = choose.randrange(6)
    if kind == 0:
        return memory[at : at + len(chunk)].data
    if kind == 1:
        cut = choose.randrange(len(chunk) + 1)
        overlap = min(choose.choice([0, 50]), cut)
        return ChunkPieces(len(chunk), [(0, chunk[:cut]), (cut - overlap, chunk[cut - overlap :])])
    if kind == 2:
        return ChunkPieces(len(chunk), [(0, chunk[: choose.randrange(len(chunk) + 1)])])
    return None if kind == 3 and choose.random() < 0.2 else chunk


def same_plans(
    twin: WantedChunks,
    made: WantedChunks,
    memory: NDArray[np.uint8],
    stored: Sequence[Stored],
    threads: int,
) -> int:
    """Compare two plans; return how many chunks they take."""
    expected, refused = twin.build(memory, stored, threads)
    found, others = made.build(memory, stored, threads)
    assert others == refused
    for name in TABLES:
        one, other = getattr(expected, name), getattr(found, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes(), name
    assert (found.room, found.input_size) == (expected.room, expected.input_size)
    inputs = np.zeros((2, found.input_size), np.uint8)
    expected.write_input(inputs[0])
    found.write_input(inputs[1])
    assert (inputs[0] == inputs[1]).all()
    assert (found.refers, found.filters) == (expected.refers, expected.filters)
    return len(stored) - len(refused)


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_are_those_of_the_twin(threads: int) -> None:
    choose = random.Random(SEED)
    all_chunks = [chunk for chunk in chunks() if 0 < decoded_size(chunk) <= LARGEST]
    choose.shuffle(all_chunks)
    taken = 0
    for first in range(0, len(all_chunks), 300):
        some = all_chunks[first : first + 300]
        joined = b"".join(some)
        memory = np.frombuffer(joined, np.uint8)
        sizes: list[int | None] = [decoded_size(chunk) for chunk in some]
        regions = [
            [region(choose, decoded_size(chunk)) for _ in range(choose.choice([1, 1, 1, 2]))]
            for chunk in some
        ]
        sizes[7] = None
        places = np.cumsum([0, *map(len, some)]).tolist()
        stored = [
            stored_as(choose, chunk, memory, at) for chunk, at in zip(some, places, strict=False)
        ]
        twin = WindowPlan(1, sizes, regions)
        made = make_plan(1, sizes, regions)
        assert not isinstance(made, WindowPlan)
        assert made.sizes() == twin.sizes()
        taken += same_plans(twin, made, memory, stored, threads)
        numbers = [number for number in range(len(some)) if choose.random() < 0.7]
        heads = [some[number][: choose.choice([16, 40, 200, 2000])] for number in numbers]
        assert made.needed(numbers, heads) == twin.needed(numbers, heads)
    assert len(all_chunks) // 5 < taken < len(all_chunks)


def test_regions_that_do_not_fit_are_refused() -> None:
    """What would read outside of a chunk or of an index is an error, or leaves the chunk out."""
    chunk = blosc.compress(bytes(4000), typesize=4, blocksize=1600)
    beyond = Region((slice(3990, None),), (1,), (slice(0, None),), (1,), (20,))
    window, refused = make_plan(1, [4000], [[beyond]]).build(None, [chunk], 1)
    assert (len(window.blocks), refused) == (0, [0])
    before = Region((slice(-9, None),), (1,), (slice(0, None),), (1,), (20,))
    assert make_plan(1, [4000], [[before]]).build(None, [chunk], 1)[1] == [0]
    for index, strides, lengths in (
        ((slice(0, 4), slice(0, 4)), (1,), (4,)),
        ((np.arange(3),), (1,), (4,)),
        ((slice(0, 4),), (1,), (0,)),
    ):
        with pytest.raises(ValueError, match=r"along an axis of 4|each axis has an index"):
            make_plan(1, [4000], [[Region(index, strides, index, strides, lengths)]])
    with pytest.raises(ValueError, match="each chunk has stored bytes, or none"):
        make_plan(1, [4000], [[beyond]]).build(None, [], 1)
