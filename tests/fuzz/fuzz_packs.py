"""Damage packs of bcolz and blsk at random and read them, until a surprise comes.

    python -m tests.fuzz.fuzz_packs --minutes 10 --seed 7

Each execution takes one of three targets: a pack, given to the codec and to the kernel; the zone
map of a pack; or the whole dataset, which is opened, read and changed. The files to damage are made
by hand, without Ingot. What damaged checksums would hide is reached by damage that comes before
them: of the lengths and bytes of items, and of the chunks. As in ``fuzz_chunks``, the work is done
in a child with limited memory, and every execution follows from the seed and its number.
"""

import json
import random
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ingot.codecs.compressors import Blosc
from ingot.errors import IngotError
from ingot.formats.bcolz.chunk_file import PackFiles
from ingot.formats.packs import TrailedPacks
from ingot.ragged_array import ItemKind, ItemTest
from ingot.schema import PackSources
from ingot.stores import MemoryStore
from tests import pack_files as by_hand
from tests.fuzz.driver import Finding, fuzz_in_child, run_fuzzer
from tests.fuzz.fuzz_chunks import INTERESTING, MUTATIONS, save
from tests.fuzz.fuzz_varlen import read_and_change

ROWS = 5
WORDS = (b"ape", None, b"", "é".encode() * 3, b"12" * 20)
KINDS: Mapping[str, tuple[bytes | None, ...]] = {
    "bytes": WORDS,
    "utf8": WORDS,
    "json": (b"[1, 2]", None, b"null", b'{"a": "\xc3\xa9"}', b"12" * 20),
    "list<<i2>": (b"1234", None, b"", b"ab", b"12" * 20),
}
"""The items of a pack, by kind."""
ENTRIES = 32
"""The bytes of the front of a super-chunk file: head and index."""


@dataclass(frozen=True)
class Damaged:
    """A dataset, and one of its packs by itself."""

    format: str
    kind: str
    files: dict[str, bytes]
    pack: bytes

    def dump(self) -> bytes:
        """Return all of it as text, to be saved."""
        files = {key: data.hex() for key, data in self.files.items()}
        return json.dumps([self.format, self.kind, files, self.pack.hex()]).encode()

    @classmethod
    def load(cls, data: bytes) -> "Damaged":
        """Return what was saved."""
        format, kind, files, pack = json.loads(data)
        whole = {key: bytes.fromhex(text) for key, text in files.items()}
        return cls(format, kind, whole, bytes.fromhex(pack))


def damaged(seed: int, execution: int) -> tuple[bytes, random.Random]:
    """Return the dataset of one execution, and the source of its further choices."""
    choose = random.Random(f"{seed}:{execution}")
    format, kind = choose.choice(tuple(by_hand.FORMATS)), choose.choice(tuple(KINDS))
    where = choose.choice(("items", "chunks", "chunks", "pack", "document", "file", "nowhere"))
    compressed, struck = choose.random() < 0.5, choose.randrange(3)
    packs = [
        _pack(number, kind, where if number == struck else "nowhere", choose, compressed=compressed)
        for number in range(3)
    ]
    # The last pack may hold more items than count.
    count = 3 * ROWS - choose.choice((0, 0, 2))
    files = by_hand.FORMATS[format](kind, packs, ROWS, count)
    if where in ("document", "file"):
        names = [name for name in files if name.startswith("meta/") == (where == "document")]
        key = choose.choice(names)
        files[key] = _struck(files[key], choose, _edits(where))
    pack = by_hand.HEAD * (format == "bcolz") + packs[struck]
    return Damaged(format, kind, files, pack).dump(), choose


def _pack(number: int, kind: str, where: str, choose: random.Random, *, compressed: bool) -> bytes:
    """Return a pack; damage of its items and of its chunks comes before the checksums."""
    items = KINDS[kind]
    parts = by_hand.contents(items)
    zone = by_hand.zone_map(items) if kind in ("utf8", "bytes") else b""
    if where == "items":
        parts = _struck(parts[0], choose, (_edit_length,)), _struck(parts[1], choose, MUTATIONS[:8])
    damage = partial(_strike, choose=choose) if where == "chunks" else lambda chunk: None
    rows = choose.choice((ROWS, ROWS, 0, 2**31)) if where == "items" else ROWS
    image = by_hand.pack(parts, number, rows, zone, compressed=compressed, damage=damage)
    return _struck(image, choose, MUTATIONS[:8]) if where == "pack" else image


Edit = Callable[[bytearray, random.Random], None]


def _struck(data: bytes, choose: random.Random, edits: tuple[Edit, ...]) -> bytes:
    """Return bytes with one to three changes."""
    found = bytearray(data)
    for _ in range(choose.randrange(1, 4)):
        if found:
            choose.choice(edits)(found, choose)
    return bytes(found)


def _strike(chunk: bytearray, choose: random.Random) -> None:
    """Change one of the chunks of a pack, sometimes both."""
    if choose.random() < 0.6:
        choose.choice(MUTATIONS)(chunk, choose)


def _edit_length(lengths: bytearray, choose: random.Random) -> None:
    """Overwrite the length of an item."""
    at = 4 * choose.randrange(max(1, len(lengths) // 4))
    value = choose.choice((*INTERESTING, 2, 7, 40))
    struct.pack_into("<I", lengths, at, value & 0xFFFF_FFFF)


def _edit_entry(file: bytearray, choose: random.Random) -> None:
    """Overwrite a number in the front of a file: version, counts, places."""
    form = choose.choice(("<i", "<q", "<B"))
    at = choose.randrange(ENTRIES)
    if at + struct.calcsize(form) <= len(file):
        number = choose.choice((*INTERESTING, len(file), len(file) - 16, 32, 40))
        struct.pack_into(form, file, at, number & 0xFF if form == "<B" else number)


def _edit_text(document: bytearray, choose: random.Random) -> None:
    """Overwrite a byte of a document by one that means something there."""
    document[choose.randrange(len(document))] = choose.choice(b'{}[]":,0129-.eE\\\x00\xff aNu<>\n')


def _edits(where: str) -> tuple[Edit, ...]:
    own: Edit = _edit_text if where == "document" else _edit_entry
    return (*MUTATIONS[:2], *MUTATIONS[5:8], own, own, own, own)


def execute(data: bytes, choose: random.Random) -> None:
    """Give a dataset to one of the targets; all but our own errors and true data is a finding."""
    choose.choice((_codec, _codec, _zone, _whole, _whole, _whole))(Damaged.load(data), choose)


def _codec_of(found: Damaged) -> TrailedPacks:
    codec: type[TrailedPacks] = PackFiles if found.format == "bcolz" else TrailedPacks
    return codec(Blosc("lz4", shuffle=0), ROWS, ((0, by_hand.IDENTITY),))


def _codec(found: Damaged, choose: random.Random) -> None:
    """Decode a pack item by item and by the kernel: what both give is the same."""
    codec, kind = _codec_of(found), ItemKind.parse(found.kind, "kind")
    number, count = choose.randrange(3), choose.choice((ROWS, ROWS, ROWS, 0, 3, 2**29))
    try:
        items = codec.decode(found.pack, kind, count, number)
        assert len(items) == count
    except IngotError:
        items = None
    many = codec.decode_many([found.pack], kind, [count], [number], choose.choice((1, 2)))
    assert many is None or many == items
    if count != ROWS:
        return
    sources = PackSources([found.pack], None, [count], [number])
    rows = np.array(sorted(choose.sample(range(ROWS), choose.randrange(1, ROWS))), np.int64)
    taken = codec.take_many(sources, kind, rows, [len(rows)], 1)
    # A part of a pack may be sound where another is not.
    assert items is None or taken is None or taken == items.take(rows)
    marks = codec.mark_many(sources, kind, [ItemTest("isnull", ())], 1)
    if items is not None and marks is not None:
        validity = np.ones(count, np.bool_) if items.validity is None else items.validity
        assert (marks != validity).all()


def _zone(found: Damaged, choose: random.Random) -> None:
    codec = _codec_of(found)
    number = choose.randrange(3)
    try:
        size = codec.measure(found.pack)
        assert size <= len(found.pack)
        codec.zone_in(found.pack[: codec.zone_end(found.pack)], number)
        moved = codec.moved(found.pack, number, number + 1, codec)
        assert codec.decode(moved, ItemKind.parse("bytes", ""), 0, number + 1) is not None
    except IngotError:
        return


def _whole(found: Damaged, choose: random.Random) -> None:
    read_and_change(MemoryStore(found.files), choose)


def fuzz(
    seed: int, executions: int | None = None, seconds: float | None = None
) -> tuple[int, Finding | None]:
    """Run a child and watch it; return how many executions it did, and what it died of."""
    return fuzz_in_child(__spec__.name, damaged, seed, executions, seconds)


def main() -> int:
    return run_fuzzer(
        __doc__,
        "packs of bcolz and blsk",
        lambda seed, execution: execute(*damaged(seed, execution)),
        fuzz,
        lambda finding, seed: save(finding, "packs", seed, ".packs"),
    )


if __name__ == "__main__":
    sys.exit(main())
