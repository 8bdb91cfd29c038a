"""Files of other programs are called what they are, by what those programs write."""

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import tarfile
import zipfile

import numpy as np
import pytest

import ingot
from ingot.errors import FormatError
from ingot.formats.signatures import SIGNATURE_BYTES, recognised


def written(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def test_numpy():
    data = written(lambda file: np.save(file, np.arange(5)))
    assert recognised(data) == "a .npy file of NumPy"
    data = written(lambda file: np.savez(file, a=np.arange(5)))
    assert recognised(data) == "a zip archive"


def test_compressed_files_and_archives():
    assert recognised(gzip.compress(b"x")) == "a file compressed by gzip"
    assert recognised(bz2.compress(b"x")) == "a file compressed by bzip2"
    assert recognised(lzma.compress(b"x")) == "a file compressed by xz"

    def archive(file):
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("a"), io.BytesIO(b""))

    assert recognised(written(archive)) == "a tar archive"

    def zipped(file):
        with zipfile.ZipFile(file, "w") as whole:
            whole.writestr("a", b"x")

    assert recognised(written(zipped)) == "a zip archive"


def test_arrow_and_parquet():
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = arrow.table({"a": [1, 2]})
    data = written(lambda file: pyarrow.parquet.write_table(table, file))
    assert recognised(data) == "a Parquet file"

    def stored(file):
        with arrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    assert recognised(written(stored)) == "an Arrow file"


def test_blosc2_frames(tmp_path):
    blosc2 = pytest.importorskip("blosc2")
    path = tmp_path / "a.b2nd"
    blosc2.asarray(np.arange(100), urlpath=str(path))
    assert recognised(path.read_bytes()[:SIGNATURE_BYTES]).startswith("a frame of Blosc2")


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1, 2]
    assert recognised((tmp_path / "a.h5").read_bytes()) == "an HDF5 file"


def test_others(tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t (a int)")
    assert recognised((tmp_path / "a.db").read_bytes()) == "an SQLite database"
    assert recognised(pickle.dumps([1])) == "a pickle of Python"
    assert recognised(b'{"a": 1}') == "JSON"
    assert recognised("é".encode() * SIGNATURE_BYTES) == "plain text"
    assert recognised(b"x" + "é".encode() * SIGNATURE_BYTES) == "plain text"
    assert recognised(b"\xe9\n") is None
    assert recognised(bytes(40)) is None


@pytest.mark.parametrize(
    ("data", "name"), [(b"\x89HDF\r\n\x1a\n", "an HDF5 file"), (b"", "an empty file")]
)
def test_open_says_what_a_file_looks_like(tmp_path, data, name):
    path = tmp_path / "a.zarr"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=f"it looks like {name}; looked for zarr3"):
        ingot.open(path)
