"""`ingot.check` reads everything, writes nothing, and names what is lost."""

import inspect
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.check import Finding, Report
from ingot.errors import FormatError, NotFoundError, UnsupportedError
from ingot.stores import Commit, LocalStore, MemoryStore, Put, ZipStore
from tests.storage import use_kernel

ARRAYS = ("zarr3", "zarr2", "zarr1", "zarr0", "bcolz", "blsk", "bloscpack")
VALUES = np.arange(200, dtype="<f8").reshape(20, 10)


@pytest.fixture(params=["native", "python"])
def kernel(request, monkeypatch):
    if request.param == "native":
        pytest.importorskip("ingot._native")
    use_kernel(request.param, monkeypatch)


def make(path, format):
    chunks = {} if format == "bloscpack" else {"chunks": (6, 10)}
    return ingot.array(VALUES, path, format=format, **chunks)


def facts(folder):
    """Return the bytes and the times of all files, to see that nothing was touched."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            about = os.stat(path)
            data = None if os.path.isdir(path) else Path(path).read_bytes()
            found[path] = data, about.st_mtime_ns, about.st_ctime_ns, about.st_ino
    return found


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("format", ARRAYS)
def test_a_sound_array_has_no_finding_and_is_not_touched(tmp_path, format, quick):
    make(tmp_path / "a", format)
    before = facts(tmp_path)
    report = ingot.check(tmp_path / "a", quick=quick)
    assert facts(tmp_path) == before
    assert report.ok
    assert not report.findings
    assert report.datasets == 1
    assert report.chunks == (1 if format == "bloscpack" else 4)
    assert report.nbytes == (0 if quick else VALUES.nbytes)


CHUNK_FILES = {
    "zarr3": "c/1/0",
    "zarr2": "/1.0",
    "zarr1": "/1.0",
    "zarr0": "/1.0.blosc",
    "bcolz": "data/__1.blp",
}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", CHUNK_FILES)
def test_a_torn_chunk_is_named_with_what_is_lost(tmp_path, format):
    make(tmp_path / "a", format)
    (file,) = [p for p in (tmp_path / "a").rglob("*") if str(p).endswith(CHUNK_FILES[format])]
    file.write_bytes(file.read_bytes()[:20])
    report = ingot.check(tmp_path / "a")
    (finding,) = report.errors
    assert finding.chunk == (1, 0)
    assert finding.lost == "items [6:12, 0:10]"
    assert str(file).endswith(finding.file)
    assert not report


def test_every_damaged_chunk_is_found(tmp_path):
    make(tmp_path / "a", "zarr3")
    for number in (0, 2, 3):
        flip(tmp_path / f"a/c/{number}/0", 30)
    found = [each.chunk for each in ingot.check(tmp_path / "a").errors]
    assert found == [(0, 0), (2, 0), (3, 0)]
    assert ingot.check(tmp_path / "a", quick=True).ok


def test_the_index_of_a_shard_is_checked_quickly_too(tmp_path):
    ingot.array(np.arange(100), tmp_path / "a", chunks=10, shards=50)
    flip(tmp_path / "a/c/1", -3)
    for quick in (False, True):
        (finding,) = ingot.check(tmp_path / "a", quick=quick).errors
        assert (finding.file, finding.lost) == ("c/1", "items [50:100]")


def test_a_missing_chunk_is_an_error_where_every_chunk_is_stored(tmp_path):
    ingot.array(np.arange(100), tmp_path / "a.bcolz", chunks=10)
    for number in (3, 4, 9):
        os.remove(tmp_path / f"a.bcolz/data/__{number}.blp")
    for quick in (False, True):
        found = ingot.check(tmp_path / "a.bcolz", quick=quick).errors
        assert [(each.kind, each.lost) for each in found] == [
            ("missing", "items [30:50]"),
            ("missing", "items [90:100]"),
        ]


def test_absent_chunks_of_a_sparse_array_are_no_finding(tmp_path):
    array = ingot.create(tmp_path / "a", shape=(2**40, 2**20), dtype="u1", chunks=(100, 100))
    array[10**9, 5] = 1
    report = ingot.check(tmp_path / "a")
    assert not report.findings
    assert report.chunks == 1
    flip(tmp_path / "a/c/10000000/0", 5)
    assert [each.chunk for each in ingot.check(tmp_path / "a").errors] == [(10000000, 0)]


def test_chunks_outside_of_the_array_are_a_note(tmp_path):
    make(tmp_path / "a", "zarr2")
    (tmp_path / "a/7.0").write_bytes(b"?")
    report = ingot.check(tmp_path / "a")
    assert report.ok
    assert [(each.kind, each.file, each.severity) for each in report.findings] == [
        ("stray", "7.0", "note")
    ]


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_columns_of_a_table_are_checked(tmp_path, format):
    columns = {"a": np.arange(100), "b": np.arange(100.0)}
    path = tmp_path / f"t.{format}"
    ingot.table(columns, path, chunks=10)
    report = ingot.check(path)
    assert not report.findings
    assert report.chunks == 20
    (file,) = list(path.rglob("b/data/__5.blp")) or list(path.rglob("data/b/__1__.bin"))
    flip(file, -9 if format == "bcolz" else 600)
    found = ingot.check(path).errors
    assert found
    assert all(each.dataset == f"{path}: column b" for each in found)


def test_items_are_checked(tmp_path):
    ingot.ragged([b"abc" * 1000, b"", b"x"], tmp_path / "r.blv", packed=False)
    assert not ingot.check(tmp_path / "r.blv").findings
    flip(tmp_path / "r.blv", -2)
    (finding,) = ingot.check(tmp_path / "r.blv").errors
    assert finding.lost == "items [2:3]"


def test_a_group_a_folder_and_an_archive_are_walked(tmp_path):
    group = ingot.group(tmp_path / "g.zarr")
    group.array("x/y", np.arange(10))
    group.array("z", np.arange(10))
    (tmp_path / "deep/er").mkdir(parents=True)
    ingot.array(np.arange(10), tmp_path / "deep/er/a.blp")
    ingot.array(np.arange(10), tmp_path / "deep/b.zarr.zip")
    (tmp_path / "deep/notes.txt").write_text("no dataset")
    report = ingot.check(tmp_path)
    assert not report.findings
    assert report.datasets == 6  # Two groups, two members, two arrays.
    flip(tmp_path / "g.zarr/x/y/c/0", 20)
    (finding,) = ingot.check(tmp_path).errors
    assert finding.dataset == f"{tmp_path}/g.zarr/x/y"


def test_a_document_that_cannot_be_parsed_is_a_finding(tmp_path):
    make(tmp_path / "a", "zarr3")
    make(tmp_path / "b", "zarr3")
    (tmp_path / "a/zarr.json").write_text("{")
    (finding,) = ingot.check(tmp_path).errors
    assert (finding.dataset, finding.kind) == (str(tmp_path / "a"), "document")
    assert ingot.check(tmp_path / "a").errors == (finding,)


def test_nothing_to_check_is_an_error_as_for_open(tmp_path):
    with pytest.raises(NotFoundError):
        ingot.check(tmp_path / "absent")
    with pytest.raises(NotFoundError):
        ingot.check(tmp_path)
    (tmp_path / "notes.txt").write_text("no dataset")
    with pytest.raises(FormatError):
        ingot.check(tmp_path)
    with pytest.raises(UnsupportedError):
        ingot.check("ftp://host/data")
    with pytest.raises(NotFoundError):
        ingot.check(MemoryStore())


@pytest.mark.parametrize("kind", ["memory", "zip"])
def test_stores_are_checked(tmp_path, kind):
    zipped = ZipStore(tmp_path / "a.zip", writable=True)
    store = MemoryStore() if kind == "memory" else zipped
    ingot.array(VALUES, store, chunks=(6, 10))
    assert not ingot.check(store).findings
    (old,) = store.read([ingot.stores.Extent("c/2/0")])
    store.apply(Commit(publish=(Put("c/2/0", old[:-1] + b"?"),)))
    assert [each.chunk for each in ingot.check(store).errors] == [(2, 0)]


def test_an_archive_with_a_flipped_bit_is_found(tmp_path):
    ingot.array(VALUES, tmp_path / "a.zarr.zip", chunks=(6, 10), checksum=False, codec="none")
    place = (tmp_path / "a.zarr.zip").read_bytes().index(VALUES[7].tobytes())
    flip(tmp_path / "a.zarr.zip", place)
    assert [each.chunk for each in ingot.check(tmp_path / "a.zarr.zip").errors] == [(1, 0)]


def test_staged_files_and_a_damaged_journal_are_findings(tmp_path):
    make(tmp_path / "a", "zarr3")
    (tmp_path / "a/c/.g-2f81-0").write_bytes(b"?")
    report = ingot.check(tmp_path / "a")
    assert report.ok
    assert [each.kind for each in report.findings] == ["staged"]
    (tmp_path / "a/.commit").write_bytes(b"no journal")
    assert "journal" in [each.kind for each in ingot.check(tmp_path / "a").errors]


def test_objects_that_run_code_are_not_read(tmp_path):
    options = ingot.Options(allow_pickle=True)
    data = np.array([{}, 1], object)
    ingot.array(data, tmp_path / "a.bcolz", options=options)
    report = ingot.check(tmp_path / "a.bcolz")
    assert report.ok
    assert [each.kind for each in report.warnings] == ["unsafe"]
    assert not ingot.check(tmp_path / "a.bcolz", options=options).findings


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files without permission")
def test_a_file_without_permission_is_a_finding(tmp_path):
    make(tmp_path / "a", "zarr3")
    (tmp_path / "a/c/1/0").chmod(0)
    assert [each.chunk for each in ingot.check(tmp_path / "a").errors] == [(1, 0)]


@pytest.mark.skipif(sys.platform == "darwin", reason="the system has no such names")
def test_a_name_that_is_no_unicode_is_a_warning(tmp_path):
    make(tmp_path / "a", "zarr3")
    for name in (b"\xff.zarr", b"\xe9.txt"):
        shutil.copytree(tmp_path / "a", tmp_path / os.fsdecode(name))
    report = ingot.check(tmp_path)
    assert report.ok
    assert report.datasets == 1
    assert sorted(each.kind for each in report.warnings) == ["unsafe", "unsafe"]
    assert all("no Unicode" in each.problem for each in report.warnings)
    assert "\\xff.zarr: not checked" in str(report)


def test_a_name_with_control_characters_is_printed_with_escapes(tmp_path):
    ingot.array(np.arange(5), tmp_path / "a.blp")
    (tmp_path / "a.blp").rename(tmp_path / "a\n\x1b[31m.blp")
    (line, _) = str(ingot.check(tmp_path)).splitlines()
    assert "\x1b" not in line
    assert "a\\n\\x1b[31m.blp: not checked" in line


def test_a_link_that_leads_nowhere_is_a_warning(tmp_path):
    make(tmp_path / "a", "zarr3")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    report = ingot.check(tmp_path)
    assert report.ok
    assert [each.kind for each in report.warnings] == ["link"]


def test_a_writer_beside_the_check_causes_no_finding(tmp_path):
    array = ingot.array(np.zeros(20_000), tmp_path / "a.blsk", chunks=500)
    done = threading.Event()

    def write():
        number = 0
        while not done.is_set():
            number += 1
            array[number % 20_000 :: 997] = number
            if number % 5 == 0:
                array.resize(20_000 - number % 7 * 600)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [ingot.check(tmp_path / "a.blsk") for _ in range(15)]
    finally:
        done.set()
        writer.join()
    assert [each for report in reports for each in report.errors] == []


def test_progress_ends_with_all_bytes(tmp_path):
    make(tmp_path / "a", "zarr3")
    calls = []
    ingot.check(tmp_path / "a", progress=calls.append)
    assert calls
    assert calls[-1] == VALUES.nbytes


def test_a_report_is_text_json_and_html():
    findings = (
        Finding("a<b", "chunk", "torn", chunk=(1,)),
        Finding("a", "commit", "unfinished", severity="warning"),
        Finding("a", "stray", "outside", severity="note"),
    )
    report = Report("a", findings, 1, 2, 3)
    last = str(report).splitlines()[-1]
    assert last == "a: 1 error, 1 warning, 1 note; 1 dataset, 2 chunks, 3 bytes checked"
    assert json.loads(json.dumps(report.as_dict()))["findings"][0]["chunk"] == [1]
    assert "a&lt;b" in report._repr_html_()
    assert "<table>" not in Report("a")._repr_html_()


def test_the_module_and_the_function_are_one():
    import ingot.check as module

    assert module is ingot.check
    assert list(inspect.signature(ingot.check).parameters) == [
        "path",
        "quick",
        "progress",
        "options",
    ]


def test_a_plain_folder_in_a_store_is_walked():
    store = MemoryStore()
    ingot.array(VALUES, store, chunks=(6, 10))
    parts = {f"deep/a/{key}": store.read([ingot.stores.Extent(key)])[0] for key in ("zarr.json",)}
    other = MemoryStore(parts)
    report = ingot.check(other)
    assert report.datasets == 1
    assert not report.findings


def test_a_journal_of_a_local_store_is_seen_through(tmp_path):
    store = LocalStore(tmp_path / "a", writable=True)
    ingot.array(VALUES, store, chunks=(6, 10))
    assert not ingot.check(LocalStore(tmp_path / "a")).findings


def test_a_report_is_shown_as_its_lines():
    done = Finding("prices", "length", "1 < 2 rows", repair="shorten it")
    report = Report(
        "prices", (Finding("prices", "chunk", "torn", lost="items [0:5]"),), done=(done,)
    )
    assert repr(report) == str(report)
    html = report._repr_html_()
    assert html.index("repaired") < html.index("1 &lt; 2 rows") < html.index("torn")
    assert html.count("<tr>") == 3
