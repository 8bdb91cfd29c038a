"""Streams: iterators and files of unknown length become arrays."""

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.streams import read_stream


def blocks(rows: int = 10, most: int = 3) -> Iterator[Any]:
    """Yield the rows of an array, some at a time."""
    values = np.arange(rows * 2).reshape(rows, 2)
    for first in range(0, rows, most):
        yield values[first : first + most]


@pytest.mark.parametrize("most", [0, 50, 1 << 20])
def test_blocks_come_one_behind_the_other(most: int) -> None:
    found = read_stream(blocks(), None, most)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, np.arange(20).reshape(10, 2), strict=True)


@pytest.mark.parametrize("most", [0, 100_000, 1 << 20])
def test_items_are_gathered(most: int) -> None:
    found = read_stream((n / 2 for n in range(70_000)), None, most)
    np.testing.assert_array_equal(found, np.arange(70_000) / 2, strict=True)


def test_a_type_that_is_given_is_that_of_all_items() -> None:
    found = read_stream(iter([1, 2.75, 3]), np.dtype("<i2"))
    np.testing.assert_array_equal(found, np.array([1, 2, 3], "<i2"), strict=True)
    assert read_stream(iter(()), np.dtype("<i2")).dtype == np.dtype("<i2")
    assert read_stream(iter(()), None).shape == (0,)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([[1, 2], [2.5]], "float64 follow items of type int64"),
        ([["abc"], ["abcd"]], "<U4 follow items of type <U3"),
        ([[[1, 2]], [[1, 2, 3]]], "a block of shape"),
    ],
)
def test_nothing_is_lost_by_the_type_of_the_first_block(values: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_stream(iter(values), None)


def test_bytes_are_bytes(tmp_path: Path) -> None:
    assert read_stream(iter([b"ab", bytearray(b"c"), b""]), None).tobytes() == b"abc"
    data = os.urandom(3 << 20)
    assert read_stream(io.BytesIO(data), None, 1 << 20).tobytes() == data
    assert read_stream(io.BytesIO(b""), None).shape == (0,)
    values = np.arange(1000.0)
    found = read_stream(io.BytesIO(values.tobytes()), np.dtype("<f8"))
    np.testing.assert_array_equal(found, values, strict=True)
    with pytest.raises(ValueError, match="ends after 7 bytes"):
        read_stream(io.BytesIO(b"1234567"), np.dtype("<f8"))
    with pytest.raises(ValueError, match="fixed size"):
        read_stream(io.BytesIO(b"1234567"), np.dtype(object))
    with pytest.raises(TypeError, match="binary mode"):
        read_stream(io.StringIO("text"), None)
    with pytest.raises(TypeError, match="an item of type str"):
        read_stream(iter([b"a", "b"]), None)


@pytest.mark.parametrize("format", ["zarr3", "zarr2", "bcolz"])
def test_arrays_are_made_of_streams(tmp_path: Path, format: str) -> None:
    array = ingot.array(blocks(), tmp_path / "a", format=format, chunks=4)
    np.testing.assert_array_equal(array[...], np.arange(20).reshape(10, 2), strict=True)

    def failing() -> Iterator[Any]:
        yield from blocks()
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        ingot.array(failing(), tmp_path / "b", format=format)
    assert not (tmp_path / "b").exists()


def test_a_pipe_is_read_to_its_end() -> None:
    source, sink = os.pipe()
    data = bytes(range(256)) * 1000

    def write() -> None:
        with open(sink, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    with open(source, "rb") as file:
        array = ingot.array(file)
    writer.join()
    assert array[...].tobytes() == data
