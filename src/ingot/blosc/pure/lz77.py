"""The search for matches of LZ77 coders: byte sequences that occurred before.

The search is greedy, with one candidate per position, in bounded memory.
"""

from collections.abc import Iterator

__all__ = ["find_matches"]

_LEAST = 4
_REMEMBERED = 1 << 16
_PATIENCE = 5


def find_matches(data: bytes, window: int, tail: int) -> Iterator[tuple[int, int, int]]:
    """Yield ``(start, length, distance)`` of all matches, in order and disjoint.

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
            # Where nothing matches, try fewer and fewer positions.
            position += 1 + (misses >> _PATIENCE)
            misses += 1
        else:
            length = _common_length(data, earlier, position, stop)
            yield position, length, position - earlier
            position += length
            misses = 0


def _common_length(data: bytes, earlier: int, later: int, stop: int) -> int:
    """Return the number of equal bytes from two positions on, by steps that double, then halve."""
    length, step = _LEAST, 16
    while step:
        end = later + length + step
        if end <= stop and data[earlier + length : end - later + earlier] == data[end - step : end]:
            length += step
            step *= 2
        else:
            step //= 2
    return length
