"""Variable-length items on both kernels: tests of items, single items, and NumPy's strings."""

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.codecs.compressors import Blosc
from ingot.engine.ragged import RaggedEngine
from ingot.errors import IngotError
from ingot.ragged_array import UTF8, ItemTest, RaggedArray, from_text, passing, to_text
from tests.kernels import KERNELS, needs_native
from tests.limited import run_limited
from tests.storage import use_kernel

WORDS = ["", "ape", None, "apes", "bé", "b\0", "b", "a very long sentence indeed", "ape"]
ITEMS = WORDS * 40
FORMATS = ("varlen", "bcolz", "blsk")
TESTS: dict[str, Callable[[str, str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda item, value: value in item,
}
texts = st.text(st.characters(codec="utf-8"), max_size=40)


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kernel(request.param, monkeypatch)
    return str(request.param)


def stored(
    items: Sequence[Any], format: str, path: Path | None = None, rows: int = 50, codec: Any = None
) -> ingot.Ragged:
    """Store items in packs of so many rows, or of as many bytes where the format counts these."""
    if format == "varlen":
        return ingot.ragged(items, path, format=format, codec=codec, pack_bytes=8 * rows)
    column = ingot.ragged(items)
    table = ingot.table({"items": column}, path, format=format, codec=codec, chunks=rows)
    return cast(ingot.Ragged, table["items"])


def engine_of(items: ingot.Ragged) -> RaggedEngine:
    return items._handle.value


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("on_disk", [True, False])
def test_marks_are_those_of_python(tmp_path: Path, format: str, on_disk: bool) -> None:
    path = tmp_path / "items" if on_disk else None
    engine = engine_of(stored(ITEMS, format, path))
    for name, holds in TESTS.items():
        for value in ("", "ape", "b", "é", "a very long sentence indeed", "zoo"):
            found = engine.mark(range(len(ITEMS)), [ItemTest(name, (value.encode(),))])
            expected = [item is not None and holds(item, value) for item in ITEMS]
            assert found.tolist() == expected, (name, value)
    assert engine.mark(range(len(ITEMS)), [ItemTest("isnull")]).tolist() == [
        item is None for item in ITEMS
    ]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", FORMATS)
def test_several_tests_and_any_run_of_rows(tmp_path: Path, format: str) -> None:
    engine = engine_of(stored(ITEMS, format, tmp_path / "items"))
    tests = [ItemTest("startswith", (b"ap",)), ItemTest("!=", (b"ape",))]
    for rows in (range(0), range(7, 8), range(49, 51), range(3, 290), range(len(ITEMS))):
        assert engine.mark(rows, tests).tolist() == [ITEMS[row] == "apes" for row in rows]
    among = tuple(f"no {number}".encode() for number in range(9))
    for values in ((), (b"b",), (b"b", b"ape"), (*among, b"ape")):
        expected = [item is not None and item.encode() in values for item in ITEMS]
        found = engine.mark(range(len(ITEMS)), [ItemTest("==", values)])
        assert found.tolist() == expected


@pytest.mark.usefixtures("kernel")
def test_bytes_are_compared_as_bytes(tmp_path: Path) -> None:
    items = [b"\xff\0", b"\xff", None, b"", b"\x80"] * 9
    engine = engine_of(stored(items, "bcolz", tmp_path / "items", 7))
    marks = engine.mark(range(len(items)), [ItemTest(">", (b"\x80",))])
    assert marks.tolist() == [item is not None and item > b"\x80" for item in items]


@needs_native
@given(st.lists(st.none() | texts, min_size=1, max_size=60), st.sampled_from([*TESTS]), texts)
@settings(max_examples=60, deadline=None)
def test_marks_of_the_kernel_are_those_of_its_twin(
    items: list[str | None], name: str, value: str
) -> None:
    engine = engine_of(ingot.ragged(items, kind="utf8", pack_bytes=200))
    test = ItemTest(name, (value.encode(),))
    found = engine.mark(range(len(items)), [test])
    assert found.tolist() == passing(RaggedArray.of(items, UTF8), test).tolist()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("codec", [None, Blosc(clevel=0)])
def test_single_items_are_decoded_out_of_their_blocks(
    tmp_path: Path, format: str, codec: Any
) -> None:
    chance = np.random.default_rng(0)
    items = [
        None if size % 11 == 3 else chance.bytes(size // 2).hex()
        for size in chance.integers(0, 3000, 900).tolist()
    ]
    words = stored(items, format, tmp_path / "items", 400, codec)
    for rows in ([5], [899, 0, 0, 450], chance.integers(0, 900, 200).tolist(), []):
        assert words[rows].tolist() == [items[row] for row in rows]
    assert [words[row] for row in (0, 399, 400, -1)] == [items[row] for row in (0, 399, 400, -1)]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kind", ["json", "<i4"])
def test_single_items_of_other_kinds(tmp_path: Path, kind: str) -> None:
    items = [[1, 2], None, [3], []] * 20
    words = ingot.ragged(items, tmp_path / "items", format="bcolz", kind=kind)
    found = [None if row is None else list(row) for row in words[[79, 0, 2, 5]]]
    assert found == [[], [1, 2], [3], None]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("on_disk", [True, False])
def test_all_text_becomes_strings_while_it_is_decoded(
    tmp_path: Path, format: str, on_disk: bool
) -> None:
    words = stored(ITEMS, format, tmp_path / "items" if on_disk else None)
    for key in (slice(None), ..., slice(0, len(ITEMS))):
        found = words[key]
        assert found.dtype == words.dtype
        assert found.tolist() == ITEMS
    assert words[3:].tolist() == ITEMS[3:]
    assert words[::-1].tolist() == ITEMS[::-1]


@given(st.lists(st.none() | texts, max_size=30))
@settings(max_examples=80, deadline=None)
def test_strings_of_numpy_come_and_go(items: list[str | None]) -> None:
    array = to_text(RaggedArray.of(items, UTF8))
    assert array.tolist() == items
    assert from_text(array) == RaggedArray.of(items, UTF8)
    assert from_text(array[::-1]).to_list() == items[::-1]


@pytest.mark.usefixtures("kernel")
def test_strings_of_any_length_and_of_parts_of_a_buffer() -> None:
    items = ["", "x" * 15, "x" * 16, "é" * 127, "x" * 255, "x" * 256, "end\0", "y" * 70_000, None]
    values = RaggedArray.of(items * 3, UTF8)[2:-1]
    assert to_text(values).tolist() == (items * 3)[2:-1]
    assert from_text(to_text(values)) == values
    without_nulls = np.array(["a", "b" * 300], np.dtypes.StringDType())
    assert from_text(without_nulls).to_list() == ["a", "b" * 300]
    missing = np.array(["a", np.nan, "c"], np.dtypes.StringDType(na_object=np.nan))
    assert from_text(missing).to_list() == ["a", None, "c"]


@needs_native
def test_arrays_that_are_no_strings_are_refused() -> None:
    from ingot import _native

    offsets, data = np.zeros(3, np.int64), np.zeros(0, np.uint8)
    for wrong in (np.zeros(2), np.zeros((2, 1), "T"), np.zeros(4, "T")[::2], np.zeros(2, object)):
        with pytest.raises(TypeError, match="strings"):
            _native.pack_strings(wrong, offsets, data)
        with pytest.raises(TypeError, match="strings"):
            _native.load_strings(wrong)
    strings = np.zeros(2, "T")
    with pytest.raises(ValueError, match="a string for each item"):
        _native.pack_strings_of(strings, ([b""], None, [3], "none", None, 1 << 30), 1)
    with pytest.raises(ValueError, match="offsets and marks"):
        _native.pack_strings(strings, offsets[:2], data)
    for wrong_offsets in ([0, 1, 0], [0, -1, 0], [0, 0, 9]):
        with pytest.raises(ValueError, match="offsets must ascend"):
            _native.pack_strings(strings, np.array(wrong_offsets), data)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_pack_is_never_taken_for_a_right_one(tmp_path: Path, format: str) -> None:
    items = ["ape", None, "bé", "a longer sentence"] * 4
    ingot.ragged(items, tmp_path / "items", format=format)
    files = {"varlen": "items", "bcolz": "items/data/__0.blp", "blsk": None}[format]
    path = tmp_path / files if files else max((tmp_path / "items").rglob("*"), key=_size)
    image = path.read_bytes()
    test = [ItemTest("startswith", (b"a",))]
    wrong = 0
    for place in range(0, len(image), 3):
        path.write_bytes(image[:place] + bytes([image[place] ^ 0x41]) + image[place + 1 :])
        for read, right in (
            (lambda opened: opened[[1, 3]].tolist(), [items[1], items[3]]),
            (lambda opened: opened[:].tolist(), items),
            (lambda opened: engine_of(opened).mark(range(16), test).tolist(), [1, 0, 0, 1] * 4),
        ):
            try:
                assert read(ingot.open(tmp_path / "items")) == right
            except (IngotError, OSError):
                wrong += 1
    assert wrong > 20


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


HOSTILE = """
import struct
from ingot.codecs.compressors import Blosc
from ingot.formats.packs import TrailedPacks
from ingot.formats import trailer
from ingot.ragged_array import UTF8, ItemTest, RaggedArray
from ingot.schema import PackSources

codec, rows = TrailedPacks(Blosc(shuffle=0), 12, ((0, 5),)), np.array([0, 3])
image = codec.encode(RaggedArray.of(["ape", "bee", None, "c" * 50]), 0)

def refused(pack, count, rows=rows):
    sources = PackSources([pack], None, [count], [0])
    assert codec.mark_many(sources, UTF8, [ItemTest("startswith", (b"a",))], 2) is None
    assert codec.take_many(sources, UTF8, rows, [len(rows)], 2) is None
    if count < 100:
        assert codec.text_of_many(sources, 2) is None

def with_lengths(lengths, data=b"ape"):
    pieces, words = [], Blosc(shuffle=1, typesize=4)
    for raw, blosc, zone in ((lengths, words, bytes(48)), (data, codec.blosc, b"")):
        chunk = blosc.encode(raw)
        pieces += [chunk, trailer.pack(chunk, 0, len(lengths) // 4, zone, 5)]
    return b"".join(pieces)

right = with_lengths(struct.pack("<2I", 1, 2))
found = codec.take_many(PackSources([right], None, [2], [0]), UTF8, np.array([1]), [1], 1)
assert found is None or found.to_list() == ["pe"]
refused(image, 3)
refused(image, 5)
refused(image[:-1], 4)
for lengths in ((1, 3), (1, 1), (2**32 - 2, 5), (2**31, 2**31), (2**32 - 1, 2**32 - 1)):
    refused(with_lengths(struct.pack("<2I", *lengths)), 2, np.array([1]))
refused(with_lengths(struct.pack("<2I", 2, 1), "aé".encode()), 2, np.array([1]))
sources = PackSources([right], None, [2], [0])
for rows in ([2], [1, 0], [2**40]):
    assert codec.take_many(sources, UTF8, np.array(rows), [len(rows)], 1) is None
# Chunks that claim far more than their bytes can hold.
behind = trailer.size_of(image[image.rindex(b"igt1"):])
second = len(image) - len(codec.chunks(image)[1].chunk) - behind
for place in (4, second + 4):
    claimed = bytearray(image)
    claimed[place : place + 4] = struct.pack("<i", 2**30)
    refused(bytes(claimed), 2**28)
    refused(bytes(claimed), 4)
"""


@pytest.mark.parametrize("kernel_name", KERNELS)
def test_hostile_packs_are_refused_within_little_memory(kernel_name: str) -> None:
    run_limited(HOSTILE, kernel_name)


@needs_native
def test_packs_that_are_no_files_of_the_folder_are_refused(tmp_path: Path) -> None:
    from ingot import _native

    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    marks = np.zeros(1, np.bool_)
    for key in ("inner", "link", "../link", "absent"):
        packs = ([(key, 0, None)], str(tmp_path), [1], "none", None, 1 << 30)
        with pytest.raises((IngotError, OSError)):
            _native.mark_packs(packs, [("isnull", [])], True, marks, 1)
        with pytest.raises((IngotError, OSError)):
            _native.take_packs(packs, np.zeros(1, np.uint64), [1], True, 1)
    packs = ([b""], None, [1, 1], "none", None, 1 << 30)
    with pytest.raises(ValueError, match="as many counts"):
        _native.mark_packs(packs, [], True, marks, 1)
    packs = ([b""], None, [1], "none", None, 1 << 30)
    for name, values in (("matches", [b"x"]), ("<", []), ("<", [b"a", b"b"]), ("isnull", [b"a"])):
        with pytest.raises(ValueError, match="no test"):
            _native.mark_packs(packs, [(name, values)], True, marks, 1)
