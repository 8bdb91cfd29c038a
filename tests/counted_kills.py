"""Children that are killed at a counted step, so that no run depends on how fast the machine is.

A step is a system call that changes a file or a folder, where the parent may trace its child. It
is one that Python or the native kernel makes. Elsewhere a step is a call out of Python.
"""

import ctypes
import functools
import os
import platform
import signal
import sys
from collections.abc import Callable

_TRACEME, _SYSCALL, _SETOPTIONS, _SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_GOOD, _EXITKILL = 1, 1 << 20
_ENTRY = 1
# The numbers of write, pwrite64, writev, pwritev, ftruncate, fallocate, rename, renameat,
# renameat2, unlink, unlinkat, rmdir, link, linkat, mkdir, mkdirat, fsync, fdatasync, sendfile and
# copy_file_range; of openat, which counts where it creates; and of open, which does as well.
_CHANGING = {
    "x86_64": {
        *(1, 18, 20, 296, 77, 285, 82, 264, 316, 87, 263, 84, 86, 265, 83, 258, 74, 75, 40, 326)
    },
    "aarch64": {64, 68, 66, 70, 46, 47, 38, 276, 35, 37, 34, 82, 83, 71, 285},
}
_OPENING = {"x86_64": {257: 2, 2: 1}, "aarch64": {56: 2}}
"""Which argument has the flags."""


class _Info(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
        ("more", ctypes.c_uint64 * 2),
    )


def steps_of(act: Callable[[], object]) -> int:
    """Return how many steps something takes in a child, which ends by itself."""
    steps, killed = _run(act, 0)
    assert not killed
    return steps


def killed_at(act: Callable[[], object], step: int) -> bool:
    """Do something in a child that is killed before a step, the first of which is 1.

    Return whether it was killed: False where it takes fewer steps.
    """
    assert step > 0
    return _run(act, step)[1]


def _run(act: Callable[[], object], last: int) -> tuple[int, bool]:
    machine = _machine()
    return _profiled(act, last) if machine is None else _traced(act, last, machine)


def _ptrace(request: int, child: int, size: int = 0, data: object = None) -> int:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    found: int = call(request, child, size, data)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _traced(act: Callable[[], object], last: int, machine: str) -> tuple[int, bool]:
    child = os.fork()
    if not child:
        status = 1
        try:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            act()
            status = 0
        finally:
            os._exit(status)
    steps, passed, info = 0, 0, _Info()
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        raise OSError(f"a child cannot be traced: status {status}")
    try:
        _ptrace(_SETOPTIONS, child, 0, _GOOD | _EXITKILL)
        while True:
            _ptrace(_SYSCALL, child, 0, passed)
            _, status = os.waitpid(child, 0)
            if not os.WIFSTOPPED(status):
                break
            passed = os.WSTOPSIG(status)
            if passed != signal.SIGTRAP | 0x80:
                continue
            passed = 0
            _ptrace(_SYSCALL_INFO, child, ctypes.sizeof(info), ctypes.addressof(info))
            steps += _is_step(info, machine)
            if steps == last > 0:
                break
    finally:
        if os.WIFSTOPPED(status):
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
    return _ended(steps, status)


def _is_step(info: _Info, machine: str) -> bool:
    if info.op != _ENTRY:
        return False
    flags = _OPENING[machine].get(info.number)
    if flags is not None:
        return bool(info.arguments[flags] & os.O_CREAT)
    return info.number in _CHANGING[machine]


def _profiled(act: Callable[[], object], last: int) -> tuple[int, bool]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status, steps = 1, 0

        def look(frame: object, event: str, given: object) -> None:
            nonlocal steps
            if event == "c_call":
                steps += 1
                if steps == last:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(look)
            act()
            sys.setprofile(None)
            os.write(writing, b"%d" % steps)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    return _ended(int(text or 0), os.waitpid(child, 0)[1])


def _ended(steps: int, status: int) -> tuple[int, bool]:
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child has ended with {code}"
    return steps, code != 0


@functools.cache
def _machine() -> str | None:
    """Return the kind of processor where a parent may trace its child, and None elsewhere."""
    found = platform.machine()
    if sys.platform != "linux" or found not in _CHANGING or sys.maxsize < 1 << 32:
        return None
    reading, writing = os.pipe()
    try:
        traced = _traced(lambda: os.write(writing, b"1"), 0, found)
    except (OSError, AssertionError):
        return None
    finally:
        os.close(reading)
        os.close(writing)
    return found if traced == (1, False) else None
