"""Lost documents of bcolz are rebuilt from chunk files and folders, as far as these tell."""

import os

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError
from ingot.formats.bcolz.check import suspects
from ingot.stores import LocalStore

NUMBERS = np.arange(1000)
FLOATS = NUMBERS * 1.5
WORDS = np.array([b"%d" % n for n in NUMBERS], "S5")


def make_array(path, values=NUMBERS, chunks=300):
    ingot.array(values, path, chunks=chunks, format="bcolz")


def make_table(path):
    ingot.table({"b": NUMBERS, "a": FLOATS, "s": WORDS}, path, chunks=300, format="bcolz")


@pytest.mark.parametrize("chunks", [300, 1000, 5000, 250])
@pytest.mark.parametrize("damage", ["removed", "torn"])
def test_lost_sizes_are_counted(tmp_path, chunks, damage):
    make_array(tmp_path / "a", chunks=chunks)
    sizes = tmp_path / "a/meta/sizes"
    sizes.unlink() if damage == "removed" else sizes.write_bytes(b'{"shape": [10')
    report = ingot.repair(tmp_path / "a")
    assert report.ok
    assert np.array_equal(ingot.open(tmp_path / "a")[...], NUMBERS)


def test_rows_of_several_items_become_flat(tmp_path):
    values = np.arange(1000).reshape(100, 5, 2)
    make_array(tmp_path / "a", values, chunks=(30, 5, 2))
    os.remove(tmp_path / "a/meta/sizes")
    assert ingot.repair(tmp_path / "a").ok
    assert np.array_equal(ingot.open(tmp_path / "a")[...], values.reshape(100, 10))


def test_a_lost_type_leaves_raw_bytes(tmp_path):
    make_array(tmp_path / "a", FLOATS)
    os.remove(tmp_path / "a/meta/storage")
    report = ingot.repair(tmp_path / "a")
    assert report.ok
    assert "type" in report.done[0].lost
    assert np.array_equal(ingot.open(tmp_path / "a")[...].view("<f8"), FLOATS)


def test_both_documents_are_rebuilt(tmp_path):
    make_array(tmp_path / "a", FLOATS)
    os.remove(tmp_path / "a/meta/storage")
    os.remove(tmp_path / "a/meta/sizes")
    assert ingot.repair(tmp_path / "a").ok
    assert np.array_equal(ingot.open(tmp_path / "a")[...].view("<f8"), FLOATS)


def test_the_length_of_a_table_tells_the_size_of_an_item(tmp_path):
    make_table(tmp_path / "t")
    os.remove(tmp_path / "t/s/meta/storage")
    os.remove(tmp_path / "t/s/meta/sizes")
    assert ingot.repair(tmp_path / "t").ok
    assert np.array_equal(ingot.open(tmp_path / "t")["s"][...].view("S5"), WORDS)


@pytest.mark.parametrize("data", [None, b"", b'{"names": 7}', b"{"])
def test_lost_names_of_columns_are_those_of_the_folders(tmp_path, data):
    make_table(tmp_path / "t")
    rootdirs = tmp_path / "t/__rootdirs__"
    rootdirs.unlink() if data is None else rootdirs.write_bytes(data)
    assert "document" in [each.kind for each in ingot.check(tmp_path / "t").errors]
    assert ingot.repair(tmp_path / "t").ok
    table = ingot.open(tmp_path / "t")
    assert table.names == ("a", "b", "s")
    assert np.array_equal(table["a"][...], FLOATS)


def test_a_folder_of_arrays_is_no_table_that_lost_its_names(tmp_path):
    make_array(tmp_path / "a")
    make_array(tmp_path / "b")
    assert not suspects(LocalStore(tmp_path), "")
    assert ingot.check(tmp_path).datasets == 2


def shorten(path, rows):
    text = path.read_text()
    path.write_text(text.replace("1000", str(rows)))


def test_columns_get_the_length_of_the_shortest(tmp_path):
    make_table(tmp_path / "t")
    shorten(tmp_path / "t/a/meta/sizes", 950)
    assert "length" in [each.kind for each in ingot.check(tmp_path / "t").errors]
    assert ingot.repair(tmp_path / "t").ok
    table = ingot.open(tmp_path / "t", "r+")
    assert len(table) == 950
    assert np.array_equal(table["b"][...], NUMBERS[:950])
    table.append({"b": NUMBERS[:100], "a": FLOATS[:100], "s": WORDS[:100]})
    assert np.array_equal(table["b"][950:], NUMBERS[:100])


def test_columns_get_the_length_of_the_longest(tmp_path):
    make_table(tmp_path / "t")
    shorten(tmp_path / "t/a/meta/sizes", 450)
    assert ingot.repair(tmp_path / "t", longest=True).ok
    table = ingot.open(tmp_path / "t")
    assert len(table) == 1000
    assert np.array_equal(table["b"][...], NUMBERS)
    assert np.array_equal(table["a"][:450], FLOATS[:450])
    assert not table["a"][450:].any()


@pytest.mark.parametrize("longest", [False, True])
def test_rows_that_bcolz_appended_to_the_columns_that_it_knows(tmp_path, longest):
    bcolz = pytest.importorskip("bcolz")
    path = tmp_path / "t"
    ingot.table({"a": [1, None, 3], "b": [1, 2, 3], "w": ["x", None, "z"]}, path)
    old = bcolz.open(str(path), mode="a")
    assert old.names == ["a", "b"]
    old.append((np.array([4, 5]), np.array([4, 5])))
    old.flush()
    with pytest.raises(CorruptionError, match=r"a 5, a.valid 3, b 5, w 3") as caught:
        ingot.open(path)
    assert "longest=True" in caught.value.__notes__[0]
    assert ingot.repair(path, longest=longest).ok
    found = ingot.open(path).read()
    # What bcolz has written are no nulls; it cannot write any.
    rows = slice(0, 5 if longest else 3)
    assert found["a"].tolist() == [1, None, 3, 4, 5][rows]
    assert found["b"].tolist() == [1, 2, 3, 4, 5][rows]
    assert found["w"].tolist() == ["x", None, "z", None, None][rows]


def test_a_tail_that_is_cut_short_or_lost_shortens_the_table(tmp_path):
    make_table(tmp_path / "t")
    os.truncate(tmp_path / "t/a/data/__3.blp", 40)
    os.remove(tmp_path / "t/b/data/__3.blp")
    report = ingot.repair(tmp_path / "t")
    assert report.ok
    assert {each.lost for each in report.done[:2]} == {"rows [900:1000]"}
    table = ingot.open(tmp_path / "t", "r+")
    assert np.array_equal(table["a"][...], FLOATS[:900])
    table.append({"b": NUMBERS[:5], "a": FLOATS[:5], "s": WORDS[:5]})
    assert np.array_equal(table["a"][900:], FLOATS[:5])


def test_a_length_that_claims_too_many_rows_is_cut(tmp_path):
    make_array(tmp_path / "a")
    shorten(tmp_path / "a/meta/sizes", 2**40)
    report = ingot.check(tmp_path / "a")
    assert not report.ok
    assert ingot.repair(tmp_path / "a").ok
    assert np.array_equal(ingot.open(tmp_path / "a")[...], NUMBERS)


def test_a_chunk_that_is_lost_in_the_middle_does_not_shorten(tmp_path):
    make_array(tmp_path / "a")
    os.remove(tmp_path / "a/data/__1.blp")
    assert not ingot.repair(tmp_path / "a").ok
    assert len(ingot.open(tmp_path / "a")) == 1000


def test_a_column_without_a_folder_is_taken_out(tmp_path):
    make_table(tmp_path / "t")
    for path in sorted((tmp_path / "t/a").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    report = ingot.check(tmp_path / "t")
    assert "column 'a'" in [each.lost for each in report.errors]
    assert ingot.repair(tmp_path / "t").ok
    assert ingot.open(tmp_path / "t").names == ("b", "s")


def test_attributes_that_are_torn_are_set_to_none(tmp_path):
    make_array(tmp_path / "a")
    (tmp_path / "a/__attrs__").write_bytes(b'{"uni')
    assert [each.kind for each in ingot.check(tmp_path / "a").errors] == ["attributes"]
    report = ingot.repair(tmp_path / "a")
    assert report.ok
    assert dict(ingot.open(tmp_path / "a").attrs) == {}


def test_a_folder_that_no_table_names_is_a_note(tmp_path):
    make_table(tmp_path / "t")
    make_array(tmp_path / "t/other")
    report = ingot.check(tmp_path / "t")
    assert report.ok
    assert [each.kind for each in report.findings] == ["stray"]
