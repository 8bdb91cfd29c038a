"""JSON documents: strict, bounded, and the same bytes every time."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.formats import json as document

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_is_packed_is_parsed(value: Any) -> None:
    data = document.pack(value, "here")
    assert document.parse(data, "here") == value
    assert data == json.dumps(value, indent=4, sort_keys=True).encode()


@given(values)
def test_keys_keep_their_order_on_demand(value: Any) -> None:
    data = document.pack(value, "here", in_order="")
    assert data == json.dumps(value, indent=4).encode()


def test_keys_keep_their_order_in_members_of_a_name() -> None:
    kept = {"z": {"y": 1, "b": 2}, "a": [{"d": 1, "c": 2}]}
    value = {"shape": [1], "attributes": kept, "in": [{"b": {"x/attributes": kept}, "a": 1}]}
    data = document.pack(value, "here", in_order="attributes")
    first = {"in": [{"a": 1, "b": {"x/attributes": kept}}], "shape": [1]}
    assert data == json.dumps({"attributes": kept, **first}, indent=4).encode()
    around = document.pack_around(value, "shape", "here", in_order="attributes")
    assert around is not None
    assert around[0] + document.pack_integers([1]) + around[1] == data


def test_bare_words_are_allowed_on_demand_only() -> None:
    data = b"[NaN, Infinity, -Infinity]"
    assert str(document.parse(data, "here", allow_nan=True)) == "[nan, inf, -inf]"
    for word in (b"NaN", b"Infinity", b"-Infinity"):
        with pytest.raises(FormatError, match=f"here: {word.decode()} is no JSON value"):
            document.parse(b'{"a": [' + word + b"]}", "here")
        with pytest.raises(FormatError, match="is no JSON value"):
            document.parse_object(b'{"a": ' + word + b"}", "here")
    with pytest.raises(FormatError, match="JSON"):
        document.pack_line({"a": float("nan")}, "here")
    with pytest.raises(FormatError, match="JSON"):
        document.pack_compact({"a": float("nan")}, "here")
    with pytest.raises(FormatError, match="JSON"):
        document.pack(float("nan"), "here")
    assert document.pack(float("nan"), "here", allow_nan=True) == b"NaN"


@pytest.mark.parametrize("data", [b"", b" \n", bytes(400), b"\x00 \x00"])
def test_a_document_that_a_crash_has_emptied_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="here: the document is"):
        document.parse(data, "here")


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 1} x',
        b'{"a": 01}',
        b'{"a": +1}',
        b'{"a": .5}',
        b'{"a": "\n"}',
        b'{"a": "\\x"}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": "\xff"}',
        b'{"a": 1, "b": 2, "a": 3}',
        b'[{"a": {"b": 1, "b": 1}}]',
        b"True",
        b"nan",
    ],
)
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^here: "):
        document.parse(data, "here", allow_nan=True)


def test_the_place_of_an_error_is_named() -> None:
    with pytest.raises(FormatError, match="line 2, column 8"):
        document.parse(b'{\n  "a": }', "here")
    with pytest.raises(FormatError, match="not UTF-8 from byte 7"):
        document.parse(b'{"abc":\xff}', "here")


@pytest.mark.parametrize(
    "number", ["9223372036854775807", "-9223372036854775808", "18446744073709551615"]
)
def test_integers_of_64_bits(number: str) -> None:
    assert document.parse(number.encode(), "here") == int(number)


@pytest.mark.parametrize(
    "number",
    [
        "18446744073709551616",
        "-9223372036854775809",
        "9" * 10**6,
        "-" + "9" * 5000,
        "1e999",
        "-1e400",
    ],
)
def test_numbers_beyond_64_bits(number: str) -> None:
    with pytest.raises(LimitError, match="64 bits") as caught:
        document.parse(number.encode(), "here")
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_the_depth_has_a_limit(opening: bytes, closing: bytes) -> None:
    deepest = opening * 64 + b"1" + closing * 64
    assert document.parse(deepest, "here")
    for depth in (65, 100_000):
        with pytest.raises(LimitError, match="more than 64"):
            document.parse(opening * depth + b"1" + closing * depth, "here")
        with pytest.raises(LimitError, match="more than 64"):
            document.parse(opening * depth, "here")


def test_brackets_in_text_are_no_depth() -> None:
    value = {"a": "[" * 1000 + '\\"{', "b": [[]] * 100}
    assert document.parse(json.dumps(value).encode(), "here") == value


def test_the_size_has_a_limit() -> None:
    text = b'"' + b"x" * (document.LARGEST - 2) + b'"'
    assert len(document.parse(text, "here")) == document.LARGEST - 2
    with pytest.raises(LimitError, match="bytes"):
        document.parse(text + b" ", "here")
    with pytest.raises(LimitError, match="bytes"):
        document.pack("x" * document.LARGEST, "here")


def test_a_key_that_stands_twice_among_many_is_found_at_once() -> None:
    keys = [f'"{n}": 0' for n in range(100_000)] + ['"77": 1']
    # Of the processor: the time of the clock says nothing on a machine with other work.
    started = time.process_time()
    with pytest.raises(FormatError, match="'77' is repeated"):
        document.parse(f"{{{', '.join(keys)}}}".encode(), "here")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", {"a": {b"x": 1}}])
def test_what_cannot_be_written(value: object) -> None:
    with pytest.raises(FormatError, match="here: cannot be written as JSON"):
        document.pack(value, "here")


def test_what_refers_to_itself_cannot_be_written() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(FormatError, match="here"):
        document.pack(endless, "here")


@pytest.mark.parametrize("data", [b"[]", b"null", b"5", b'"x"'])
def test_a_document_that_must_be_an_object(data: bytes) -> None:
    with pytest.raises(FormatError, match="is no object"):
        document.parse_object(data, "here")
    assert document.parse_object(b"{}", "here") == {}


def test_other_sequences_are_written_as_lists_of_any_depth() -> None:
    value = {"a": (1, (2, []), {"b": ()})}
    expected = json.dumps(value, indent=4, sort_keys=True).encode()
    assert document.pack(value, "doc") == expected
