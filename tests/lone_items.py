"""Lone datasets of variable-length items whose packs have a length that a test chooses."""

from typing import Any

import ingot
from ingot.engine import ragged
from ingot.engine.ragged import RaggedEngine
from ingot.formats.format import RaggedRequest, SequenceFormat
from ingot.formats.registry import format_named
from ingot.options import Options
from ingot.ragged_array import ItemKind, RaggedArray
from ingot.stores import Commit, Store


def lone_items(
    items: list[Any], store: Store, format: str, pack_items: int, kind: str = "utf8", **layout: Any
) -> ingot.Ragged:
    """Store items in a format with regular packs, by one commit, and open them."""
    given = RaggedArray.of(items, ItemKind.of(kind))
    chosen = format_named(format)
    assert isinstance(chosen, SequenceFormat)
    request = RaggedRequest(0, given.kind, pack_items=pack_items)
    node, made = chosen.create_ragged(store, chosen.design_ragged(request, **layout), "", **layout)
    _, data = ragged.appended(RaggedEngine(node.packs, Options()), given)
    store.apply(Commit(publish=(*made.edits, *data.edits)))
    found = ingot.open(store, "r+")
    assert isinstance(found, ingot.Ragged)
    return found
