"""Damage Bloscpack files at random and read them, until something other than our errors happens.

    python -m tests.fuzz.fuzz_bloscpack --minutes 10 --seed 7

Each execution takes one of four targets: the header, the metadata section, the offsets, or the
whole file, which is opened and read. The files to damage are the golden ones. As in
``fuzz_chunks``, the work is done in a child with limited memory, and every execution follows from
the seed and its number. What a damaged digest would hide is reached by repairing the digest of the
metadata.
"""

import random
import struct
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

import ingot
from ingot.codecs.checksums import digest
from ingot.errors import IngotError
from ingot.formats.bloscpack import metadata, offsets
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import CHECKSUMS, Header
from ingot.stores import MemoryStore
from tests.fuzz.driver import Finding, fuzz_in_child, run_fuzzer
from tests.fuzz.fuzz_chunks import INTERESTING, MUTATIONS, save
from tests.golden.archive import unpacked

LARGEST_BASE = 20_000
# The first bytes, header and head of the metadata, hold most of the claims.
CLAIMS = 72


@cache
def bases() -> tuple[bytes, ...]:
    """Return the files to damage."""
    files = unpacked("bloscpack")
    return tuple(
        data
        for name, data in sorted(files.items())
        if name.endswith(".blp") and len(data) <= LARGEST_BASE
    )


def edit_claim(data: bytearray, choose: random.Random) -> None:
    """Overwrite a number in the header or in the head of the metadata."""
    form = choose.choice(("<i", "<q", "<B"))
    at = choose.randrange(min(CLAIMS, len(data)))
    if at + struct.calcsize(form) <= len(data):
        number = choose.choice((*INTERESTING, len(data), len(data) - 1))
        struct.pack_into(form, data, at, number & 0xFF if form == "<B" else number)


def edit_document(data: bytearray, choose: random.Random) -> None:
    """Overwrite bytes of the stored metadata, and make the digest agree with them."""
    if len(data) < 64 or not data[5] & 2 or data[41] >= len(CHECKSUMS):
        return
    room, stored = struct.unpack_from("<II", data, 48)
    if not 0 < stored <= room <= len(data) - 64:
        return
    for _ in range(choose.randrange(1, 4)):
        data[64 + choose.randrange(stored)] = choose.choice(b'{}[]":,0129-.eE\\\x00\xff aNu')
    fact = digest(list(CHECKSUMS)[data[41]], bytes(data[64 : 64 + stored]))
    data[64 + room : 64 + room + len(fact)] = fact


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *MUTATIONS[:8],
    *(edit_claim, edit_claim, edit_claim, edit_document, edit_document),
)


def damaged(seed: int, execution: int) -> tuple[bytes, random.Random]:
    """Return the file of one execution, and the source of its further choices."""
    choose = random.Random(f"{seed}:{execution}")
    data = bytearray(choose.choice(bases()))
    for _ in range(choose.choice((1, 1, 1, 2, 3, 6))):
        if data:
            choose.choice(DAMAGES)(data, choose)
    return bytes(data), choose


def execute(data: bytes, choose: random.Random) -> None:
    """Give a file to one of the targets; anything but our own errors and true data is a finding."""
    choose.choice((_header, _section, _offsets, _whole, _whole))(data, choose)


def _header(data: bytes, choose: random.Random) -> None:
    try:
        header = Header.parse(data[:32], choose.choice((None, len(data))))
    except IngotError:
        return
    assert Header.parse(header.pack()) == header
    assert header.payload is None or header.payload >= 0


def _section(data: bytes, choose: random.Random) -> None:
    try:
        value = metadata.parse(data[32 : 32 + choose.choice((10, 32, 1000, len(data)))])
        metadata.parse_description(value)
    except IngotError:
        return
    assert metadata.parse(metadata.pack(value)) == value or value != value


def _offsets(data: bytes, choose: random.Random) -> None:
    begin = choose.choice((32, len(data) // 2))
    count = choose.randrange(1, 20)
    try:
        starts = offsets.parse(data[begin:], count)
        if offsets.check(starts, begin + 8 * count, len(data), choose.choice((0, 4, 64))):
            assert (np.diff(starts) > 0).all()
        header = Header.parse(data[:32], len(data))
        row = offsets.walk(lambda at, size: data[at : at + size], header, begin, len(data))
    except IngotError:
        return
    assert (row.start + row.cbytes <= len(data)).all()


def _whole(data: bytes, choose: random.Random) -> None:
    store = MemoryStore({"a.blp": data})
    try:
        file = BloscpackFile.read(store, "a.blp")
        assert file.begin <= file.end <= file.size == len(data)
        array = ingot.open(store)
        assert isinstance(array, ingot.Array)
        whole = array[...]
    except IngotError:
        return
    assert whole.nbytes == file.row.payload
    if array.ndim and len(array):
        start, stop = sorted(choose.randrange(len(array) + 1) for _ in range(2))
        assert array[start:stop].tobytes() == whole[start:stop].tobytes()


def fuzz(
    seed: int, executions: int | None = None, seconds: float | None = None
) -> tuple[int, Finding | None]:
    """Run a child and watch it; return how many executions it did, and what it died of."""
    return fuzz_in_child(__spec__.name, damaged, seed, executions, seconds)


def main() -> int:
    bases()  # Before the memory is limited.
    return run_fuzzer(
        __doc__,
        "Bloscpack files",
        lambda seed, execution: execute(*damaged(seed, execution)),
        fuzz,
        lambda finding, seed: save(finding, "bloscpack", seed, ".blp"),
    )


if __name__ == "__main__":
    sys.exit(main())
