"""bloscpack 0.16 and Ingot unpack the files that the other has packed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ingot.formats.bloscpack.header import CHECKSUMS
from tests import command
from tests.property.test_bloscpack_peers import imported

bloscpack, bloscpack_append = imported()
from bloscpack.args import BloscArgs, BloscpackArgs  # noqa: E402

DATA = np.sqrt(np.arange(3000)).tobytes() + b"xyz"
CHUNK = 5000
METADATA = {"unit": "m", "list": [1, 2.5, None, "ä"]}


def invoke(*arguments: object) -> None:
    result = command.invoke(*arguments)
    assert result.exit_code == 0, result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(DATA)
    (tmp_path / "meta.json").write_text(json.dumps(METADATA))
    return tmp_path / "data"


@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("offsets", ["--offsets", "--no-offsets"])
def test_bloscpack_unpacks_what_ingot_packs(data, tmp_path, checksum, offsets):
    meta = tmp_path / "meta.json"
    invoke("pack", data, "-z", CHUNK, "-k", checksum, offsets, "--meta", meta)
    found = bloscpack.unpack_file_from_file(str(data) + ".blp", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == DATA
    assert found == METADATA


@pytest.mark.parametrize("codec", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("filter", ["none", "shuffle", "bitshuffle"])
def test_bloscpack_unpacks_every_codec_and_filter(data, tmp_path, codec, filter):
    invoke("pack", data, "-z", CHUNK, "-c", codec, "--filter", filter)
    bloscpack.unpack_file_from_file(str(data) + ".blp", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == DATA


@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK])
def test_bloscpack_unpacks_every_size(data, tmp_path, size):
    os.truncate(data, size)
    invoke("pack", data, "-z", CHUNK)
    bloscpack.unpack_file_from_file(str(data) + ".blp", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == DATA[:size]


@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("offsets", [True, False])
def test_ingot_unpacks_what_bloscpack_packs(data, tmp_path, checksum, offsets):
    name = {"none": "None"}.get(checksum, checksum)
    bloscpack.pack_file_to_file(
        str(data),
        str(tmp_path / "theirs.blp"),
        chunk_size=CHUNK,
        metadata=METADATA,
        blosc_args=BloscArgs(typesize=8, clevel=9, cname="zlib"),
        bloscpack_args=BloscpackArgs(checksum=name, offsets=offsets),
    )
    invoke("unpack", tmp_path / "theirs.blp", "--meta", tmp_path / "found.json")
    assert (tmp_path / "theirs").read_bytes() == DATA
    assert json.loads((tmp_path / "found.json").read_text()) == METADATA


@pytest.mark.parametrize("size", [0, 100, 2 * CHUNK])
def test_bloscpack_appends_to_what_ingot_packs_and_ingot_too(data, tmp_path, size):
    (tmp_path / "more").write_bytes(DATA[:6000])
    os.truncate(data, size)
    packed = str(data) + ".blp"
    invoke("pack", data, "-z", CHUNK)
    bloscpack_append.append(packed, str(tmp_path / "more"))
    invoke("pack", tmp_path / "more", "--append", packed)
    invoke("unpack", packed, "-o", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == DATA[:size] + DATA[:6000] + DATA[:6000]
    bloscpack.unpack_file_from_file(packed, str(tmp_path / "theirs"))
    assert (tmp_path / "theirs").read_bytes() == DATA[:size] + DATA[:6000] + DATA[:6000]
