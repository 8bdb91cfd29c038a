"""Keys, commits and staged names."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingot.errors import ReadOnlyError, UnsafeError, UnsupportedError
from ingot.stores import (
    Commit,
    Delete,
    Edit,
    Extent,
    Feature,
    Inline,
    MemoryStore,
    Patch,
    Put,
    Truncate,
    check_commit,
    check_key,
    is_staged,
    staged_key,
)
from ingot.stores.store import _fault, put_pieces, whole_keys
from ingot.testing import HOSTILE_KEYS

GOOD_KEYS = (
    *("0", "0.0.0", "c/0/0/0", ".zarray", "table/price/data/__0.blp", "..a", "a..b", ".a/b"),
    *(
        "a.",
        "a/b./c",
        "a b",
        " a",
        "x" * 255,
        "é" * 127,
        "温度/0",
        "ab:c",
        "12:30",
        "2020-01-01T00:00:00",
    ),
    *("con1", "icon", "console.x", "com", "com10", "lpt", "auxiliary", "nulls/0", "a-con", "-"),
)


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_good_keys_are_returned(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "a part is empty"),
        ("a//b", "a part is empty"),
        ("/etc/passwd", "an absolute path leaves the store"),
        ("a/../b", "the part '..' leaves its folder"),
        ("a/.", "the part '.' leaves its folder"),
        ("a/b\\c", r"the part 'b\\\\c' holds a backslash or a control character"),
        ("a\0", r"the part 'a\\x00' holds a backslash or a control character"),
        ("a/d:x", "the part 'd:x' begins with a drive"),
        ("Com7.txt/x", "the part 'Com7.txt' names a device"),
        ("lpt²", "the part 'lpt²' names a device"),
        ("a. /b", "the part 'a. ' ends with a space"),
        ("a/...", "the part '...' has only dots and spaces"),
        ("é" * 128, "is longer than 255 bytes"),
        ("\udc80", "is not Unicode text"),
    ],
)
def test_refusals_say_why(key: str, reason: str) -> None:
    with pytest.raises(UnsafeError, match=reason):
        check_key(key)


def test_a_refusal_stays_short() -> None:
    with pytest.raises(UnsafeError) as caught:
        check_key("x" * 1_000_000)
    assert len(str(caught.value)) < 1000


TROUBLE = st.text(st.sampled_from("aCcoOnNuUlLmMpP19¹. /\\:$\0\x1f\x7f\x85\x9f\xa0é\ud800"))


@given(TROUBLE | st.lists(TROUBLE).map("/".join))
@example("a" * 256)
@example("a/" * 3000 + "a")
def test_a_key_is_refused_exactly_when_a_reason_can_be_named(key: str) -> None:
    try:
        check_key(key)
    except UnsafeError:
        assert _fault(key) != "not a safe path"
    else:
        assert _fault(key) == "not a safe path"
        for part in key.split("/"):
            assert 0 < len(part.encode()) <= 255
            assert part not in (".", "..")
            assert not set(part) & set("\\\0\x1f\x7f\x85\x9f")
            assert part[-1] != " "
            assert part.strip(". ")


def test_a_long_hostile_key_is_refused_quickly() -> None:
    with pytest.raises(UnsafeError):
        check_key("a" * 250 + ("/" + "b" * 250) * 4000 + "/..")


def test_commits_print_as_they_happen() -> None:
    commit = Commit(
        prepare=(Put("a/0", bytes(400)), Put("a/1", memoryview(bytes(8)).cast("I"))),
        publish=(Patch("index", 16, b"x"),),
        cleanup=(Delete("a/9"),),
    )
    assert str(commit) == (
        "prepare: Put('a/0', 400 bytes)\n"
        "prepare: Put('a/1', 8 bytes)\n"
        "publish: Patch('index', 16, 1 byte)\n"
        "cleanup: Delete(key='a/9')"
    )
    assert commit.edits == commit.prepare + commit.publish + commit.cleanup
    assert repr(Commit(publish=(Put("a", b""),))) == (
        "Commit(prepare=(), publish=(Put('a', 0 bytes),), cleanup=())"
    )
    assert repr(Inline(bytes(10_000))) == "Inline(10000 bytes)"


def test_commits_are_values() -> None:
    assert Commit(publish=(Put("a", b"1"),)) == Commit(publish=(Put("a", b"1"),))
    assert Commit(publish=(Put("a", b"1"),)) != Commit(prepare=(Put("a", b"1"),))
    with pytest.raises(AttributeError):
        Commit().publish = ()  # type: ignore[misc]


def test_commits_are_checked_against_the_store() -> None:
    class NoPatches(MemoryStore):
        @property
        def features(self) -> Feature:
            return super().features & ~Feature.PATCH

    check_commit(NoPatches(), Commit(publish=(Put("a", b""), Delete("b"))))
    with pytest.raises(UnsupportedError, match="'a'"):
        check_commit(NoPatches(), Commit(cleanup=(Patch("a", 0, b""),)))
    with pytest.raises(ReadOnlyError):
        check_commit(MemoryStore(writable=False), Commit())
    with pytest.raises(UnsafeError):
        check_commit(MemoryStore(), Commit(cleanup=(Delete("a/../b"),)))


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_staged_keys_are_keys_in_the_same_folder(key: str) -> None:
    folder, _, name = key.rpartition("/")
    staged = check_key(staged_key(key, "f" * 64))
    assert staged.rpartition("/")[0] == folder
    staged_name = staged.rpartition("/")[2]
    assert is_staged(staged_name)
    assert is_staged(staged_name, name)
    assert not is_staged(staged_name, f"{name}x")
    assert not is_staged(name)


def test_a_staged_name_belongs_to_one_target() -> None:
    assert staged_key("a-b", "1") == ".g-1-a-b"
    assert not is_staged(".g-1-a-b", "b")
    assert len({staged_key("x" * 250 + end, "1") for end in "abc"}) == 3


@pytest.mark.parametrize("transaction", ["", "a-b", "a/b", "é", "a" * 65])
def test_a_transaction_cannot_blur_the_name_behind_it(transaction: str) -> None:
    with pytest.raises(ValueError, match="transaction"):
        staged_key("a", transaction)


def test_hostile_keys_are_all_refused() -> None:
    for key in HOSTILE_KEYS:
        with pytest.raises(UnsafeError):
            check_key(key)


@pytest.mark.parametrize("seed", range(8))
def test_whole_keys_lead_to_the_same_state(seed: int) -> None:
    chance = random.Random(seed)
    content = {"a": b"0123456789", "b": b"abcdef"}
    edits: list[Edit] = []
    sizes = {key: len(value) for key, value in content.items()}
    for _ in range(6):
        key = chance.choice("ab")
        if chance.random() < 0.2:
            sizes[key] = 4
            edits.append(Put(key, b"whole"[:4]))
        elif chance.random() < 0.3:
            sizes[key] = chance.randrange(sizes[key] + 1)
            edits.append(Truncate(key, sizes[key]))
        else:
            start = chance.randrange(sizes[key] + 1)
            edits.append(Patch(key, start, b"xyz"))
            sizes[key] = max(sizes[key], start + 3)
    commit = Commit((Patch("a", 10, b"!"),), tuple(edits), (Delete("c"),))
    patching, replacing = MemoryStore(content), MemoryStore(content)
    try:
        patching.apply(commit)
    finally:
        whole = whole_keys(replacing, commit)
    assert not any(isinstance(edit, Patch | Truncate) for edit in whole.edits)
    replacing.apply(whole)
    keys = [Extent("a"), Extent("b")]
    assert replacing.read(keys) == patching.read(keys)


def test_pieces_are_joined_where_a_store_stages_nothing() -> None:
    store = MemoryStore()
    edit = put_pieces(store, "a", [b"....", b"alpha"], head=lambda: b"head")
    assert edit == Put("a", b"headalpha")
    assert put_pieces(store, "a", iter([b"al", b"pha"])) == Put("a", b"alpha")
