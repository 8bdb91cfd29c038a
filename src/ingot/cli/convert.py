"""``ingot convert`` and ``ingot copy``: datasets stored anew, in another format or as they are."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import ingot
from ingot.cli.arguments import (
    AllowPickle,
    Chunks,
    Codec,
    Format,
    Json,
    Overwrite,
    parse_chunks,
    reading_options,
)
from ingot.cli.messages import as_typed, usage
from ingot.cli.output import print_json, print_text
from ingot.cli.parameters import Argument, Exit, Option
from ingot.cli.progress import progress_bar
from ingot.options import Options

__all__ = ["convert", "copy"]

Source: TypeAlias = Annotated[
    Path, Argument(metavar="SOURCE", help="A dataset, or a folder of datasets.")
]
Target: TypeAlias = Annotated[Path, Argument(metavar="TARGET", help="The new dataset.")]
Verify: TypeAlias = Annotated[
    bool, Option("--verify", help="Read the target again and compare it with the source.")
]


def convert(
    source: Source,
    target: Target,
    format: Format = None,
    codec: Codec = None,
    chunks: Chunks = None,
    shards: Annotated[
        str | None, Option("--shards", help="The shape of a shard, or auto; only zarr3.")
    ] = None,
    overwrite: Overwrite = False,
    verify: Verify = False,
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Convert a dataset to another format or layout.

    A folder of datasets is converted in one go; the exit status is 1 if one of them failed.

    Chunks, codec and attributes are kept where the target has a place for them; what is not kept
    is printed. The target is visible once all of it is stored.
    """
    with usage():
        layout = {} if shards is None else {"shards": parse_chunks(shards)}
        asked = None if chunks is None else parse_chunks(chunks)
    _run(
        source,
        target,
        json,
        {"format": format, "codec": codec, "chunks": asked, "overwrite": overwrite, **layout},
        verify=verify,
        options=reading_options(allow_pickle),
    )


def copy(
    source: Source,
    target: Target,
    overwrite: Overwrite = False,
    verify: Verify = False,
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Copy a dataset as it is, from one state of it.

    The suffix of the target does not change the format.
    """
    options = reading_options(allow_pickle)
    with ingot.open(source, options=options) as found:
        # A folder keeps the formats of its datasets.
        format = found.format if found.format in ingot.formats() else None
    _run(source, target, json, {"format": format, "overwrite": overwrite}, verify, options)


def _run(
    source: Path,
    target: Path,
    json: bool,
    arguments: dict[str, Any],
    verify: bool,
    options: Options | None,
) -> None:
    with progress_bar(source.name, lambda: None) as bar:
        progress: Callable[[int, int], object] | None = bar
        dataset = ingot.convert(
            source, target, progress=progress, verify=verify, options=options, **arguments
        )
    record = dataset.conversion
    assert record is not None
    if json:
        print_json(dataclasses.asdict(record))
    else:
        print_text(as_typed(str(record), [source, target]))
    if record.failures:
        raise Exit(1)
