"""``ingot chunk``: the inside of a file that holds one Blosc chunk."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from ingot import blosc
from ingot.cli.arguments import Json

__all__ = ["chunk"]


def chunk(
    file: Annotated[Path, typer.Argument(help="A Blosc chunk.", exists=True, dir_okay=False)],
    json: Json = False,
) -> None:
    """Lay a Blosc chunk open: its header, and a map of its blocks and streams with ratios."""
    inspection = blosc.inspect(file.read_bytes())
    print(json_format.dumps(inspection.to_dict(), indent=2) if json else inspection)
