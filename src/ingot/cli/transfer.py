"""``ingot export`` and ``ingot import``: datasets to files of other programs, and back."""

from pathlib import Path
from typing import Annotated, Any

import ingot
from ingot.cli.arguments import (
    AllowPickle,
    Chunks,
    Codec,
    Dataset,
    Format,
    Json,
    Overwrite,
    parse_chunks,
    reading_options,
)
from ingot.cli.messages import usage
from ingot.cli.output import print_json, print_text
from ingot.cli.parameters import Argument
from ingot.interop.files import export_file, import_file

__all__ = ["export", "import_"]


def export(
    source: Dataset,
    target: Annotated[
        Path,
        Argument(metavar="FILE", help="A file: .npy .npz .csv .jsonl .parquet or .arrow."),
    ],
    overwrite: Overwrite = False,
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Export a dataset to a file of another program.

    The suffix of the file decides which. The file appears when all of it is written.
    """
    with ingot.open(source, options=reading_options(allow_pickle)) as dataset:
        export_file(dataset, target, overwrite=overwrite)
        summary = dataset.info.summary
    _report(source, target, summary, json)


def import_(
    source: Annotated[
        Path,
        Argument(metavar="FILE", help="A file: .npy .npz .csv .jsonl .parquet or .arrow."),
    ],
    target: Annotated[Path, Argument(metavar="PATH", help="The new dataset.")],
    format: Format = None,
    codec: Codec = None,
    chunks: Chunks = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Import a file of another program as a new dataset.

    The suffix of the file decides how it is read, that of the dataset its format.
    """
    layout: dict[str, Any] = {"overwrite": overwrite}
    if format is not None:
        layout["format"] = format
    if codec is not None:
        layout["codec"] = codec
    if chunks is not None:
        with usage():
            layout["chunks"] = parse_chunks(chunks)
    with import_file(source, target, **layout) as dataset:
        summary = dataset.info.summary
    _report(source, target, summary, json)


def _report(source: Path, target: Path, summary: str, json: bool) -> None:
    if json:
        print_json({"source": str(source), "target": str(target), "summary": summary})
    else:
        print_text(f"{source} -> {target}: {summary}")
