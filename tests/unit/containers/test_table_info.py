"""The properties of a table, also where its columns cannot be read."""

import ingot
from ingot.stores import MemoryStore
from tests.golden.archive import below, unpacked


def test_a_column_of_pickles_is_named_and_not_read():
    files = below(unpacked("bcolz"), "bcolz-1.2.1/ctable_object_column/ds")
    info = ingot.open(MemoryStore(files)).info
    facts = info.to_dict()
    assert [column["name"] for column in facts["columns"]] == ["o", "i"]
    assert list(facts["unreadable"]) == ["o"]
    assert "stored as pickles" in facts["unreadable"]["o"]
    assert "stored as pickles" in str(info)
    assert facts["columns"][0]["first"].mask.all()
    assert len(facts["columns"][1]["first"]) == 3


def test_a_damaged_chunk_does_not_hide_the_other_columns(tmp_path):
    ingot.table({"a": [1, 2], "b": [3.0, 4.0]}, tmp_path / "t.bcolz")
    chunk = tmp_path / "t.bcolz" / "b" / "data" / "__0.blp"
    data = bytearray(chunk.read_bytes())
    data[40] ^= 0xFF
    chunk.write_bytes(data)
    facts = ingot.open(tmp_path / "t.bcolz").info.to_dict()
    assert facts["columns"][0]["first"].tolist() == [1, 2]
    assert list(facts["unreadable"]) == ["b"]


def test_a_table_without_faults_says_nothing_of_them(tmp_path):
    assert "unreadable" not in ingot.table({"a": [1]}).info.to_dict()
