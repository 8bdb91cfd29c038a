"""The tables of a window, and what of a chunk goes into them."""

import struct

import numpy as np
import pytest

from ingot import blosc
from ingot.blosc.header import ChunkHeader
from ingot.device.window import (
    AXIS,
    BLOCK,
    BOX,
    UNIT_ITEMS,
    BoxAxis,
    ChunkPieces,
    Spans,
    Staged,
    Window,
    WindowBuilder,
    kernel_source,
    needed_ranges,
)

DATA = np.arange(5000, dtype="<i4").tobytes()


def spans(*pairs: tuple[int, int]) -> Spans:
    begins, ends = zip(*pairs, strict=True)
    return Spans(np.array(begins), np.array(ends))


def chunk_of(codec: str = "lz4", **options: object) -> bytes:
    given = {"typesize": 4, "codec": codec, "blocksize": 4000} | options
    return blosc.compress(DATA, **given)  # type: ignore[arg-type]


def test_the_records_are_those_of_the_kernels() -> None:
    sizes = f"sizeof(Block) == {BLOCK.itemsize} && sizeof(Box) == {BOX.itemsize}"
    source = kernel_source()
    assert f"{sizes} && sizeof(Axis) == {AXIS.itemsize}" in source
    assert f"#define UNIT_ITEMS {UNIT_ITEMS}\n" in source


def test_only_needed_blocks_are_taken() -> None:
    chunk, builder = chunk_of(), WindowBuilder()
    staged = builder.add_chunk(7, chunk, len(DATA), spans((4100, 4104), (12_000, 12_001)))
    window = builder.build()
    starts = np.frombuffer(chunk, "<i4", 5, ChunkHeader.parse(chunk).header_bytes)
    sizes = np.diff(np.append(starts, len(chunk)))
    assert staged is not None
    assert (staged.start, staged.side) == (-4000, 1)
    assert window.blocks["target"].tolist() == [0, 8000]
    stored = window.blocks["source_end"] - window.blocks["source"]
    assert stored.tolist() == sizes[[1, 3]].tolist()
    assert window.input_size == sizes[[1, 3]].sum()
    assert window.room == 12_000
    assert window.chunk_owners.tolist() == [7, 7]
    assert window.block_owners.tolist() == [0] * 4 + [1] * 4
    assert window.filters
    assert not window.refers


def test_delta_takes_the_first_block_as_well() -> None:
    chunk, builder = chunk_of(filters=["delta", "shuffle"], version=2), WindowBuilder()
    staged = builder.add_chunk(0, chunk, len(DATA), spans((8000, 8004)))
    window = builder.build()
    assert staged is not None
    assert staged.start + 8000 == 4000
    assert window.blocks["target"].tolist() == [0, 4000]
    assert window.blocks["reference"].tolist() == [0, 0]
    assert window.blocks["referring"].tolist() == [0, 1]
    assert window.refers


@pytest.mark.parametrize("codec", ["zstd", "zlib", "snappy"])
def test_other_codecs_are_left_to_the_cpu(codec: str) -> None:
    assert WindowBuilder().add_chunk(0, chunk_of(codec), len(DATA), spans((0, 1))) is None


def test_chunks_that_are_not_sound_are_left_to_the_cpu() -> None:
    chunk = chunk_of()
    first = ChunkHeader.parse(chunk).header_bytes
    ones: list[tuple[int, int]] = [(12, 100), (4, 5), (first, 5), (first, 2**30), (first, -1)]
    ones.append((first, struct.unpack_from("<i", chunk, first + 4)[0]))
    for place, number in ones:
        damaged = bytearray(chunk)
        struct.pack_into("<i", damaged, place, number)
        assert WindowBuilder().add_chunk(0, damaged, len(DATA), spans((0, 1))) is None
    assert WindowBuilder().add_chunk(0, chunk[:10], len(DATA), spans((0, 1))) is None
    assert WindowBuilder().add_chunk(0, chunk, len(DATA) + 1, spans((0, 1))) is None
    assert WindowBuilder().add_chunk(0, chunk, len(DATA), spans((0, 1))) is not None


def test_repeated_values_take_no_more_input_than_the_value() -> None:
    chunk = blosc.constant(b"spa", 3_000_000)
    builder = WindowBuilder()
    staged = builder.add_chunk(0, chunk, 3_000_000, spans((100, 2_000_000)))
    window = builder.build()
    assert staged is not None
    assert (staged.start, b"".join(window.pieces)) == (-99, b"spa")
    assert len(window.blocks) > 10
    assert window.blocks["nbytes"].sum() == window.room == 2_000_000 - 99


def test_axes_of_one_step_are_joined() -> None:
    builder = WindowBuilder()
    staged = Staged(0, 0, 1)
    builder.add_box(staged, 0, 0, 4, [BoxAxis(3, 80, 80), BoxAxis(5, 16, 16), BoxAxis(4, 4, 4)])
    builder.add_box(staged, 8, 0, 4, [BoxAxis(3, 160, 80), BoxAxis(1, 7, 9), BoxAxis(20, 4, 4)])
    builder.add_box(staged, 0, 0, 4, [BoxAxis(1, 4, 4, np.array([24]), np.array([28]))])
    window = builder.build()
    assert window.boxes["axes"].tolist() == [1, 2, 1]
    assert window.boxes["items"].tolist() == [60, 60, 1]
    assert window.axes["count"].tolist() == [60, 3, 20, 1]
    assert window.boxes[["source", "target"]].tolist() == [(0, 0), (8, 0), (24, 28)]


def test_offsets_of_axes_are_tables() -> None:
    builder = WindowBuilder()
    one, two = np.array([4, 0]), np.array([8, 0, 4])
    axes = [BoxAxis(2, 0, 0, one, None), BoxAxis(3, 0, 0, two, one)]
    builder.add_box(Staged(0, 0, 0), 0, 0, 4, axes)
    window = builder.build()
    assert window.offsets.tolist() == [*one, *two, *one]
    assert window.axes["source_table"].tolist() == [0, 2]
    assert window.axes["target_table"].tolist() == [-1, 5]


def run_of(begin: int, end: int, target: int, **options: object) -> Window:
    """Return a window of bytes of a chunk that follow each other in the result."""
    builder = WindowBuilder()
    staged = builder.add_chunk(0, chunk_of(**options), len(DATA), spans((begin, end)))  # type: ignore[arg-type]
    assert staged is not None
    builder.add_box(staged, begin, target, 1, [BoxAxis(end - begin, 1, 1)])
    return builder.build()


def test_whole_blocks_of_a_run_go_to_the_result_at_once() -> None:
    """What is left are its ends, which lie in blocks of which only a part is wanted."""
    window = run_of(3000, 17_000, 0)
    assert window.blocks["direct"].tolist() == [-1, -1, -1, -1, -1]
    window = run_of(3008, 17_000, 0)
    assert window.blocks["direct"].tolist() == [-1, 992, 4992, 8992, -1]
    boxes = window.boxes[["source", "target", "items", "side", "itemsize"]].tolist()
    assert boxes == [(3008, 0, 992, 1, 1), (16_000, 12_992, 1000, 1, 1)]
    assert window.axes["count"][window.boxes["first_axis"]].tolist() == [992, 1000]
    assert len(run_of(0, 20_000, 64).boxes) == 0
    # Without a filter the chunk is stored as it is.
    assert run_of(0, 20_000, 64, filters=[]).blocks["direct"].tolist() == [64]


def test_blocks_with_other_filters_or_boxes_go_through_the_buffers() -> None:
    for filters in (["delta", "shuffle"], ["shuffle", "bitshuffle"]):
        window = run_of(0, 20_000, 0, filters=filters, version=2)
        assert window.blocks["direct"].max() == -1
        assert window.boxes["items"].tolist() == [20_000]
    builder = WindowBuilder()
    staged = builder.add_chunk(0, chunk_of(), len(DATA), spans((0, 20_000)))
    assert staged is not None
    for target in (0, 32_000):
        builder.add_box(staged, 0, target, 1, [BoxAxis(20_000, 1, 1)])
    assert builder.build().blocks["direct"].max() == -1


def test_the_chunks_of_failed_streams_are_named() -> None:
    builder = WindowBuilder()
    for owner in (3, 5, 9):
        builder.add_plain(owner, bytes(100_000))
    window = builder.build()
    assert window.chunk_owners.tolist() == [3, 3, 5, 5, 9, 9]
    assert window.failed(np.array([0, 0, 0, 2, 6, 0], np.uint32)) == [5, 9]
    assert not window.failed(np.zeros(6, np.uint32))


def test_the_input_is_written_once_and_whole() -> None:
    builder = WindowBuilder()
    builder.add_plain(0, b"spam")
    builder.add_chunk(1, chunk_of(), len(DATA), spans((4000, 8000)))
    builder.add_plain(2, memoryview(b"eggs"))
    window = builder.build()
    memory = np.zeros(window.input_size + 1, np.uint8)
    window.write_input(memory)
    assert memory.tobytes() == b"".join(window.pieces) + b"\0"
    assert memory.tobytes().startswith(b"spam")


def test_input_that_lies_in_memory_of_the_caller_is_not_copied() -> None:
    chunk = chunk_of()
    memory = np.frombuffer(b"spam" + chunk + b"eggs", np.uint8)
    builder, apart = WindowBuilder(memory), WindowBuilder()
    wanted = spans((4000, 8000), (12_000, 12_001))
    held = memoryview(memory)[4 : 4 + len(chunk)]
    for each, data in ((builder, held), (apart, chunk)):
        assert each.add_chunk(0, data, len(DATA), wanted) is not None
        each.add_plain(1, b"more")
    window, other = builder.build(), apart.build()
    assert window.pieces == (b"more",)
    assert window.input_size == len(memory) + 4
    stored, copied = (np.empty(each.input_size, np.uint8) for each in (window, other))
    window.write_input(stored)
    other.write_input(copied)
    for block, same in zip(window.blocks, other.blocks, strict=True):
        begin, end = block["source"], block["source_end"]
        assert stored[begin:end].tolist() == copied[same["source"] : same["source_end"]].tolist()


NOISE = np.random.default_rng(2).integers(0, 2**16, 200_000, "i4").tobytes()
"""Two bytes of each item are noise, so that blocks of 32 KB take half of that."""


def noisy(**options: object) -> bytes:
    given = {"typesize": 4, "blocksize": 32_000} | options
    return blosc.compress(NOISE, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("filters", [["shuffle"], ["delta", "shuffle"]])
def test_pieces_that_are_needed_suffice(filters: list[str]) -> None:
    chunk = noisy(filters=filters, version=2)
    wanted = spans((64_000, 64_004), (320_000, 320_004), (352_000, 352_004))
    found = needed_ranges(chunk[:4096], len(NOISE), wanted)
    assert found is not None
    size, ranges = found
    assert size == len(chunk)
    starts = np.frombuffer(chunk, "<i4", 25, 32).tolist()
    first = [(starts[0], starts[1])] if "delta" in filters else []
    assert ranges == [*first, (starts[2], starts[3]), (starts[10], starts[12])]
    pieces = [(0, chunk[:4096]), *((begin, chunk[begin:end]) for begin, end in ranges)]
    builder, whole = WindowBuilder(), WindowBuilder()
    assert builder.add_chunk(0, ChunkPieces(size, pieces), len(NOISE), wanted) is not None
    assert whole.add_chunk(0, chunk, len(NOISE), wanted) is not None
    assert builder.build().pieces == whole.build().pieces
    assert builder.build().blocks.tobytes() == whole.build().blocks.tobytes()
    assert WindowBuilder().add_chunk(0, ChunkPieces(size, pieces[:-1]), len(NOISE), wanted) is None


def test_ranges_of_chunks_that_are_left_to_the_cpu_are_not_known() -> None:
    wanted = spans((64_000, 64_004))
    assert needed_ranges(noisy(codec="zstd")[:4096], len(NOISE), wanted) is None
    assert needed_ranges(noisy()[:40], len(NOISE), wanted) is None
    assert needed_ranges(noisy()[:4096], len(NOISE) + 1, wanted) is None
    assert needed_ranges(b"spam", len(NOISE), wanted) is None
    constant = blosc.constant(b"spa", 3_000_000)
    assert needed_ranges(constant, 3_000_000, wanted) is None


def test_ranges_of_a_chunk_that_is_stored_as_it_is() -> None:
    chunk = noisy(level=0)
    assert needed_ranges(chunk[:4096], len(NOISE), spans((64_000, 64_004), (64_100, 64_200))) == (
        len(chunk),
        [(64_016, 64_216)],
    )
