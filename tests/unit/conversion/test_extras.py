"""What lies beside a dataset, and fields that a format does not know: kept, or listed."""

import json

import numpy as np
import pytest

import ingot
from ingot.conversion.extras import LARGEST, extra_files, read_extra
from ingot.conversion.run import node_of
from ingot.stores import MemoryStore

VALUES = np.arange(60)
FOLDERS = [
    name for name, holds in ingot.formats().items() if "array" in holds and name != "bloscpack"
]


def extras(dataset):
    node, store = node_of(dataset)
    return extra_files(node, dataset._format, store)


@pytest.mark.parametrize("format", ingot.formats())
def test_a_dataset_alone_has_no_extra_files(tmp_path, format):
    holds = ingot.formats()[format]
    (tmp_path / "beside").write_text("no part of any folder")
    if "array" in holds:
        array = ingot.array(VALUES, tmp_path / "a", format=format, chunks=20, attrs={"n": 1})
        assert extras(array) == []
    if "table" in holds:
        columns = {"a": VALUES, "in": {"b": VALUES}, "c": VALUES / 2}
        table = ingot.table(columns, tmp_path / "t", format=format, chunks=20, attrs={"n": 1})
        assert extras(table) == []
        assert extras(table["a"]) == []
    if "group" in holds:
        group = ingot.group(tmp_path / "g", format=format, attrs={"n": 1})
        group.array("x/y", VALUES, chunks=20)
        group.consolidate()
        assert extras(group) == []


@pytest.mark.parametrize("source", FOLDERS)
@pytest.mark.parametrize("target", FOLDERS)
def test_files_are_kept_where_nothing_has_their_name(tmp_path, source, target):
    given = ingot.array(VALUES, tmp_path / "a", format=source)
    (tmp_path / "a" / "notes").mkdir()
    (tmp_path / "a" / "notes" / "today.txt").write_bytes(b"warm")
    made = ingot.convert(given, tmp_path / "b", format=target, verify=True)
    assert (tmp_path / "b" / "notes" / "today.txt").read_bytes() == b"warm"
    assert made.conversion.changes == ()


def test_files_that_cannot_be_kept_are_listed(tmp_path):
    given = ingot.array(VALUES, tmp_path / "a", format="zarr2")
    (tmp_path / "a" / "notes.txt").write_bytes(b"warm")
    (tmp_path / "a" / "zarr.json").write_bytes(b"{}")
    (tmp_path / "a" / "7x").write_bytes(b"no chunk")
    (tmp_path / "a" / "large").write_bytes(bytes(LARGEST + 1))
    made = ingot.convert(given, tmp_path / "b", format="zarr2")
    assert made.conversion.changes == (
        "file 7x is not copied: the target has 7x itself",
        f"file large is not copied: it has more than {LARGEST} bytes",
        "file zarr.json is not copied: a format looks for zarr.json",
    )
    assert (tmp_path / "b" / "notes.txt").read_bytes() == b"warm"
    assert not (tmp_path / "b" / "zarr.json").exists()
    file = ingot.convert(made, tmp_path / "c.blp")
    assert file.conversion.changes[-1] == "file notes.txt is not copied: the target is a file"


def test_a_file_of_the_target_is_not_replaced():
    store = MemoryStore({"in/notes": b"old"})
    assert read_extra(store, "in", "notes", ["zarr.json"]) == (b"old", "")
    assert read_extra(store, "in", "notes", ["notes/x"]) == (None, "the target has notes itself")


@pytest.mark.parametrize("format", ["blsk", "bcolz"])
@pytest.mark.parametrize("kind", ["array", "table"])
def test_files_beside_documents_are_kept_in_the_same_format(tmp_path, format, kind):
    path = tmp_path / "a"
    if kind == "array":
        ingot.array(VALUES, path, format=format).close()
    else:
        ingot.table({"a": VALUES}, path, format=format).close()
    (path / "meta").mkdir(exist_ok=True)
    (path / "meta/units").write_bytes(b"m")
    (path / "data").mkdir(exist_ok=True)
    (path / "data/notes").write_bytes(b"m")
    ingot.convert(path, tmp_path / "b", chunks=20)
    assert (tmp_path / "b/meta/units").read_bytes() == b"m"
    assert not (tmp_path / "b/data/notes").exists()
    ingot.convert(path, tmp_path / "c", format="bcolz" if format == "blsk" else "blsk")
    assert not (tmp_path / "c/meta/units").exists()


@pytest.mark.parametrize("shards", [None, 40])
def test_unknown_fields_of_zarr3_are_kept_or_listed(tmp_path, shards):
    given = ingot.array(VALUES, tmp_path / "a.zarr", chunks=20, shards=shards)
    document = json.loads((tmp_path / "a.zarr" / "zarr.json").read_bytes())
    document["origin"] = {"must_understand": False, "by": "us"}
    (tmp_path / "a.zarr" / "zarr.json").write_text(json.dumps(document))
    given = ingot.open(tmp_path / "a.zarr")
    made = ingot.convert(given, tmp_path / "b.zarr", chunks=10)
    found = json.loads((tmp_path / "b.zarr" / "zarr.json").read_bytes())
    assert found["origin"] == document["origin"]
    assert np.array_equal(made[...], VALUES)
    other = ingot.convert(given, tmp_path / "c", format="zarr2")
    assert "field 'origin' of the metadata is dropped" in other.conversion.changes


def test_unknown_fields_of_zarr2_are_kept(tmp_path):
    root = ingot.group(tmp_path / "g", format="zarr2")
    root.array("x", VALUES)
    file = tmp_path / "g" / "x" / ".zarray"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "origin": "us"}))
    made = ingot.convert(tmp_path / "g", tmp_path / "h", verify=True)
    assert made.conversion.changes == ()
    assert json.loads((tmp_path / "h" / "x" / ".zarray").read_bytes())["origin"] == "us"
