"""The array: reading and writing by NumPy's rules, on stored chunks.

The engine carries out selections, the format locates chunks, and the handle knows the committed
state; this module is what a user calls.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot._lazy import deferred
from ingot.codecs.codec import Stage
from ingot.containers import reductions
from ingot.containers.assigned import AssignedItems
from ingot.containers.attributes import Attributes
from ingot.containers.dataset import Dataset, Mode
from ingot.containers.display import Info, array_info
from ingot.containers.handle import (
    Handle,
    HandleProtocol,
    HandleTurn,
    TransactionalHandle,
)
from ingot.containers.member import MemberHandle
from ingot.containers.reductions import Axis, Out, Source
from ingot.dtypes import DType
from ingot.engine import changes, kernel_commit
from ingot.engine.changes import appended, items_of
from ingot.engine.explain import Explanation
from ingot.engine.kernel_commit import EngineCommit
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.engine.sparse import MANY
from ingot.engine.stored_size import stored_bytes
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    IngotError,
    NotFoundError,
    SelectionError,
)
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    Documents,
    Format,
    as_sharded,
    compactable,
    has_typed_attributes,
    is_current,
    manifested,
)
from ingot.grid import BLOCK_BYTES, ChunkGrid, block_rows, block_shape, blocks
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import BasicSelection, Selection, parse, parse_orthogonal
from ingot.signals import Deferred
from ingot.stores.store import Feature, Store
from ingot.stores.versions import NO_VERSION, read_versioned

if TYPE_CHECKING:
    import uuid

    from ingot.containers import device_blocks, ragged, sharding
    from ingot.containers import survey as surveys
    from ingot.device.device import Device
    from ingot.engine import device as devices
    from ingot.interop import cupy, matplotlib, pandas
else:
    uuid = deferred("uuid")
    ragged = deferred("ingot.containers.ragged")
    sharding = deferred("ingot.containers.sharding")
    surveys = deferred("ingot.containers.survey")
    device_blocks = deferred("ingot.containers.device_blocks")
    devices = deferred("ingot.engine.device")
    cupy = deferred("ingot.interop.cupy")
    matplotlib = deferred("ingot.interop.matplotlib")
    pandas = deferred("ingot.interop.pandas")

__all__ = ["Array", "OrthogonalIndex", "array_handle"]


class OrthogonalIndex:
    """An array with keys that select along every axis on its own; see `Array.oindex`.

    >>> import ingot
    >>> array = ingot.create(shape=(3, 3), dtype="i8")
    >>> array.oindex[[0, 2], [0, 2]] = 1
    >>> array[...]
    array([[1, 0, 1], [0, 0, 0], [1, 0, 1]])
    """

    __slots__ = ("_assign", "_read")

    def __init__(self, read: Callable[[Any], Any], assign: Callable[[Any, object], None]) -> None:
        self._read = read
        self._assign = assign

    def __getitem__(self, key: Any) -> Any:
        return self._read(key)

    def __setitem__(self, key: Any, value: object) -> None:
        self._assign(key, value)


# Listing the chunks of a larger grid takes too long for a display.
_MOST_COUNTED: Final = 10_000
# Above this many bytes, chunks that are not stored are left out of a reduction.
_MUCH: Final = 64 << 20
# So many items of a transaction are kept before they are stored together.
_MOST_PENDING: Final = 1 << 16
# Values that a comparison with an array would compare with its items.
_COMPARED: Final = (int, float, complex, str, bytes, list, tuple, np.generic, np.ndarray)


_ELSEWHERE: Final = {
    **{name: f"array[...].{name}" for name in ("T", "copy", "flatten", "ravel", "reshape")},
    **{name: f"array[...].{name}" for name in ("round", "sort", "tolist", "transpose")},
    **dict.fromkeys(("compression", "compressor", "compressors", "cparams", "filters"), "codec"),
    **dict.fromkeys(("get_basic_selection", "get_mask_selection", "islice", "iter"), "array[key]"),
    **dict.fromkeys(("get_coordinate_selection", "vindex"), "array[[1, 2], [3, 4]]"),
    **dict.fromkeys(("set_basic_selection", "set_mask_selection"), "array[key] = values"),
    **dict.fromkeys(("maxshape", "trim"), "resize, which may always be called"),
    "cbytes": "stored_bytes",
    "chunklen": "chunks",
    "get_orthogonal_selection": "oindex",
    "nbytes_stored": "stored_bytes",
    "read_direct": "read",
    "rootdir": "path",
    "set_coordinate_selection": "array[[1, 2], [3, 4]] = values",
    "set_orthogonal_selection": "oindex",
}


class Array(Dataset[Engine]):
    """A NumPy-like array that is stored in compressed chunks.

    Made by `ingot.open`, `ingot.create` and `ingot.array`. Reading gives NumPy arrays, by NumPy's
    rules of indexing; every call that changes the array has stored the change when it returns. An
    array may be used from several threads, and as a context manager. Arrays are equal when they are
    the same object; ``array[...] == 5`` compares items, and ``array == 5`` is a `TypeError`.

    >>> import numpy as np
    >>> import ingot
    >>> array = ingot.create(shape=(4, 6), dtype="i4", chunks=(2, 4))
    >>> array[1:3, ::2] = [1, 2, 3]
    >>> array[2], array[1, 2]
    (array([1, 0, 2, 0, 3, 0], dtype=int32), np.int32(2))
    >>> array
    <ingot.Array (4, 6) int32, zarr3 in memory, r+>
    """

    __slots__ = ()

    _WORD = "array"
    _ELSEWHERE = _ELSEWHERE

    # What it is ----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._schema.shape

    @property
    def dtype(self) -> DType:
        """The type of the items."""
        return self._schema.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._schema.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self._schema.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all items, uncompressed, without the content of objects and text."""
        return self._schema.nbytes

    @property
    def stored_bytes(self) -> int:
        """The bytes of all stored chunks, counted where they are stored."""
        return stored_bytes(self._chunks)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        return self._schema.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of a shard, which holds many chunks in one file; None without shards.

        >>> import ingot
        >>> ingot.create(shape=100, dtype="i4", chunks=5, shards=20).shards
        (20,)
        """
        sharded = as_sharded(self._chunks)
        return None if sharded is None else sharded.shards.schema.chunks

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of structured items; ``array[name]`` reads one field.

        >>> import numpy as np
        >>> import ingot
        >>> points = np.array([(1, 0.5), (2, 1.5)], [("x", "i4"), ("y", "f8")])
        >>> array = ingot.array(points)
        >>> array.fields, array["y"], array["x", 1:]
        (('x', 'y'), array([0.5, 1.5]), array([2], dtype=int32))
        """
        return self.dtype.names or ()

    @property
    def codec(self) -> tuple[Stage, ...]:
        """The codecs of a chunk, in the order of encoding; `ingot.create` accepts them."""
        return self._schema.codec

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """The names of the axes; None where they have none, or the format stores none.

        >>> import ingot
        >>> ingot.create(shape=(3, 4), dtype="f8", dimension_names=["time", None]).dimension_names
        ('time', None)
        """
        return self._schema.dimension_names

    @property
    def fill(self) -> Any:
        """The item of cells that were never written."""
        return self._schema.fill

    @property
    def fill_value(self) -> Any:
        """The item of cells that were never written, as `fill`."""
        return self._schema.fill

    @property
    def fill_stated(self) -> bool:
        """Whether the dataset states its fill value; Zarr version 2 may have null in its place.

        >>> import ingot
        >>> ingot.create(shape=3, dtype="f8", fill=7, format="zarr2").fill_stated
        True
        """
        return self._schema.fill_stated

    @property
    def itemsize(self) -> int:
        """The bytes of an item, uncompressed."""
        return self._schema.dtype.itemsize

    @property
    def order(self) -> str:
        """The order of the items of a chunk: "C" or "F"."""
        return self._schema.order

    @property
    def nchunks(self) -> int:
        """The number of chunks that the shape is cut into, stored or not."""
        return self._schema.chunk_count

    @property
    def cratio(self) -> float:
        """How many times smaller the stored chunks are than the items.

        >>> import ingot
        >>> array = ingot.array([0] * 1000, codec="zlib:9")
        >>> array.cratio > 10, array.nchunks, array.itemsize, array.order
        (True, 1, 8, 'C')
        """
        stored = self.stored_bytes
        return self.nbytes / stored if stored else math.inf

    @property
    def attrs(self) -> Attributes:
        """Names and values that describe the array; setting one stores it.

        >>> import ingot
        >>> array = ingot.create(shape=3, dtype="f8", attrs={"units": "m"})
        >>> array.attrs["scale"] = 0.5
        >>> dict(array.attrs)
        {'units': 'm', 'scale': 0.5}
        """
        return Attributes(
            lambda: self._schema.attrs,
            self._describing,
            typed=has_typed_attributes(self._format),
        )

    # Reading -------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return self._handle.read(lambda engine: _field(engine, key, ()))
        if type(key) is tuple and key and type(key[0]) is str:
            return self._handle.read(lambda engine: _field(engine, key[0], key[1:]))
        return self._handle.read(
            lambda engine: engine.read(parse(key, engine.shape)),
            lambda engine: engine.result_bytes(parse(key, engine.shape)),
        )

    def read(self, key: Any = ..., *, out: Any = None, device: "str | Device | None" = None) -> Any:
        """Return what ``array[key]`` does, or fill `out`, which has its shape and type.

        With a `device`, such as "cuda" or "cuda:1", the result is an array of CuPy there, and so is
        `out`; see ``docs/gpu.md``. Its items are in the byte order of the machine.

        >>> import numpy as np
        >>> import ingot
        >>> row = np.empty(3, "i8")
        >>> _ = ingot.array([[1, 2, 3], [4, 5, 6]]).read(1, out=row)
        >>> row
        array([4, 5, 6])
        """
        if device is not None:
            onto = cupy.find(device) if isinstance(device, str) else device
            return self._read_onto(onto, key, out)
        if out is None:
            return self[key]
        self._handle.read(lambda engine: engine.read_into(parse(key, engine.shape), out))
        return out

    def _read_onto(self, device: "Device", key: Any, out: Any) -> Any:
        """Read onto a device, into `out` if that is given."""
        return self._handle.read(lambda engine: devices.read(engine, device, key, out))

    @property
    def oindex(self) -> OrthogonalIndex:
        """The same array with keys that select along every axis on its own.

        >>> import ingot
        >>> array = ingot.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        >>> array.oindex[[0, 2], [0, 1]]
        array([[1, 2], [7, 8]])
        """
        return OrthogonalIndex(
            lambda key: self._handle.read(lambda now: now.read(parse_orthogonal(key, now.shape))),
            lambda key, value: self._assign(lambda shape: parse_orthogonal(key, shape), value),
        )

    def to_numpy(self) -> NDArray[Any]:
        """Return the whole array as a NumPy array.

        >>> import ingot
        >>> ingot.array([1, 2, 3]).to_numpy()
        array([1, 2, 3])
        """
        return cast(NDArray[Any], self[...])

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return the whole array as a NumPy array of another type.

        >>> import ingot
        >>> ingot.array([1, 2]).astype("f4")
        array([1., 2.], dtype=float32)
        """
        try:
            wanted = np.dtype(dtype)
        except TypeError:
            raise ArgumentTypeError(f"dtype is {dtype!r}, which is no type of NumPy") from None
        try:
            return cast(NDArray[Any], self[...].astype(wanted))
        except (TypeError, ValueError) as error:
            if isinstance(error, IngotError):
                raise
            raise ArgumentError(f"{self.dtype} does not become {wanted}: {error}") from error

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ArgumentError("an ingot.Array becomes a NumPy array only by a copy")
        if self.dtype.names is not None:
            pandas.refuse_constructor(sys._getframe(1), "pandas.DataFrame(array[...])")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        shape = self._schema.shape
        if not shape:
            raise ArgumentTypeError("len() of an array without axes")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        schema = self._schema
        if not schema.shape:
            raise ArgumentTypeError("iteration over an array without axes")
        rows = block_rows(schema.grid, schema.dtype.itemsize)
        starts = range(0, schema.shape[0], rows)
        return (item for start in starts for item in self[start : start + rows])

    def blocks(
        self, nbytes: int = BLOCK_BYTES, *, device: "str | Device | None" = None
    ) -> Iterator[tuple[tuple[slice, ...], Any]]:
        """Yield the array piece by piece: keys, and what they select, in the order of the array.

        A block is made of whole chunks and has at most `nbytes` bytes, or one chunk. Each is of
        the state at its time; inside a `snapshot` all are of the same state. Onto a `device`, the
        next block is read while the caller works with the one before, in a thread; not inside a
        transaction.

        >>> import ingot
        >>> array = ingot.array([1, 2, 3, 4, 5], chunks=2)
        >>> for key, block in array.blocks(nbytes=16):
        ...     array[key] = block * 10
        >>> array[...]
        array([10, 20, 30, 40, 50])
        """
        schema = self._schema
        if not isinstance(nbytes, int | np.integer):
            raise ArgumentTypeError(f"nbytes is {nbytes!r}, not a whole number")
        step = block_shape(schema.grid, schema.dtype.itemsize, most=int(nbytes))
        keys = blocks(schema.shape, step)
        if device is None:
            return ((key, self[(*key, ...)]) for key in keys)
        onto = cupy.find(device) if isinstance(device, str) else device

        def read(key: tuple[slice, ...]) -> Any:
            return self._read_onto(onto, (*key, ...), None)

        if self._handle.is_inside():
            # Another thread would not see what the transaction has changed.
            return ((key, read(key)) for key in keys)
        return device_blocks.read_each(keys, read)

    def explain(self, key: Any = ...) -> Explanation:
        """Return what reading ``array[key]`` costs, without reading it, as a text to print.

        >>> import ingot
        >>> print(ingot.array([1, 2, 3, 4, 5], chunks=2, codec="none").explain(slice(1, 3)))
        16 bytes [2] by the ... kernel, ...
        2 chunks, 0 constant; 0 of 0 blocks; 40 bytes to read of 40 in 2 files
        chunk  key  items  blocks  read  stored
        (0,)   c/0  1              20    20
        (1,)   c/1  1              20    20
        """
        return self._handle.read(lambda engine: engine.explain(parse(key, engine.shape)))

    def survey(self, *, read: bool = False) -> "surveys.ArraySurvey":
        """Return what is stored for each chunk: state, sizes, file, place and codec.

        `read` decodes every chunk as well, which finds the smallest and the largest item of each,
        and damage.

        >>> import ingot
        >>> array = ingot.array([1, 2, 3, 4, 5], chunks=2)
        >>> found = array.survey(read=True)
        >>> found.smallest, found.largest
        (('1', '3', '5'), ('2', '4', '5'))
        """
        return self._handle.read(lambda engine: surveys.survey(engine, read=read))

    def plot_chunks(self, axes: Any = None) -> Any:
        """Draw the chunks coloured by their ratio, and return the axes; needs matplotlib."""
        found = self.survey()
        return matplotlib.draw_chunks(found.counts, found.ratio, repr(self), axes)

    def shard(self, count: int, path: "sharding.Target") -> None:
        """Cut the array by rows into `count` datasets at `path`, which open as one again.

        Each is an array of the same format, bcolz or blsk, in a folder of its own.

        >>> import ingot
        >>> from ingot.stores import MemoryStore
        >>> shards = MemoryStore()
        >>> ingot.array([1, 2, 3, 4, 5], format="bcolz", chunks=2).shard(2, shards)
        >>> list(shards.names()), ingot.open(shards)[1:4]
        (['shard-00000/', 'shard-00001/', 'shards.json'], array([2, 3, 4]))
        """
        with self.snapshot():
            engine = self._handle.value
            node = ArrayNode(engine.chunks)
            sharding.split(self._format, node, count, path, engine.options)

    def ragged(self) -> "ragged.Ragged":
        """Return an array of text, bytes or rows of several lengths as an `ingot.Ragged`.

        The array has one axis, and one of the layouts ``vlen-utf8``, ``vlen-bytes`` and
        ``vlen-array`` of Zarr. Items are read without a Python object for each, and follow the
        changes of the array; they are only read.

        >>> import numpy as np
        >>> import ingot
        >>> array = ingot.array(np.array(["ape", "bee"], "T"), format="zarr3")
        >>> words = array.ragged()
        >>> words.kind, list(words), words.to_arrow().type
        ('utf8', ['ape', 'bee'], DataType(large_string))
        """
        return ragged.of_array(self._format, self._handle, path=self._path)

    # Changing ------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: object) -> None:
        # The shortest way for many items of a transaction; whatever is unusual takes the other.
        pending = self._handle.pending_now(self._store_pending)
        if pending is None or not pending.put_plain(key, value):
            self._assign(lambda shape: parse(key, shape), value)

    def append(self, values: object, axis: int = 0) -> None:
        """Add items at the end of an axis; all other axes must agree.

        The items are stored first and the new length last, so that a reader has all or none.

        >>> import ingot
        >>> array = ingot.array([[1, 2], [3, 4]])
        >>> array.append([[5, 6]])
        >>> array[...]
        array([[1, 2], [3, 4], [5, 6]])
        """
        handle = self._writable()
        engine = handle.recent()
        before = engine.chunks.schema
        items = items_of(values, before, axis)
        if self._committed(engine, lambda now: kernel_commit.growth(now, items, axis)):
            return
        with handle.writing() as turn:
            schema = turn.value.chunks.schema
            same = schema.dtype == before.dtype and schema.shape[1:] == before.shape[1:]
            given = items if same else values
            growth = appended(given, schema, axis)
            turn.commit(*changes.grown(turn.value, growth.shape, growth.selection, growth.values))

    def resize(self, shape: int | Sequence[int]) -> None:
        """Change the length of axes; new cells hold the fill value.

        >>> import ingot
        >>> array = ingot.array([1, 2, 3], chunks=2)
        >>> array.resize(2)
        >>> array.resize(5)
        >>> array[...]
        array([1, 2, 0, 0, 0])
        """
        wanted = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        with self._writable().writing() as turn:
            schema = turn.value.chunks.schema
            lengths = ChunkGrid(wanted, schema.chunks, schema.padded).shape
            turn.commit(*changes.resized(turn.value, lengths))

    def _assign(self, select: Callable[[tuple[int, ...]], Selection], value: object) -> None:
        handle = self._writable()
        engine, selection, whole = self._selected(select)
        dtype = engine.chunks.schema.dtype
        items = changes.evaluated(value, dtype)

        def assigned(now: Engine) -> changes.ArrayChange:
            given = items if now.chunks.schema.dtype == dtype else value
            place = selection if now.shape == engine.shape else select(now.shape)
            return changes.assigned(now, place, given)

        if self._keep_pending(engine, selection, items):
            return
        if self._committed(engine, lambda now: kernel_commit.change(now, selection, items, whole)):
            return
        if whole:
            self._replace(engine, selection, items, assigned)
        else:
            with handle.writing() as turn:
                turn.commit(*assigned(turn.value))

    def _committed(
        self, engine: Engine, change_of: Callable[[Engine], EngineCommit | None]
    ) -> bool:
        """Have the kernel commit a change of the state at hand; return whether it could.

        Where another array of a group has changed meanwhile, the state at hand is that of an
        earlier version, and the change is made of the one that is committed.
        """
        change = change_of(engine)
        if change is None:
            return False
        if self._handle.switch(engine, change, change.following):
            return True
        try:
            now = self._handle.value
        except (IngotError, OSError):
            return False  # A turn says what is wrong.
        if now is engine or (now.shape, now.dtype) != (engine.shape, engine.dtype):
            return False
        change = change_of(now)
        return change is not None and self._handle.switch(now, change, change.following)

    def _keep_pending(self, engine: Engine, selection: Selection, items: Any) -> bool:
        """Keep one item that is assigned in a transaction, to be stored together with others.

        Return False for other assignments, and where the value does not fit: storing it says why.
        """
        if not self._handle.is_inside() or not isinstance(items, np.ndarray):
            return False
        if type(selection) is not BasicSelection or set(selection.counts) != {1}:
            return False
        try:
            item = selection.prepare(items, engine.dtype)
        except (IngotError, TypeError, ValueError):
            return False
        most = min(_MOST_PENDING, engine.options.limits.commit_chunks)
        pending = self._handle.pending(
            self._store_pending, lambda: AssignedItems(engine.shape, engine.dtype, most)
        )
        if pending is None:
            return False
        pending.put(selection.starts, item)
        return True

    def _store_pending(self, turn: HandleTurn[Engine], pending: AssignedItems) -> None:
        """Store items that a transaction has kept."""
        places, values = pending.take()
        turn.commit(*changes.assigned(turn.value, parse(places, turn.value.shape), values))

    def _replace(
        self,
        engine: Engine,
        selection: Selection,
        items: Any,
        assigned: Callable[[Engine], changes.ArrayChange],
    ) -> None:
        """Assign to whole chunks, which are encoded before the lock is taken."""
        handle = self._handle
        # Ctrl-C ends native calls only, so that nothing that was staged is lost sight of.
        with Deferred():
            # Whole chunks are replaced, so they are encoded before the lock is taken.
            # A state that is read through a journal is not written to: the turn replays it first.
            ahead = Feature.WRITE in engine.chunks.store.features and not engine.erases(
                selection, items
            )
            encoded = engine.assign(selection, items) if ahead else None
            try:
                with handle.writing() as turn:
                    if encoded is not None and turn.value is engine:
                        commit, encoded = encoded, None
                        turn.commit(*changes.change_of(engine.committed(), commit))
                    else:
                        if encoded is not None:
                            # What is staged by this process keeps the turn from sweeping.
                            unused, encoded = encoded, None
                            engine.discard(unused)
                        turn.commit(*assigned(turn.value))
            except NotFoundError:
                # A writer that cleaned up after a dead one has removed the staged files.
                with handle.writing() as turn:
                    turn.commit(*assigned(turn.value))
            finally:
                if encoded is not None:  # The lock was not taken.
                    engine.discard(encoded)

    def _selected(
        self, select: Callable[[tuple[int, ...]], Selection]
    ) -> tuple[Engine, Selection, bool]:
        """Return an engine, a selection to be assigned to, and whether it is of whole chunks.

        Where it is not, both are of the state at hand: the turn compares it with the committed one.
        """
        engine = self._handle.recent()
        try:
            selection = select(engine.shape)
            if not engine.replaces(selection):
                return engine, selection, False
        except Exception:  # The committed state decides whether it is an error.
            pass
        # A key that does not fit a state that another program has changed is parsed again.
        engine, selection = self._handle.read(lambda now: (now, select(now.shape)))
        return engine, selection, engine.replaces(selection)

    def compact(self) -> None:
        """Write files that have dead bytes anew; only blsk has them. It is one commit.

        A change of a chunk leaves the bytes of the old one behind, until another chunk takes their
        place.

        >>> import ingot
        >>> array = ingot.array([3, 1, 2], format="blsk")
        >>> array[0] = 1000
        >>> array.compact()
        >>> array[...]
        array([1000,    1,    2])
        """
        with self._writable().writing() as turn:
            turn.commit(*changes.compacted(turn.value))

    @contextmanager
    def _describing(self) -> Iterator[dict[str, Any]]:
        with self._writable().writing() as turn:
            attrs = dict(turn.value.chunks.schema.attrs)
            yield attrs
            turn.commit(*changes.described(turn.value, attrs))

    # Reducing ------------------------------------------------------------------------------------
    # The signatures are those of NumPy's own methods: np.sum(array) calls array.sum.

    def sum(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Out = None,
        keepdims: bool = False,
    ) -> Any:
        """Add up the items, block by block, in the type that NumPy gives the sum.

        Integers are exact. Floats may differ from NumPy in the last bits: they are added in
        another order, and those of up to 32 bits in 64 bits.

        >>> import ingot
        >>> ingot.array([[1, 2], [3, 4]]).sum(axis=0)
        array([4, 6])
        """
        return self._reduced(reductions.total, axis, dtype, out, keepdims)

    def mean(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Out = None,
        keepdims: bool = False,
    ) -> Any:
        """Average the items, block by block; see `sum` for how exact that is.

        >>> import ingot
        >>> ingot.array([1, 2]).mean()
        np.float64(1.5)
        """
        return self._reduced(reductions.mean, axis, dtype, out, keepdims)

    def prod(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Out = None,
        keepdims: bool = False,
    ) -> Any:
        """Multiply the items, block by block, in the type that NumPy gives the product.

        >>> import ingot
        >>> ingot.array([[1, 2], [3, 4]]).prod(axis=0)
        array([3, 8])
        """
        return self._reduced(reductions.product, axis, dtype, out, keepdims)

    def var(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Out = None,
        ddof: float = 0,
        keepdims: bool = False,
    ) -> Any:
        """Return the variance of the items, block by block, in two passes over the array.

        >>> import ingot
        >>> ingot.array([1, 2, 3, 4]).var()
        np.float64(1.25)
        """
        return self._reduced(reductions.variance, axis, dtype, out, ddof, keepdims)

    def std(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Out = None,
        ddof: float = 0,
        keepdims: bool = False,
    ) -> Any:
        """Return the standard deviation of the items, block by block, in two passes.

        >>> import ingot
        >>> ingot.array([1.0, 3.0]).std()
        np.float64(1.0)
        """
        return self._reduced(reductions.deviation, axis, dtype, out, ddof, keepdims)

    def min(self, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Any:
        """Find the smallest item, block by block.

        >>> import ingot
        >>> ingot.array([[1, 2], [4, 3]]).min(axis=1)
        array([1, 3])
        """
        return self._reduced(reductions.reduce, reductions.MIN, axis, out, keepdims)

    def max(self, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Any:
        """Find the largest item, block by block.

        >>> import ingot
        >>> ingot.array([1, 2]).max()
        np.int64(2)
        """
        return self._reduced(reductions.reduce, reductions.MAX, axis, out, keepdims)

    def argmin(self, axis: int | None = None, out: Out = None, *, keepdims: bool = False) -> Any:
        """Find where the smallest item is, along an axis or in the flat array, block by block.

        >>> import ingot
        >>> ingot.array([[1, 2], [4, 3]]).argmin(axis=1)
        array([0, 1])
        """
        return self._reduced(reductions.position, "argmin", axis, out, keepdims)

    def argmax(self, axis: int | None = None, out: Out = None, *, keepdims: bool = False) -> Any:
        """Find where the largest item is, block by block; see `argmin`.

        >>> import ingot
        >>> ingot.array([[1, 2], [4, 3]]).argmax()
        np.int64(2)
        """
        return self._reduced(reductions.position, "argmax", axis, out, keepdims)

    def any(self, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Any:
        """Return whether any item is true; blocks after the first true item are not read.

        >>> import ingot
        >>> ingot.array([0, 2]).any()
        np.True_
        """
        return self._reduced(reductions.reduce, reductions.ANY, axis, out, keepdims)

    def all(self, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Any:
        """Return whether all items are true; blocks after the first false item are not read.

        >>> import ingot
        >>> ingot.array([0, 2]).all()
        np.False_
        """
        return self._reduced(reductions.reduce, reductions.ALL, axis, out, keepdims)

    def _reduced(self, reduce: Callable[..., Any], *arguments: Any) -> Any:
        return self._handle.read(lambda engine: reduce(_source(engine), *arguments))

    # State and display ---------------------------------------------------------------------------

    @property
    def info(self) -> Info:
        """The properties of the array, as a table to print."""
        return self._info(counted=True)

    def __eq__(self, other: object) -> bool:
        # Neither False nor a comparison of all items is what `array == 5` is expected to give.
        if isinstance(other, _COMPARED):
            raise ArgumentTypeError(self._not_compared("=="))
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __lt__(self, other: object) -> bool:
        return self._compared(other, "<")

    def __le__(self, other: object) -> bool:
        return self._compared(other, "<=")

    def __gt__(self, other: object) -> bool:
        return self._compared(other, ">")

    def __ge__(self, other: object) -> bool:
        return self._compared(other, ">=")

    def _compared(self, other: object, sign: str) -> bool:
        if hasattr(other, "__array_ufunc__") and not isinstance(other, np.generic):
            return cast(bool, NotImplemented)  # NumPy reads this array, and compares the items.
        raise ArgumentTypeError(self._not_compared(sign))

    def _not_compared(self, sign: str) -> str:
        return f"an ingot.Array is not compared with values; use array[...] {sign} value"

    def __contains__(self, value: object) -> bool:
        return any(value in np.asarray(block) for _, block in self.blocks())

    def __reduce__(self) -> tuple[Any, ...]:
        engine = self._handle.value
        place = self._handle.store, engine.chunks.path
        return _reopened, (self._format, *place, self._path, self._mode, engine.options)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what names the values for Dask: the path and the version.

        Where values have neither, in memory or before the first version, no name is given twice.
        """
        number = read_versioned(self._handle.store, lambda view: None)[1]
        if self._path is None or number in (None, NO_VERSION):
            return type(self).__name__, uuid.uuid4().hex
        place = self._handle.store.location, self._chunks.path
        return (type(self).__name__, *place, number)

    def __repr__(self) -> str:
        try:
            schema = self._schema
        except ValueError:
            return "<ingot.Array, closed>"
        kind = f"{schema.shape} {schema.dtype}"
        return f"<ingot.Array {kind}, {self.format} {self._where}, {self._mode}>"

    def _repr_html_(self) -> str:
        return self._info(counted=self._schema.chunk_count <= _MOST_COUNTED)._repr_html_()

    def _info(self, *, counted: bool) -> Info:
        stored = self.stored_bytes if counted else None
        chunks = compactable(self._chunks) if counted else None
        free = None if chunks is None else chunks.free_bytes()
        others = () if chunks is None else chunks.other_files()
        place = self.format, self._path, self._mode
        unfinished = self._unfinished
        named = manifested(self._chunks) is not None
        return array_info(
            self._schema, self.codec, *place, stored, free, others, self.shards, unfinished, named
        )

    @property
    def _chunks(self) -> ChunkMap:
        return self._handle.value.chunks

    @property
    def _schema(self) -> ArraySchema:
        return self._handle.value.chunks.schema


def _field(engine: Engine, name: str, key: tuple[Any, ...]) -> Any:
    """Return one field of the items that a key selects; all of them are read block by block."""
    schema, shape = engine.chunks.schema, engine.shape
    names = schema.dtype.names
    if names is None:
        return engine.read(parse((name, *key), shape))  # Says which keys there are.
    if name not in names:
        raise SelectionError(f"there is no field {name!r}; there is {', '.join(names)}")
    if key:
        return np.asarray(engine.read(parse(key, shape)))[name].copy()[()]
    result = np.empty(shape, schema.dtype[name])
    for place in blocks(shape, block_shape(schema.grid, schema.dtype.itemsize)):
        result[place] = engine.read(parse((*place, ...), shape))[name]
    return result


def _source(engine: Engine) -> Source:
    schema, shape = engine.chunks.schema, engine.shape
    many = 0 if schema.nbytes > _MUCH else MANY

    def read(key: tuple[slice, ...]) -> NDArray[Any]:
        # Not a single item but an array, even without axes.
        return cast(NDArray[Any], engine.read(parse((*key, ...), shape)))

    def stored() -> Iterator[tuple[int, ...]] | None:
        return engine.stored_coords(parse(..., shape), many)

    return Source(schema.grid, schema.dtype, read, stored, schema.fill)


def _reopened(
    format: Format, store: Store, inner: str, path: str | None, mode: Mode, options: Options
) -> Array:
    return Array(format, array_handle(format, store, inner, options), path=path, mode=mode)


def array_handle(
    format: Format,
    store: Store,
    inner: str,
    options: Options,
    first: tuple[Engine | None, int | None] = (None, NO_VERSION),
    tree: TransactionalHandle[Any] | None = None,
) -> HandleProtocol[Engine]:
    """Return a handle of the array at `inner` of a store, as a member of a tree if one is given."""

    def load(view: Store) -> Engine:
        node = format.open(view, inner)
        if not isinstance(node, ArrayNode):
            raise FormatError(f"{store.location}: no longer an array")
        return engine_of(node.chunks, options)

    handle = Handle(
        store,
        load,
        documents=_documents,
        is_current=_is_current,
        renew=Engine.renewed,
        durability=options.durability,
        first=first,
    )
    if tree is None:
        return TransactionalHandle(handle, load)
    return MemberHandle(tree, handle, load)


def _is_current(engine: Engine, store: Store) -> bool:
    return is_current(engine.chunks, store)


def _documents(engine: Engine) -> Documents:
    return engine.chunks.documents
