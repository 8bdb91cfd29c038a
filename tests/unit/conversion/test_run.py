"""What a conversion promises: its target, what it refuses, and what happens when it fails."""

import json
import os

import numcodecs
import numpy as np
import pytest

import ingot
from ingot.containers.conversion import Conversion
from ingot.engine import transfer
from ingot.errors import CorruptionError, ExistsError, NotFoundError, UnsupportedError
from ingot.stores import MemoryStore

VALUES = np.arange(6000, dtype="<i4").reshape(60, 100)


@pytest.fixture
def source(tmp_path):
    return ingot.array(VALUES, tmp_path / "source.zarr", chunks=(7, 30), attrs={"b": 1, "a": 2})


def test_path_to_path(source, tmp_path):
    made = ingot.convert(tmp_path / "source.zarr", str(tmp_path / "b.bcolz"), chunks=8)
    assert (made.format, made.mode, made.chunks) == ("bcolz", "r+", (8, 100))
    assert np.array_equal(made[...], VALUES)
    assert list(made.attrs.items()) == [("b", 1), ("a", 2)]


def test_into_memory_and_stores(source):
    assert np.array_equal(ingot.convert(source)[...], VALUES)
    store = MemoryStore()
    made = ingot.convert(source, store, format="zarr2", codec="zlib:1")
    assert (made.format, made.codec[0].name) == ("zarr2", "zlib")
    assert np.array_equal(ingot.open(store)[...], VALUES)


def test_into_an_archive_and_back(source, tmp_path):
    ingot.convert(source, tmp_path / "a.zarr.zip", verify=True)
    made = ingot.convert(tmp_path / "a.zarr.zip", tmp_path / "b.zarr", verify=True)
    assert np.array_equal(made[...], VALUES)


def test_without_a_suffix_the_format_stays(source, tmp_path):
    assert ingot.convert(source, tmp_path / "other").format == "zarr3"


def test_layout_of_the_source_is_kept(tmp_path):
    given = ingot.array(
        VALUES, tmp_path / "a.zarr", chunks=(10, 10), shards=(20, 50), fill=7, codec="zlib:4",
        dimension_names=["y", "x"], order="F",
    )  # fmt: skip
    made = ingot.convert(given, tmp_path / "b.zarr")
    old, new = ((tmp_path / each / "zarr.json").read_text() for each in ("a.zarr", "b.zarr"))
    assert old == new
    assert made.conversion.changes == ()
    assert np.array_equal(made[...], VALUES)
    other = ingot.convert(given, tmp_path / "c", format="zarr2")
    assert (other.chunks, other.fill, other.codec[0].level) == ((10, 10), 7, 4)
    assert other.conversion.changes == (
        "shards (20, 50) are dropped",
        "dimension names ['y', 'x'] are dropped",
    )


def test_settings_change_the_layout(source, tmp_path):
    made = ingot.convert(
        source, tmp_path / "b.zarr", chunks=(10, 10), shards=(20, 50), codec="zstd:3"
    )
    assert made.chunks == (10, 10)
    assert made.conversion.changes == ()
    assert len(list((tmp_path / "b.zarr" / "c").rglob("[0-9]"))) == 3 + 3 * 2


def test_all_reasons_at_once(source, tmp_path):
    with pytest.raises(UnsupportedError) as caught:
        ingot.convert(source, tmp_path / "b.bcolz", codec="zlib:1", chunks=(5, 5), shards=(10, 10))
    text = str(caught.value)
    assert text.count(";") >= 2
    for part in ("no setting 'shards'", "Blosc", "cut an axis"):
        assert part in text
    assert not (tmp_path / "b.bcolz").exists()


def test_reasons_of_all_members(tmp_path):
    root = ingot.group(tmp_path / "a.zarr")
    root.array("flat", np.zeros(3))
    root.array("deep/cube", np.zeros((3, 3, 3)))
    with pytest.raises(UnsupportedError) as caught:
        ingot.convert(root, tmp_path / "b", format="zarr2", chunks=(5, 5))
    assert "flat: " in str(caught.value)
    assert "deep/cube: " in str(caught.value)
    assert not (tmp_path / "b").exists()


def test_an_existing_target_is_refused(source, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    ingot.array([1, 2], tmp_path / "b.zarr")
    for name in ("b.zarr", "full"):
        with pytest.raises(ExistsError):
            ingot.convert(source, tmp_path / name)
    with pytest.raises(ExistsError):
        ingot.convert(source, tmp_path / "full", overwrite=True)
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    assert ingot.open(tmp_path / "b.zarr")[...].tolist() == [1, 2]
    made = ingot.convert(source, tmp_path / "b.zarr", overwrite=True, verify=True)
    assert np.array_equal(made[...], VALUES)


def test_a_group_is_replaced_when_that_is_allowed(source, tmp_path):
    root = ingot.group(tmp_path / "b.zarr")
    root.array("old", [1, 2, 3])
    ingot.convert(source, tmp_path / "b.zarr", overwrite=True)
    assert np.array_equal(ingot.open(tmp_path / "b.zarr")[...], VALUES)
    assert not (tmp_path / "b.zarr" / "old" / "zarr.json").exists()


def test_targets_that_overlap_are_refused(tmp_path):
    root = ingot.group(tmp_path / "a.zarr")
    root.array("x", [1])
    os.symlink(tmp_path / "a.zarr", tmp_path / "link.zarr")
    for target, reason in (
        ("a.zarr", "the source itself"),
        ("link.zarr", "the source itself"),
        ("a.zarr/../a.zarr", "the source itself"),
        ("a.zarr/inside", "inside its source"),
        ("link.zarr/inside", "inside its source"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            ingot.convert(root, tmp_path / target, overwrite=True)
    with pytest.raises(UnsupportedError, match="source lies inside"):
        ingot.convert(root["x"], tmp_path / "a.zarr", overwrite=True)
    assert sorted(os.listdir(tmp_path / "a.zarr")) == [".lock", "x", "zarr.json"]
    in_memory = ingot.array([1, 2])
    with pytest.raises(UnsupportedError, match="overlaps"):
        ingot.convert(in_memory, in_memory._handle.store, overwrite=True)


def test_a_member_becomes_another_member(tmp_path):
    root = ingot.group(tmp_path / "a.zarr")
    root.array("x", VALUES)
    root.consolidate()
    ingot.convert(root["x"], tmp_path / "a.zarr" / "y", chunks=(10, 10))
    assert np.array_equal(root["y"][...], VALUES)
    assert root.consolidated


def test_a_column_becomes_an_array(tmp_path):
    table = ingot.table({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]}, tmp_path / "t.bcolz")
    assert ingot.convert(table["b"], tmp_path / "b.zarr")[...].tolist() == [4.0, 5.0, 6.0]


def test_a_missing_source(tmp_path):
    with pytest.raises(NotFoundError):
        ingot.convert(tmp_path / "absent", tmp_path / "b.zarr")
    assert os.listdir(tmp_path) == []


def test_a_damaged_source_names_the_chunk_and_leaves_no_target(kernel, source, tmp_path):
    file = tmp_path / "source.zarr" / "c" / "3" / "2"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    for target in ("b.zarr", "b.bcolz", "b.blp", "b.blsk"):
        with pytest.raises(CorruptionError) as caught:
            ingot.convert(source, tmp_path / target)
        assert any("(3, 2)" in note for note in caught.value.__notes__)
        assert not (tmp_path / target).is_file()
        with pytest.raises(NotFoundError):
            ingot.open(tmp_path / target)


def test_progress_counts_all_bytes(source, tmp_path):
    calls = []
    options = ingot.Options(limits=ingot.Limits(window_bytes=3000))
    ingot.convert(
        source,
        tmp_path / "b.zarr",
        progress=lambda done, total: calls.append((done, total)),
        verify=True,
        options=options,
    )
    assert len(calls) > 10
    assert calls == sorted(calls)
    assert {total for _, total in calls} == {2 * VALUES.nbytes}
    assert calls[-1][0] == 2 * VALUES.nbytes


def test_a_read_only_folder_is_a_source(source, tmp_path):
    for path, _, _ in os.walk(tmp_path / "source.zarr"):
        os.chmod(path, 0o555)
    try:
        made = ingot.convert(tmp_path / "source.zarr", tmp_path / "b.bcolz")
    finally:
        for path, _, _ in os.walk(tmp_path / "source.zarr"):
            os.chmod(path, 0o755)
    assert np.array_equal(made[...], VALUES)


def test_the_record(source, tmp_path):
    made = ingot.convert(source, tmp_path / "b.bcolz")
    record = made.conversion
    assert isinstance(record, Conversion)
    assert (record.source_format, record.format) == ("zarr3", "bcolz")
    assert (record.chunks, record.nbytes, record.verified) == (9, VALUES.nbytes, False)
    assert record.changes == ("chunks (7, 30) become (7, 100)",)
    assert str(record).splitlines()[1:] == ["  chunks (7, 30) become (7, 100)"]
    assert ingot.open(tmp_path / "b.bcolz").conversion is None


def _with_field(path, format):
    """Create an array whose metadata document has a field that no program knows."""
    ingot.array(np.arange(100), path, format=format, chunks=30)
    document = path / "meta" / "storage"
    text = document.read_text()
    if format == "bcolz":
        text = json.dumps({**json.loads(text), "laboratory": {"room": 7}})
    else:
        text += "laboratory: {room: 7}\n"
    document.write_text(text)


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_unknown_fields_of_documents_are_kept_by_the_same_format(tmp_path, format):
    _with_field(tmp_path / "a", format)
    made = ingot.convert(tmp_path / "a", tmp_path / "b", format=format, codec="blosc:zstd:1")
    assert not any("laboratory" in change for change in made.conversion.changes)
    assert "laboratory" in (tmp_path / "b" / "meta" / "storage").read_text()
    made.append([1, 2])
    assert "room" in (tmp_path / "b" / "meta" / "storage").read_text()
    assert ingot.open(tmp_path / "b")[...].tolist() == [*range(100), 1, 2]
    assert ingot.check(tmp_path / "b").errors == ()


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
@pytest.mark.parametrize("target", ["zarr3", "bloscpack", "bcolz", "blsk"])
def test_unknown_fields_of_documents_are_listed_by_other_formats(tmp_path, format, target):
    if target == format:
        return
    _with_field(tmp_path / "a", format)
    made = ingot.convert(tmp_path / "a", tmp_path / "b", format=target)
    assert "field 'laboratory' of the metadata is dropped" in made.conversion.changes


def test_unknown_fields_of_columns_are_kept(tmp_path):
    ingot.table({"a": [1, 2], "deep": {"b": [3, 4]}}, tmp_path / "t.bcolz")
    for column in ("a", "deep/b"):
        document = tmp_path / "t.bcolz" / column / "meta" / "storage"
        values = json.loads(document.read_text())
        document.write_text(json.dumps({**values, "laboratory": column}))
    made = ingot.convert(tmp_path / "t.bcolz", tmp_path / "u.bcolz")
    for column in ("a", "deep/b"):
        document = tmp_path / "u.bcolz" / column / "meta" / "storage"
        assert json.loads(document.read_text())["laboratory"] == column
    assert made["deep.b"][:].tolist() == [3, 4]


def test_attributes_of_text_columns_are_kept_or_listed(tmp_path):
    table = ingot.table({"a": [1, 2], "s": ["x", None]}, tmp_path / "t.bcolz")
    table["s"].attrs["unit"] = "word"
    made = ingot.convert(table, tmp_path / "t.blsk")
    assert "s: attribute 'unit' is dropped" in made.conversion.changes
    same = ingot.convert(table, tmp_path / "u.bcolz")
    assert same.conversion.changes == ()
    assert dict(same["s"].attrs) == {"unit": "word"}


def test_bytes_between_fields_are_not_compared(tmp_path):
    spaced = np.dtype({"names": ["x", "y"], "formats": ["<i2", "<f8"], "offsets": [2, 8]})
    raw = np.random.default_rng(0).integers(0, 256, 9 * spaced.itemsize, np.uint8)
    values = raw.view(spaced)
    ingot.array(values, tmp_path / "a.blp", chunks=4)
    made = ingot.convert(tmp_path / "a.blp", tmp_path / "b.zarr", verify=True)
    for name in ("x", "y"):
        assert made[...][name].tobytes() == values[name].tobytes()


def test_a_field_that_differs_is_found(tmp_path, monkeypatch):
    values = np.zeros(9, [("x", "<i2"), ("y", "<f8")])
    ingot.array(values, tmp_path / "a.blp", chunks=4)
    whole = transfer._stored

    def wrong(target, selection, items):
        items = items.copy()
        items["y"][-1] = 1
        return whole(target, selection, items)

    monkeypatch.setattr(transfer, "_stored", wrong)
    with pytest.raises(CorruptionError, match="differ"):
        ingot.convert(tmp_path / "a.blp", tmp_path / "b.zarr", chunks=3, verify=True)


def test_arrays_as_items(tmp_path):
    items = np.empty(5, object)
    items[:] = [np.arange(n, dtype="<i4") for n in (0, 3, 1, 0, 2)]
    codec = [numcodecs.VLenArray("<i4"), "zlib:1"]
    layout = {"shape": 5, "dtype": object, "chunks": 2, "codec": codec, "format": "zarr2"}
    array = ingot.create(tmp_path / "a", **layout)
    array[...] = items
    made = ingot.convert(tmp_path / "a", tmp_path / "b", chunks=3, verify=True)
    assert [each.tolist() for each in made[...]] == [each.tolist() for each in items]
    with pytest.raises(UnsupportedError, match="no arrays as items"):
        ingot.convert(tmp_path / "a", tmp_path / "c.zarr", format="zarr3")
    assert not (tmp_path / "c.zarr").exists()
