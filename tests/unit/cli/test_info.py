"""``ingot info`` lays Bloscpack files open, and says what other datasets are."""

import json
import os

import numpy as np
import pytest

import ingot
from ingot.cli.columns import align
from ingot.stores.local.commit import CommitRun
from tests.command import invoke
from tests.storage import die_decided


@pytest.fixture
def packed(tmp_path):
    data, meta = tmp_path / "data", tmp_path / "meta.json"
    data.write_bytes(np.arange(10_000).tobytes())
    meta.write_text('{"unit": "m"}')
    options = ("-z", "8000", "-c", "zlib", "-k", "md5", "-t", "4", "--meta", meta)
    assert invoke("pack", data, *options).exit_code == 0
    return tmp_path / "data.blp"


def test_json_has_header_metadata_offsets_and_chunks(packed):
    whole = json.loads(invoke("info", "--json", "--chunks", packed).stdout)
    assert (whole["format"], whole["kind"], whole["shape"]) == ("bloscpack", "array", [80_000])
    report = whole["file"]
    stored = packed.read_bytes()
    table = np.frombuffer(stored, "<i8", 10, 32 + report["metadata_section"]["room"] + 32 + 4)
    assert report["header"] == {
        "version": 3,
        "offsets": True,
        "metadata": True,
        "checksum": "md5",
        "typesize": 4,
        "chunk_size": 8000,
        "last_chunk": 8000,
        "nchunks": 10,
        "max_app_chunks": 100,
    }
    assert report["metadata"] == {"unit": "m"}
    assert report["offsets"] == {"used": 10, "spare": 100, "bytes": 880}
    assert (report["packed"], report["plain"], report["behind"]) == (len(stored), 80_000, 0)
    assert [chunk["start"] for chunk in report["chunks"]] == table.tolist()
    for chunk in report["chunks"]:
        # The 16 bytes of a Blosc header: typesize, nbytes, blocksize, cbytes.
        head = stored[chunk["start"] :][:16]
        assert chunk["typesize"] == head[3]
        assert [chunk["nbytes"], chunk["blocksize"], chunk["cbytes"]] == [
            int.from_bytes(head[at : at + 4], "little") for at in (4, 8, 12)
        ]
        assert (chunk["codec"], chunk["filter"]) == ("zlib", "shuffle")


def test_text_shows_the_first_chunks_and_the_last(packed):
    text = invoke("info", packed).stdout
    assert text.startswith(f"{packed}\n  format  bloscpack")
    assert "Bloscpack version 3, 80,000 bytes in 10 chunks, " in text
    assert '"unit": "m"' in text
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[:1] == ["number"])
    assert [line.split()[0] for line in lines[first + 1 :]] == ["0", "1", "2", "3", "…", "9"]
    everything = invoke("info", "--chunks", packed).stdout
    assert "…" not in everything
    with packed.open("ab") as file:
        file.write(b"xyz")
    assert "3 bytes behind the end" in invoke("info", packed).stdout


def test_damage_is_an_error(packed):
    os.truncate(packed, 100)
    result = invoke("info", packed)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ingot: Bloscpack header: nchunks claims 10 chunks")


def test_an_array(tmp_path):
    path = tmp_path / "five.zarr"
    options = {"chunks": (2, 3), "shards": (4, 6), "attrs": {"units": "<b>"}}
    ingot.array(np.arange(40).reshape(4, 10), path, dimension_names=["t", None], **options).close()
    report = json.loads(invoke("info", "--json", path).stdout)
    expected = {
        "path": str(path),
        "format": "zarr3",
        "kind": "array",
        "shape": [4, 10],
        "dtype": "int64",
        "chunks": [2, 3],
        "chunk_count": 8,
        "shards": [4, 6],
        "fill": 0,
        "order": "C",
        "dimension_names": ["t", None],
        "nbytes": 320,
        "manifest": False,
        "unfinished": False,
        "attrs": {"units": "<b>"},
    }
    assert {name: report[name] for name in expected} == expected
    stored = sum(file.stat().st_size for file in (path / "c").rglob("*") if file.is_file())
    assert report["stored"] == stored
    assert report["ratio"] == round(320 / stored, 4)
    text = invoke("info", path).stdout
    for part in ("(4, 10)", "(2, 3), 8 in order C", "shards  (4, 6)", "units: <b>"):
        assert part in text


def test_a_table_shows_columns_and_first_rows(tmp_path):
    days = np.arange(100) + np.datetime64("2026-01-01")
    columns = {"day": days, "n": {"x": np.arange(100) / 2}, "name": np.array(["ape", "bee"] * 50)}
    ingot.table(columns, tmp_path / "t.bcolz").close()
    report = json.loads(invoke("info", "--json", tmp_path / "t.bcolz").stdout)
    assert (report["format"], report["kind"], report["rows"]) == ("bcolz", "table", 100)
    assert [column["name"] for column in report["columns"]] == ["day", "n.x", "name"]
    assert report["columns"][0]["first"][:2] == ["2026-01-01", "2026-01-02"]
    assert report["columns"][1]["dtype"] == "float64"
    lines = invoke("info", tmp_path / "t.bcolz").stdout.splitlines()
    assert any(line.split()[:2] == ["n.x", "float64"] for line in lines)
    assert ["2026-01-02", "0.5", "bee"] in [line.split() for line in lines]


def test_groups_and_folders_show_their_members(tmp_path):
    root = ingot.group(tmp_path / "g.zarr", attrs={"title": "ours"})
    root.array("day/one", [1, 2, 3])
    root.close()
    (tmp_path / "broken").symlink_to("nowhere")
    report = json.loads(invoke("info", "--json", tmp_path / "g.zarr").stdout)
    assert (report["kind"], report["members"], report["attrs"]) == (
        "group",
        ["day"],
        {"title": "ours"},
    )
    assert ["day", "zarr3", "1", "member"] in [
        line.split() for line in invoke("info", tmp_path / "g.zarr").stdout.splitlines()
    ]
    lines = [line.split() for line in invoke("info", tmp_path).stdout.splitlines()]
    assert ["g.zarr", "zarr3", "1", "member"] in lines
    assert ["broken", "a", "broken", "link"] in lines


def test_many_members_are_counted(tmp_path):
    root = ingot.group(tmp_path / "g.zarr")
    for number in range(33):
        root.group(f"m{number:02}")
    text = invoke("info", tmp_path / "g.zarr").stdout
    assert "m29" in text
    assert "m30" not in text
    assert text.endswith("... and 3 more: ingot ls lists them\n")


def test_items(tmp_path):
    ingot.ragged(["ape", "bee"], tmp_path / "a.blv").close()
    report = json.loads(invoke("info", "--json", tmp_path / "a.blv").stdout)
    assert (report["kind"], report["length"], report["item_kind"]) == ("ragged", 2, "utf8")


def test_an_unfinished_commit_is_shown(tmp_path, monkeypatch):
    path = tmp_path / "a.zarr"
    ingot.array(np.arange(100), path, chunks=10).close()
    with monkeypatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with ingot.open(path, "r+") as array, pytest.raises(ZeroDivisionError):
            array[...] = 7
    report = json.loads(invoke("info", "--json", path).stdout)
    assert report["unfinished"]
    assert "a writer died in one" in invoke("info", path).stdout
    ingot.open(path, "r+").close()


def test_a_missing_path_is_one_line_and_status_1(tmp_path):
    for command in ("info", "ls", "tree", "head", "tail", "explain", "attrs", "chunk"):
        result = invoke(command, tmp_path / "missing")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1
        assert "missing" in result.stderr


def test_an_unknown_file_is_called_what_it_is(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    result = invoke("info", tmp_path / "a.npy")
    assert result.exit_code == 1
    assert "it looks like a .npy file of NumPy; " in result.stderr
    assert "; looked for zarr3 (zarr.json)" in result.stderr


def test_columns_are_as_wide_as_their_widest_cell():
    assert align([("a", "b"), ("100", "c")], left=[1]) == "  a  b\n100  c"


def test_a_picture_of_the_chunks(tmp_path):
    pytest.importorskip("matplotlib")
    ingot.array(np.arange(24).reshape(4, 6), tmp_path / "a.zarr", chunks=(2, 3))
    picture = tmp_path / "map.png"
    assert invoke("info", tmp_path / "a.zarr", "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_only_arrays_are_drawn(tmp_path):
    ingot.table({"a": [1]}, tmp_path / "t.bcolz")
    result = invoke("info", tmp_path / "t.bcolz", "--plot", tmp_path / "map.png")
    assert (result.exit_code, os.listdir(tmp_path)) == (1, ["t.bcolz"])
    assert "only arrays are drawn" in result.stderr


def test_a_manifest_is_shown(tmp_path):
    ingot.create(tmp_path / "a.zarr", shape=(9,), dtype="i4", manifest=True)
    assert "manifest  names the stored chunks" in repr(ingot.open(tmp_path / "a.zarr").info)


def test_a_table_says_its_chunks_and_codecs(tmp_path):
    columns = {"a": np.arange(10), "t": ["x"] * 10}
    ingot.table(columns, tmp_path / "t.bcolz", chunks=4)
    lines = invoke("info", tmp_path / "t.bcolz").stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("column"))
    assert lines[at].split("  ")[-1].strip() == "codec"
    assert lines[at + 1].split()[:3] == ["a", "int64", "4"]
    assert "shuffle=1" in lines[at + 1]
    assert "shuffle=0" in lines[at + 2]
    del columns["t"]
    ingot.table(columns, tmp_path / "u.bcolz", chunks=4, codec="blosc:zstd:3")
    text = invoke("info", tmp_path / "u.bcolz").stdout
    assert text.count("zstd") == 1


def test_files_of_others_that_import_takes(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "a.npz", a=np.arange(3))
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert "`ingot import`" in invoke("info", tmp_path / "a.npy").stderr
    npz = invoke("info", tmp_path / "a.npz").stderr
    assert "`ingot import`" in npz
    assert "'a.npy' in it looks like a .npy file" in npz
    hdf = invoke("info", tmp_path / "a.h5").stderr
    assert "an HDF5 file" in hdf
    assert "import" not in hdf
