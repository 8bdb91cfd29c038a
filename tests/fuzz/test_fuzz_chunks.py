"""A short run of the chunk fuzzer, and every chunk that it ever found something with."""

import random
import sys
from pathlib import Path

import pytest

from tests.fuzz import fuzz_chunks, fuzz_native
from tests.kernels import load, needs_native, on_each_kernel

NATIVE_EXECUTIONS = 300_000
# By number, not by time, so that a fast machine tries the same chunks as a slow one.
PYTHON_EXECUTIONS = 40_000
BOTH_EXECUTIONS = 50_000
SEED = 20_240


def report(kernel: str, finding: fuzz_chunks.Finding | None) -> str:
    if finding is None:
        return ""
    path = fuzz_chunks.save(finding, kernel, SEED)
    return f"execution {finding.execution} of seed {SEED} ({path}): {finding.what}"


@pytest.mark.slow
@needs_native
def test_damaged_chunks_on_the_native_kernel() -> None:
    executions, finding = fuzz_chunks.fuzz("native", SEED, executions=NATIVE_EXECUTIONS)
    assert not report("native", finding)
    assert executions == NATIVE_EXECUTIONS


@pytest.mark.slow
def test_damaged_chunks_on_the_twin() -> None:
    executions, finding = fuzz_chunks.fuzz("python", SEED, executions=PYTHON_EXECUTIONS)
    assert not report("python", finding)
    assert executions == PYTHON_EXECUTIONS


@pytest.mark.slow
@needs_native
def test_both_kernels_judge_damaged_chunks_alike() -> None:
    executions, finding = fuzz_chunks.fuzz("both", SEED + 1, executions=BOTH_EXECUTIONS)
    assert not report("both", finding)
    assert executions == BOTH_EXECUTIONS


@on_each_kernel
@pytest.mark.parametrize("path", sorted(fuzz_chunks.CORPUS.glob("*.chunk")), ids=lambda p: p.stem)
def test_the_corpus_holds_no_surprise_any_more(kernel_name: str, path: Path) -> None:
    for seed in range(5):
        fuzz_chunks.execute(load(kernel_name), path.read_bytes(), random.Random(seed))
        fuzz_chunks.fetch(path.read_bytes(), random.Random(seed))


@needs_native
@pytest.mark.parametrize("path", sorted(fuzz_chunks.CORPUS.glob("*.chunk")), ids=lambda p: p.stem)
def test_both_kernels_judge_the_corpus_alike(path: Path) -> None:
    fuzz_chunks.compare(path.read_bytes())


def test_the_fuzzer_notices_a_failing_kernel() -> None:
    """A fuzzer that cannot fail proves nothing."""

    class Lying:
        def decompress(self, *_: object) -> bytes:
            raise KeyError("not one of our errors")

    with pytest.raises(KeyError):
        fuzz_chunks.execute(Lying(), fuzz_chunks.bases()[0], random.Random(0))  # type: ignore[arg-type]


def test_the_watcher_reports_how_a_child_died() -> None:
    executions, finding = fuzz_chunks.fuzz("no such kernel", SEED, executions=1)
    assert finding is not None
    assert finding.what.startswith("exit status 2: ")
    assert finding.chunk == fuzz_chunks.damaged(SEED, executions)[0]


def test_an_execution_follows_from_its_number() -> None:
    first, second = (fuzz_chunks.damaged(SEED, 17)[0] for _ in range(2))
    assert first == second
    assert first != fuzz_chunks.damaged(SEED, 18)[0]


DYING_TARGET = """#!{python}
import os, pathlib, struct
if "INGOT_FUZZ_SHOW" in os.environ:
    chunk = pathlib.Path(os.environ["INGOT_FUZZ_CHUNK"])
    chunk.write_text(f"chunk {{os.environ['INGOT_FUZZ_SEED']}}:{{os.environ['INGOT_FUZZ_SHOW']}}")
else:
    assert len(os.listdir(os.environ["INGOT_FUZZ_BASES"])) > 300
    pathlib.Path(os.environ["INGOT_FUZZ_COUNTER"]).write_bytes(struct.pack("<q", 41))
    os.kill(os.getpid(), 11)
"""


def test_the_death_of_the_built_in_target_is_a_finding(tmp_path: Path) -> None:
    program = tmp_path / "target"
    program.write_text(DYING_TARGET.format(python=sys.executable))
    program.chmod(0o755)
    executions, finding = fuzz_native.fuzz(program, fuzz_native.Request(7, 100))
    assert finding == fuzz_chunks.Finding(41, "exit status -11: ", b"chunk 7:41")
    assert executions == 41
