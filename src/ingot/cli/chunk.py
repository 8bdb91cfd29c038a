"""``ingot chunk``: the inside of a file that holds chunks.

A Blosc chunk, also with the checksum of Zarr behind it; a super-chunk file of bcolz or blsk; a
Bloscpack file.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Final

from ingot import blosc
from ingot.blosc.header import HEADER_BYTES
from ingot.cli.arguments import Json
from ingot.cli.info import describe_packed, print_packed
from ingot.cli.output import print_json, print_pairs, print_table, print_text
from ingot.cli.parameters import Argument, Exit, Option
from ingot.codecs.checksums import crc32c
from ingot.errors import CorruptionError, FormatError, NotFoundError, UnsupportedError
from ingot.formats.bloscpack.header import MAGIC
from ingot.formats.inspection import FileInspection, inspect_file, is_super_chunk
from ingot.formats.signatures import SIGNATURE_BYTES, recognised

__all__ = ["chunk"]

_CHECKSUM_BYTES: Final = 4
_OF_TRAILERS: Final = ("trailer", "number", "rows", "free")
_CHUNK_FILES: Final = ("data/__0.blp", "data/*.blsk", "c/0*", "c/0/*", "__zdata__/*", "0*")


def chunk(
    file: Annotated[Path, Argument(metavar="FILE", help="A file that holds chunks.")],
    number: Annotated[
        int | None, Option("-n", "--number", min=0, help="Show one chunk of a file that has many.")
    ] = None,
    blocks: Annotated[
        bool, Option("-b", "--blocks", help="Show the blocks and streams of a chunk.")
    ] = False,
    json: Json = False,
) -> None:
    """Lay a Blosc chunk open.

    A summary first: header, codec and filters. With --blocks, a map of its blocks and streams. Of a
    super-chunk file of bcolz or blsk, head, index and slots; of a Bloscpack file, header, metadata
    and offsets; --number shows one of their chunks. JSON always has the blocks.
    """
    if file.is_dir():
        raise FormatError(
            f"{file}: a folder; the chunks are in files inside, such as {_inside(file)}"
        )
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(opened).st_size
        first = os.pread(opened, HEADER_BYTES, 0)
        if first[: len(MAGIC)] == MAGIC and first[len(MAGIC) : len(MAGIC) + 1] != b"\x01":
            _show_packed(opened, file, number, blocks, json)
        elif is_super_chunk(first[:4]):
            _show_slots(opened, size, str(file), number, blocks, json)
        elif number is not None:
            raise UnsupportedError(f"{file}: --number is for files of many chunks")
        else:
            _show_single(file, blocks, json)
    finally:
        os.close(opened)


def _inside(folder: Path) -> Path | str:
    """Return a file in a folder that holds chunks, by the names that formats give them."""
    names = (*_CHUNK_FILES, *(f"*/{name}" for name in _CHUNK_FILES))
    found = (path for name in names for path in sorted(folder.glob(name)) if path.is_file())
    return next(found, "data/__0.blp")


def _show_single(file: Path, blocks: bool, json: bool) -> None:
    data = file.read_bytes()
    claim = int.from_bytes(data[12:HEADER_BYTES], "little")
    behind = None
    if len(data) == claim + _CHECKSUM_BYTES:
        behind = int.from_bytes(data[claim:], "little") == crc32c(data[:claim])
        data = data[:claim]
    try:
        inspection = blosc.inspect(data)
    except (CorruptionError, FormatError, UnsupportedError) as error:
        looks = recognised(data[:SIGNATURE_BYTES])
        hint = "" if looks is None else f"; it looks like {looks}"
        raise type(error)(f"{file}: {error}{hint}") from error
    extra = {} if behind is None else {"checksum": "crc32c", "checksum_matches": behind}
    _show(inspection, blocks, json, extra)
    if behind is not None and not json:
        print_text(f"a CRC-32C behind it {'matches' if behind else 'does not match'}")
    if behind is False:
        raise Exit(1)


def _show(inspection: Any, blocks: bool, json: bool, extra: dict[str, Any]) -> None:
    """Print a chunk: all of it, or what stands before its blocks."""
    if json:
        print_json({**extra, **inspection.to_dict()})
        return
    lines = str(inspection).splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith("  block ")), len(lines))
    print_text("\n".join(lines if blocks else lines[:first]))
    if not blocks and first < len(lines):
        count = sum(line.startswith("  block ") for line in lines)
        print_text(f"  {count} block{'' if count == 1 else 's'}; --blocks shows them")


def _show_packed(file: int, path: Path, number: int | None, blocks: bool, json: bool) -> None:
    if number is None:
        report = describe_packed(file, None if blocks else 5)
        if json:
            print_json(report)
        else:
            print_packed(report)
        return
    report = describe_packed(file, None)
    if number >= len(report["chunks"]):
        raise NotFoundError(f"{path}: chunk {number} of {len(report['chunks'])}")
    place = report["chunks"][number]
    inspection = blosc.inspect(os.pread(file, place["cbytes"], place["start"]))
    if not json:
        print_text(f"chunk {number} at {place['start']:,}")
    _show(inspection, blocks, json, {"number": number, "start": place["start"]})


def _show_slots(
    file: int, size: int, where: str, number: int | None, blocks: bool, json: bool
) -> None:
    found = inspect_file(lambda start, length: os.pread(file, length, start), size, where)
    if number is not None:
        _show_slot(file, found, number, blocks, json)
        return
    if json:
        print_json(found.to_dict())
    else:
        print_text("\n".join(found.summary()))
        if found.slots:
            headings, *rows = found.table()
            # Files without trailers, such as those of bcolz itself, have nothing in some columns.
            kept = [
                number
                for number, heading in enumerate(headings)
                if heading not in _OF_TRAILERS or any(row[number] not in ("", "0") for row in rows)
            ]
            print_table(
                [headings[n] for n in kept],
                [[row[n] for n in kept] for row in rows],
                left=("codec", "filter"),
            )
    if found.is_damaged:
        raise Exit(1)


def _show_slot(file: int, found: FileInspection, number: int, blocks: bool, json: bool) -> None:
    slot = next((slot for slot in found.slots if slot.entry == number), None)
    if slot is None:
        raise NotFoundError(f"{found.where}: entry {number} of the index has no chunk")
    if slot.damage:
        raise UnsupportedError(f"{found.where}: chunk {number}: {slot.damage}")
    inspection = blosc.inspect(os.pread(file, slot.cbytes, slot.start))
    if not json:
        pairs = {"start": slot.start, "free behind it": f"{slot.room - slot.used:,} bytes"}
        if slot.number is not None:
            pairs["trailer"] = f"{slot.trailer_bytes:,} bytes"
            pairs["in its array"] = f"chunk {slot.number} of its array, {slot.rows} rows"
        if slot.identity is not None:
            pairs["array"] = slot.identity
        print_pairs(pairs, title=f"chunk {number}")
    report = found.to_dict()["slots"][found.slots.index(slot)]
    _show(inspection, blocks, json, {"slot": report})
