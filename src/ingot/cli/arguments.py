"""Options that several commands have."""

from typing import Annotated, TypeAlias

import typer

__all__ = ["Json"]

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
