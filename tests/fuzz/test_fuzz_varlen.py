"""A short run of the fuzzer of files of variable-length items."""

import random

import pytest

import ingot
from ingot.stores import MemoryStore
from tests.fuzz import fuzz_chunks, fuzz_varlen

EXECUTIONS = 1500
SEED = 20_261


def test_damaged_files_end_with_data_or_an_error() -> None:
    executions, finding = fuzz_varlen.fuzz(SEED, executions=EXECUTIONS)
    assert finding is None, f"execution {finding.execution} of seed {SEED}: {finding.what}"
    assert executions == EXECUTIONS


def test_the_corpus_holds_no_surprise_any_more() -> None:
    for path in sorted(fuzz_chunks.CORPUS.glob("*.blv")):
        for seed in range(20):
            fuzz_varlen.execute(path.read_bytes(), random.Random(seed))


def test_an_execution_follows_from_its_number() -> None:
    first, again = fuzz_varlen.damaged(1, 7), fuzz_varlen.damaged(1, 7)
    assert first[0] == again[0]
    assert fuzz_varlen.damaged(1, 8)[0] != first[0]


@pytest.mark.parametrize("number", range(16))
def test_the_files_to_damage_open(number: int) -> None:
    data = fuzz_varlen.bases()[number]
    found = ingot.open(MemoryStore({"a.blv": data}))
    assert len(found) in (5, 30)  # type: ignore[arg-type]
    repaired = bytearray(data)
    fuzz_varlen.repair(repaired, random.Random(1))
    assert bytes(repaired) == data
