"""Conversion of many datasets at once: a plain folder of them, or a group whose members are spread.

Each dataset is converted by itself, in the same tree. One that fails does not keep the others from
it. A folder that was left half-way is continued: a file in it names the datasets that are done.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from ingot.containers.conversion import Conversion
from ingot.containers.dataset import Dataset
from ingot.containers.folder import FolderGroup
from ingot.containers.group import Group
from ingot.containers.resolve import Path
from ingot.conversion import run
from ingot.conversion.plan import Wanted
from ingot.conversion.run import Progress
from ingot.errors import ExistsError, IngotError, UnsupportedError
from ingot.formats.format import Kind
from ingot.formats.paths import joined
from ingot.formats.registry import FORMATS, entry_of_suffix
from ingot.stores.local.files import write_at
from ingot.stores.local.new_file import new_file

__all__ = ["FOLDER", "convert", "is_spread"]

FOLDER: Final = "folder"
"""What stands for a format where the target is a plain folder of datasets."""

_RECORD: Final = ".convert.json"


def is_spread(source: Group, path: Path | None, format: str | None) -> bool:
    """Return whether the members of a source become datasets of their own, in a plain folder."""
    if isinstance(source, FolderGroup):
        return True
    entry = None if format is None else FORMATS.entries.get(format)
    if format is None and isinstance(path, str | os.PathLike):
        entry = entry_of_suffix(os.fspath(path))
    return entry is not None and Kind.GROUP not in entry.holds


def convert(
    source: Group,
    path: Path | None,
    format: str | None,
    wanted: Wanted,
    *,
    overwrite: bool,
    progress: Progress | None,
    verify: bool,
) -> Conversion:
    """Convert every dataset below a group or a folder, and return the record of all of them."""
    name = source.path or "memory"
    if not isinstance(path, str | os.PathLike):
        raise UnsupportedError(f"{name}: many datasets are converted into a folder, not a store")
    target = os.path.abspath(path)
    run.check_folders_apart(source.path, target)
    done = _begin(name, target, overwrite=overwrite)
    changes: list[str] = []
    records: list[Conversion] = []
    failures: list[tuple[str, str]] = []
    with source.snapshot():
        for own, dataset in _members(source, "", changes, failures):
            place = os.path.join(target, *_renamed(own, format).split("/"))
            if own in done:
                continue
            try:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                new = run.new_place(dataset, place, format)
                records.append(
                    run.convert(
                        dataset, new, wanted, overwrite=overwrite, progress=progress, verify=verify
                    )
                )
            except (IngotError, OSError) as error:
                notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
                failures.append((own, f"{error}{notes}"))
                continue
            done.append(own)
            _write(target, name, done)
    if not done:
        _remove_empty(target)
        reasons = "; ".join(f"{own}: {reason}" for own, reason in failures)
        raise UnsupportedError(f"{name}: no dataset was converted: {reasons or 'there is none'}")
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(target, _RECORD))
    return Conversion(
        source=name,
        source_format=source.format,
        target=target,
        format=FOLDER,
        changes=tuple(changes),
        chunks=sum(each.chunks for each in records),
        untouched=sum(each.untouched for each in records),
        nbytes=sum(each.nbytes for each in records),
        verified=verify and not failures,
        members=tuple(records),
        failures=tuple(failures),
    )


def _begin(source: str, target: str, *, overwrite: bool) -> list[str]:
    """Return the datasets that an earlier run has converted; refuse a folder of something else."""
    try:
        with open(os.path.join(target, _RECORD), "rb") as file:
            found = json.load(file)
        if found["source"] == source:
            return [str(own) for own in found["done"]]
        raise ExistsError(f"{target}: holds an unfinished conversion of {found['source']}")
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError):
        raise ExistsError(f"{target}: {_RECORD} is no record of a conversion") from None
    empty = not os.path.lexists(target) or (os.path.isdir(target) and not os.listdir(target))
    if not empty and not overwrite:
        raise ExistsError(
            f"{target}: the folder is there already, and is not empty; overwrite=True allows it"
        )
    return []


def _write(target: str, source: str, done: list[str]) -> None:
    data = json.dumps({"source": source, "done": done}).encode()
    with new_file(os.path.join(target, _RECORD)) as file:
        write_at(file.descriptor, 0, data)
        file.publish(overwrite=True)


def _members(
    group: Group, path: str, changes: list[str], failures: list[tuple[str, str]]
) -> Iterator[tuple[str, Dataset[Any]]]:
    """Yield the datasets below a group, with their paths; list what is none."""
    if isinstance(group, FolderGroup):
        entries = group.entries()
        for stray in sorted(set(os.listdir(group.folder)) - entries.keys()):
            changes.append(f"{joined(path, stray)}: no dataset, it is not copied")
    else:
        entries = dict.fromkeys(group)
        for attribute in group.attrs:
            place = f"{path}: " if path else ""
            changes.append(f"{place}attribute {attribute!r} of the group is dropped")
    for name, problem in entries.items():
        own = joined(path, name)
        if problem is not None:
            failures.append((own, problem))
            continue
        try:
            member: Dataset[Any] = group[name]
        except (IngotError, OSError) as error:
            failures.append((own, str(error)))
            continue
        spread = isinstance(member, FolderGroup) or not isinstance(group, FolderGroup)
        if isinstance(member, Group) and spread:
            yield from _members(member, own, changes, failures)
        else:
            yield own, member


def _renamed(own: str, format: str | None) -> str:
    """Return the path of a dataset, with the suffix of its new format for that of the old one.

    >>> _renamed("a/prices.bcolz", "zarr3"), _renamed("a/prices", "zarr3")
    ('a/prices.zarr', 'a/prices')
    """
    entry = entry_of_suffix(own)
    if format is None or entry is None or entry.name == format or format not in FORMATS.entries:
        return own
    old = next(each for each in entry.suffixes if own.lower().endswith(each))
    return own[: -len(old)] + (*FORMATS.entries[format].suffixes, "")[0]


def _remove_empty(target: str) -> None:
    """Remove folders that hold nothing."""
    for folder, _, _ in os.walk(target, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
