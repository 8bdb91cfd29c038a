"""Text in columns, which a pipe gets as wide as it is: rich cuts tables to 80 characters there."""

from collections.abc import Collection, Sequence

__all__ = ["align"]


def align(rows: Sequence[Sequence[str]], *, left: Collection[int] = ()) -> str:
    """Return rows of cells as text; columns are aligned to the right, but for those named `left`.

    >>> print(align([("size", "file"), ("7", "a.blp"), ("1,000", "b.blp")], left=[1]))
     size  file
        7  a.blp
    1,000  b.blp
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
