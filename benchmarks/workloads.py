"""Every workload by name, and names that stand for several."""

from collections.abc import Callable, Sequence

from benchmarks import (
    arrays,
    blsk,
    check,
    cli,
    commits,
    compat,
    convert,
    decode,
    doors,
    encode,
    everywhere,
    extended,
    four,
    gpu,
    groups,
    imports,
    many,
    memory,
    overhead,
    shards,
    slices,
    tables,
    text,
)
from benchmarks.settings import Settings
from benchmarks.table import Table

__all__ = ["GROUPS", "WITH_ZARR", "WORKLOADS", "choose"]

WORKLOADS: dict[str, Callable[[Settings], list[Table]]] = {
    "decode": decode.run,
    "encode": encode.run,
    "overhead": overhead.run,
    "slices": slices.run,
    "extended": extended.run,
    "arrays": arrays.run,
    "four": four.run,
    "many": many.run,
    "memory": memory.run,
    "shards": shards.run,
    "tables": tables.run,
    "text": text.run,
    "doors": doors.run,
    "blsk": blsk.run,
    "compat": compat.run,
    "groups": groups.run,
    "commits": commits.run,
    "convert": convert.run,
    "check": check.run,
    "everywhere": everywhere.run,
    "imports": imports.run,
    "cli": cli.run,
    "gpu": gpu.run,
}

WITH_ZARR = ("arrays", "four", "many", "memory", "shards")
"""The workloads in which zarr takes part, and which may need a newer Python."""

GROUPS: dict[str, tuple[str, ...]] = {
    "chunks": ("decode", "encode", "overhead", "slices", "extended"),
    "scaling": ("four", "many", "memory"),
    "all": tuple(WORKLOADS),
}


def choose(names: Sequence[str]) -> list[str]:
    """Return the workloads that names stand for, each one once; all of them for no names.

    >>> choose(["overhead", "chunks"])
    ['overhead', 'decode', 'encode', 'slices', 'extended']
    >>> choose(["speed"])
    Traceback (most recent call last):
    ValueError: no workload 'speed', known are decode, encode, overhead, slices, extended, \
arrays, four, many, memory, shards, tables, text, doors, blsk, compat, groups, commits, convert, \
check, everywhere, imports, cli, gpu, chunks, scaling, all
    """
    chosen: dict[str, None] = {}
    for name in names or ["all"]:
        if name not in WORKLOADS and name not in GROUPS:
            known = ", ".join([*WORKLOADS, *GROUPS])
            raise ValueError(f"no workload {name!r}, known are {known}")
        chosen.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return list(chosen)
