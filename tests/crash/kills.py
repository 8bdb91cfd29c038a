"""A writer that is killed at any moment."""

import os
import random
import select
import signal
import time
from collections.abc import Callable


def kill_one(write: Callable[[int], None], chance: random.Random, longest: float = 0.012) -> int:
    """Start a writer, kill it, and return the last number that it acknowledged; 0 if none.

    Half of them die while they finish what the one before has left, or soon after that. The others
    get as far as a commit, however slow the machine is. `longest` is how long a writer lives then.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(writing)
        finally:
            os._exit(1)
    os.close(writing)
    if chance.random() < 0.5:
        select.select([reading], [], [], 60)
    time.sleep(chance.uniform(0, longest))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    with os.fdopen(reading, "rb") as pipe:
        return max(map(int, pipe.read().split()), default=0)
