"""``ingot explain``: what a read would cost, before it is done."""

from typing import Annotated

import ingot
from ingot.cli.arguments import Dataset, Json, parse_key, parse_names
from ingot.cli.messages import usage
from ingot.cli.output import print_json, print_pairs, print_table, print_text
from ingot.cli.parameters import Option
from ingot.containers.table_explanation import HEADINGS
from ingot.engine.explain import Explanation
from ingot.errors import UnsupportedError

__all__ = ["explain"]


def explain(
    path: Dataset,
    key: Annotated[
        str, Option("-k", "--key", help='What would be read, such as "0:10, ::5".')
    ] = "...",
    columns: Annotated[
        str | None, Option("-c", "--columns", help="Columns of a table, such as a,b.")
    ] = None,
    where: Annotated[
        str | None, Option("-w", "--where", help="Rows of a table, such as 'a > 5'.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what reading a part of a dataset costs.

    The chunks and blocks that would be read and decoded, their bytes, and the kernel that decodes
    them. Nothing is decoded.
    """
    with usage():
        chosen = parse_key(key)
    with ingot.open(path) as dataset:
        if isinstance(dataset, ingot.Array):
            found = dataset.explain(chosen)
            if json:
                print_json({"path": str(path), **found.to_dict()})
            else:
                print_explanation(str(path), found)
            return
        if not isinstance(dataset, ingot.Table):
            raise UnsupportedError(f"{path}: explain is for arrays and tables")
        names = parse_names(columns)
        if where is None:
            costs = dataset.explain(chosen, names)
        else:
            rows = dataset.where(where, params={})
            costs = (rows if names is None else rows[names]).explain()
    if json:
        print_json({"path": str(path), **costs.to_dict()})
        return
    print_text(f"{costs.rows:,} of {costs.total:,} rows")
    print_table(HEADINGS, costs.table(), left=["column"])


def print_explanation(title: str, found: Explanation) -> None:
    """Print the cost of a read: totals, and the first chunks."""
    print_pairs(found.totals(), title=title)
    print()
    print_table(*found.table(), left=("chunk", "file"))
    more = found.chunks - found.shown
    if more > 0:
        print(f"... and {more:,} more")
