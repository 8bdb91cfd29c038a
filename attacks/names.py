"""The attack `names`: names of members and columns that collide, escape or are merely odd.

A name is refused with an `IngotError` before anything is made, or it is accepted and the member
can be read again by a new handle, with all other members, and by zarr where zarr knows the format.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.campaign import Case, attack
from attacks.datasets import STORES
from attacks.programs import IMPORTS

__all__ = ["names"]

NAMES = (
    ".commit", ".lock", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json", ".g-x-y",
    ".g-0123456789abcdef-zarr.json", ".g-", "meta", "data", "attrs", "sizes", "storage",
    "__attrs__", "__rootdirs__", "__zmeta__", "__zdata__", "c", "0", "0.0", "c/0", "x/.commit",
    "x/.zarray", "x/zarr.json", ".commit/x", ".lock/x", ".g-x-y/z", "__0.blp", "..", ".", "...",
    "a..", "../x", "x/..", "x/../y", "/x", "x/", "/", "", "x//y", "a.", "a ", " a", " ", "a\\b",
    "C:", "C:\\x", "a:b", "CON", "con", "NUL", "nul.txt", "COM1", "aux", "a\x00b", "\n", "a\nb",
    "\x7f", "\x1b[31m", "é", "e\u0301", "ß", "\u0130", "日本語", "\U0001f600", "\u202e", "\ufeff",
    "\ud800", "a" * 255, "a" * 256, "é" * 128, "a" * 5000, "a/b/c/d/e/f/g/h", "/".join("a" * 90),
    "-", "--help", "*", "?", "<", "|", "~", "$HOME", "%00", "a=b", "'", "\"", "`", "[0]", "{}",
    "x[0]", "index", "names", "True", "None", "1", "-1", "1e5", "and", "a.b", "a.b.c", ".hidden",
    ".nfs0001", ".zarr", "x.zip", "__pycache__", "Z", "z",
)  # fmt: skip

USES = {
    "group array": (
        "group",
        "h.array(name, np.arange(5))",
        "h[name][...].tolist() == [0, 1, 2, 3, 4]",
    ),
    "group create": (
        "group",
        "h.create_array(name, shape=(5,), dtype='i4', fill=3)",
        "h[name][...].tolist() == [3] * 5",
    ),
    "group group": ("group", "h.group(name)", "list(h[name]) == []"),
    "column": (
        "table",
        "h.add_column(name, np.arange(6))",
        "h[name][...].tolist() == [0, 1, 2, 3, 4, 5]",
    ),
    "renamed column": (
        "table",
        "h.rename_column('b', name)",
        "h[name][...].tolist() == [0, 2, 4, 6, 8, 10]",
    ),
    "new table": ("new table", "ingot.table({'k': np.arange(3), name: np.arange(3)}, place)", None),
}
"""What is done with a name: the container, the statement, and what then holds of a new handle."""

MAKE = {
    "group": "h = ingot.group(place, format={format!r}); h.array('x1', np.arange(4))",
    "table": "h = ingot.table({{'b': 2 * np.arange(6)}}, place, format={format!r})",
    "new table": "",
}
INTACT = {
    "group": "h['x1'][...].tolist() == [0, 1, 2, 3] and len(list(h)) >= 1",
    "table": "'b' in h.names and h['b'][...].tolist() == [0, 2, 4, 6, 8, 10]",
    "new table": "True",
}


def listing(folder: Path) -> set[str]:
    """Return every path below a folder but those of locks."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.name.endswith(".lock") or path.is_dir()
    }


@attack("names")
def names(case: Case) -> None:
    """Names of members and columns: refused before anything is made, or readable again."""
    everything = [
        (use, format, store, name)
        for use, (holds, _, _) in USES.items()
        for format, kinds in sorted(ingot.formats().items())
        if holds.split()[-1] in kinds
        for store in ("folder", "zip", "memory")
        for name in NAMES
    ]
    # A stride that has no common divisor with the number visits every combination once.
    stride = next(s for s in (7919, 7907, 7901, 7883) if len(everything) % s)
    for number in range(10):
        chosen = everything[((case.number * 10 + number + case.seed) * stride) % len(everything)]
        attempt(case, case.folder / str(number), *chosen)


def attempt(case: Case, folder: Path, use: str, format: str, store: str, name: str) -> None:
    """Use one name in one way."""
    folder.mkdir()
    holds, statement, holds_then = USES[use]
    make = MAKE[holds].format(format=format)
    program = f"""{IMPORTS}
name = {name!r}
folder = tempfile.mkdtemp()
place = {STORES[store]}
{make}
try:
    {statement}
except (ingot.errors.IngotError, ValueError) as error:
    print("refused:", error)
h = ingot.open(place)
print(list(getattr(h, "names", h)), os.listdir(folder))
"""
    title = f"{use} {name[:30]!r} in {format}"
    case.announce(program, title)
    case.count("names")
    space: dict[str, Any] = {
        "ingot": ingot,
        "np": np,
        "os": os,
        "folder": str(folder),
        "name": name,
    }
    exec(f"place = {STORES[store]}\n{make}", space)
    before = listing(folder)
    outside = set(os.listdir(folder.parent))

    def find(kind: str, expected: str, happened: str) -> None:
        text = f"{happened[:400]}\nin {store}"
        case.find(kind, title, expected=expected, happened=text, program=program)

    accepted = False
    try:
        exec(statement, space)
        accepted = True
    except (ingot.errors.IngotError, ValueError):
        # An argument that is no name at all may be an ordinary ValueError.
        case.count("refused")
    except Exception as error:
        find("error", "an IngotError or a ValueError", f"{type(error).__name__}: {error}")
    left = listing(folder) - before if store != "zip" else set()
    if not accepted and left:
        find("left behind", "a refused name makes nothing", f"made {sorted(left)}")
    if set(os.listdir(folder.parent)) != outside:
        find("escape", "nothing outside the dataset", str(set(os.listdir(folder.parent)) - outside))
    if holds == "new table":
        if not accepted:
            return
        holds_then = "len(h) == 3 and h[name][...].tolist() == [0, 1, 2]"
    try:
        exec('h = ingot.open(place, "r+")', space)
        # Renaming takes the column away that the check would look for.
        gone = use == "renamed column" and accepted
        if not gone and not eval(INTACT[holds], space):
            find("broken", "the other members as before", "they are not")
        if accepted and not eval(holds_then or "True", space):
            find("broken", "the member as it was made", "it reads as something else")
        exec("h.attrs['z'] = 1", space)
    except Exception as error:
        kind = "broken" if accepted else "unopenable"
        find(kind, "a dataset that opens and reads again", f"{type(error).__name__}: {error}")
        return
    if accepted and holds == "group" and store == "folder":
        by_zarr(find, space, name, use)


def by_zarr(find: Any, space: dict[str, Any], name: str, use: str) -> None:
    """Let zarr read an accepted member."""
    with contextlib.suppress(ImportError):
        import zarr

        try:
            member = zarr.open_group(space["place"], mode="r")[name]
            want = space["h"][name]
            if use != "group group" and member[...].tolist() != want[...].tolist():
                find("zarr", "zarr reads the member", "zarr reads something else")
        except Exception as error:
            find("zarr", "zarr reads the member", f"{type(error).__name__}: {error}")
