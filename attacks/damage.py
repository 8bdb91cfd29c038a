"""The attack `damage`: changed bytes in any file of every format, read by both kernels.

The answer is the right data or an `IngotError`. Where nothing covers the damaged bytes, wrong data
may come back; that is counted. Wrong data under a checksum is a finding, and so are two kernels
that answer differently.
"""

import functools
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.campaign import Case, attack, kernels
from attacks.datasets import METADATA, Sample, files, samples
from attacks.programs import prelude

__all__ = ["damage"]

CODECS = (
    "",
    "none",
    "blosc:lz4:5:shuffle",
    "blosc:zlib:5:shuffle",
    "blosc:zlib:5:noshuffle",
    "blosc:zstd:3:bitshuffle",
    "blosc:lz4hc:5:shuffle",
    "blosc:blosclz:5:noshuffle",
    "zstd:3",
    "zlib:1",
    "gzip:1",
    "lz4:1",
    "bz2:1",
)
COVERED = {"zarr3": 0, "bcolz": 0, "bloscpack": 0, "blsk": 0}
"""Formats whose chunks Ingot writes with a checksum over all of their bytes."""
STREAMS = {"gzip:1": 0, "zlib:1": 0, "bz2:1": 0, "blosc:zlib:5:shuffle": 400,
           "blosc:zlib:5:noshuffle": 400}  # fmt: skip
"""Codecs whose streams end in a checksum, and from where on in a chunk there are only streams."""
WIDE = (
    "h = ingot.array(np.repeat(np.random.default_rng(1).integers(0, 1000, 2500), 8), "
    'place, format="{format}", chunks=20000)'
)
"""A chunk of several blocks, of which a kernel may decode some and skip others.

All of its streams gain by compression: Blosc stores the others as they are, without a checksum.
"""


@dataclass(frozen=True)
class Target:
    """A dataset to damage: its files, its content, and what a checksum covers."""

    title: str
    store: str
    source: str
    codec: str
    format: str
    content: dict[str, bytes]
    right: tuple[str, ...]

    def covered(self, name: str, offset: int, kind: str) -> bool:
        """Return whether a checksum covers a byte of a file."""
        if self.store == "zip":
            # Every member has a CRC-32, and headers say twice what the directory says.
            return kind in ("flip", "byte")
        if name.rpartition("/")[2] in METADATA:
            return False
        if self.format in COVERED and not (self.format == "zarr3" and self.codec):
            return True
        return kind == "flip" and self.codec in STREAMS and offset >= STREAMS[self.codec]


def answers(place):
    """Return what reads of a dataset give, as text: digests of data, or the kind of the error."""
    import hashlib

    def tried(read):
        try:
            return hashlib.sha256(repr(read()).encode()).hexdigest()[:16]
        except ingot.errors.IngotError as error:
            return type(error).__name__

    try:
        h = ingot.open(place)
    except ingot.errors.IngotError as error:
        return (type(error).__name__,)
    reads = []

    def add(array):
        reads.append(lambda: (array.shape, array.dtype.str, np.asarray(array[...]).tobytes()))
        if array.ndim:
            reads.append(lambda: np.asarray(array[3:5]).tobytes())
            reads.append(lambda: np.asarray(array[-2:]).tobytes())
            middle = len(array) * 9 // 20
            reads.append(lambda: np.asarray(array[middle : middle + 3]).tobytes())

    def walk(thing):
        reads.append(lambda: sorted(dict(thing.attrs).items()))
        if isinstance(thing, ingot.Group):
            for name in sorted(thing):
                walk(thing[name])
        elif isinstance(thing, ingot.Table):
            reads.append(lambda: [(n, v.tobytes()) for n, v in thing.read().items()])
            reads.append(lambda: [(n, v.tobytes()) for n, v in thing.read(where="a > 9").items()])
        else:
            add(thing)

    try:
        walk(h)
    except ingot.errors.IngotError as error:
        return (type(error).__name__,)
    return tuple(map(tried, reads))


ERRORS = {name for name in dir(ingot.errors) if name.endswith("Error")}

OTHER = (
    "import sys\n"
    "from attacks.damage import answers\n"
    "for line in sys.stdin:\n"
    "    try:\n"
    "        print(*answers(line.rstrip()), flush=True)\n"
    "    except Exception as error:\n"
    "        print('!' + type(error).__name__, flush=True)\n"
)


@functools.cache
def other() -> "subprocess.Popen[str]":
    """Return a process that reads with the twin."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", OTHER],
        stdin=pipe,
        stdout=pipe,
        text=True,
        env={**os.environ, "INGOT_KERNEL": "python"},
    )


def twin(place: Path) -> tuple[str, ...]:
    """Return what the twin reads."""
    process = other()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{place}\n")
    process.stdin.flush()
    return tuple(process.stdout.readline().split())


class Lazily:
    """A text that is made when it is needed."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make

    def __str__(self) -> str:
        return self.make()


TARGETS: list[Target] = []


def targets(folder: Path, rearm: Callable[[], None]) -> list[Target]:
    """Return every dataset to damage, made once; each is made in a time of its own."""
    if not TARGETS:
        numbers = itertools.count()
        for sample, codec in itertools.product(samples(), CODECS):
            if sample.name in ("scalar", "empty") or (codec and sample.name in ("table", "group")):
                continue
            for store in ("folder", "zip") if not codec else ("folder",):
                target = made(sample, codec, store, folder / f"target-{next(numbers)}")
                if target is not None:
                    TARGETS.append(target)
            rearm()
            if sample.name == "flat" and codec in ("", *STREAMS):
                wide = Sample(sample.format, "array", "wide", WIDE.format(format=sample.format))
                target = made(wide, codec, "folder", folder / f"target-{next(numbers)}")
                if target is not None:
                    TARGETS.append(target)
    return TARGETS


def made(sample: Any, codec: str, store: str, folder: Path) -> Target | None:
    """Make one dataset, unless the format does not have the codec."""
    folder.mkdir()
    source = sample.source
    if codec:
        source = source.replace("place, format", f"place, codec={codec!r}, format")
    # Values that compress, so that the codecs have streams to write.
    source = source.replace("np.arange(40", "np.arange(400").replace("chunks=12", "chunks=120")
    place = folder / ("data.zip" if store == "zip" else "data")
    space = {"ingot": ingot, "np": np, "place": str(place)}
    try:
        exec(source, space)
    except (ingot.errors.IngotError, ValueError):
        return None
    found = {name: data for name, data in files(folder).items() if not name.endswith(".lock")}
    title = f"{sample.title} {codec or 'default'} in {store}"
    return Target(title, store, source, codec, sample.format, found, answers(str(place)))


def damaged(rng: random.Random, content: dict[str, bytes]) -> tuple[str, str, int, bytes]:
    """Return a file, the kind of damage, where it begins, and the damaged bytes."""
    names = [name for name in sorted(content) if content[name]]
    # Chunks and metadata alike, however many chunks there are.
    metadata = [name for name in names if name.rpartition("/")[2] in METADATA]
    chunks = [name for name in names if name not in metadata]
    choices = metadata if metadata and (not chunks or rng.random() < 0.3) else chunks
    name = rng.choice(choices)
    data = bytearray(content[name])
    kind = rng.choice(("flip", "flip", "flip", "flip", "byte", "truncate", "insert", "splice"))
    offset = rng.randrange(len(data))
    if kind == "flip":
        data[offset] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        data[offset] = rng.choice((0, 255, rng.randrange(256)))
    elif kind == "truncate":
        del data[offset:]
    elif kind == "insert":
        data[offset:offset] = rng.randbytes(rng.randint(1, 9))
    else:
        other = content[rng.choice(names)]
        start = rng.randrange(len(other))
        size = rng.randint(1, 40)
        data[offset : offset + size] = other[start : start + size]
    return name, kind, offset, bytes(data)


@attack("damage")
def damage(case: Case) -> None:
    """Bit flips, truncations, insertions and splices in any file, both kernels compared."""
    rng = case.random
    everything = targets(case.folder, case.rearm)
    # Many small cases make one: a message for each would take longer than the case.
    for number in range(20):
        # A file of its own each time: checksums are compared once for each file.
        attempt(case, rng.choice(everything), case.folder / f"damaged-{number}", rng)
        case.rearm()


def attempt(case: Case, target: Target, folder: Path, rng: random.Random) -> None:
    """Damage a dataset and read it."""
    name, kind, offset, changed = damaged(rng, target.content)
    for each, data in {**target.content, name: changed}.items():
        path = folder / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    place = folder / ("data.zip" if target.store == "zip" else "data")
    # A program for every case would be longer than the case takes.
    program = Lazily(lambda: source({**target.content, name: changed}, place.name))
    short = len(changed) < 4000
    case.announce(str(program) if short else "", f"{target.title}: {kind}")
    case.count("damaged files")
    try:
        got = answers(str(place))
    except Exception as error:
        case.find(
            "error",
            f"{target.title}: {type(error).__name__} by {name.rpartition('/')[2]}",
            expected="data or an IngotError",
            happened=f"{error!r:.300}\n{kind} at byte {offset} of {name}",
            program=str(program),
        )
        got = ("!" + type(error).__name__,)
    wrong = len(got) > 1 and any(
        answer != right and answer not in ERRORS
        for answer, right in itertools.zip_longest(got, target.right)
    )
    if wrong and changed != target.content[name]:
        if target.covered(name, offset, kind):
            case.find(
                "wrong",
                f"{target.title}: {kind} of {name.rpartition('/')[2][:8]}",
                expected="the right data or an IngotError, for a checksum covers the bytes",
                happened=f"other data, without an error; {kind} at byte {offset} of {name}",
                program=str(program),
            )
        else:
            case.count("wrong without a checksum")
    elif got == target.right:
        case.count("right")
    else:
        case.count("refused")
    if case.kernel == "native" and "python" in kernels():
        second = twin(place)
        if second != got:
            compare(case, target, (name, kind, offset), got, second, program)


def compare(
    case: Case,
    target: Target,
    where: tuple[str, str, int],
    native: tuple[str, ...],
    python: tuple[str, ...],
    program: "Lazily",
) -> None:
    """Report two kernels that answer differently."""
    name, kind, offset = where
    pairs = [
        (first or "nothing", second or "nothing")
        for first, second in itertools.zip_longest(native, python)
        if first != second
    ]
    errors = [(first in ERRORS, second in ERRORS) for first, second in pairs]
    if len(native) == len(python) and all(first != second for first, second in errors):
        # A kernel that needs fewer bytes for its answer meets less of the damage; data that is
        # wrong although a checksum covers it is a finding already.
        case.count("data in one kernel, refused in the other")
        return
    words = [[each if each in ERRORS else "data" for each in pair] for pair in pairs]
    first, second = words[0]
    case.find(
        "kernels",
        f"{target.format} {target.codec or 'default'}: native {first}, python {second}",
        expected="the same data or the same kind of error from both kernels",
        happened=f"native {native}\npython {python}\n"
        f"{target.title}: {kind} at byte {offset} of {name}",
        program=str(program),
    )


def source(content: dict[str, bytes], place: str) -> str:
    """Return a program that writes the damaged files and reads them."""
    shown = ",\n".join(f"    {name!r}: {value!r}" for name, value in sorted(content.items()))
    return (
        prelude(answers)
        + f"""

content = {{
{shown},
}}
folder = tempfile.mkdtemp()
for name, value in content.items():
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(value)
from ingot import native
print(native.choice().name, answers(os.path.join(folder, {place!r})))
"""
    )
