"""Engines that follow the committed state of an array.

Knows that the engine of another state is made by opening the array anew. Refuses to know the
formats, and what an engine is used for.
"""

from ingot.engine.run import Engine
from ingot.errors import FormatError
from ingot.formats.format import ArrayNode, Format
from ingot.handle import Handle
from ingot.options import Options
from ingot.stores.state import NEVER
from ingot.stores.store import Store

__all__ = ["opened"]


def opened(
    format: Format,
    store: Store,
    inner: str,
    options: Options,
    first: tuple[Engine | None, int | None] = (None, NEVER),
) -> Handle[Engine]:
    """Return a handle of the array that lies at `inner` of a store."""

    def load(view: Store) -> Engine:
        node = format.open(view, inner)
        if not isinstance(node, ArrayNode):
            raise FormatError(f"{store.location}: no longer an array")
        return Engine(node.chunks, options)

    return Handle(store, load, durability=options.durability, first=first)
