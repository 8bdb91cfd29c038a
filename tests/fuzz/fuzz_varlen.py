"""Damage files of variable-length items at random and read them, until a surprise comes.

    python -m tests.fuzz.fuzz_varlen --minutes 10 --seed 7

Each execution takes one of four targets: the header, the table, a pack, or the whole file, which is
opened, read and changed. The files to damage are made by hand, without Ingot. As in
``fuzz_chunks``, the work is done in a child with limited memory, and every execution follows from
the seed and its number. What a damaged checksum would hide is reached by files without any, and by
repairing the one of the front.
"""

import random
import struct
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

import ingot
from ingot.codecs.compressors import Blosc
from ingot.errors import IngotError
from ingot.formats.varlen.header import VarlenHeader
from ingot.formats.varlen.offsets import PackTable
from ingot.formats.varlen.packs import VarlenPacks
from ingot.ragged_array import BYTES, JSON, UTF8, ItemKind
from ingot.stores import MemoryStore
from tests import varlen_files as by_hand
from tests.fuzz.driver import Finding, fuzz_in_child, run_fuzzer
from tests.fuzz.fuzz_chunks import INTERESTING, MUTATIONS, save

KINDS = ("bytes", "utf8", "json", "<i2")
ITEMS: tuple[bytes | None, ...] = (b"[1, 2]", None, b"", b'{"a": "\xc3\xa9"}', b"12" * 20)
TABLE = 16 * 4


@cache
def bases() -> tuple[bytes, ...]:
    """Return the files to damage: of every kind, with and without packs and checksums."""
    found = []
    for kind in KINDS:
        packs = [ITEMS[:2], ITEMS[2:], ITEMS * 5]
        found += [by_hand.packed_file(packs, spare=2, dtype=kind)]
        found += [by_hand.single_file(ITEMS, spare=3, dtype=kind)]
    return (*found, *map(unchecked, found))


def unchecked(data: bytes) -> bytes:
    """Return a file whose header says that it has no checksums; what is stored of them is room."""
    plain = bytearray(data)
    plain[5] &= ~0x10
    plain[28:32] = bytes(4)
    # Without packs, a digest lies behind the only chunk. In a pack it would lie in between.
    if not plain[5] & 0x08:
        plain[6] = 0
    return bytes(plain)


def edit_claim(data: bytearray, choose: random.Random) -> None:
    """Overwrite a number of the header or of the table."""
    form = choose.choice(("<i", "<q", "<B"))
    meta = struct.unpack_from("<i", data, 24)[0] if len(data) >= 32 else 0
    place = choose.choice((0, 32 + max(0, meta)))
    at = place + choose.randrange(32 if place == 0 else TABLE)
    if at + struct.calcsize(form) <= len(data):
        number = choose.choice((*INTERESTING, len(data), len(data) - 1, len(data) - 40))
        struct.pack_into(form, data, at, number & 0xFF if form == "<B" else number)


def edit_document(data: bytearray, choose: random.Random) -> None:
    """Overwrite bytes of the metadata."""
    size = struct.unpack_from("<i", data, 24)[0] if len(data) >= 32 else 0
    for _ in range(choose.randrange(1, 4)):
        if 0 < size <= len(data) - 32:
            data[32 + choose.randrange(size)] = choose.choice(b'{}[]":,0129-.eE\\\x00\xff aNu')


def repair(data: bytearray, choose: random.Random) -> None:
    """Make the CRC-32 of the front agree with it, as far as the table says where it ends."""
    if len(data) < 32 or not data[5] & 0x10:
        return
    count, size = struct.unpack_from("<qi", data, 16)
    width = 16 if data[5] & 0x08 else 8
    end = 32 + size + width * count
    if not 32 <= end <= len(data) or size < 0:
        return
    while data[end : end + width] == b"\xff" * width:
        end += width
    data[:end] = by_hand.sealed(bytes(data[:end]))


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
    if choose.random() < 0.8:
        repair(data, choose)
    return bytes(data), choose


def execute(data: bytes, choose: random.Random) -> None:
    """Give a file to one of the targets; anything but our own errors and true data is a finding."""
    choose.choice((_header, _table, _pack, _whole, _whole, _whole))(data, choose)


def _header(data: bytes, choose: random.Random) -> None:
    try:
        header = VarlenHeader.parse(data[:32])
        header.check(len(data))
    except IngotError:
        return
    assert VarlenHeader.parse(header.pack()) == header
    assert header.table_start + header.count * header.entry_bytes <= len(data)


def _table(data: bytes, choose: random.Random) -> None:
    packed = choose.random() < 0.5
    count, begin = choose.randrange(6), choose.choice((0, 32, 200))
    entries = data[choose.randrange(8) + 32 :]
    length = choose.choice((0, 5, count, 100, 2**62))
    try:
        table = PackTable.parse(entries[: len(entries) // 16 * 16], count, packed=packed)
        table.check(length, begin, len(data), 20, nulls=choose.random() < 0.5)
    except IngotError:
        return
    assert len(table.bounds(length)) == count + 1
    assert (table.rooms(len(data))[table.starts > 0] >= 20).all()


def _pack(data: bytes, choose: random.Random) -> None:
    image = bytearray(by_hand.pack(choose.choice((ITEMS, ITEMS[:1], ()))))
    for _ in range(choose.randrange(3)):
        choose.choice(MUTATIONS[:8])(image, choose)
    packs = VarlenPacks(
        Blosc(), choose.choice(("crc32", "none")), choose.random() < 0.8, choose.random() < 0.8
    )
    kind = choose.choice((BYTES, UTF8, JSON, ItemKind.of("<i2")))
    count = choose.choice((0, 1, 5, 2**31))
    try:
        items = packs.decode(bytes(image), kind, count, 0)
    except IngotError:
        return
    assert len(items) == (count if packs.packed else 1)


def _whole(data: bytes, choose: random.Random) -> None:
    read_and_change(MemoryStore({"a.blv": data}), choose)


def read_and_change(store: MemoryStore, choose: random.Random) -> None:
    """Read the items of a store by all at once and by iteration, change them, and read them again.

    Damage may make an array of them; then there is nothing to do.
    """
    try:
        found = ingot.open(store, "r+")
        if not isinstance(found, ingot.Ragged):
            return
        items = found.items().to_list()
        assert len(items) == len(found)
        # Not a number is equal to nothing.
        assert repr(plain(list(found))) == repr(plain(items))
        more = {"utf8": "a", "bytes": b"a", "json": [1]}.get(str(found.kind), [7])
        found.append([more, None])
        if items:
            place = choose.randrange(len(items))
            found[place] = more
            items[place] = more
            assert found.delete(0) == 1
            items = items[1:]
        again = ingot.open(store)
        assert isinstance(again, ingot.Ragged)
        assert repr(plain(again.items().to_list())) == repr(plain([*items, more, None]))
    except IngotError:
        return


def plain(items: list[object]) -> list[object]:
    """Return items as Python objects; a row of numbers as a list."""
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


def fuzz(
    seed: int, executions: int | None = None, seconds: float | None = None
) -> tuple[int, Finding | None]:
    """Run a child and watch it; return how many executions it did, and what it died of."""
    return fuzz_in_child(__spec__.name, damaged, seed, executions, seconds)


def main() -> int:
    bases()  # Before the memory is limited.
    return run_fuzzer(
        __doc__,
        "files of variable-length items",
        lambda seed, execution: execute(*damaged(seed, execution)),
        fuzz,
        lambda finding, seed: save(finding, "varlen", seed, ".blv"),
    )


if __name__ == "__main__":
    sys.exit(main())
