"""Sizes in bytes, as users write them."""

import re
from typing import Final

__all__ = ["parse_size"]

_SIZE: Final = re.compile(r"([1-9][0-9]{0,9}) ?(B|[KMG](?:i?B)?)?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int | None:
    """Return the bytes that a text like "1M" or "500 KiB" stands for; None when it is no size.

    A unit is a power of 1024, and a number alone counts bytes.

    >>> parse_size("1M"), parse_size("2 kb"), parse_size("1000"), parse_size("1.5M")
    (1048576, 2048, 1000, None)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    unit = (found[2] or "B")[0].upper()
    return int(found[1]) << 10 * "BKMG".index(unit)
