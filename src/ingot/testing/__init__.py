"""Contracts and proofs that the author of a plug-in runs against it.

A subclass of a contract is a set of tests::

    from ingot.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()

`FormatContract` does the same for a format, by its name in the registry::

    class TestMyFormat(FormatContract):
        format = "mine"

`pytest.register_assert_rewrite("ingot.testing")` in a `conftest.py`, before the first import of
this module, makes failures show the values compared.

`prove` takes a `Scenario` of commits through every crash, `schedules` through every interleaving
with a reader.
"""

from ingot.testing.contracts import HOSTILE_KEYS, StoreContract
from ingot.testing.counting import CountingStore
from ingot.testing.crashes import Proof, Scenario, prove
from ingot.testing.disk import Disk, Image
from ingot.testing.faults import Fault, strike
from ingot.testing.formats import FormatContract
from ingot.testing.schedules import schedules

__all__ = [
    "HOSTILE_KEYS",
    "CountingStore",
    "Disk",
    "Fault",
    "FormatContract",
    "Image",
    "Proof",
    "Scenario",
    "StoreContract",
    "prove",
    "schedules",
    "strike",
]
