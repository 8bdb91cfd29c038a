"""Children with little memory and little time: what a file claims must cost neither."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CAN_LIMIT_FILES = importlib.util.find_spec("resource") is not None
"""Whether the system limits the size of files; Windows does not."""

MEMORY = 1 << 30
SECONDS = 10
# Of the clock, for a machine that has other work; it is the processor time that counts.
MOST_SECONDS = 120

_PREAMBLE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
import numpy as np
import ingot
from ingot.errors import IngotError, LimitError
"""


def run_limited(code: str, kernel: str, *arguments: object) -> None:
    """Run a program with 1 GiB of address space and 10 s of processor time; it raises nothing."""
    environment = os.environ | {"INGOT_KERNEL": kernel, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _PREAMBLE.format(memory=MEMORY, seconds=SECONDS) + code,
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@contextmanager
def short_files(size: int) -> Iterator[None]:
    """Let no file of this process get longer."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
