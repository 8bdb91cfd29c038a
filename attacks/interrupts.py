"""The attack `interrupts`: SIGINT at a line or at a time of every operation.

Afterwards the lock is free for this process and for others, no descriptor is left open, the state
is the old or the new one, an exception that leaves the new state has a note, the handle works, and
the next write removes what was staged. The signal is a real one, so code that defers signals is
seen to do so.
"""

import contextlib
import functools
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ingot
from attacks.campaign import Case, attack
from attacks.datasets import IMPATIENT, is_litter
from attacks.programs import content, prelude, state
from attacks.scenarios import AGAIN, READING, Scenario, scenarios

__all__ = ["interrupts"]


class Interrupt:
    """A trace function that sends SIGINT at the n-th line of Ingot; 0 only counts them."""

    def __init__(self, line):
        self.line = line
        self.seen = 0
        self.place = ""
        # Context managers of Ingot run through contextlib, where signals arrive too.
        self.folders = (os.path.dirname(ingot.__file__) + os.sep, contextlib.__file__)

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(self.folders):
            return None
        return self.at_line

    def at_line(self, frame, event, argument):
        if event == "line":
            self.seen += 1
            if self.seen == self.line:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self.at_line


def interrupted(function, line):
    """Call a function with SIGINT at a line; return the notes of the exception, if it came."""
    trace = Interrupt(line)
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt as error:
        # The exception itself would keep every handle of its traceback.
        return list(getattr(error, "__notes__", ())), trace
    finally:
        sys.settrace(None)
    return None, trace


OTHER = """
import sys
import ingot
for line in sys.stdin:
    store, path = line.rstrip("\\n").split(" ", 1)
    stores = ingot.stores
    kind = {"folder": stores.LocalStore, "file": stores.FileStore, "zip": stores.ZipStore}[store]
    try:
        ingot.open(kind(path, writable=True, wait=0.5), "r+").attrs["other"] = 1
        print("ok", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


@functools.cache
def other() -> "subprocess.Popen[str]":
    """Return a process that writes where it is told to."""
    command = [sys.executable, "-c", OTHER]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def write_elsewhere(store: str, path: Path) -> str:
    """Let another process write to a dataset; return what it says."""
    process = other()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{store} {path}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def descriptors(folder: Path) -> list[str]:
    """Return the open files below a folder."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(str(folder)):
                found.append(target)
    return found


@functools.cache
def every() -> tuple[Scenario, ...]:
    """Return every scenario."""
    return tuple(scenarios())


PLANS: dict[Scenario, tuple[int, float, Any, Any]] = {}


def plan(scenario: Scenario, folder: Path) -> tuple[int, float, Any, Any]:
    """Return the lines and seconds of an operation, and the states before and after it."""
    if scenario not in PLANS:
        PLANS[scenario] = measure(scenario, folder)
    return PLANS[scenario]


def measure(scenario: Scenario, folder: Path) -> tuple[int, float, Any, Any]:
    """Run an operation to its end, once for each of the numbers of its plan."""
    old, new = scenario.states(folder / "states")
    space = scenario.space(folder / "lines")
    code = compile(scenario.source, "operation", "exec")
    _, trace = interrupted(lambda: exec(code, space), 0)
    space = scenario.space(folder / "seconds")
    begin = time.perf_counter()
    exec(code, space)
    return trace.seen, time.perf_counter() - begin, old, new


@attack("interrupts")
def interrupts(case: Case) -> None:
    """SIGINT at random lines and times of every operation of every container."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals arrive in the main thread only")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A permutation of the scenarios for every round, so that each has its share.
    everything = list(every())
    scenario = everything[(case.number * 37 + case.seed) % len(everything)]
    lines, seconds, old, new = plan(scenario, case.folder)
    folder = case.folder / "case"
    space = scenario.space(folder)
    # An interrupt after the operation has ended concerns the caller only.
    code = compile(scenario.source + "\nended = True", "operation", "exec")
    case.announce(source(scenario, 1), scenario.title)
    if case.random.random() < 0.75 or not lines:
        line = case.random.randint(1, max(1, lines))
        notes, trace = interrupted(lambda: exec(code, space), line)
        at = trace.place
        sent = bool(at)
    else:
        line = 0
        notes, sent = at_time(lambda: exec(code, space), case.random.random() * seconds * 1.2)
        at = "a time"
    case.count("at a line" if line else "at a time")
    if not sent:
        return
    if space.get("ended"):
        notes = None
    if notes is None:
        case.count("ended before the signal" if not line else "not raised")
    check(case, scenario, folder, space, notes, (old, new), (line, at))


def at_time(function: Any, delay: float) -> tuple[list[str] | None, bool]:
    """Call a function and send SIGINT after some seconds; return the notes of the exception."""
    sender = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    notes: list[str] | None = None
    try:
        sender.start()
        function()
    except KeyboardInterrupt as caught:
        notes = list(getattr(caught, "__notes__", ()))
    # The signal may arrive after the operation has ended.
    with contextlib.suppress(KeyboardInterrupt):
        sender.join()
        time.sleep(0)
    return notes, True


def check(
    case: Case,
    scenario: Scenario,
    folder: Path,
    space: dict[str, Any],
    notes: list[str] | None,
    states: tuple[Any, Any],
    where: tuple[int, str],
) -> None:
    """Check what an interrupted operation left behind."""
    path = scenario.path(folder)
    line, at = where
    at = at.replace(os.path.dirname(ingot.__file__), "ingot")
    program = source(scenario, line) if line else source_at_time(scenario)

    def find(kind: str, expected: str, happened: str) -> None:
        # Faults of one line of code are one fault, whatever the operation was.
        subject = at if line else f"at a time: {scenario.holds} {scenario.operation}"
        story = f"{happened}\nin: {scenario.title}, interrupted at {at}"
        case.find(kind, subject, expected=expected, happened=story, program=program)

    old, new = states
    try:
        now = state(str(path))
    except Exception as problem:
        find("state", "the old or the new state", f"{type(problem).__name__}: {problem}")
        return
    if now not in (old, new):
        find("state", "the old or the new state", f"neither: {str(now)[:300]}")
    elif now == new != old and notes == []:
        find("note", "a note on the exception, for the commit happened", "no note")
    handle = space.get("h")
    if handle is not None and not scenario.creates:
        # An interrupted transaction is over: the handle reads the committed state.
        try:
            seen = content(handle)
            if seen != now:
                find("handle", "a handle that reads the committed state", str(seen)[:300])
            exec(AGAIN, space)
        except Exception as problem:
            find("handle", "a handle that can be used", f"{type(problem).__name__}: {problem}")
    again = {"ingot": ingot, "os": os, "np": sys.modules["numpy"], "folder": str(folder)}
    try:
        exec(f"place = {IMPATIENT[scenario.store]}", again)
        if now is None:
            exec(scenario.make, again)
        exec('h = ingot.open(place, "r+")\n' + AGAIN, again)
    except Exception as problem:
        find("lock", "a write by the same process", f"{type(problem).__name__}: {problem}")
    # The same process has written, so nothing may be left of the interrupted operation.
    litter = [str(each.relative_to(folder)) for each in folder.rglob("*") if is_litter(each)]
    if litter and scenario.operation not in READING:
        find("litter", "no staged file after the next write", ", ".join(litter))
    if os.path.exists(path):
        answer = write_elsewhere(scenario.store, path)
        if answer != "ok":
            find("lock elsewhere", "a write by another process", answer)
    handle = None
    space.clear()
    again.clear()
    gc.collect()
    left = descriptors(folder)
    if left:
        find("descriptors", "no open file after the handle is gone", ", ".join(left))


def source(scenario: Scenario, line: int) -> str:
    """Return a program that interrupts an operation at a line, and looks at what is left."""
    head = "import contextlib\nimport signal\nimport sys\n" + prelude(
        Interrupt, interrupted, content, state
    )
    body = f"""
memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
code = compile({scenario.source!r}, "operation", "exec")
# Once to the end, so that all modules are loaded and lines are counted as in the attack.
for _ in range(3):
    folder = tempfile.mkdtemp(dir=memory)
{indented(scenario.setup())}
    exec(code, globals())
folder = tempfile.mkdtemp(dir=memory)
{scenario.setup()}
notes, trace = interrupted(lambda: exec(code, globals()), {line})
print("interrupted at", trace.place, "notes", notes)
"""
    return (
        head
        + body
        + inspect.cleandoc(AFTER).format(
            place=IMPATIENT[scenario.store], again=AGAIN, path=scenario.path(Path("x")).name
        )
    )


def source_at_time(scenario: Scenario) -> str:
    """Return a program that interrupts an operation at random times until a lock is left."""
    head = "import contextlib\nimport random\nimport signal\nimport sys\nimport threading\n"
    head += "import time\n" + prelude(content, state)
    lines = f"""
{scenario.setup()}
timer = threading.Timer(random.random() * 0.01, os.kill, (os.getpid(), signal.SIGINT))
try:
    timer.start()
    {scenario.source}
    time.sleep(0.02)
except KeyboardInterrupt as error:
    print("notes", getattr(error, "__notes__", []))
timer.join()
""" + inspect.cleandoc(AFTER).format(
        place=IMPATIENT[scenario.store], again=AGAIN, path=scenario.path(Path("x")).name
    )
    return f"{head}\nfor _ in range(300):\n    folder = tempfile.mkdtemp()\n{indented(lines)}\n"


def indented(text: str) -> str:
    """Return the lines of a block."""
    return "\n".join("    " + line for line in text.splitlines())


AFTER = """
print("state", str(state(os.path.join(folder, "{path}")))[:200])
for name, write in (
    ("the same handle", lambda: h),
    ("a new handle", lambda: ingot.open({place}, "r+")),
):
    try:
        h = write()
        {again}
        print(name, "writes")
    except Exception as error:
        print(name, "fails:", type(error).__name__, error)
for root, folders, names in os.walk(folder):
    for name in names:
        if name.startswith(".g-") or name.endswith(".commit"):
            print("litter", os.path.join(root, name))
"""
