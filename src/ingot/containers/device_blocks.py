"""Blocks for a device: the next is read in a thread while the caller uses the one before."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_each"]

Key = TypeVar("Key")
Value = TypeVar("Value")


def read_each(keys: Iterable[Key], read: Callable[[Key], Value]) -> Iterator[tuple[Key, Value]]:
    """Yield keys with their values in order; one value more than is asked for is read.

    An error is raised when its value is asked for. The thread ends with the iterator.

    >>> list(read_each([1, 2, 3], lambda number: number * 10))
    [(1, 10), (2, 20), (3, 30)]
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ingot-ahead") as pool:
        waiting: tuple[Key, Future[Value]] | None = None
        for key in keys:
            following = key, pool.submit(read, key)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()
