"""The attack `peers`: other programs write between our calls, and during our reads.

A handle of ours does not know of their writes. It must never delete or overwrite what they
committed, and a read is of the present state, of an earlier one, or an error.
"""

import contextlib
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.campaign import Case, Skip, attack
from attacks.programs import IMPORTS

__all__ = ["peers"]

ZARR_OPEN = 'p = zarr.open_array(place, mode="r+")'
STORE_OPEN = "p = ts.open(SPEC, open=True).result()"
PEERS = {
    "zarr": {
        "import": "import zarr",
        "assign": f"{ZARR_OPEN}; p[{{a}}:{{b}}] = {{v}}",
        "append": f"{ZARR_OPEN}; p.append(np.full({{n}}, {{v}}, 'i8'))",
        "resize": f"{ZARR_OPEN}; p.resize(({{size}},))",
        "attrs": f"{ZARR_OPEN}; p.attrs['x'] = {{v}}",
        "read": f"{ZARR_OPEN}; r = p[...]; s = dict(p.attrs)",
    },
    "tensorstore": {
        "import": "import tensorstore as ts",
        "assign": f"{STORE_OPEN}; p[{{a}}:{{b}}].write({{v}}).result()",
        "resize": f"{STORE_OPEN}; p.resize(exclusive_max=[{{size}}]).result()",
        "read": f"{STORE_OPEN}; r = p.read().result(); s = None",
    },
    "bcolz": {
        "import": "import bcolz",
        "assign": "p = bcolz.carray(rootdir=place, mode='a'); p[{a}:{b}] = {v}; p.flush()",
        "append": (
            "p = bcolz.carray(rootdir=place, mode='a'); "
            "p.append(np.full({n}, {v}, 'i8')); p.flush()"
        ),
        "resize": "p = bcolz.carray(rootdir=place, mode='a'); p.resize({size}); p.flush()",
        "attrs": "p = bcolz.carray(rootdir=place, mode='a'); p.attrs['x'] = {v}",
        "read": "p = bcolz.carray(rootdir=place, mode='r'); r = p[:]; s = dict(p.attrs)",
    },
}
"""How a peer does things, as source text."""
CHUNK = 5
"""How many items a chunk has."""
FORMATS = {"zarr": ("zarr2", "zarr3"), "tensorstore": ("zarr2", "zarr3"), "bcolz": ("bcolz",)}
OURS = {
    "assign": "h[{a}:{b}] = {v}",
    "append": "h.append(np.full({n}, {v}, 'i8'))",
    "resize": "h.resize({size})",
    "attrs": "h.attrs['y'] = {v}",
    "read": "r = h[...]; s = dict(h.attrs)",
}
MODEL = {
    "assign": "m[{a}:{b}] = {v}",
    "append": "m = np.concatenate([m, np.full({n}, {v}, 'i8')])",
    "resize": "o = m; m = np.zeros({size}, 'i8'); k = min(len(o), {size}); m[:k] = o[:k]",
    "attrs": "t['{key}'] = {v}",
    "read": "",
}


def present() -> list[str]:
    """Return the peers that are installed."""
    found = []
    for name, ways in PEERS.items():
        with contextlib.suppress(ImportError):
            exec(ways["import"], {})
            found.append(name)
    return found


@attack("peers", case_seconds=20)
def peers(case: Case) -> None:
    """bcolz, zarr and tensorstore write between our calls, and during our reads."""
    names = present()
    if not names:
        raise Skip("none of zarr, tensorstore and bcolz is installed")
    peer = names[case.number % len(names)]
    format = case.random.choice(FORMATS[peer])
    if case.number % 10 == 9:
        during(case, peer, format)
    else:
        between(case, peer, format)


def space_of(peer: str, format: str, place: Path) -> dict[str, Any]:
    """Return the names that a program sees."""
    space: dict[str, Any] = {"ingot": ingot, "np": np, "place": str(place)}
    space["SPEC"] = spec(format, str(place))
    exec(PEERS[peer]["import"], space)
    return space


def spec(format: str, place: str) -> dict[str, Any]:
    """Return how tensorstore is asked for an array."""
    driver = "zarr" if format == "zarr2" else "zarr3"
    return {"driver": driver, "kvstore": {"driver": "file", "path": place}}


Step = tuple[str, str, dict[str, Any]]


def between(case: Case, peer: str, format: str) -> None:
    """Let the peer and a stale handle of ours take turns."""
    rng = case.random
    size = rng.choice((5, 10, 12, 23))
    steps: list[Step] = []
    for number in range(rng.randint(2, 7)):
        who = "peer" if rng.random() < 0.5 else "ours"
        ways = PEERS[peer] if who == "peer" else OURS
        what = rng.choice([name for name in ways if name != "import"])
        a = rng.randrange(20)
        numbers = {
            "a": a,
            "b": a + rng.randint(1, 8),
            "n": rng.randint(1, 9),
            "v": 100 + number,
            "size": rng.randrange(30),
            "key": "x" if who == "peer" else "y",
        }
        steps.append((who, what, numbers))
    counter = itertools.count()
    make = f"h = ingot.array(np.arange({size}), place, format={format!r}, chunks={CHUNK})"

    def play(candidate: list[Step]) -> tuple[str, str] | None:
        place = case.folder / f"run-{next(counter)}"
        return replay(candidate, make, space_of(peer, format, place), peer)

    case.announce(program(steps, make, peer, format), f"{peer} and {format}")
    problem = play(steps)
    case.count("steps", len(steps))
    if problem is None:
        return

    def fails(candidate: list[Step]) -> bool:
        again = play(candidate)
        return again is not None and again[0] == problem[0]

    fewest = case.shrink(steps, fails)
    kind, happened = play(fewest) or problem
    story = ", ".join(f"{who} {what}" for who, what, _ in fewest)
    case.find(
        kind,
        f"{peer} and {format}: {story}",
        expected="nothing that the peer committed is lost, and every read is right or an error",
        happened=happened,
        program=program(fewest, make, peer, format),
    )


def replay(
    steps: list[Step], make: str, space: dict[str, Any], peer: str
) -> tuple[str, str] | None:
    """Run the steps; return the kind of the first problem, and the story."""
    exec(make + "\nm = h[...].copy(); t = {}\nh = ingot.open(place, 'r+'); h[...]; len(h)", space)
    past = [space["m"].copy()]
    for who, what, numbers in steps:
        size = len(space["m"])
        if what == "assign":
            # Within the present state; a handle that does not know of it may refuse.
            a = min(numbers["a"], size)
            numbers = {**numbers, "a": a, "b": min(numbers["b"], size)}
            if numbers["b"] <= a:
                continue
        if who == "peer":
            exec(PEERS[peer][what].format(**numbers), space)
        else:
            problem = ours(what, numbers, space, past)
            if problem == "refused":
                continue
            if problem:
                return "read", problem
        if what != "read":
            exec(MODEL[what].format(**numbers), space)
            past.append(space["m"].copy())
        try:
            fresh = ingot.open(space["place"])
            got, attrs = fresh[...], dict(fresh.attrs)
        except ingot.errors.IngotError as error:
            return "unreadable", f"after {who} {what} {numbers}: {type(error).__name__}: {error}"
        want = space["m"]
        if who == "peer" and what == "resize" and len(want) == len(got) > size:
            # In Zarr, growing shows what the last chunk holds beyond the old end: anything.
            edge = -(-size // CHUNK) * CHUNK
            want[size:edge] = got[size:edge]
            past[-1] = want.copy()
        if not np.array_equal(got, want):
            return "lost", f"after {who} {what} {numbers}: {got.tolist()}, expected {want.tolist()}"
        if attrs != space["t"]:
            return "attributes", f"after {who} {what}: {attrs}, expected {space['t']}"
    exec(PEERS[peer]["read"], space)
    if not np.array_equal(space["r"], space["m"]):
        return "peer", f"{peer} reads {space['r'].tolist()}, expected {space['m'].tolist()}"
    return None


def ours(what: str, numbers: dict[str, Any], space: dict[str, Any], past: list[Any]) -> str:
    """Do a step of ours; return what was wrong with it, or that it was refused."""
    if what == "assign":
        # What a stale handle takes for its length decides what a slice means.
        numbers = {**numbers, "b": min(numbers["b"], len(space["m"]))}
        before = space["h"].shape[0]
        if before < numbers["b"]:
            return "refused"
    try:
        exec(OURS[what].format(**numbers), space)
    except ingot.errors.IngotError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if what == "read":
        got, want = space["r"], space["m"]
        # A stale handle may see the present items with an older length. Behind the present end it
        # then sees what the last chunk still holds: items of an earlier state, or the fill value if
        # the peer has written the chunk again. docs/promise.md says so.
        states = [*past, *(want[: len(old)] for old in past)]
        if not any(np.array_equal(got, state) for state in states) and not any(
            _extends(got, want, old) for old in past
        ):
            return f"our read gives {got.tolist()}, the state is {want.tolist()}"
    return ""


def _extends(got: Any, want: Any, old: Any) -> bool:
    """Return whether the present items are followed by old ones, or by the fill value, 0."""
    cut = len(want)
    if len(got) != len(old) or cut > len(old) or not np.array_equal(got[:cut], want):
        return False
    return bool(np.all((got[cut:] == old[cut:]) | (got[cut:] == 0)))


def during(case: Case, peer: str, format: str) -> None:
    """Let the peer overwrite chunks while we read: each chunk is one that it wrote, or an error."""
    space = space_of(peer, format, case.folder / "data")
    exec(f"h = ingot.array(np.zeros(20, 'i8'), place, format={format!r}, chunks={CHUNK})", space)
    stop = threading.Event()
    problems: list[str] = []
    if peer == "bcolz":
        # It truncates files in place, so a reader may see any part of them.
        case.count("not tried: bcolz writes in place")
        return

    def write() -> None:
        for value in itertools.count(1):
            if stop.is_set():
                return
            exec(PEERS[peer]["assign"].format(a=0, b=20, v=value), dict(space))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    handle = ingot.open(space["place"])
    for _ in range(60):
        try:
            chunks = np.asarray(handle[...]).reshape(4, 5)
        except ingot.errors.IngotError:
            case.count("refused while a peer wrote")
            continue
        case.count("reads while a peer wrote")
        if not (chunks == chunks[:, :1]).all():
            problems.append(str(chunks.tolist()))
    stop.set()
    thread.join()
    if problems:
        case.find(
            "torn chunk",
            f"{peer} and {format}",
            expected="every chunk as the peer wrote it",
            happened=problems[0],
        )


def program(steps: list[Step], make: str, peer: str, format: str) -> str:
    """Return the steps as a file of its own."""
    lines = [IMPORTS, PEERS[peer]["import"], 'place = os.path.join(tempfile.mkdtemp(), "data")']
    lines.append(f"SPEC = {spec(format, '')!r}; SPEC['kvstore']['path'] = place")
    lines += [make, "h = ingot.open(place, 'r+'); h[...]; len(h)"]
    for who, what, numbers in steps:
        ways: dict[str, str] = PEERS[peer] if who == "peer" else OURS
        lines.append(f"{ways[what].format(**numbers)}  # {who}")
        lines.append("print(ingot.open(place)[...], dict(ingot.open(place).attrs))")
    return "\n".join(lines)
