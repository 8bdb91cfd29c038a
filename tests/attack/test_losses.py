"""The reports of lost data, a run each: Ingot loses nothing, and losses are counted."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from attacks import losses
from attacks.losses import CONTESTANTS, PROGRAMS, Tally

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the programs fork"),
    pytest.mark.skipif(importlib.util.find_spec("dask") is None, reason="dask is not installed"),
]
OURS = next(each for each in CONTESTANTS if each.name == "Ingot")


@pytest.mark.parametrize("program", PROGRAMS)
def test_ingot_loses_nothing(program: str, tmp_path: Path) -> None:
    found = PROGRAMS[program](OURS, str(tmp_path / "a"), random.Random(2))
    assert found.wrong == 0
    assert found.of > 0


@pytest.mark.slow
def test_ingot_loses_nothing_on_s3(capfd: pytest.CaptureFixture[str]) -> None:
    assert losses.main(["--s3", "--runs", "1", "--only", "Ingot"]) == 0
    rows = [row.split(" | ") for row in capfd.readouterr().out.splitlines()[2:]]
    assert [row[0].strip("| ") for row in rows] == list(PROGRAMS)
    for row in rows:
        assert row[2] == "0 of 1"
        lost, of = row[3].strip(" |").split(" of ")
        assert int(lost) == 0
        assert int(of) > 0


def test_a_loss_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the lock, a writer of Ingot would do what others do: nothing of one writer is left.
    monkeypatch.setattr(losses, "_together", lambda jobs: [1 for _ in jobs])
    assert PROGRAMS["shards"](OURS, str(tmp_path / "a"), random.Random(1)) == Tally(8, 8)


def test_the_command_prints_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert losses.main(["shards", "--runs", "1", "--only", "Ingot"]) == 0
    assert "| shards | Ingot | 0 of 1 | 0 of 8 |" in capsys.readouterr().out
