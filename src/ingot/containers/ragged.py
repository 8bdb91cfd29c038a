"""Variable-length items as a user sees them: text, bytes, rows and JSON values by their numbers."""

import operator
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Stage
from ingot.containers import sharding
from ingot.containers.attributes import Attributes
from ingot.containers.dataset import Dataset, Mode
from ingot.containers.display import Info, ragged_info
from ingot.containers.handle import Handle, HandleProtocol, PartHandle, TransactionalHandle
from ingot.containers.ingest import fitted_values, item_blocks, items_of, of_listed, spread
from ingot.containers.read_ahead import blocks_ahead
from ingot.containers.table_state import numbered
from ingot.dtypes import DType
from ingot.engine import ragged
from ingot.engine.explain import Explanation
from ingot.engine.ragged import RaggedEngine
from ingot.engine.run import Engine
from ingot.errors import ArgumentError, FormatError, SelectionError, UnsupportedError
from ingot.formats.chunk_items import ChunkItemsMap
from ingot.formats.format import Documents, Format, RaggedNode, compactable_ragged, is_current
from ingot.interop import arrow
from ingot.options import Options
from ingot.ragged_array import ItemKind, RaggedArray
from ingot.selection import evaluated
from ingot.stores.store import Commit, Store
from ingot.stores.versions import NO_VERSION

__all__ = ["Ragged", "of_array", "ragged_handle"]

# Counting the packs of more takes too long for a display.
_MOST_COUNTED: Final = 10_000


class Ragged(Dataset[RaggedEngine]):
    """Items of variable length: text, bytes, rows of numbers, or JSON values.

    Made by `ingot.ragged` and `ingot.open`, or a column of a table whose format holds such items. A
    missing item is None. Slices, index arrays and masks give arrays: of NumPy's strings for text,
    of objects for bytes, rows of numbers and JSON. Every call that changes items has stored the
    change when it returns. The rows of a column are added and removed by its table.

    >>> import ingot
    >>> words = ingot.ragged(["ape", None, "bee"])
    >>> words[2], words[-2], words[::-2]
    ('bee', None, array(['bee', 'ape'], dtype=StringDType(na_object=None)))
    >>> words.append(["cat"])
    >>> words[1] = "ant"
    >>> list(words)
    ['ape', 'ant', 'bee', 'cat']
    """

    __slots__ = ()

    _WORD = "items"

    @property
    def kind(self) -> str | DType:
        """What an item is: "utf8", "bytes", "json", or the type of the numbers of a row."""
        kind = self._kind
        return kind.name if kind.item is None else kind.item

    @property
    def dtype(self) -> DType:
        """The type of an array of the items: text that may be None, or objects."""
        return self._kind.dtype

    @property
    def shape(self) -> tuple[int]:
        """The number of items, as the only axis."""
        return self._handle.value.shape

    @property
    def stored_bytes(self) -> int:
        """The bytes of all stored packs, counted where they are stored."""
        return self._handle.read(RaggedEngine.stored_bytes)

    @property
    def dead_bytes(self) -> int:
        """The bytes that changes have left behind; `compact` removes them."""
        found = compactable_ragged(self._handle.value.packs)
        return 0 if found is None else found.free_bytes().dead

    @property
    def codec(self) -> tuple[Stage, ...]:
        """The codecs of the bytes of items, in the order of encoding."""
        return self._handle.value.packs.schema.codec.stages

    @property
    def attrs(self) -> Attributes:
        """Names and values that describe the items; setting one stores it."""
        return Attributes(lambda: self._handle.value.packs.schema.attrs, self._describing)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            return self._handle.read(lambda engine: engine.read(_one(key, engine.shape[0]))[0])
        return self._handle.read(lambda engine: engine.read_array(numbered(key, engine.shape[0])))

    def read(self, key: Any = ...) -> Any:
        """Return what ``items[key]`` does: text as NumPy's strings, other items as objects.

        >>> import ingot
        >>> ingot.ragged([[1, 2], [3]]).read(slice(1, None))
        array([array([3])], dtype=object)
        """
        return self[key]

    def items(self, key: Any = ...) -> RaggedArray:
        """Return items in buffers: no Python object is made for an item."""
        return self._handle.read(lambda engine: engine.read(numbered(key, engine.shape[0])))

    def __iter__(self) -> Iterator[Any]:
        """Yield the items; the next packs are read and decoded while those of a block are used."""
        with closing(blocks_ahead(self._handle)) as blocks:
            for block in blocks:
                yield from block.to_list()

    def explain(self, key: Any = ...) -> Explanation:
        """Return what reading ``items[key]`` costs, pack by pack, as a text to print."""
        return self._handle.read(
            lambda engine: engine.explain(numbered(_range(key), engine.shape[0]))
        )

    def shard(self, count: int, path: sharding.Target) -> None:
        """Cut the items by rows into `count` datasets at `path`, which open as one again.

        Each is a dataset of the same format, bcolz or blsk, in a folder of its own.

        >>> import ingot
        >>> from ingot.stores import MemoryStore
        >>> shards = MemoryStore()
        >>> ingot.ragged(["ape", "bee", "cat"], format="blsk").shard(2, shards)
        >>> list(shards.names()), list(ingot.open(shards))
        (['shard-00000/', 'shard-00001/', 'shards.json'], ['ape', 'bee', 'cat'])
        """
        if isinstance(self._handle, PartHandle):
            raise UnsupportedError(
                "items that are part of another dataset are cut into shards with it"
            )
        with self.snapshot():
            engine = self._handle.value
            node = RaggedNode(engine.packs)
            sharding.split(self._format, node, count, path, engine.options)

    def to_numpy(self) -> NDArray[Any]:
        """Return all items as an array."""
        return self.items().to_numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ArgumentError("an ingot.Ragged becomes a NumPy array only by a copy")
        values = self.to_numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def to_arrow(self) -> Any:
        """Return all items as an array of pyarrow."""
        return arrow.array(self.items())

    def __setitem__(self, key: Any, values: Any) -> None:
        handle, rows = self._writable(), evaluated(key)
        kind = self._kind
        single = isinstance(rows, int | np.integer) and not isinstance(rows, bool)

        def fitted(kind: ItemKind) -> Any:
            if single:
                return of_listed([values], kind)
            return fitted_values({"items": values}, {"items": kind})["items"]

        given = fitted(kind)
        with handle.writing() as turn:
            engine = turn.value
            if engine.packs.schema.kind != kind:
                kind = engine.packs.schema.kind
                given = fitted(kind)
            count = engine.shape[0]
            found = _one(rows, count) if single else numbered(rows, count)
            items = spread(given, len(found), kind, "items")
            assert isinstance(items, RaggedArray)
            if len(found):
                turn.commit(*ragged.assigned(engine, found, items))
            else:
                turn.commit(engine, Commit())

    def append(self, items: object) -> None:
        """Add items at the end, in one commit.

        They are a list, any iterable, an array of pyarrow or NumPy, a pandas Series, or a `Ragged`.
        Those of an iterator are encoded as they come, and are never in memory all at once.

        >>> import ingot
        >>> words = ingot.ragged(["a"])
        >>> words.append(letter * 2 for letter in "bc")
        >>> len(words), words[-1]
        (3, 'cc')
        """
        handle = self._writable()
        before = handle.recent()
        kind = before.packs.schema.kind
        if isinstance(items, Iterator):
            # What may take long, or have no end, comes before the lock is taken.
            stream = ragged.streamed(before, item_blocks(items, kind))
            with handle.writing() as turn:
                turn.commit(*ragged.extended(turn.value, stream))
            return
        given = items_of(items, kind)
        with handle.writing() as turn:
            engine = turn.value
            turn.commit(*ragged.appended(engine, given.cast(engine.packs.schema.kind)))

    def extend(self, items: object) -> None:
        """Add items at the end, as `append` does."""
        self.append(items)

    def delete(self, key: Any) -> int:
        """Remove items, and return how many; those behind them move up.

        >>> import ingot
        >>> words = ingot.ragged(["a", "b", "c", "d"])
        >>> words.delete([0, 2]), list(words)
        (2, ['b', 'd'])
        """
        handle, rows = self._writable(), evaluated(key)
        with handle.writing() as turn:
            engine = turn.value
            found = np.unique(np.asarray(numbered(_range(rows), engine.shape[0]), np.int64))
            turn.commit(*ragged.deleted(engine, found))
            return len(found)

    def resize(self, length: int) -> None:
        """Change the number of items; new ones are None."""
        wanted = operator.index(length)
        if wanted < 0:
            raise ArgumentError(f"length is {wanted}, not a number from 0 on")
        with self._writable().writing() as turn:
            turn.commit(*ragged.resized(turn.value, wanted))

    def compact(self) -> None:
        """Store the items again without the bytes that changes have left behind.

        That is done by itself when they are more than half of what is stored.
        """
        with self._writable().writing() as turn:
            turn.commit(*ragged.compacted(turn.value))

    @property
    def info(self) -> Info:
        """The properties of the items, as a table to print."""
        return self._info(counted=True)

    def _repr_html_(self) -> str:
        counted = self._handle.value.pack_count <= _MOST_COUNTED
        return self._info(counted=counted)._repr_html_()

    def _info(self, *, counted: bool) -> Info:
        engine = self._handle.value
        stored = self.stored_bytes if counted else None
        return ragged_info(
            engine.packs.schema,
            engine.pack_count,
            self.format,
            self._path,
            self._mode,
            stored,
            self.dead_bytes,
            self._unfinished,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._handle, PartHandle):
            raise UnsupportedError("items that are part of another dataset are pickled with it")
        engine = self._handle.value
        place = self._handle.store, engine.packs.path
        return _reopened, (self._format, *place, self._path, self._mode, engine.options)

    def __repr__(self) -> str:
        try:
            schema = self._handle.value.packs.schema
        except ValueError:
            return "<ingot.Ragged, closed>"
        kind = f"{schema.length} {schema.kind}"
        return f"<ingot.Ragged of {kind}; {self.format} {self._where}, {self._mode}>"

    @property
    def _kind(self) -> ItemKind:
        return self._handle.value.packs.schema.kind

    @contextmanager
    def _describing(self) -> Iterator[dict[str, Any]]:
        with self._writable().writing() as turn:
            attrs = dict(turn.value.packs.schema.attrs)
            yield attrs
            turn.commit(*ragged.described(turn.value, attrs))


def of_array(format: Format, handle: HandleProtocol[Engine], *, path: str | None) -> Ragged:
    """Return the items of an array as a sequence, which is only read."""

    @lru_cache(maxsize=1)  # Items that were read ahead are known by their engine.
    def find(engine: Engine) -> RaggedEngine:
        return RaggedEngine(ChunkItemsMap.of(engine.chunks), engine.options)

    def put(engine: Engine, items: RaggedEngine, commit: Commit) -> tuple[Engine, Commit]:
        raise UnsupportedError("items of an array are only read; change the array")

    found: Ragged = Ragged(format, PartHandle(handle, find, put), path=path, mode="r")
    # An array of other items is refused now, not at the first read.
    len(found)
    return found


def ragged_handle(
    format: Format,
    store: Store,
    inner: str,
    options: Options,
    first: tuple[RaggedEngine | None, int | None] = (None, NO_VERSION),
) -> HandleProtocol[RaggedEngine]:
    """Return a handle of the items at `inner` of a store."""

    def load(view: Store) -> RaggedEngine:
        node = format.open(view, inner)
        if not isinstance(node, RaggedNode):
            raise FormatError(f"{store.location}: no longer variable-length items")
        return RaggedEngine(node.packs, options)

    handle = Handle(
        store,
        load,
        documents=_documents,
        is_current=_is_current,
        durability=options.durability,
        first=first,
    )
    return TransactionalHandle(handle, load)


def _documents(engine: RaggedEngine) -> Documents:
    return engine.packs.documents


def _is_current(engine: RaggedEngine, store: Store) -> bool:
    return is_current(engine.packs, store)


def _reopened(
    format: Format, store: Store, inner: str, path: str | None, mode: Mode, options: Options
) -> Ragged:
    return Ragged(format, ragged_handle(format, store, inner, options), path=path, mode=mode)


def _range(key: Any) -> Any:
    """Return a key of one item as one of a range."""
    single = isinstance(key, int | np.integer) and not isinstance(key, bool)
    return [key] if single else key


def _one(key: Any, count: int) -> range:
    """Return the number of one item as a range."""
    if not -count <= key < count:
        raise SelectionError(f"item {key} of {count} items")
    number = int(key) % count
    return range(number, number + 1)
