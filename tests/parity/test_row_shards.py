"""Chunks copied into shards by rows, by the native kernel and by its twin."""

from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError
from ingot.formats import trailer
from ingot.formats.bcolz import split
from ingot.stores import MemoryStore
from tests.kernels import NATIVE_IS_BUILT, needs_native, on_each_kernel
from tests.storage import content, identity_of, put, use_kernel

ROWS = 1 << 14
CHUNK = 1250


def columns() -> dict[str, np.ndarray]:
    noise = np.random.default_rng(3).normal(size=ROWS)
    return {"a": np.arange(ROWS), "b": np.round(np.cumsum(noise), 1), "c": noise.reshape(-1, 1)}


def parts(file: bytes) -> tuple[bytes, bytes]:
    """Return head and chunk of a chunk file, and what lies behind them."""
    end = 16 + int.from_bytes(file[28:32], "little")
    return file[:end], file[end:]


@on_each_kernel
@pytest.mark.parametrize("source", ["memory", "disk"])
def test_chunks_keep_their_bytes_and_get_another_number_and_identity(
    kernel_name: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    values = columns()
    place = MemoryStore() if source == "memory" else tmp_path / "table"
    table = ingot.table(values, place, chunks=CHUNK, options=ingot.Options(threads=2))
    # A chunk of another program has no trailer, and its head may have other bytes.
    head, _ = parts(content(place)["b/data/__6.blp"])
    bare = head[:5] + b"\x01\x02\x03" + head[8:]
    put(place, {"b/data/__6.blp": bare})
    table.shard(3, tmp_path / "shards")
    before, after, number = content(place), content(tmp_path / "shards"), 0
    assert not [key for key in after if "/.g-" in key]
    for folder, count in (("shard-00000", 5), ("shard-00001", 5), ("shard-00002", 4)):
        for chunk in range(count):
            for name in values:
                old = before[f"{name}/data/__{number}.blp"]
                new = after[f"{folder}/{name}/data/__{chunk}.blp"]
                if old == bare:
                    assert new == bare
                    continue
                assert parts(new)[0] == parts(old)[0]
                was, found = trailer.parse(parts(old)[1]), trailer.parse(parts(new)[1])
                assert (found.number, found.identity) == (
                    chunk,
                    identity_of(tmp_path / "shards", f"{folder}/{name}"),
                )
                assert (found.rows, found.zone) == (was.rows, was.zone)
                assert found.blocks.tolist() == was.blocks.tolist()
            number += 1
    for kernel in ("native", "python") if NATIVE_IS_BUILT else ("python",):
        use_kernel(kernel, monkeypatch)
        shards = ingot.open(tmp_path / "shards")
        for name, column in values.items():
            assert np.array_equal(shards[name][...], column)


@needs_native
def test_the_kernel_copies_from_files_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel("native", monkeypatch)
    table = ingot.table(columns(), tmp_path / "table", chunks=CHUNK)

    def refuse(*given: object) -> None:
        raise AssertionError("a chunk is copied in Python")

    monkeypatch.setattr(split, "_moved", refuse)
    table.shard(3, tmp_path / "shards")
    assert len(ingot.open(tmp_path / "shards")) == ROWS


@on_each_kernel
@pytest.mark.parametrize("place", [20, 100, -1], ids=["header", "block", "trailer"])
def test_a_damaged_chunk_is_not_copied_and_nothing_is_left(
    kernel_name: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    table = ingot.table(columns(), tmp_path / "table", chunks=CHUNK)
    path = tmp_path / "table/b/data/__7.blp"
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError) as caught:
        table.shard(3, tmp_path / "shards")
    if kernel_name == "native":
        assert "b/data/__7.blp" in " ".join(caught.value.__notes__)
    left = [key for key in content(tmp_path / "shards") if not key.startswith(".lock")]
    assert left == []
    path.unlink()
    with pytest.raises(CorruptionError, match="missing"):
        table.shard(3, tmp_path / "shards")


@on_each_kernel
def test_a_chunk_of_another_column_is_not_copied(
    kernel_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    table = ingot.table(columns(), tmp_path / "table", chunks=CHUNK)
    other = (tmp_path / "table/a/data/__3.blp").read_bytes()
    (tmp_path / "table/b/data/__3.blp").write_bytes(other)
    with pytest.raises(CorruptionError, match="its identity is"):
        table.shard(3, tmp_path / "shards")
