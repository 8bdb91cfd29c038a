"""The page: one HTML file that shows a dataset, or a tree of datasets, with a map of its chunks.

The page needs no network and no other file. Texts of datasets reach it as JSON, and its program
sets them as text, never as HTML.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.containers.array import Array
from ingot.containers.display import Info
from ingot.containers.folder import Found, walk
from ingot.containers.group import Group
from ingot.containers.survey import STATES, ArraySurvey
from ingot.errors import IngotError

__all__ = ["page_of"]

_MOST_CHUNKS: Final = 1_000_000
"""The chunks of larger arrays are not drawn."""
_MOST_DATASETS: Final = 200

_TEMPLATE: Final = Path(__file__).with_name("page.html")


def page_of(dataset: Any, title: str, *, read_bytes: int = 256 << 20) -> str:
    """Return the page of a dataset; chunks of arrays up to `read_bytes` are decoded for it.

    >>> import ingot
    >>> page = page_of(ingot.array([1, 2, 3], attrs={"note": "</script><b>"}), "three")
    >>> page.count("<b>"), page.count("<script")
    (0, 2)
    """
    found = _below(dataset)
    shown = [_described(each, read_bytes) for each in found[:_MOST_DATASETS]]
    document = {
        "title": title,
        "states": STATES,
        "datasets": shown,
        "more": max(0, len(found) - _MOST_DATASETS),
    }
    # Inside a script, only this sign could end it.
    text = json.dumps(document, allow_nan=False).replace("<", "\\u003c")
    template = _TEMPLATE.read_text(encoding="utf-8")
    return template.replace("{{title}}", _escaped(title)).replace("{{data}}", text)


def _below(dataset: Any) -> list[Found]:
    own = [Found("", dataset)]
    return [*own, *walk(dataset)] if isinstance(dataset, Group) else own


def _described(found: Found, read_bytes: int) -> dict[str, Any]:
    dataset = found.dataset
    if dataset is None:
        return {"name": found.name, "kind": "problem", "summary": found.problem or ""}
    info: Info = dataset.info
    facts = info.to_dict()
    described: dict[str, Any] = {
        "name": found.name,
        "kind": facts["kind"],
        "format": facts["format"],
        "summary": info.summary,
        "rows": [list(pair) for pair in info.rows],
    }
    if isinstance(dataset, Array):
        described["grid"] = _grid(dataset, read_bytes)
    if info.columns:
        described["columns"] = list(_columns(dataset, info, read_bytes))
        described["first"] = [list(column.items) for column in info.columns]
    return described


def _columns(table: Any, info: Info, read_bytes: int) -> Iterator[dict[str, Any]]:
    for column, facts in zip(info.columns, info.to_dict()["columns"], strict=True):
        stored = facts.get("stored")
        described = {
            "name": column.name,
            "type": column.kind,
            "nbytes": facts.get("nbytes") or None,
            "stored": stored,
            "ratio": facts.get("ratio"),
        }
        values = table[column.name]
        if isinstance(values, Array):
            described["grid"] = _grid(values, read_bytes // max(1, len(info.columns)))
        yield described


def _grid(array: Array, read_bytes: int) -> dict[str, Any] | None:
    """Return the map of chunks as compact data; None where there are too many."""
    info = array.info.to_dict()
    if not 0 < info["chunk_count"] <= _MOST_CHUNKS:
        return None
    try:
        found = array.survey(read=array.nbytes <= read_bytes)
    except IngotError as error:
        return {"problem": str(error)}
    return _compact(found)


def _compact(found: ArraySurvey) -> dict[str, Any]:
    return {
        "counts": list(found.counts),
        "state": _encoded(found.state),
        "stored": _encoded(found.stored.astype(np.float64)),
        "plain": _encoded(found.plain.astype(np.float64)),
        "start": _encoded(found.start.astype(np.float64)),
        "file": _encoded(found.file),
        "files": "\n".join(found.files),
        "sizes": list(found.sizes),
        "codec": _encoded(found.codec),
        "codecs": list(found.codecs),
        "smallest": None if found.smallest is None else "\n".join(found.smallest),
        "largest": None if found.largest is None else "\n".join(found.largest),
        "shown": list(found.shown) if any(found.shown) else [],
    }


def _encoded(values: NDArray[Any]) -> str:
    """Return the bytes of an array, little-endian, in base 64."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def _escaped(text: str) -> str:
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, name)
    return text
