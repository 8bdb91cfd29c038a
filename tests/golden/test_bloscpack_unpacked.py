"""The same Bloscpack files, unpacked from a file and from a pipe, give their bytes or an error."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingot import pack
from ingot.errors import IngotError
from tests.golden.test_bloscpack import DAMAGED, FILES, SOUND, Case, expected, named
from tests.kernels import needs_native
from tests.storage import use_kernel

# What the metadata says of an array does not matter to its bytes.
OF_ARRAYS = {"nd_container_other", "nd_dtype_unknown", "nd_shape_not_list", "nd_shape_too_small"}


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


@contextmanager
def piped(data: bytes) -> Iterator[int]:
    """Yield a pipe that gives these bytes."""
    source, feed = os.pipe()

    def write() -> None:
        with open(feed, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield source
    finally:
        while os.read(source, 1 << 16):
            pass
        os.close(source)
        thread.join()


def unpacked_both(case: Case, folder: Path) -> Iterator[bytes]:
    """Yield what a case holds, read as a file and as a pipe."""
    (folder / "case.blp").write_bytes(FILES[case["file"]])
    with open(folder / "case.blp", "rb") as source, open(folder / "file", "wb+") as target:
        pack.unpack(source.fileno(), target.fileno())
    yield (folder / "file").read_bytes()
    with piped(FILES[case["file"]]) as pipe, open(folder / "pipe", "wb") as target:
        pack.unpack_stream(pipe, target.fileno())
    yield (folder / "pipe").read_bytes()


@pytest.mark.parametrize("case", SOUND, ids=named)
def test_sound_files_are_unpacked(case: Case, tmp_path: Path) -> None:
    order = (case.get("metadata") or {}).get("order", "C") if case["kind"] == "ndarray" else "C"
    wanted = expected(case).tobytes(order)
    for found in unpacked_both(case, tmp_path):
        assert len(found) == len(wanted)
        # The padding of structures is no part of the expected values.
        assert expected(case).dtype.names or found == wanted


@pytest.mark.parametrize("case", DAMAGED, ids=named)
def test_damaged_files_are_refused(case: Case, tmp_path: Path) -> None:
    if case["name"] in OF_ARRAYS:
        assert len(set(unpacked_both(case, tmp_path))) == 1
        return
    with pytest.raises(IngotError):
        next(unpacked_both(case, tmp_path))
