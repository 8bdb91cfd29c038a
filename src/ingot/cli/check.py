"""``ingot check``: whether datasets are whole, and what is lost where they are not."""

from typing import Annotated

import typer

from ingot.check import Report
from ingot.check import check as check_path
from ingot.cli.arguments import Dataset, Json
from ingot.cli.output import print_json, print_text
from ingot.cli.progress import progress_bar

__all__ = ["check"]


def check(
    path: Dataset,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check metadata and indexes, and no chunk.")
    ] = False,
    json: Json = False,
) -> None:
    """Check that datasets are whole.

    PATH may be a folder of datasets as well. The exit status is 1 if something is lost or damaged.
    """
    with progress_bar("checking", lambda: None) as progress:
        report = check_path(path, quick=quick, progress=progress)
    _print_report(report, json)


def _print_report(report: Report, json: bool) -> None:
    if json:
        print_json(report.as_dict())
    else:
        print_text(str(report))
    if not report.ok:
        raise typer.Exit(1)
