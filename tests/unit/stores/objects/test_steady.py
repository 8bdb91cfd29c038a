"""Readers of a bucket stay on one state, or are told that it is gone."""

import secrets
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import LockedError, ReadOnlyError
from ingot.stores import Commit, Extent, ObjectStore, Put


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(6)}/data/x.zarr"


def test_a_snapshot_of_a_reader_ends_with_the_state(url: str) -> None:
    ingot.array(np.arange(40), url, chunks=4)
    reader, writer = ingot.open(url), ingot.open(url, "r+")
    with reader.snapshot():
        assert reader[:].tolist() == [*range(40)]
        writer[3] = 7
        with pytest.raises(LockedError, match="a writer has changed the state"):
            reader[:]
        with pytest.raises(LockedError, match="a writer has changed the state"):
            reader[38]
    assert reader[:5].tolist() == [0, 1, 2, 7, 4]


def test_a_snapshot_does_not_take_documents_from_before(url: str) -> None:
    ingot.array(np.arange(4), url, chunks=4)
    reader = ingot.open(url)
    ingot.open(url, "r+").append([4, 5])
    with reader.snapshot():
        assert reader[:].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("suffix", ["zarr", "bcolz", "blsk"])
def test_data_of_a_bucket_is_converted_and_exported(tmp_path: Path, suffix: str) -> None:
    url = f"memory://{secrets.token_hex(6)}/x.{suffix}"
    values = np.arange(60).reshape(20, 3)
    ingot.array(values, url, chunks=(6, 3))
    ingot.convert(url, tmp_path / "copy.zarr")
    assert (ingot.open(tmp_path / "copy.zarr")[:] == values).all()
    ingot.convert(url, f"{url}-copy.zarr")
    assert (ingot.open(f"{url}-copy.zarr")[:] == values).all()
    with ingot.open(url).snapshot():
        pass


def test_a_commit_between_two_reads_leaves_no_copy(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingot.array(np.ones(40, "i4"), url, chunks=4)
    writer, read, done = ingot.open(url, "r+"), ObjectStore.read, []

    def meddled(store: ObjectStore, extents: list[Extent]) -> list[bytes | None]:
        found = read(store, extents)
        if not done and any(extent.key.startswith("c/") for extent in extents):
            done.append(1)
            writer[:] = 7
        return found

    monkeypatch.setattr(ObjectStore, "read", meddled)
    with pytest.raises(LockedError, match="a writer has changed the state"):
        ingot.convert(url, tmp_path / "copy.bcolz")
    assert not (tmp_path / "copy.bcolz").exists()


def test_nothing_is_written_through_a_view(url: str) -> None:
    ingot.array(np.ones(4), url)
    with ObjectStore.from_url(url).pin() as view, pytest.raises(ReadOnlyError):
        view.apply(Commit(publish=(Put("a", b"a"),)))
