"""Encoded chunks: which arrays can take those of another, and what is moved untouched."""

import numpy as np
import pytest

import ingot
from ingot.engine.moves import moved, takes
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError

VALUES = np.arange(60, dtype="<i4").reshape(10, 6)


def engine(path=None, **layout):
    array = ingot.array(VALUES.astype(layout.pop("dtype", "<i4")), path, **layout)
    return engine_of(array._handle.value.chunks, ingot.Options())


def test_arrays_that_differ_in_checksums_alone_take_chunks_of_each_other():
    bare = engine(format="zarr2", chunks=(5, 6), codec="lz4")
    checked = engine(format="zarr3", chunks=(5, 6), codec="lz4")
    assert bare.chunks.schema.chain != checked.chunks.schema.chain
    assert takes(bare, checked)
    assert takes(checked, bare)


@pytest.mark.parametrize(
    "other",
    [
        {"chunks": (5, 3)},
        {"codec": "zstd"},
        {"dtype": ">i4"},
        {"dtype": "<i8"},
        {"order": "F"},
    ],
)
def test_arrays_that_decode_otherwise_take_no_chunks(other):
    same = {"format": "zarr2", "chunks": (5, 6), "codec": "lz4"}
    assert not takes(engine(**same), engine(**(same | other)))


def test_a_chunk_with_a_short_edge_is_encoded_anew_where_the_target_pads(tmp_path):
    source = engine(tmp_path / "a.bcolz", format="bcolz", chunks=4)
    codec = ingot.open(tmp_path / "a.bcolz").codec
    target = engine(tmp_path / "b", format="zarr2", chunks=(4, 6), codec=codec)
    assert takes(target, source)
    reports = []
    list(moved(source, target, lambda size, untouched: reports.append((size, untouched))))
    assert sorted(reports) == [(48, False), (96, True), (96, True)]


def test_a_damaged_chunk_is_not_moved(tmp_path):
    source = engine(tmp_path / "a", format="zarr3", chunks=(5, 6))
    target = engine(tmp_path / "b", format="zarr3", chunks=(5, 6))
    file = tmp_path / "a" / "c" / "1" / "0"
    data = bytearray(file.read_bytes())
    data[-6] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptionError):
        list(moved(source, target, lambda size, untouched: None))
    assert not list((tmp_path / "b").rglob(".g-*"))
