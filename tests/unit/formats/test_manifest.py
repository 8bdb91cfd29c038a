"""Manifests: what they say, how they are kept, and what a lost chunk means with one."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import (
    ArgumentTypeError,
    CorruptionError,
    DamageWarning,
    IngotError,
    UnsupportedError,
)
from ingot.formats.manifest import Manifest
from ingot.options import Options
from ingot.stores import MemoryStore
from tests.storage import Place, content, delete, put, use_kernel

GRIDS = [(7,), (3, 4), (2, 3, 2), (5, 0), ()]


def named(place: Place, path: str = "") -> list[list[int]]:
    """Return the runs of a manifest, as any program reads them."""
    document = json.loads(content(place)[f"{path}.manifest"])
    assert set(document) == {"version", "chunks", "stored", "crc32c"}
    return document["stored"]


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path / "a.zarr" if request.param == "folder" else MemoryStore()


@pytest.fixture(params=["native", "python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    try:
        use_kernel(request.param, monkeypatch)
    except (IngotError, ImportError):
        pytest.skip("the native kernel is not built")
    return request.param


class TestManifest:
    @pytest.mark.parametrize("counts", GRIDS)
    def test_any_set_of_chunks_comes_back(self, counts: tuple[int, ...]) -> None:
        rng = np.random.default_rng(5)
        for share in (0.0, 0.3, 0.8, 1.0):
            chosen = [each for each in np.ndindex(*counts) if rng.random() < share]
            found = Manifest.parse(Manifest.of(counts, chosen).pack())
            assert list(map(tuple, found.coords().tolist())) == chosen

    def test_rows_of_chunks_are_found_alone(self) -> None:
        manifest = Manifest.of((4, 2), [(0, 1), (1, 0), (1, 1), (3, 0)])
        assert manifest.coords(range(1, 3)).tolist() == [[1, 0], [1, 1]]

    @pytest.mark.parametrize("after", [(2, 4), (9, 4), (3, 7), (3, 2), (1, 9)])
    def test_another_grid_has_the_same_chunks(self, after: tuple[int, int]) -> None:
        chosen = [(0, 0), (0, 3), (1, 1), (2, 2), (2, 3)]
        moved = Manifest.of((3, 4), chosen).regridded(after)
        inside = [each for each in chosen if each[0] < after[0] and each[1] < after[1]]
        assert list(map(tuple, moved.coords().tolist())) == inside

    def test_changes_are_those_of_a_set(self) -> None:
        rng, expected = np.random.default_rng(1), set[int]()
        manifest = Manifest.of((40,))
        for _ in range(200):
            changes = {int(n): bool(rng.random() < 0.6) for n in rng.integers(0, 40, 5)}
            manifest = manifest.changed(changes)
            expected -= {number for number, is_stored in changes.items() if not is_stored}
            expected |= {number for number, is_stored in changes.items() if is_stored}
            assert manifest.coords()[:, 0].tolist() == sorted(expected)

    def test_no_run_follows_another_without_a_gap(self) -> None:
        manifest = Manifest.of((9,), [(1,), (2,)]).changed({3: True})
        assert manifest.bounds.tolist() == [1, 4]

    @pytest.mark.parametrize(
        "claim",
        [
            b"",
            b"[]",
            b'{"version":2,"chunks":[3],"stored":[],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[[0,4]],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[[2,1]],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[[-1,1]],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[[0,1],[0,2]],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[[0,1,2]],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[0,1],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[[0,true]],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":7,"crc32c":0}',
            b'{"version":1,"chunks":[9223372036854775807,4],"stored":[[0,18446744073709551615]],'
            b'"crc32c":0}',
            b'{"version":1,"chunks":[-3],"stored":[],"crc32c":0}',
            b'{"version":1,"chunks":[3],"stored":[],"crc32c":0,"more":1}',
        ],
    )
    def test_a_malformed_document_is_refused(self, claim: bytes) -> None:
        with pytest.raises(IngotError):
            Manifest.parse(claim)

    def test_every_changed_byte_is_found(self) -> None:
        original = Manifest.of((30,), [(1,), (2,), (17,)])
        data = original.pack()
        for position in range(len(data)):
            for flip in (1, 4, 128):
                changed = bytearray(data)
                changed[position] ^= flip
                try:
                    found = Manifest.parse(bytes(changed))
                except IngotError:
                    continue
                assert found.counts == original.counts
                assert found.bounds.tolist() == original.bounds.tolist()

    def test_a_checksum_that_differs_is_named(self) -> None:
        data = Manifest.of((3,), [(0,)]).pack().replace(b"[[0,1]]", b"[[0,2]]")
        with pytest.raises(CorruptionError, match=r"\.manifest: crc32c is"):
            Manifest.parse(data)


@pytest.mark.parametrize("shards", [None, 20])
class TestArray:
    def test_every_change_of_chunks_is_recorded(self, place: Place, shards: int | None) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        unit = 10 if shards is None else shards
        array = ingot.create(place, shape=(100,), dtype="i4", chunks=10, manifest=True, **layout)
        assert named(place) == []
        array[0:40] = np.arange(1, 41)
        assert named(place) == [[0, 40 // unit]]
        array.append(np.ones(20))
        assert named(place) == [[0, 40 // unit], [100 // unit, 120 // unit]]
        array[20:40] = 0  # Chunks of nothing but fill are removed.
        assert named(place) == [[0, 20 // unit], [100 // unit, 120 // unit]]
        array.resize((20,))
        array.resize((60,))
        assert named(place) == [[0, 20 // unit]]
        with array.transaction():
            array[20:40] = 5
            array[40:60] = 6
        assert named(place) == [[0, 60 // unit]]
        array.attrs["unit"] = "K"
        assert named(place) == [[0, 60 // unit]]

    def test_a_lost_chunk_is_told_from_one_never_written(
        self, place: Place, shards: int | None, kernel: str
    ) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        array = ingot.create(
            place, shape=(100,), dtype="i4", chunks=10, fill=-1, manifest=True, **layout
        )
        array[:60] = np.arange(60)
        delete(place, "c/1")
        lost = 10 if shards is None else 20
        array = ingot.open(place)
        assert array[60:].tolist() == [-1] * 40
        assert array[:lost].tolist() == list(range(lost))
        for key in (..., lost, slice(0, 100, 7), [1, lost], (np.array([lost, 3]),)):
            with pytest.raises(CorruptionError, match="lost: the manifest names it"):
                array[key]
        out = np.zeros(100, "i4")
        with pytest.raises(CorruptionError, match="lost"):
            array.read(..., out=out)
        with pytest.raises(CorruptionError, match="lost"):
            array.sum()

    def test_damage_is_read_around(self, place: Place, shards: int | None, kernel: str) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        ingot.array(np.arange(1, 61), place, chunks=10, manifest=True, **layout)
        delete(place, "c/1")
        array = ingot.open(place, options=Options(damaged="fill"))
        with pytest.warns(DamageWarning) as caught:
            found = array[...]
        assert all(key == "c/1" for _, key, _ in caught[0].message.chunks)
        expected = np.arange(1, 61)
        expected[(slice(10, 20) if shards is None else slice(20, 40))] = 0
        assert found.tolist() == expected.tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array[:10]

    def test_no_write_hides_a_loss(self, place: Place, shards: int | None, kernel: str) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        array = ingot.array(np.arange(1, 61), place, chunks=10, manifest=True, **layout)
        delete(place, "c/1")
        before = named(place)
        for key in (25 if shards else 15, slice(5, 25), [1, 25 if shards else 15]):
            with pytest.raises(CorruptionError, match="lost"):
                array[key] = 7
        assert named(place) == before
        whole = slice(20, 40) if shards else slice(10, 20)
        array[whole] = 7  # Nothing of the lost chunk is kept.
        assert array[whole].tolist() == [7] * len(array[whole])
        assert named(place) == before

    def test_check_and_repair(self, place: Place, shards: int | None, kernel: str) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        array = ingot.array(np.arange(1, 61), place, chunks=10, manifest=True, **layout)
        assert ingot.check(place).findings == ()
        delete(place, "c/1")
        for quick in (False, True):
            (finding,) = ingot.check(place, quick=quick).findings
            assert (finding.kind, finding.file, finding.severity) == ("missing", "c/1", "error")
            assert finding.lost == ("items [20:40]" if shards else "items [10:20]")
        assert not ingot.repair(place).ok
        assert ingot.repair(place, drop=True).ok
        expected = np.arange(1, 61)
        expected[(slice(10, 20) if shards is None else slice(20, 40))] = 0
        assert array[...].tolist() == expected.tolist()
        assert not ingot.repair(place).done

    def test_a_lost_or_torn_manifest_is_made_anew(self, place: Place, shards: int | None) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        array = ingot.array(np.arange(60), place, chunks=10, fill=-1, manifest=True, **layout)
        array.resize((100,))
        unstored = {f"c/{n}" for n in (range(6, 10) if shards is None else range(3, 5))}
        whole = content(place)[".manifest"]
        for torn in (None, whole[:-3], whole.replace(b"stored", b"stared")):
            delete(place, ".manifest") if torn is None else put(place, {".manifest": torn})
            assert array[:60].tolist() == list(range(60))
            with pytest.raises(IngotError, match="manifest"):
                array[90]
            finding, *others = ingot.check(place).errors
            assert (finding.kind, finding.file) == ("manifest", ".manifest")
            # Without the native kernel, files that may be lost are named as well.
            assert {each.file for each in others} <= unstored
            array[0:20] = np.arange(20)  # A write neither fails nor makes up a manifest.
            assert content(place).get(".manifest") == torn
            assert ingot.repair(place).ok
            assert content(place)[".manifest"] == whole
            assert array[90] == -1

    def test_chunks_of_other_programs_are_named_by_a_repair(
        self, place: Place, shards: int | None
    ) -> None:
        layout: dict[str, Any] = {} if shards is None else {"shards": shards}
        array = ingot.create(place, shape=(60,), dtype="i8", chunks=10, manifest=True, **layout)
        array[:20] = 1
        put(place, {"c/2": content(place)["c/0"]})
        before = named(place)
        (finding,) = ingot.check(place).findings
        assert (finding.kind, finding.severity) == ("manifest", "warning")
        assert ingot.repair(place).findings == ()
        assert named(place) == [[0, 3]] if shards is None else [*before, [2, 3]]


def test_missing_error_refuses_chunks_that_were_never_written(place: Place) -> None:
    array = ingot.create(place, shape=(20,), dtype="i4", chunks=10, manifest=True)
    array[:10] = 1
    strict = ingot.open(place, options=Options(missing="error"))
    assert strict[:10].tolist() == [1] * 10
    with pytest.raises(CorruptionError, match="missing chunks are refused"):
        strict[...]


def test_very_many_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    array = ingot.create(path, shape=(10**12, 10), dtype="u1", chunks=(10, 10), manifest=True)
    array[10**11 : 10**11 + 20] = 3
    array[:10] = 4
    assert named(path) == [[0, 1], [10**10, 10**10 + 2]]
    (path / "c" / "0" / "0").unlink()
    with pytest.raises(CorruptionError, match="lost"):
        array[: 10**6]
    assert not array[10 : 10**6].any()
    (finding,) = ingot.check(path).findings
    assert finding.lost == "items [0:10, 0:10]"


def test_an_array_without_axes(place: Place) -> None:
    array = ingot.create(place, shape=(), dtype="i4", manifest=True)
    assert array[()] == 0
    array[()] = 5
    delete(place, "c")
    with pytest.raises(CorruptionError, match="lost"):
        array[()]


def test_a_table_of_lengths_in_two_axes_grows(place: Place) -> None:
    array = ingot.array(np.ones((20, 20), "i2"), place, chunks=(10, 10), manifest=True)
    array.append(np.ones((20, 15), "i2"), axis=1)
    assert named(place) == [[0, 8]]
    array.resize((30, 40))
    assert named(place) == [[0, 8]]
    array.resize((30, 15))
    assert named(place) == [[0, 4]]


def test_a_new_array_replaces_the_manifest(place: Place) -> None:
    ingot.array(np.ones(60), place, chunks=10, manifest=True)
    array = ingot.create(place, shape=(30,), dtype="f8", chunks=10, manifest=True, overwrite=True)
    assert named(place) == []
    assert not array[...].any()
    ingot.array(np.ones(5), place, overwrite=True)
    assert ".manifest" not in content(place)


def test_members_of_groups(place: Place) -> None:
    group = ingot.group(place)
    array = group.create_array("a", shape=(40,), dtype="i4", chunks=10, manifest=True)
    group.consolidate()
    array[:20] = 1
    assert named(place, "a/") == [[0, 2]]
    group.copy("a", "b/c")
    group.move("a", "d")
    delete(place, "b/c/c/0", "d/c/1")
    for name in ("b/c", "d"):
        with pytest.raises(CorruptionError, match="lost"):
            group[name][...]
    assert len(ingot.check(place).errors) == 2
    del group["d"]
    assert not [key for key in content(place) if key.startswith("d/")]


@pytest.mark.parametrize("target", ["b.zarr", "b.zip", "b.zarr2"])
@pytest.mark.parametrize("chunks", [None, 7])
def test_conversion_keeps_the_manifest_or_says_so(
    tmp_path: Path, target: str, chunks: int | None
) -> None:
    array = ingot.create(tmp_path / "a.zarr", shape=(60,), dtype="i4", chunks=10, manifest=True)
    array[:30] = np.arange(1, 31)
    format = "zarr2" if target.endswith("2") else "zarr3"
    result = ingot.convert(array, tmp_path / target, format=format, chunks=chunks)
    listed = result.conversion.changes
    assert any("manifest" in each for each in listed) == (format == "zarr2")
    assert ingot.open(tmp_path / target)[...].tolist() == array[...].tolist()
    if target == "b.zarr":
        assert named(tmp_path / target) == ([[0, 3]] if chunks is None else [[0, 5]])
    shutil.rmtree(tmp_path / "a.zarr" / "c" / "1", ignore_errors=True)
    (tmp_path / "a.zarr" / "c" / "1").unlink(missing_ok=True)
    with pytest.raises(CorruptionError, match="lost"):
        ingot.convert(array, tmp_path / "again.zarr", chunks=chunks)
    assert not (tmp_path / "again.zarr").exists()


@pytest.mark.parametrize("format", ["zarr2", "zarr0", "bcolz", "blsk"])
def test_other_formats_have_no_manifest(format: str) -> None:
    with pytest.raises(ArgumentTypeError, match="no setting 'manifest'"):
        ingot.create(shape=(3,), dtype="i4", format=format, manifest=True)


def test_another_spelling_of_the_mark_is_refused(tmp_path: Path) -> None:
    ingot.array(np.arange(3), tmp_path / "a.zarr", manifest=True)
    document = tmp_path / "a.zarr" / "zarr.json"
    values = json.loads(document.read_bytes())
    values["ingot_manifest"]["version"] = 2
    document.write_text(json.dumps(values))
    with pytest.raises(UnsupportedError, match="ingot_manifest"):
        ingot.open(tmp_path / "a.zarr")


@pytest.mark.parametrize("shards", [None, 20])
def test_other_readers_are_not_disturbed(tmp_path: Path, shards: int | None) -> None:
    zarr = pytest.importorskip("zarr")
    layout: dict[str, Any] = {} if shards is None else {"shards": shards}
    group = ingot.group(tmp_path / "g.zarr")
    array = group.create_array("a", shape=(60,), dtype="i4", chunks=10, manifest=True, **layout)
    array[:40] = np.arange(40)
    assert zarr.open_array(tmp_path / "g.zarr" / "a", mode="r")[...].tolist() == array[...].tolist()
    assert list(dict(zarr.open_group(tmp_path / "g.zarr", mode="r").members())) == ["a"]
    tensorstore = pytest.importorskip("tensorstore")
    place = {"driver": "file", "path": str(tmp_path / "g.zarr" / "a")}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": place}).result()
    assert opened.read().result().tolist() == array[...].tolist()
