"""Signatures of files that are no dataset of Ingot: what a file looks like, for messages."""

import os
from typing import Final

__all__ = ["SIGNATURE_BYTES", "is_imported", "recognised", "suffix_of_others"]

SIGNATURE_BYTES: Final = 512
"""How many of the first bytes of a file `recognised` takes."""

_SIGNATURES: Final = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"\x93NUMPY", "a .npy file of NumPy"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ARROW1\x00\x00", "an Arrow file"),
    (0, b"FEA1", "a Feather file"),
    (0, b"ORC", "an ORC file"),
    (2, b"b2frame\x00", "a frame of Blosc2, such as a .b2nd or .b2frame file"),
    (0, b"CDF\x01", "a NetCDF file"),
    (0, b"CDF\x02", "a NetCDF file"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"\x1f\x8b", "a file compressed by gzip"),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed by Zstandard"),
    (0, b"BZh", "a file compressed by bzip2"),
    (0, b"\xfd7zXZ\x00", "a file compressed by xz"),
    (0, b"\x04\x22\x4d\x18", "a file compressed by LZ4"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"II*\x00", "a TIFF picture"),
    (0, b"MM\x00*", "a TIFF picture"),
    (0, b"SIMPLE  =", "a FITS file"),
    (0, b"%PDF", "a PDF document"),
    (0, b"MATLAB 5.0 MAT-file", "a MATLAB file"),
    (0, b"\x80\x02", "a pickle of Python"),
    (0, b"\x80\x03", "a pickle of Python"),
    (0, b"\x80\x04", "a pickle of Python"),
    (0, b"\x80\x05", "a pickle of Python"),
)


_IMPORTED: Final = (".npy", ".npz", ".csv", ".jsonl", ".parquet", ".arrow")


_SUFFIXES: Final = {
    ".arrow": "Arrow",
    ".b2frame": "Blosc2",
    ".b2nd": "Blosc2",
    ".csv": "comma-separated values",
    ".feather": "Arrow",
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".jsonl": "lines of JSON",
    ".nc": "NetCDF",
    ".npy": "NumPy",
    ".npz": "NumPy",
    ".parquet": "Parquet",
}


def suffix_of_others(name: str) -> tuple[str, str] | None:
    """Return a suffix that belongs to no format of Ingot, and to what it belongs.

    >>> suffix_of_others("a/prices.H5"), suffix_of_others("prices.zarr"), suffix_of_others(".npy")
    (('.h5', 'HDF5'), None, None)
    """
    suffix = os.path.splitext(os.path.basename(name))[1].lower()
    return (suffix, _SUFFIXES[suffix]) if suffix in _SUFFIXES else None


def is_imported(name: str) -> bool:
    """Return whether the command `ingot import` takes files of a name.

    >>> is_imported("old/a.NPY"), is_imported("a.h5"), is_imported("a.npy.zarr")
    (True, False, False)
    """
    return os.path.splitext(name)[1].lower() in _IMPORTED


def recognised(head: bytes) -> str | None:
    """Return what a file looks like, given its first bytes; None where they are no clue.

    >>> recognised(b"PAR1" + bytes(100)), recognised(b"a,b\\n1,2\\n"), recognised(b"\\xff" * 9)
    ('a Parquet file', 'plain text', None)
    >>> recognised(b"")
    'an empty file'
    """
    if not head:
        return "an empty file"
    for start, magic, name in _SIGNATURES:
        if head[start : start + len(magic)] == magic:
            return name
    return _text(head[:SIGNATURE_BYTES])


def _text(head: bytes) -> str | None:
    if any(byte < 32 and byte not in b"\t\n\r\f" for byte in head):
        return None
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # A character may be cut at the end.
        if error.start < len(head) - 3 or len(head) < SIGNATURE_BYTES:
            return None
        text = head[: error.start].decode()
    return "JSON" if text.lstrip()[:1] in ("{", "[") else "plain text"
