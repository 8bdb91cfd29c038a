"""``ingot view``: a page of HTML that shows datasets and maps of their chunks."""

import os
from pathlib import Path
from typing import Annotated

import ingot
from ingot.cli.arguments import Dataset, Json, Overwrite
from ingot.cli.messages import usage
from ingot.cli.output import print_json, print_text
from ingot.cli.parameters import Option
from ingot.containers.page import page_of
from ingot.errors import ExistsError
from ingot.options import parse_size
from ingot.stores.local.files import write_at
from ingot.stores.local.new_file import new_file

__all__ = ["view"]


def view(
    path: Dataset,
    output: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="The page; else PATH.html.")
    ] = None,
    read: Annotated[
        str, Option("--read", metavar="SIZE", help="Decode the chunks of arrays up to this size.")
    ] = "256M",
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Draw datasets as a page of HTML.

    One file that needs no other: the tree of datasets, their properties, and maps of their chunks,
    coloured by ratio. Chunks that are decoded show their items, and whether they are damaged. A
    page that exists is replaced only if it was named by -o.
    """
    with usage():
        limit = parse_size(read)
        if limit is None:
            raise ValueError(f"read is {read!r}, not a size such as 256M")
    target = output or Path(os.path.basename(os.path.abspath(path)) + ".html")
    if output is None and not overwrite and os.path.lexists(target):
        raise ExistsError(f"{target}: it exists already; --overwrite replaces it")
    with ingot.open(path) as dataset:
        page = page_of(dataset, str(path), read_bytes=limit)
    with new_file(target) as file:
        write_at(file.descriptor, 0, page.encode("utf-8", "backslashreplace"))
        file.publish(overwrite=True)
    if json:
        print_json({"path": str(path), "page": str(target), "bytes": len(page)})
    else:
        print_text(f"{path} -> {target}: {len(page):,} bytes")
