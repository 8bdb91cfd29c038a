"""``ingot info``: what a dataset is; of a Bloscpack file, also how it is laid out."""

import json as json_format
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import ingot
from ingot import pack as packing
from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.cli.arguments import Dataset, Json
from ingot.cli.columns import align
from ingot.errors import UnsupportedError
from ingot.formats.bloscpack.header import MAGIC
from ingot.pack import PackedFile

__all__ = ["describe_packed", "info"]

_SHOWN: Final = 5
"""How many offsets and chunks are shown, unless all are asked for."""


def info(
    path: Dataset,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Show every chunk of a Bloscpack file.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what a dataset is.

    Of a Bloscpack file: header, metadata, offsets and chunks.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode) and os.pread(file, len(MAGIC), 0) == MAGIC:
            report = describe_packed(file, None if chunks else _SHOWN)
        else:
            report = None
    finally:
        os.close(file)
    if report is None:
        _print_dataset(path, json)
    elif json:
        print(json_format.dumps(report, indent=2))
    else:
        _print_packed(str(path), report)


def describe_packed(descriptor: int, shown: int | None) -> dict[str, Any]:
    """Return what an open Bloscpack file is made of; of its chunks, the first and the last."""
    packed = packing.read_packed(descriptor)
    file, sizes = packed.file, packed.sizes
    header = file.header
    count = len(packed.stored) - 1
    numbers = list(range(count))
    if shown is not None and count > shown:
        numbers = [*numbers[: shown - 1], count - 1]
    section = file.section
    return {
        "header": {
            "version": header.version,
            "offsets": header.has_offsets,
            "metadata": header.has_metadata,
            "checksum": header.checksum,
            "typesize": header.typesize,
            "chunk_size": header.chunk_size,
            "last_chunk": header.last_chunk,
            "nchunks": header.nchunks,
            "max_app_chunks": header.max_app_chunks,
        },
        "metadata": file.value,
        "metadata_section": None
        if section is None
        else {
            "checksum": section.checksum,
            "codec": section.codec,
            "level": section.level,
            "size": section.size,
            "stored": section.stored,
            "room": section.room,
        },
        "offsets": None
        if not header.has_offsets
        else {"used": count, "spare": header.max_app_chunks, "bytes": header.table_bytes},
        "packed": sizes.packed,
        "plain": sizes.plain,
        "behind": sizes.behind,
        "chunks": [_describe_chunk(descriptor, packed, number) for number in numbers],
        "chunks_total": count,
    }


def _describe_chunk(file: int, packed: PackedFile, number: int) -> dict[str, Any]:
    start, end = packed.stored[number : number + 2].tolist()
    cbytes = end - start - packed.file.header.digest_bytes
    first = os.pread(file, min(EXTENDED_HEADER_BYTES, cbytes), start)
    chunk = ChunkHeader.parse(first, stored=cbytes)
    return {
        "number": number,
        "start": start,
        "cbytes": chunk.cbytes,
        "nbytes": chunk.nbytes,
        "codec": "stored" if chunk.memcpyed else chunk.codec,
        "filter": chunk.filter,
        "typesize": chunk.typesize,
        "blocksize": chunk.blocksize,
    }


def _print_dataset(path: Path, json: bool) -> None:
    dataset = ingot.open(path)
    if json:
        raise UnsupportedError(f"{path}: --json is offered for Bloscpack files")
    print(dataset.info)


def _print_packed(path: str, report: dict[str, Any]) -> None:
    plain, packed = report["plain"], report["packed"]
    version, count = report["header"]["version"], report["chunks_total"]
    print(
        f"{path}: Bloscpack version {version}, {plain:,} bytes in {count:,} "
        f"chunk{'' if count == 1 else 's'}, packed {packed:,} bytes, ratio {plain / packed:.2f}"
    )
    if report["behind"]:
        print(f"{report['behind']:,} bytes behind the end")
    _print_pairs("header", report["header"])
    if report["metadata_section"] is not None:
        _print_pairs("metadata section", report["metadata_section"])
        text = json_format.dumps(report["metadata"], indent=2, ensure_ascii=False)
        print("metadata", *(f"  {line}" for line in text.splitlines()), sep="\n")
    if report["offsets"] is not None:
        _print_pairs("offsets", report["offsets"])
    if not report["chunks"]:
        return
    rows = [tuple(report["chunks"][0])]
    before = -1
    for chunk in report["chunks"]:
        if chunk["number"] != before + 1:
            rows.append(("…", *[""] * (len(chunk) - 1)))
        before = chunk["number"]
        rows.append(tuple(_text(cell) for cell in chunk.values()))
    print("chunks", *(f"  {line}" for line in align(rows, left=(4, 5)).splitlines()), sep="\n")


def _print_pairs(title: str, pairs: dict[str, Any]) -> None:
    print(title)
    for name, value in pairs.items():
        print(f"  {name:<15} {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
