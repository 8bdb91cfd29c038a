"""Programs written for bcolz: bcolz itself beside `ingot.compat.bcolz`, in one run.

The programs are those of bcolz's own benchmarks: the sum of a carray, iteration over carrays and
ctables, `where`, expressions, appends of single values, of small blocks and of large arrays. Bar:
twice as fast as bcolz.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from time import process_time
from typing import Any

import numpy as np

import ingot.compat.bcolz
from benchmarks.packages import NOT_INSTALLED, installed, load
from benchmarks.race import Sampler, race, stopwatch
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value

__all__ = ["BAR", "PROGRAMS", "run"]

BAR = 2.0
ROWS = 10_000_000
SINGLE = 20_000
BLOCKS = 2_000
BLOCK = 1_000

Program = Callable[[Any, dict[str, Any]], object]
"""A program: it is given a module, bcolz or ours, and the data that it has made."""


def _consumed(rows: Iterable[Any]) -> None:
    deque(rows, maxlen=0)


def _append_values(bcolz: Any, data: dict[str, Any]) -> object:
    made = bcolz.carray(np.empty(0, "i8"), expectedlen=SINGLE)
    append = made.append
    for value in range(SINGLE):
        append(value)
    return made


def _append_blocks(bcolz: Any, data: dict[str, Any]) -> object:
    made = bcolz.carray(np.empty(0, "i8"), expectedlen=BLOCK * BLOCKS)
    append, block = made.append, data["block"]
    for _ in range(BLOCKS):
        append(block)
    return made


def _concatenate(bcolz: Any, data: dict[str, Any]) -> object:
    made = bcolz.carray(data["ints"], expectedlen=10 * len(data["ints"]))
    for _ in range(4):
        made.append(data["ints"])
    return made


def _append_rows(bcolz: Any, data: dict[str, Any]) -> object:
    made = bcolz.ctable(np.empty(0, "i8,f8,f8"), expectedlen=SINGLE)
    for value in range(SINGLE // 10):
        made.append((value, 1.5, 2.5))
    return made


PROGRAMS: dict[str, Program] = {
    "sum, integers": lambda bcolz, data: data["a"].sum(),
    "sum, floats": lambda bcolz, data: data["b"].sum(),
    "all rows of a carray": lambda bcolz, data: data["b"][:],
    "iterate, integers": lambda bcolz, data: _consumed(data["a"]),
    "iterate, floats": lambda bcolz, data: _consumed(data["b"]),
    "iterate, every tenth": lambda bcolz, data: _consumed(data["a"].iter(3, None, 10)),
    "iterate rows of a ctable": lambda bcolz, data: _consumed(data["few"]),
    "where, 1 % of rows": lambda bcolz, data: _consumed(
        data["table"].where("(b > 0.5) & (b <= 0.51)")
    ),
    "where, half of the rows": lambda bcolz, data: _consumed(data["few"].where("b > 0.5")),
    "where, two of four columns": lambda bcolz, data: _consumed(
        data["table"].where("(a % 100 == 7) & (b > 0.9)", outcols=["a", "c"])
    ),
    "fetchwhere": lambda bcolz, data: data["table"].fetchwhere("b > 0.9", out_flavor="numpy"),
    "wheretrue": lambda bcolz, data: _consumed(data["mask"].wheretrue()),
    "eval": lambda bcolz, data: bcolz.eval(
        "a * 2 + b > 3", user_dict={"a": data["a"], "b": data["b"]}
    ),
    "make a carray": lambda bcolz, data: bcolz.carray(data["floats"]),
    "append single values": _append_values,
    "append 1000 rows at a time": _append_blocks,
    "append large arrays": _concatenate,
    "append rows to a ctable": _append_rows,
}


def run(settings: Settings) -> list[Table]:
    """Run every program with both modules."""
    modules = {"bcolz": load("bcolz") if installed("bcolz") else None, "ingot": ingot.compat.bcolz}
    rows = max(20_000, int(ROWS * min(1.0, settings.scale)))
    made = {name: _data(module, rows) for name, module in modules.items() if module is not None}
    lines: list[tuple[Value, ...]] = []
    for title, program in PROGRAMS.items():
        settings.say(f"compat {title}")
        samplers: dict[str, Sampler] = {
            name: stopwatch(partial(program, modules[name], made[name])) for name in made
        }
        times = race(samplers, settings.effort)
        ratio = times["bcolz"] / times["ingot"] if "bcolz" in times else None
        spent = race(
            {
                name: stopwatch(partial(program, modules[name], made[name]), clock=process_time)
                for name in made
            },
            settings.effort,
        )
        processor = spent["bcolz"] / spent["ingot"] if "bcolz" in spent else None
        bar = None if ratio is None else settings.verdict(ratio >= BAR)
        theirs = times["bcolz"] * 1e3 if "bcolz" in times else NOT_INSTALLED
        lines.append((title, theirs, times["ingot"] * 1e3, ratio, processor, bar))
    columns = (
        Column("program"),
        Column("bcolz ms", ".2f"),
        Column("ingot ms", ".2f"),
        Column("ratio", ".2f"),
        Column("ratio of processor time", ".2f"),
        Column("bar"),
    )
    title = f"Programs of bcolz, {rows} rows in memory"
    return [Table("compat", title, columns, tuple(lines))]


def _data(bcolz: Any, rows: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    ints, floats = np.arange(rows), random.random(rows)
    columns = [ints, floats, ints * 0.5, (ints % 1000).astype("i4")]
    few = rows // 10
    return {
        "ints": ints,
        "floats": floats,
        "block": np.arange(BLOCK),
        "a": bcolz.carray(ints),
        "b": bcolz.carray(floats),
        "mask": bcolz.carray(floats > 0.9),
        "table": bcolz.ctable(columns, names=["a", "b", "c", "d"]),
        "few": bcolz.ctable([each[:few] for each in columns], names=["a", "b", "c", "d"]),
    }
