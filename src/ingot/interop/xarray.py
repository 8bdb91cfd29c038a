"""An engine for xarray: ``xr.open_dataset(path, engine="ingot")``.

A group, a table, an array by itself or a plain folder of datasets becomes a dataset of xarray.
Nothing is read before values are asked for: a selection of xarray becomes one selection of an
`ingot.Array`. Names of dimensions, attributes and missing values mean what they mean to xarray's
own engine for Zarr, and xarray decodes them by the CF conventions.
"""

import asyncio
import base64
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, DataTree, Variable, register_dataset_accessor
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core import indexing

from ingot import api
from ingot.containers.array import Array
from ingot.containers.column import TableColumn
from ingot.containers.group import Group
from ingot.containers.ragged import Ragged
from ingot.containers.resolve import detect_dataset, with_settings
from ingot.containers.table import Table
from ingot.dtypes import DType
from ingot.errors import ArgumentError, FormatError, IngotError, LockedError, MemberError
from ingot.interop.xarray_writing import Mode, write
from ingot.options import Options, given_options
from ingot.stores.store import Store

__all__ = ["IngotAccessor", "IngotBackendEntrypoint", "IngotDataStore", "LazyArray", "LazyItems"]

Node: TypeAlias = "Array | Group | Ragged | Table"

# The attribute in which xarray stores the names of dimensions where a format has no place for them.
_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"
# Attributes that begin like this are those of the netCDF library, which xarray hides.
_NETCDF: Final = "_nc"
_ROW: Final = "row"


class IngotBackendEntrypoint(BackendEntrypoint):  # type: ignore[misc]
    """What xarray calls to open a dataset with Ingot.

    >>> import ingot, tempfile
    >>> import xarray as xr
    >>> folder = tempfile.TemporaryDirectory()
    >>> root = ingot.group(folder.name + "/day.zarr")
    >>> _ = root.array("heat", [[20.5, 21.0]], dimension_names=["hour", "place"])
    >>> opened = xr.open_dataset(folder.name + "/day.zarr", engine=IngotBackendEntrypoint)
    >>> opened["heat"].sel(place=1).values
    array([21.])
    >>> folder.cleanup()
    """

    description = "Open Zarr, bcolz, blsk and other datasets of the Blosc family using Ingot"
    supports_groups = True
    open_dataset_parameters = (
        *("filename_or_obj", "mask_and_scale", "decode_times", "concat_characters"),
        *("decode_coords", "drop_variables", "use_cftime", "decode_timedelta"),
        *("group", "options"),
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether a dataset lies at a path; its content decides, not its name."""
        if isinstance(filename_or_obj, Store):
            return True
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        try:
            return detect_dataset(os.fspath(filename_or_obj)) is not None
        except (IngotError, OSError):
            return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        options: Options | None = None,
    ) -> Dataset:
        """Return a dataset, whose values are read when they are asked for.

        `group` is the path of a group or table inside; groups below it are left out.
        """
        node = _opened(filename_or_obj, group, options)
        return _decoded(
            node,
            drop_variables,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        options: Options | None = None,
        **decoders: Any,
    ) -> dict[str, Dataset]:
        """Return a dataset for each group and table, by their paths from the group that is opened.

        The decoders are those of `open_dataset`.
        """
        dropped = _names(drop_variables)
        nodes = _below(_opened(filename_or_obj, group, options), "", dropped)
        return {path or "/": _decoded(node, dropped, **decoders) for path, node in nodes}

    def open_datatree(self, filename_or_obj: Any, **as_groups: Any) -> DataTree:
        """Return what `open_groups_as_dict` does, as a tree."""
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **as_groups))


class IngotDataStore(AbstractDataStore):  # type: ignore[misc]
    """The variables and attributes of one group, table, array or list of items, not yet decoded.

    >>> import ingot
    >>> sorted(IngotDataStore(ingot.table({"a": [1, 2], "b": [3, 4]})).get_variables())
    ['a', 'b']
    """

    def __init__(self, node: Node, dropped: Iterable[str] = ()) -> None:
        self._node = node
        self._dropped = frozenset(dropped)

    def get_variables(self) -> dict[str, Variable]:
        """Return the variables by their names."""
        node = self._node
        if isinstance(node, Group):
            found = ((name, node[name]) for name in node if name not in self._dropped)
            return {
                name: _variable(member, [f"{name}_dim_{axis}" for axis in range(len(member.shape))])
                for name, member in found
                if isinstance(member, Array | Ragged)
            }
        if isinstance(node, Table):
            return {
                name: _variable(
                    column,
                    [_ROW, *(f"{name}_dim_{axis}" for axis in range(1, len(column.shape)))],
                    (node, name),
                )
                for name, column in _columns(node, "", self._dropped)
            }
        dimensions = [f"dim_{axis}" for axis in range(len(node.shape))]
        return {_stem(node): _variable(node, dimensions)}

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the dataset; those of a single variable belong to it."""
        if not isinstance(self._node, Group | Table):
            return {}
        return _without_netcdf(self._node.attrs)

    def get_dimensions(self) -> dict[str, int]:
        """Return the lengths of the dimensions by their names."""
        return {
            name: length
            for variable in self.get_variables().values()
            for name, length in variable.sizes.items()
        }

    def get_encoding(self) -> dict[str, Any]:
        """Return no encoding: that of the variables is their own."""
        return {}


@register_dataset_accessor("ingot")
class IngotAccessor:
    """What `ds.ingot` is: a dataset of xarray that Ingot stores. Importing the module adds it."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def to(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "w-",
        append_dim: str | None = None,
        region: Mapping[str, slice] | None = None,
        encoding: Mapping[str, Mapping[str, Any]] | None = None,
        options: Options | None = None,
    ) -> None:
        """Store the dataset, in Zarr version 3; readers see all of it or nothing.

        Every call is one commit. A dataset that exists is an error with the mode "w-", is replaced
        with "w", and gets further variables with "a". `append_dim` is the dimension along which
        values are appended, to all variables that have it; `region` has slices of dimensions that
        are overwritten. Both need a dataset that exists, and encode values as those in it are
        encoded. Variables of Dask are staged by the workers. `encoding` has, by variable, what the
        CF conventions know, and "chunks", "shards", "codec", "fill_value" and "order".

        >>> import tempfile
        >>> import xarray as xr
        >>> folder = tempfile.TemporaryDirectory()
        >>> heat = xr.Dataset({"heat": (("hour", "place"), [[20.5, 21.0]])})
        >>> heat.ingot.to(folder.name + "/heat.zarr")
        >>> heat.ingot.to(folder.name + "/heat.zarr", append_dim="hour")
        >>> heat.ingot.to(folder.name + "/heat.zarr", region={"hour": slice(1, 2)})
        >>> xr.open_dataset(folder.name + "/heat.zarr", engine=IngotBackendEntrypoint).sizes["hour"]
        2
        >>> folder.cleanup()
        """
        if append_dim is not None and region is not None:
            raise ArgumentError("append_dim and region exclude each other")
        if mode not in ("w-", "w", "a"):
            raise ArgumentError(f"mode is {mode!r}, not 'w-', 'w' or 'a'")
        changes = (
            append_dim is not None or region is not None or (mode == "a" and _exists(path, options))
        )
        opening = partial(IngotBackendEntrypoint().open_dataset, path, options=options)
        write(
            self._dataset,
            path,
            open_existing=opening if changes else None,
            mode=mode,
            append_dim=append_dim,
            region=region,
            encoding=encoding or {},
            options=options or Options(),
        )


class _ReadInAThread(BackendArray):  # type: ignore[misc]
    """What xarray awaits (`load_async`) is read in a thread, so that the event loop goes on."""

    __slots__ = ()

    async def async_getitem(self, key: Any) -> NDArray[Any]:
        """Return what the array has at a key of xarray."""
        values: NDArray[Any] = await asyncio.to_thread(self.__getitem__, key)
        return values


class LazyArray(_ReadInAThread):
    """An array that xarray reads selections of.

    It stays of the shape and type that it was opened with. If another writer makes it shorter, or
    replaces it by another, reading raises `LockedError`; what is appended is not seen.

    >>> import ingot
    >>> lazy = LazyArray(ingot.array([[1, 2, 3], [4, 5, 6]]))
    >>> lazy[indexing.OuterIndexer((1, np.array([2, 0])))]
    array([6, 4])
    """

    __slots__ = ("_source", "_stored", "dtype", "shape")

    def __init__(self, source: Array) -> None:
        # xarray evaluates what is called `array`.
        self._source = source
        self._stored = source.dtype
        self.shape = source.shape
        nulls = isinstance(source, TableColumn) and source.has_nulls
        self.dtype = _with_nulls(source.dtype) if nulls else source.dtype

    def __getitem__(self, key: Any) -> NDArray[Any]:
        # All kinds of keys are read as they are: xarray's adapter fails for some empty slices.
        pointwise = isinstance(key, indexing.VectorizedIndexer)
        return self._points(key.tuple) if pointwise else self._outer(key.tuple)

    def _outer(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Return what integers, slices and index arrays select, each along its own axis."""
        inside, lengths, dropped = _placed(key, self.shape)
        values: NDArray[Any] = self._values(self._source.oindex[inside], lengths)[dropped]
        return values

    def _points(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Return what index arrays select together; their axes come first."""
        arrays = [axis for axis, each in enumerate(key) if not isinstance(each, slice)]
        whole = np.broadcast_shapes(*(np.shape(key[axis]) for axis in arrays))
        inside = tuple(
            _range(each, length) if isinstance(each, slice) else _numbers(each, length)
            for each, length in zip(key, self.shape, strict=True)
        )
        kept = [
            len(range(length)[each])
            for each, length in zip(key, self.shape, strict=True)
            if isinstance(each, slice)
        ]
        # NumPy puts the axes of adjacent index arrays where the first of them is, others in front.
        adjacent = arrays == list(range(arrays[0], arrays[-1] + 1))
        before = arrays[0] if adjacent else 0
        shape = (*kept[:before], *whole, *kept[before:])
        values = self._values(self._source[inside], shape)
        return np.moveaxis(values, range(before, before + len(whole)), range(len(whole)))

    def _values(self, found: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return what was read in the type that was promised; raise an error if it has changed."""
        values = _as_array(found, self._stored)
        if values.shape != shape or values.dtype != self._stored:
            raise LockedError(
                f"{self._source!r} has changed since it was opened with shape {self.shape} and "
                f"type {self._stored}"
            )
        if isinstance(values, np.ma.MaskedArray):
            values = self._filled(values)
        return values.astype(self.dtype, copy=False)

    def _filled(self, values: "np.ma.MaskedArray[Any, Any]") -> NDArray[Any]:
        mask, made = np.ma.getmaskarray(values), values.data
        if not mask.any():
            return made
        if self.dtype != _with_nulls(self._stored):
            raise LockedError(f"{self._source!r} has had no nulls when it was opened")
        made = made.astype(self.dtype)
        missing: Any = None if self.dtype.hasobject else np.nan
        made[mask] = np.array("NaT", self.dtype) if self.dtype.kind in "mM" else missing
        return made


class LazyItems(_ReadInAThread):
    """Variable-length items that xarray reads selections of, as objects; a null is None.

    >>> import ingot
    >>> LazyItems(ingot.ragged(["a", "bb", None]))[indexing.BasicIndexer((slice(1, 3),))]
    array(['bb', None], dtype=object)
    """

    __slots__ = ("_column", "_items", "dtype", "shape")

    def __init__(self, items: Ragged, column: tuple[Table, str] | None = None) -> None:
        self._items = items
        # Items that are a column are pickled as a table and a name.
        self._column = column
        self.shape = items.shape
        self.dtype = np.dtype(object)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        pointwise = isinstance(key, indexing.VectorizedIndexer)
        return self._points(key.tuple) if pointwise else self._outer(key.tuple)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._items if self._column is None else None, self._column, self.shape

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        items, self._column, self.shape = state
        self._items = items if self._column is None else self._column[0][self._column[1]]
        self.dtype = np.dtype(object)

    def _points(self, key: tuple[Any, ...]) -> NDArray[Any]:
        numbers = np.asarray(key[0])
        return self._outer((numbers.reshape(-1),)).reshape(numbers.shape)

    def _outer(self, key: tuple[Any, ...]) -> NDArray[Any]:
        (inside,), lengths, dropped = _placed(key, self.shape)
        values = np.asarray(self._items[inside])
        if values.shape != lengths:
            raise LockedError(
                f"{self._items!r} has changed since it was opened with {self.shape[0]} items"
            )
        objects: NDArray[Any] = values.astype(object, copy=False)[dropped]
        return objects


def _exists(path: str | os.PathLike[str], options: Options | None) -> bool:
    return (
        detect_dataset(with_settings(os.fspath(path), given_options(options).storage)) is not None
    )


def _opened(path: Any, group: str | None, options: Options | None) -> Node:
    node = api.open(path, options=options)
    inside = (group or "").strip("/")
    if not inside:
        return node
    if not isinstance(node, Group):
        raise MemberError(f"{path}: no group, and has no member {group!r}")
    return node[inside]


def _decoded(node: Node, dropped: str | Iterable[str] | None, **decoders: Any) -> Dataset:
    """Return what a node holds, decoded by the CF conventions as xarray implements them."""
    names = _names(dropped)
    store = IngotDataStore(node, names)
    decoders = {name: value for name, value in decoders.items() if value is not None}
    return StoreBackendEntrypoint().open_dataset(store, drop_variables=names, **decoders)


def _names(dropped: str | Iterable[str] | None) -> list[str]:
    return [dropped] if isinstance(dropped, str) else list(dropped or ())


def _below(node: Node, path: str, dropped: Iterable[str]) -> Iterator[tuple[str, Node]]:
    """Yield a node, and the groups and tables below it."""
    yield path, node
    if isinstance(node, Group):
        for name in node:
            if name not in dropped:
                # A folder may hold tables as well, which a type of Zarr does not say.
                member: Any = node[name]
                if isinstance(member, Group | Table):
                    yield from _below(member, f"{path}/{name}", dropped)


def _columns(
    table: Table, prefix: str, dropped: Iterable[str]
) -> Iterator[tuple[str, Array | Ragged]]:
    """Yield the columns by their names, and those of nested tables by their paths."""
    nested = table[prefix.rstrip(".")] if prefix else table
    for name in nested.names:
        place = prefix + name
        if place in dropped:
            continue
        # Columns of nested tables are taken from the outermost one, with which they are pickled.
        column = table[place]
        if isinstance(column, Table):
            yield from _columns(table, f"{place}.", dropped)
        else:
            yield place, column


def _variable(
    source: Array | Ragged, unnamed: list[str], column: tuple[Table, str] | None = None
) -> Variable:
    """Return a variable that reads its values when they are asked for.

    `unnamed` has a name for each dimension that the dataset does not name. `column` is the table
    that the source is a column of, and its name there.
    """
    if isinstance(source, Ragged):
        lazy = indexing.LazilyIndexedArray(LazyItems(source, column))
        return Variable(unnamed, lazy, dict(source.attrs))
    attrs = dict(source.attrs)
    dimensions = _dimensions(source, attrs, unnamed)
    encoding: dict[str, Any] = {
        "chunks": source.chunks,
        "preferred_chunks": dict(zip(dimensions, source.chunks, strict=True)),
    }
    if source.dtype.kind == "T":
        encoding["dtype"] = source.dtype
    if source.format == "zarr2":
        attrs = _without_netcdf(attrs)
        # In version 2 a fill value that is stated stands for missing values.
        if source.fill_stated:
            attrs["_FillValue"] = source.fill
    elif source.format == "zarr3":
        encoding["fill_value"] = source.fill
        if "_FillValue" in attrs:
            attrs["_FillValue"] = _missing_value(attrs["_FillValue"], source)
    return Variable(dimensions, indexing.LazilyIndexedArray(LazyArray(source)), attrs, encoding)


def _dimensions(source: Array, attrs: dict[str, Any], unnamed: list[str]) -> list[str]:
    """Return the names of the dimensions, and take the attribute that has them out of `attrs`."""
    names: Any = source.dimension_names
    if names is None and _DIMENSIONS in attrs:
        names = attrs.pop(_DIMENSIONS)
        valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not valid or len(names) != source.ndim:
            raise FormatError(
                f"{source!r}: attribute {_DIMENSIONS} is {names!r}, not a list of "
                f"{source.ndim} names"
            )
    if names is None:
        return unnamed
    return [other if name is None else name for name, other in zip(names, unnamed, strict=True)]


def _missing_value(claim: object, source: Array) -> Any:
    """Return the attribute _FillValue of an array of Zarr version 3, which xarray packs as text."""
    kind = source.dtype.kind
    try:
        if kind == "f" and isinstance(claim, str):
            return _unpacked_float(claim)
        if kind == "c" and isinstance(claim, list):
            real, imaginary = claim
            return complex(_unpacked_float(real), _unpacked_float(imaginary))
        if kind == "S" and isinstance(claim, str):
            return base64.b64decode(claim, validate=True)
    except (ValueError, TypeError, struct.error):
        raise FormatError(
            f"{source!r}: attribute _FillValue is {claim!r}, no value of {source.dtype}"
        ) from None
    return claim


def _unpacked_float(text: str) -> float:
    value: float = struct.unpack("<d", base64.b64decode(text, validate=True))[0]
    return value


def _without_netcdf(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attrs[name] for name in attrs if not name.lower().startswith(_NETCDF)}


def _stem(node: Array | Ragged) -> str:
    """Return the name of a variable that is a dataset by itself: that of its file or folder."""
    name = os.path.basename(os.path.normpath(node.path)) if node.path else ""
    return os.path.splitext(name)[0] or "array"


def _with_nulls(dtype: DType) -> DType:
    """Return the type of values of which some are null: one that holds all values exactly."""
    if dtype.kind in "fcmM":
        return dtype
    exact = dtype.kind in "iu" and dtype.itemsize <= 4
    return np.dtype(np.float64 if exact else object)


def _as_array(found: Any, dtype: DType) -> NDArray[Any]:
    if isinstance(found, np.ndarray):
        return found
    # A single item, of an array without axes.
    made = np.empty((), dtype)
    made[()] = found
    return made


def _placed(
    key: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], tuple[int, ...], tuple[Any, ...]]:
    """Return a key of ranges and index arrays, the lengths it selects, and a key for integers.

    Integers are read as ranges of one item, so that the result is an array in any case.
    """
    inside: list[Any] = []
    dropped: list[Any] = []
    for each, length in zip(key, shape, strict=True):
        if isinstance(each, slice):
            inside.append(_range(each, length))
            dropped.append(slice(None))
        elif np.ndim(each):
            inside.append(_numbers(each, length))
            dropped.append(slice(None))
        else:
            number = range(length)[int(each)]
            inside.append(slice(number, number + 1))
            dropped.append(0)
    lengths = tuple(
        len(range(length)[each]) if isinstance(each, slice) else len(each)
        for each, length in zip(inside, shape, strict=True)
    )
    return tuple(inside), lengths, (*dropped, ...)


def _range(key: slice, length: int) -> slice:
    """Return the slice that selects the same items of an axis that has become longer."""
    items = range(length)[key]
    if not items:
        return slice(0, 0)
    return slice(items.start, items.stop if items.stop >= 0 else None, items.step)


def _numbers(key: Any, length: int) -> NDArray[np.int64]:
    """Return the index array that selects the same items of an axis that has become longer."""
    numbers = np.asarray(key).astype(np.int64, copy=False)
    if numbers.size and (numbers.min() < -length or numbers.max() >= length):
        raise IndexError(f"an index is out of range for an axis of {length} items")
    return np.where(numbers < 0, numbers + length, numbers)
