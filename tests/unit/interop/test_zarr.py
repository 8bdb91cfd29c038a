"""zarr-python reads and writes by Ingot's pipeline what it reads and writes by its own."""

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ingot
from ingot.errors import ArgumentError, CorruptionError, UnsupportedError

zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")

from ingot.interop import zarr as door  # noqa: E402
from ingot.interop.zarr import ChunkPart, parse_key, whole_box  # noqa: E402

NAME = "ingot.interop.zarr.IngotCodecPipeline"
# Importing cubed changes the second one, by which writes are left to zarr-python.
OWN = "zarr.core.codec_pipeline.BatchedCodecPipeline"
SETTINGS = {"codec_pipeline.path": NAME, "array.write_empty_chunks": False}
SHAPE, CHUNKS = (7, 11), (3, 4)
DATA = np.arange(77, dtype="<i4").reshape(SHAPE)

# How arrays are made: the version of the format, and shards or not.
KINDS = {
    "v3": {"zarr_format": 3},
    "v3 sharded": {"zarr_format": 3, "shards": (6, 8)},
    "v2": {"zarr_format": 2},
    "v2 slash": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v3 plain": {"zarr_format": 3, "compressors": None},
}


@pytest.fixture
def pipeline():
    with zarr.config.set(SETTINGS):
        yield


@pytest.fixture(params=["local", "memory", "zip"])
def store(request, tmp_path):
    if request.param == "local":
        yield zarr.storage.LocalStore(tmp_path / "a.zarr")
    elif request.param == "memory":
        yield zarr.storage.MemoryStore()
    else:
        # Some writes of zarr-python add a member twice, which it warns of.
        store = zarr.storage.ZipStore(tmp_path / "a.zip", mode="w")
        yield store
        store.close()


def test_appends_of_several_processes_are_all_kept(tmp_path):
    zarr.create_array(tmp_path / "a", shape=0, chunks=100, dtype="i8")
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_appends, args=(tmp_path / "a", n)) for n in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    found = zarr.open_array(tmp_path / "a")[:]
    assert np.bincount(found // 100).tolist() == [200, 200]
    assert sorted(set(found.tolist())) == [*range(20), *range(100, 120)]


def _appends(place, number):
    for batch in range(20):
        door.append(zarr.open_array(place), np.full(10, number * 100 + batch))


@pytest.mark.parametrize("kind", ["v2", "v3"])
def test_an_append_in_a_bucket_is_a_commit_of_the_group(kind):
    obstore = pytest.importorskip("obstore.store")
    bucket = obstore.MemoryStore()
    store = zarr.storage.ObjectStore(bucket)
    zarr.open_group(store, mode="a", **KINDS[kind])
    array = zarr.create_array(store, name="g/a", shape=3, chunks=2, dtype="i4", **KINDS[kind])
    array[:] = [1, 2, 3]
    after = door.append(array, [4, 5])
    assert (after.path, after[:].tolist()) == ("g/a", [1, 2, 3, 4, 5])
    records = [each["path"] for batch in bucket.list() for each in batch]
    assert [path for path in records if path.endswith(".commit")] == [".commit"]


def test_appends_need_a_place_to_commit_to(tmp_path):
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=3, chunks=2, dtype="i4")
    with pytest.raises(UnsupportedError, match="MemoryStore"):
        door.append(array, [1])
    store = zarr.storage.LocalStore(tmp_path / "a")
    zarr.create_array(store, shape=3, chunks=2, dtype="i4")
    reading = zarr.storage.LocalStore(tmp_path / "a", read_only=True)
    with pytest.raises(ArgumentError, match="for reading"):
        door.append(zarr.open_array(reading, mode="r"), [1])


def created(store, kind, data=DATA, **more):
    settings = {"chunks": CHUNKS, "fill_value": 0, **KINDS[kind], **more}
    array = zarr.create_array(store, shape=data.shape, dtype=data.dtype, **settings)
    assert isinstance(array._async_array.codec_pipeline, door.IngotCodecPipeline)
    return array


def refuse_own(monkeypatch):
    """Let every use of zarr-python's own pipeline be an error."""

    def fail(*_args, **_more):
        raise AssertionError("left to zarr-python")

    for name in ("read", "write"):
        monkeypatch.setattr(door.BatchedCodecPipeline, name, fail)


@pytest.mark.parametrize(
    ("key", "axes", "separator", "named", "expected"),
    [
        ("c/3/4", 2, "/", True, ("", (3, 4))),
        ("g/h/c/3/4", 2, "/", True, ("g/h/", (3, 4))),
        ("g/c.3.4", 2, ".", True, ("g/", (3, 4))),
        ("c", 0, "/", True, ("", ())),
        ("g/c", 0, ".", True, ("g/", ())),
        ("3.4", 2, ".", False, ("", (3, 4))),
        ("g/3/4", 2, "/", False, ("g/", (3, 4))),
        ("g/0", 0, ".", False, ("g/", ())),
        ("0", 0, "/", False, ("", ())),
        ("5", 1, "/", False, ("", (5,))),
    ],
)
def test_keys_name_an_array_and_a_chunk(key, axes, separator, named, expected):
    assert parse_key(key, axes, separator, named) == expected


@pytest.mark.parametrize(
    ("key", "axes", "separator", "named"),
    [("d/3/4", 2, "/", True), ("3.4.5", 2, ".", False), ("a/b", 1, "/", False)],
)
def test_other_keys_are_refused(key, axes, separator, named):
    with pytest.raises(ValueError, match=r"key of a chunk|invalid literal"):
        parse_key(key, axes, separator, named)


def part(coords, inside, outside):
    return ChunkPart(coords, inside, outside)


def test_parts_of_a_grid_are_one_box():
    parts = [
        part((row, column), (slice(0, 2), slice(0, 3)), (slice(*rows), slice(*columns)))
        for row, rows in ((0, (0, 2)), (1, (2, 4)))
        for column, columns in ((4, (0, 3)), (5, (3, 6)))
    ]
    assert whole_box(parts, (2, 3)) == door.Box(
        (slice(0, 4, 1), slice(12, 18, 1)), (slice(0, 4), slice(0, 6))
    )
    assert whole_box(parts[:3], (2, 3)) is None
    assert whole_box([*parts[:3], parts[2]], (2, 3)) is None


@pytest.mark.parametrize(
    "second",
    [
        part((1,), (slice(1, 4),), (slice(2, 5),)),  # A gap in the array.
        part((1,), (slice(0, 3),), (slice(3, 6),)),  # A gap in the result.
        part((1,), (slice(0, 4, 2),), (slice(2, 4),)),  # Another step.
        part((1,), (np.array([0, 1]),), (slice(2, 4),)),
        part((1,), (slice(0, 3),), (np.array([2, 3, 4]),)),
        part((1,), 0, (slice(2, 3),)),
        part((1,), (0,), ()),
    ],
)
def test_other_parts_are_no_box(second):
    first = part((0,), (slice(3, 5),), (slice(0, 2),))
    assert whole_box([first, second], (5,)) is None


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_written_and_read(store, kind, pipeline):
    array = created(store, kind)
    assert np.array_equal(array[...], np.zeros(SHAPE))
    array[...] = DATA
    assert np.array_equal(array[...], DATA)
    assert np.array_equal(array[1:6:2, 3], DATA[1:6:2, 3])
    assert array[6, 10] == 76
    if not isinstance(store, zarr.storage.ZipStore):
        array[2:5, 1] = -1
        expected = DATA.copy()
        expected[2:5, 1] = -1
        assert np.array_equal(array[...], expected)


@pytest.mark.parametrize("kind", ["v3", "v3 sharded", "v2"])
def test_folders_are_read_and_written_without_the_codecs_of_zarr(
    tmp_path, kind, pipeline, monkeypatch
):
    refuse_own(monkeypatch)
    array = created(str(tmp_path / "a.zarr"), kind)
    array[...] = DATA
    array.oindex[[1, 5], [0, 3, 10]] = 7
    array.vindex[[0, 6], [1, 2]] = 8
    expected = DATA.copy()
    expected[np.ix_([1, 5], [0, 3, 10])] = 7
    expected[[0, 6], [1, 2]] = 8
    assert np.array_equal(array[...], expected)
    assert np.array_equal(array.oindex[[6, 0], ::3], expected[[6, 0]][:, ::3])
    assert np.array_equal(ingot.open(tmp_path / "a.zarr")[...], expected)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("local", [True, False], ids=["folder", "memory"])
def test_text_is_read_and_written_without_the_codecs_of_zarr(
    tmp_path, version, local, pipeline, monkeypatch
):
    refuse_own(monkeypatch)
    place = str(tmp_path / "t.zarr") if local else zarr.storage.MemoryStore()
    texts = np.array(["", "å∂𝄞", "b", "a long sentence " * 9] * 3, "T").reshape(4, 3)
    array = zarr.create_array(place, shape=(4, 3), chunks=(3, 2), dtype=str, zarr_format=version)
    array[...] = texts
    array[1, 2] = "changed"
    texts[1, 2] = "changed"
    found = zarr.open_array(array.store_path, mode="r")
    assert found[...].tolist() == texts.tolist()
    assert found[1:3, 1].tolist() == texts[1:3, 1].tolist()
    assert found.oindex[[0, 3], [2, 0]].tolist() == texts[np.ix_([0, 3], [2, 0])].tolist()
    monkeypatch.undo()
    with zarr.config.set({"codec_pipeline.path": OWN}):
        own = zarr.open_array(array.store_path, mode="r")
        assert own[...].tolist() == texts.tolist()


def test_unsharded_chunks_of_other_stores_are_coded_by_ingot(pipeline, monkeypatch):
    refuse_own(monkeypatch)
    array = created(zarr.storage.MemoryStore(), "v3")
    array[...] = DATA
    array[1:3, 2:9] = 5
    array.vindex[[0, 6], [1, 2]] = 8
    expected = DATA.copy()
    expected[1:3, 2:9] = 5
    expected[[0, 6], [1, 2]] = 8
    assert np.array_equal(array[...], expected)


class Keys:
    """Keys of the three kinds that zarr-python has, with what NumPy makes of them."""

    basic = st.tuples(
        *(
            st.one_of(
                st.integers(0, length - 1),
                st.builds(
                    slice,
                    st.none() | st.integers(0, length),
                    st.none() | st.integers(0, length),
                    st.none() | st.integers(1, 4),
                ),
            )
            for length in SHAPE
        )
    )
    outer = st.tuples(
        *(
            st.one_of(
                st.lists(st.integers(0, length - 1), min_size=1, max_size=5, unique=True),
                st.lists(st.booleans(), min_size=length, max_size=length).map(np.array),
                st.just(slice(None)),
            )
            for length in SHAPE
        )
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), local=st.booleans())
def test_selections_are_those_of_zarr(tmp_path_factory, data, kind, local):
    # zarr-python 3.1 itself fails to assign to shards by index arrays; Ingot does it in folders.
    local = local or "sharded" in kind
    place = str(tmp_path_factory.mktemp("a") / "a.zarr") if local else zarr.storage.MemoryStore()
    with zarr.config.set(SETTINGS):
        ours = created(place, kind)
    theirs = zarr.create_array(
        zarr.storage.MemoryStore(), shape=SHAPE, chunks=CHUNKS, dtype="i4", fill_value=0
    )
    for step in range(3):
        name = data.draw(st.sampled_from(["basic", "outer"]))
        key = data.draw(getattr(Keys, name))
        pair = [array if name == "basic" else array.oindex for array in (ours, theirs)]
        wanted = pair[1][key]
        assert np.array_equal(pair[0][key], wanted)
        values = np.arange(np.size(wanted), dtype="i4").reshape(np.shape(wanted)) + step
        for target in pair:
            target[key] = values
        assert np.array_equal(ours[...], theirs[...])


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_zarr_changes_the_shape_under_a_pipeline(tmp_path, place, pipeline):
    array = created(str(tmp_path / "a.zarr") if place == "folder" else {}, "v3")
    array[...] = DATA
    array.append(DATA, axis=0)
    assert np.array_equal(array[...], np.concatenate([DATA, DATA]))
    array.resize((4, 11))
    assert np.array_equal(array[...], DATA[:4])


def test_members_of_groups(tmp_path, pipeline):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    array = group.create_array("x/y", shape=SHAPE, chunks=CHUNKS, dtype="i4")
    array[...] = DATA
    assert np.array_equal(zarr.open_group(tmp_path / "g.zarr")["x/y"][1:3], DATA[1:3])
    assert sorted(group.keys()) == ["x"]


def test_lock_files_bring_no_warnings(tmp_path):
    code = f"""
import warnings
warnings.simplefilter("error")
import ingot.interop.zarr, zarr
zarr.config.set({{"codec_pipeline.path": {NAME!r}}})
group = zarr.open_group({str(tmp_path / "g.zarr")!r}, mode="w")
group.create_array("x", shape=3, dtype="i4")[...] = 1
print(sorted(group.keys()))
"""
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True).strip() == "['x']"
    assert (tmp_path / "g.zarr/.lock").exists()


def test_a_pipeline_travels_to_other_processes(tmp_path, pipeline):
    array = created(str(tmp_path / "a.zarr"), "v3")
    array[...] = DATA
    copy = pickle.loads(pickle.dumps(array))
    assert np.array_equal(copy[2:4], DATA[2:4])
    assert copy == array


def write_chunk(path, number, count):
    with zarr.config.set(SETTINGS):
        array = zarr.open_array(path, mode="r+")
        for value in range(1, count + 1):
            array[number] = value


def test_writers_of_one_shard_lose_nothing(tmp_path, pipeline):
    path = str(tmp_path / "a.zarr")
    zarr.create_array(path, shape=(4, 8), chunks=(1, 8), shards=(4, 8), dtype="i4")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_chunk, args=(path, n, 30)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert (zarr.open_array(path)[...] == 30).all()


def test_damage_is_an_error(tmp_path, pipeline):
    array = created(str(tmp_path / "a.zarr"), "v3", compressors=[{"name": "crc32c"}])
    array[...] = DATA
    chunk = Path(tmp_path / "a.zarr/c/1/1")
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"crc32c|CRC"):
        zarr.open_array(tmp_path / "a.zarr")[...]


def test_what_ingot_does_not_hold_is_left_to_zarr(tmp_path, pipeline):
    text = zarr.create_array(str(tmp_path / "text.zarr"), shape=(3,), dtype=str)
    text[...] = np.array(["a", "bc", ""], dtype=object)
    assert list(text[...]) == ["a", "bc", ""]
    empty = zarr.create_array(
        str(tmp_path / "e.zarr"), shape=(4,), chunks=(2,), dtype="i4",
        config={"write_empty_chunks": True},
    )  # fmt: skip
    empty[...] = 0
    assert sorted(path.name for path in (tmp_path / "e.zarr/c").iterdir()) == ["0", "1"]


def test_pipelines_answer_what_zarr_asks(pipeline):
    array = created(zarr.storage.MemoryStore(), "v3 plain")
    chain = array._async_array.codec_pipeline
    own = chain.other
    assert [type(codec) for codec in chain] == [type(codec) for codec in own]
    assert chain.supports_partial_decode == own.supports_partial_decode
    assert chain.supports_partial_encode == own.supports_partial_encode
    assert chain.evolve_from_array_spec(None) is chain
    assert isinstance(type(chain).from_codecs(list(chain)), door.BatchedCodecPipeline)
    assert asyncio.run(chain.decode([])) is not None
    assert asyncio.run(chain.encode([])) is not None


def test_codecs_are_used_by_the_own_pipeline_of_zarr(tmp_path):
    setting = {
        "codecs.blosc": "ingot.interop.zarr.SafeBloscCodec",
        "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    }
    data = np.arange(1000.0)
    for name, codec in (("a", door.SafeBloscCodec(cname="lz4")), ("b", door.Blosc2Codec(clevel=9))):
        with zarr.config.set(setting):
            made = zarr.create_array(
                str(tmp_path / name), shape=1000, chunks=100, dtype="f8", compressors=[codec]
            )
            made[:] = data
            again = zarr.open(str(tmp_path / name))
            assert type(again.metadata.codecs[-1]) is type(codec)
            np.testing.assert_array_equal(again[:], data)
        found = ingot.open(tmp_path / name)
        np.testing.assert_array_equal(found[...], data)
        header = ingot.blosc.ChunkHeader.parse((tmp_path / name / "c" / "3").read_bytes())
        assert header.typesize == 8
    # numcodecs' own codec reads what ours wrote.
    np.testing.assert_array_equal(zarr.open(str(tmp_path / "a"))[:], data)
    chunk = bytearray((tmp_path / "a" / "c" / "3").read_bytes())
    chunk[16:20] = (0x7FFFFFF0).to_bytes(4, "little")
    (tmp_path / "a" / "c" / "3").write_bytes(chunk)
    with zarr.config.set(setting), pytest.raises(ingot.errors.IngotError):
        zarr.open(str(tmp_path / "a"))[:]
