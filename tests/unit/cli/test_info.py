"""``ingot info`` lays Bloscpack files open, and says what other datasets are."""

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

import ingot
from ingot.cli import app as cli
from ingot.cli.columns import align


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def packed(tmp_path):
    data, meta = tmp_path / "data", tmp_path / "meta.json"
    data.write_bytes(np.arange(10_000).tobytes())
    meta.write_text('{"unit": "m"}')
    options = ("-z", "8000", "-c", "zlib", "-k", "md5", "-t", "4", "--meta", meta)
    assert invoke("pack", data, *options).exit_code == 0
    return tmp_path / "data.blp"


def test_json_has_header_metadata_offsets_and_chunks(packed):
    report = json.loads(invoke("info", "--json", "--chunks", packed).stdout)
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
    assert text.startswith(f"{packed}: Bloscpack version 3, 80,000 bytes in 10 chunks, ")
    assert '"unit": "m"' in text
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[0] == "number")
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


def test_other_datasets_show_what_they_are(tmp_path):
    ingot.array(np.arange(5), tmp_path / "five.zarr").close()
    text = invoke("info", tmp_path / "five.zarr").stdout
    assert "zarr3" in text
    assert "(5,)" in text


def test_columns_are_as_wide_as_their_widest_cell():
    assert align([("a", "b"), ("100", "c")], left=[1]) == "  a  b\n100  c"
