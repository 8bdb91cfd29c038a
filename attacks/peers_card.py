"""The same attacks on other libraries, beside Ingot: a card of numbers.

    python -m attacks.peers_card                       every library that is installed
    python -m attacks.peers_card zarr h5py --kills 200

Three attacks that apply to all: a writer that assigns a whole array is killed, again and again;
two processes append at the same time; single bits of the stored files are flipped. Every call
happens in a child, so that a library that dies is a number too.
"""

import argparse
import importlib
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["LIBRARIES", "Library", "main"]

SHAPE = (64, 500)
ROWS = 8
"""Rows of a chunk."""
FLIPPED = (6, 40)
"""The shape of the array whose bits are flipped, in chunks of two rows."""
BLOCK = 10
"""Rows of one append."""
APPENDS = 150
"""How often each of two processes appends."""


@dataclass(frozen=True)
class Library:
    """How a library makes, opens, assigns, appends to and reads an array of 64-bit integers."""

    name: str
    module: str
    make: Callable[[str, np.ndarray, int], None]
    """Store an array at a path, in chunks of some rows."""
    open: Callable[[str], Any]
    """Open it for writing."""
    assign: Callable[[Any, int], None]
    append: Callable[[Any, np.ndarray], None]
    read: Callable[[str], np.ndarray]

    @property
    def version(self) -> str:
        """Return the version of the package."""
        from importlib.metadata import PackageNotFoundError, version

        for package in (self.module, f"{self.module}-zipline"):
            try:
                return version(package)
            except PackageNotFoundError:
                continue
        return ""


def module(name: str) -> Any:
    """Import a module when it is needed."""
    return importlib.import_module(name)


def assign_all(array: Any, value: int) -> None:
    """Assign every item, as most libraries spell it."""
    array[...] = value


def assign_by_slice(array: Any, value: int) -> None:
    """Assign every item, as bcolz and blosc2 spell it."""
    array[:] = value


def make_ingot(format: str) -> Callable[[str, np.ndarray, int], None]:
    """Return how Ingot stores an array in a format."""

    def make(place: str, data: np.ndarray, rows: int) -> None:
        chunks = (rows, *data.shape[1:])
        module("ingot").array(data, place, format=format, chunks=chunks).close()

    return make


def ingot_library(name: str, format: str) -> Library:
    """Return Ingot with one of its formats."""
    return Library(
        name,
        "ingot",
        make_ingot(format),
        lambda place: module("ingot").open(place, "r+"),
        assign_all,
        lambda array, rows: array.append(rows),
        lambda place: np.asarray(module("ingot").open(place)[...]),
    )


def make_zarr(format: int) -> Callable[[str, np.ndarray, int], None]:
    """Return how zarr stores an array."""

    def make(place: str, data: np.ndarray, rows: int) -> None:
        chunks = (rows, *data.shape[1:])
        module("zarr").create_array(place, data=data, chunks=chunks, zarr_format=format)

    return make


def zarr_library(name: str, format: int) -> Library:
    """Return zarr with one of its formats."""
    return Library(
        name,
        "zarr",
        make_zarr(format),
        lambda place: module("zarr").open_array(place, mode="r+"),
        assign_all,
        lambda array, rows: array.append(rows),
        lambda place: np.asarray(module("zarr").open_array(place, mode="r")[...]),
    )


def tensorstore_open(place: str, **options: Any) -> Any:
    """Open an array with tensorstore."""
    spec: dict[str, Any] = {"driver": "zarr3", "kvstore": {"driver": "file", "path": place}}
    # Without this an open array never sees that another process has resized it.
    spec["recheck_cached_metadata"] = True
    return module("tensorstore").open(spec, **options).result()


def make_tensorstore(place: str, data: np.ndarray, rows: int) -> None:
    """Store an array with tensorstore."""
    ts = module("tensorstore")
    layout = ts.ChunkLayout(chunk_shape=[rows, *data.shape[1:]])
    array = tensorstore_open(
        place, create=True, dtype=ts.int64, shape=data.shape, chunk_layout=layout
    )
    array.write(data).result()


def append_tensorstore(array: Any, rows: np.ndarray) -> None:
    """Append with tensorstore: look how long it is, grow, write."""
    array = array.resolve(fix_resizable_bounds=False).result()
    start = array.shape[0]
    array = array.resize(exclusive_max=[start + len(rows), *array.shape[1:]]).result()
    array[start : start + len(rows)].write(rows).result()


def make_blosc2(place: str, data: np.ndarray, rows: int) -> None:
    """Store an array with blosc2."""
    chunks = (rows, *data.shape[1:])
    module("blosc2").asarray(data, urlpath=place, mode="w", chunks=chunks)


def append_blosc2(array: Any, rows: np.ndarray) -> None:
    """Append with blosc2: grow, write."""
    start = array.shape[0]
    array.resize((start + len(rows), *array.shape[1:]))
    array[start : start + len(rows)] = rows


def make_bcolz(place: str, data: np.ndarray, rows: int) -> None:
    """Store an array with bcolz."""
    module("bcolz").carray(data, rootdir=place, mode="w", chunklen=rows).flush()


def append_bcolz(array: Any, rows: np.ndarray) -> None:
    """Append with bcolz."""
    array.append(rows)
    array.flush()


def assign_bcolz(array: Any, value: int) -> None:
    """Assign with bcolz."""
    array[:] = value
    array.flush()


def make_h5py(place: str, data: np.ndarray, rows: int) -> None:
    """Store an array with h5py, compressed by gzip."""
    shape = (None, *data.shape[1:])
    with module("h5py").File(place, "w") as file:
        chunks = (rows, *data.shape[1:])
        file.create_dataset("x", data=data, maxshape=shape, chunks=chunks, compression="gzip")


def assign_h5py(place: Any, value: int) -> None:
    """Assign with h5py; the file is flushed."""
    with module("h5py").File(place, "r+") as file:
        file["x"][...] = value


def append_h5py(place: Any, rows: np.ndarray) -> None:
    """Append with h5py: grow, write. The file is open for the time of the append only."""
    with module("h5py").File(place, "r+") as file:
        array = file["x"]
        start = array.shape[0]
        array.resize(start + len(rows), axis=0)
        array[start:] = rows


def read_h5py(place: str) -> np.ndarray:
    """Read with h5py."""
    with module("h5py").File(place, "r") as file:
        return np.asarray(file["x"][...])


LIBRARIES = (
    ingot_library("Ingot, zarr3", "zarr3"),
    ingot_library("Ingot, zarr2", "zarr2"),
    ingot_library("Ingot, bcolz", "bcolz"),
    zarr_library("zarr, format 3", 3),
    zarr_library("zarr, format 2", 2),
    Library(
        "tensorstore, zarr3",
        "tensorstore",
        make_tensorstore,
        tensorstore_open,
        lambda array, value: array.write(value).result(),
        append_tensorstore,
        lambda place: np.asarray(tensorstore_open(place).read().result()),
    ),
    Library(
        "blosc2",
        "blosc2",
        make_blosc2,
        lambda place: module("blosc2").open(place, mode="a"),
        assign_by_slice,
        append_blosc2,
        lambda place: np.asarray(module("blosc2").open(place, mode="r")[:]),
    ),
    Library(
        "bcolz",
        "bcolz",
        make_bcolz,
        lambda place: module("bcolz").carray(rootdir=place, mode="a"),
        assign_bcolz,
        append_bcolz,
        lambda place: np.asarray(module("bcolz").carray(rootdir=place, mode="r")[:]),
    ),
    Library(
        "h5py",
        "h5py",
        make_h5py,
        lambda place: place,
        assign_h5py,
        append_h5py,
        read_h5py,
    ),
)


def in_child(function: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Call a function in a child; return what it returns, or a word for how it ended."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        silence()
        try:
            answer = ("ok", function())
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}"[:200])
        with os.fdopen(send, "wb") as stream:
            stream.write(pickle.dumps(answer))
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as stream:
        data = read_within(stream.fileno(), seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if data is None:
        return ("hang", "")
    return pickle.loads(data) if data else ("death", "")


def read_within(file: int, seconds: float) -> bytes | None:
    """Read a pipe to its end; return None when that takes too long."""
    import select

    data = b""
    end = time.monotonic() + seconds
    while True:
        if not select.select([file], [], [], max(0.0, end - time.monotonic()))[0]:
            return None
        received = os.read(file, 1 << 20)
        if not received:
            return data
        data += received


def silence() -> None:
    """Let a library print nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def torn(library: Library, folder: Path, kills: int, rng: random.Random) -> Counter[str]:
    """Kill a writer that assigns a whole array; count what is left."""
    found: Counter[str] = Counter()
    for number in range(kills):
        place = str(folder / f"torn-{number}")
        in_child(lambda place=place: library.make(place, np.zeros(SHAPE, "i8"), ROWS))
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            silence()
            array = library.open(place)
            for value in range(1, 10**9):
                library.assign(array, value)
                if value == 2:
                    os.write(send, b"x")
        os.close(send)
        read = read_one(receive, 20)
        time.sleep(rng.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(receive)
        if not read:
            found["not started"] += 1
            continue
        kind, answer = in_child(lambda place=place: library.read(place))
        if kind != "ok":
            found["unreadable"] += 1
        elif answer.shape != SHAPE or (answer != answer.flat[0]).any():
            found["torn"] += 1
        else:
            found["whole"] += 1
    return found


def read_one(file: int, seconds: float) -> bytes:
    """Read one byte of a pipe."""
    import select

    return os.read(file, 1) if select.select([file], [], [], seconds)[0] else b""


def appended(library: Library, folder: Path) -> Counter[str]:
    """Let two processes append at the same time; count the rows that are there."""
    place = str(folder / "appended")
    in_child(lambda: library.make(place, np.zeros(0, "i8"), 64))
    children = []
    wait, start = os.pipe()
    for number in (1, 2):
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            silence()
            done = 0
            library.open(place)
            # Both begin at the same time.
            os.read(wait, 1)
            for count in range(APPENDS):
                rows = np.full(BLOCK, number * 1000 + count, "i8")
                try:
                    # Opened anew each time: an open handle of some libraries never sees
                    # what other processes have appended.
                    library.append(library.open(place), rows)
                    done += 1
                except Exception:
                    # A refusal is honest: these rows are not counted as stored.
                    time.sleep(0.002)
            os.write(send, bytes([done]))
            os._exit(0)
        os.close(send)
        children.append((child, receive))
    time.sleep(1)
    os.write(start, b"xx")
    acknowledged = 0
    for child, receive in children:
        answer = read_one(receive, 60)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(receive)
        acknowledged += answer[0] if answer else 0
    os.close(wait)
    os.close(start)
    found = Counter({"acknowledged rows": acknowledged * BLOCK})
    kind, answer = in_child(lambda: library.read(place))
    if kind != "ok":
        found["lost rows"] = acknowledged * BLOCK
        found["unreadable"] = 1
        return found
    there = sum(min(BLOCK, int((answer == value).sum())) for value in set(answer.tolist()) - {0})
    found["lost rows"] = max(0, acknowledged * BLOCK - there)
    return found


def flipped(library: Library, folder: Path, flips: int, rng: random.Random) -> Counter[str]:
    """Flip single bits of the stored chunks; count what a read gives."""
    source = folder / "flipped"
    data = np.random.default_rng(1).integers(0, 1000, FLIPPED)
    in_child(lambda: library.make(str(source), data, 2))
    files = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file())
    words = ("json", ".z", "sizes", "storage", "__attrs__", ".lock")
    chunks = [path for path in files if not any(word in path.name for word in words)]
    found: Counter[str] = Counter()
    for number in range(flips):
        copy = folder / f"flipped-{number}"
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        path = rng.choice(chunks)
        target = copy if source.is_file() else copy / path.relative_to(source)
        content = bytearray(target.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        target.write_bytes(content)
        kind, answer = in_child(lambda copy=copy: library.read(str(copy)))
        if kind == "ok":
            right = answer.shape == data.shape and (answer == data).all()
            found["right" if right else "silently wrong"] += 1
        else:
            found["refused" if kind == "error" else kind] += 1
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    return found


def load_ingot() -> None:
    """Import what Ingot would import on first use, by arrays in memory."""
    ingot = module("ingot")
    for format in ("zarr3", "zarr2", "bcolz"):
        array = ingot.array(np.arange(9), ingot.stores.MemoryStore(), format=format)
        array[2:4] = 1
        array[...]
    with tempfile.TemporaryDirectory() as name:
        ingot.array(np.arange(9), f"{name}/x").append(np.arange(3))


def main(arguments: list[str] | None = None) -> int:
    """Print the card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("libraries", nargs="*", help="parts of their names; all by default")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(
        "| library | killed while assigning: torn | unreadable | two appenders: rows lost "
        "| one bit flipped: silently wrong | refused | died or hung |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for library in LIBRARIES:
        if options.libraries and not any(word in library.name for word in options.libraries):
            continue
        try:
            # Imported once, here; used in children only.
            importlib.import_module(library.module)
            if library.module == "ingot":
                load_ingot()
        except ImportError:
            print(f"| {library.name} | not installed | | | | | |", flush=True)
            continue
        rng = random.Random(options.seed)
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=shared, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            kills = torn(library, folder, options.kills, rng)
            rows = appended(library, folder)
            bits = flipped(library, folder, options.flips, rng)
        tried = sum(kills.values()) - kills["not started"]
        lost = f"{rows['lost rows']} of {rows['acknowledged rows']}"
        if rows["unreadable"]:
            lost += ", unreadable"
        deaths = bits["death"] + bits["hang"]
        print(
            f"| {library.name} {library.version} | {kills['torn']} of {tried} "
            f"| {kills['unreadable']} of {tried} | {lost} "
            f"| {bits['silently wrong']} of {sum(bits.values())} | {bits['refused']} | {deaths} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
