"""Where the tests keep their files.

Most tests of files are about what is stored, not about the device: nine tenths of their time on a
disk is waiting for it to sync. Their temporary folders are therefore on a file system in memory,
where the system has one and ``TMPDIR`` does not choose another place. The system calls are the
same. Tests of the local store, of killed processes and of recovery import `tmp_path` from here
and stay on the disk.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["tmp_path", "use_memory"]

_MEMORY = "/dev/shm"
_ENOUGH = 4 << 30  # Containers often have 64 MiB there, less than a run of the tests takes.
_DISK = "INGOT_TESTS_DISK"


def use_memory() -> None:
    """Put temporary folders into memory, those of child processes included."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(_MEMORY).free >= _ENOUGH:
        os.environ[_DISK] = tempfile.gettempdir()
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Replace the fixture of pytest by a folder on the disk."""
    disk = os.environ.get(_DISK)
    with tempfile.TemporaryDirectory(prefix="ingot-test-", dir=disk) as outer:
        folder = Path(outer) / "test"  # Some tests move it.
        folder.mkdir()
        yield folder
