"""Stores of objects keep the contract of stores, in memory and on a real server."""

import secrets

import pytest
from obstore.store import MemoryStore

from ingot.formats.registry import FORMATS
from ingot.stores import ObjectStore, Store
from ingot.stores.objects.url import ObjectURL
from ingot.testing import FormatContract, StoreContract
from ingot.testing.formats import Place
from tests.seaweed import S3Server


class TestObjectStore(StoreContract):
    @pytest.fixture(params=[False, True], ids=["several writers", "one writer"])
    def store(self, request: pytest.FixtureRequest) -> Store:
        return ObjectStore(MemoryStore(), "a/b", writable=True, single_writer=request.param)


class TestObjectStoreOnS3(StoreContract):
    @pytest.fixture
    def store(self, s3_server: S3Server) -> Store:
        url = f"s3://contract/{secrets.token_hex(6)}"
        return ObjectStore(ObjectURL.parse(url, s3_server.storage()), writable=True)


class _FormatOnObjects(FormatContract):
    """The contract of a format, in a bucket in memory."""

    @pytest.fixture
    def place(self) -> Place:
        return ObjectStore(MemoryStore(), "data", writable=True)


for _name in FORMATS:
    _class = f"Test{_name.capitalize()}OnObjects"
    globals()[_class] = type(_class, (_FormatOnObjects,), {"format": _name})
