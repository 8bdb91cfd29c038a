"""Stores of objects keep the contract of stores, in memory and on a real server."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from obstore.store import MemoryStore

import ingot
from ingot.formats.registry import FORMATS
from ingot.options import Options
from ingot.stores import ObjectStore, Store
from ingot.stores.objects.url import ObjectURL
from ingot.testing import FormatContract, StoreContract
from ingot.testing.formats import Place
from tests import fake_clouds
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


@pytest.fixture(scope="module")
def google() -> Iterator[dict[str, Any]]:
    with fake_clouds.google_storage() as storage:
        yield storage


@pytest.fixture(scope="module")
def azure() -> Iterator[dict[str, Any]]:
    with fake_clouds.azure_storage() as storage:
        yield storage


class TestObjectStoreOnGoogle(StoreContract):
    @pytest.fixture
    def store(self, google: dict[str, Any]) -> Store:
        url = f"gs://contract/{secrets.token_hex(6)}"
        return ObjectStore(ObjectURL.parse(url, google), writable=True)


class TestObjectStoreOnAzure(StoreContract):
    @pytest.fixture
    def store(self, azure: dict[str, Any]) -> Store:
        url = f"az://contract/{secrets.token_hex(6)}"
        return ObjectStore(ObjectURL.parse(url, azure), writable=True)


@pytest.mark.parametrize(
    ("scheme", "running"),
    [("gs", fake_clouds.google_storage), ("az", fake_clouds.azure_storage)],
)
def test_datasets_of_google_and_azure_are_made_changed_and_read(
    scheme: str, running: Callable[[], AbstractContextManager[dict[str, Any]]]
) -> None:
    with running() as storage:
        options = Options(storage=storage)
        url = f"{scheme}://data/x.zarr"
        first = ingot.array(np.arange(40), url, chunks=7, options=options)
        first.append([1, 2, 3])
        first[3:20] = 0
        expected = [*range(3), *([0] * 17), *range(20, 40), 1, 2, 3]
        assert ingot.open(url, options=options)[:].tolist() == expected
        late = ingot.open(url, "r+", options=options)
        with late.transaction():
            late[0] = 9
            late.attrs["x"] = 1
        assert first[0] == 9
        group = ingot.group(f"{scheme}://data/g", options=options)
        group.array("heat", np.zeros(4))
        assert sorted(ingot.open(f"{scheme}://data/g", options=options)) == ["heat"]
        ingot.array([7, 8], url, overwrite=True, options=options)
        assert ingot.open(url, options=options)[:].tolist() == [7, 8]


class _FormatOnObjects(FormatContract):
    """The contract of a format, in a bucket in memory."""

    @pytest.fixture
    def place(self) -> Place:
        return ObjectStore(MemoryStore(), "data", writable=True)


for _name in FORMATS:
    _class = f"Test{_name.capitalize()}OnObjects"
    globals()[_class] = type(_class, (_FormatOnObjects,), {"format": _name})
