"""The ``ingot`` command: one module per family of commands."""

from ingot.cli.app import main

__all__ = ["main"]
