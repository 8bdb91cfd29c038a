"""Repeated stretches of bytes, as LZ77 coders want them.

Knows how to find them in reasonable time and bounded memory. Refuses to know how a coder writes
them down. For the pure-Python codecs only: plain greedy search, one candidate per position.
"""

from collections.abc import Iterator

__all__ = ["find_matches"]

_LEAST = 4
_REMEMBERED = 1 << 16
_PATIENCE = 5


def find_matches(data: bytes, window: int, tail: int) -> Iterator[tuple[int, int, int]]:
    """Yield ``(start, length, distance)`` of stretches that occurred before, in order, disjoint.

    No match is shorter than 4 bytes, reaches back further than ``window`` or touches the last
    ``tail`` bytes.

    >>> list(find_matches(b"abcdefgh-abcdefgh-end", window=100, tail=3))
    [(9, 9, 9)]
    """
    stop = len(data) - tail
    seen: dict[bytes, int] = {}
    position = misses = 0
    while position + _LEAST <= stop:
        key = data[position : position + _LEAST]
        earlier = seen.get(key)
        if len(seen) == _REMEMBERED:
            seen.clear()
        seen[key] = position
        if earlier is None or position - earlier > window:
            # Where nothing matches, look at fewer and fewer positions.
            position += 1 + (misses >> _PATIENCE)
            misses += 1
        else:
            length = _common_length(data, earlier, position, stop)
            yield position, length, position - earlier
            position += length
            misses = 0


def _common_length(data: bytes, earlier: int, later: int, stop: int) -> int:
    """Count the equal bytes from two positions on, by steps that double and then halve."""
    length, step = _LEAST, 16
    while step:
        end = later + length + step
        if end <= stop and data[earlier + length : end - later + earlier] == data[end - step : end]:
            length += step
            step *= 2
        else:
            step //= 2
    return length
