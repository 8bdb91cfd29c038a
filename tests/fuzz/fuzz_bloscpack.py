"""Damage Bloscpack files at random and read them, until something other than our errors happens.

    python -m tests.fuzz.fuzz_bloscpack --minutes 10 --seed 7

Each execution takes one of four targets: the header, the metadata section, the offsets, or the
whole file, which is opened and read. The files to damage are the golden ones. As in
``fuzz_chunks``, the work is done in a child with limited memory, and every execution follows from
the seed and its number. What a damaged digest would hide is reached by repairing the digest of the
metadata.
"""

import argparse
import mmap
import random
import struct
import subprocess
import sys
import tempfile
import time
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
from tests.fuzz.fuzz_chunks import (
    INTERESTING,
    MUTATIONS,
    ROOT,
    Finding,
    limit_memory,
    save,
    watch,
)
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
    with tempfile.NamedTemporaryFile() as shared:
        shared.write(bytes(8))
        shared.flush()
        options = ["--seed", str(seed), "--child", shared.name]
        if executions is not None:
            options += ["--executions", str(executions)]
        if seconds is not None:
            options += ["--minutes", str(seconds / 60)]
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.fuzz_bloscpack", *options],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        with mmap.mmap(shared.fileno(), 8, access=mmap.ACCESS_READ) as counter:
            message = watch(child, counter)
            (execution,) = struct.unpack("<q", counter[:])
    if not message:
        return execution, None
    return execution, Finding(execution, message, damaged(seed, execution)[0])


def run_child(seed: int, executions: int | None, seconds: float, path: str) -> None:
    bases()
    limit_memory()
    deadline = time.monotonic() + seconds
    with open(path, "r+b") as shared, mmap.mmap(shared.fileno(), 8) as counter:
        execution = 0
        while time.monotonic() < deadline and (executions is None or execution < executions):
            counter[:] = struct.pack("<q", execution)
            execute(*damaged(seed, execution))
            execution += 1
        counter[:] = struct.pack("<q", execution)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=None, help="how long; 1 by default")
    parser.add_argument("--executions", type=int, default=None, help="how many at most")
    parser.add_argument("--seed", type=int, default=None, help="random by default")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = random.randrange(10**9) if options.seed is None else options.seed
    seconds = None if options.minutes is None else 60 * options.minutes
    if options.child:
        run_child(seed, options.executions, seconds or 1e9, options.child)
        return 0
    if seconds is None and options.executions is None:
        seconds = 60.0
    print(f"fuzzing Bloscpack files with seed {seed}", flush=True)
    executions, finding = fuzz(seed, options.executions, seconds)
    if finding is None:
        print(f"{executions} executions, nothing found")
        return 0
    print(f"execution {finding.execution} of seed {seed}: {finding.what}")
    print(f"saved as {save(finding, 'bloscpack', seed).relative_to(ROOT)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
