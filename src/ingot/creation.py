"""How new arrays come into being: a wish, a format that grants it, and one commit.

Knows what a caller may say of an array that is not there yet, and turns it into what a format is
asked for. Refuses to know where the array will be, and what may be in its way: the caller says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot.array import Array, opened
from ingot.engine.changes import filled
from ingot.engine.run import Engine
from ingot.formats.format import ArrayNode, Format, Node
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores.state import change
from ingot.stores.store import Commit, Store
from ingot.wish import Chunks, Codec, Wish, item_type

__all__ = ["ArrayWish", "Place", "check_layout", "create_array"]


@dataclass(frozen=True, slots=True)
class ArrayWish:
    """A new array as its maker describes it.

    >>> from ingot.formats.zarr2 import Zarr2Format
    >>> ArrayWish(10, "f4", codec="zlib:1").schema(Zarr2Format()).shape
    (10,)
    """

    shape: int | Sequence[int]
    dtype: DTypeLike
    chunks: Chunks = "auto"
    codec: Codec = None
    fill: object = 0
    format: str | None = None
    attrs: Mapping[str, object] | None = None
    overwrite: bool = False
    options: Options | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    def schema(self, format: Format) -> ArraySchema:
        """Return how a format would lay out the array."""
        shape = (self.shape,) if isinstance(self.shape, int | np.integer) else tuple(self.shape)
        wish = Wish(self.chunks, self.codec, self.fill, self.attrs)
        options = self.options or Options()
        return wish.schema(format, shape, item_type(self.dtype), options, **self.layout)

    @classmethod
    def of_data(cls, data: object, wishes: Mapping[str, Any]) -> "tuple[ArrayWish, NDArray[Any]]":
        """Return the wish for an array that holds `data`, and the data as items of its type.

        >>> wish, items = ArrayWish.of_data([1, 2], {"dtype": "i2", "order": "F"})
        >>> wish.shape, items.dtype, wish.layout
        ((2,), dtype('int16'), {'order': 'F'})
        """
        dtype = wishes.get("dtype")
        items = np.asarray(data, None if dtype is None else item_type(dtype))
        own = {each.name for each in fields(cls)} - {"layout", "dtype", "shape"}
        layout = {name: wishes[name] for name in wishes if name not in own and name != "dtype"}
        chosen = {name: wishes[name] for name in wishes if name in own}
        return cls(items.shape, items.dtype, **chosen, layout=layout), items


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array shall be: at `inner` of a store; `clear` removes what is in the way there.

    `clear` returns None when nothing is there, and complains of what must not be replaced. `path`
    is how people call the place.
    """

    store: Store
    inner: str
    path: str | None
    clear: Callable[[Store], Commit | None]


def create_array(
    format: Format, place: Place, wish: ArrayWish, items: NDArray[Any] | None
) -> Array:
    """Create the array that is wished for, with `items` in it or the fill value, by one commit."""
    check_layout(format, wish.layout)
    schema = wish.schema(format)
    options = wish.options or Options()
    made: list[Engine] = []

    def build(store: Store) -> Commit:
        old = place.clear(store)
        node, commit = format.create(store, schema, place.inner, **wish.layout)
        assert isinstance(node, ArrayNode)
        made.append(Engine(node.chunks, options))
        if items is None:
            data = filled(made[-1])
        else:
            data = made[-1].written(parse(..., schema.shape), items)
        # All at once: what a crash left of half an array would be in the way of the next try. And
        # what is replaced is still read until then.
        made_anew = (*data.edits, *commit.publish)
        if old is None:
            return Commit(commit.prepare, made_anew, commit.cleanup)
        kept = {edit.key for edit in made_anew}
        strays = tuple(edit for edit in commit.prepare if edit.key not in kept)
        return Commit((), (*old.edits, *made_anew), (*strays, *commit.cleanup))

    old = place.clear(place.store)  # Before a lock file is made.
    if old is not None and _blocks(
        old, format.create(place.store, schema, place.inner, **wish.layout)[0]
    ):
        change(place.store, lambda store: place.clear(store) or Commit())
    number = change(place.store, build, durability=options.durability)
    handle = opened(format, place.store, place.inner, options, first=(made[-1], number))
    return Array(format, handle, path=place.path, mode="r+")


def _blocks(old: Commit, new: Node) -> bool:
    """Tell whether files of what is replaced have the names of folders that are needed.

    Then no file system can change one for the other at once, and the old has to go first.
    """
    assert isinstance(new, ArrayNode)
    template, ndim = new.chunks.template, len(new.schema.shape)
    if template is None:
        return False
    return any(template.is_folder(edit.key, ndim) for edit in old.edits)


def check_layout(format: Format, layout: Mapping[str, Any]) -> None:
    """Complain about settings that a format does not have."""
    for name in layout:
        if name not in format.settings:
            known = ", ".join(format.settings) or "none"
            raise TypeError(f"{format.name} has no setting {name!r}; it has {known}")
