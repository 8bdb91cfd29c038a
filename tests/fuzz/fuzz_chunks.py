"""Damage valid chunks at random and decode them, until something other than our errors happens.

    python -m tests.fuzz.fuzz_chunks --minutes 10 --seed 7 [--kernel native|python|both]

``both`` also holds the two kernels against each other: the same data, or errors of the same class.

`driver` says how the work is done. A chunk that is found is saved under ``tests/fuzz/corpus``; the
tests replay all that are there.
"""

import random
import struct
import sys
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ingot import native
from ingot.blosc.header import ChunkHeader
from ingot.blosc.inspection import inspect
from ingot.blosc.lazy import LazyChunk
from ingot.errors import IngotError, LimitError
from tests.fuzz.driver import (
    ROOT,
    Finding,
    count_executions,
    fuzz_in_child,
    parser_of,
    report,
    seconds_of,
)
from tests.kernels import twin_may_refuse

CORPUS = Path(__file__).with_name("corpus")
SAMPLES = tuple(ROOT / "tests" / "golden" / f"blosc-{name}.tar.xz" for name in ("b1", "b2"))

LARGEST_BASE = 120_000
# One in so many chunks is also read lazily, by Python, whichever kernel is under test.
LAZY_SHARE = 8
LENGTHS = (0, -1, -65, -255, -256, -(2**31), 1, 2, 2**31 - 1)
INTERESTING = (0, 1, -1, 15, 16, 17, 127, 128, 255, 256, 2**16, 2**29, 2**31 - 1, -(2**31))


@cache
def bases() -> tuple[bytes, ...]:
    """Return the chunks to damage: the golden sample, and small ones of every codec and filter."""
    golden = [chunk for sample in SAMPLES for chunk in unpack(sample)]
    # Written by the twin, whichever kernel is under test: the same chunks from the same seed.
    python = native.choose("python").module
    data = b"".join(b"%d green bottles hanging on the wall, " % (n // 3) for n in range(200))
    written = [
        python.compress(data, 4, codec, 5, filter_name, blocksize)
        for codec in ("blosclz", "lz4", "snappy", "zlib", "zstd")
        for filter_name in ("none", "shuffle", "bitshuffle")
        for blocksize in (0, 1000)
    ]
    written += [
        python.compress2(data, 4, codec, 5, filters, 1000, split, dictionary)
        for codec in ("lz4", "zstd")
        for filters in ([], [(1, 0)], [(3, 0), (2, 0)], [(1, 0), (35, 4)])
        for split in ("always", "never")
        for dictionary in (None, data[:500])
    ]
    chunks = [chunk for chunk in golden if ChunkHeader.parse(chunk).nbytes <= LARGEST_BASE]
    return tuple(sorted(chunks) + written)


def unpack(sample: Path) -> list[bytes]:
    with tarfile.open(sample) as tar:
        members = [tar.extractfile(member) for member in tar if member.name.endswith(".chunk")]
        return [member.read() for member in members if member is not None]


def set_byte(chunk: bytearray, choose: random.Random) -> None:
    chunk[choose.randrange(len(chunk))] = choose.randrange(256)


def flip_bit(chunk: bytearray, choose: random.Random) -> None:
    chunk[choose.randrange(len(chunk))] ^= 1 << choose.randrange(8)


def edit_header(chunk: bytearray, choose: random.Random) -> None:
    chunk[choose.randrange(min(16, len(chunk)))] = choose.choice((0, 1, 2, 5, 16, 128, 255))


def edit_number(chunk: bytearray, choose: random.Random) -> None:
    """Overwrite one of the first 32-bit fields: sizes, block starts, the first stream's length."""
    at = 4 * choose.randrange(1, 16)
    if at + 4 <= len(chunk):
        value = choose.choice((*INTERESTING, len(chunk), len(chunk) - 1, len(chunk) - 16))
        struct.pack_into("<i", chunk, at, value)


def nudge_number(chunk: bytearray, choose: random.Random) -> None:
    at = 4 * choose.randrange(1, 16)
    if at + 4 <= len(chunk):
        (value,) = struct.unpack_from("<i", chunk, at)
        nudged = value + choose.choice((-17, -4, -1, 1, 4, 17))
        struct.pack_into("<i", chunk, at, max(-(2**31), min(nudged, 2**31 - 1)))


def cut(chunk: bytearray, choose: random.Random) -> None:
    del chunk[choose.randrange(1, len(chunk) + 1) :]


def extend(chunk: bytearray, choose: random.Random) -> None:
    chunk += choose.randbytes(choose.randrange(1, 40))


def copy_within(chunk: bytearray, choose: random.Random) -> None:
    length = choose.randrange(1, min(64, len(chunk)) + 1)
    source = choose.randrange(len(chunk) - length + 1)
    target = choose.randrange(len(chunk) - length + 1)
    chunk[target : target + length] = chunk[source : source + length]


def swap_codec(chunk: bytearray, choose: random.Random) -> None:
    if len(chunk) > 2:
        chunk[2] = chunk[2] & 31 | choose.randrange(8) << 5


def edit_version(chunk: bytearray, choose: random.Random) -> None:
    chunk[0] = choose.randrange(8)


def edit_extension(chunk: bytearray, choose: random.Random) -> None:
    """Overwrite a filter, its metadata, or flags of an extended header."""
    at = choose.choice((*range(16, 22), *range(24, 30), 30, 31, 31, 31))
    if at < len(chunk):
        chunk[at] = choose.choice((0, 1, 2, 3, 4, 8, 16, 32, 34, 35, 36, 48, 64, 80, 128, 255))


def toggle_extension(chunk: bytearray, _: random.Random) -> None:
    if len(chunk) > 2:
        chunk[2] ^= 5


def edit_structure(chunk: bytearray, choose: random.Random) -> None:
    """Overwrite the length of a stream, a block start or the length of the dictionary."""
    try:
        inspection = inspect(chunk)
    except IngotError:
        return
    header = inspection.header
    places = [stream.offset - 4 for block in inspection.blocks for stream in block.streams]
    places += range(header.header_bytes, header.data_start, 4)
    if inspection.dictionary:
        places += [inspection.dictionary.offset - 4] * 3
    if places:
        stored = [struct.unpack_from("<i", chunk, place)[0] for place in places]
        value = choose.choice((*LENGTHS, choose.choice(stored), choose.choice(stored) + 1))
        struct.pack_into("<i", chunk, choose.choice(places), min(value, 2**31 - 1))


def repair_length(chunk: bytearray, _: random.Random) -> None:
    """Make the header agree with the bytes again, so that damage further in is reached."""
    if len(chunk) >= 16:
        struct.pack_into("<i", chunk, 12, len(chunk))


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(set_byte, flip_bit, edit_header, edit_number, nudge_number),
    *(cut, extend, copy_within, swap_codec, repair_length),
    *(edit_version, edit_extension, toggle_extension, edit_structure, edit_structure),
)


def damaged(seed: int, execution: int) -> tuple[bytes, random.Random]:
    """Return the chunk of one execution, and the source of its further choices."""
    choose = random.Random(f"{seed}:{execution}")
    chunk = bytearray(choose.choice(bases()))
    for _ in range(choose.choice((1, 1, 1, 2, 3, 6))):
        choose.choice(MUTATIONS)(chunk, choose)
    if choose.random() < 0.5:
        repair_length(chunk, choose)
    return bytes(chunk), choose


def execute(kernel: native.Kernel, chunk: bytes, choose: random.Random) -> None:
    """Decode a chunk in every way; anything but our own errors and true data is a finding."""
    limit = choose.choice((1 << 20, 1 << 28, 2**31 - 1))
    threads = choose.choice((1, 1, 1, 2))
    whole: bytes | int | None = None
    try:
        whole = kernel.decompress(chunk, None, threads, limit)
        assert isinstance(whole, bytes)
        assert len(whole) == struct.unpack_from("<i", chunk, 4)[0] <= limit
    except IngotError:
        pass
    try:
        header = inspect(chunk).header
    except IngotError:
        if whole is not None:
            raise AssertionError("decoded, but cannot be inspected") from None
        header = None
    count = header.item_count if header else 1000
    start, stop = sorted((choose.randrange(count + 1), choose.randrange(count + 1)))
    try:
        part = kernel.decompress_slice(chunk, start, stop, None, limit)
    except LimitError:
        # A run may stand for so much that the whole leaves no memory for a part.
        return
    except IngotError:
        if whole is not None:
            raise
        return
    if isinstance(whole, bytes) and header:
        size = header.typesize
        # A view: what runs stand for may leave no memory for a copy.
        expected = memoryview(whole)[start * size : stop * size]
        assert part == expected, "a slice differs from the whole"


def fetch(chunk: bytes, choose: random.Random) -> None:
    """Read a part lazily: our errors, or what the whole has in that place.

    Blocks that reach a little into others may be refused here and not in the whole.
    """

    def read(start: int, length: int) -> bytes:
        return chunk[start : start + length]

    try:
        lazy = LazyChunk.build(read)
        items = lazy.header.item_count
        start, stop = sorted((choose.randrange(items + 1), choose.randrange(items + 1)))
        part = lazy.read(read, start, stop, limit=1 << 20)
        whole = native.kernel().decompress(chunk, None, 1, 1 << 20)
    except IngotError:
        return
    assert isinstance(whole, bytes)
    size = lazy.header.typesize
    assert part == memoryview(whole)[start * size : stop * size], "a lazy slice differs"


def compare(chunk: bytes) -> None:
    """Decode with both kernels: the same data, or errors of the same class."""
    found: list[bytes | int | type[IngotError]] = []
    for name in ("native", "python"):
        try:
            found.append(native.choose(name).module.decompress(chunk, None, 1, 1 << 20))
        except IngotError as error:
            found.append(type(error))
    if isinstance(found[1], type) and twin_may_refuse(chunk):
        return
    assert found[0] == found[1], "the kernels disagree"


def fuzz(
    kernel: str, seed: int, executions: int | None = None, seconds: float | None = None
) -> tuple[int, Finding | None]:
    """Run a child and watch it; return how many executions it did, and what it died of."""
    options = ("--kernel", kernel)
    return fuzz_in_child(__spec__.name, damaged, seed, executions, seconds, options)


def run_child(
    kernel_name: str, seed: int, executions: int | None, seconds: float, path: str
) -> None:
    both = kernel_name == "both"
    kernel = native.choose("native" if both else kernel_name).module
    bases()

    def attempt(execution: int) -> None:
        chunk, choose = damaged(seed, execution)
        execute(kernel, chunk, choose)
        if both:
            compare(chunk)
        if execution % LAZY_SHARE == 0:
            fetch(chunk, choose)

    count_executions(attempt, executions, seconds, path)


def save(finding: Finding, kernel: str, seed: int, suffix: str = ".chunk") -> Path:
    """Save a chunk that was found where the tests read it again."""
    CORPUS.mkdir(exist_ok=True)
    path = CORPUS / f"{kernel}-{seed}-{finding.execution}{suffix}"
    path.write_bytes(finding.chunk)
    return path


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--kernel", choices=("native", "python", "both"), default=native.choice().name
    )
    options = parser.parse_args()
    if options.child:
        limits = options.executions, seconds_of(options) or 1e9
        run_child(options.kernel, options.seed, *limits, options.child)
        return 0
    return report(
        f"the {options.kernel} kernel",
        options,
        lambda seed, *limits: fuzz(options.kernel, seed, *limits),
        lambda finding, seed: save(finding, options.kernel, seed),
    )


if __name__ == "__main__":
    sys.exit(main())
