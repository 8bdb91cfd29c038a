"""A short run of the fuzzer of packs in bcolz and blsk."""

import random
from collections.abc import Iterator

import pytest

import ingot
from ingot.ragged_array import RaggedArray
from ingot.stores import MemoryStore
from tests import pack_files as by_hand
from tests.fuzz import fuzz_chunks, fuzz_packs

EXECUTIONS = 1500
SEED = 20_262


def test_damaged_packs_end_with_data_or_an_error() -> None:
    executions, finding = fuzz_packs.fuzz(SEED, executions=EXECUTIONS)
    assert finding is None, f"execution {finding.execution} of seed {SEED}: {finding.what}"
    assert executions == EXECUTIONS


def test_the_corpus_holds_no_surprise_any_more() -> None:
    for path in sorted(fuzz_chunks.CORPUS.glob("*.packs")):
        for seed in range(20):
            fuzz_packs.execute(path.read_bytes(), random.Random(seed))


def test_an_execution_follows_from_its_number() -> None:
    first, again = fuzz_packs.damaged(1, 7), fuzz_packs.damaged(1, 7)
    assert first[0] == again[0]
    assert fuzz_packs.damaged(1, 8)[0] != first[0]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", fuzz_packs.KINDS)
@pytest.mark.parametrize("format", by_hand.FORMATS)
def test_the_files_to_damage_open(format: str, kind: str, compressed: bool) -> None:
    packs = [
        fuzz_packs._pack(number, kind, "nowhere", random.Random(1), compressed=compressed)
        for number in range(3)
    ]
    files = by_hand.FORMATS[format](kind, packs, fuzz_packs.ROWS, 14)
    found = ingot.open(MemoryStore(files))
    assert isinstance(found, ingot.Ragged)
    held = found.items()
    # A null of JSON that is spelled out is one like all others.
    own = [None if item == b"null" else item for item in fuzz_packs.KINDS[kind]]
    expected = [*own, *own, *own[:4]]
    stored = [None if null else held[at : at + 1].payload.tobytes() for at, null in nulls(held)]
    assert stored == expected


def nulls(items: RaggedArray) -> Iterator[tuple[int, bool]]:
    """Yield the number of each item, and whether it is null."""
    exists = [True] * len(items) if items.validity is None else items.validity.tolist()
    return ((number, not each) for number, each in enumerate(exists))


def test_most_executions_get_past_the_checksums() -> None:
    reached = 0
    for execution in range(200):
        found = fuzz_packs.Damaged.load(fuzz_packs.damaged(SEED, execution)[0])
        codec = fuzz_packs._codec_of(found)
        try:
            for each in codec.chunks(found.pack):
                each.trailer.check(each.chunk, each.header, each.trailer.number, by_hand.IDENTITY)
            reached += 1
        except ingot.errors.IngotError:
            continue
    assert reached > 100
