"""The metadata of a file of variable-length items."""

import json
from typing import Any

import numpy as np
import pytest

from ingot.codecs.compressors import Blosc
from ingot.errors import FormatError, IngotError, LimitError, UnsupportedError
from ingot.formats.varlen.metadata import VarlenMetadata, room_for
from ingot.ragged_array import BYTES, JSON, UTF8, ItemKind


def test_the_example_of_the_document_is_read_once_it_is_json() -> None:
    found = VarlenMetadata.parse(b'{"dtype": "varchar", "shape": [1024], "others": []}')
    assert (found.kind, found.length, found.nulls) == (UTF8, 1024, False)
    assert found.others == {"others": []}
    assert json.loads(found.text())["others"] == []
    with pytest.raises(FormatError, match="varlen metadata"):
        VarlenMetadata.parse(b"{'dtype': 'varchar', 'shape': [1024], 'others': []}")


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("bytes", BYTES),
        ("utf8", UTF8),
        ("varchar", UTF8),
        ("json", JSON),
        ("<f8", ItemKind("list", np.dtype("<f8"))),
        (">i2", ItemKind("list", np.dtype(">i2"))),
        ("|S5", ItemKind("list", np.dtype("S5"))),
        ("<M8[ns]", ItemKind("list", np.dtype("<M8[ns]"))),
    ],
)
def test_kinds_have_a_spelling(spelling: str, kind: ItemKind) -> None:
    found = VarlenMetadata.parse(json.dumps({"dtype": spelling, "shape": [3]}).encode())
    assert found.kind == kind
    said = json.loads(found.text())["dtype"]
    assert said == ("utf8" if spelling == "varchar" else spelling)


def test_metadata_come_back() -> None:
    made = VarlenMetadata(
        ItemKind.of("<i4"),
        7,
        True,
        Blosc("zstd", 9, 2, 4096, 4),
        1000,
        0.25,
        12,
        {"units": "m", "deep": [1, {"a": None}]},
        {"theirs": 1},
    )
    assert VarlenMetadata.parse(made.pack()) == made
    assert VarlenMetadata.parse(made.pack(5000)) == made
    assert len(made.pack(5000)) == 5000
    assert made.pack(5000).rstrip(b" ") == made.text()
    assert json.loads(made.text())["user"] == {"units": "m", "deep": [1, {"a": None}]}


def test_metadata_need_their_room() -> None:
    made = VarlenMetadata(UTF8, 7)
    with pytest.raises(LimitError, match="in a room of 10"):
        made.pack(10)
    assert len(made.pack()) == room_for(len(made.text()))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"dtype": 5}, "dtype is 5"),
        ({"dtype": "tree"}, "dtype"),
        ({"dtype": "|O"}, "no fixed size"),
        ({"dtype": "f8"}, "byte order"),
        ({"shape": 3}, "shape is 3"),
        ({"shape": [3, 4]}, "a list of one length"),
        ({"shape": [-1]}, "shape holds -1"),
        ({"shape": [1.5]}, "shape holds 1.5"),
        ({"shape": [2**63]}, "shape"),
        ({"nulls": 1}, "nulls is 1"),
        ({"user": []}, "user is"),
        ({"reserve": -1}, "reserve is -1"),
        ({"reserve": 1.5}, "reserve is 1.5"),
        ({"reserve": "1"}, "reserve is '1'"),
        ({"x_pack": 0}, "x_pack is 0"),
        ({"x_dead": -4}, "x_dead is -4"),
        ({"x_codec": {"cname": "lzma"}}, "cname"),
        ({"x_codec": 7}, "x_codec is 7"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises((FormatError, UnsupportedError), match=text):
        VarlenMetadata.parse(json.dumps(values).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"    ",
        b"[]",
        b"null",
        b'{"dtype": "utf8"',
        b'{"dtype": "utf8"}\0\0',
        b'{"dtype": "utf8", "dtype": "bytes"}',
        b'{"user": {"a": NaN}}',
        b'{"user": {"a": Infinity}}',
        b'{"user": ' + b"[" * 100 + b"]" * 100 + b"}",
        b"\xff\xfe{}",
        b'{"user": {"a": ' + b"9" * 30 + b"}}",
    ],
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(IngotError, match="varlen metadata"):
        VarlenMetadata.parse(data)


def test_attributes_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(IngotError, match="varlen metadata"):
        VarlenMetadata(UTF8, 3, attrs={"a": float("nan")}).text()
