"""The contract of stores: tests that the author of a store runs against it.

Needs pytest (the extra `test`).
"""

import random
import threading
import time
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from typing import Final

import pytest

from ingot.errors import (
    CorruptionError,
    FormatError,
    NotFoundError,
    ReadOnlyError,
    UnsafeError,
    UnsupportedError,
)
from ingot.stores.store import (
    Commit,
    Delete,
    Edit,
    Extent,
    Feature,
    Grown,
    Move,
    Patch,
    Put,
    Store,
    Truncate,
    extend,
    is_staged,
    staged_key,
)
from ingot.stores.versions import writing

__all__ = ["HOSTILE_KEYS", "StoreContract"]

HOSTILE_KEYS: Final[tuple[str, ...]] = (
    *("", "/", "//", ".", "..", "../x", "a/..", "a/../b", "a/./b", "./a", "a//b", "a/", "/etc/x"),
    *("a\\b", "..\\x", "\\\\host\\share", "C:", "c:x", "C:/x", "a/C:/x"),
    *("a\0b", "a\nb", "a\x1b[2J", "a\x7f", "a\x85b", "\0"),
    *("CON", "con.txt", "a/NUL", "Aux.blp", "prn.", "com1", "LPT9.tar.gz", "COM¹", "nul .x"),
    *("conin$", "CONOUT$", "NUL:", "a ", "a. ", "...", " "),
    *("x" * 256, "a/" + "é" * 128, "\ud800", "a/\udcff"),
)
"""Keys that every store refuses, for reading as for writing."""

_UNWRITTEN_KEYS: Final = ("a.", "a/b./c")

_Use = Callable[[Store, str], object]


def _put(store: Store, key: str) -> None:
    store.apply(Commit(publish=(Put(key, b"hostile"),)))


def _patch(store: Store, key: str) -> None:
    store.apply(Commit(publish=(Patch(key, 0, b"hostile"),)))


def _delete(store: Store, key: str) -> None:
    store.apply(Commit(cleanup=(Delete(key),)))


_READS: Final[Mapping[str, _Use]] = {
    "read": lambda store, key: store.read([Extent("present"), Extent(key)]),
    "size": lambda store, key: store.size(key),
    "identity": lambda store, key: store.identity(key),
}
_WRITES: Final[Mapping[str, _Use]] = {"put": _put, "patch": _patch, "delete": _delete}


class StoreContract:
    """What every store must do. Subclass it and give the fixture `store`: a store without keys.

    The tests of a store that cannot write override `fill` as well. Tests of a feature are skipped
    when the store does not advertise it; that it refuses the operations is tested instead.

    >>> from ingot.stores import MemoryStore
    >>> class TestMemoryStore(StoreContract):
    ...     @pytest.fixture
    ...     def store(self):
    ...         return MemoryStore()
    """

    @pytest.fixture
    def store(self) -> Store:
        """Return a store that holds nothing; each test gets its own."""
        raise NotImplementedError("a StoreContract needs a fixture `store`")

    def fill(self, store: Store, content: Mapping[str, bytes]) -> Store:
        """Return a store of the same kind that holds `content`; by default `store`, written to."""
        store.apply(Commit(publish=tuple(Put(key, data) for key, data in content.items())))
        return store

    # Properties

    def test_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)
        assert isinstance(store.features, Feature)
        assert store.location

    def test_native_stores_have_a_root(self, store: Store) -> None:
        if Feature.NATIVE in store.features:
            assert isinstance(getattr(store, "root", None), str)

    # Reading

    def test_reads_whole_values(self, store: Store) -> None:
        content = {"a": b"alpha", "b/c": b"beta", "b/d/e": bytes(range(256)) * 40}
        filled = self.fill(store, content)
        assert filled.read([Extent(key) for key in content]) == list(content.values())

    def test_reading_nothing_gives_nothing(self, store: Store) -> None:
        assert self.fill(store, {"a": b"alpha"}).read([]) == []

    @pytest.mark.parametrize("length", [None, 0, 1, 9, 10, 11, 2**40, 2**63, 2**70])
    def test_reads_what_an_extent_finds(self, store: Store, length: int | None) -> None:
        value = b"0123456789"
        filled = self.fill(store, {"a": value})
        for start in (0, 1, 9, 10, 11, 2**40, 2**63, 2**70):
            expected = value[start:] if length is None else value[start : start + length]
            assert filled.read([Extent("a", start, length)]) == [expected]

    def test_reads_extents_in_the_order_asked(self, store: Store) -> None:
        filled = self.fill(store, {"a": b"0123456789", "b": b"abcdefghij"})
        wanted = [("a", 5, 3), ("b", 2, 4), ("a", 0, 2), ("a", 5, 3), ("b", 0, 10), ("a", 4, 4)]
        assert filled.read([Extent(*extent) for extent in wanted]) == [
            b"567",
            b"cdef",
            b"01",
            b"567",
            b"abcdefghij",
            b"4567",
        ]

    def test_only_absence_is_none(self, store: Store) -> None:
        filled = self.fill(store, {"empty": b"", "b/c": b"beta"})
        extents = [Extent("empty"), Extent("nope"), Extent("empty", 4, 2), Extent("b/c/d")]
        assert filled.read([*extents, Extent("nope", 0, 0), Extent("b/c", 0, 0)]) == [
            b"",
            None,
            b"",
            None,
            None,
            b"",
        ]

    def test_sizes(self, store: Store) -> None:
        filled = self.fill(store, {"empty": b"", "b/c": b"beta", "large": bytes(300_000)})
        keys = "empty", "b/c", "large", "nope", "b/nope", "b/c/d"
        assert [filled.size(key) for key in keys] == [0, 4, 300_000, None, None, None]

    def test_an_empty_store_is_absent_everywhere(self, store: Store) -> None:
        assert store.read([Extent("a"), Extent("b/c", 3, 4)]) == [None, None]
        assert store.size("a") is None

    def test_keys_are_text(self, store: Store) -> None:
        keys = ["é", "データ/温度", "a b", "x" * 255, "é" * 127, "12:30", "console", "nullable.x"]
        filled = self.fill(store, {key: key.encode() for key in keys})
        assert filled.read([Extent(key) for key in keys]) == [key.encode() for key in keys]

    def test_impossible_extents_cannot_be_asked_for(self) -> None:
        for start, length in ((-1, None), (0, -1), (-(2**70), 5)):
            with pytest.raises(FormatError, match="'a'"):
                Extent("a", start, length)

    @pytest.mark.parametrize("use", _READS)
    def test_hostile_keys_are_not_read(self, store: Store, use: str) -> None:
        filled = self.fill(store, {"present": b"value"})
        assert _accepted(_READS[use], filled, HOSTILE_KEYS) == []

    # Identities

    def test_an_identity_stays_while_the_value_does(self, store: Store) -> None:
        filled = self.fill(store, {"a": b"alpha", "b/c": b"beta"})
        for key in ("a", "b/c"):
            identity = _known_identity(filled, key)
            hash(identity)
            if identity is not None:
                filled.read([Extent("a"), Extent("b/c")])
                assert [filled.identity(key) for _ in range(3)] == [identity] * 3

    def test_a_change_of_a_value_changes_its_identity(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        staged = staged_key("a", "1f")
        commits = [
            Commit(publish=(Put("a", b"other"),)),
            Commit(publish=(Put("a", b"first"),)),
            Commit(prepare=(Delete("a"),), publish=(Put("a", b"first"),)),
        ]
        if Feature.RENAME in store.features:
            move = Commit(prepare=(Put(staged, b"third"),), publish=(Move(staged, "a"),))
            commits.insert(2, move)
        if Feature.PATCH in store.features:
            commits.append(Commit(publish=(Patch("a", 1, b"IRS"),)))
        self.fill(store, {"a": b"first"})
        seen = {_known_identity(store, "a")} - {None}
        for commit in commits:
            store.apply(commit)
            # At once, and when the store is sure: what was seen before never returns.
            assert store.identity("a") not in seen
            identity = _known_identity(store, "a") if seen else None
            assert identity not in seen
            seen |= {identity} - {None}

    def test_what_is_absent_has_no_identity(self, store: Store) -> None:
        assert [store.identity(key) for key in ("a", "b/c")] == [None, None]
        filled = self.fill(store, {"a": b"alpha", "b/c": b"beta"})
        _known_identity(filled, "a")
        assert [filled.identity(key) for key in ("nope", "b/nope", "b/c/d", "b")] == [None] * 4
        if Feature.WRITE in filled.features:
            filled.apply(Commit(cleanup=(Delete("a"),)))
            assert filled.identity("a") is None

    # Listing

    def test_names_are_children_sorted_folders_marked(self, store: Store) -> None:
        content = dict.fromkeys(["b", "a.x", "a/1", "a/0", "a/c/d", "ab/x", ".zarray", "B"], b"")
        _need(store, Feature.LIST)
        filled = self.fill(store, content)
        assert list(filled.names()) == [".zarray", "B", "a.x", "a/", "ab/", "b"]
        for prefix in ("a", "a/"):
            assert list(filled.names(prefix)) == ["0", "1", "c/"]
        assert list(filled.names("a/c")) == ["d"]

    def test_what_is_absent_has_no_names(self, store: Store) -> None:
        _need(store, Feature.LIST)
        assert list(store.names()) == []
        filled = self.fill(store, {"a/b": b"x"})
        assert [list(filled.names(prefix)) for prefix in ("nope", "a/nope", "a/b")] == [[], [], []]

    def test_staged_names_are_hidden(self, store: Store) -> None:
        keys = ["a/0", staged_key("a/0", "1f"), staged_key("b", "1f")]
        _need(store, Feature.LIST)
        filled = self.fill(store, dict.fromkeys(keys, b"x"))
        assert list(filled.names()) == ["a/"]
        assert list(filled.names(hidden=True)) == [".g-1f-b", "a/"]
        assert list(filled.names("a")) == ["0"]
        assert list(filled.names("a", hidden=True)) == [".g-1f-0", "0"]
        assert filled.read([Extent("a/.g-1f-0")]) == [b"x"]

    def test_hostile_prefixes_are_not_listed(self, store: Store) -> None:
        _need(store, Feature.LIST)
        filled = self.fill(store, {"a/b": b"value"})
        prefixes = [key for key in HOSTILE_KEYS if key not in ("", "a/")]
        assert _accepted(lambda store, key: list(store.names(key)), filled, prefixes) == []

    def test_listing_without_the_feature_is_refused(self, store: Store) -> None:
        if Feature.LIST in store.features:
            pytest.skip("the store lists")
        with pytest.raises(UnsupportedError):
            list(store.names())

    # Writing

    def test_a_store_that_does_not_write_refuses(self, store: Store) -> None:
        filled = self.fill(store, {"a": b"alpha"})
        if Feature.WRITE in filled.features:
            pytest.skip("the store writes")
        for edit in (Put("a", b"new"), Patch("a", 0, b"new"), Delete("a")):
            with pytest.raises(ReadOnlyError):
                filled.apply(Commit(publish=(edit,)))
        assert filled.read([Extent("a")]) == [b"alpha"]

    def test_put_replaces_the_whole_value(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        for value in (b"first", b"a longer second", b"3", b"", bytes(70_000)):
            store.apply(Commit(publish=(Put("a/b", value),)))
            assert store.read([Extent("a/b")]) == [value]
            assert store.size("a/b") == len(value)

    def test_put_takes_any_buffer_and_keeps_its_own_bytes(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        mutable = bytearray(b"0123456789")
        wide = memoryview(bytes(range(16))).cast("I")
        store.apply(Commit(publish=(Put("a", mutable), Put("b", memoryview(mutable)[2:5]))))
        store.apply(Commit(publish=(Put("c", wide), Put("d", memoryview(b"").cast("I")))))
        mutable[:] = b"----------"
        found = store.read([Extent(key) for key in "abcd"])
        assert found == [b"0123456789", b"234", bytes(range(16)), b""]

    def test_delete_removes_and_may_be_repeated(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        store.apply(Commit(publish=(Put("a/b", b"x"), Put("a/c", b"y"))))
        for _ in range(2):
            store.apply(Commit(cleanup=(Delete("a/b"), Delete("nope"), Delete("no/pe"))))
            assert store.read([Extent("a/b"), Extent("a/c")]) == [None, b"y"]

    def test_edits_take_effect_in_order(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        store.apply(
            Commit(
                prepare=(Put("a", b"1"), Put("b", b"1"), Put("c", b"1")),
                publish=(Put("a", b"2"), Delete("b"), Delete("c"), Put("c", b"2"), Put("d", b"2")),
                cleanup=(Put("a", b"3"), Delete("a"), Put("a", b"4"), Delete("d")),
            )
        )
        assert store.read([Extent(key) for key in "abcd"]) == [b"4", None, b"2", None]

    def test_an_empty_commit_changes_nothing(self, store: Store) -> None:
        _need(store, Feature.WRITE | Feature.LIST)
        store.apply(Commit())
        assert list(store.names(hidden=True)) == []

    @pytest.mark.parametrize("use", _WRITES)
    def test_hostile_keys_are_not_written(self, store: Store, use: str) -> None:
        _need(store, Feature.PATCH if use == "patch" else Feature.WRITE)
        assert _accepted(_WRITES[use], store, (*HOSTILE_KEYS, *_UNWRITTEN_KEYS)) == []
        if Feature.LIST in store.features:
            assert list(store.names(hidden=True)) == []

    def test_a_commit_is_checked_before_its_first_edit(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        store.apply(Commit(publish=(Put("a", b"old"),)))
        bad = Put("../a", b"")
        for commit in (
            Commit(prepare=(Put("a", b"new"), bad)),
            Commit(prepare=(Put("a", b"new"),), publish=(bad,)),
            Commit(publish=(Delete("a"),), cleanup=(bad,)),
        ):
            with pytest.raises(UnsafeError):
                store.apply(commit)
            assert store.read([Extent("a")]) == [b"old"]

    # Patching

    def test_patches_change_the_bytes_they_name(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123456789"),)))
        for start, data, expected in (
            (2, b"ab", b"01ab456789"),
            (0, b"", b"01ab456789"),
            (10, b"xy", b"01ab456789xy"),
            (11, bytearray(b"zzz"), b"01ab456789xzzz"),
            (0, memoryview(bytes(14)), bytes(14)),
        ):
            store.apply(Commit(publish=(Patch("a", start, data),)))
            assert store.read([Extent("a")]) == [expected]

    def test_a_patch_leaves_no_hole_and_creates_nothing(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123"),)))
        with pytest.raises(CorruptionError, match=r"'a' holds 4 bytes.* 5"):
            store.apply(Commit(publish=(Patch("a", 5, b"x"),)))
        with pytest.raises(NotFoundError, match="'b'"):
            store.apply(Commit(publish=(Patch("b", 0, b"x"),)))
        assert store.read([Extent("a"), Extent("b")]) == [b"0123", None]
        with pytest.raises(FormatError):
            Patch("a", -1, b"x")

    def test_patching_without_the_feature_is_refused(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        if Feature.PATCH in store.features:
            pytest.skip("the store patches")
        for edit in (Patch("a", 0, b"1"), Truncate("a", 0)):
            with pytest.raises(UnsupportedError):
                store.apply(Commit(prepare=(Put("a", b"0"),), publish=(edit,)))
        assert store.read([Extent("a")]) == [None]
        store.apply(Commit(publish=(Put("a", b"0"),)))
        with writing(store) as turn, pytest.raises(UnsupportedError):
            extend(turn.store, "a", [b"1"])
        assert store.read([Extent("a")]) == [b"0"]

    def test_a_patch_outside_of_publish_does_not_touch_committed_bytes(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123"),)))
        for commit in (
            Commit(prepare=(Patch("a", 3, b"x"),)),
            Commit(prepare=(Truncate("a", 3),)),
            Commit(cleanup=(Patch("a", 0, b"x"),)),
        ):
            with pytest.raises(CorruptionError, match="'a' that the committed state reaches"):
                store.apply(commit)
            assert store.read([Extent("a", 0, 4)]) == [b"0123"]
        store.apply(Commit(prepare=(Patch("a", 4, b"45"),), cleanup=(Truncate("a", 5),)))
        assert store.read([Extent("a")]) == [b"01234"]
        # A value of the same commit is not committed yet.
        store.apply(Commit(prepare=(Put("a", b"abc"), Patch("a", 0, b"x"), Truncate("a", 2))))
        assert store.read([Extent("a")]) == [b"xb"]

    def test_free_bytes_are_written_before_they_are_reached(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"00000016--------ABCDEFGH........"),)))
        free = Patch("a", 24, b"abcdefgh", free=True)
        store.apply(Commit(prepare=(free,), publish=(Patch("a", 6, b"24"),)))
        assert store.read([Extent("a")]) == [b"00000024--------ABCDEFGHabcdefgh"]
        with pytest.raises(CorruptionError):
            store.apply(Commit(prepare=(Patch("a", 33, b"x", free=True),)))
        assert store.read([Extent("a")]) == [b"00000024--------ABCDEFGHabcdefgh"]

    def test_truncate_shortens_a_value(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123456789"), Put("b", b"other"))))
        store.apply(Commit(publish=(Truncate("a", 8),)))
        assert store.read([Extent("a")]) == [b"01234567"]
        store.apply(Commit(publish=(Truncate("a", 4), Patch("a", 4, b"xyz"), Put("b", b"new"))))
        assert store.read([Extent("a"), Extent("b")]) == [b"0123xyz", b"new"]
        store.apply(Commit(publish=(Patch("a", 1, b"??"), Truncate("a", 2), Truncate("b", 3))))
        assert store.read([Extent("a"), Extent("b")]) == [b"0?", b"new"]
        store.apply(Commit(publish=(Put("b", b"whole"), Truncate("b", 2), Truncate("a", 0))))
        assert store.read([Extent("a"), Extent("b")]) == [b"", b"wh"]
        assert [store.size(key) for key in "ab"] == [0, 2]

    def test_truncate_does_not_lengthen_or_create(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123"),)))
        with pytest.raises(CorruptionError, match=r"'a' holds 4 bytes.* 5"):
            store.apply(Commit(publish=(Truncate("a", 5),)))
        with pytest.raises(NotFoundError, match="'b'"):
            store.apply(Commit(publish=(Truncate("b", 0),)))
        assert store.read([Extent("a"), Extent("b")]) == [b"0123", None]
        with pytest.raises(FormatError):
            Truncate("a", -1)

    # Writing behind the end of a key

    def test_extended_bytes_become_part_of_the_value(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"head"), Put("empty", b""))))
        with writing(store) as turn:
            pieces = iter((b"01", bytearray(b"2"), memoryview(b"345")))
            grown = extend(turn.store, "a", pieces)
            assert (grown.key, grown.start, grown.size) == ("a", 4, 6)
            assert grown.checksum == zlib.crc32(b"012345")
            # The committed bytes are as they were.
            assert turn.store.read([Extent("a", 0, 4)]) == [b"head"]
            more = extend(turn.store, "empty", [b"e"]), extend(turn.store, "empty", [b"nd"])
            turn.commit(Commit(prepare=(grown, *more), publish=(Patch("a", 0, b"HEAD"),)))
        assert store.read([Extent("a"), Extent("empty")]) == [b"HEAD012345", b"end"]
        assert [store.size(key) for key in ("a", "empty")] == [10, 3]

    def test_the_next_extend_begins_behind_the_last(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0"),)))
        for number in range(1, 5):
            with writing(store) as turn:
                grown = extend(turn.store, "a", [b"%d" % number], end=number)
                turn.commit(Commit(prepare=(grown,)))
        assert store.read([Extent("a")]) == [b"01234"]

    def test_an_extend_without_a_commit_changes_nothing(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123"),)))
        with writing(store) as turn:
            extend(turn.store, "a", [b"never"])
        with pytest.raises(KeyError), writing(store) as turn:
            extend(turn.store, "a", _broken(b"never"))
        assert store.read([Extent("a")]) == [b"0123"]
        with writing(store) as turn:
            grown = extend(turn.store, "a", [b"45"], end=4)
            turn.commit(Commit(prepare=(grown,)))
        assert store.read([Extent("a")]) == [b"012345"]

    def test_an_extend_leaves_no_hole_and_touches_nothing(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"01"),)))
        with writing(store) as turn:
            turn.commit(Commit(prepare=(extend(turn.store, "a", [b"23"]),)))
        for end, what in ((5, "leaves a hole"), (3, "touches")):
            with writing(store) as turn, pytest.raises(CorruptionError, match=f"'a'.*{what}"):
                extend(turn.store, "a", [b"x"], end=end)
        with writing(store) as turn, pytest.raises(NotFoundError, match="'b'"):
            extend(turn.store, "b", [b"x"])
        assert store.read([Extent("a"), Extent("b")]) == [b"0123", None]

    def test_only_what_an_extend_has_written_grows_a_key(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        store.apply(Commit(publish=(Put("a", b"0123"),)))
        for false in (Grown("a", 4, 2, 0), Grown("a", 2, 2, 0), Grown("a", 9, 1, 0)):
            with pytest.raises(CorruptionError, match="no extend of this turn"):
                store.apply(Commit(prepare=(false,)))
        with pytest.raises(CorruptionError, match="no extend"), writing(store) as turn:
            turn.commit(Commit(prepare=(replace(extend(turn.store, "a", [b"45"]), size=3),)))
        with pytest.raises(FormatError, match="prepare"), writing(store) as turn:
            turn.commit(Commit(publish=(extend(turn.store, "a", [b"45"]),)))
        assert store.read([Extent("a", 0, 4)]) == [b"0123"]

    @pytest.mark.parametrize("seed", range(3))
    def test_any_changes_of_parts_act_as_on_a_byte_array(self, store: Store, seed: int) -> None:
        _need(store, Feature.PATCH)
        chance, model = random.Random(seed), bytearray(b"0123456789")
        store.apply(Commit(publish=(Put("f/a", bytes(model)),)))
        for _ in range(40):
            prepare: list[Edit] = []
            publish: list[Edit] = []
            with writing(store) as turn:
                for _ in range(chance.randrange(3)):
                    data = chance.randbytes(chance.randrange(50))
                    prepare.append(extend(turn.store, "f/a", [data[:9], data[9:]]))
                    model += data
                for _ in range(chance.randrange(4)):
                    if chance.random() < 0.3:
                        del model[chance.randrange(len(model) + 1) :]
                        publish.append(Truncate("f/a", len(model)))
                    else:
                        start = chance.randrange(len(model) + 1)
                        data = chance.randbytes(chance.randrange(20))
                        model[start : start + len(data)] = data
                        publish.append(Patch("f/a", start, data))
                turn.commit(Commit(tuple(prepare), tuple(publish)))
            assert store.read([Extent("f/a")]) == [bytes(model)]

    # Moving

    def test_moving_without_the_feature_is_refused(self, store: Store) -> None:
        _need(store, Feature.WRITE)
        if Feature.RENAME in store.features:
            pytest.skip("the store renames")
        staged = staged_key("a", "1f")
        with pytest.raises(UnsupportedError):
            store.apply(Commit(prepare=(Put(staged, b"0"),), publish=(Move(staged, "a"),)))
        assert store.read([Extent("a"), Extent(staged)]) == [None, None]

    def test_a_move_gives_a_staged_value_its_place(self, store: Store) -> None:
        _need(store, Feature.RENAME)
        staged = staged_key("f/a", "1f")
        for old in ({}, {"f/a": b"old"}):
            self.fill(store, {**old, staged: b"new"})
            store.apply(Commit(publish=(Move(staged, "f/a"), Put("b", b"too"))))
            assert store.read([Extent("f/a"), Extent(staged), Extent("b")]) == [
                b"new",
                None,
                b"too",
            ]

    def test_a_value_is_staged_and_moved_by_one_commit(self, store: Store) -> None:
        _need(store, Feature.PATCH | Feature.RENAME)
        staged = staged_key("a", "1f")
        store.apply(
            Commit(
                prepare=(Put(staged, b"0123"), Patch(staged, 4, b"45")),
                publish=(Move(staged, "a"), Patch("a", 0, b"x")),
            )
        )
        assert store.read([Extent("a"), Extent(staged)]) == [b"x12345", None]

    def test_only_what_is_there_is_moved(self, store: Store) -> None:
        _need(store, Feature.RENAME)
        self.fill(store, {"a": b"old"})
        with pytest.raises(NotFoundError, match="g-1f-a"):
            store.apply(Commit(publish=(Move(staged_key("a", "1f"), "a"),)))
        with pytest.raises(NotFoundError, match="g-1f-a"):
            store.apply(Commit(publish=(Move(staged_key("a", "1f"), "a"), Put("b", b"new"))))
        assert store.read([Extent("a"), Extent("b")]) == [b"old", None]
        for source, key in (("b", "a"), ("f/.g-1-a", "a"), (".g-1-a", "f/a")):
            with pytest.raises(FormatError, match="staged"):
                Move(source, key)

    # The law of a commit

    def test_a_failing_edit_ends_the_commit(self, store: Store) -> None:
        _need(store, Feature.PATCH)
        failing = Patch("absent", 0, b"x")
        old = {"a": b"old", "b": b"old", "c": b"old"}
        for phase in ("prepare", "publish", "cleanup"):
            self.fill(store, old)
            phases: dict[str, tuple[Edit, ...]] = {
                "prepare": (Put("a", b"new"),),
                "publish": (Put("b", b"new"),),
                "cleanup": (Delete("c"),),
            }
            phases[phase] = (failing, *phases[phase])
            with pytest.raises(NotFoundError):
                store.apply(Commit(**phases))
            done = ("prepare", "publish", "cleanup").index(phase)
            expected = [b"new"] * done + [b"old"] * (3 - done)
            assert store.read([Extent(key) for key in "abc"]) == expected

    def test_a_failing_edit_leaves_nothing_staged(self, store: Store) -> None:
        _need(store, Feature.PATCH | Feature.LIST)
        edits = (Put("a/0", b"x"), Patch("absent", 0, b"x"), Put("a/1", b"x"))
        with pytest.raises(NotFoundError):
            store.apply(Commit(publish=edits))
        assert not any(is_staged(name) for name in store.names("a", hidden=True))
        assert store.size("a/1") is None

    @pytest.mark.parametrize("seed", range(5))
    def test_any_commits_act_as_on_a_dictionary(self, store: Store, seed: int) -> None:
        _need(store, Feature.WRITE)
        chance, model = random.Random(seed), dict[str, bytes]()
        keys = [f"{folder}{number}" for folder in ("", "f/", "f/g/") for number in range(4)]
        for _ in range(60):
            edits = [_random_edit(chance, keys, model) for _ in range(chance.randrange(1, 6))]
            first, second = sorted(chance.choices(range(len(edits) + 1), k=2))
            phases = edits[:first], edits[first:second], edits[second:]
            store.apply(Commit(*(tuple(phase) for phase in phases)))
            assert store.read([Extent(key) for key in keys]) == [model.get(key) for key in keys]
            assert [store.size(key) for key in keys] == [
                len(model[key]) if key in model else None for key in keys
            ]

    # Threads

    def test_a_put_is_seen_whole_by_other_threads(self, store: Store) -> None:
        _need(store, Feature.WRITE | Feature.ATOMIC_PUT)
        values = [bytes([letter]) * size for letter, size in ((65, 50_000), (66, 7), (67, 90_001))]
        store.apply(Commit(publish=(Put("a", values[0]),)))
        parts = [Extent("a", 4), Extent("a", 0, 4), Extent("a", 0, 90_001)]
        wrong: list[object] = []
        rounds = [0, 0]
        finished = threading.Event()

        def watch(watcher: int) -> None:
            try:
                while not finished.is_set():
                    tail, head, whole = store.read(parts)
                    if whole not in values or head is None or tail is None or head + tail != whole:
                        wrong.append((head, len(tail or b""), len(whole or b"")))
                    if store.size("a") not in [len(value) for value in values]:
                        wrong.append("size")
                    rounds[watcher] += 1
            except BaseException as error:
                wrong.append(error)
                raise

        # The puts go on until both watchers have read often enough between them.
        with _running(lambda: watch(0), lambda: watch(1), finished=finished):
            for number, value in enumerate(cycle(values)):
                store.apply(Commit(publish=(Put("a", value),)))
                if wrong or (number >= 150 and min(rounds) >= 20):
                    break
        assert wrong == []

    def test_threads_write_their_own_keys(self, store: Store) -> None:
        _need(store, Feature.WRITE)

        def write(name: str) -> None:
            for number in range(30):
                store.apply(Commit(publish=(Put(f"shared/{name}/{number}", name.encode()),)))

        with _running(*(lambda name=name: write(name) for name in "abcd")):
            pass
        keys = [(name, f"shared/{name}/{number}") for name in "abcd" for number in range(30)]
        assert store.read([Extent(key) for _, key in keys]) == [name.encode() for name, _ in keys]


def _known_identity(store: Store, key: str, wait: float = 0.3) -> Hashable | None:
    """Return the identity of a key as soon as the store is sure of it; None if it never is."""
    end = time.monotonic() + wait
    while (identity := store.identity(key)) is None and time.monotonic() < end:
        time.sleep(0.01)
    return identity


def _need(store: Store, features: Feature) -> None:
    if features not in store.features:
        pytest.skip(f"the store lacks one of {features}")


def _accepted(use: _Use, store: Store, keys: Sequence[str]) -> list[str]:
    """Return the keys that `use` does not refuse."""
    accepted = []
    for key in keys:
        try:
            use(store, key)
        except UnsafeError:
            continue
        accepted.append(key)
    return accepted


def _broken(piece: bytes) -> Iterator[bytes]:
    """Yield a piece, and fail."""
    yield piece
    raise KeyError(piece)


def _random_edit(chance: random.Random, keys: list[str], model: dict[str, bytes]) -> Edit:
    """Return a random put or delete, after doing the same to the model."""
    key = chance.choice(keys)
    if chance.random() < 0.3:
        model.pop(key, None)
        return Delete(key)
    model[key] = chance.randbytes(chance.choice((0, 1, 30, 5000)))
    return Put(key, model[key])


@contextmanager
def _running(*tasks: Callable[[], None], finished: threading.Event | None = None) -> Iterator[None]:
    """Run tasks in threads during the block; raise what the first failing one raised."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        if finished is not None:
            finished.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
