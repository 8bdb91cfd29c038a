"""Bloscpack files in which every byte was changed, and every truncation: errors, or what was there.

The files are read in a child with little memory: no claim of a damaged file is believed.
"""

import pytest

from tests.kernels import needs_native
from tests.limited import run_limited

# What follows the used bytes of the metadata, and spare offsets, have no meaning.
_DAMAGE = """
from ingot.engine.payload import engine_of
from ingot.formats.bloscpack.array import open_array
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import CHECKSUMS
from ingot.selection import parse
from ingot.stores import Extent, MemoryStore

options = ingot.Options()
values = np.arange(60, dtype="<i2").reshape(20, 3)

def read(data):
    chunks = open_array(MemoryStore({"a.blp": data}), "a.blp")
    schema = chunks.schema
    return engine_of(chunks, options).read(parse(..., schema.shape)), dict(schema.attrs)

for checksum in list(CHECKSUMS)[int(sys.argv[1]) :: 3]:
    store = MemoryStore()
    ingot.array(
        values, store, format="bloscpack", checksum=checksum, chunks=15, codec="blosc:zlib",
        attrs={"unit": "m"},
    )
    (sound,) = store.read([Extent("data.blp")])
    file = BloscpackFile.read(store, "data.blp")
    begin = file.begin - file.header.table_bytes
    room = range(64 + file.section.stored, 32 + file.section.digest_start)
    spare = range(begin + 8 * file.header.nchunks, file.begin)
    counts = [0, 0]
    for place in range(len(sound)):
        if place in room[1:] or place in spare[1:]:
            continue
        data = bytearray(sound)
        data[place] ^= 0x80 if place % 2 else 0x01
        try:
            found, attrs = read(bytes(data))
        except IngotError:
            counts[0] += 1
            continue
        counts[1] += 1
        if checksum != "none":
            assert found.dtype == values.dtype and np.array_equal(found, values), place
            assert attrs == {"unit": "m"}, place
    # Few bytes only inform: the typesize, options and level of the metadata, its reserved bytes.
    assert counts[0] > 100 and (checksum == "none" or counts[1] < 20), counts
    for length in range(len(sound)):
        if (length in room or length in spare) and length % 16:
            continue
        try:
            read(sound[:length])
        except IngotError:
            continue
        raise AssertionError((checksum, length))
"""

_CLAIMS = """
import struct
from ingot.formats.bloscpack.header import Header
from ingot.stores import MemoryStore

def refused(data):
    try:
        ingot.open(MemoryStore({"a.blp": data}))[...]
    except IngotError:
        return
    raise AssertionError(data[:64])

chunk = struct.pack("<BBBBiii", 2, 1, 0x13, 1, 8, 8, 24) + bytes(8)
for size in (0, 8, 2**31 - 17):
    for count in (2, 2**20, 2**40, 2**63 - 1):
        header = Header(checksum="none", chunk_size=size, last_chunk=min(size, 8), nchunks=count)
        for behind in (b"", chunk, struct.pack("<2q", 48, 72) + chunk * 2, bytes(10**5)):
            if not (count == 2 and size == 8 and len(behind) > 60):
                refused(header.pack() + behind)
# One chunk that claims to decode to two gibibytes.
for flags in (0x13, 0x21, 0x61, 0x81):
    lie = struct.pack("<BBBBiii", 2, 1, flags, 1, 2**31 - 17, 2**20, 24) + bytes(8)
    for header in (
        Header(has_offsets=False, checksum="none", chunk_size=-1, last_chunk=-1, nchunks=-1),
        Header(has_offsets=False, checksum="none", chunk_size=2**31 - 17, last_chunk=2**31 - 17),
    ):
        refused(header.pack() + lie)
"""

KERNELS = [pytest.param("native", marks=needs_native), "python"]


@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_changed_byte_and_every_truncation(kernel: str, third: int) -> None:
    run_limited(_DAMAGE, kernel, third)


@pytest.mark.parametrize("kernel", KERNELS)
def test_absurd_claims_take_no_memory(kernel: str) -> None:
    run_limited(_CLAIMS, kernel)
