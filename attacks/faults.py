"""The attack `faults`: system calls that fail, and resources that end.

A child makes a dataset, then one system call of an operation fails (strace injects the error), or
a limit is reached: size of files, descriptors, memory, a full file system. The operation raises an
`IngotError`, an `OSError` or, without memory, a `MemoryError`; the state is the old or the new one,
with a note when it is the new one; and the same process can write again.
"""

import contextlib
import ctypes
import functools
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ingot
from attacks.campaign import Case, attack
from attacks.datasets import IMPATIENT, is_litter
from attacks.programs import state
from attacks.scenarios import AGAIN, READING, Scenario, scenarios

__all__ = ["faults"]

ERRORS = ("EIO", "ENOSPC", "EMFILE", "EACCES")
CALLS = (
    "openat,open,creat,read,pread64,readv,preadv,write,pwrite64,writev,pwritev,fsync,fdatasync,"
    "syncfs,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,fcntl,flock,close,fstat,"
    "newfstatat,statx,stat,lstat,lseek,ftruncate,getdents64,statfs,fstatfs,fallocate,link,linkat,"
    "symlink,symlinkat,readlink,readlinkat,access,faccessat,faccessat2,dup,fadvise64,utimensat"
)
WAYS = ("call", "call", "call", "call", "files", "size", "memory", "disk")


@functools.cache
def tracer() -> str:
    """Return why no system call can be made to fail here, or nothing."""
    if shutil.which("strace") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "strace"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(install, capture_output=True, timeout=120, check=False)
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "strace may not trace processes here"


class Subject:
    """A child that makes a dataset, stops, does an operation, and tells what came of it."""

    def __init__(self, scenario: Scenario, folder: Path, before: Callable[[], Any]) -> None:
        # Messages go through a socket: its calls are none of those that fail.
        self.socket, other = socket.socketpair()
        self.child = os.fork()
        if not self.child:
            self.socket.close()
            self.serve(scenario, folder, before, other)
        other.close()

    def serve(
        self, scenario: Scenario, folder: Path, before: Callable[[], Any], parent: socket.socket
    ) -> None:
        """Do the work of the child, which never returns."""
        try:
            space = scenario.space(folder)
            parent.send(b"ready\n")
            parent.recv(1)
            after = before()
            answer = self.operate(scenario, space)
            if callable(after):
                after()
            parent.send(json.dumps(answer).encode() + b"\n")
            # The tracer is detached before the rest.
            parent.recv(1)
            parent.send(json.dumps(self.again(scenario, space, folder)).encode() + b"\n")
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            parent.send(json.dumps({"broken": text}).encode() + b"\n")
        finally:
            os._exit(0)

    @staticmethod
    def operate(scenario: Scenario, space: dict[str, Any]) -> dict[str, Any]:
        """Do the operation; return what it raised."""
        try:
            exec(scenario.source, space)
        except BaseException as error:
            good = isinstance(error, (ingot.errors.IngotError, OSError))
            return {
                "error": f"{type(error).__name__}: {str(error)[:200]}",
                "documented": good,
                "memory": isinstance(error, MemoryError),
                "notes": list(getattr(error, "__notes__", ())),
            }
        return {"error": ""}

    @staticmethod
    def again(scenario: Scenario, space: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Write again in the same process; return what that raised."""
        answer = {"handle": "", "write": ""}
        if "h" in space:
            try:
                exec(AGAIN, space)
            except Exception as error:
                answer["handle"] = f"{type(error).__name__}: {str(error)[:200]}"
        try:
            exec(f"place = {IMPATIENT[scenario.store]}", space)
            if scenario.creates and state(str(scenario.path(folder))) is None:
                exec(scenario.make, space)
            exec('h = ingot.open(place, "r+")\n' + AGAIN, space)
        except Exception as error:
            answer["write"] = f"{type(error).__name__}: {str(error)[:200]}"
        return answer

    def line(self, seconds: float = 10.0) -> str | None:
        """Return the next line of the child; None when it takes too long or has ended."""
        data = b""
        self.socket.settimeout(seconds)
        while not data.endswith(b"\n"):
            try:
                received = self.socket.recv(1)
            except (TimeoutError, ConnectionError):
                return None
            if not received:
                return None
            data += received
        return data.decode()

    def proceed(self) -> None:
        """Let the child go on."""
        with contextlib.suppress(BrokenPipeError):
            self.socket.send(b"x")

    def end(self) -> int:
        """End the child; return its status."""
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def traced(subject: Subject, options: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Attach strace to a child that waits."""
    command = ["strace", "-f", "-q", "-o", str(folder / "strace"), "-p", str(subject.child)]
    tracer = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        status = Path(f"/proc/{subject.child}/status").read_text()
        if f"TracerPid:\t{tracer.pid}\n" in status:
            # The tracer has seized the process; it still has to let it run.
            time.sleep(0.02)
            break
        time.sleep(0.002)
    return tracer


CALLS_OF: dict[Scenario, Counter[str]] = {}


def calls_of(scenario: Scenario, folder: Path) -> Counter[str]:
    """Return how often an operation makes each system call."""
    if scenario not in CALLS_OF:
        folder.mkdir()
        subject = Subject(scenario, folder, lambda: None)
        subject.line()
        tracing = traced(subject, ["-e", f"trace={CALLS}"], folder)
        subject.proceed()
        subject.line()
        detach(tracing)
        subject.end()
        text = (folder / "strace").read_text(errors="replace")
        found = re.findall(r"^\d+ +(\w+)\(", text, re.M)
        CALLS_OF[scenario] = Counter(found)
    return CALLS_OF[scenario]


def detach(tracing: "subprocess.Popen[bytes]") -> None:
    """End strace; the process that it traced goes on."""
    tracing.terminate()
    tracing.wait()


STATES: dict[Scenario, tuple[Any, Any]] = {}


@attack("faults", case_seconds=40)
def faults(case: Case) -> None:
    """Every system call of an operation failing, limits of resources, and a full disk."""
    rng = case.random
    everything = [each for each in scenarios() if each.operation != "refresh"]
    scenario = everything[(case.number * 31 + case.seed) % len(everything)]
    if scenario not in STATES:
        STATES[scenario] = scenario.states(case.folder / "states")
    way = WAYS[case.number % len(WAYS)]
    folder = case.folder / "case"
    folder.mkdir()
    case.announce("", f"{scenario.title}: {way}")
    if way == "call":
        reason = tracer()
        if reason:
            case.count(f"skipped, for {reason}")
            return
        by_call(case, scenario, folder, rng)
    elif way == "disk":
        by_disk(case, scenario, folder, rng)
    else:
        by_limit(case, scenario, folder, way, rng)


def by_call(case: Case, scenario: Scenario, folder: Path, rng: random.Random) -> None:
    """Let one system call of the operation fail."""
    calls = calls_of(scenario, case.folder / "calls")
    if not calls:
        return
    call = rng.choice(sorted(calls))
    number = rng.randint(1, calls[call])
    error = rng.choice(ERRORS)
    subject = Subject(scenario, folder, lambda: None)
    try:
        subject.line()
        inject = f"inject={call}:error={error}:when={number}"
        tracing = traced(subject, ["-e", f"trace={call}", "-e", inject], folder.parent)
        subject.proceed()
        first = subject.line()
        detach(tracing)
        injected = "(INJECTED)" in (folder.parent / "strace").read_text(errors="replace")
        case.count("calls that failed" if injected else "calls not reached")
        how = f"{call} fails with {error}"
        judge(case, scenario, folder, subject, first, how, f"{how}, occurrence {number}")
    finally:
        subject.end()


def by_limit(case: Case, scenario: Scenario, folder: Path, way: str, rng: random.Random) -> None:
    """Let the operation reach a limit of its process."""
    amount = rng.randrange(40)

    def limit() -> Callable[[], None]:
        if way == "files":
            which = resource.RLIMIT_NOFILE
            value = max(map(int, os.listdir("/proc/self/fd"))) + amount % 8
        elif way == "size":
            which, value = resource.RLIMIT_FSIZE, amount * 13
        else:
            which = resource.RLIMIT_AS
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            value = pages * resource.getpagesize() + amount * 64 * 1024
        soft, hard = resource.getrlimit(which)
        resource.setrlimit(which, (value, hard))
        return lambda: resource.setrlimit(which, (soft, hard))

    subject = Subject(scenario, folder, limit)
    try:
        subject.line()
        subject.proceed()
        case.count(f"limits of {way}")
        judge(case, scenario, folder, subject, subject.line(), f"limit of {way}", str(amount))
    finally:
        subject.end()


def by_disk(case: Case, scenario: Scenario, folder: Path, rng: random.Random) -> None:
    """Let the operation fill a small file system, mounted where only this child sees it."""
    room = rng.randrange(0, 12) * 4096
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        case.count("full disks" if status == 0 else "skipped, for no file system may be mounted")
        return
    status = 1
    try:
        library = ctypes.CDLL(None, use_errno=True)
        private = library.unshare(0x00020000) == 0  # CLONE_NEWNS
        private = private and library.mount(b"none", b"/", None, (1 << 18) | (1 << 14), None) == 0
        target = str(folder).encode()
        if private and library.mount(b"none", target, b"tmpfs", 0, b"size=512k") == 0:
            status = 0
            fill = folder / "fill"

            def full() -> Callable[[], None]:
                file = os.open(fill, os.O_WRONLY | os.O_CREAT)
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file, bytes(4096))
                os.close(file)
                size = fill.stat().st_size
                os.truncate(fill, max(0, size - room))
                return lambda: fill.unlink()

            subject = Subject(scenario, folder, full)
            subject.line()
            subject.proceed()
            judge(case, scenario, folder, subject, subject.line(), "full disk", f"{room} left")
            subject.end()
    finally:
        os._exit(status)


def judge(
    case: Case,
    scenario: Scenario,
    folder: Path,
    subject: Subject,
    first: str | None,
    how: str,
    detail: str,
) -> None:
    """Check what the child told, and what it left."""
    old, new = STATES[scenario]
    title = f"{scenario.holds} in {scenario.store}, {scenario.operation}: {how}"

    def find(kind: str, expected: str, happened: str) -> None:
        story = f"{happened}\n{scenario.title}: {detail}"
        program = source(scenario, how, detail)
        case.find(kind, title, expected=expected, happened=story, program=program)

    if first is None:
        # A child that ended has closed its pipe; one that hangs has not.
        hung = os.waitpid(subject.child, os.WNOHANG)[0] == 0
        if hung:
            find("hang", "an answer within 10 s", "none")
        else:
            find("death", "an answer or an error", "the process died")
            subject.child = os.fork() or os._exit(0)  # something for `end` to wait for
        return
    answer = json.loads(first)
    if "broken" in answer:
        find("error", "an answer", answer["broken"])
        return
    allowed = answer.get("documented") or (answer.get("memory") and "memory" in how)
    if answer["error"] and not allowed:
        find("error", "an IngotError or an OSError", answer["error"])
    if answer["error"].startswith("LockedError") and scenario.operation in READING:
        find("error", "the error of the call", answer["error"])
    try:
        now = state(str(scenario.path(folder)))
    except Exception as error:
        find("state", "the old or the new state", f"{type(error).__name__}: {error}")
        return
    if now not in (old, new):
        find("state", "the old or the new state", f"neither, after {answer['error']}")
    elif answer["error"] and now == new != old and not answer["notes"]:
        find("note", "a note on the exception, for the commit happened", answer["error"])
    elif not answer["error"] and now != new and scenario.operation not in READING:
        find("state", "the new state, for no error was raised", "the old state")
    subject.proceed()
    second = subject.line(15)
    if second is None:
        find("hang", "a write by the same process", "no answer")
        return
    again = json.loads(second)
    if again.get("broken") or again["write"]:
        find("lock", "a write by the same process", again.get("broken") or again["write"])
    # After a failed sync the store writes no more until it is opened again, by design.
    if again.get("handle") and "failed sync" not in again["handle"]:
        find("handle", "a write by the same handle", again["handle"])
    litter = [str(each.relative_to(folder)) for each in folder.rglob("*") if is_litter(each)]
    if litter and not again.get("write") and scenario.operation not in READING:
        find("litter", "no litter after the next write", ", ".join(litter))


def source(scenario: Scenario, how: str, detail: str) -> str:
    """Return a program that does the operation under strace, or what to limit by hand."""
    match = re.match(r"(\w+) fails with (\w+), occurrence (\d+)", detail)
    if not match:
        return f"# {how}, {detail}:\n# {scenario.setup()}\n# {scenario.source}\n".replace(
            "\n", "\n# "
        )
    call, error, number = match.groups()
    return f"""import os, subprocess, tempfile, time

import numpy as np

import ingot

folder = tempfile.mkdtemp()
{scenario.setup()}
inject = "inject={call}:error={error}:when={number}"
options = ["-f", "-q", "-e", "trace={call}", "-e", inject, "-p", str(os.getpid())]
tracer = subprocess.Popen(["strace", *options])
time.sleep(0.5)
try:
    {scenario.source}
    print("no error")
except Exception as error:
    print(type(error).__name__, error, getattr(error, "__notes__", []))
tracer.terminate()
tracer.wait()
for root, folders, names in os.walk(folder):
    print(root, names)
h = ingot.open({IMPATIENT[scenario.store]}, "r+")
{AGAIN}
"""
