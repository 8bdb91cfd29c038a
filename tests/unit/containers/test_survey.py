"""The survey says what is stored for each chunk, as the files themselves do."""

import numpy as np
import pytest

import ingot
from ingot.containers.survey import CONSTANT, DAMAGED, LOST, STORED, UNSTORED

VALUES = np.random.default_rng(5).normal(size=(10, 7))


def test_chunks_in_files(tmp_path):
    path = tmp_path / "a.zarr"
    array = ingot.create(path, shape=(10, 7), dtype="f8", chunks=(4, 3))
    array[:8] = VALUES[:8]
    found = array.survey(read=True)
    assert found.counts == (3, 3)
    assert found.state.tolist() == [STORED] * 6 + [UNSTORED] * 3
    sizes = [(path / name).stat().st_size for name in found.files]
    assert found.stored[:6].tolist() == sizes
    assert found.files == tuple(f"c/{row}/{column}" for row in range(2) for column in range(3))
    assert found.plain.tolist() == [96, 96, 32, 96, 96, 32, 48, 48, 16]
    assert found.plain.sum() == VALUES.nbytes
    assert float(found.smallest[0]) == VALUES[:4, :3].min()
    assert float(found.largest[5]) == VALUES[4:8, 6:].max()
    assert found.ratio[6:].tolist() == [0, 0, 0]
    assert array.survey().smallest is None


def test_a_checksum_that_fails_is_damage(tmp_path):
    path = tmp_path / "a.zarr"
    ingot.array(VALUES, path, chunks=(4, 3)).close()
    chunk = path / "c" / "1" / "1"
    data = bytearray(chunk.read_bytes())
    data[-5] ^= 1
    chunk.write_bytes(data)
    found = ingot.open(path).survey(read=True)
    assert np.flatnonzero(found.state == DAMAGED).tolist() == [4]
    assert found.shown[4].startswith("crc32c: the checksum is ")
    assert found.smallest[4] == ""


@pytest.mark.parametrize("format", ["bcolz", "blsk", "bloscpack"])
def test_formats_that_store_everything(tmp_path, format):
    array = ingot.array(np.arange(1000), tmp_path / "a", format=format, chunks=300)
    found = array.survey(read=True)
    assert set(found.state.tolist()) <= {STORED, CONSTANT}
    assert found.plain.sum() == 8000
    assert (found.stored > 0).all()
    assert found.smallest[0] == "0"
    assert found.largest[-1] == "999"
    assert set(found.codecs) == {"lz4, shuffle"}


def test_a_lost_chunk(tmp_path):
    ingot.array(np.arange(1000), tmp_path / "a", format="bcolz", chunks=300).close()
    (tmp_path / "a" / "data" / "__1.blp").unlink()
    assert ingot.open(tmp_path / "a").survey().state.tolist() == [STORED, LOST, STORED, STORED]


def test_shards_say_where_chunks_lie_in_them():
    array = ingot.array(np.arange(64).reshape(8, 8), chunks=(2, 2), shards=(4, 4), codec="none")
    found = array.survey(read=True)
    assert found.counts == (4, 4)
    assert len(found.files) == 4
    assert len({(file, start) for file, start in zip(found.file, found.start, strict=True)}) == 16
    assert found.smallest[:3] == ("0", "2", "4")


def test_constant_chunks_and_others():
    array = ingot.array(np.repeat([3, 5], 50), chunks=50)
    assert array.survey(read=True).state.tolist() == [CONSTANT, CONSTANT]
    assert ingot.array(7).survey(read=True).counts == (1,)
    assert ingot.create(shape=(0, 3), dtype="i4").survey(read=True).state.size == 0
    assert ingot.array(["a", "bb"]).survey(read=True).smallest == ("",)
    nan = ingot.array([np.nan, 1.0]).survey(read=True)
    assert (nan.smallest, nan.state.tolist()) == (("1.0",), [STORED])


def test_files_with_several_chunks_say_their_size(tmp_path):
    array = ingot.array(np.arange(60), tmp_path / "a", chunks=10, shards=30, codec="none")
    found = array.survey()
    assert found.sizes == tuple((tmp_path / "a" / name).stat().st_size for name in found.files)
    # The rest is the index of 3 entries with its checksum.
    assert sum(found.sizes) - found.stored.sum() == 2 * (3 * 16 + 4)
    assert ingot.array(np.arange(60), chunks=10).survey().sizes == ()


def test_chunks_that_a_manifest_names_are_lost(tmp_path):
    for name, layout in (("a", {}), ("b", {"shards": 20})):
        array = ingot.create(
            tmp_path / name, shape=(60,), dtype="i4", chunks=10, manifest=True, **layout
        )
        array[:40] = 1
        (tmp_path / name / "c" / "1").unlink()
        state = array.survey().state.tolist()
        lost = [1] if not layout else [2, 3]
        assert [number for number, each in enumerate(state) if each == LOST] == lost
        assert state[4:] == [UNSTORED, UNSTORED]
