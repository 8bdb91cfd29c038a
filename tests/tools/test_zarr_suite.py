"""zarr-python's own tests run with Ingot's pipeline: what passes without it passes with it.

The tests come from the source archive of the newest zarr-python, which needs Python 3.12. The test
makes an environment for them.
"""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.interpreters import find_newer_python
from tests.architecture.source import ROOT

# The files that read and write arrays, and those of codecs, shards and pipelines.
FILES = (
    *("test_array.py", "test_indexing.py", "test_v2.py", "test_resize.py", "test_codecs"),
    *("test_api.py", "test_unified_chunk_grid.py", "test_regression"),
    *("test_codec_pipeline.py", "test_codec_pipeline_suite.py", "test_fastpath_equivalence.py"),
)
PACKAGES = ("pytest", "pytest-asyncio", "pytest-xdist", "pytest-timeout", "pytest-benchmark")
NEEDED = (*PACKAGES, "hypothesis", "numpydoc", "tomlkit", "fsspec", "pyyaml")

DIFFERENCES = {
    "test_encoded_subchunk_write_order": "chunks lie in a shard in the order of the grid, not in "
    "the order of a curve; every reader finds them by the index",
    "test_sharding_partial_shard_read__index_chunk_slice_fails": "the test lets reads of a mocked "
    "store fail; in a folder the kernel reads the file itself",
}
"""Tests that fail with the pipeline, with the reason."""

PIPELINE = "ingot.interop.zarr.IngotCodecPipeline"
# The module of the pipeline adds this filter, and pytest removes it before each test.
LOCK_FILES = "ignore:Object at .lock is not recognized"


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """The Python of the environment, and the folder of zarr's source."""
    newer = find_newer_python()
    if newer is None:
        pytest.skip("no Python 3.12 or later was found, which the newest zarr-python needs")
    folder = tmp_path_factory.mktemp("zarr")
    run([newer, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv" / "bin" / "python")
    made = run([python, "-m", "pip", "install", "-q", "zarr", *NEEDED])
    if made.returncode:
        pytest.skip(f"zarr-python cannot be installed: {made.stderr[-300:]}")
    version = run([python, "-c", "import zarr; print(zarr.__version__)"], check=True).stdout.strip()
    pip = [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "zarr"]
    got = run([*pip, "-d", str(folder), f"zarr=={version}"])
    archives = list(folder.glob("zarr-*.tar.gz"))
    if got.returncode or not archives:
        pytest.skip(f"the source of zarr-python cannot be had: {got.stderr[-300:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return python, next(path for path in folder.glob("zarr-*") if path.is_dir())


def entry_points(folder: Path) -> Path:
    """Describe the pipeline to Python's metadata, as the installed package does."""
    info = folder / "ingot_pipeline-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ingot-pipeline\nVersion: 0\n")
    name = PIPELINE.replace(".Ingot", ":Ingot")
    (info / "entry_points.txt").write_text(f"[zarr.codec_pipeline]\ningot = {name}\n")
    return folder


def failures(suite, tests, *, pipeline: bool, folder: Path) -> set[str]:
    """Run tests of zarr-python; return the names of those that fail."""
    python, source = suite
    variables = {**os.environ, "PYTHONPATH": ""}
    if pipeline:
        paths = [str(ROOT / "src"), str(entry_points(folder))]
        variables["PYTHONPATH"] = os.pathsep.join(paths)
        variables["ZARR_CODEC_PIPELINE__PATH"] = PIPELINE
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning", "--tb=no"]
    options += ["--timeout", "120", "-n", "2", "-o", "addopts="]
    options += ["-W", LOCK_FILES]
    # Of files that a version of zarr-python lacks, the tests are not run.
    tests = [name for name in tests if (source / name.partition("::")[0]).exists()]
    result = run([python, "-m", "pytest", *options, *tests], cwd=source, env=variables)
    assert re.search(r"\d+ passed", result.stdout), result.stdout[-3000:] + result.stderr[-2000:]
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    return set(found)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")
@pytest.mark.skipif(
    os.environ.get("INGOT_KERNEL") == "python", reason="they run once, on the kernel that is built"
)
def test_the_tests_of_zarr_pass_with_the_pipeline(suite, tmp_path):
    tests = [f"tests/{name}" for name in FILES]
    failed = failures(suite, tests, pipeline=True, folder=tmp_path)
    expected = {name for name in failed if re.sub(r".*::|\[.*", "", name) in DIFFERENCES}
    others = sorted(failed - expected)
    # A test that fails without the pipeline, too, says nothing of it.
    ours = others and set(others) - failures(suite, others, pipeline=False, folder=tmp_path)
    assert not ours
    assert {re.sub(r".*::|\[.*", "", name) for name in expected} == set(DIFFERENCES)
