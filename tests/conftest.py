"""Settings that all tests share."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import seaweed, temporary

# Machines that run tests are busy: the time of a single example says nothing.
# The same revision gives the same answer in CI; new examples are for developers and attacks.
settings.register_profile(
    "ingot",
    deadline=None,
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ingot")
temporary.use_memory()

# Shells start programs in the background with Ctrl-C ignored, and tests send it to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[seaweed.S3Server]:
    """Run an S3 server on loopback, one for all tests of the process."""
    with seaweed.running() as server:
        yield server
