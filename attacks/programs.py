"""Random programs over containers, each with a model in NumPy.

A program is a list of steps. A step is source text: what is done with Ingot, and what the model
does. So a program that fails is printed as it is, and becomes shorter by leaving steps out. The
functions of the first part are copied into reproductions, and use only NumPy and Ingot.
"""

import functools
import inspect
import itertools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import ingot
from attacks.datasets import STORES

__all__ = ["DTYPES", "Failure", "Program", "Step", "content", "data", "prelude", "same", "state"]


def data(seed, shape, dtype):
    """Return an array of values that are easily lost, the same for the same arguments."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if seed % 5 == 0:
        return np.zeros(shape, dtype)
    if dtype.names:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            kind = dtype[name]
            out[name] = data(seed + 1, (*out.shape, *kind.shape), kind.base)
        return out
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if dtype.kind in "iu":
        few = np.array([0, 1, 2, 7, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        return np.asarray(few[rng.integers(0, len(few), shape)])
    if dtype.kind in "fc":
        with np.errstate(all="ignore"):
            few = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, 1.5, 1e-300, 7.0]).astype(dtype)
        return np.asarray(few[rng.integers(0, len(few), shape)])
    if dtype.kind == "S":
        few = np.array([b"", b"a", b"a\0b", b"\0x", b"zz\xff"], dtype)
        return np.asarray(few[rng.integers(0, len(few), shape)])
    if dtype.kind == "U":
        few = np.array(["", "a", "a\0b", "\0x", "\u00e9\U0001f600"], dtype)
        return np.asarray(few[rng.integers(0, len(few), shape)])
    if dtype.kind in "mM":
        few = np.array([0, 1, -5, 10**9, np.iinfo("i8").min], "i8").view(dtype.newbyteorder("="))
        return np.asarray(few[rng.integers(0, len(few), shape)], dtype)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    return np.frombuffer(bytearray(rng.bytes(size)), dtype, count=-1 if size else 0).reshape(shape)


def same(got, want):
    """Fail unless two arrays agree in shape, type and every bit."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    types = got.dtype.newbyteorder("="), want.dtype.newbyteorder("=")
    assert types[0] == types[1], f"type {got.dtype}, expected {want.dtype}"
    bits = got.astype(want.dtype).tobytes(), want.tobytes()
    assert bits[0] == bits[1], f"got {got.tolist()}, expected {want.tolist()}"


def content(thing):
    """Return all that a dataset holds, as values that can be compared."""
    attrs = json.dumps(dict(thing.attrs), sort_keys=True, default=str)
    if isinstance(thing, ingot.Group):
        return {"attrs": attrs, **{name: content(thing[name]) for name in sorted(thing)}}
    if isinstance(thing, ingot.Table):
        columns = thing.read()
        names = list(thing.names)
        return {"attrs": attrs, "names": names, **{n: columns[n].tolist() for n in columns}}
    if isinstance(thing, ingot.Array):
        value = np.asarray(thing[...])
        return {"attrs": attrs, "shape": value.shape, "bits": value.tobytes().hex()}
    return {"attrs": attrs, "items": list(thing)}


def state(place):
    """Return the content of a dataset, or None where there is none."""
    try:
        return content(ingot.open(place))
    except ingot.errors.NotFoundError:
        return None


IMPORTS = """import json
import os
import tempfile

import numpy as np

import ingot
"""


@functools.cache
def prelude(*functions: Any) -> str:
    """Return the source of the functions, with the imports that they need."""
    return "\n\n".join([IMPORTS, *(inspect.getsource(each) for each in functions)])


DTYPES = (
    "<i4", ">i8", "|u1", "<u2", "|b1", "<f2", "<f4", ">f8", "<c8", ">c16", "|S5", "<U3", "<M8[s]",
    "<m8[ms]", "|V3", "<i8", "<f8", [("a", "<i4"), ("b", "|S3")],
    [("x", ">f4"), ("y", "<u2", (2,))],
)  # fmt: skip
"""Types of items, as NumPy spells them."""


@dataclass(frozen=True)
class Step:
    """One step: what Ingot does, and what the model does where Ingot does not refuse."""

    ours: str
    model: str = ""


@dataclass(frozen=True)
class Failure:
    """How a program failed, and after how many steps."""

    kind: str
    steps: int
    message: str


CHECK = {
    "array": "same(h[...], m); assert dict(h.attrs) == t, (dict(h.attrs), t)",
    "table": (
        "assert list(h.names) == list(m), (h.names, list(m)); r = h.read(); "
        "[same(r[n], m[n]) for n in m]; assert len(h) == len(next(iter(m.values()), ())); "
        "assert dict(h.attrs) == t, (dict(h.attrs), t)"
    ),
    "group": (
        "assert sorted(h) == sorted({n.split('/')[0] for n in m}), (sorted(h), sorted(m)); "
        "[same(h[n][...], m[n]) for n in m if m[n] is not None]; "
        "assert dict(h.attrs) == t, (dict(h.attrs), t)"
    ),
}
"""What must hold after every step, by the kind of container."""


@dataclass
class Program:
    """A random program: its container, its store, and the steps so far."""

    random: Random
    holds: str
    format: str
    store: str
    folder: Path
    steps: list[Step] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    # --- running

    def space(self) -> dict[str, Any]:
        """Return the names that a program sees, with an empty folder of its own."""
        folder = self.folder / f"run-{next(self.numbers)}"
        folder.mkdir()
        space = {"np": np, "os": os, "ingot": ingot, "json": json, "folder": str(folder)}
        space |= {"data": data, "same": same, "t": {}}
        exec("place = " + STORES[self.store], space)
        return space

    def play(self, steps: list[Step], space: dict[str, Any] | None = None) -> Failure | None:
        """Run the steps in a new place; return the first failure."""
        space = self.space() if space is None else space
        for number, step in enumerate(steps):
            failure = self.do(step, space, number)
            if failure is not None:
                return failure
        return None

    def do(self, step: Step, space: dict[str, Any], number: int = 0) -> Failure | None:
        """Run one step and compare the container with its model."""
        try:
            exec(step.ours, space)
        except ingot.errors.UnsupportedError:
            # A format may refuse what it cannot hold; then nothing has changed.
            if number == 0:
                return Failure("refused", number, "")
        except Exception as error:
            try:
                exec(step.model, space)
            except Exception as refused:
                # Without the steps before it, NumPy may refuse the step as well.
                return Failure("model", number, f"{type(refused).__name__}: {refused}")
            return Failure("error", number, f"{type(error).__name__}: {error}")
        else:
            try:
                exec(step.model, space)
            except AssertionError as error:
                return Failure("wrong", number, str(error)[:600])
            except Exception as error:
                # Without the steps before it the model may not be able to follow.
                return Failure("model", number, f"{type(error).__name__}: {error}")
        try:
            exec(CHECK[self.holds], space)
        except AssertionError as error:
            return Failure("wrong", number, str(error)[:600])
        except Exception as error:
            return Failure("error", number, f"{type(error).__name__}: {error}")
        return None

    def source(self, steps: list[Step]) -> str:
        """Return the program as a file of its own."""
        lines = ["folder = tempfile.mkdtemp()", f"place = {STORES[self.store]}", "t = {}"]
        for step in steps:
            lines += [step.ours, *filter(None, [step.model]), CHECK[self.holds]]
        return prelude(data, same) + "\n\n" + "\n".join(lines)

    # --- making it up

    def create(self) -> Step:
        """Return the step that makes the container."""
        return getattr(self, f"create_{self.holds}")()

    def next(self, space: dict[str, Any]) -> Step:
        """Return a random step that the model can do."""
        return getattr(self, f"next_{self.holds}")(space)

    def value(self, shape: tuple[int, ...], dtype: Any) -> str:
        """Return the source of random data."""
        return f"data({self.random.randrange(1000)}, {tuple(shape)!r}, {dtype!r})"

    def create_array(self) -> Step:
        rng = self.random
        dtype = rng.choice(DTYPES)
        ndim = rng.choice((0, 1, 1, 1, 2, 2, 3))
        shape = tuple(rng.choice((0, 1, 3, 7, 11, 16)) for _ in range(ndim))
        chunks = tuple(rng.choice((1, 2, 3, 5, 8)) for _ in shape)
        layout = "" if rng.random() < 0.3 or not ndim else f", chunks={chunks!r}"
        if self.format == "bcolz" and layout:
            layout = f", chunks={chunks[0]}"
        if self.format == "zarr3" and layout and rng.random() < 0.3:
            shards = tuple(size * rng.choice((1, 2, 3)) for size in chunks)
            layout += f", shards={shards!r}"
        if self.format == "blsk" and layout:
            layout += f", superchunksize={rng.choice((1, 2, 5, 64))}, order={rng.choice('CF')!r}"
            layout += f", spare={rng.choice((0, 0.1, 1))}"
        value = self.value(shape, dtype)
        return Step(
            f'h = ingot.array({value}, place, format="{self.format}"{layout})',
            f"m = {value}",
        )

    def key(self, shape: tuple[int, ...], plain: bool = False) -> str:
        """Return the source of a random selection."""
        rng = self.random
        if not shape:
            return rng.choice(("...", "()"))
        parts = []
        for size in shape[: rng.randint(1, len(shape))]:
            choice = rng.random()
            if size and choice < 0.25:
                parts.append(str(rng.randrange(-size, size)))
            elif choice < 0.35 and not plain:
                parts.append(f"slice(None, None, {rng.choice((-2, -1, 2, 3))})")
            else:
                start = rng.randint(0, size)
                parts.append(f"slice({start}, {rng.randint(start, size)})")
        if len(parts) < len(shape) and rng.random() < 0.3:
            parts.append("...")
        return "(" + ", ".join(parts) + ",)"

    def next_array(self, space: dict[str, Any]) -> Step:
        rng = self.random
        model = space["m"]
        dtype = self._spelled(model.dtype)
        choice = rng.random()
        if choice < 0.3:
            key = self.key(model.shape)
            part = model[eval(key)]
            value = self.value(part.shape if rng.random() < 0.8 else (), dtype)
            return Step(f"h[{key}] = {value}", f"m[{key}] = {value}")
        if choice < 0.4 and model.ndim and model.shape[0]:
            rows = sorted(rng.sample(range(model.shape[0]), rng.randint(1, model.shape[0])))
            value = self.value((len(rows), *model.shape[1:]), dtype)
            return Step(f"h[{rows!r}] = {value}", f"m[{rows!r}] = {value}")
        if choice < 0.5 and model.ndim:
            mask = [rng.random() < 0.4 for _ in range(model.shape[0])]
            source = f"np.array({mask!r}, bool)"
            return Step(f"r = h[{source}]", f"same(r, m[{source}])")
        if choice < 0.6:
            key = self.key(model.shape)
            return Step(f"r = h[{key}]", f"same(r, m[{key}])")
        if choice < 0.72 and model.ndim and model.size < 3000:
            shape = (rng.choice((0, 1, 2, 5, 9)), *model.shape[1:])
            value = self.value(shape, dtype)
            return Step(f"h.append({value})", f"m = np.concatenate([m, {value}])")
        if choice < 0.82 and model.ndim:
            grown = [max(0, size + rng.choice((-4, -1, 0, 2, 5))) for size in model.shape]
            if self.format == "bcolz":
                grown[1:] = model.shape[1:]
            if int(np.prod(grown)) > 4000:
                grown = list(model.shape)
            kept = ", ".join(f"slice({min(a, b)})" for a, b in zip(grown, model.shape, strict=True))
            return Step(
                f"h.resize({tuple(grown)!r})",
                f"n = np.zeros({tuple(grown)!r}, m.dtype); n[{kept},] = m[{kept},]; m = n",
            )
        return self.next_any(rng.random())

    def next_any(self, choice: float) -> Step:
        """Return a step that every container can do."""
        rng = self.random
        if choice < 0.35:
            name = rng.choice(("a", "b", "ü", "long name"))
            value = rng.choice((1, 2.5, "text", None, [1, 2], {"x": [True]}, ""))
            return Step(f"h.attrs[{name!r}] = {value!r}", f"t[{name!r}] = {value!r}")
        if choice < 0.45:
            return Step("r = h.attrs.pop('a', 0)", "t.pop('a', 0)")
        if choice < 0.65:
            return Step('h = ingot.open(place, "r+")')
        if choice < 0.85:
            # The other handle saw an older state; it must see this one at its next call.
            return Step('h, g = g if "g" in globals() else ingot.open(place, "r+"), h')
        return Step("with h.snapshot(): r = len(h.attrs)", "assert r == len(t)")

    @staticmethod
    def _spelled(dtype: "np.dtype[Any]") -> Any:
        return dtype.descr if dtype.names else dtype.str

    def create_table(self) -> Step:
        rng = self.random
        rows = rng.choice((0, 1, 5, 20, 33))
        columns = {"k": "<i8"}
        for number in range(rng.randint(0, 3)):
            columns[f"c{number}"] = rng.choice(DTYPES[:16])
        values = ", ".join(
            f"{name!r}: {self._keys(rows) if name == 'k' else self.value((rows,), dtype)}"
            for name, dtype in columns.items()
        )
        chunks = rng.choice(("", ", chunks=4", ", chunks=11"))
        return Step(
            f'h = ingot.table({{{values}}}, place, format="{self.format}"{chunks})',
            f"m = {{{values}}}",
        )

    def _keys(self, rows: int) -> str:
        start = self.random.randrange(100)
        return f"np.arange({start}, {start + rows})"

    def _rows(self, model: dict[str, Any], rows: int) -> str:
        values = (
            f"{name!r}: "
            + (self._keys(rows) if name == "k" else self.value((rows,), self._spelled(each.dtype)))
            for name, each in model.items()
        )
        return "{" + ", ".join(values) + "}"

    def next_table(self, space: dict[str, Any]) -> Step:
        rng = self.random
        model = space["m"]
        count = len(model["k"])
        choice = rng.random()
        low = rng.randrange(120)
        high = low + rng.choice((0, 3, 20))
        where = f"(k >= {low}) & (k < {high})"
        mask = f"(m['k'] >= {low}) & (m['k'] < {high})"
        if choice < 0.2 and count < 400:
            rows = self._rows(model, rng.choice((0, 1, 2, 6, 30)))
            return Step(
                f"h.append({rows})",
                f"m = {{n: np.concatenate([v, {rows}[n]]) for n, v in m.items()}}",
            )
        if choice < 0.3:
            return Step(
                f"h.update({where!r}, {{'k': {low + 1}}})",
                f"m['k'] = np.where({mask}, {low + 1}, m['k'])",
            )
        if choice < 0.4:
            return Step(
                f"r = h.delete({where!r})",
                f"keep = ~({mask}); assert r == (~keep).sum(); "
                "m = {n: v[keep] for n, v in m.items()}",
            )
        if choice < 0.52:
            return Step(
                f"r = h.read(where={where!r})",
                f"keep = {mask}; [same(r[n], m[n][keep]) for n in m]",
            )
        if choice < 0.6:
            rows = max(0, count + rng.choice((-5, -1, 0, 3)))
            return Step(
                f"h.resize({rows})",
                f"old = m; m = {{n: np.zeros({rows}, v.dtype) for n, v in old.items()}}; "
                f"[m[n].__setitem__(slice(min({rows}, len(old[n]))), old[n][:{rows}]) for n in m]",
            )
        if choice < 0.68:
            name = f"n{rng.randrange(4)}"
            if name in model:
                return Step(f"h.drop_column({name!r})", f"del m[{name!r}]")
            value = self.value((count,), rng.choice(DTYPES[:16]))
            return Step(f"h.add_column({name!r}, {value})", f"m[{name!r}] = {value}")
        if choice < 0.73 and len(model) > 1:
            old = rng.choice([name for name in model if name != "k"])
            new = f"r{rng.randrange(5)}"
            if new not in model:
                return Step(
                    f"h.rename_column({old!r}, {new!r})",
                    f"m = {{({new!r} if n == {old!r} else n): v for n, v in m.items()}}",
                )
        if choice < 0.82:
            rows = self._rows(model, 3)
            return Step(
                f"with h.transaction(): h.append({rows}); h['k'][:] = 5; h.attrs['a'] = 7",
                f"m = {{n: np.concatenate([v, {rows}[n]]) for n, v in m.items()}}; "
                "m['k'][:] = 5; t['a'] = 7",
            )
        if choice < 0.88 and count:
            key = self.key((count,))
            return Step(f"h['k'][{key}] = {low}", f"m['k'][{key}] = {low}")
        return self.next_any(rng.random())

    def create_group(self) -> Step:
        return Step(f'h = ingot.group(place, format="{self.format}")', "m = {}")

    def next_group(self, space: dict[str, Any]) -> Step:
        rng = self.random
        model = space["m"]
        choice = rng.random()
        arrays = [name for name, value in model.items() if value is not None]
        name = rng.choice(("x", "y", "deep/z", "deep/er/w", "ü", "a b"))
        taken = any(name == other or name.startswith(other + "/") for other in arrays)
        if choice < 0.35 and not taken and name not in model:
            value = self.value((rng.choice((0, 1, 4, 9)),), rng.choice(DTYPES))
            # What a format cannot hold is refused, and the model learns of it by the exception.
            return Step(f"h.array({name!r}, {value})", f"m[{name!r}] = {value}")
        if choice < 0.5 and arrays:
            name = rng.choice(arrays)
            value = self.value((), self._spelled(model[name].dtype))
            return Step(f"h[{name!r}][...] = {value}", f"m[{name!r}][...] = {value}")
        if choice < 0.6 and model:
            top = rng.choice(list(model)).split("/")[0]
            gone = f"m = {{n: v for n, v in m.items() if n.split('/')[0] != {top!r}}}"
            return Step(f"del h[{top!r}]", gone)
        if choice < 0.65:
            return Step("h.consolidate()")
        if choice < 0.75 and arrays:
            name = rng.choice(arrays)
            rows = self.value((2, *model[name].shape[1:]), self._spelled(model[name].dtype))
            return Step(
                f"h[{name!r}].append({rows})",
                f"m[{name!r}] = np.concatenate([m[{name!r}], {rows}])",
            )
        return self.next_any(rng.random())
