import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import KernelError
from ingot.interop import cupy
from tests.command import invoke


@pytest.fixture
def no_kernel(monkeypatch):
    def refuse():
        raise KernelError("INGOT_KERNEL=native, but the native kernel is not built: no cargo")

    monkeypatch.setattr(native, "choice", refuse)


def test_doctor_prints_everything_about_the_kernel():
    result = invoke("doctor", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    choice = native.choice()
    assert report["kernel"] == choice.name
    assert report["reason"] == choice.reason
    assert report["simd"] == choice.module.describe()["simd"]
    assert report["codecs"] == choice.module.describe()["codecs"]
    assert report["numpy"] == np.__version__
    assert report["ingot"] == ingot.__version__
    assert report["python"].endswith(platform.python_version())
    assert report["platform"] == platform.platform()
    assert report["gpu"] == cupy.describe()


def test_doctor_says_the_same_as_text():
    report = json.loads(invoke("doctor", "--json").stdout)
    result = invoke("doctor")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [f"kernel {report['kernel']}".split()] == [
        line.split() for line in lines if line.startswith("kernel")
    ]
    assert all(any(line.startswith(name) for line in lines) for name in report)


def test_doctor_reports_a_missing_kernel_and_fails(no_kernel):
    result = invoke("doctor", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["kernel"] is None
    assert report["reason"].endswith("no cargo")
    assert report["numpy"] == np.__version__
    text = invoke("doctor")
    assert text.exit_code == 1
    assert "no cargo" in text.stdout


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.stdout.strip()) == (0, ingot.__version__)


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["doctor", "--no-such-option"]])
def test_wrong_use_is_status_2(arguments):
    assert invoke(*arguments).exit_code == 2


@pytest.mark.parametrize("command", ["doctor", "demo"])
def test_command_line_without_a_usable_kernel_is_clean(command):
    result = subprocess.run(
        [sys.executable, "-m", "ingot", command],
        env={**os.environ, "INGOT_KERNEL": "cobol"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "INGOT_KERNEL is 'cobol'" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def stored_chunk(tmp_path):
    path = tmp_path / "some.chunk"
    path.write_bytes(ingot.blosc.compress(bytes(range(200)) * 20, blocksize=1000))
    return path


def test_chunk_prints_a_map(stored_chunk):
    whole = str(ingot.blosc.inspect(stored_chunk.read_bytes()))
    result = invoke("chunk", "--blocks", str(stored_chunk))
    assert result.exit_code == 0
    assert result.stdout == f"{whole}\n"
    assert "block 3 at" in result.stdout
    summary = invoke("chunk", str(stored_chunk)).stdout.splitlines()
    assert summary == [*whole.splitlines()[:3], "  4 blocks; --blocks shows them"]


def test_chunk_knows_the_checksum_of_zarr(tmp_path):
    ingot.array(np.arange(1000), tmp_path / "a.zarr").close()
    file = tmp_path / "a.zarr" / "c" / "0"
    result = invoke("chunk", file)
    assert result.exit_code == 0
    assert result.stdout.endswith("a CRC-32C behind it matches\n")
    assert json.loads(invoke("chunk", file, "--json").stdout)["checksum_matches"] is True
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    result = invoke("chunk", file)
    assert (result.exit_code, "does not match" in result.stdout) == (1, True)


def test_chunk_lays_bloscpack_files_open(tmp_path):
    ingot.array(np.arange(100_000), tmp_path / "a.blp", chunks=20_000).close()
    text = invoke("chunk", tmp_path / "a.blp").stdout
    assert "Bloscpack version 3, 800,000 bytes in 5 chunks" in text
    report = json.loads(invoke("chunk", tmp_path / "a.blp", "--json").stdout)
    one = json.loads(invoke("chunk", tmp_path / "a.blp", "-n", "2", "--json").stdout)
    assert one["start"] == report["chunks"][2]["start"]
    assert one["header"]["nbytes"] == 160_000
    assert "Blosc chunk: 160000 bytes" in invoke("chunk", tmp_path / "a.blp", "-n", "4").stdout
    lost = invoke("chunk", tmp_path / "a.blp", "-n", "5")
    assert (lost.exit_code, "chunk 5 of 5" in lost.stderr) == (1, True)


def test_chunk_says_what_another_file_looks_like(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100))
    result = invoke("chunk", tmp_path / "a.npy")
    assert result.exit_code == 1
    assert "a.npy: " in result.stderr
    assert "it looks like a .npy file of NumPy" in result.stderr


def test_chunk_prints_the_same_as_json(stored_chunk):
    result = invoke("chunk", "--json", str(stored_chunk))
    assert json.loads(result.stdout) == ingot.blosc.inspect(stored_chunk.read_bytes()).to_dict()


def test_chunk_reports_what_is_damaged(stored_chunk):
    stored_chunk.write_bytes(stored_chunk.read_bytes()[:-1])
    damaged = invoke("chunk", str(stored_chunk))
    assert (damaged.exit_code, damaged.stdout) == (1, "")
    assert "cbytes" in damaged.stderr
    missing = invoke("chunk", str(stored_chunk) + "x")
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (1, 1)


def test_a_super_chunk_file_is_laid_open(tmp_path):
    ingot.array(np.arange(100, dtype="<i4"), tmp_path / "a", format="blsk", chunks=30)
    file = str(tmp_path / "a" / "data" / "__1__.bin")
    result = invoke("chunk", file)
    assert result.exit_code == 0
    assert "super-chunk file of blsk, 4 chunks" in result.stdout
    assert result.stdout.splitlines()[-1].split()[:1] == ["3"]
    report = json.loads(invoke("chunk", file, "--json").stdout)
    assert (report["typesize"], len(report["slots"]), report["dead"]) == (4, 4, 0)
    assert [slot["rows"] for slot in report["slots"]] == [30, 30, 30, 10]
    one = invoke("chunk", file, "--number", "3")
    assert one.exit_code == 0
    assert "chunk 3 of its array, 10 rows" in one.stdout
    assert "Blosc chunk: 120 bytes" in one.stdout
    report = json.loads(invoke("chunk", file, "--number", "3", "--json").stdout)
    assert (report["slot"]["entry"], report["header"]["nbytes"]) == (3, 120)
    lost = invoke("chunk", file, "--number", "7")
    assert lost.exit_code == 1
    assert "entry 7 of the index has no chunk" in lost.stderr


def test_a_damaged_super_chunk_file_is_a_problem(tmp_path):
    ingot.array(np.arange(100), tmp_path / "a", format="bcolz", chunks=30)
    file = tmp_path / "a" / "data" / "__0.blp"
    assert invoke("chunk", str(file)).exit_code == 0
    file.write_bytes(file.read_bytes()[:-3])
    result = invoke("chunk", str(file))
    assert result.exit_code == 1
    assert "chunk trailer" in result.stdout
    chunk = tmp_path / "chunk"
    chunk.write_bytes(ingot.blosc.compress(bytes(100)))
    assert invoke("chunk", str(chunk), "--number", "0").exit_code != 0
