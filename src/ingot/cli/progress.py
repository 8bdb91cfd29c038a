"""The progress bar: on a terminal, on standard error, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ingot._lazy import deferred

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.progress as rich_progress
else:
    rich_console = deferred("rich.console")
    rich_progress = deferred("rich.progress")

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    name: str, total: Callable[[], int | None], *, unit: str = "bytes"
) -> Iterator[Callable[..., object] | None]:
    """Show a bar while the block runs, and yield what is to be called with how much is done.

    `total` returns how much there is to do, if that is known; a second argument of what is yielded
    changes it. All count `unit`s. None is yielded
    where standard error is no terminal. The bar is gone when the block ends.
    """
    if not sys.stderr.isatty():
        yield None
        return
    columns: list[Any] = [
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
    ]
    if unit == "bytes":
        columns += [rich_progress.DownloadColumn(), rich_progress.TransferSpeedColumn()]
    else:
        columns += [rich_progress.MofNCompleteColumn(), rich_progress.TextColumn(unit)]
    columns.append(rich_progress.TimeRemainingColumn())
    console = rich_console.Console(stderr=True)
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=total())
        yield lambda done, total=None: bar.update(task, completed=done, total=total)
