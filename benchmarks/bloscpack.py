"""Files packed and unpacked, arrays written, read and appended to, against bloscpack.

Both use the same codec, level, chunk size, checksum and number of threads. They run in turns, from
a warm page cache into a new file, without waiting for the disk, and the best time counts. bloscpack
0.16 runs in a process of its own, which may be another Python. An append opens the file each time,
as bloscpack does.

    python -m benchmarks.bloscpack [--scale 0.1] [--peer PYTHON] [--checksums none,md5]
        [--parts files,arrays]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ingot
from benchmarks.samples import series
from ingot import pack
from ingot.formats.bloscpack.header import CHECKSUMS
from ingot.options import Options
from ingot.pack import Packing
from ingot.stores.local.new_file import new_file

__all__ = ["main"]

NBYTES = 10**9
CHUNK = 1 << 20
FAST = ("none", "adler32", "crc32")
BARS = {True: (1.5, 2.0), False: (2.0, 3.0)}
"""What packing and unpacking shall reach, with fast checksums and with the others."""

TITLES = {
    "write": "written",
    "read": "read",
    "middle": "1000 items from the middle",
    "append": "append of 1 MiB",
}

PEER = """
import collections, collections.abc, json, sys, time
collections.MutableMapping = collections.abc.MutableMapping
import blosc, bloscpack, bloscpack.append, numpy
from bloscpack.args import BloscArgs, BloscpackArgs
print(json.dumps([sys.version.split()[0], bloscpack.__version__, blosc.__version__]), flush=True)
array = None
for line in sys.stdin:
    job = json.loads(line)
    blosc.set_nthreads(job["threads"])
    args = BloscArgs(typesize=job["typesize"], clevel=job["level"], cname=job["codec"])
    more = BloscpackArgs(checksum=job["checksum"])
    if job["command"] == "write" and array is None:
        array = numpy.fromfile(job["source"])
    begun = time.perf_counter()
    if job["command"] == "pack":
        bloscpack.pack_file_to_file(
            job["source"], job["target"], chunk_size=job["chunk"], blosc_args=args,
            bloscpack_args=more,
        )
    elif job["command"] == "unpack":
        bloscpack.unpack_file_from_file(job["source"], job["target"])
    elif job["command"] == "write":
        bloscpack.pack_ndarray_to_file(
            array, job["target"], chunk_size=job["chunk"], blosc_args=args, bloscpack_args=more
        )
    elif job["command"] == "append":
        bloscpack.append.append(job["target"], job["source"], blosc_args=args)
    else:
        found = bloscpack.unpack_ndarray_from_file(job["source"])
        if job["command"] == "middle":
            found = found[len(found) // 2 :][:1000].copy()
    print(time.perf_counter() - begun, flush=True)
    found = None
"""


class Peer:
    """bloscpack in a process of its own."""

    def __init__(self, python: str) -> None:
        # Not in this folder, where a module has the name of the package.
        self._process = subprocess.Popen(
            [python, "-c", PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tempfile.gettempdir(),
        )
        self.versions: list[str] = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def run(self, job: dict[str, Any]) -> float:
        """Do one job; return the seconds that it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def run(job: dict[str, Any], array: NDArray[Any] | None = None) -> float:
    """Do the same job here; `array` is the one to write."""
    options = Options(threads=job["threads"], durability="process")
    command, source, target = job["command"], job["source"], job["target"]
    begun = time.perf_counter()
    if command in ("pack", "unpack"):
        _run_files(job, options)
    elif command == "write":
        assert array is not None
        codec = f"blosc:{job['codec']}:{job['level']}:shuffle"
        rows = job["chunk"] // array.itemsize
        more = {"codec": codec, "chunks": rows, "checksum": job["checksum"]}
        ingot.array(array, target, format="bloscpack", options=options, **more).close()
    elif command == "append":
        with _array(target, "r+", options) as opened:
            opened.append(np.fromfile(source, opened.dtype))
    else:
        with _array(source, "r", options) as opened:
            middle = len(opened) // 2
            opened[middle : middle + 1000] if command == "middle" else opened[...]
    return time.perf_counter() - begun


def _array(path: str, mode: Literal["r", "r+"], options: Options) -> ingot.Array:
    opened = ingot.open(path, mode, options=options)
    assert isinstance(opened, ingot.Array)
    return opened


def _run_files(job: dict[str, Any], options: Options) -> None:
    with _opened(job["source"]) as source, new_file(job["target"]) as target:
        if job["command"] == "pack":
            names = ("codec", "level", "typesize", "checksum")
            packing = Packing(**{name: job[name] for name in names}, chunk_size=job["chunk"])
            pack.pack(source, target.descriptor, packing, options=options)
        else:
            pack.unpack(source, target.descriptor, options=options)
        target.publish(durable=False)


def race(
    peer: Peer, job: dict[str, Any], rounds: int, array: NDArray[Any] | None = None
) -> tuple[float, float]:
    """Return the best times of the peer and of Ingot, which take turns."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        for contender, (name, found) in zip(
            (peer.run, partial(run, array=array)),
            zip(("peer", "ours"), times, strict=True),
            strict=True,
        ):
            own = {**job, "source": job[f"{name}_source"], "target": f"{job['target']}.{name}"}
            if name == "peer":
                own["checksum"] = {"none": "None"}.get(own["checksum"], own["checksum"])
            if job["command"] in ("pack", "unpack", "write"):
                Path(own["target"]).unlink(missing_ok=True)
            found.append(contender(own))
    return min(times[0]), min(times[1])


def text(nbytes: int) -> bytes:
    """Return lines of a log.

    >>> text(60)[:32]
    b'1700000000 GET /station/0/hour/0'
    """
    lines = (
        b"%d GET /station/%d/hour/%d 200\n" % (1_700_000_000 + 3 * n, n * 7919 % 397, n % 24)
        for n in range(nbytes // 30)
    )
    return b"".join(lines)[:nbytes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases; return 1 when a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bloscpack")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of 1 GB per file")
    parser.add_argument("--peer", default=sys.executable, help="a Python that has bloscpack")
    parser.add_argument("--checksums", default=",".join(CHECKSUMS))
    parser.add_argument("--codec", default="blosclz")
    parser.add_argument("--level", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=["files", "arrays"])
    parser.add_argument("--folder", help="where the files are, instead of the temporary folder")
    options = parser.parse_args(arguments)
    peer = Peer(options.peer)
    print("Python {}, bloscpack {}, blosc {}".format(*peer.versions))
    print(f"{options.codec} {options.level}, chunks of {CHUNK} bytes, {options.threads} threads\n")
    try:
        with tempfile.TemporaryDirectory(prefix="ingot-bench-", dir=options.folder) as folder:
            parts = {"files": _run_all_files, "arrays": _run_arrays}
            return max(parts[name](peer, Path(folder), options) for name in options.parts)
    finally:
        peer.close()


def _job(options: argparse.Namespace, typesize: int, checksum: str) -> dict[str, Any]:
    return {
        "threads": options.threads,
        "chunk": CHUNK,
        "codec": options.codec,
        "level": options.level,
        "typesize": typesize,
        "checksum": checksum,
    }


def _run_all_files(peer: Peer, folder: Path, options: argparse.Namespace) -> int:
    print("| data | checksum | pack MB/s | peer | ratio | bar | unpack MB/s | peer | ratio | bar |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    nbytes = int(NBYTES * options.scale)
    for name, typesize in (("float64", 8), ("text", 1)):
        plain = folder / name
        plain.write_bytes(series("walk", nbytes) if name == "float64" else text(nbytes))
        for checksum in options.checksums.split(","):
            job = _job(options, typesize, checksum)
            places = {"peer_source": str(plain), "ours_source": str(plain)}
            target = str(folder / "packed")
            packing = {**job, **places, "command": "pack", "target": target}
            packed = race(peer, packing, options.rounds)
            places = {"peer_source": f"{target}.peer", "ours_source": f"{target}.ours"}
            back = str(folder / "back")
            unpacking = {**job, **places, "command": "unpack", "target": back}
            unpacked = race(peer, unpacking, options.rounds)
            if not _same(plain, Path(f"{back}.ours")):
                print(f"{name}, {checksum}: what was unpacked is not what was packed")
                return 1
            cells = [name, checksum]
            size = plain.stat().st_size
            for (theirs, ours), bar in zip((packed, unpacked), BARS[checksum in FAST], strict=True):
                rates = [f"{size / seconds / 1e6:,.0f}" for seconds in (ours, theirs)]
                cells += [*rates, f"{theirs / ours:.2f}", f"{bar}"]
            print(f"| {' | '.join(cells)} |", flush=True)
        plain.unlink()
    print()
    return 0


def _run_arrays(peer: Peer, folder: Path, options: argparse.Namespace) -> int:
    print("| array of float64 | ms | peer | ratio | bar |")
    print("|---|--:|--:|--:|--:|")
    plain = folder / "float64"
    plain.write_bytes(series("walk", int(NBYTES * options.scale)))
    array = np.fromfile(plain)
    more = folder / "more"
    more.write_bytes(array[: CHUNK // array.itemsize].tobytes())
    job, target = _job(options, array.itemsize, "adler32"), str(folder / "array")
    one, two = {"peer_source": f"{target}.peer", "ours_source": f"{target}.ours"}, str(plain)
    cases: tuple[tuple[str, dict[str, str], int, float | None], ...] = (
        ("write", {"peer_source": two, "ours_source": two}, 1, 1.5),
        ("read", one, 1, 4.0),
        ("middle", one, 1, None),
        ("append", {"peer_source": str(more), "ours_source": str(more)}, 4, 1.5),
    )
    for command, places, times, bar in cases:
        case = {**job, **places, "command": command, "target": target}
        theirs, ours = race(peer, case, times * options.rounds, array)
        cells = [TITLES[command], f"{ours * 1e3:,.2f}", f"{theirs * 1e3:,.2f}"]
        cells += [f"{theirs / ours:.2f}", "under 1 ms" if bar is None else f"{bar}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        if command == "write" and not _holds(f"{target}.ours", array):
            print("what was written is not what is read")
            return 1
    print()
    return 0


def _holds(path: str, array: NDArray[Any]) -> bool:
    with _array(path, "r", Options()) as opened:
        return bool(np.array_equal(opened[...], array))


def _same(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while piece := first.read(1 << 24):
            if second.read(1 << 24) != piece:
                return False
        return not second.read(1)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
