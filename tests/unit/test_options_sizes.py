"""Sizes in bytes: every unit, and texts that are no sizes."""

import pytest

from ingot.options import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("7B", 7),
        ("7 b", 7),
        ("2k", 2048),
        ("2KB", 2048),
        ("2 KiB", 2048),
        ("3M", 3 << 20),
        ("1GiB", 1 << 30),
        ("9999999999", 9_999_999_999),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0K",
        "K",
        "1T",
        "-1M",
        "1.5M",
        "1BB",
        "1KiBi",
        "1iB",
        "1  K",
        " 1",
        "1\n",
        "¹",
        "10000000000",
    ],
)
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None
