"""A short run of the fuzzer of Bloscpack files."""

import random
from pathlib import Path

import pytest

from tests.fuzz import fuzz_bloscpack, fuzz_chunks
from tests.fuzz.driver import Finding

EXECUTIONS = 1500
SEED = 20_241


def test_damaged_files_end_with_data_or_an_error() -> None:
    executions, finding = fuzz_bloscpack.fuzz(SEED, executions=EXECUTIONS)
    assert finding is None, f"execution {finding.execution} of seed {SEED}: {finding.what}"
    assert executions == EXECUTIONS


def test_findings_are_saved_as_files_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_chunks, "CORPUS", tmp_path)
    found = fuzz_chunks.save(Finding(7, "what", b"blpk"), "bloscpack", SEED, ".blp")
    assert (found.name, found.read_bytes()) == (f"bloscpack-{SEED}-7.blp", b"blpk")


def test_the_corpus_holds_no_surprise_any_more() -> None:
    for path in sorted(fuzz_chunks.CORPUS.glob("*.blp")):
        for seed in range(20):
            fuzz_bloscpack.execute(path.read_bytes(), random.Random(seed))


def test_an_execution_follows_from_its_number() -> None:
    first, again = fuzz_bloscpack.damaged(1, 7), fuzz_bloscpack.damaged(1, 7)
    assert first[0] == again[0]
    assert fuzz_bloscpack.damaged(1, 8)[0] != first[0]


def test_the_digest_of_changed_metadata_is_repaired() -> None:
    data = next(each for each in fuzz_bloscpack.bases() if each[4] == 3 and each[5] & 2)
    changed = bytearray(data)
    fuzz_bloscpack.edit_document(changed, random.Random(3))
    room, stored = (int.from_bytes(data[at : at + 4], "little") for at in (48, 52))
    assert changed[64 : 64 + stored] != data[64 : 64 + stored]
    assert changed[64 + room : 64 + room + 4] != data[64 + room : 64 + room + 4]
