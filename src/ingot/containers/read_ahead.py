"""Variable-length items in blocks of packs: the next block is read while one is in use.

A thread reads the next block, and ends. Its items are used only if they are those of the state that
the caller sees when the block is wanted, so that a caller sees what it would see without the
thread. Whatever goes wrong in the thread is left to the caller, which reads the block again by
itself: there an error belongs to a pack, and a warning to a line of the caller.
"""

import threading
from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple

from ingot import signals
from ingot.containers.handle import HandleProtocol
from ingot.engine.ragged import RaggedEngine, following_packs
from ingot.ragged_array import RaggedArray

__all__ = ["blocks_ahead"]


def blocks_ahead(handle: HandleProtocol[RaggedEngine]) -> Generator[RaggedArray]:
    """Yield all items, block by block; each is of the state at the time when it is yielded.

    An error is raised where the items before it have been yielded. At most two blocks are in
    memory. No thread outlives the iterator.
    """
    start, packs, useful = 0, 1, True
    ahead: _BlockAhead | None = None
    try:
        while True:
            block = _read(handle, start, packs, ahead)
            if not len(block.items):
                return
            start += len(block.items)
            packs = following_packs(block.packs, block.items)
            # Where a block that was read ahead is of no use, a transaction or a writer is at work.
            useful = useful and (ahead is None or block.ahead)
            more = start < block.engine.shape[0]
            ahead = _BlockAhead.begun(handle, start, packs) if useful and more else None
            yield block.items
    finally:
        if ahead is not None:
            ahead.end()


class _ItemBlock(NamedTuple):
    """Items of some packs, and the state that they are of."""

    engine: RaggedEngine
    packs: int
    items: RaggedArray
    ahead: bool = False
    """Whether the items were read before they were wanted."""


class _BlockAhead(threading.Thread):
    """Reads one block, and ends."""

    def __init__(self, handle: HandleProtocol[RaggedEngine], start: int, packs: int) -> None:
        super().__init__(name="ingot-read-ahead")
        self._handle = handle
        self._start = start
        self._packs = packs
        self._found: _ItemBlock | None = None
        self._read = threading.Event()
        self._forks = signals.forks()

    @classmethod
    def begun(
        cls, handle: HandleProtocol[RaggedEngine], start: int, packs: int
    ) -> "_BlockAhead | None":
        """Return a thread that reads a block; None where no thread can be started."""
        thread = cls(handle, start, packs)
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread

    def run(self) -> None:
        def read(engine: RaggedEngine) -> _ItemBlock:
            rows = engine.block(self._start, self._packs)
            return _ItemBlock(engine, self._packs, engine.read(rows, strict=True), ahead=True)

        try:
            with suppress(Exception):
                self._found = self._handle.read(read)
        finally:
            self._read.set()

    def end(self) -> None:
        """Wait until the thread has ended; a process that was forked since does not have it.

        The thread itself may end an iterator, when it collects garbage: it does not wait.
        """
        if self._forks == signals.forks() and threading.get_ident() != self.ident:
            # Ctrl-C while a thread is joined makes Python take it for ended (bpo-45274).
            self._read.wait()
            self.join()

    def found(self, engine: RaggedEngine) -> _ItemBlock | None:
        """Return the block, if it is of this state; wait until it is read."""
        self.end()
        found = self._found
        return found if found is not None and found.engine is engine else None


def _read(
    handle: HandleProtocol[RaggedEngine], start: int, packs: int, ahead: _BlockAhead | None
) -> _ItemBlock:
    """Return the block that begins with an item; only its first pack, where it has an error."""

    def read(engine: RaggedEngine, packs: int = packs) -> _ItemBlock:
        found = None if ahead is None else ahead.found(engine)
        return found or _ItemBlock(engine, packs, engine.read(engine.block(start, packs)))

    try:
        return handle.read(read)
    except Exception:
        if packs == 1:
            raise
        return handle.read(lambda engine: read(engine, 1))
