"""``ingot ls`` and ``ingot tree``: the datasets of a folder or a group, and below."""

import os
from pathlib import Path
from typing import Annotated, Any, Final

import ingot
from ingot.cli.arguments import Json
from ingot.cli.output import print_json, print_table, print_text
from ingot.cli.parameters import Argument, Exit, Option
from ingot.containers.folder import Found, walk
from ingot.errors import IngotError
from ingot.fields import printable

__all__ = ["list_datasets", "ls", "tree"]

_FACTS: Final = ("shape", "dtype", "chunks", "rows", "length", "nbytes", "stored", "ratio")
"""What ``ls --json`` says of a dataset, where it has it."""

Where = Annotated[Path, Argument(metavar="[PATH]", help="A folder, a group or any other dataset.")]


def ls(path: Where = Path("."), json: Json = False) -> None:
    """List the datasets of a folder or a group.

    Every dataset below it is listed, of any format; groups before their members. What cannot be
    opened is listed with the reason, and the exit status is 1.
    """
    found = list_datasets(path)
    if json:
        print_json(found)
    elif not found:
        print_text(f"{path}: no datasets")
    else:
        rows = [
            (
                printable(each["path"]),
                each.get("format", ""),
                each.get("summary") or each["problem"],
            )
            for each in found
        ]
        print_table(("path", "format", "what it is"), rows, left=(0, 1, 2), whole=(0,))
    if any("problem" in each for each in found):
        raise Exit(1)


def tree(
    path: Where = Path("."),
    depth: Annotated[
        int | None, Option("-d", "--depth", min=0, help="How many levels to show.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw the datasets of a folder or a group as a tree.

    With --json, print the same list as ``ls --json``.
    """
    if json:
        limited = list_datasets(path)
        if depth is not None:
            limited = [each for each in limited if each["name"].count("/") < depth]
        print_json(limited)
        return
    with ingot.open(path) as dataset:
        if isinstance(dataset, ingot.Group):
            first, *rest = str(dataset.tree(depth)).splitlines()
            print_text("\n".join([f"{path} {first.removeprefix('/')}".rstrip(), *rest]))
        else:
            print_text(f"{path} {dataset.info.summary}, {dataset.format}")


def list_datasets(path: Path) -> list[dict[str, Any]]:
    """Return what ``ls --json`` prints: all datasets at a path and below it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ingot.array([1, 2], f"{folder}/a.zarr")
    ...     [(each["name"], each["kind"], each["shape"]) for each in list_datasets(Path(folder))]
    [('a.zarr', 'array', [2])]
    """
    with ingot.open(path) as dataset:
        if isinstance(dataset, ingot.Group):
            return [_described(path, found) for found in walk(dataset)]
        return [_described(path, Found("", dataset))]


def _described(path: Path, found: Found) -> dict[str, Any]:
    inside = found.name if path == Path(".") else os.path.join(path, found.name)
    place = inside if found.name else str(path)
    named = {"path": place, "name": found.name or path.name}
    dataset: Any = found.dataset
    if dataset is None:
        return {**named, "problem": found.problem}
    kind = type(dataset).__name__.lower()
    try:
        shown = dataset.info
    except (IngotError, OSError) as error:
        problem = str(error).partition("\n")[0]
        return {**named, "format": dataset.format, "kind": kind, "problem": problem}
    facts = shown.to_dict()
    own = {name: facts[name] for name in _FACTS if name in facts}
    return {
        **named,
        "format": facts["format"],
        "kind": facts["kind"],
        **own,
        "summary": shown.summary,
    }
