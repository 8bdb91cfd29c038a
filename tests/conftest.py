"""Settings that all tests share."""

import signal

from hypothesis import settings

from tests import temporary

# Machines that run tests are busy: the time of a single example says nothing.
settings.register_profile("ingot", deadline=None, print_blob=True)
settings.load_profile("ingot")
temporary.use_memory()

# Shells start programs in the background with Ctrl-C ignored, and tests send it to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
