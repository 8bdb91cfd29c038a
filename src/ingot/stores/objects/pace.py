"""How fast a server answers: how much of an object comes in less time than another round trip.

A small read fetches the beginning of a chunk, and then the blocks that it needs. Where a whole
chunk arrives in less than half of the time of a round trip, to fetch all of it at once is faster.
What a process has seen of a server decides; nothing is sent to find out.
"""

import functools
import statistics
import threading
from collections import deque
from typing import Final

__all__ = ["Pace", "pace_of"]

# Batches that count for the time of a round trip, and those that count for the bytes per second.
_SMALL: Final = 16 << 10
_LARGE: Final = 256 << 10
# So many batches are remembered of each kind, and so few decide nothing.
_KEPT: Final = 16
_FEWEST: Final = 3
_MOST: Final = 4 << 20
# What is tried once, while nothing is known of the bytes per second.
_TRIED: Final = 1 << 20


class Pace:
    """What a process has seen of a server.

    >>> pace = Pace()
    >>> pace.note(500, 0.25)
    >>> pace.bytes_at_once
    0
    >>> for _ in range(2):
    ...     pace.note(500, 0.25)
    >>> pace.bytes_at_once
    1048576
    >>> pace.note(3_000_000, 0.75)
    >>> pace.bytes_at_once
    750000
    """

    def __init__(self) -> None:
        self._waits: deque[float] = deque(maxlen=_KEPT)
        self._rates: deque[float] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def note(self, nbytes: int, seconds: float) -> None:
        """Note that a batch of requests, all sent at once, brought so many bytes."""
        if nbytes <= _SMALL:
            with self._lock:
                self._waits.append(seconds)
        elif nbytes >= _LARGE and seconds > 0:
            with self._lock:
                wait = min(self._waits, default=0.0)
                # The first bytes take the time of a small answer.
                self._rates.append(nbytes / max(seconds - wait, seconds / 10))

    @property
    def bytes_at_once(self) -> int:
        """How many bytes come in half of the time of a round trip; 0 before anything is known."""
        with self._lock:
            if len(self._waits) < _FEWEST:
                return 0
            if not self._rates:
                return _TRIED
            wait, rate = statistics.median(self._waits), max(self._rates)
        return min(int(wait * rate / 2), _MOST)


@functools.lru_cache(maxsize=64)
def pace_of(server: str) -> Pace:
    """Return what this process has seen of a server.

    >>> pace_of("s3://data ") is pace_of("s3://data ")
    True
    """
    return Pace()
