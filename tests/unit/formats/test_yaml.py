"""YAML documents: what is read, what is refused, and what of a text stays when values change."""

import math
from contextlib import suppress
from typing import Any

import pytest
import yaml as peer
from hypothesis import given
from hypothesis import strategies as st

from ingot.errors import CorruptionError, FormatError, IngotError, LimitError
from ingot.formats.yaml import DEEPEST, LARGEST, Document, pack, parse

# The example of the proposal, as it stands there.
STORAGE = b"""\
    dtype:
      col1: int8
      col2: float32
    shape: (300,200)
    chunkshape: (30, 20)
    superchunksize: 10  # max. number of chunks in a single file
    endianness: big  # default: little
    order: C         # default: C
    compression:
      library: blosclz
      level: 5
      filters: [shuffle, truncate]  # order matters
"""


def test_the_example_of_the_proposal() -> None:
    assert parse(STORAGE, "storage") == {
        "dtype": {"col1": "int8", "col2": "float32"},
        "shape": "(300,200)",
        "chunkshape": "(30, 20)",
        "superchunksize": 10,
        "endianness": "big",
        "order": "C",
        "compression": {"library": "blosclz", "level": 5, "filters": ["shuffle", "truncate"]},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("017", 17),
        ("0o17", 15),
        ("0xfF", 255),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551615", 2**64 - 1),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-11-16", "2026-11-16"),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        ("'12'", "12"),
        ('"a\\nb"', "a\nb"),
        ("[1, 2.0, x]", [1, 2.0, "x"]),
        ("{a: {b: []}}", {"a": {"b": []}}),
        ("\n  - 1\n  - [2]", [1, [2]]),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_values_of_the_core_schema(text: str, value: Any) -> None:
    found = parse(f"key: {text}\n".encode(), "doc")["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (b"", CorruptionError, "doc: the document is empty"),
        (b" \n", CorruptionError, "doc: the document is empty"),
        (b"a: \xff", FormatError, "doc: byte 3 is no UTF-8"),
        (b"a: !!python/object/apply:os.system [x]", FormatError, "doc: line 1: tags are refused"),
        (b"a: !custom 1", FormatError, "tags are refused"),
        (b"a: &x 1\nb: 2", FormatError, "anchors are refused"),
        (b"a: 1\nb: *x", FormatError, "aliases are refused"),
        (b"a: {b: 1}\n<<: {c: 1}", FormatError, "doc: line 2: merge keys are refused"),
        (b"a: 1\na: 2", FormatError, "doc: line 2: the key 'a' is repeated"),
        (b"a: 1\n---\nb: 2", FormatError, "a second document"),
        (b"? [1]\n: 2", FormatError, "a key must be text"),
        (b"a: [1", FormatError, "doc: line [12], column"),
        (b"a: 'x", FormatError, "doc: line 1"),
        (b"a: 18446744073709551616", LimitError, "more than 64 bits"),
        (b"a: -9223372036854775809", LimitError, "more than 64 bits"),
        (b"a: " + b"9" * 10_000, LimitError, "more than 64 bits"),
        (b"a: " + b"[" * 64 + b"]" * 64, LimitError, "nested more than 64 deep"),
        (b"a: \x00", FormatError, "doc: "),
        (b"#" * (LARGEST + 1), LimitError, "doc: more than 16777216 bytes"),
    ],
)
def test_what_is_refused(text: bytes, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        parse(text, "doc")


def test_the_deepest_document_is_read() -> None:
    text = b"a: " + b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1)
    assert pack(parse(text, "doc"), "doc") == text + b"\n"


def test_a_laughter_of_aliases_takes_no_memory() -> None:
    lines = [b"a0: &a0 [x, x]"]
    lines += [b"a%d: &a%d [*a%d, *a%d]" % (n, n, n - 1, n - 1) for n in range(1, 60)]
    with pytest.raises(FormatError, match="anchors are refused"):
        parse(b"\n".join(lines), "doc")


def test_what_is_parsed_is_the_callers_own() -> None:
    first = parse(b"a: [1]", "doc")
    first["a"].append(2)
    assert parse(b"a: [1]", "doc") == {"a": [1]}


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
documents = st.dictionaries(st.text(), values, max_size=6)


def _shown(value: Any) -> str:
    """Distinguish 1, 1.0, True, -0.0 and NaN."""
    return repr(value)


@given(documents)
def test_what_is_packed_is_read_back(value: dict[str, Any]) -> None:
    packed = pack(value, "doc")
    assert _shown(parse(packed, "doc")) == _shown(value)
    # Another parser takes it for the same, apart from the words of YAML 1.1.
    assert list(peer.safe_load(packed) or {}) == list(value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"a": 2**64}, LimitError),
        ({"a": b"x"}, FormatError),
        ({1: 2}, FormatError),
        ({"a": "\ud800"}, FormatError),
        ([1], FormatError),
    ],
)
def test_what_cannot_be_packed(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack(value, "doc")


TEXT = b"""\
# made by hand
shape: [3, 4]   # rows, columns
# the order of items
order: C
compression:
  # the library
  library: blosclz
  level: 5

# the end
"""


def test_comments_stay_where_values_do() -> None:
    document = Document.parse(TEXT, "doc")
    assert document.changed(dict(document.values)) is document
    values = {**document.values, "shape": [5, 4], "fill": 1.5}
    assert document.changed(values).text == TEXT.replace(b"[3, 4]", b"[5, 4]") + b"fill: 1.5\n"
    del values["order"], values["fill"]
    expected = TEXT.replace(b"[3, 4]", b"[5, 4]").replace(b"order: C\n", b"")
    assert document.changed(values).text == expected
    values["compression"] = {"library": "lz4", "level": 5}
    changed = document.changed(values).text
    assert b"# made by hand" in changed
    assert b"# the end" in changed
    assert parse(changed, "doc") == values


@given(documents, documents)
def test_a_changed_text_has_the_new_values(old: dict[str, Any], new: dict[str, Any]) -> None:
    document = Document.parse(pack(old, "doc"), "doc")
    changed = document.changed(new)
    assert _shown(sorted(parse(changed.text, "doc").items(), key=lambda item: item[0])) == _shown(
        sorted(new.items(), key=lambda item: item[0])
    )


@pytest.mark.parametrize("text", ["# nothing yet\n", "null\n", "---\n", "~ # none\n", "{}\n"])
def test_a_text_without_members_gets_the_first(text: str) -> None:
    changed = Document.parse(text.encode(), "here").changed({"a": 1})
    assert parse(changed.text, "here") == {"a": 1}
    assert changed.text.startswith(b"# nothing yet\n") == ("nothing" in text)


def test_a_text_in_one_line_is_rewritten() -> None:
    document = Document.parse(b"{a: 1, b: 2}", "doc")
    assert document.changed({"a": 1, "b": 3}).text == b"a: 1\nb: 3\n"


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(IngotError):
        parse(data, "doc")
