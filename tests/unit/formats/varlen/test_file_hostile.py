"""Files of items in which every byte was changed, and every truncation: errors, or what was there.

The files are read in a child with little memory: no claim of a damaged file is believed.
"""

import pytest

from tests.kernels import needs_native
from tests.limited import run_limited

_DAMAGE = """
from ingot.stores import Extent, MemoryStore

def plain(items):
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]

def read(data):
    found = ingot.open(MemoryStore({"data.blv": data}))
    return plain(found.items().to_list()), dict(found.attrs)

KINDS = {
    "utf8": ["ape", None, "", "bé" * 40],
    "bytes": [b"\\xff" * 30, b"", None, b"x"],
    "json": [{"a": [1, None]}, None, [], "text"],
    "<i4": [[1, -2, 3], None, [], [7] * 40],
}
kind = list(KINDS)[int(sys.argv[1])]
values = KINDS[kind]
for packed in (True, False):
    store = MemoryStore()
    ingot.ragged(
        values, store, kind=kind, packed=packed, pack_bytes=40, slots=1, attrs={"unit": "m"},
        reserve=3,
    )
    (sound,) = store.read([Extent("data.blv")])
    assert read(sound) == (values, {"unit": "m"})
    counts = [0, 0]
    for place in range(len(sound)):
        for bits in (0x01, 0x80):
            data = bytearray(sound)
            data[place] ^= bits
            try:
                found = read(bytes(data))
            except IngotError:
                counts[0] += 1
                continue
            counts[1] += 1
            assert found == (values, {"unit": "m"}), place
    # Only the room behind packs has no meaning.
    assert counts[0] > 200 and counts[1] <= 2 * 3 * 4, counts
    short = 0
    for length in range(len(sound)):
        try:
            found = read(sound[:length])
        except IngotError:
            continue
        short += 1
        assert found == (values, {"unit": "m"}), length
    assert short <= 3, short
"""

_CLAIMS = """
import struct, zlib
from ingot.stores import MemoryStore

def header(count, meta, options=0x0F, checksum=0):
    return struct.pack("<4sBBBBiiqiI", b"blpk", 4, options, checksum, 1, -1, -1, count, meta, 0)

def refused(data):
    try:
        found = ingot.open(MemoryStore({"a.blv": data}))
        found[0]
        found[...]
        list(found)
    except IngotError:
        return
    raise AssertionError(data[:64])

def chunk(raw, claim=None, flags=0x13):
    size = len(raw) if claim is None else claim
    return struct.pack("<BBBBiii", 2, 1, flags, 1, size, max(1, size), 16 + len(raw)) + raw

for options in (0x0F, 0x07):
    for count in (1, 2**20, 2**40, 2**60, 2**63 - 1):
        for shape in (1, 2**31, 2**62, 2**63 - 1):
            meta = b'{"dtype":"utf8","nulls":true,"shape":[%d]}' % shape
            entry = struct.pack("<2q", 200, 0) + bytes(300)
            for behind in (b"", bytes(100), b"\\xff" * 10**5, entry):
                if count == shape == 1 and options == 0x07:
                    continue
                refused(header(count, len(meta), options) + meta + behind)
# One pack that claims to hold many items.
for items in (2**20, 2**29 - 5, 2**40, 2**62):
    for claim in (4 * items, 2**31 - 17, 0):
        meta = b'{"dtype":"bytes","nulls":true,"shape":[%d]}' % items
        at = 32 + len(meta) + 16
        for flags in (0x13, 0x21, 0x61, 0x81):
            lengths = chunk(bytes(40), min(claim, 2**31 - 17), flags)
            table = struct.pack("<2q", at, 0)
            refused(header(1, len(meta)) + meta + table + lengths + chunk(b"x" * 9))
# Lengths that add up to much more than is stored.
for length in (100, 2**31 - 17, 2**31, 2**32 - 2):
    meta = b'{"dtype":"bytes","shape":[2]}'
    table = struct.pack("<2q", 32 + len(meta) + 16, 0)
    front = header(1, len(meta)) + meta + table
    lengths = chunk(struct.pack("<2I", 1, length))
    refused(front + lengths + chunk(b"x" * 9))
    refused(front + lengths + chunk(b"x" * 9, 1 + length % 2**30, 0x21))
# Metadata that claim more than there is, or are nested deep.
refused(header(0, 2**31 - 1))
refused(header(0, 10**6) + b"[" * 10**6)
"""

KERNELS = [pytest.param("native", marks=needs_native), "python"]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_changed_byte_and_every_truncation(kernel: str, kind: int) -> None:
    run_limited(_DAMAGE, kernel, kind)


@pytest.mark.parametrize("kernel", KERNELS)
def test_absurd_claims_take_no_memory(kernel: str) -> None:
    run_limited(_CLAIMS, kernel)
