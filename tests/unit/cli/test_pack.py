"""``ingot pack`` and ``ingot unpack`` behave as gzip does: files, names, status, messages."""

import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import ingot
from ingot.cli import app as cli
from ingot.cli import pack as module
from ingot.cli.pack import parse_size
from ingot.formats.bloscpack.header import CHECKSUMS, Header

DATA = np.sqrt(np.arange(5000)).tobytes()
SMALL = ("-z", "3000", "-n", "2")


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


def invoke(*arguments, data=None):
    return CliRunner().invoke(cli.app, list(arguments), input=data)


def start(*arguments, **named):
    return subprocess.Popen([sys.executable, "-m", "ingot", *arguments], **named)


def run(*arguments, data=None, **named):
    """Run the command in a process of its own, with pipes."""
    return subprocess.run(
        [sys.executable, "-m", "ingot", *arguments], input=data, capture_output=True, **named
    )


def test_a_file_is_packed_and_unpacked_beside_itself(data):
    assert invoke("pack", "data", *SMALL).exit_code == 0
    assert sorted(os.listdir()) == ["data", "data.blp"]
    data.unlink()
    assert invoke("unpack", "data.blp").exit_code == 0
    assert data.read_bytes() == DATA
    assert sorted(os.listdir()) == ["data", "data.blp"]


def test_success_is_silent(data):
    assert invoke("pack", "data").output == ""
    assert invoke("unpack", "data.blp", "-o", "back").output == ""
    assert invoke("unpack", "--test", "data.blp").output == ""


def test_mode_and_times_are_kept(data, tmp_path):
    data.chmod(0o640)
    os.utime(data, ns=(10**18, 10**18 + 7 * 10**9))
    invoke("pack", "data")
    invoke("unpack", "data.blp", "-o", "back")
    for name in ("data.blp", "back"):
        facts = (tmp_path / name).stat()
        assert (stat.S_IMODE(facts.st_mode), facts.st_mtime_ns) == (0o640, 10**18 + 7 * 10**9)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_options_reach_the_file(data, tmp_path, checksum):
    options = ("-c", "zstd", "-l", "1", "-t", "4", "-z", "2K", "-k", checksum, "--no-offsets")
    assert invoke("pack", "data", *options, "--filter", "bitshuffle").exit_code == 0
    header = Header.parse((tmp_path / "data.blp").read_bytes())
    assert (header.checksum, header.typesize, header.chunk_size) == (checksum, 4, 2048)
    assert not header.has_offsets
    report = json.loads(invoke("info", "--json", "data.blp").stdout)
    assert {chunk["codec"] for chunk in report["chunks"][:-1]} == {"zstd"}
    assert {chunk["filter"] for chunk in report["chunks"]} == {"bitshuffle"}
    assert invoke("unpack", "data.blp", "-o", "back").exit_code == 0
    assert (tmp_path / "back").read_bytes() == DATA


@pytest.mark.parametrize(
    "wrong",
    [
        ("-c", "rot13"),
        ("-l", "10"),
        ("-t", "0"),
        ("-z", "1T"),
        ("-z", "0"),
        ("-z", ""),
        ("-k", "crc64"),
        ("--filter", "sieve"),
        ("-n", "0"),
    ],
)
def test_wrong_options_are_status_2_and_nothing_is_written(data, wrong):
    assert invoke("pack", "data", *wrong).exit_code == 2
    assert os.listdir() == ["data"]


def test_sizes():
    assert [parse_size(text) for text in ("7", "2k", "3M", "1G")] == [7, 2048, 3 << 20, 1 << 30]
    assert parse_size("max") == 2147483631
    for text in ("", "K", "1KB", "-1", "1.5M"):
        with pytest.raises(ValueError):
            parse_size(text)


def test_an_existing_target_needs_force(data, tmp_path):
    (tmp_path / "data.blp").write_bytes(b"old")
    refused = invoke("pack", "data")
    assert refused.exit_code == 1
    assert "data.blp: the file exists already; --force replaces it" in refused.stderr
    assert (tmp_path / "data.blp").read_bytes() == b"old"
    assert invoke("pack", "data", "--force").exit_code == 0
    assert invoke("unpack", "data.blp").exit_code == 1
    assert invoke("unpack", "-f", "data.blp").exit_code == 0
    assert sorted(os.listdir()) == ["data", "data.blp"]


def test_the_file_that_is_read_is_not_replaced(data):
    result = invoke("pack", "data", "-o", "data", "--force")
    assert (result.exit_code, data.read_bytes()) == (1, DATA)
    assert "it is the file that is read" in result.stderr


def test_remove_and_keep(data, tmp_path):
    assert invoke("pack", "data", "--remove").exit_code == 0
    assert os.listdir() == ["data.blp"]
    assert invoke("unpack", "data.blp", "--keep").exit_code == 0
    assert sorted(os.listdir()) == ["data", "data.blp"]
    assert data.read_bytes() == DATA
    # A file that could not be unpacked stays.
    (tmp_path / "bad.blp").write_bytes((tmp_path / "data.blp").read_bytes()[:-1])
    assert invoke("unpack", "bad.blp", "--remove").exit_code == 1
    assert sorted(os.listdir()) == ["bad.blp", "data", "data.blp"]


def test_several_files_and_what_fails_does_not_stop_the_others(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    result = invoke("pack", "a", "missing", "b")
    assert result.exit_code == 1
    assert result.stderr == "ingot pack: missing: No such file or directory\n"
    assert sorted(os.listdir()) == ["a", "a.blp", "b", "b.blp"]
    os.mkdir("folder")
    assert invoke("unpack", "a.blp", "b.blp", "-o", "folder").exit_code == 0
    assert sorted(os.listdir("folder")) == ["a", "b"]
    assert invoke("pack", "a", "b", "-o", "one").exit_code == 1
    assert not (tmp_path / "one").exists()


def test_names(data, tmp_path):
    assert invoke("pack", "data").exit_code == 0
    skipped = invoke("pack", "data.blp")
    assert skipped.exit_code == 2
    assert "has the suffix .blp already" in skipped.stderr
    assert not (tmp_path / "data.blp.blp").exists()
    os.rename("data.blp", "other")
    refused = invoke("unpack", "other")
    assert refused.exit_code == 1
    assert "name the output by -o" in refused.stderr
    assert invoke("unpack", "other", "-o", "back").exit_code == 0
    os.mkdir("folder")
    assert invoke("pack", "folder").exit_code == 2
    os.mkdir("data.blp")
    os.rename("other", "folder/data.blp")
    assert invoke("pack", "data").exit_code == 1


def test_bytes_behind_the_end_are_a_warning(data, tmp_path):
    invoke("pack", "data")
    with open("data.blp", "ab") as file:
        file.write(b"garbage")
    for arguments in (["-o", "back"], ["--test"], ["--list"]):
        result = invoke("unpack", "data.blp", *arguments)
        assert result.exit_code == 2
        assert "data.blp: 7 bytes behind the end are ignored" in result.stderr
    assert (tmp_path / "back").read_bytes() == DATA
    assert invoke("unpack", "data.blp", "missing.blp", "--test").exit_code == 1


def test_damage_is_an_error_and_leaves_nothing(data, tmp_path):
    invoke("pack", "data", *SMALL)
    stored = bytearray((tmp_path / "data.blp").read_bytes())
    stored[-50] ^= 1
    (tmp_path / "bad.blp").write_bytes(stored)
    for arguments in ([], ["--test"], ["-o", "elsewhere"]):
        result = invoke("unpack", "bad.blp", *arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("ingot unpack: bad.blp: ")
        assert result.stdout == ""
    assert sorted(os.listdir()) == ["bad.blp", "data", "data.blp"]


def test_metadata(data, tmp_path):
    metadata = {"unit": "m", "list": [1, None, {"ä": 2.5}]}
    (tmp_path / "meta.json").write_text(json.dumps(metadata))
    assert invoke("pack", "data", "--meta", "meta.json").exit_code == 0
    printed = invoke("unpack", "data.blp", "-o", "back", "--meta", "-")
    assert (printed.exit_code, json.loads(printed.stdout)) == (0, metadata)
    assert invoke("unpack", "data.blp", "--test", "--meta", "saved.json").exit_code == 0
    assert json.loads((tmp_path / "saved.json").read_text()) == metadata
    assert invoke("unpack", "data.blp", "--test", "--meta", "saved.json").exit_code == 1
    assert invoke("unpack", "data.blp", "--test", "--meta", "saved.json", "-f").exit_code == 0
    (tmp_path / "meta.json").write_text("{")
    broken = invoke("pack", "data", "--meta", "meta.json", "--force")
    assert (broken.exit_code, "meta.json" in broken.stderr) == (1, True)
    assert invoke("pack", "data", "--meta", "no.json", "-f").exit_code == 1


def test_list(data):
    invoke("pack", "data", "-c", "zlib")
    size = os.path.getsize("data.blp")
    [row] = json.loads(invoke("unpack", "--list", "--json", "data.blp").stdout)
    assert row == {
        "file": "data.blp",
        "packed": size,
        "plain": len(DATA),
        "ratio": round(len(DATA) / size, 4),
    }
    head, line = invoke("unpack", "--list", "data.blp").stdout.splitlines()
    assert head.split() == ["packed", "plain", "ratio", "file"]
    assert line.split() == [f"{size:,}", f"{len(DATA):,}", f"{row['ratio']:.2f}", "data.blp"]


def test_verbose_says_what_is_done(data):
    packed = invoke("pack", "-v", "data")
    size = os.path.getsize("data.blp")
    assert f"data -> data.blp: {len(DATA):,} -> {size:,} bytes, ratio " in packed.stderr
    assert "data.blp: OK, 40,000 bytes" in invoke("unpack", "-v", "-t", "data.blp").stderr
    back = invoke("unpack", "-v", "data.blp", "-o", "back")
    assert f"data.blp -> back: {size:,} -> {len(DATA):,} bytes, ratio " in back.stderr


def test_a_device_is_written_to_and_not_replaced(data):
    invoke("pack", "data")
    assert invoke("unpack", "data.blp", "-o", os.devnull).exit_code == 0
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_pipes(options):
    packed = run("pack", *options, "-", data=DATA)
    assert (packed.returncode, packed.stderr) == (0, b"")
    back = run("unpack", data=packed.stdout)
    assert (back.returncode, back.stdout, back.stderr) == (0, DATA, b"")


def test_redirected_files(data, tmp_path):
    with data.open("rb") as source, open("out", "wb") as target:
        target.write(b"before")
        target.flush()
        subprocess.run(
            [sys.executable, "-m", "ingot", "pack"], stdin=source, stdout=target, check=True
        )
    stored = (tmp_path / "out").read_bytes()
    assert stored[:10] == b"beforeblpk"
    (tmp_path / "data.blp").write_bytes(stored[6:])
    assert invoke("unpack", "data.blp", "-o", "back").exit_code == 0
    assert (tmp_path / "back").read_bytes() == DATA


def test_a_pipe_that_is_closed_early_is_no_traceback(data):
    data.write_bytes(DATA * 100)
    invoke("pack", "data")
    child = start("unpack", "data.blp", "-o", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.read(10) == DATA[:10]
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait() == 1


def test_a_terminal_gets_a_bar_and_no_packed_bytes(data, monkeypatch):
    told = []

    class Terminal:
        def isatty(self):
            return True

        def write(self, text):
            told.append(text)

        def flush(self):
            pass

    monkeypatch.setattr(module.sys, "stdout", Terminal())
    with pytest.raises(module.FormatError, match="terminal"):
        module._refuse_terminal(False)
    module._refuse_terminal(True)


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_no_space_is_an_error_and_leaves_nothing(tmp_path, command):
    noise = random.Random(5).randbytes(100_000)
    (tmp_path / "noise").write_bytes(noise)
    source = "noise"
    if command == "unpack":
        invoke("pack", "noise")
        os.unlink("noise")
        source = "noise.blp"
    for options in ((), ("--force",)):
        result = run(command, source, *options, preexec_fn=limit_files)
        assert (result.returncode, result.stdout) == (1, b"")
        assert result.stderr == f"ingot {command}: {source}: File too large\n".encode()
        assert os.listdir() == [source]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["pack", "unpack"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_time_leaves_the_result_or_nothing(tmp_path, command, number):
    (tmp_path / "data").write_bytes(np.sqrt(np.arange(1_000_000)).tobytes())
    source, target, options = "data", "data.blp", ("-c", "zlib")
    if command == "unpack":
        assert invoke("pack", "data", *options).exit_code == 0
        source, target, options = "data.blp", "back", ("-o", "back")
    before = sorted(os.listdir())
    seed = 20_261_116
    chance = random.Random(seed)
    for attempt in range(4):
        child = start(command, source, *options, stderr=subprocess.PIPE)
        time.sleep(0.2 + 0.8 * chance.random())
        child.send_signal(number)
        _, said = child.communicate()
        left = sorted(set(os.listdir()) - set(before))
        assert left in ([], [target]), (seed, attempt, said)
        if left:
            if command == "pack":
                assert invoke("unpack", "--test", target).exit_code == 0
            else:
                assert os.path.getsize(target) == 8_000_000
            os.unlink(target)
        else:
            assert child.returncode not in (0, 2), (seed, attempt, said)


def test_append(data, tmp_path):
    assert invoke("pack", "data", *SMALL).exit_code == 0
    said = invoke("pack", "data", "data", "--append", "data.blp", "-v", "--no-sync")
    assert said.exit_code == 0
    assert said.stderr == "ingot pack: data -> data.blp: 40,000 bytes are appended\n" * 2
    assert invoke("unpack", "data.blp", "-o", "back").exit_code == 0
    assert (tmp_path / "back").read_bytes() == DATA * 3
    assert invoke("pack", "data", "--append", "missing.blp").exit_code == 1
    assert invoke("pack", "data", "--append", "data.blp", "-o", "x").exit_code == 1


def test_append_grows_arrays_by_whole_rows(tmp_path):
    ingot.array(np.arange(6.0).reshape(3, 2), tmp_path / "rows.blp").close()
    (tmp_path / "more").write_bytes(np.array([7.0, 8.0]).tobytes())
    assert invoke("pack", "more", "--append", "rows.blp").exit_code == 0
    assert ingot.open(tmp_path / "rows.blp")[-2:].tolist() == [[4.0, 5.0], [7.0, 8.0]]
    (tmp_path / "more").write_bytes(b"12345678")
    refused = invoke("pack", "more", "--append", "rows.blp")
    assert refused.exit_code == 1
    assert "more: 8 bytes are left, rows of rows.blp have 16" in refused.stderr


def test_a_commit_that_is_not_finished_is_an_error(data, tmp_path):
    invoke("pack", "data")
    (tmp_path / ".data.blp.commit").write_bytes(b"")
    result = invoke("unpack", "data.blp", "-o", "back")
    assert (result.exit_code, "has not finished" in result.stderr) == (1, True)
