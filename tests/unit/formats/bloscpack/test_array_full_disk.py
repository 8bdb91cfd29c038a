"""Bloscpack files on a file system without space: an error, and the old state."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNTED = 'mount -t tmpfs -o size=1m none "$1" && cd "$1" && exec "$2" -B -c "$3"'

CHILD = """
import errno, os
import numpy as np
import ingot

noise = np.random.default_rng(3).integers(0, 256, 2_000_000).astype("u1")
options = ingot.Options(durability="process")

def refused(change):
    try:
        change()
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    else:
        raise AssertionError("there was no space")

def create():
    ingot.array(noise, "new.blp", options=options)

refused(create)
assert os.listdir() == [], os.listdir()
ingot.array(noise[:300_000], "a.blp", chunks=100_000, options=options)
with ingot.open("a.blp", "r+", options=options) as array:
    refused(lambda: array.append(noise))
    refused(lambda: array.resize(1_500_000) or array.__setitem__(..., noise[:1_500_000]))
    assert np.array_equal(array[:300_000], noise[:300_000])
    array.resize(300_000)
found = ingot.open("a.blp")
assert np.array_equal(found[...], noise[:300_000])
assert sorted(os.listdir()) == [".a.blp.lock", "a.blp"], os.listdir()
print("done")
"""


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Return a command that runs code in a file system of 1 MiB, which only its process sees."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", MOUNTED, "sh", str(tmp_path)]
    command.append(sys.executable)
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare, which mounts a file system for one process")
    if subprocess.run([*command, ""], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system in a namespace")
    return command


def test_no_space(small: list[str]) -> None:
    done = subprocess.run([*small, CHILD], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
