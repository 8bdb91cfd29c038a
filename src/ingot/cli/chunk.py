"""``ingot chunk``: the inside of a Blosc chunk, or of a super-chunk file of bcolz or blsk."""

import json as json_format
import os
import stat
from pathlib import Path
from typing import Annotated, Any

from ingot import blosc
from ingot.cli.arguments import Json
from ingot.cli.columns import align
from ingot.cli.parameters import Argument, Exit, Option
from ingot.errors import NotFoundError, UnsupportedError
from ingot.formats.inspection import FileInspection, inspect_file, is_super_chunk

__all__ = ["chunk"]


def chunk(
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="A Blosc chunk, or a super-chunk file."),
    ],
    number: Annotated[
        int | None,
        Option("--number", "-n", help="Show one chunk of a super-chunk file, by its entry."),
    ] = None,
    json: Json = False,
) -> None:
    """Lay a Blosc chunk open.

    Its header, and a map of its blocks and streams with ratios.
    Of a super-chunk file: head, index and slots, spare and dead bytes; its chunks by --number.
    """
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        facts = os.fstat(opened)
        if stat.S_ISREG(facts.st_mode) and is_super_chunk(os.pread(opened, 4, 0)):
            _show_file(opened, facts.st_size, str(file), number, json)
            return
    finally:
        os.close(opened)
    if number is not None:
        raise UnsupportedError(f"{file}: --number is for super-chunk files")
    inspection = blosc.inspect(file.read_bytes())
    print(json_format.dumps(inspection.to_dict(), indent=2) if json else inspection)


def _show_file(file: int, size: int, where: str, number: int | None, json: bool) -> None:
    def read(start: int, length: int) -> bytes:
        return os.pread(file, length, start)

    found = inspect_file(read, size, where)
    if number is not None:
        _show_chunk(file, found, number, json)
        return
    if json:
        print(json_format.dumps(found.to_dict(), indent=2))
    else:
        print(*found.summary(), sep="\n")
        if found.slots:
            print(align(found.table(), left=(4, 5)))
    if found.is_damaged:
        raise Exit(1)


def _show_chunk(file: int, found: FileInspection, number: int, json: bool) -> None:
    slot = next((slot for slot in found.slots if slot.entry == number), None)
    if slot is None:
        raise NotFoundError(f"{found.where}: entry {number} of the index has no chunk")
    if slot.damage:
        raise UnsupportedError(f"{found.where}: chunk {number}: {slot.damage}")
    inspection = blosc.inspect(os.pread(file, slot.cbytes, slot.start))
    if json:
        report: dict[str, Any] = found.to_dict()["slots"][found.slots.index(slot)]
        print(json_format.dumps({"slot": report, **inspection.to_dict()}, indent=2))
        return
    print(f"chunk {number} at {slot.start:,}, {slot.room - slot.used:,} bytes free behind it")
    if slot.number is not None:
        identity = "" if slot.identity is None else f", array {slot.identity}"
        size = f"{slot.trailer_bytes:,} bytes"
        print(f"trailer of {size}: chunk {slot.number} of its array, {slot.rows} rows{identity}")
    print(inspection)
