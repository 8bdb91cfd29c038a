"""Tables that people read."""

import re

import numpy as np
import pytest

import ingot
from ingot.codecs.codec import parse_spelling
from ingot.containers.display import Info, codec_text, size_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB (1,024 bytes)"),
        (1536, "1.5 KiB (1,536 bytes)"),
        (2**20 - 1, "1024.0 KiB (1,048,575 bytes)"),
        (2**20, "1.0 MiB (1,048,576 bytes)"),
        (5 * 2**40, "5.0 TiB (5,497,558,138,880 bytes)"),
        (2**75, "32768.0 EiB (37,778,931,862,957,161,709,568 bytes)"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


def test_codecs_in_the_order_of_encoding() -> None:
    stages = (*parse_spelling("shuffle:4"), *parse_spelling("zlib:3"), *parse_spelling("crc32"))
    assert codec_text(stages).startswith("shuffle(elementsize=4) > zlib(level=3) > crc32")


def test_the_first_rows_of_a_table_lie_below_the_names_of_its_columns() -> None:
    table = ingot.table({"day": np.arange(9), "name": ["<b>"] * 9, "n": {"x": np.zeros((9, 2))}})
    page = table._repr_html_()
    cells = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", page)
    ]
    assert ["rows", "9"] in cells
    at = cells.index(["day", "name", "n.x"])
    assert cells[at + 1] == ["int64", "utf8", "float64 [2]"]
    assert cells[at + 3 : at + 5] == [["0", "&lt;b&gt;", "[0. 0.]"], ["1", "&lt;b&gt;", "[0. 0.]"]]
    assert cells[-1] == ["…", "…", "…"]


def test_a_table_is_text_and_html() -> None:
    info = Info("A & B", (("path", "<x>"), ("a", "1")))
    assert str(info).splitlines() == ["A & B", "  path  <x>", "  a     1"]
    page = info._repr_html_()
    assert page.count("<tr>") == 2
    assert "A &amp; B" in page
    assert "&lt;x&gt;" in page


def test_a_display_of_very_many_chunks_does_not_count_them() -> None:
    array = ingot.create(shape=10**6, dtype="i4", chunks=10)
    assert "stored" not in array._repr_html_()
    assert "stored" in repr(array.info)
    assert "stored" in ingot.array(np.arange(3))._repr_html_()


def test_dates_without_a_unit_are_shown_by_their_bytes() -> None:
    dates = np.arange(2, dtype="<i8").view("<M8")
    array, table = ingot.array(dates), ingot.table({"a": dates})
    for shown in (array.info, table.info):
        assert "0x0000000000000000" in str(shown)
        assert "0x0000000000000000" in shown._repr_html_()
    assert "0x0100000000000000" in str(table.info)


def test_numbers_are_aligned_to_the_right() -> None:
    page = ingot.table({"day": [1, 2], "name": ["x", "y"]})._repr_html_()
    assert re.search(r'<td style="text-align:right[^"]*">1</td>', page)
    assert re.search(r'<td style="text-align:left[^"]*">x</td>', page)


def test_a_view_shows_its_first_rows() -> None:
    table = ingot.table({"day": np.arange(100), "name": ["<b>"] * 100})
    page = table.where("day > 3")._repr_html_()
    assert "day &gt; 3" in page
    assert ">96</td>" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells[4:6] == ["4", "&lt;b&gt;"]
    assert "no such" not in table.where("day > 1000")._repr_html_()


def test_an_explanation_is_a_table_in_notebooks() -> None:
    page = ingot.array(np.arange(100), chunks=10).explain(slice(5, 25))._repr_html_()
    assert page.count("<tr>") == 5 + 1 + 3
    assert re.search(r'<td style="text-align:right[^"]*">10</td>', page)
