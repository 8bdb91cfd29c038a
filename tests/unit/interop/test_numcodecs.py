"""Codecs for numcodecs: the same chunks as numcodecs' own, and no trust in hostile ones."""

import tomllib
from importlib import import_module
from pathlib import Path

import blosc2
import numcodecs
import numpy as np
import pytest

import ingot
from ingot.blosc import ChunkHeader
from ingot.interop.numcodecs import Blosc2Chunks, SafeBlosc
from tests.kernels import needs_native
from tests.limited import run_limited

VALUES = np.arange(5000, dtype="<i4")
OWN = numcodecs.blosc.Blosc


@pytest.mark.parametrize("shuffle", [-1, 0, 1, 2])
@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_chunks_are_those_of_numcodecs(cname: str, shuffle: int) -> None:
    own, safe = OWN(cname, 5, shuffle), SafeBlosc(cname, 5, shuffle)
    assert bytes(own.decode(safe.encode(VALUES))) == VALUES.tobytes()
    assert safe.decode(own.encode(VALUES)) == VALUES.tobytes()
    ours, theirs = (ChunkHeader.parse(each.encode(VALUES)) for each in (safe, own))
    assert (ours.version, ours.typesize, ours.filter) == (2, theirs.typesize, theirs.filter)
    assert numcodecs.get_codec(own.get_config()) == safe
    assert type(numcodecs.get_codec(own.get_config())) is SafeBlosc
    assert isinstance(safe, OWN)


def test_results_go_where_they_are_wanted() -> None:
    for codec in (SafeBlosc(), Blosc2Chunks()):
        out = np.zeros(5000, "<i4")
        codec.decode(codec.encode(VALUES), out=out)
        np.testing.assert_array_equal(out, VALUES)
        assert codec.decode(codec.encode(VALUES[:0])) == b""
        assert codec.decode(codec.encode(b"abc")) == b"abc"
        matrix = np.asfortranarray(VALUES.reshape(50, 100))
        assert codec.decode(codec.encode(matrix)) == matrix.tobytes("A")
        with pytest.raises(ValueError, match="shuffle is 7"):
            type(codec)(shuffle=7).encode(VALUES)


def test_blosc2_chunks_are_those_of_blosc2() -> None:
    codec = numcodecs.get_codec({"id": "blosc2", "clevel": 9, "cname": "zstd"})
    assert isinstance(codec, Blosc2Chunks)
    assert numcodecs.get_codec(codec.get_config()) == codec
    chunk = codec.encode(VALUES)
    assert ChunkHeader.parse(chunk).version == 5
    assert blosc2.decompress2(chunk) == VALUES.tobytes()
    assert codec.decode(blosc2.compress2(VALUES)) == VALUES.tobytes()


_HOSTILE = """
from ingot.blosc import ChunkHeader
from ingot.interop.numcodecs import Blosc2Chunks, SafeBlosc
codec = {"blosc": SafeBlosc, "blosc2": Blosc2Chunks}[sys.argv[1]]()
chunk = codec.encode(np.arange(5000, dtype="<i4"))
start = ChunkHeader.parse(chunk).header_bytes
far = (0x7FFFFFF0).to_bytes(4, "little")
lies = [
    chunk[:10],
    chunk[:-1],
    chunk[:4] + far + chunk[8:],
    chunk[:8] + bytes(4) + chunk[12:],
    chunk[:12] + far + chunk[16:],
    chunk[:start] + far + chunk[start + 4 :],
    bytes([255]) * len(chunk),
]
for lie in lies:
    try:
        codec.decode(lie)
    except IngotError:
        continue
    raise SystemExit(f"{lie[:32].hex()} was decoded")
"""


@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "python"])
@pytest.mark.parametrize("name", ["blosc", "blosc2"])
def test_hostile_chunks_raise_errors(kernel: str, name: str) -> None:
    run_limited(_HOSTILE, kernel, name)


def test_ingot_reads_arrays_of_both_codecs(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    for codec in (SafeBlosc("zstd"), Blosc2Chunks()):
        path = str(tmp_path / codec.codec_id)
        written = zarr.create_array(
            path, shape=5000, chunks=700, dtype="<i4", zarr_format=2, compressors=codec
        )
        written[:] = VALUES
        array = ingot.open(path, "r+")
        np.testing.assert_array_equal(array[...], VALUES)
        array[3] = 17
        assert zarr.open(path)[3] == 17


def test_entry_points_name_what_exists() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    points = project["project"]["entry-points"]
    assert points["numcodecs.codecs"] == {"blosc2": "ingot.interop.numcodecs:Blosc2Chunks"}
    assert set(points["zarr.codecs"]) == {"blosc", "numcodecs.blosc2"}
    for target in (*points["numcodecs.codecs"].values(), *points["zarr.codecs"].values()):
        module, _, name = target.partition(":")
        assert hasattr(import_module(module), name)
