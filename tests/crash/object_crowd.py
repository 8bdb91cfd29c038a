"""Many writers and readers of two arrays on an object store, while requests fail at random.

`python -m tests.crash.object_crowd --seconds 300` runs 20 writers and 20 readers for five minutes
on a server of its own, and prints what was counted.
"""

import argparse
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ingot
from ingot.errors import IngotError
from ingot.options import Options
from tests import fault_proxy, seaweed
from tests.fault_proxy import DEAD, FINE, LOST, Fault, Request

FAULTS = [LOST, DEAD, Fault(status=500), Fault(status=503), Fault(cut=True), Fault(delay=0.2)]
_STAMPS = 40


@dataclass
class Crowd:
    """A run: what was counted, and what was wrong."""

    url: str
    options: Options
    end: float
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    done: dict[int, int] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def count(self, name: str) -> None:
        with self.lock:
            self.counts[name] += 1


def batch(writer: int, number: int) -> Any:
    """Return the rows that a writer appends at a time: all the same, and how many tells which."""
    return np.array([(writer, number)] * rows_of(writer, number), np.int64)


def rows_of(writer: int, number: int) -> int:
    return 1 + (writer * 7 + number) % 5


def check_rows(rows: Any, complete: dict[int, int] | None = None) -> list[str]:
    """Return what is wrong: batches that are torn, lost, doubled or out of order."""
    problems, place = [], 0
    following: Counter[int] = Counter()
    while place < len(rows):
        writer, number = map(int, rows[place])
        size = rows_of(writer, number)
        if number != following[writer]:
            problems.append(f"writer {writer}: batch {number}, expected {following[writer]}")
        if not (rows[place : place + size] == (writer, number)).all():
            problems.append(f"writer {writer}: batch {number} is torn")
        if len(rows) < place + size:
            problems.append(f"writer {writer}: batch {number} is cut")
        following[writer] = number + 1
        place += size
    for writer, count in (complete or {}).items():
        if following[writer] != count:
            problems.append(f"writer {writer}: {following[writer]} batches, {count} were done")
    return problems


def write(crowd: Crowd, writer: int) -> None:
    """Append batches, and change all chunks of the second array, until the time is up."""
    number = 0
    chance = random.Random(writer)
    while time.monotonic() < crowd.end:
        try:
            rows = ingot.open(f"{crowd.url}/rows", "r+", options=crowd.options)
            stamps = ingot.open(f"{crowd.url}/stamps", "r+", options=crowd.options)
            while time.monotonic() < crowd.end:
                if chance.random() < 0.3:
                    stamps[:] = np.full(_STAMPS, writer * 1_000_000 + number)
                    crowd.count("assignments")
                rows.append(batch(writer, number))
                number += 1
                crowd.count("appends")
        except (IngotError, OSError) as error:
            crowd.count(f"writer: {type(error).__name__}")
            number = counted(crowd, writer)
    crowd.done[writer] = counted(crowd, writer)


def counted(crowd: Crowd, writer: int) -> int:
    """Return how many batches of a writer are stored: after an error only reading tells."""
    while True:
        try:
            rows = ingot.open(f"{crowd.url}/rows", options=crowd.options)[:]
            return len({int(row[1]) for row in rows if row[0] == writer})
        except (IngotError, OSError) as error:
            crowd.count(f"writer: {type(error).__name__} in reading")


def read(crowd: Crowd, reader: int) -> None:
    """Read both arrays again and again; every state must be a committed one."""
    length = 0
    rows = stamps = None
    while time.monotonic() < crowd.end:
        try:
            if rows is None or stamps is None or reader % 2:
                rows = ingot.open(f"{crowd.url}/rows", options=crowd.options)
                stamps = ingot.open(f"{crowd.url}/stamps", options=crowd.options)
            found, values = rows[:], stamps[:]
        except (IngotError, OSError) as error:
            crowd.count(f"reader: {type(error).__name__}")
            continue
        crowd.count("reads")
        problems = check_rows(found)
        if len({*values.tolist()}) != 1:
            problems.append(f"stamps are mixed: {sorted({*values.tolist()})}")
        if len(found) < length:
            problems.append(f"{len(found)} rows after {length}")
        length = len(found)
        with crowd.lock:
            crowd.wrong += problems


def run(
    server: seaweed.S3Server,
    url: str,
    *,
    writers: int,
    readers: int,
    seconds: float,
    rate: float = 0.05,
    lease: float = 5.0,
) -> Crowd:
    """Run a crowd through a proxy, and check what is stored at the end without it."""
    direct = Options(storage=server.storage(lease=lease))
    ingot.array(np.zeros((0, 2), np.int64), f"{url}/rows", chunks=(64, 2), options=direct)
    ingot.array(np.zeros(_STAMPS, np.int64), f"{url}/stamps", chunks=8, options=direct)
    chance = random.Random(7)

    def plan(request: Request) -> Fault:
        return chance.choice(FAULTS) if chance.random() < rate else FINE

    with fault_proxy.running(server.endpoint) as proxy:
        proxy.begin(plan)
        storage = server.storage(proxy.endpoint, lease=lease, timeout=10, retries=3)
        crowd = Crowd(url, Options(storage=storage), time.monotonic() + seconds)
        threads = [threading.Thread(target=write, args=(crowd, n)) for n in range(writers)]
        threads += [threading.Thread(target=read, args=(crowd, n)) for n in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        crowd.counts["requests"] = len(proxy.requests)
    rows = ingot.open(f"{url}/rows", options=direct)
    crowd.wrong += check_rows(rows[:], crowd.done)
    crowd.counts["batches stored"] = sum(crowd.done.values())
    return crowd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--writers", type=int, default=20)
    parser.add_argument("--readers", type=int, default=20)
    given = parser.parse_args()
    with seaweed.running() as server:
        crowd = run(
            server,
            "s3://crashes/crowd",
            writers=given.writers,
            readers=given.readers,
            seconds=given.seconds,
        )
    for name, count in sorted(crowd.counts.items()):
        print(f"{count:>8} {name}")
    print(f"{len(crowd.wrong):>8} wrong", *crowd.wrong[:20], sep="\n")


if __name__ == "__main__":
    main()
