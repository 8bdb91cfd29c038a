"""Checksums of blocks, and of what lies around them, are compared once, until a file changes."""

import os
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError
from ingot.options import Options
from tests.kernels import needs_native

CHUNK = 1 << 16
DATA = np.random.default_rng(1).integers(0, 1 << 40, 3 * CHUNK)
# The file with chunk 1.
FILES = {"blsk": "data/__1__.bin", "bcolz": "data/__1.blp"}


def _change(file: Path, place: int, seconds: int) -> None:
    """Flip a bit, and let the file be this old."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    _age(file, seconds)


def _age(file: Path, seconds: int) -> None:
    moment = 1_700_000_000 - seconds
    os.utime(file, (moment, moment))


def _trailer(file: Path, number: int) -> int:
    """The place of the trailer of a chunk; slots lie in any order."""
    content = file.read_bytes()
    wanted = number.to_bytes(8, "little")
    place = content.index(b"igt1")
    while content[place + 12 : place + 20] != wanted:
        place = content.index(b"igt1", place + 1)
    return place


@pytest.fixture(params=sorted(FILES))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, int]:
    """An array, the file with its chunk 1, and the place of the trailer of that chunk."""
    path = tmp_path / "a"
    ingot.array(
        DATA, path, format=request.param, chunks=CHUNK, codec="blosc:lz4:5:shuffle:4096"
    ).close()
    file = path / FILES[request.param]
    _age(file, 0)
    return path, file, _trailer(file, 1)


def _item(array: ingot.Array, at: int) -> bool:
    return bool(array[CHUNK + at] == DATA[CHUNK + at])


@needs_native
def test_a_trailer_is_compared_again_when_its_file_has_changed(
    stored: tuple[Path, Path, int],
) -> None:
    path, file, trailer = stored
    once, always = (ingot.open(path, options=Options(verify=way)) for way in ("first", "always"))
    for array in (once, always):
        assert _item(array, 5)
    _change(file, trailer + 12, seconds=0)
    assert _item(once, 5)
    assert _item(once, CHUNK - 1), "another block of the same chunk"
    for array in (always, ingot.open(path)):
        with pytest.raises(CorruptionError, match="chunk trailer"):
            _item(array, 5)
    _age(file, seconds=1)
    with pytest.raises(CorruptionError, match="chunk trailer"):
        _item(once, 5)


@needs_native
def test_a_block_is_compared_when_it_is_first_read(stored: tuple[Path, Path, int]) -> None:
    path, file, trailer = stored
    array = ingot.open(path)
    assert _item(array, 5)
    # The last block ends where the trailer begins.
    _change(file, trailer - 1, seconds=0)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="block 127"):
            _item(array, CHUNK - 1)
        with pytest.raises(CorruptionError, match="block 127"):
            array[CHUNK : 2 * CHUNK]
    assert _item(array, 5)


@needs_native
@pytest.mark.parametrize("rows", [slice(2 * CHUNK - 1, 2 * CHUNK), slice(CHUNK, 2 * CHUNK)])
def test_a_block_is_compared_again_when_its_file_has_changed(
    stored: tuple[Path, Path, int], rows: slice
) -> None:
    path, file, trailer = stored
    once, always = (ingot.open(path, options=Options(verify=way)) for way in ("first", "always"))
    for array in (once, always):
        assert np.array_equal(array[rows], DATA[rows])
    _change(file, trailer - 1, seconds=0)
    # It has the same size and the same time, so it is taken for the same file.
    assert not np.array_equal(once[rows], DATA[rows])
    with pytest.raises(CorruptionError, match="block 127"):
        always[rows]
    _age(file, seconds=1)
    with pytest.raises(CorruptionError, match="block 127"):
        once[rows]


@needs_native
def test_a_chunk_that_moved_is_found(stored: tuple[Path, Path, int]) -> None:
    path, file, _ = stored
    reader, writer = ingot.open(path), ingot.open(path, "r+")
    assert _item(reader, 5)
    for value in range(3):
        # Other bytes lie where the chunk was, and the time of the file says nothing.
        writer[CHUNK : 2 * CHUNK] = np.random.default_rng(value).integers(0, 1 << 50, CHUNK)
        writer[CHUNK + 5] = value
        writer[:CHUNK] = value
        _age(file, seconds=10 + value)
        assert reader[CHUNK + 5] == value
        assert reader[5] == value


def _bytes_read() -> int:
    with open("/proc/self/io") as facts:
        return int(facts.readline().removeprefix("rchar:"))


@needs_native
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count bytes")
def test_known_chunks_take_their_blocks_alone(stored: tuple[Path, Path, int]) -> None:
    path, *_ = stored
    array = ingot.open(path)
    assert _item(array, 5)
    for key in (CHUNK + 5, slice(CHUNK + 100, CHUNK + 2000), slice(CHUNK, 2 * CHUNK)):
        said = array.explain(key).read
        before = _bytes_read()
        array[key]
        taken = _bytes_read() - before
        # Counting, and a look at the version, read some bytes as well.
        assert said <= taken < said + 256
        assert said < ingot.open(path).explain(key).read
