"""Formats are recognised by their content."""

import pytest

from ingot.formats.format import Kind
from ingot.formats.registry import FORMATS, FormatEntry, describe_search, detect
from ingot.stores import MemoryStore, Store


def is_head(head: bytes, tail: bytes) -> bool:
    return head == b"blpk"


def is_tail(head: bytes, tail: bytes) -> bool:
    return (head, tail) == (b"", b"PK")


def has_readme(store: Store, folder: str) -> bool:
    return "readme" in store.names(folder)


HERE = __name__


def entry(name: str, **fields: object) -> FormatEntry:
    """Return no more of an entry than detection needs."""
    return FormatEntry(name, f"{HERE}:no_such_class", Kind.ARRAY, **fields)  # type: ignore[arg-type]


FOLDER = entry("folder", markers=(".meta", "meta/sizes"))
OTHER = entry("other", markers=(".other", "meta"), looks=f"{HERE}:has_readme")
HEAD = entry("head", head=4, matches=f"{HERE}:is_head")
TAIL = entry("tail", tail=2, matches=f"{HERE}:is_tail")
ENTRIES = [FOLDER, OTHER, HEAD, TAIL]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({".meta": b""}, FOLDER),
        ({"meta/sizes": b"x"}, FOLDER),
        ({".other": b"x", ".meta": b"x"}, FOLDER),
        ({".other": b"x"}, OTHER),
        ({"meta": b"x"}, OTHER),
        ({"meta/other": b"x", "x.meta": b""}, None),
        ({".meta/folder": b"x"}, None),
        ({".meta/folder": b"x", "meta": b"x"}, OTHER),
        ({"readme": b""}, OTHER),
        ({}, None),
    ],
)
def test_folders(content: dict[str, bytes], expected: FormatEntry | None) -> None:
    assert detect(MemoryStore(content), ENTRIES) is expected
    below = MemoryStore({f"a/b/{key}": data for key, data in content.items()})
    assert detect(below, ENTRIES, path="a/b") is expected


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
def test_files(data: bytes | None, expected: FormatEntry | None) -> None:
    store = MemoryStore({} if data is None else {"file": data, ".meta": b""})
    assert detect(store, ENTRIES, "file") is expected


def test_what_was_looked_for() -> None:
    assert describe_search(ENTRIES) == (
        "folder (.meta, meta/sizes), other (.other, meta), head (a single file), "
        "tail (a single file)"
    )


def test_folders_and_files() -> None:
    assert (FOLDER.is_folder, FOLDER.is_file) == (True, False)
    assert (HEAD.is_folder, HEAD.is_file) == (False, True)
    single = {name for name, entry in FORMATS.entries.items() if entry.is_file}
    assert single == {"bloscpack", "varlen"}
    assert {name for name, entry in FORMATS.entries.items() if entry.is_folder} == {
        name for name in FORMATS.entries if name not in single
    }
