"""Narwhals: a table as one of its data frames, on top of pyarrow.

Narwhals is optional. It asks for the frame itself, so that it is imported already.
"""

from typing import Any

__all__ = ["compliant_frame"]


def compliant_frame(table: Any) -> Any:
    """Return what ``narwhals.from_native`` takes from an object with ``__narwhals_dataframe__``.

    `table` is one of pyarrow.

    >>> import narwhals, ingot
    >>> frame = narwhals.from_native(ingot.table({"a": [1, 2, 3]}))
    >>> frame.filter(narwhals.col("a") > 1)["a"].to_list()
    [2, 3]
    """
    import narwhals

    return narwhals.from_native(table, eager_only=True)._compliant_frame
