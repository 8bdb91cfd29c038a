"""The journal that is stored, and whether it speaks of what else is.

Knows sizes and checksums of files, and what a journal says of them. Refuses to change anything: a
journal that does not fit is a matter for people, not a guess.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from ingot.errors import CorruptionError
from ingot.stores import journal as journal_bytes
from ingot.stores.dataset import Dataset
from ingot.stores.files import Inside
from ingot.stores.journal import Journal, Placed, Written, checksum
from ingot.stores.store import Extent

__all__ = ["read_journal", "summed", "verify"]

_PIECE: Final = 1 << 24


def read_journal(inside: Inside, dataset: Dataset, where: str) -> Journal | None:
    """Return the commit that is decided and not yet known to be applied, if there is one."""
    name = dataset.journal
    if inside.size(name) is None:
        return None
    found = inside.read(name, [Extent(name, 0, journal_bytes.LARGEST)])
    if found is None:
        return None
    journal = journal_bytes.parse(found[0], f"{where}: {name!r}")
    for entry in journal.entries:
        dataset.check(entry.key, where)
    return journal


def verify(journal: Journal, inside: Inside, where: str) -> None:
    """Complain about a journal that does not fit what is stored, before any of it is used."""
    for entry in journal.entries:
        if isinstance(entry, Placed):
            fact = size, crc = summed(inside, entry.staged, entry.key)
            if fact != (entry.size, entry.checksum):
                raise CorruptionError(
                    f"{where} gives {entry.key!r} {entry.size} bytes with checksum "
                    f"{entry.checksum:08x}, {size} with {crc:08x} are stored"
                )
    for key, group in groupby(journal.entries, lambda entry: entry.key):
        patches = [entry for entry in group if isinstance(entry, Written)]
        if patches:
            _verify_patches(key, patches, inside, where)


def summed(inside: Inside, *keys: str) -> tuple[int, int]:
    """Return size and checksum of the first key that is there, read piece by piece."""
    for key in keys:
        size = inside.size(key)
        if size is None:
            continue
        crc = count = 0
        while count < size:
            found = inside.read(key, [Extent(key, count, _PIECE)])
            if not found or not found[0]:
                break
            crc = checksum(found[0], crc)
            count += len(found[0])
        return count, crc
    raise CorruptionError(f"neither of {', '.join(map(repr, keys))} is there")


def _verify_patches(key: str, patches: Sequence[Written], inside: Inside, where: str) -> None:
    before = patches[0].before
    after = max(before, *(patch.start + len(patch.data) for patch in patches))
    size = inside.size(key)
    if size is None or not before <= size <= after:
        stored = "nothing is" if size is None else f"{size} are"
        raise CorruptionError(
            f"{where} patches {key!r} from {before} to {after} bytes, {stored} stored"
        )
