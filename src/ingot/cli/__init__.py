"""The ``ingot`` command."""

from ingot.cli.commands import app, main

__all__ = ["app", "main"]
