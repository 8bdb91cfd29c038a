"""A journal is used whole or not at all: what is wrong with it is said, and nothing is touched."""

import contextlib
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from ingot.errors import CorruptionError, IngotError, UnsafeError, UnsupportedError
from ingot.stores import Commit, Extent, LocalStore, Put
from ingot.stores.local import files
from ingot.stores.local.journal import (
    Carried,
    Journal,
    Placed,
    Removed,
    Truncated,
    Written,
    pack,
    parse,
)

ENTRIES = (
    Placed("f/a", "f/.g-1-a", 3, zlib.crc32(b"new")),
    Written("b", 2, b"xyz", 4),
    Written("b", 0, b"", 4),
    Removed("c"),
)
TRUNCATING = Written("b", 1, b"x", 4), Truncated("b", 2, 4)
JOURNAL = Journal("00112233aabbccdd", ENTRIES)
CARRYING = Journal(
    "00112233aabbccdd",
    (Carried("f/a", "f/.g-1-a", b"new"), *ENTRIES[1:], Carried("e", ".g-1-e", b"")),
)


def _sealed(data: bytes) -> bytes:
    """Return changed bytes of a journal with a checksum that fits them."""
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little")


def test_what_is_packed_is_parsed() -> None:
    assert parse(pack(JOURNAL), "x") == JOURNAL
    assert parse(pack(Journal("0" * 16, ())), "x").entries == ()


def test_the_bytes_are_as_the_format_page_draws_them() -> None:
    placed = (1, 0, 3, 8, 0, zlib.crc32(b"new"), 0, 0, 3, 0)
    written = (2, 0, 1, 0, 0, zlib.crc32(b"xyz"), 0, 2, 3, 4)
    nothing = (2, 0, 1, 0, 0, 0, 0, 0, 0, 4)
    removed = (3, 0, 1, 0, 0, 0, 0, 0, 0, 0)
    tails = (b"f/af/.g-1-a", b"bxyz", b"b", b"c")
    entries = b"".join(
        struct.pack("<BBHHHIIQQQ", *fields) + tail
        for fields, tail in zip((placed, written, nothing, removed), tails, strict=True)
    )
    assert len(entries) == 4 * 40 + 17
    head = b"\x89IngotJ\n" + struct.pack("<HHI", 1, 0, 4) + b"00112233aabbccdd"
    expected = head + struct.pack("<Q", 40 + len(entries) + 4) + entries
    expected += struct.pack("<I", zlib.crc32(expected))
    assert pack(JOURNAL) == expected
    assert parse(expected, "x") == JOURNAL
    # These bytes are on disks: a version that reads them otherwise needs another number.
    removal = bytes.fromhex(
        "89496e676f744a0a 0100 0000 01000000 30303030303030303030303030303030 5500000000000000"
        "03 00 0100 0000 0000 00000000 00000000 0000000000000000 0000000000000000"
        "0000000000000000 63"
    )
    assert pack(Journal("0" * 16, (Removed("c"),)))[:-4] == removal
    assert parse(_sealed(removal + bytes(4)), "x").entries == (Removed("c"),)


def test_a_journal_that_truncates_has_a_version_of_its_own() -> None:
    journal = Journal("0" * 16, TRUNCATING)
    data = pack(journal)
    assert (pack(JOURNAL)[8], data[8]) == (1, 2)
    assert parse(data, "x") == journal
    cut = struct.pack("<BBHHHIIQQQ", 4, 0, 1, 0, 0, 0, 0, 0, 2, 4) + b"b"
    assert data[:-4].endswith(cut)
    longer = Journal("0" * 16, (Truncated("b", 5, 4),))
    with pytest.raises(CorruptionError, match="kind 4"):
        parse(pack(longer), "x")
    hole = Journal("0" * 16, (Written("b", 5, b"x", 4),))
    with pytest.raises(CorruptionError, match="'j': a key holds 4 bytes, a patch starts at 5"):
        parse(pack(hole), "'j'")


def test_a_journal_that_carries_values_has_a_version_of_its_own() -> None:
    value = b"seven"
    fields = (5, 0, 3, 8, 0, zlib.crc32(value), 0, 0, 5, 0)
    entry = struct.pack("<BBHHHIIQQQ", *fields) + b"f/af/.g-1-a" + value
    head = b"\x89IngotJ\n" + struct.pack("<HHI", 3, 0, 1) + b"0" * 16
    expected = head + struct.pack("<Q", 40 + len(entry) + 4) + entry
    expected += struct.pack("<I", zlib.crc32(expected))
    journal = Journal("0" * 16, (Carried("f/a", "f/.g-1-a", value),))
    assert pack(journal) == expected
    assert parse(expected, "x") == journal
    assert parse(pack(CARRYING), "x") == CARRYING


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (8, 2, "version 2 has entries of version 3"),
        (8, 1, "version 1 has entries of version 3"),
        (40 + 8, 0, "checksum"),
        (40 + 16, 1, "at 1"),
        (40 + 32, 4, "behind 4"),
        (40 + 24, 4, "entry 0"),
        (40 + 24, 6, "cut off"),
        (40 + 31, 0x7F, "cut off"),
        (40 + 4, 0, "entry 0"),
        (40 + 51, ord("S"), "checksum"),
    ],
)
def test_every_claim_about_a_carried_value_is_checked(at: int, value: int, message: str) -> None:
    data = pack(Journal("0" * 16, (Carried("f/a", "f/.g-1-a", b"seven"),)))
    assert data[at] != value
    changed = _sealed(data[:at] + bytes([value]) + data[at + 1 :])
    with pytest.raises((CorruptionError, UnsafeError), match=message):
        parse(changed, "j")


@pytest.mark.parametrize("journal", [JOURNAL, CARRYING])
def test_any_damaged_byte_is_noticed(journal: Journal) -> None:
    data = pack(journal)
    for at in range(len(data)):
        for value in (data[at] ^ 1, data[at] ^ 0x80, 0, 255):
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            if damaged != data:
                with pytest.raises((CorruptionError, UnsupportedError), match="'j'"):
                    parse(damaged, "'j'")
    for length in range(len(data)):
        with pytest.raises((CorruptionError, UnsupportedError), match="'j'"):
            parse(data[:length], "'j'")


def test_a_journal_has_at_least_a_head_and_a_checksum() -> None:
    least = pack(Journal(JOURNAL.transaction, ()))
    assert parse(least, "j") == Journal(JOURNAL.transaction, ())
    for length in range(8, len(least)):
        with pytest.raises(CorruptionError, match=f"journal of {length} bytes has no room"):
            parse(least[:length], "j")


@pytest.mark.parametrize("journal", [JOURNAL, CARRYING])
def test_sealed_nonsense_is_an_error_of_ours(journal: Journal) -> None:
    data = pack(journal)
    for at in range(8, len(data) - 4):
        for value in (0, 1, 2, 0x2E, 0x2F, 0x7F, 0xFF):
            changed = _sealed(data[:at] + bytes([value]) + data[at + 1 :])
            with contextlib.suppress(IngotError):
                parse(changed, "j")


def test_a_later_version_is_refused() -> None:
    data = bytearray(pack(JOURNAL))
    data[8] = 4
    with pytest.raises(UnsupportedError, match="version 4"):
        parse(_sealed(bytes(data)), "j")


@pytest.mark.parametrize(
    "entry",
    [
        Removed("../x"),
        Removed("/etc/x"),
        Removed("a/../b"),
        Placed("a", "b", 0, 0),
        Placed("f/a", ".g-1-a", 0, 0),
        Placed("a", "../.g-1-a", 0, 0),
        Written("C:/x", 0, b"", 0),
        Carried("../x", "../.g-1-x", b""),
        Carried("f/a", ".g-1-a", b""),
        Carried("a", "b", b""),
        # The replay removes the staged file, so it must not be that of another key.
        Carried("f/a", "f/.g-1-b", b""),
    ],
)
def test_entries_that_reach_out_are_unsafe(entry: Removed | Placed | Written | Carried) -> None:
    with pytest.raises(UnsafeError, match="entry 0"):
        parse(pack(Journal("0" * 16, (entry,))), "j")


def test_two_entries_about_one_key_are_corrupt() -> None:
    for second in (Removed("b"), Placed("b", ".g-1-b", 0, 0), Carried("b", ".g-1-b", b"")):
        with pytest.raises(CorruptionError, match="second"):
            parse(pack(Journal("0" * 16, (Written("b", 0, b"", 0), second))), "j")


# In a store


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("f/a", b"old"), Put("b", b"0123"), Put("c", b"gone soon"))))
    (tmp_path / ".lock").write_bytes(b"")  # As after a power cut: the state is unknown.
    return store


def _content(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_journal_is_seen_by_readers_and_finished_by_writers(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "f" / ".g-1-a").write_bytes(b"new")
    (tmp_path / "f" / ".g-7-a").write_bytes(b"litter")
    (tmp_path / ".commit").write_bytes(pack(JOURNAL))
    before = _content(tmp_path)
    keys = [Extent("f/a"), Extent("b"), Extent("c"), Extent("b", 1, 2), Extent("b", 4)]
    after = [b"new", b"01xyz", None, b"1x", b"z"]
    view = LocalStore(tmp_path).view()
    assert view.read(keys) == after
    assert [view.size(key) for key in ("f/a", "b", "c")] == [3, 5, None]
    assert (list(view.names()), list(view.names("f"))) == (["b", "f/"], ["a"])
    assert _content(tmp_path) == before
    for _ in range(2):
        store.recover()
        assert store.read(keys) == after
        assert _content(tmp_path) == {"f/a": b"new", "b": b"01xyz"}
        assert store.view() is store


@pytest.mark.parametrize("staged", [None, b"", b"torn", b"new"])
@pytest.mark.parametrize("applied", [False, True])
def test_a_carried_value_needs_no_staged_file(
    store: LocalStore, tmp_path: Path, staged: bytes | None, applied: bool
) -> None:
    if staged is not None:
        (tmp_path / "f" / ".g-1-a").write_bytes(staged)
    if applied:
        (tmp_path / "f" / "a").write_bytes(b"new")
    (tmp_path / ".commit").write_bytes(pack(CARRYING))
    before = _content(tmp_path)
    keys = [Extent("f/a"), Extent("b"), Extent("c"), Extent("e")]
    after = [b"new", b"01xyz", None, b""]
    view = LocalStore(tmp_path).view()
    assert view.read(keys) == after
    assert list(view.names()) == ["b", "e", "f/"]
    assert _content(tmp_path) == before
    for _ in range(2):
        store.recover()
        assert store.read(keys) == after
        assert _content(tmp_path) == {"f/a": b"new", "b": b"01xyz", "e": b""}


def test_a_carried_value_takes_the_place_of_an_empty_folder(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "e" / "below").mkdir(parents=True)
    (tmp_path / ".commit").write_bytes(pack(CARRYING))
    store.recover()
    assert _content(tmp_path) == {"f/a": b"new", "b": b"01xyz", "e": b""}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptionError),
        (bytes(400), CorruptionError),
        (b"tree 5f3a\n", UnsupportedError),
        (pack(JOURNAL)[:-1], CorruptionError),
        (pack(Journal("0" * 16, (Removed(".lock"),))), UnsafeError),
        (pack(Journal("0" * 16, (Removed(".commit"),))), UnsafeError),
        (pack(Journal("0" * 16, (Carried(".lock", ".g-1-.lock", b"x"),))), UnsafeError),
        (pack(CARRYING)[:-1], CorruptionError),
    ],
)
def test_a_foreign_or_damaged_journal_is_never_applied(
    store: LocalStore, tmp_path: Path, data: bytes, error: type[Exception]
) -> None:
    (tmp_path / ".commit").write_bytes(data)
    before = _content(tmp_path)
    for use in (
        store.recover,
        LocalStore(tmp_path).view,
        lambda: store.apply(Commit(publish=(Put("f/a", b"newer"),))),
    ):
        with pytest.raises(error, match=r"\.commit|\.lock"):
            use()
    assert _content(tmp_path) == before


@pytest.mark.parametrize(
    "entries",
    [
        (Removed("c"), Placed("f/a", "f/.g-1-a", 3, zlib.crc32(b"new"))),
        (Removed("c"), Placed("f/a", "f/.g-1-a", 4, zlib.crc32(b"old"))),
        (Removed("c"), Placed("f/z", "f/.g-1-z", 0, 0)),
        (Removed("c"), Written("b", 2, b"x", 3)),
        (Removed("c"), Written("b", 8, b"x", 8)),
        (Removed("c"), Written("z", 0, b"x", 0)),
        (Carried("c", ".g-1-c", b"new"), Written("b", 2, b"x", 3)),
    ],
)
def test_a_stale_journal_is_never_applied(
    store: LocalStore, tmp_path: Path, entries: tuple[Removed | Placed | Written | Carried, ...]
) -> None:
    (tmp_path / ".commit").write_bytes(pack(Journal("0" * 16, entries)))
    before = _content(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptionError):
            store.recover()
    assert _content(tmp_path) == before


def test_a_disk_that_is_too_small_is_noticed_before(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files._LocalDirectory, "free_bytes", lambda self: 1_500_000)
    before = _content(tmp_path)
    with pytest.raises(OSError, match="2000000 bytes to write, 1500000 are free"):
        store.apply(Commit(publish=(Put("d", bytes(2_000_000)),)))
    assert _content(tmp_path) == before


def test_the_bytes_of_patches_are_copied_once() -> None:
    size = 4 << 20
    journal = Journal("00112233aabbccdd", (Written("b", 2, bytes(size), 4), Removed("c")))
    tracemalloc.start()
    try:
        packed = pack(journal)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size < peak < 1.5 * size
    assert parse(packed, "x") == journal
