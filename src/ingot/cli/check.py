"""``ingot check`` and ``ingot repair``: whether datasets are whole, and how they become it."""

from typing import Annotated

from ingot.check import Report
from ingot.check import check as check_path
from ingot.cli.arguments import Dataset, Json
from ingot.cli.output import print_json, print_text
from ingot.cli.parameters import Exit, Option
from ingot.cli.progress import progress_bar
from ingot.repair import repair as repair_path

__all__ = ["check", "repair"]


def check(
    path: Dataset,
    quick: Annotated[
        bool, Option("--quick", help="Check metadata and indexes, and no chunk.")
    ] = False,
    json: Json = False,
) -> None:
    """Check that datasets are whole.

    PATH may be a folder of datasets as well. The exit status is 1 if something is lost or damaged.
    """
    with progress_bar("checking", lambda: None) as progress:
        report = check_path(path, quick=quick, progress=progress)
    _print_report(report, json)


def repair(
    path: Dataset,
    no_backup: Annotated[
        bool, Option("--no-backup", help="Keep no copy of the old bytes.")
    ] = False,
    drop: Annotated[
        bool,
        Option("--drop", help="Replace chunks that cannot be read by the fill value."),
    ] = False,
    longest: Annotated[
        bool,
        Option("--longest", help="Fill up columns that are shorter than the longest."),
    ] = False,
    json: Json = False,
) -> None:
    """Mend datasets that are damaged.

    What was done is printed, then what is left. The exit status is 1 if something is left that is
    lost or damaged. The old bytes are kept in a folder beside the dataset.
    """
    _print_report(repair_path(path, backup=not no_backup, drop=drop, longest=longest), json)


def _print_report(report: Report, json: bool) -> None:
    if json:
        print_json(report.as_dict())
    else:
        print_text(str(report))
    if not report.ok:
        raise Exit(1)
