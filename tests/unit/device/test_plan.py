"""What is wanted of the chunks of a window, by the twin; a parity test has the native plan."""

import numpy as np
import pytest

from ingot import blosc
from ingot.device.plan import Part, Region, Steps, WindowPlan, make_plan
from ingot.device.window import ChunkPieces

DATA = np.arange(5000, dtype="<i4").tobytes()


def run(start: int, length: int, target: int = 0) -> Region:
    """Return items of 4 bytes that follow each other on both sides."""
    return Region((slice(start, None),), (4,), (slice(target, None),), (4,), (length,))


def chunk_of(codec: str = "lz4") -> bytes:
    return blosc.compress(DATA, typesize=4, codec=codec, blocksize=4000)  # type: ignore[arg-type]


def spans(part: Part) -> list[tuple[int, int]]:
    found = part.spans(4)
    return list(zip(found.begins.tolist(), found.ends.tolist(), strict=True))


def test_short_steps_make_one_range() -> None:
    assert spans(Part(8, [])) == [(8, 12)]
    assert spans(Part(8, [Steps(3, 40), Steps(5, 4)])) == [(8, 108)]
    assert spans(Part(100, [Steps(3, -40)])) == [(20, 104)]


def test_long_steps_make_a_range_each() -> None:
    assert spans(Part(0, [Steps(2, 5000), Steps(3, 4)])) == [(0, 12), (5000, 5012)]
    table = Steps(2, 0, np.array([80, 0]))
    assert spans(Part(4, [table, Steps(2, -4)])) == [(80, 88), (0, 8)]


def test_indices_become_offsets() -> None:
    assert Part.of([slice(None), slice(9, 1, -2)], [3, 4], [40, 4]) == Part(
        36, [Steps(3, 40), Steps(4, -8)]
    )
    start, steps = Steps.of(np.array([5, 1]), 2, 8)
    assert (start, steps.offsets.tolist(), steps.ends) == (0, [40, 8], (8, 40))


def test_sizes_say_how_much_is_wanted() -> None:
    plan = WindowPlan(4, [20_000, None, 400], [[run(0, 100)], [], [run(0, 90), run(0, 90)]])
    assert plan.sizes() == (400 + 400, 20_400)


def test_only_needed_blocks_are_asked_for() -> None:
    chunk = chunk_of()
    regions = [[run(1500, 20)], [run(0, 5000)], [run(1500, 20)]]
    plan = WindowPlan(4, [20_000, 20_000, None], regions)
    part, whole, other = plan.needed([0, 1, 2], [chunk[:100]] * 3)
    assert (whole, other) == (None, None)
    assert part is not None
    size, ((begin, end),) = part
    assert size == len(chunk)
    starts = np.frombuffer(chunk, "<i4", 5, 16).tolist()
    assert (begin, end) == (starts[1], starts[2])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_chunks_that_are_not_taken_are_named(codec: str) -> None:
    sound, other = chunk_of(), chunk_of(codec)
    plan = WindowPlan(4, [20_000] * 4, [[run(0, 5000, 5000 * number)] for number in range(4)])
    stored = [sound, None, other, ChunkPieces(len(sound), [(0, sound[:900])])]
    window, refused = plan.build(None, stored, 1)
    assert refused == ([1, 3] if codec == "lz4" else [1, 2, 3])
    assert set(window.chunk_owners.tolist()) == {0, 1, 2, 3} - set(refused)
    assert window.blocks["direct"][:2].tolist() == [0, 4000]


@pytest.mark.parametrize("level", [0, 5])
def test_the_blocks_that_a_window_gets_are_those_that_are_named(level: int) -> None:
    """By the kernel that runs, too: these are the blocks whose checksums are compared before."""
    chunk = blosc.compress(DATA, typesize=4, blocksize=4000, level=level)
    for region, expected in (
        (run(1500, 20), [1]),
        (run(999, 2), [0, 1]),
        (run(2999, 2001), [2, 3, 4]),
        (Region((np.array([4999, 1000]),), (4,), (slice(0, None),), (4,), (2,)), [1, 4]),
    ):
        due = list(range(expected[0], expected[-1] + 1)) if not level else expected
        plans = WindowPlan(4, [20_000], [[region]]), make_plan(4, [20_000], [[region]])
        for plan in plans:
            assert plan.blocks(0, chunk[:32]) == due
            window, refused = plan.build(None, [chunk], 1)
            assert refused == []
            if level:
                assert len(window.blocks) == len(due)
                sizes = (window.blocks["source_end"] - window.blocks["source"]).tolist()
                starts = np.frombuffer(chunk, "<i4", 5, 16).tolist()
                ends = [*starts[1:], len(chunk)]
                assert sizes == [ends[number] - starts[number] for number in due]
            else:
                # Only the bytes from the first wanted item to the last are sent.
                assert window.input_size <= 4000 * len(due)
    special = blosc.constant(b"spam", 20_000)
    assert make_plan(4, [20_000], [[run(0, 9)]]).blocks(0, special) == []
