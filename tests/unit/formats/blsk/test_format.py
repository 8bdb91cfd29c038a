"""The format blsk: how datasets are recognised, and what it refuses to hold."""

import re
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, NotFoundError
from ingot.formats.blsk.format import BlskFormat
from ingot.stores import MemoryStore
from tests.storage import content, put


def test_the_suffix_and_the_documents_name_the_format(tmp_path: Path) -> None:
    path = tmp_path / "a.blsk"
    assert ingot.array([1, 2, 3], path).format == "blsk"
    files = [each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file()]
    assert sorted(files) == [
        ".lock",
        "data/__1__.bin",
        "meta/attributes",
        "meta/nrows",
        "meta/storage",
    ]
    assert (path / "meta" / "nrows").read_bytes() == b"3\n"
    storage = (path / "meta" / "storage").read_text()
    assert re.sub('"?[0-9a-f]{16}"?', "DIGITS", storage) == (
        "dtype: int64\n"
        "shape: [3]\n"
        "chunkshape: [131072]\n"
        "superchunksize: 16\n"
        "endianness: little\n"
        "order: C\n"
        "compression:\n"
        "  library: lz4\n"
        "  level: 5\n"
        "  filters: [shuffle]\n"
        "  x_blocksize: 16384\n"
        "fill: 0\n"
        "x_id: DIGITS\n"
    )
    path.rename(tmp_path / "b")
    assert ingot.open(tmp_path / "b").format == "blsk"


def test_bcolz_is_not_mistaken_for_blsk(tmp_path: Path) -> None:
    ingot.array([1, 2, 3], tmp_path / "a", format="bcolz")
    assert ingot.open(tmp_path / "a").format == "bcolz"


def test_nothing_is_there() -> None:
    with pytest.raises(NotFoundError, match="no meta/storage"):
        BlskFormat().open(MemoryStore())
    assert BlskFormat().from_documents(MemoryStore(), "", {"meta/attributes": b"a: 1\n"}) is None


@pytest.mark.parametrize("nrows", [b"", b"x\n", b"-1\n", b"10"])
def test_the_number_of_rows_must_be_one(nrows: bytes) -> None:
    store = MemoryStore()
    ingot.array(np.arange(10), store, format="blsk")
    put(store, {"meta/nrows": nrows})
    with pytest.raises(CorruptionError, match=r"meta/nrows: .* is no number of rows"):
        ingot.open(store)


def test_an_array_without_axes_has_one_row() -> None:
    store = MemoryStore()
    ingot.array(5, store, format="blsk")
    assert content(store)["meta/nrows"] == b"1\n"
    put(store, {"meta/nrows": b"2\n"})
    with pytest.raises(CorruptionError, match="2 rows, an array without axes has 1"):
        ingot.open(store)


def test_documents_of_another_kind_are_refused() -> None:
    store = MemoryStore()
    ingot.array([1, 2, 3], store, format="blsk")
    for text, said in [
        (b"dtype: !!python/object/apply:os.system [exit]\n", "tags are refused"),
        (b"dtype: &a int8\nshape: *a\n", "anchors are refused"),
        (b"- dtype\n", "is no mapping"),
        (b"dtype: int64\ndtype: int64\n", "repeated"),
    ]:
        put(store, {"meta/storage": text})
        with pytest.raises(FormatError, match=f"meta/storage: .*{said}"):
            ingot.open(store)
