"""The ``ingot`` command.

Knows how to ask the library and how to print the answer; the only module that knows typer and
rich. Refuses to know how anything is done. Exit status: 0 well, 1 a problem was found, 2 the
command was called wrongly.
"""

import json as json_format
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import ingot
from ingot import native
from ingot.cli import demo as demonstration
from ingot.errors import IngotError

__all__ = ["app", "main"]

app = typer.Typer(
    name="ingot",
    help="NumPy data compressed in chunks, in every format of the Blosc family.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Run the command; errors of ours become one line on standard error and exit status 1."""
    try:
        app()
    except IngotError as error:
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        print(f"ingot: {error}{notes}", file=sys.stderr)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def ingot_command(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """NumPy data compressed in chunks, in every format of the Blosc family."""
    if show_version:
        print(ingot.__version__)
        raise typer.Exit


@app.command()
def doctor(json: Json = False) -> None:
    """Say which kernel runs, why, with which codecs, and on what."""
    report = _diagnose()
    if json:
        print(json_format.dumps(report, indent=2))
    else:
        table = Table.grid(padding=(0, 2))
        for name, value in report.items():
            text = ", ".join(value) if isinstance(value, list) else value or "none"
            table.add_row(f"[bold]{name}[/bold]", escape(text))
        Console().print(table)
    if report["kernel"] is None:
        raise typer.Exit(1)


@app.command()
def chunk(
    file: Annotated[Path, typer.Argument(help="A Blosc chunk.", exists=True, dir_okay=False)],
    json: Json = False,
) -> None:
    """Lay a Blosc chunk open: its header, and a map of its blocks and streams with ratios."""
    inspection = ingot.blosc.inspect(file.read_bytes())
    print(json_format.dumps(inspection.to_dict(), indent=2) if json else inspection)


@app.command()
def demo() -> None:
    """Compress, inspect and read back data that looks real."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    chosen = native.choice()
    console.print(f"kernel: {chosen.name} ({chosen.reason})")
    table = Table(title="Blosc chunks, one thread; the slice is 100 items from the middle")
    for heading in ("data", "codec"):
        table.add_column(heading, no_wrap=True)
    for heading in ("size", "ratio", "compress MB/s", "decompress MB/s", "slice us"):
        table.add_column(heading, justify="right")
    for row in demonstration.measurements():
        table.add_row(*_demo_cells(row), end_section=row.codec == demonstration.CODECS[-1])
    console.print(table, soft_wrap=False)
    console.print(demonstration.portrait())
    console.print("Everything read back equals what was written.")


def _demo_cells(row: demonstration.Measurement) -> tuple[str, ...]:
    return (
        row.data,
        row.codec,
        f"{row.cbytes:,}",
        f"{row.ratio:.1f}",
        f"{row.nbytes / row.compress_time / 1e6:,.0f}",
        f"{row.nbytes / row.decompress_time / 1e6:,.0f}",
        f"{row.slice_time * 1e6:,.0f}",
    )


def _diagnose() -> dict[str, str | list[str] | None]:
    report: dict[str, str | list[str] | None] = {"ingot": ingot.__version__}
    try:
        chosen = native.choice()
        description = chosen.module.describe()
        report |= {
            "kernel": chosen.name,
            "reason": chosen.reason,
            "simd": description["simd"],
            "codecs": list(description["codecs"]),
        }
    except IngotError as error:
        report |= {"kernel": None, "reason": str(error)}
    return report | {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": _version("numpy"),
        "numcodecs": _version("numcodecs"),
        "platform": platform.platform(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
