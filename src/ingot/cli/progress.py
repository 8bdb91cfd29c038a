"""The progress bar: on a terminal, on standard error, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    name: str, total: Callable[[], int | None]
) -> Iterator[Callable[[int], object] | None]:
    """Show a bar while the block runs, and yield what is to be called with the bytes that are done.

    `total` returns how many there are, if that is known. None is yielded where standard error is no
    terminal. The bar is gone when the block ends.
    """
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total())
        yield lambda done: bar.update(task, completed=done)
