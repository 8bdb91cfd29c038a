"""Every store keeps the contract."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from ingot.stores import Feature, LocalStore, MemoryStore, Store, ZipStore
from ingot.stores.buffered import BufferedStore
from ingot.stores.local import beneath
from ingot.testing import Disk, StoreContract
from ingot.testing.limited import LimitedStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestLimitedStore(StoreContract):
    @pytest.fixture(params=[Feature.PATCH, Feature.LIST, Feature.RENAME])
    def store(self, request: pytest.FixtureRequest) -> Store:
        return LimitedStore(request.param)


class TestBufferedStore(StoreContract):
    @pytest.fixture(params=["memory", "local", "staged"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
        below = MemoryStore() if request.param == "memory" else LocalStore(tmp_path, writable=True)
        return BufferedStore(below, most=4 if request.param == "staged" else 64 << 20)

    # A transaction belongs to one thread.
    test_a_put_is_seen_whole_by_other_threads = None  # type: ignore[assignment]
    test_threads_write_their_own_keys = None  # type: ignore[assignment]


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "not" / "there yet", writable=True)


class TestLocalStoreInMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return LocalStore(Disk(), writable=True)

    # A disk is for one thread at a time: a second writer gets an error at once.
    test_threads_write_their_own_keys = None  # type: ignore[assignment]


class TestLocalStoreWithoutLocks(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path, writable=True, locking=False)

    test_threads_write_their_own_keys = None  # type: ignore[assignment]


class TestLocalStoreWithoutKernelHelp(TestLocalStore):
    @pytest.fixture(autouse=True)
    def walk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(beneath, "_kernel_resolves", lambda: False)


class TestLocalStoreForReading(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path)

    def fill(self, store: Store, content: Mapping[str, bytes]) -> Store:
        assert isinstance(store, LocalStore)
        super().fill(LocalStore(store.root, writable=True), content)
        return store


class TestZipStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return ZipStore(tmp_path / "not" / "there yet.zip", writable=True)


class TestZipStoreOfAnotherProgram(StoreContract):
    @pytest.fixture(params=[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
        self.method: int = request.param
        return ZipStore(tmp_path / "example.zip")

    def fill(self, store: Store, content: Mapping[str, bytes]) -> Store:
        with zipfile.ZipFile(store.location, "w", self.method) as archive:
            for key, data in content.items():
                archive.writestr(key, data)
        return store


def test_only_the_local_store_lets_the_kernel_read_files(tmp_path: Path) -> None:
    assert Feature.NATIVE in LocalStore(tmp_path).features
    assert Feature.NATIVE not in MemoryStore().features
    assert Feature.NATIVE not in ZipStore(tmp_path / "x.zip").features
