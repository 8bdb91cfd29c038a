"""``ingot.blosc`` is a package whose names are loaded on first use."""

import pickle
from operator import attrgetter
from typing import Any

import pytest

import ingot
import ingot.blosc as blosc_module
from ingot import blosc
from ingot.blosc import ChunkHeader, LazyChunk

DATA = bytes(range(256)) * 40
CHUNK = blosc.compress(DATA, typesize=4, version=2, blocksize=2048)


def read(start: int, length: int) -> bytes:
    return CHUNK[start : start + length]


def test_every_way_to_import_it_gives_the_same_module() -> None:
    assert blosc_module is blosc is ingot.blosc
    assert blosc_module.decompress(ingot.blosc.compress(b"spam")) == b"spam"
    assert LazyChunk is ingot.blosc.LazyChunk


def test_its_public_names_are_listed_and_defined() -> None:
    assert set(blosc.__all__) <= set(dir(blosc))
    assert all(hasattr(blosc, name) for name in blosc.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'ingot\.blosc' has no attribute 'lzma'"):
        attrgetter("lzma")(blosc)
    assert not hasattr(blosc, "lzma")


@pytest.mark.parametrize(
    "value",
    [
        ChunkHeader.parse(CHUNK),
        ChunkHeader.parse(CHUNK).extension,
        blosc.inspect(CHUNK),
        blosc.inspect(CHUNK).blocks[0],
        blosc.inspect(CHUNK).blocks[0].streams[0],
        LazyChunk.build(read),
    ],
    ids=lambda value: type(value).__name__,
)
def test_its_values_can_be_pickled(value: Any) -> None:
    assert type(value).__name__ in blosc.__all__
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("name", [name for name in blosc.__all__ if name.islower()])
def test_its_functions_can_be_pickled(name: str) -> None:
    function = getattr(blosc, name)
    assert pickle.loads(pickle.dumps(function)) is function
