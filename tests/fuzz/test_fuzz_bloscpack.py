"""A short run of the fuzzer of Bloscpack files."""

import random

from tests.fuzz import fuzz_bloscpack

EXECUTIONS = 1500
SEED = 20_241


def test_damaged_files_end_with_data_or_an_error() -> None:
    executions, finding = fuzz_bloscpack.fuzz(SEED, executions=EXECUTIONS)
    assert finding is None, f"execution {finding.execution} of seed {SEED}: {finding.what}"
    assert executions == EXECUTIONS


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
