"""Iterating over items: the next packs are read meanwhile, and a caller notices nothing of it."""

import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers import read_ahead
from ingot.engine import ragged as engine_module
from ingot.engine.ragged import RaggedEngine
from ingot.errors import CorruptionError, DamageWarning
from ingot.stores import LocalStore, MemoryStore, Store
from tests.lone_items import lone_items

FORMATS = ["varlen", "bcolz", "blsk"]
COUNT = 400
WORDS = [None if number % 7 == 3 else f"word {number}" for number in range(COUNT)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a block have 30 items or 500 bytes."""
    monkeypatch.setattr(engine_module, "_BLOCK_ITEMS", 30)
    monkeypatch.setattr(engine_module, "_BLOCK_BYTES", 500)


def made(format: str, store: Store | None = None) -> ingot.Ragged:
    store = store or MemoryStore()
    if format == "varlen":
        return ingot.ragged(WORDS, store, format=format, pack_bytes=60)
    return lone_items(WORDS, store, format, 8)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, range]]:
    """The runs of items that were read, in order, and the threads that read them."""
    seen: list[tuple[str, range]] = []
    read = RaggedEngine.read

    def watched(engine: RaggedEngine, rows: Any, **given: Any) -> Any:
        seen.append((threading.current_thread().name, rows))
        return read(engine, rows, **given)

    monkeypatch.setattr(RaggedEngine, "read", watched)
    return seen


def ahead() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "ingot-read-ahead"]


@pytest.mark.parametrize("format", FORMATS)
def test_all_items_come_in_order(format: str) -> None:
    assert list(made(format)) == WORDS
    assert ahead() == []


@pytest.mark.parametrize("format", FORMATS)
def test_blocks_are_read_once_and_ahead(format: str, reads: list[tuple[str, range]]) -> None:
    items = made(format)
    del reads[:]
    assert len(list(items)) == COUNT
    first, *others = reads
    assert first[0] == threading.current_thread().name
    *ahead_of_last, last = others
    assert {name for name, _ in ahead_of_last} == {"ingot-read-ahead"}
    # Each item is read once. The last look finds no more, and needs no thread.
    assert [row for _, rows in reads for row in rows] == list(range(COUNT))
    assert last == (first[0], range(COUNT, COUNT))


def test_the_next_block_is_read_before_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    items = iter(made("bcolz"))
    begun = threading.Event()
    read = RaggedEngine.read

    def watched(engine: RaggedEngine, rows: Any, **given: Any) -> Any:
        if rows[0] > 0:
            begun.set()
        return read(engine, rows, **given)

    monkeypatch.setattr(RaggedEngine, "read", watched)
    assert next(items) == "word 0"
    assert begun.wait(60)


def test_memory_is_that_of_two_blocks(reads: list[tuple[str, range]]) -> None:
    long = ["x" * 400] * 64 + [None] * 64
    items = lone_items(long, MemoryStore(), "blsk", 1)
    del reads[:]
    iterator = iter(items)
    for number, expected in enumerate(long):
        assert next(iterator) == expected
        # The block in use, and one ahead: of at most 30 items, and one long item.
        assert sum(len(rows) for _, rows in reads) <= number + 1 + 2 * 30
        held = [rows for _, rows in reads if len(rows) and rows[0] < 60]
        assert all(len(rows) == 1 for rows in held)
    assert next(iterator, "end") == "end"


def damaged(format: str, options: ingot.Options) -> tuple[ingot.Ragged, int]:
    """Return items with a damaged pack in the middle, and the first of its items."""
    store = MemoryStore()
    items = made(format, store)
    engine = items._handle.value
    number = engine.pack_count // 2
    (extent,) = engine.packs.locate(np.array([number]))
    value = bytearray(store._values[extent.key])  # type: ignore[union-attr]
    value[(extent.start or 0) + 40] ^= 0x55  # type: ignore[union-attr]
    store._values[extent.key] = bytes(value)  # type: ignore[union-attr]
    found = ingot.open(store, options=options)
    assert isinstance(found, ingot.Ragged)
    return found, engine.span(number).start


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_comes_where_the_items_before_it_have_come(format: str) -> None:
    items, first = damaged(format, ingot.Options())
    seen: list[Any] = []
    with pytest.raises(CorruptionError):
        seen.extend(items)
    assert first > 60
    assert seen == WORDS[:first]
    assert ahead() == []


def test_damage_that_is_filled_warns_the_caller_once() -> None:
    items, first = damaged("bcolz", ingot.Options(damaged="fill"))
    threads = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        show = warnings.showwarning

        def note(*given: Any, **named: Any) -> None:
            threads.append(threading.current_thread())
            show(*given, **named)

        warnings.showwarning = note
        found = list(items)
    assert found == [*WORDS[:first], *[None] * 8, *WORDS[first + 8 :]]
    assert {each.category for each in caught} == {DamageWarning}
    assert threads == [threading.main_thread()]


def change_behind(items: ingot.Ragged) -> None:
    items[COUNT - 1] = "changed"


def grow(items: ingot.Ragged) -> None:
    items.append(["more"])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("change", [change_behind, grow])
def test_a_block_is_of_the_state_in_which_it_is_wanted(
    format: str, change: Callable[[ingot.Ragged], None]
) -> None:
    items = made(format)
    iterator = iter(items)
    seen = [next(iterator)]
    for thread in ahead():
        thread.join()
    change(items)
    assert [*seen, *iterator] == items.items().to_list()


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_a_transaction_sees_its_own_items(format: str) -> None:
    items = made(format)
    with items.transaction():
        items[COUNT - 1] = "changed"
        assert list(items) == [*WORDS[:-1], "changed"]
    assert list(items)[-1] == "changed"


def test_a_transaction_reads_ahead_in_vain_only_once(reads: list[tuple[str, range]]) -> None:
    items = made("bcolz")
    with items.transaction():
        items[0] = "changed"
        del reads[:]
        assert len(list(items)) == COUNT
    assert [name for name, _ in reads].count("ingot-read-ahead") == 1


def test_columns_and_arrays_of_items_are_read_ahead(reads: list[tuple[str, range]]) -> None:
    table = ingot.table({"word": WORDS, "n": np.arange(COUNT)}, MemoryStore(), chunks=8)
    strings = np.array([word or "" for word in WORDS], np.dtypes.StringDType())
    array = ingot.array(strings, MemoryStore(), chunks=8, format="zarr3")
    for items, expected in ((table["word"], WORDS), (array.ragged(), strings.tolist())):
        del reads[:]
        assert list(items) == expected
        names = [name for name, rows in reads if len(rows)]
        assert set(names[1:]) == {"ingot-read-ahead"}


@pytest.mark.parametrize("end", ["close", "abandon", "error"])
def test_an_iterator_that_ends_early_leaves_no_thread(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = made("bcolz")
    going = threading.Event()
    read = RaggedEngine.read

    def slow(engine: RaggedEngine, rows: Any, **given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            going.set()
            threading.Event().wait(0.05)
        return read(engine, rows, **given)

    monkeypatch.setattr(RaggedEngine, "read", slow)
    iterator: Iterator[Any] | None = iter(items)
    next(iterator)  # type: ignore[arg-type]
    assert going.wait(60)
    assert len(ahead()) == 1
    if end == "close":
        iterator.close()  # type: ignore[union-attr]
    elif end == "error":
        with pytest.raises(ZeroDivisionError):
            iterator.throw(ZeroDivisionError())  # type: ignore[union-attr]
    iterator = None
    gc.collect()
    assert ahead() == []


def test_the_thread_itself_may_end_the_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    # As the garbage collector does, which runs in any thread.
    iterator = iter(made("bcolz"))
    read, ended = RaggedEngine.read, threading.Event()

    def ending(engine: RaggedEngine, rows: Any, **given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            assert handed_out.wait(60)
            iterator.close()  # type: ignore[attr-defined]
            ended.set()
        return read(engine, rows, **given)

    handed_out = threading.Event()
    monkeypatch.setattr(RaggedEngine, "read", ending)
    assert next(iterator) == "word 0"
    handed_out.set()
    assert ended.wait(60)
    assert next(iterator, "end") == "end"


def test_where_no_thread_can_be_started_items_come_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(read_ahead._BlockAhead, "start", refuse)
    assert list(made("varlen")) == WORDS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    iterator = iter(made("bcolz", LocalStore(tmp_path, writable=True)))
    forked, waiting = threading.Event(), threading.Event()
    read, parent = RaggedEngine.read, os.getpid()

    def held(engine: RaggedEngine, rows: Any, **given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and os.getpid() == parent:
            waiting.set()
            assert forked.wait(60)
        return read(engine, rows, **given)

    monkeypatch.setattr(RaggedEngine, "read", held)
    first = next(iterator)
    assert waiting.wait(60)
    # The thread that reads the next block exists in the parent only.
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if [first, *iterator] == WORDS else 1)
    forked.set()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [first, *iterator] == WORDS


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_ctrl_c_ends_the_wait_for_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    items, going = made("bcolz"), threading.Event()
    read = RaggedEngine.read

    def slow(engine: RaggedEngine, rows: Any, **given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and not going.is_set():
            going.set()
            threading.Event().wait(0.3)
        return read(engine, rows, **given)

    monkeypatch.setattr(RaggedEngine, "read", slow)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        iterator = iter(items)
        next(iterator)
        assert going.wait(60)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            list(iterator)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ahead() == []
    assert list(items) == WORDS
