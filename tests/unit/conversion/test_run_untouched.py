"""Encoded chunks that move untouched: proved by their bytes, and read by other libraries."""

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError

ROWS, CHUNK = 1005, 100
FORMATS = [name for name, holds in ingot.formats().items() if "array" in holds]


def values(ndim=1):
    noise = np.random.default_rng(5).integers(0, 1000, ROWS * 3, "<i4")
    return noise.reshape(ROWS, 3) if ndim == 2 else noise[:ROWS]


def stored(path, format, ndim=1, codec="blosc:lz4:5:shuffle", **layout):
    items = values(ndim)
    chunks = (CHUNK, *items.shape[1:])
    return ingot.array(items, path, format=format, chunks=chunks, codec=codec, **layout)


def files(path):
    """Return the bytes of all files of a dataset."""
    if path.is_file():
        return [path.read_bytes()]
    return [each.read_bytes() for each in path.rglob("*") if each.is_file()]


def chunks_of(path):
    """Return the chunks of an array of zarr2, which are files by themselves."""
    return [each.read_bytes() for each in path.iterdir() if not each.name.startswith(".")]


@pytest.mark.parametrize("ndim", [1, 2])
@pytest.mark.parametrize("target", FORMATS)
def test_chunks_are_found_in_the_target(kernel, tmp_path, target, ndim):
    source = stored(tmp_path / "a", "zarr2", ndim)
    made = ingot.convert(source, tmp_path / "b", format=target, verify=True)
    full = ROWS // CHUNK
    padded = target not in ("bcolz", "bloscpack")
    record = made.conversion
    assert (record.chunks, record.untouched) == (full + 1, full + padded)
    found = b"".join(files(tmp_path / "b"))
    kept = [chunk in found for chunk in chunks_of(tmp_path / "a")]
    assert kept.count(True) == full + padded
    assert np.array_equal(made[...], values(ndim))


@pytest.mark.parametrize("source", FORMATS)
def test_chunks_are_those_of_the_source(kernel, tmp_path, source):
    given = stored(tmp_path / "a", source)
    made = ingot.convert(given, tmp_path / "b", format="zarr2", verify=True)
    found = b"".join(files(tmp_path / "a"))
    kept = [chunk in found for chunk in chunks_of(tmp_path / "b")]
    assert kept.count(True) == made.conversion.untouched >= ROWS // CHUNK


def test_shards_take_chunks_untouched(kernel, tmp_path):
    source = stored(tmp_path / "a", "zarr2")
    made = ingot.convert(source, tmp_path / "b.zarr", shards=(500,), verify=True)
    assert made.conversion.untouched == 11
    found = b"".join(files(tmp_path / "b.zarr"))
    assert all(chunk in found for chunk in chunks_of(tmp_path / "a"))
    back = ingot.convert(made, tmp_path / "c", format="zarr2", verify=True)
    assert back.conversion.untouched == 11
    assert sorted(chunks_of(tmp_path / "c")) == sorted(chunks_of(tmp_path / "a"))


def test_shards_of_two_axes_are_stored_whole(kernel, tmp_path):
    """Their chunks do not follow each other in the order of chunks."""
    items = np.arange(120 * 130, dtype="<i4").reshape(120, 130)
    source = ingot.array(items, tmp_path / "a", format="zarr2", chunks=(10, 10))
    options = ingot.Options(limits=ingot.Limits(window_bytes=3000))
    made = ingot.convert(source, tmp_path / "b.zarr", shards=(50, 40), options=options)
    assert made.conversion.untouched == made.conversion.chunks == 12 * 13
    assert np.array_equal(made[...], items)
    back = ingot.convert(made, tmp_path / "c", format="zarr2", options=options, verify=True)
    assert sorted(chunks_of(tmp_path / "c")) == sorted(chunks_of(tmp_path / "a"))
    assert back.conversion.untouched == 12 * 13


@pytest.mark.parametrize("codec", ["zlib:3", "zstd:3", "lz4", "none"])
def test_other_codecs(tmp_path, codec):
    source = stored(tmp_path / "a", "zarr2", codec=codec)
    made = ingot.convert(source, tmp_path / "b", format="zarr2", verify=True)
    assert made.conversion.untouched == 11
    assert sorted(chunks_of(tmp_path / "b")) == sorted(chunks_of(tmp_path / "a"))


@pytest.mark.parametrize(
    "changed",
    [{"codec": "blosc:lz4:9:shuffle"}, {"codec": "blosc:lz4:5:noshuffle"}, {"chunks": 50}],
)
def test_another_codec_or_cut_encodes_anew(tmp_path, changed):
    source = stored(tmp_path / "a", "zarr2")
    made = ingot.convert(source, tmp_path / "b", format="zarr2", verify=True, **changed)
    assert made.conversion.untouched == 0


def test_order_decides(tmp_path):
    source = stored(tmp_path / "a", "zarr2", ndim=2, order="F")
    made = ingot.convert(source, tmp_path / "b.zarr", verify=True)
    assert made.conversion.untouched == 11
    other = ingot.convert(source, tmp_path / "c.zarr", order="C", verify=True)
    assert other.conversion.untouched == 0
    assert np.array_equal(other[...], values(2))


def test_chunks_that_are_absent_stay_absent(kernel, tmp_path):
    source = ingot.create(
        tmp_path / "a", shape=1000, dtype="<i4", chunks=100, fill=7, format="zarr2"
    )
    source[250:260] = 1
    made = ingot.convert(source, tmp_path / "b", format="zarr2", verify=True)
    assert len(chunks_of(tmp_path / "b")) == 1
    rows = ingot.convert(source, tmp_path / "c.bcolz", verify=True)
    assert np.array_equal(rows[...], source[...])
    assert made.fill == 7


def test_zone_maps_follow_the_chunks(kernel, tmp_path):
    given = ingot.array(np.arange(1000), tmp_path / "a", chunks=100, format="zarr2")
    made = ingot.convert(given, tmp_path / "b.bcolz")
    assert made.conversion.untouched == 10
    zones = made._handle.value.zones()
    assert zones is not None
    table = ingot.table({"x": np.arange(1000)}, tmp_path / "t.bcolz", chunks=100)
    copy = ingot.convert(table, tmp_path / "u.blsk", verify=True)
    assert copy.conversion.untouched == 10
    assert copy.read("x", where="x > 997")["x"].tolist() == [998, 999]
    for name in ("t.bcolz", "u.blsk"):
        chunks = ingot.open(tmp_path / name)["x"]._handle.value.chunks
        assert all(chunks.zones(range(10)))


@pytest.mark.parametrize("source", FORMATS)
def test_damage_is_found_and_named(kernel, tmp_path, source):
    """Where a format has no checksums, only damage of the structure can be found."""
    given = stored(tmp_path / "a", source)
    (location,) = given._handle.value.chunks.locate(np.array([[3]]))
    root = tmp_path if (tmp_path / "a").is_file() else tmp_path / "a"
    file = root / location.key
    data = bytearray(file.read_bytes())
    # The size that the header of the Blosc chunk claims. A Bloscpack file with another one is not
    # opened, but it has checksums.
    offset = {"bcolz": 20, "bloscpack": 60}.get(source, 4)
    data[location.start + offset] ^= 1
    file.write_bytes(data)
    for target in ("zarr2", "bcolz", "blsk"):
        with pytest.raises(CorruptionError) as caught:
            ingot.convert(tmp_path / "a", tmp_path / "b", format=target)
        assert any("(3,)" in note for note in caught.value.__notes__)
        with pytest.raises(ingot.errors.NotFoundError):
            ingot.open(tmp_path / "b")


def test_zarr_reads_what_was_moved(tmp_path):
    zarr = pytest.importorskip("zarr")
    for source in FORMATS:
        stored(tmp_path / f"{source}", source, 2 if source != "bloscpack" else 1)
        for version in (2, 3):
            place = tmp_path / f"{source}-{version}"
            ingot.convert(tmp_path / source, place, format=f"zarr{version}")
            found = zarr.open_array(str(place), mode="r", zarr_format=version)[...]
            assert np.array_equal(found, values(found.ndim))


def test_bcolz_reads_what_was_moved(tmp_path):
    bcolz = pytest.importorskip("bcolz", reason="bcolz-zipline has no wheel for this Python")
    for source in FORMATS:
        stored(tmp_path / source, source)
        ingot.convert(tmp_path / source, tmp_path / f"{source}.bcolz")
        found = bcolz.open(str(tmp_path / f"{source}.bcolz"), mode="r")
        assert np.array_equal(found[:], values())
        assert np.array_equal(found[-7:], values()[-7:])
