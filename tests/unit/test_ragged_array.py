"""Variable-length items in memory, beside Python lists."""

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import ragged_array
from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.ragged_array import (
    BYTES,
    DEEPEST,
    JSON,
    UTF8,
    ItemKind,
    RaggedArray,
    from_text,
    to_fixed,
)

WORDS: list[Any] = [
    *("", "a", "ape", None, "ä", "äb", "日本", "𝄞x", "a\0", "\0", "a\0b", "é" * 40, "é" * 41),
    *("x" * 31, "x" * 32, "x" * 33, "x" * 32 + "a", "y" * 5000, "日" * 3000, None, "zz"),
]


def plain(items: Any) -> list[Any]:
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        (WORDS, "utf8"),
        ([None, b"", b"\0\xff", bytearray(b"x"), memoryview(b"yy")], "bytes"),
        ([{"a": [1, None, "x"]}, None, {}, {"b": {"c": 0.5}}], "json"),
        ([["a"], {"b": 1}, [[1], "x"]], "json"),
        ([[1, 2], None, [], (3,), np.array([4])], "list<<i8>"),
        ([np.array([0.5], "f4"), [2.5, 3.5]], "list<<f8>"),
        ([[True], []], "list<|b1>"),
        ([[np.datetime64("2024-01-01")], None], "list<<M8[D]>"),
    ],
)
def test_the_items_say_their_kind_and_come_back(items: list[Any], kind: str) -> None:
    found = RaggedArray.of(items)
    assert str(found.kind) == kind
    assert ItemKind.parse(kind, "kind") == found.kind
    expected = [bytes(each) if isinstance(each, bytearray | memoryview) else each for each in items]
    expected = [list(each) if isinstance(each, tuple | np.ndarray) else each for each in expected]
    assert (
        plain(found)
        == plain(found.to_numpy())
        == [
            [np.datetime64(x).item() for x in each] if kind == "list<<M8[D]>" and each else each
            for each in expected
        ]
    )
    assert found.is_null.tolist() == [each is None for each in items]
    assert len(found) == len(items)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a", None, b"b"], "item 2 is bytes, item 0 is text"),
        ([None, b"a", "b"], "item 2 is text, item 1 is bytes"),
        ([[1], ["a"]], "item 1 is JSON, item 0 is a row of numbers"),
        ([[], {"a": 1}, [1]], "item 2 is a row of numbers, item 1 is JSON"),
        (["a", 1], "item 1 is int, not text, bytes, a row or JSON"),
        ([np.zeros((2, 2))], "item 0 is ndarray, not"),
        ([None, None], "all items are None"),
        ([], "all items are None"),
        (["a", "\ud800"], "item 1 is no text"),
        (np.array(["a", "\ud800"]), "item 1 is no text"),
        ([[1], [2.5], [np.datetime64(0, "s")]], "item 2 is a row of datetime64.* of float64"),
    ],
)
def test_a_mixed_list_is_refused_with_the_position(items: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"column 'a': {message}"):
        RaggedArray.of(items, None, "column 'a'")


@pytest.mark.parametrize(
    ("items", "kind", "message"),
    [
        (["a", 1], "utf8", "item 1 is 1, not text"),
        ([b"a", "b"], "bytes", "item 1 is 'b', not bytes"),
        ([[1], [300]], np.dtype("u1"), r"item 1 is \[300\], not a row of uint8"),
        ([[1.5]], np.dtype("i4"), "not a row of int32"),
        ([[1], [2 + 1j]], np.dtype("f4"), "item 1 is .* not a row of float32"),
        ([[[1]]], np.dtype("i4"), "not a row of int32"),
        (["ab"], np.dtype("i4"), "not a row of int32"),
        ([[1], [[1], 2]], np.dtype("i4"), "item 1 is"),
        ([{"a": 1}, {1: 2}], "json", "item 1 is no JSON: the name 1 is no text"),
        ([float("nan")], "json", "item 0 is no JSON"),
        ([{"a": object()}], "json", "item 0 is no JSON"),
    ],
)
def test_items_of_another_kind_are_refused(items: list[Any], kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RaggedArray.of(items, kind)


def test_kinds_that_do_not_exist() -> None:
    structure = np.dtype([("a", "i4")])
    for wrong in ("text", "O", object, np.dtypes.StringDType(), "V0", "2i4", structure):
        with pytest.raises(ValueError, match="kind"):
            ItemKind.of(wrong)  # type: ignore[arg-type]
    for spelling in ("text", "list<>", "list<i4>", "list<|O>", "list<<i4", 3, None):
        with pytest.raises(FormatError):
            ItemKind.parse(spelling, "kind")


def test_json_is_limited_in_depth() -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return value

    deep = RaggedArray.of([nested(DEEPEST)], "json")
    assert deep[0] == nested(DEEPEST)
    for depth in (DEEPEST + 1, 100_000):
        with pytest.raises(LimitError, match="item 0 is nested more than 64 deep"):
            RaggedArray.of([nested(depth)], "json")
        text = b"[" * depth + b"]" * depth
        offsets = np.array([0, len(text)])
        items = RaggedArray.checked(JSON, offsets, np.frombuffer(text, np.uint8))
        with pytest.raises(LimitError, match="item 0 is nested more than 64 deep"):
            items.to_list()
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="item 0"):
        RaggedArray.of([circle], "json")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"NaN", b"[1] 2", b"'a'", b"9" * 10_000, b"1e999", b"[-1e400]"]
)
def test_text_that_is_no_json(text: bytes) -> None:
    items = RaggedArray.checked(JSON, np.array([0, len(text)]), np.frombuffer(text, np.uint8))
    with pytest.raises(CorruptionError, match="item 0 is no JSON"):
        items.to_list()


def test_the_text_null_is_a_null_of_json() -> None:
    text = b"null1null"
    items = RaggedArray.checked(JSON, np.array([0, 4, 5, 9]), np.frombuffer(text, np.uint8))
    assert (items.to_list(), items.is_null.tolist()) == ([None, 1, None], [True, False, True])
    assert items == RaggedArray.of([None, 1, None], "json")


HIGHEST = 2**63 - 1


@pytest.mark.parametrize(
    ("kind", "offsets", "data", "validity", "message"),
    [
        (BYTES, [], b"", None, "no offsets"),
        (BYTES, [-1, 1], b"ab", None, "item 0 begins at byte -1"),
        (BYTES, [0, 2, 1], b"ab", None, "item 1 ends at byte 1, it begins at byte 2"),
        (BYTES, [0, HIGHEST, -HIGHEST], b"ab", None, "item 1 ends at byte -9"),
        (BYTES, [0, 3], b"ab", None, "items end at byte 3, 2 bytes are stored"),
        (BYTES, [0, HIGHEST], b"ab", None, "2 bytes are stored"),
        (BYTES, [0, 1], b"a", [True, True], "2 marks for 1 items"),
        (UTF8, [0, 1, 2], b"a\xff", None, "item 1 is no text"),
        (UTF8, [0, 1, 2], "é".encode(), None, "item 0 is no text"),
        (UTF8, [0, 0, 1, 1, 2], "é".encode(), None, "item 1 is no text"),
        (UTF8, [0, 1], b"\x80", None, "item 0 is no text"),
        (UTF8, [0, 1, 2], b"a\x80", None, "item 1 is no text"),
        (UTF8, [0, 3, 6], b"\xed\xa0\x80abc", None, "item 0 is no text"),
        (JSON, [0, 1], b"\xff", None, "item 0 is no text"),
        (ItemKind.of(np.dtype("i4")), [0, 4, 9], b"123456789", None, "item 1 has 5 bytes"),
    ],
)
def test_wrong_buffers_are_refused(
    kind: ItemKind, offsets: list[int], data: bytes, validity: Any, message: str
) -> None:
    given = np.array(offsets, np.int64), np.frombuffer(data, np.uint8)
    marks = None if validity is None else np.array(validity)
    with pytest.raises(CorruptionError, match=f"pack: .*{message}"):
        RaggedArray.checked(kind, *given, marks, "pack")


def test_bytes_behind_a_null_are_left_out() -> None:
    data = np.frombuffer(b"ab\xffcd", np.uint8)
    offsets, validity = np.array([0, 2, 3, 5]), np.array([True, False, True])
    items = RaggedArray.checked(UTF8, offsets, data, validity)
    assert items.to_list() == ["ab", None, "cd"]
    assert (items.payload.tobytes(), items.lengths.tolist()) == (b"abcd", [2, 0, 2])
    whole = RaggedArray.checked(UTF8, offsets[:2], data, validity[:1])
    assert whole.validity is None


def test_parts_are_those_of_a_list() -> None:
    chance = random.Random(5)
    for kind in ("utf8", "bytes"):
        words = WORDS if kind == "utf8" else [w if w is None else w.encode() for w in WORDS]
        items = RaggedArray.of(words, kind)
        for key in (slice(None), slice(3, 9), slice(9, 3), slice(None, None, -2), slice(-4, None)):
            assert items[key].to_list() == words[key]
            assert items[3:][key].to_list() == words[3:][key]
        for number in (0, -1, 5):
            assert items[number] == words[number]
        with pytest.raises(IndexError):
            items[len(words)]
        rows = [chance.randrange(len(words)) for _ in range(50)]
        assert items.take(np.array(rows)).to_list() == [words[row] for row in rows]
        assert items.take(np.array([], np.int64)).to_list() == []
        mask = np.array([chance.random() < 0.5 for _ in words])
        assert items.masked(mask).to_list() == [w for w, m in zip(words, mask, strict=True) if m]
        joined = RaggedArray.joined([items[2:5], items[5:5], items[:3]])
        assert joined.to_list() == [*words[2:5], *words[:3]]
        changed = items.replaced(np.array([4, 0, 4]), items[5:8])
        assert changed.to_list() == [words[6], *words[1:4], words[7], *words[5:]]
        assert items == RaggedArray.of(words, kind)
        assert items != items[1:]
        assert items[1:] == RaggedArray.of(words[1:], kind)
    assert RaggedArray.nulls(UTF8, 2).to_list() == [None, None]
    assert RaggedArray.of(["a"]) != RaggedArray.of([b"a"])


@pytest.mark.parametrize(("count", "size"), [(40_000, 100), (400, 10_000)])
def test_items_are_gathered_in_the_memory_of_their_bytes(count: int, size: int) -> None:
    # Of several lengths, in another order, so that they are no run.
    lengths = size - np.arange(count) % 7
    data = (np.arange(lengths.sum()) % 251).astype(np.uint8)
    items = RaggedArray(BYTES, ragged_array.offsets_of(lengths), data)
    tracemalloc.start()
    found = items.take(np.arange(count)[::-1])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * data.nbytes
    assert found.to_list() == items.to_list()[::-1]


def test_text_becomes_strings_of_numpy_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    items = RaggedArray.of(WORDS)
    # No object is made for an item.
    for name in ("_joined", "to_list", "__iter__"):
        monkeypatch.setattr(RaggedArray, name, None)
    texts = items.to_numpy()
    assert texts.dtype == np.dtypes.StringDType(na_object=None)
    assert texts.tolist() == WORDS
    assert from_text(texts) == items
    assert RaggedArray.of(texts) == items
    assert RaggedArray.of(texts, "utf8") == items
    assert from_text(texts[:0]).to_numpy().tolist() == []
    assert items[2:7].to_numpy().tolist() == WORDS[2:7]
    words = [word for word in WORDS if word is not None]
    for dtype in (np.dtypes.StringDType(), np.dtypes.StringDType(na_object=np.nan)):
        assert from_text(np.array(words, dtype)).to_numpy().tolist() == words
    missing = np.array(["a", np.nan, ""], np.dtypes.StringDType(na_object=np.nan))
    assert from_text(missing).to_numpy().tolist() == ["a", None, ""]
    for dtype in ("<U2", ">U2"):
        fixed = np.array(["a", "bé", ""]).astype(dtype)
        assert from_text(fixed).to_numpy().tolist() == ["a", "bé", ""]
    assert RaggedArray.nulls(UTF8, 3).to_numpy().tolist() == [None] * 3


@pytest.mark.parametrize("words", [WORDS[1:3], WORDS[4:14], WORDS[13:17], [], [""], ["a\0", "b"]])
def test_text_and_bytes_of_a_fixed_width(words: list[str]) -> None:
    for kind, expected in (
        ("utf8", np.array(words, "U")),
        ("bytes", np.array([word.encode() for word in words], "S")),
    ):
        items = RaggedArray.of(words, "utf8").cast(ItemKind.of(kind))
        found = to_fixed(items)
        assert found.tolist() == expected.tolist()
        assert found.dtype.kind == expected.dtype.kind


def test_comparisons_are_those_of_python() -> None:
    items = RaggedArray.of(WORDS)[1:]
    own = [None if word is None else word.encode() for word in WORDS[1:]]
    values = {b"", b"a", b"x" * 32, b"x" * 33, b"zzz", b"\0", *(each for each in own if each)}
    values |= {each[:-1] for each in own if each} | {each[1:5] for each in own if each}
    for value in sorted(values):
        signs = ragged_array.compare(items, value).tolist()
        for word, sign in zip(own, signs, strict=True):
            assert sign == (((word or b"") > value) - ((word or b"") < value)), (word, value)

        def expected(test: Any, value: bytes = value) -> list[bool]:
            return [word is not None and bool(test(word, value)) for word in own]

        assert ragged_array.equals(items, value).tolist() == expected(bytes.__eq__)
        assert ragged_array.startswith(items, value).tolist() == expected(bytes.startswith)
        assert ragged_array.endswith(items, value).tolist() == expected(bytes.endswith)
        assert ragged_array.contains(items, value).tolist() == expected(lambda word, v: v in word)
    empty = RaggedArray.nulls(UTF8, 0)
    assert (
        ragged_array.compare(empty, b"a").tolist()
        == ragged_array.contains(empty, b"a").tolist()
        == []
    )


def test_items_of_another_kind() -> None:
    text, rows = RaggedArray.of(["a", None, "é"]), RaggedArray.of([[1, 2], None, []])
    assert text.cast(BYTES).to_list() == [b"a", None, "é".encode()]
    assert text.cast(JSON).to_list() == ["a", None, "é"]
    assert text.cast(JSON).payload.tobytes() == '"a""é"'.encode()
    for dtype in ("f8", ">i2", "u1", "c8"):
        cast = rows.cast(ItemKind.of(np.dtype(dtype)))
        assert (plain(cast), cast.kind.item) == ([[1, 2], None, []], np.dtype(dtype))
    with pytest.raises(ValueError, match="cannot hold the numbers"):
        RaggedArray.of([[300]]).cast(ItemKind.of(np.dtype("u1")))
    for items, kind in ((text, ItemKind.of(np.dtype("u1"))), (rows, UTF8), (rows, JSON)):
        with pytest.raises(ValueError, match=f"x of {kind} cannot hold items of {items.kind}"):
            items.cast(kind, "x")


def test_items_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged_array, "LONGEST_ITEM", 3)
    assert len(RaggedArray.of(["abc"])) == 1
    long: NDArray[Any] = np.array(["", "abcd"])
    offsets, data = np.array([0, 0, 4]), np.frombuffer(b"abcd", np.uint8)
    for make in (
        lambda: RaggedArray.of(["", "abcd"]),
        lambda: RaggedArray.of(long),
        lambda: RaggedArray.checked(BYTES, offsets, data),
    ):
        with pytest.raises(LimitError, match="item 1 has 4 bytes, the most is 3"):
            make()
