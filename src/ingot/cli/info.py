"""``ingot info``: what a dataset is; of a Bloscpack file, also how it is laid out."""

import json as json_format
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import ingot
from ingot._lazy import deferred
from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.cli.arguments import AllowPickle, Dataset, Json, reading_options
from ingot.cli.output import print_json, print_pairs, print_table, print_text
from ingot.cli.parameters import Option
from ingot.containers.display import Info
from ingot.containers.folder import members
from ingot.errors import IngotError, UnsupportedError
from ingot.fields import printable
from ingot.formats.bloscpack.header import MAGIC
from ingot.stores.local.files import write_at
from ingot.stores.local.new_file import new_file

if TYPE_CHECKING:
    from ingot import pack as packing
    from ingot.interop import matplotlib
else:
    packing = deferred("ingot.pack")
    matplotlib = deferred("ingot.interop.matplotlib")

__all__ = ["describe_packed", "info", "print_info", "print_packed"]

_MOST_MEMBERS: Final = 30
"""How many members of a group are shown."""

_SHOWN: Final = 5
"""How many offsets and chunks are shown, unless all are asked for."""


def info(
    path: Dataset,
    chunks: Annotated[
        bool, Option("--chunks", help="Show every chunk of a Bloscpack file.")
    ] = False,
    plot: Annotated[
        Path | None,
        Option(
            "--plot", metavar="FILE", help="Draw the chunks of an array, as .png, .svg or .pdf."
        ),
    ] = None,
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Say what a dataset is.

    Format, shape, type, chunks, codec, sizes and attributes; of a table, its columns and first
    rows; of a group or a folder, its members; of a Bloscpack file, its parts.
    """
    with ingot.open(path, options=reading_options(allow_pickle)) as dataset:
        if plot is not None:
            _plot(dataset, path, plot)
        found = dataset.info
        packed = _packed(path, None if chunks else _SHOWN) if _is_packed(dataset, path) else None
        if json:
            print_json(found.to_dict() | ({} if packed is None else {"file": packed}))
            return
        print_info(str(path), found)
        if isinstance(dataset, ingot.Group):
            _print_members(dataset)
    if packed is not None:
        print()
        print_packed(packed)


def _plot(dataset: Any, path: Path, target: Path) -> None:
    """Write a picture of the chunks of an array; its format goes by the suffix."""
    if not isinstance(dataset, ingot.Array):
        raise UnsupportedError(f"{path}: only arrays are drawn; ingot view shows everything")
    found = dataset.survey()
    kind = target.suffix.removeprefix(".").lower()
    picture = matplotlib.chunks_picture(found.counts, found.ratio, str(path), kind)
    with new_file(target) as file:
        write_at(file.descriptor, 0, picture)
        file.publish(overwrite=True)


def print_info(title: str, found: Info) -> None:
    """Print the properties of a dataset; of a table, also its columns and its first rows."""
    pairs = [(name, value) for name, value in found.rows if name != "path"]
    facts = {each["name"]: each for each in found.facts.get("columns", ())}
    codecs = {str(each["codec"]) for each in facts.values()}
    if len(codecs) == 1:
        pairs += [("codec", codecs.pop())]
    print_pairs(pairs, title=title)
    if not found.columns:
        return
    print()
    headings: tuple[str, ...] = ("column", "type", "rows of a chunk", "stored")
    headings += ("codec",) if codecs else ()
    rows = []
    for column in found.columns:
        own = facts.get(column.name, {})
        chunk = own["chunks"][0] if own.get("chunks") else ""
        row = (column.name, column.kind, chunk, column.ratio, own.get("codec", ""))
        rows.append(row[: len(headings)])
    print_table(headings, rows, left=("column", "type", "stored", "codec"))
    print()
    items = zip(*(column.items for column in found.columns), strict=True)
    texts = [number for number, column in enumerate(found.columns) if _is_text(column.kind)]
    print_table([column.name for column in found.columns], items, left=texts)


def _is_text(kind: str) -> bool:
    """Return whether a column of a type is aligned to the left."""
    return kind.startswith(("<U", ">U", "|S", "utf8", "bytes", "json", "object", "str", "Str"))


def _summary(member: Any) -> str:
    """Return what a member is; what is wrong with it where that cannot be said."""
    try:
        return str(member.info.summary)
    except (IngotError, OSError) as error:
        return str(error).partition("\n")[0]


def _is_packed(dataset: Any, path: Path) -> bool:
    return dataset.format == "bloscpack" and os.path.isfile(path)


def _packed(path: Path, shown: int | None) -> dict[str, Any] | None:
    """Return what a Bloscpack file is made of; None where it is a part of something else."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.pread(file, len(MAGIC), 0) != MAGIC:
            return None
        return describe_packed(file, shown)
    finally:
        os.close(file)


def _print_members(group: "ingot.Group") -> None:
    rows: list[tuple[str, ...]] = []
    total = 0
    for name, member, problem in members(group):
        total += 1
        if total > _MOST_MEMBERS:
            continue
        if member is None:
            rows.append((printable(name), "", problem or ""))
        else:
            rows.append((printable(name), member.format, _summary(member)))
    if rows:
        print()
        print_table(("member", "format", "what it is"), rows, left=(0, 1, 2))
    if total > len(rows):
        print_text(f"... and {total - len(rows):,} more: ingot ls lists them")


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


def _describe_chunk(file: int, packed: "packing.PackedFile", number: int) -> dict[str, Any]:
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


def print_packed(report: dict[str, Any]) -> None:
    """Print what a Bloscpack file is made of, as `describe_packed` returns it."""
    plain, packed = report["plain"], report["packed"]
    version, count = report["header"]["version"], report["chunks_total"]
    print_text(
        f"Bloscpack version {version}, {plain:,} bytes in {count:,} "
        f"chunk{'' if count == 1 else 's'}, packed {packed:,} bytes, ratio {plain / packed:.2f}"
    )
    if report["behind"]:
        print_text(f"{report['behind']:,} bytes behind the end")
    print_pairs(report["header"], title="header")
    if report["metadata_section"] is not None:
        print_pairs(report["metadata_section"], title="metadata section")
        text = json_format.dumps(report["metadata"], indent=2, ensure_ascii=False)
        print_text("\n".join(["metadata", *(f"  {line}" for line in text.splitlines())]))
    if report["offsets"] is not None:
        print_pairs(report["offsets"], title="offsets")
    if not report["chunks"]:
        return
    headings = tuple(report["chunks"][0])
    rows: list[tuple[Any, ...]] = []
    before = -1
    for chunk in report["chunks"]:
        if chunk["number"] != before + 1:
            rows.append(("…", *[""] * (len(headings) - 1)))
        before = chunk["number"]
        rows.append(tuple(chunk.values()))
    print()
    print_table(headings, rows, left=("codec", "filter"), title="chunks")
