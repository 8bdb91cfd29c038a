"""Items of iterators: stored as they come, in bounded memory and by one commit."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import LimitError
from ingot.formats.bcolz import ragged as bcolz_items
from ingot.ragged_array import UTF8, RaggedArray
from tests.kernels import needs_native
from tests.limited import run_limited

FORMATS = ["varlen", "bcolz", "blsk"]


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a format; its packs have a few items."""
    monkeypatch.setattr(bcolz_items, "_LEAST_PACK", 60)
    return request.param


def words(first: int, last: int) -> list[str | None]:
    return [None if n % 7 == 3 else f"word {n}" for n in range(first, last)]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("before", [0, 1, 6, 17])
def test_an_iterator_gives_what_a_list_gives(tmp_path: Path, format: str, before: int) -> None:
    path = tmp_path / "r"
    made = ingot.ragged(iter(words(0, before)), path, kind="utf8", format=format)
    assert list(made) == words(0, before)
    made.append(iter(words(before, 50)))
    made.extend(word for word in words(50, 51))
    made.append(iter([]))
    assert list(made) == list(ingot.open(path)) == words(0, 51)
    assert ingot.check(path).ok


@pytest.mark.parametrize("others", ["an append", "an update of the last", "a shorter one", "one"])
def test_another_writer_changes_items_meanwhile(tmp_path: Path, format: str, others: str) -> None:
    path = tmp_path / "r"
    made = ingot.ragged(words(0, 20), path, format=format)
    other: Any = ingot.open(path, "r+")
    expected = words(0, 20)

    def late() -> Iterator[str]:
        yield "first"
        if others == "an append":
            other.append(["theirs"])
            expected.append("theirs")
        elif others == "an update of the last":
            other[-1] = expected[-1] = "theirs"
        elif others == "a shorter one":
            other.resize(3)
            del expected[3:]
        else:
            other.delete(slice(None))
            other.append(["x" * 500])
            expected[:] = ["x" * 500]
        yield from map(str, range(100))

    made.append(late())
    assert list(ingot.open(path)) == [*expected, "first", *map(str, range(100))]
    assert list(made) == list(ingot.open(path))


def test_an_iterator_that_fails_changes_nothing(tmp_path: Path, format: str) -> None:
    path = tmp_path / "r"
    made = ingot.ragged(words(0, 20), path, format=format)
    stored = {file: file.read_bytes() for file in _files(path)}

    def odd() -> Iterator[Any]:
        yield from map(str, range(100_000))
        yield 7

    with pytest.raises(ValueError, match="items from 98304 on: item 1696 is 7, not text"):
        made.append(odd())
    assert {file: file.read_bytes() for file in _files(path)} == stored


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [file for file in found if file.is_file()]


def test_an_iterator_without_an_end_ends_at_the_limit(tmp_path: Path, format: str) -> None:
    options = ingot.Options(limits=ingot.Limits(commit_chunks=50))
    layout = {"pack_bytes": 60} if format == "varlen" else {}
    made = ingot.ragged(words(0, 20), tmp_path / "r", format=format, options=options, **layout)
    with pytest.raises(LimitError, match="the most is 50"):
        made.append(map(str, count()))
    assert list(ingot.open(tmp_path / "r")) == words(0, 20)


def test_packs_of_more_bytes_than_a_chunk_holds_are_refused() -> None:
    # The bytes exist once: what is refused is not encoded.
    data = np.broadcast_to(np.uint8(97), (2**31 + 20,))
    offsets = np.array([0, 2**30, 2**31 + 20], np.int64)
    items = RaggedArray(UTF8, offsets, data)
    for name in ("bcolz", "blsk"):
        table = ingot.table({"a": ["x"] * 6}, format=name, chunks=3)
        with pytest.raises(LimitError, match="pack 2 would hold 2147483668 bytes of items"):
            table.append({"a": items})
        assert list(table["a"]) == ["x"] * 6


_MEMORY = """
import sys
path, name = sys.argv[1:]
ingot.ragged(("%d" % n + "x" * 100_000 for n in range(6000)), path, format=name)
items = ingot.open(path, "r+")
items.append("%d" % n + "y" * 100_000 for n in range(6000))
assert len(items) == 12_000 and items[0][:2] == "0x" and items[-1][:5] == "5999y"
"""


@pytest.mark.parametrize("format_name", FORMATS)
@needs_native
def test_more_items_than_memory(tmp_path: Path, format_name: str) -> None:
    run_limited(_MEMORY, "native", tmp_path / "r", format_name)
