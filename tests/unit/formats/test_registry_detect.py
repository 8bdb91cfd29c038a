"""Formats are told by their content."""

from dataclasses import dataclass
from typing import Any

import pytest

from ingot.formats.format import Signature
from ingot.formats.registry import detect, looked_for
from ingot.stores import MemoryStore


@dataclass
class Named:
    """No more of a format than detection needs."""

    name: str
    signature: Signature


FOLDER = Named("folder", Signature(markers=(".meta", "meta/sizes")))
OTHER = Named("other", Signature(markers=(".other",)))
HEAD = Named("head", Signature(head=4, matches=lambda head, tail: head == b"blpk"))
TAIL = Named("tail", Signature(tail=2, matches=lambda head, tail: (head, tail) == (b"", b"PK")))
FORMATS: list[Any] = [FOLDER, OTHER, HEAD, TAIL]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({".meta": b""}, FOLDER),
        ({"meta/sizes": b"x"}, FOLDER),
        ({".other": b"x", ".meta": b"x"}, FOLDER),
        ({".other": b"x"}, OTHER),
        ({"meta/other": b"x", "x.meta": b""}, None),
        ({}, None),
    ],
)
def test_folders(content: dict[str, bytes], expected: Any) -> None:
    assert detect(MemoryStore(content), FORMATS) is expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"blpk and more", HEAD),
        (b"blpk", HEAD),
        (b"blp", None),
        (b"a zip file PK", TAIL),
        (b"PK", TAIL),
        (b"K", None),
        (b"", None),
        (b"blpkPK", HEAD),
        (None, None),
    ],
)
def test_files(data: bytes | None, expected: Any) -> None:
    store = MemoryStore({} if data is None else {"file": data, ".meta": b""})
    assert detect(store, FORMATS, "file") is expected


def test_what_was_looked_for() -> None:
    text = looked_for(FORMATS)
    assert text == (
        "folder (.meta, meta/sizes), other (.other), head (a file of its own), "
        "tail (a file of its own)"
    )
