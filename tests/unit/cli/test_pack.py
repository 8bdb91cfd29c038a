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
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.cli import pack as module
from ingot.formats.bloscpack.header import CHECKSUMS, Header
from ingot.options import Limits, Options
from ingot.stores import FileStore
from ingot.stores.local.commit import CommitRun
from tests.command import invoke
from tests.storage import die_decided

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


def start(*arguments, **named):
    return subprocess.Popen([sys.executable, "-m", "ingot", *arguments], **named)


def run(*arguments, data=None, **named):
    """Run the command in a process of its own, with pipes."""
    return subprocess.run(
        # A limit of the size of files must not cut off what Python caches.
        [sys.executable, "-B", "-m", "ingot", *arguments],
        input=data,
        capture_output=True,
        **named,
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
    report = json.loads(invoke("info", "--json", "data.blp").stdout)["file"]
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


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("2 KiB", 2048), ("max", 2147483631)])
def test_the_size_of_chunks(data, tmp_path, text, size):
    data.write_bytes(DATA[:20])
    assert invoke("pack", "data", "-z", text).exit_code == 0
    assert Header.parse((tmp_path / "data.blp").read_bytes()).chunk_size == size


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


def test_packed_bytes_are_not_written_to_a_terminal(data, monkeypatch):
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


def test_an_append_leaves_no_lock_file_of_its_own(data, tmp_path):
    invoke("pack", "data")
    # One that succeeds, and one that fails when it has begun to write.
    rows = np.zeros((3, 5), np.uint8)
    ingot.array(rows, "rows.blp")
    for source, target, status in (("data", "data.blp", 0), ("-", "rows.blp", 1)):
        given = DATA[:11] if source == "-" else None
        assert run("pack", source, "--append", target, data=given).returncode == status
    assert sorted(os.listdir()) == ["data", "data.blp", "rows.blp"]
    with ingot.open("rows.blp", "r+") as array:
        array.append(rows)
    before = set(os.listdir())
    assert len(before) == 4
    data.write_bytes(rows.tobytes())
    assert invoke("pack", "data", "--append", "rows.blp").exit_code == 0
    assert set(os.listdir()) == before
    assert np.array_equal(ingot.open("rows.blp")[...], np.zeros((9, 5)))


def test_an_append_succeeds_though_another_writer_has_the_file_by_now(data, tmp_path, monkeypatch):
    invoke("pack", "data")
    turn = FileStore("data.blp", writable=True).writing()
    real = module._Run._append_rows

    def append(*arguments):
        added = real(*arguments)
        turn.__enter__()
        return added

    monkeypatch.setattr(module._Run, "_append_rows", append)
    try:
        said = invoke("pack", "data", "--append", "data.blp", "--verbose")
    finally:
        turn.__exit__(None, None, None)
    assert (said.exit_code, said.stderr.count("are appended")) == (0, 1)
    assert len(ingot.open("data.blp")) == 2 * len(DATA)
    # The lock file belongs to both writers.
    assert len(os.listdir()) == 3


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


def test_a_commit_that_a_dead_writer_decided_does_not_change_the_file_that_replaces_its_own(data):
    array = ingot.array(np.arange(5.0), "data.blp", attrs={"by": "hand"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            array.attrs["by"] = "machine"
    assert ".data.blp.commit" in os.listdir()
    assert invoke("pack", "data", "--force").exit_code == 0
    assert sorted(os.listdir()) == ["data", "data.blp"]
    found = ingot.open("data.blp", "r+")
    assert (found[...].tobytes(), dict(found.attrs)) == (DATA, {})
    found.attrs["by"] = "machine"
    # A reader of the file before sees the new one.
    reader = ingot.open("data.blp")
    assert invoke("pack", "data", "--force", *SMALL).exit_code == 0
    assert (reader[...].tobytes(), dict(reader.attrs)) == (DATA, {})


def test_metadata_are_saved_before_their_file_is_removed(data):
    (data.parent / "meta").write_text('{"half": "\\ud800"}')
    assert invoke("pack", "data", "-m", "meta", "--remove").exit_code == 0
    assert invoke("unpack", "data.blp", "--remove", "--meta", "saved").exit_code == 0
    assert json.loads((data.parent / "saved").read_text()) == {"half": "\ud800"}
    assert sorted(os.listdir()) == ["data", "meta", "saved"]


def test_a_source_is_removed_only_for_a_complete_result(data):
    assert invoke("pack", "data", "-o", os.devnull, "--remove").exit_code == 0
    assert invoke("pack", "data").exit_code == 0
    twice = data.parent / "twice.blp"
    twice.write_bytes(2 * (data.parent / "data.blp").read_bytes())
    assert invoke("unpack", "twice.blp", "--remove").exit_code == 2
    assert twice.exists()
    for folder in ("a", "b", "out"):
        (data.parent / folder).mkdir()
        (data.parent / folder / "x").write_bytes(folder.encode())
    said = invoke("pack", "a/x", "b/x", "-o", "out", "--force", "--remove")
    assert (said.exit_code, os.path.exists("a/x"), os.path.exists("b/x")) == (1, False, True)


def test_an_append_is_of_all_or_of_nothing(data, monkeypatch):
    limits = Limits(window_bytes=1024)
    monkeypatch.setattr(module, "Options", partial(Options, limits=limits))
    ingot.array(np.zeros((3, 2)), "rows.blp").close()
    assert invoke("pack", "rows.blp", "--append", "rows.blp", "--remove").exit_code == 1
    (data.parent / "more").write_bytes(bytes(16 * 200 + 8))
    assert invoke("pack", "more", "--append", "rows.blp").exit_code == 1
    assert ingot.open("rows.blp").shape == (3, 2)
    refused = run_with_window("rows.blp", bytes(16 * 200 + 8))
    assert refused.returncode == 1
    assert b"8 bytes are left" in refused.stderr
    assert ingot.open("rows.blp").shape == (3, 2)


def run_with_window(target, data):
    """Append a pipe to a file, with windows of 1 KiB."""
    code = (
        "import functools, sys; from ingot.cli import app, pack;"
        "from ingot.options import Limits, Options;"
        "pack.Options = functools.partial(Options, limits=Limits(window_bytes=1024));"
        f"sys.exit(app.run(['pack', '-', '--append', {target!r}]))"
    )
    return subprocess.run([sys.executable, "-B", "-c", code], input=data, capture_output=True)


def test_what_a_file_claims_of_its_length_is_not_all(data, tmp_path):
    if os.path.exists("/proc/version"):
        assert invoke("pack", "/proc/version", "-o", "version.blp").exit_code == 0
        assert invoke("unpack", "version.blp").exit_code == 0
        assert (tmp_path / "version").read_bytes() == Path("/proc/version").read_bytes()
    with open("data", "rb") as file:
        file.seek(len(DATA) - 100)
        os.lseek(file.fileno(), len(DATA) - 100, os.SEEK_SET)
        command = [sys.executable, "-B", "-m", "ingot", "pack", "-", "-o", "rest.blp"]
        assert subprocess.run(command, stdin=file).returncode == 0
    assert ingot.open("rest.blp")[...].tobytes() == DATA[-100:]


def test_standard_output_is_written_to_under_any_name(data, tmp_path):
    with open("out", "wb") as out:
        command = [sys.executable, "-B", "-m", "ingot", "pack", "data", "-o", "/dev/stdout", "-f"]
        os.symlink("/proc/self/fd/1", "link")
        command[-2] = "link"
        assert subprocess.run(command, stdout=out).returncode == 0
    assert os.path.islink("link")
    assert ingot.open("out")[...].tobytes() == DATA


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_names_may_be_any_bytes(data):
    name = os.fsdecode(b"caf\xe9")
    os.rename("data", name)
    assert run("pack", name, "--remove").returncode == 0
    assert run("unpack", name + ".blp").returncode == 0
    assert Path(name).read_bytes() == DATA
