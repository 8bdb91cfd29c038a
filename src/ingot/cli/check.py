"""``ingot check`` and ``ingot repair``: whether datasets are whole, and how they become it."""

from pathlib import Path
from typing import Annotated

from ingot.check import Report
from ingot.check import check as check_path
from ingot.cli.arguments import AllowPickle, Dataset, Json, reading_options
from ingot.cli.messages import as_options, as_typed
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
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Check that datasets are whole.

    PATH may be a folder of datasets as well. The exit status is 1 if something is lost or damaged.
    """
    with progress_bar("checking", lambda: None) as progress:
        report = check_path(
            path, quick=quick, progress=progress, options=reading_options(allow_pickle)
        )
    _print_report(report, path, json)


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
    report = repair_path(path, backup=not no_backup, drop=drop, longest=longest)
    _print_report(report, path, json)


def _print_report(report: Report, path: Path, json: bool) -> None:
    if json:
        print_json(report.as_dict())
    else:
        print_text(as_options(as_typed(str(report), [path])))
    if not report.ok:
        raise Exit(1)
