"""Writing datasets of xarray: `ds.ingot.to(path)`, each call one commit.

Variables are encoded by xarray, as its engine for Zarr does it. A new dataset is built over the
store and published with its last chunk; a dataset that exists is changed in one transaction.
Variables of Dask are staged by the workers first.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from xarray import Dataset, Variable, conventions
from xarray.backends.zarr import FillValueCoder, encode_zarr_attr_value, encode_zarr_variable

from ingot import api
from ingot.containers import staged
from ingot.containers.array import Array
from ingot.containers.create import ArraySpec, StagedChunks
from ingot.containers.group import Group
from ingot.containers.resolve import remove_existing, resolve_new, with_settings
from ingot.containers.staged import ExistingTarget, NewTarget, Target
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    LockedError,
    MemberError,
    UnsupportedError,
)
from ingot.formats.format import GroupFormat, Kind
from ingot.formats.paths import joined
from ingot.interop import dask
from ingot.options import Options
from ingot.stores.buffered import BufferedStore
from ingot.stores.store import Commit, Edit, Feature, Store
from ingot.stores.versions import current_number, settled_number, writing

__all__ = ["Mode", "write"]

Mode: TypeAlias = Literal["w-", "w", "a"]
Region: TypeAlias = Mapping[str, slice]

# What of an encoding says how an array is stored; xarray takes the rest for the CF conventions.
_STORAGE: Final = ("chunks", "shards", "codec", "fill_value", "order")
# What engines of xarray put into an encoding of variables that they read, without use here.
_READ_ONLY: Final = frozenset(
    (
        *("preferred_chunks", "source", "original_shape", "compressors", "compressor"),
        *("filters", "serializer", "chunksizes", "contiguous", "zlib", "complevel", "shuffle"),
        *("fletcher32", "szip", "zstd", "bzip2", "blosc", "dtype"),
    )
)
_TEXT: Final = str
_REPLACING: Final = 'mode="w" replaces it, mode="a" adds variables'


def write(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    open_existing: Callable[[], Dataset] | None,
    mode: Mode,
    append_dim: str | None,
    region: Region | None,
    encoding: Mapping[str, Mapping[str, Any]],
    options: Options,
) -> None:
    """Store a dataset of xarray; `open_existing` opens what is changed, None if that is replaced.

    See `IngotAccessor.to`.
    """
    group: Group | None = None
    version = existing = None
    if open_existing is not None:
        opened = api.open(path, "r+", options=options)
        if not isinstance(opened, Group):
            raise UnsupportedError(f"{opened!r} is no group")
        group = opened
        # What follows from the dataset that exists is of this version, or is not stored.
        version = settled_number(group._below)
        existing = open_existing()
    described = _with_encoding(dataset, existing, encoding)
    variables, attrs = conventions.encode_dataset_coordinates(described)
    pieces = [
        _Piece.of(name, variable, encoding.get(str(name), {}))
        for name, variable in variables.items()
    ]
    attributes = {str(name): encode_zarr_attr_value(value) for name, value in attrs.items()}
    if group is None or existing is None:
        _create(path, pieces, attributes, overwrite=mode == "w", options=options)
    else:
        places = _places(pieces, existing, append_dim, region)
        changed = {} if append_dim or region else attributes
        _change(group, version, pieces, places, changed, options)


@dataclass(frozen=True, slots=True)
class _Piece:
    """An encoded variable, and how it is stored as an array of its own."""

    name: str
    dimensions: tuple[str, ...]
    data: Any
    attrs: dict[str, Any]
    settings: dict[str, Any]

    @classmethod
    def of(cls, name: Any, variable: Variable, given: Mapping[str, Any]) -> "_Piece":
        """Encode a variable; `given` is the part of its encoding that the caller has stated."""
        encoded = encode_zarr_variable(variable, name=name, zarr_format=3)
        found = {key: value for key, value in encoded.encoding.items() if value is not None}
        unknown = set(given).intersection(found) - set(_STORAGE) - _READ_ONLY
        if unknown:
            raise ArgumentError(f"unexpected encoding for {name!r}: {', '.join(sorted(unknown))}")
        settings = {key: value for key, value in found.items() if key in _STORAGE}
        # A variable that was indexed has the chunks of the one that was read.
        for key in ("chunks", "shards"):
            if key not in given and np.size(settings.get(key, ())) != variable.ndim:
                settings.pop(key, None)
        attrs = {str(key): encode_zarr_attr_value(value) for key, value in encoded.attrs.items()}
        data = encoded.data if dask.is_dask(encoded.data) else np.asarray(encoded.values)
        if "_FillValue" in encoded.attrs:
            attrs["_FillValue"] = FillValueCoder.encode(encoded.attrs["_FillValue"], data.dtype)
        return cls(_stored_name(name), tuple(map(str, encoded.dims)), data, attrs, settings)

    @property
    def is_dask(self) -> bool:
        """Whether the values are an array of Dask, and their chunks can be staged."""
        return dask.is_dask(self.data) and self.data.dtype.kind not in "OT"

    def arguments(self) -> dict[str, Any]:
        """Return how `Group.array` creates the array."""
        settings = dict(self.settings)
        if "fill_value" in settings:
            settings["fill"] = settings.pop("fill_value")
        if self.data.dtype.kind == "O":
            settings["dtype"] = _TEXT
        if "chunks" not in settings and dask.is_dask(self.data):
            chunks = staged.dividing_chunks(self.data.chunks, self.data.dtype.itemsize)
            settings["chunks"] = "auto" if chunks is None else chunks
        return {**settings, "attrs": self.attrs, "dimension_names": self.dimensions}

    def items(self, edits: tuple[Edit, ...] | None) -> Any:
        """Return the content of a new array: staged chunks, or the values themselves."""
        if edits is not None:
            return StagedChunks(self.data.shape, self.data.dtype, edits)
        return self.values()

    def values(self) -> Any:
        """Return the values, computed."""
        return np.asarray(self.data)


def _stored_name(name: Any) -> str:
    """Return the name of the array of a variable."""
    if name is None:
        raise UnsupportedError("a variable has no name; Zarr 3 reserves the one that xarray gives")
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the name of a variable is {name!r}, not a string or None")
    if not name:
        raise ArgumentError("the name of a variable is '': a string must be length 1 or longer")
    return name


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a variable goes in a dataset that exists."""

    shape: tuple[int, ...]
    """The shape of the array afterwards."""
    starts: tuple[int, ...]

    def key(self, piece: _Piece) -> tuple[slice, ...]:
        """Return the key of the place in the array."""
        pairs = zip(self.starts, piece.data.shape, strict=True)
        return tuple(slice(start, start + length) for start, length in pairs)


def _create(
    path: Any,
    pieces: Sequence[_Piece],
    attrs: Mapping[str, Any],
    *,
    overwrite: bool,
    options: Options,
) -> None:
    """Store a new dataset; all of it appears by one commit."""
    address = with_settings(path, options.storage)
    place, format, inner = resolve_new(address, None, Kind.GROUP, "zarr3")
    if not isinstance(format, GroupFormat) or format.name != "zarr3":
        raise UnsupportedError(
            f"{place.name}: datasets of xarray are stored as zarr3, not {format.name}"
        )

    removed = partial(remove_existing, place, groups=True, hint=_REPLACING)
    old = removed(place.store, overwrite=overwrite)
    version = None if old is None else settled_number(place.store)
    with dask.undone(place.store), ExitStack() as announced:
        parts = [piece for piece in pieces if piece.is_dask]
        targets = [_new_target(format, place.store, inner, piece, options) for piece in parts]
        edits = _staged(parts, targets, announced)
        buffered = BufferedStore(place.store)
        try:
            if old is not None:
                buffered.apply(Commit(publish=old.edits))
            _, commit = format.create_group(buffered, inner, dict(attrs))
            buffered.apply(commit)
            group = Group.of(format, buffered, inner, place.path, "r+", options)
            for piece in pieces:
                group.array(piece.name, piece.items(edits.get(piece.name)), **piece.arguments())
            with writing(place.store, durability=options.durability) as turn:
                if old is None:
                    remove_existing(
                        place, turn.store, overwrite=False, groups=True, hint=_REPLACING
                    )
                elif version != current_number(turn.store):
                    raise _overtaken(path)
                turn.commit(buffered.commit())
        except BaseException:
            buffered.discard()
            raise


def _overtaken(path: Any) -> LockedError:
    return LockedError(f"{path}: another writer has committed meanwhile; nothing was changed")


def _change(
    group: Group,
    version: int | None,
    pieces: Sequence[_Piece],
    places: Mapping[str, _Place | None],
    attrs: Mapping[str, Any],
    options: Options,
) -> None:
    """Change a version of a dataset that exists, by one commit."""
    parts, targets = [], []
    for piece in pieces:
        place, store = places[piece.name], group._handle.store
        if piece.is_dask:
            parts.append(piece)
            if place is None:
                inner = group._inner
                target: Target = _new_target(group._format, store, inner, piece, options)
            else:
                array = _member(group, piece.name)
                target = ExistingTarget(array, array.shape, place.shape)
            targets.append(target)
    with ExitStack() as announced:
        edits = _staged(parts, targets, announced, places)
        with group.transaction():
            if current_number(group._below) != version:
                raise _overtaken(group.path)
            made = {part.name: target for part, target in zip(parts, targets, strict=True)}
            for piece in pieces:
                _store_piece(group, piece, places[piece.name], made, edits)
            if attrs and dict(group.attrs) != attrs:
                group.attrs.update(attrs)


def _store_piece(
    group: Group,
    piece: _Piece,
    place: _Place | None,
    targets: Mapping[str, Target],
    edits: Mapping[str, tuple[Edit, ...]],
) -> None:
    """Store one variable inside a transaction."""
    found = edits.get(piece.name)
    if place is None:
        group.array(piece.name, piece.items(found), overwrite=True, **piece.arguments())
        return
    target = targets.get(piece.name)
    if isinstance(target, ExistingTarget) and found is not None:
        staged.publish(target, found)
        return
    array = _member(group, piece.name)
    if place.shape != array.shape:
        array.resize(place.shape)
    array[place.key(piece)] = piece.values()


def _staged(
    parts: Sequence[_Piece],
    targets: Sequence[Target],
    announced: ExitStack,
    places: Mapping[str, _Place | None] | None = None,
) -> dict[str, tuple[Edit, ...]]:
    """Stage the variables of Dask by one computation, and return the edits by their names."""
    for target in targets:
        announced.enter_context(staged.announced(target))
    starts = [(places or {}).get(part.name) for part in parts]
    jobs = [
        (part.data, target, (0,) * part.data.ndim if place is None else place.starts)
        for part, target, place in zip(parts, targets, starts, strict=True)
    ]
    found = dask.stage_together(jobs) if jobs else []
    return {part.name: edits for part, edits in zip(parts, found, strict=True)}


def _new_target(
    format: Any, store: Store, inner: str, piece: _Piece, options: Options
) -> NewTarget:
    described = StagedChunks(piece.data.shape, piece.data.dtype, ())
    spec, _ = ArraySpec.of_data(described, {**piece.arguments(), "options": options})
    place = joined(inner, piece.name)
    schema = spec.schema(format, remote=Feature.REMOTE in store.features)
    return NewTarget(format, store, place, schema, spec.layout, options)


def _member(group: Group, name: str) -> Array:
    found = group[name]
    if not isinstance(found, Array):
        raise UnsupportedError(f"{found!r} is no array")
    return found


def _with_encoding(
    dataset: Dataset, existing: Dataset | None, encoding: Mapping[str, Mapping[str, Any]]
) -> Dataset:
    """Return a dataset with the encodings that are given, or that stored variables have."""
    for name, given in encoding.items():
        if name not in dataset.variables:
            raise MemberError(f"encoding names {name!r}, which is no variable")
        if not isinstance(given, Mapping):
            raise ArgumentError(f"the encoding of {name!r} must be castable to dict: {given!r}")
    described = dataset.copy()
    for name in described.variables:
        variable = described[name].variable
        stored = None if existing is None else existing.variables.get(name)
        if stored is not None:
            # Values that are added are encoded like those that are there.
            variable.encoding = {
                key: value for key, value in stored.encoding.items() if key not in _STORAGE
            }
        variable.encoding = {**variable.encoding, **encoding.get(str(name), {})}
    return described


def _places(
    pieces: Iterable[_Piece], existing: Dataset, append_dim: str | None, region: Region | None
) -> dict[str, _Place | None]:
    """Return where each variable goes; None for a variable that is created, or replaced."""
    if append_dim is not None and append_dim not in existing.dims:
        raise ArgumentError(f"append_dim is {append_dim!r}, which the dataset does not have")
    named = list(pieces)
    if append_dim is not None:
        names = {piece.name for piece in named}
        short = [
            str(name)
            for name, variable in existing.variables.items()
            if append_dim in variable.dims and name not in names
        ]
        if short:
            raise ArgumentError(
                f"append_dim is {append_dim!r}: {', '.join(sorted(short))} would stay shorter"
            )
    return {piece.name: _place(piece, existing, append_dim, region) for piece in named}


def _check_lengths(piece: _Piece, existing: Dataset) -> None:
    """Raise an error for a further variable that does not fit the dimensions that exist."""
    for name, length in zip(piece.dimensions, piece.data.shape, strict=True):
        if existing.sizes.get(name, length) != length:
            raise ArgumentError(
                f"Unable to update size for existing dimension {name!r}: it has "
                f"{existing.sizes[name]} items, {piece.name!r} {length}"
            )


def _place(
    piece: _Piece, existing: Dataset, append_dim: str | None, region: Region | None
) -> _Place | None:
    stored = existing.variables.get(piece.name)
    if append_dim is None and region is None:
        _check_lengths(piece, existing)
        return None
    if stored is None:
        if region is not None or append_dim in piece.dimensions:
            raise ArgumentError(f"{piece.name!r} is no variable of the dataset that exists")
        return None
    if tuple(stored.dims) != piece.dimensions:
        raise ArgumentError(
            f"{piece.name!r} has the dimensions {piece.dimensions}, not {tuple(stored.dims)}"
        )
    shape, starts = list(stored.shape), [0] * len(stored.shape)
    if region is not None and not set(region).intersection(piece.dimensions):
        raise ArgumentError(
            f"{piece.name!r} has no dimension of the region; leave it out by drop_vars"
        )
    for axis, name in enumerate(piece.dimensions):
        length, given = stored.shape[axis], piece.data.shape[axis]
        if name == append_dim:
            starts[axis], shape[axis] = length, length + given
            continue
        inside = range(length)[(region or {}).get(name, slice(None))]
        if inside.step != 1 or len(inside) != given:
            raise ArgumentError(
                f"{piece.name!r} has {given} items along {name!r}, there is room for {len(inside)}"
            )
        starts[axis] = inside.start
    return _Place(tuple(shape), tuple(starts))
