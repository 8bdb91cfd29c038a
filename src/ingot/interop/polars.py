"""Polars: a table as a lazy frame, with columns, filters and limits pushed down.

Polars is optional, and imported on first use. Data frames of polars come in through Arrow.
"""

import json
import os
from collections.abc import Iterator
from functools import reduce
from operator import and_
from typing import Any, Final

from ingot import api
from ingot.containers.ingest import Layout
from ingot.containers.table import Table
from ingot.containers.view import View, ViewSource
from ingot.errors import ArgumentError, IngotError, UnsupportedError
from ingot.interop import arrow
from ingot.interop.arrow_dataset import Node, literal, translated
from ingot.options import Options
from ingot.query.expr import Expression
from ingot.stores.store import Store

__all__ = ["scan"]


def scan(
    source: "str | os.PathLike[str] | Store | Table | View", *, options: Options | None = None
) -> Any:
    """Return a table as a lazy frame of polars.

    Polars asks for the columns that a query needs and for the rows that can match its filters;
    chunks that cannot match are not read. `source` is a path, which is opened for each query, or an
    open table or view.

    >>> import ingot, polars
    >>> frame = scan(ingot.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
    >>> frame.filter(polars.col("a") > 1).select("b").collect()["b"].to_list()
    ['y', 'z']
    """
    polars = _polars()
    from polars.io.plugins import register_io_source

    def read(
        wanted: list[str] | None, predicate: Any, most: int | None, batch_rows: int | None
    ) -> Iterator[Any]:
        view = _source(source, options)
        layout = view.layout()
        names = list(layout if wanted is None else wanted)
        exact = expression = None
        if predicate is not None:
            exact, expression = _filter(polars, predicate, layout)
        used = set(names) if exact is None else {*names, *exact.meta.root_names()}
        # Rows of no columns could not be counted.
        needed = tuple(name for name in layout if name in used) or tuple(layout)[:1]
        schema = arrow.schema({name: layout[name] for name in needed})
        # A limit counts rows before the filter.
        bound = expression if most is None else None
        left = most
        rows = view.read_batches(needed, bound, batch_rows=batch_rows or arrow.BATCH_ROWS)
        for columns in rows:
            frame = polars.from_arrow(arrow.batch(columns, schema))
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield (frame if exact is None else frame.filter(exact)).select(names)
            if left == 0:
                return

    empty = arrow.schema(_source(source, options).layout()).empty_table()
    return register_io_source(read, schema=polars.from_arrow(empty).schema, is_pure=True)


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise UnsupportedError("polars is not installed: pip install polars") from None
    return polars


def _source(source: Any, options: Options | None) -> ViewSource:
    if isinstance(source, View):
        return ViewSource(source)
    table = source if isinstance(source, Table) else api.open(source, options=options)
    if not isinstance(table, Table) or not table.names:
        raise UnsupportedError(f"{table!r} is no table with columns")
    return ViewSource(table[list(table.names)])


# Filters

_OPERATORS: Final = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
    "And": "and",
    "LogicalAnd": "and",
    "Or": "or",
    "LogicalOr": "or",
}
_BOUNDS: Final = {
    "Both": ("greater_equal", "less_equal"),
    "Left": ("greater_equal", "less"),
    "Right": ("greater", "less_equal"),
    "None": ("greater", "less"),
}


def _filter(polars: Any, predicate: Any, layout: Layout) -> tuple[Any, Expression | None]:
    """Return the filter that polars applies to frames, and an expression that drops none of them.

    Polars joins hints to a filter, "dynamic predicates", which it cannot apply itself. They only
    say what will not be needed, so they are left out.
    """
    exact = _without_hints(predicate)
    if exact is None:
        return None, None
    try:
        node = _node(polars, exact, _tree(exact))
        expression = translated(node, layout, nan_largest=True)
    except (polars.exceptions.PolarsError, IngotError, LookupError, TypeError, ValueError):
        # A tree of another version of polars: nothing is skipped.
        expression = None
    return exact, expression


def _tree(expression: Any) -> Any:
    """Return the tree of an expression. NaN and infinities are null in it."""
    return json.loads(expression.meta.serialize(format="json"))


def _inputs(expression: Any, trees: list[Any]) -> list[Any]:
    """Return the inputs of an expression, in the order of their trees."""
    found = list(reversed(expression.meta.pop()))
    if [_tree(each) for each in found] != trees:
        raise ArgumentError("polars orders the inputs of expressions in another way")
    return found


def _without_hints(predicate: Any) -> Any:
    """Return a filter without dynamic predicates; None if it is nothing else."""
    tree = _tree(predicate)
    if "dynamic_pred" not in json.dumps(tree):
        return predicate
    if isinstance(tree, dict) and "Display" in tree:
        return None
    joined = tree.get("BinaryExpr") if isinstance(tree, dict) else None
    if joined is None or joined["op"] not in ("And", "LogicalAnd"):
        raise UnsupportedError(f"a filter of polars with a hint inside: {predicate}")
    kept = [each for each in map(_without_hints, predicate.meta.pop()) if each is not None]
    return reduce(and_, reversed(kept)) if kept else None


def _node(polars: Any, expression: Any, tree: Any) -> Node:
    """Return a filter of polars as a tree of functions of pyarrow."""
    ((word, inner),) = tree.items()
    if word == "Column":
        return Node("field", inner)
    if word == "Literal":
        return Node("", _literal(polars, expression))
    if word == "BinaryExpr" and inner["op"] in _OPERATORS:
        trees = [inner["left"], inner["right"]]
        sides = zip(_inputs(expression, trees), trees, strict=True)
        return Node(_OPERATORS[inner["op"]], None, tuple(_node(polars, *each) for each in sides))
    function = inner.get("function", {}).get("Boolean") if word == "Function" else None
    if function is None:
        return Node("unknown")
    first, *others = pairs = [
        *zip(_inputs(expression, inner["input"]), inner["input"], strict=True)
    ]
    if function == "Not":
        return Node("invert", None, (_node(polars, *first),))
    if isinstance(function, dict) and "IsBetween" in function:
        value, low, high = (_node(polars, *each) for each in pairs)
        above, below = _BOUNDS[function["IsBetween"]["closed"]]
        return Node(
            "and", None, (Node(above, None, (value, low)), Node(below, None, (value, high)))
        )
    if isinstance(function, dict) and "IsIn" in function:
        values = polars.select(others[0][0].explode()).to_arrow().column(0)
        listed = [literal(each) for each in values]
        known = None if any(each is None for each in listed) else listed
        return Node("is_in", known, (_node(polars, *first),))
    return Node("unknown")


def _literal(polars: Any, expression: Any) -> Any:
    column = polars.select(expression).to_arrow().column(0)
    return literal(column[0]) if len(column) == 1 else ()
