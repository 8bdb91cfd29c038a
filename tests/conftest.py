"""Settings that all tests share."""

from hypothesis import settings

from tests import temporary

# Machines that run tests are busy: the time of a single example says nothing.
settings.register_profile("ingot", deadline=None, print_blob=True)
settings.load_profile("ingot")
temporary.use_memory()
