"""Ingot and bloscpack 0.16 read what the other has written and changed."""

import collections
import collections.abc
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.errors import CorruptionError
from ingot.formats.bloscpack.header import CHECKSUMS

MOVED = "MutableMapping"


def imported() -> tuple[ModuleType, ModuleType]:
    """Return bloscpack and its module for appending.

    It takes from `collections` what is in `collections.abc` since Python 3.10.
    """
    missing = not hasattr(collections, MOVED)
    if missing:
        setattr(collections, MOVED, collections.abc.MutableMapping)
    try:
        main = pytest.importorskip("bloscpack", reason="bloscpack is not installed")
        append = pytest.importorskip("bloscpack.append")
    finally:
        if missing:
            delattr(collections, MOVED)
    return main, append


bloscpack, bloscpack_append = imported()

OPTIONS = ingot.Options(durability="process")
NAMES = {"none": "None"}


def theirs(path: Path) -> NDArray[Any]:
    """Return the array that bloscpack reads; `unpack_ndarray_from_file` leaves the file open."""
    found: NDArray[Any] = bloscpack.unpack_ndarray_from_bytes(path.read_bytes())
    return found


def bytes_of(path: Path) -> tuple[bytes, Any]:
    found: tuple[bytes, Any] = bloscpack.unpack_bytes_from_bytes(path.read_bytes())
    return found


def opened(path: Path, mode: Any = "r") -> ingot.Array:
    found = ingot.open(path, mode, options=OPTIONS)
    assert isinstance(found, ingot.Array)
    return found


def same(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and found.tobytes() == expected.tobytes()
    )


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_arrays_of_every_checksum_and_their_changes(tmp_path: Path, checksum: str) -> None:
    path = tmp_path / "a.blp"
    values = np.arange(6000.0).reshape(1000, 6)
    array = ingot.array(values, path, checksum=checksum, chunks=150, options=OPTIONS)
    assert same(theirs(path), values)
    array.append(values[:77])
    values = np.concatenate([values, values[:77]])
    assert same(theirs(path), values)
    array[100:400, 2] = values[100:400, 2] = -1.5
    assert same(theirs(path), values)
    array.attrs["unit"] = "m"
    assert same(theirs(path), values)
    array.attrs["text"] = np.random.default_rng(3).bytes(2000).hex()
    assert same(theirs(path), values)
    array.resize((333, 6))
    assert same(theirs(path), values[:333])


@pytest.mark.parametrize(
    "values",
    [
        np.array(5.5),
        np.zeros((0, 3)),
        np.zeros((3, 0), "i2"),
        np.array([b"x" * 300, b"y"]),
        np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f8")]),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.array([1 + 2j, np.nan], "c8"),
        np.arange(24, dtype=">i2").reshape(2, 3, 4),
        np.array(["a", "äöü"]),
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(tmp_path: Path, values: NDArray[Any], order: str) -> None:
    path = tmp_path / "a.blp"
    ingot.array(values, path, order=order, attrs={"a": [1, None]}, options=OPTIONS)
    assert same(theirs(path), values)


@pytest.mark.parametrize("codec", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
def test_codecs(tmp_path: Path, codec: str, shuffle: str) -> None:
    path = tmp_path / "a.blp"
    values = np.arange(20_000, dtype="<i4")
    ingot.array(values, path, codec=f"blosc:{codec}:5:{shuffle}", options=OPTIONS)
    assert same(theirs(path), values)


def test_a_file_that_grew_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    values = np.random.default_rng(2).integers(0, 2**60, 400_000)
    array = ingot.array(values[:150_000], path, chunks=40_000, options=OPTIONS)
    number = path.stat().st_ino
    for end in (150_001, 170_000, 280_000, 400_000):
        array.append(values[len(array) : end])
        assert same(theirs(path), values[:end])
    assert path.stat().st_ino == number


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("checksum", ["none", "adler32", "sha512"])
def test_plain_files_go_back_and_forth(tmp_path: Path, checksum: str, offsets: bool) -> None:
    path, more = tmp_path / "a.blp", tmp_path / "more"
    content = np.random.default_rng(4).bytes(10_000)
    (tmp_path / "a").write_bytes(content)
    arguments = bloscpack.BloscpackArgs(
        checksum=NAMES.get(checksum, checksum), offsets=offsets, max_app_chunks=lambda n: 10 * n
    )
    bloscpack.pack_file_to_file(
        str(tmp_path / "a"),
        str(path),
        chunk_size=3000,
        metadata={"who": "bloscpack"},
        bloscpack_args=arguments,
    )
    array = opened(path, "r+")
    assert array[...].tobytes() == content
    array.append(np.frombuffer(b"ours" * 100, "u1"))
    array.attrs["ours"] = 1
    content += b"ours" * 100
    assert bytes_of(path) == (content, {"who": "bloscpack", "ours": 1})
    more.write_bytes(b"theirs" * 2000)
    bloscpack_append.append(str(path), str(more))
    content += b"theirs" * 2000
    assert bytes_of(path)[0] == content
    assert opened(path)[...].tobytes() == content
    with opened(path, "r+") as again:
        again[5:8] = 0
        again.append(np.frombuffer(b"ours" * 1000, "u1"))
    content = content[:5] + bytes(3) + content[8:] + b"ours" * 1000
    assert bytes_of(path)[0] == content


def test_an_append_that_leaves_the_shape_behind_is_refused(tmp_path: Path) -> None:
    path, more = tmp_path / "a.blp", tmp_path / "more"
    ingot.array(np.arange(1000), path, chunks=300, options=OPTIONS)
    more.write_bytes(bytes(800))
    bloscpack_append.append(str(path), str(more))
    with pytest.raises(CorruptionError, match="has 8000 bytes, the chunks hold 8800"):
        opened(path)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(0, 9), max_size=3),
    dtype=st.sampled_from(["<i4", ">f8", "S3", "V5", "?", "<U2"]),
    chunk=st.integers(1, 200),
    order=st.sampled_from("CF"),
    checksum=st.sampled_from(list(CHECKSUMS)),
)
def test_any_array(
    tmp_path_factory: pytest.TempPathFactory,
    shape: list[int],
    dtype: str,
    chunk: int,
    order: str,
    checksum: str,
) -> None:
    path = tmp_path_factory.mktemp("peer") / "a.blp"
    size = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    octets = np.arange(size, dtype="u1") % 120 if dtype != "<U2" else np.zeros(size, "u1")
    values = octets.view(dtype).reshape(shape) if size else np.zeros(shape, dtype)
    ingot.array(values, path, order=order, chunk_bytes=chunk, checksum=checksum, options=OPTIONS)
    assert same(theirs(path), values)
    arguments = bloscpack.BloscpackArgs(checksum=NAMES.get(checksum, checksum))
    bloscpack.pack_ndarray_to_file(
        np.asarray(values, order="F"), str(path), bloscpack_args=arguments
    )
    assert same(np.asarray(opened(path)[...]), values)
