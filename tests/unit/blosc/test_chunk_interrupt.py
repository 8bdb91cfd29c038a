"""Ctrl-C ends a long native call soon, on one thread and on several."""

import os
import signal
import subprocess
import sys

import pytest

from tests.kernels import needs_native

PROGRAM = """
import os, signal, sys, threading, time
from ingot import blosc
data = os.urandom(4 << 20) * 60
started = time.process_time()
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    blosc.compress(data, typesize=8, codec="zstd", level=9, threads=int(sys.argv[1]))
except KeyboardInterrupt:
    print(time.process_time() - started)
"""


@needs_native
@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_long_call_can_be_interrupted(threads: str) -> None:
    """Python raises after the call in any case; that takes many times the work that is allowed."""
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, threads],
        env=os.environ | {"INGOT_KERNEL": "native"},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert child.returncode == 0, child.stderr
    assert float(child.stdout) < 2
