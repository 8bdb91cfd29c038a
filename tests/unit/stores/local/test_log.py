"""The log: its sectors, what is damage and what the end of a writer, and when it is closed."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, IngotError, UnsafeError, UnsupportedError
from ingot.stores import Commit, Extent, LocalStore, Patch, Put
from ingot.stores.local import log, store
from ingot.stores.local.journal import Carried, Journal, Removed, Written
from ingot.stores.local.lock import LockState
from ingot.stores.local.log import SECTOR, begin, frame, parse

NAME = "00112233aabb"


def _record(key: str, data: bytes) -> Journal:
    return Journal(f"{NAME}0000", (Written(key, 0, data, len(data)),))


SHORT, LONG = _record("a", b"new"), _record("b", bytes(range(256)) * 4)


def _log(*records: Journal, sectors: int = 8) -> bytes:
    data, tail = bytearray(begin(NAME, sectors)), 1
    for record in records:
        framed = frame(record, tail)
        data[tail * SECTOR : tail * SECTOR + len(framed)] = framed
        tail += len(framed) // SECTOR
    return bytes(data)


WHOLE = _log(SHORT, LONG, SHORT)


def _prefixes(found: tuple[Journal, ...]) -> bool:
    return found in [(SHORT, LONG, SHORT)[:count] for count in range(4)]


def test_records_are_read_in_their_order() -> None:
    found = parse(WHOLE, "'.log'")
    assert found.records == (SHORT, LONG, SHORT)
    assert (found.tail, found.sectors) == (6, 8)
    assert [entry.key for entry in found.whole.entries] == ["b", "a"]


def test_every_flipped_bit_of_a_record_is_an_error() -> None:
    for at in range(6 * SECTOR):
        for bit in (0, 3, 7):
            data = bytearray(WHOLE)
            data[at] ^= 1 << bit
            with pytest.raises((CorruptionError, UnsupportedError)):
                parse(bytes(data), "'.log'")


def test_bits_behind_the_last_record_are_no_record() -> None:
    for at in range(6 * SECTOR, 8 * SECTOR):
        data = bytearray(WHOLE)
        data[at] ^= 1
        with pytest.raises(CorruptionError):
            parse(bytes(data), "'.log'")


def test_every_truncation_is_an_error() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises((CorruptionError, UnsupportedError)):
            parse(WHOLE[:length], "'.log'")
    with pytest.raises(
        CorruptionError, match="claims 8 sectors of 512 bytes, 4608 bytes are stored"
    ):
        parse(WHOLE + bytes(SECTOR), "'.log'")


def test_a_torn_last_record_is_the_end_of_a_log() -> None:
    """Any of its sectors may be missing. In front of another record that is damage."""
    last = _log(SHORT, LONG)
    for missing in itertools.product([False, True], repeat=3):
        data = bytearray(last)
        for sector, gone in enumerate(missing, 2):
            if gone:
                data[sector * SECTOR : (sector + 1) * SECTOR] = bytes(SECTOR)
        found = parse(bytes(data), "'.log'")
        assert found.records == ((SHORT,) if any(missing) else (SHORT, LONG))
        assert found.tail == (2 if any(missing) else 5)
        if any(missing):
            data[5 * SECTOR : 6 * SECTOR] = frame(SHORT, 5)
            with pytest.raises(CorruptionError, match="is not whole, and sector 5 follows it"):
                parse(bytes(data), "'.log'")


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", CorruptionError, "not a log of Ingot"),
        (bytes(1024), CorruptionError, "not a log of Ingot"),
        (b"x" * 1024, UnsupportedError, "not a log of Ingot"),
        (begin(NAME, 4)[:300], CorruptionError, "300 bytes has no room for its head"),
        (
            log._sealed(log._HEAD.pack(log._MAGIC, 2, 0, 1, NAME.encode()), 0),
            UnsupportedError,
            "a log of version 2, flags 0",
        ),
        (
            log._sealed(log._HEAD.pack(log._MAGIC, 1, 1, 1, NAME.encode()), 0),
            UnsupportedError,
            "a log of version 1, flags 1",
        ),
        (
            log._sealed(log._HEAD.pack(log._MAGIC, 1, 0, 1, b"../../../.."), 0),
            CorruptionError,
            "a head with the name",
        ),
        (
            begin(NAME, 4)[:SECTOR] + frame(_record("a", bytes(2000)), 1)[: 3 * SECTOR],
            CorruptionError,
            "the record in sector 1 claims",
        ),
        (begin(NAME, 4)[:SECTOR] + frame(SHORT, 2) + bytes(1024), CorruptionError, "belongs to"),
        (
            begin(NAME, 4)[:SECTOR] + frame(Journal("f" * 16, SHORT.entries), 1) + bytes(1024),
            CorruptionError,
            "is one of the log 'ffffffffffff'",
        ),
        (
            begin(NAME, 4)[:SECTOR]
            + frame(Journal(f"{NAME}0000", (Removed("a"),)), 1)
            + bytes(1024),
            CorruptionError,
            "entries of another kind",
        ),
        (
            begin(NAME, 4)[:SECTOR]
            + frame(Journal(f"{NAME}0000", (Carried("a", ".g-1-a", b"x"),)), 1)
            + bytes(1024),
            CorruptionError,
            "entries of another kind",
        ),
    ],
)
def test_what_is_no_log(data: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        parse(data, "'.log'")


# In a folder --------------------------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a log begun by the first commit that can go into one."""
    monkeypatch.setattr(store, "COMMITS_BEFORE_LOG", 0)


def _patch(value: bytes) -> Commit:
    return Commit(publish=(Patch("a", 2, value), Patch("b", 2, value)))


BOTH = [Extent("a"), Extent("b")]


def _logged(folder: Path, *values: bytes) -> LocalStore:
    found = LocalStore(folder, writable=True)
    found.apply(Commit(publish=(Put("a", b"0123456789"), Put("b", b"abcdefghij"))))
    for value in values:
        found.apply(_patch(value))
    assert (folder / ".log").exists()
    return found


def _cut_power(folder: Path) -> None:
    """Let the lock file be one of a system that ran before."""
    data = bytearray((folder / ".lock").read_bytes())
    data[16:24] = b"another."
    (folder / ".lock").write_bytes(data)


def _revert(folder: Path) -> None:
    """Let the files be what they were before the log, as a power cut may leave them."""
    (folder / "a").write_bytes(b"0123456789")
    (folder / "b").write_bytes(b"abcdefghij")


@pytest.mark.usefixtures("always")
def test_a_log_is_applied_after_a_power_cut(tmp_path: Path) -> None:
    kept = _logged(tmp_path, b"--", b"++")
    _revert(tmp_path)
    _cut_power(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert LocalStore(tmp_path).view().read(BOTH) == [b"01++456789", b"ab++efghij"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    LocalStore(tmp_path, writable=True).recover()
    assert LocalStore(tmp_path).read(BOTH) == [b"01++456789", b"ab++efghij"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a", "b"]
    kept.close_log()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a", "b"]


@pytest.mark.usefixtures("always")
def test_every_damage_of_a_log_is_an_error_or_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOG_SECTORS", 4)
    kept = _logged(tmp_path, b"--", b"++")
    _revert(tmp_path)
    _cut_power(tmp_path)
    whole = (tmp_path / ".log").read_bytes()

    def damaged() -> list[bytes]:
        flipped = [
            bytes([*whole[:at], whole[at] ^ 64, *whole[at + 1 :]]) for at in range(len(whole))
        ]
        return flipped + [whole[:length] for length in range(0, len(whole), 7)]

    refused = 0
    for data in damaged():
        (tmp_path / ".log").write_bytes(data)
        for read in (
            lambda: LocalStore(tmp_path).view().read(BOTH),
            lambda: _recovered(tmp_path),
        ):
            try:
                found = read()
            except (CorruptionError, UnsupportedError):
                refused += 1
                assert (tmp_path / "a").read_bytes() == b"0123456789", "nothing is applied"
                _cut_power(tmp_path)
            else:
                raise AssertionError(f"{found} of a damaged log")
    assert refused == 2 * len(damaged())
    (tmp_path / ".log").write_bytes(whole)
    assert _recovered(tmp_path) == [b"01++456789", b"ab++efghij"]
    del kept


@pytest.mark.usefixtures("always")
def test_a_record_that_no_log_has_room_for_takes_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOG_SECTORS", 4)
    names = ["k" * 200 + str(number) for number in range(9)]
    found = LocalStore(tmp_path, writable=True)
    with found.writing() as turn:
        turn.commit(Commit(publish=tuple(Put(name, b"0123456789") for name in names)))
    for count, logged in ((2, True), (9, False), (2, True)):
        with found.writing() as turn:
            turn.commit(Commit(publish=tuple(Patch(name, 2, b"--") for name in names[:count])))
        assert (tmp_path / ".log").exists() == logged
        assert LocalStore(tmp_path).view().read([Extent(names[count - 1])]) == [b"01--456789"]
    found.close_log()


def _recovered(folder: Path) -> list[bytes | None]:
    found = LocalStore(folder, writable=True)
    found.recover()
    return found.read(BOTH)


@pytest.mark.usefixtures("always")
def test_a_log_of_another_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = _logged(tmp_path / "one", b"--"), _logged(tmp_path / "other", b"++")
    shutil.copy(tmp_path / "other" / ".log", tmp_path / "one" / ".log")
    _cut_power(tmp_path / "one")
    found = LocalStore(tmp_path / "one", writable=True)
    for read in (found.view, found.recover, found.check_journal):
        with pytest.raises(CorruptionError, match="of another dataset or of another time"):
            read()
    assert (tmp_path / "one" / "a").read_bytes() == b"01--456789"
    os.remove(tmp_path / "one" / ".log")
    other.close_log()
    one.close_log()


@pytest.mark.usefixtures("always")
def test_a_log_that_came_back_from_a_copy_is_refused(tmp_path: Path) -> None:
    kept = _logged(tmp_path, b"--")
    old = (tmp_path / ".log").read_bytes()
    kept.apply(Commit(publish=(Put("a", b"later"), Put("b", b"later"))))
    assert not (tmp_path / ".log").exists()
    (tmp_path / ".log").write_bytes(old)
    _cut_power(tmp_path)
    with pytest.raises(CorruptionError, match="the lock file names none"):
        LocalStore(tmp_path).view()
    with pytest.raises(CorruptionError, match="the lock file names none"):
        LocalStore(tmp_path, writable=True).recover()
    assert (tmp_path / "a").read_bytes() == b"later"
    os.remove(tmp_path / ".log")
    assert _recovered(tmp_path) == [b"later", b"later"]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cut", [False, True])
def test_a_copy_of_a_folder_with_an_open_log_is_the_same_dataset(tmp_path: Path, cut: bool) -> None:
    kept = _logged(tmp_path / "one", b"--", b"++")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    if cut:  # On another machine.
        _cut_power(tmp_path / "two")
    new = LocalStore(tmp_path / "two", writable=True)
    assert new.view().read(BOTH) == [b"01++456789", b"ab++efghij"]
    new.apply(_patch(b"=="))
    new.close_log()
    kept.apply(_patch(b".."))
    kept.close_log()
    assert LocalStore(tmp_path / "one").read(BOTH) == [b"01..456789", b"ab..efghij"]
    assert LocalStore(tmp_path / "two").read(BOTH) == [b"01==456789", b"ab==efghij"]
    for name in ("one", "two"):
        assert sorted(os.listdir(tmp_path / name)) == [".lock", "a", "b"]


@pytest.mark.usefixtures("always")
def test_another_writer_takes_a_log_over(tmp_path: Path) -> None:
    first = _logged(tmp_path, b"--")
    name = (tmp_path / ".log").read_bytes()[:SECTOR]
    second = LocalStore(tmp_path, writable=True)
    second.apply(_patch(b"++"))
    first.apply(_patch(b".."))
    assert (tmp_path / ".log").read_bytes()[:SECTOR] == name
    assert len(parse((tmp_path / ".log").read_bytes(), "'.log'").records) == 3
    first.close_log()
    assert not (tmp_path / ".log").exists()
    second.apply(_patch(b"=="))
    assert (tmp_path / ".log").read_bytes()[:SECTOR] != name
    second.close_log()
    assert LocalStore(tmp_path).read(BOTH) == [b"01==456789", b"ab==efghij"]
    assert sorted(os.listdir(tmp_path)) == [".lock", "a", "b"]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "other",
    [
        lambda found: found.apply(Commit(publish=(Put("a", b"x"), Put("c", b"y")))),
        lambda found: found.apply(Commit(publish=(Patch("a", 0, b"x"),))),
        lambda found: found.apply(_patch(b".."), durability="process"),
        lambda found: found.recover(),
        lambda found: found.close_log(),
    ],
)
def test_any_other_commit_closes_the_log(
    tmp_path: Path, other: Callable[[LocalStore], None]
) -> None:
    kept = _logged(tmp_path, b"--")
    other(kept)
    assert not (tmp_path / ".log").exists()
    assert (tmp_path / ".lock").read_bytes()[24:32] in (b"\1" + bytes(7), b"\2" + bytes(7))


@pytest.mark.usefixtures("always")
def test_the_log_goes_with_the_last_reference(tmp_path: Path) -> None:
    kept = _logged(tmp_path, b"--")
    del kept
    assert not (tmp_path / ".log").exists()
    kept = _logged(tmp_path, b"--")
    shutil.rmtree(tmp_path)
    del kept
    assert not tmp_path.exists(), "what was removed stays removed"


def test_a_log_is_begun_after_some_commits_in_a_row(tmp_path: Path) -> None:
    found = LocalStore(tmp_path, writable=True)
    found.apply(Commit(publish=(Put("a", b"0123456789"), Put("b", b"abcdefghij"))))
    for _ in range(2):
        for number in range(store.COMMITS_BEFORE_LOG):
            found.apply(_patch(b"%2d" % number))
            assert not (tmp_path / ".log").exists()
        found.apply(Commit(publish=(Put("c", b"between"),)))
    for number in range(store.COMMITS_BEFORE_LOG + 1):
        found.apply(_patch(b"%2d" % number))
    assert (tmp_path / ".log").exists()
    found.close_log()


@pytest.mark.usefixtures("always")
def test_a_writer_without_locks_applies_a_log(tmp_path: Path) -> None:
    kept = _logged(tmp_path, b"--")
    _revert(tmp_path)
    alone = LocalStore(tmp_path, writable=True, locking=False)
    alone.apply(_patch(b"++"))
    assert not (tmp_path / ".log").exists()
    assert alone.read(BOTH) == [b"01++456789", b"ab++efghij"]
    # The lock file still speaks of a log.
    kept.apply(_patch(b".."))
    kept.close_log()
    assert LocalStore(tmp_path).read(BOTH) == [b"01..456789", b"ab..efghij"]


@pytest.mark.usefixtures("always")
def test_a_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".log").write_bytes(b"of another program")
    found = LocalStore(tmp_path, writable=True, dataset=store.WHOLE)
    found.apply(Commit(publish=(Put("a", b"0123456789"), Put("b", b"abcdefghij"))))
    found.check_journal()
    found.apply(_patch(b"--"))
    _cut_power(tmp_path)
    assert _recovered(tmp_path) == [b"01--456789", b"ab--efghij"]
    with pytest.raises(UnsafeError, match="the store's own"):
        found.apply(Commit(publish=(Put(".log", b""),)))
    assert (tmp_path / ".log").read_bytes() == b"of another program"


@pytest.mark.usefixtures("always")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_end_of_a_child_leaves_the_log_of_its_parent(tmp_path: Path) -> None:
    kept = _logged(tmp_path, b"--")
    child = os.fork()
    if child == 0:
        del kept
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / ".log").exists()
    kept.apply(_patch(b"++"))
    kept.close_log()
    assert LocalStore(tmp_path).read(BOTH) == [b"01++456789", b"ab++efghij"]


@pytest.mark.usefixtures("always")
def test_a_file_that_is_too_short_for_its_log_is_an_error(tmp_path: Path) -> None:
    kept = _logged(tmp_path, b"--")
    (tmp_path / "b").write_bytes(b"abc")
    _cut_power(tmp_path)
    with pytest.raises(CorruptionError, match="changes 'b' up to byte 10, 3 are stored"):
        LocalStore(tmp_path, writable=True).recover()
    assert (tmp_path / "b").read_bytes() == b"abc"
    os.remove(tmp_path / ".log")
    del kept


@pytest.mark.usefixtures("always")
def test_a_closed_array_leaves_nothing_but_its_lock_file(tmp_path: Path) -> None:
    values = np.arange(1000)
    array = ingot.array(values, tmp_path / "a.blsk", chunks=100, superchunksize=4)
    reader = ingot.open(tmp_path / "a.blsk")
    assert isinstance(reader, ingot.Array)
    for number in range(5):
        array[50:650] = values[50:650] = number
        assert (tmp_path / "a.blsk" / ".log").exists()
        assert np.array_equal(reader[...], values)
        state = (tmp_path / "a.blsk" / ".lock").read_bytes()[24]
        assert state == LockState.LOGGED
        assert ingot.check(tmp_path / "a.blsk").ok
    array.close()
    assert sorted(os.listdir(tmp_path / "a.blsk")) == [".lock", "data", "meta"]
    assert np.array_equal(ingot.open(tmp_path / "a.blsk")[...], values)


@pytest.mark.usefixtures("always")
def test_a_damaged_log_is_found_and_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.blsk"
    array = ingot.array(np.arange(1000), path, chunks=100, superchunksize=4)
    array[50:650] = 1
    data = bytearray((path / ".log").read_bytes())
    data[600] ^= 1
    (path / ".log").write_bytes(data)
    _cut_power(path)
    with pytest.raises(IngotError, match="sector 1 does not agree with its checksum"):
        ingot.open(path)[...]
    report = ingot.check(path)
    assert not report.ok
    assert "'.log': sector 1 does not agree with its checksum" in str(report)
    ingot.repair(path, backup=True)
    assert not (path / ".log").exists()
    assert ingot.check(path).ok
    del array
