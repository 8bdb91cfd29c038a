"""Rows that are removed from tables: by the native kernel in one pass, held against NumPy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers import table_state
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError
from ingot.stores import Store
from tests.kernels import needs_native, on_each_kernel
from tests.storage import STORES, content, use_kernel

ROWS = 1000
CHUNKS = {"a": 70, "b": 64, "c": 300}
REMOVED: list[Any] = [
    [0],
    [ROWS - 1],
    range(69, 141),
    range(5, 1000, 7),
    range(100, 995),
    [*range(450, 1000)],
    range(1000),
    [63, 64, 65, 127, 128, 299, 300, 599, 600],
]


def columns() -> dict[str, np.ndarray]:
    numbers = np.arange(ROWS)
    return {"a": numbers * 3, "b": (numbers % 90).astype("S3"), "c": np.stack([numbers / 7] * 3, 1)}


def refuse(*given: object) -> Any:
    raise AssertionError("rows are moved in Python")


@on_each_kernel
@pytest.mark.parametrize("make", STORES)
@pytest.mark.parametrize("removed", REMOVED, ids=str)
def test_the_other_rows_stay(
    kernel_name: str,
    removed: Any,
    make: Callable[[Path], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernel(kernel_name, monkeypatch)
    # Windows of memory of about ten chunks.
    limits = ingot.Limits(window_bytes=10 * 70 * 8)
    store = make(tmp_path)
    table = ingot.table(
        columns(), store, chunks=CHUNKS, options=ingot.Options(threads=2, limits=limits)
    )
    if kernel_name == "native":
        monkeypatch.setattr(table_state, "_moved_up", refuse)
    assert table.delete(list(removed)) == len(removed)
    kept = np.delete(np.arange(ROWS), list(removed))
    for name, values in columns().items():
        assert np.array_equal(table[name][...], values[kept]), name
        assert np.array_equal(ingot.open(store)[name][...], values[kept]), name
    assert len(table) == len(kept)
    low, high = 300, 900
    expected = ((kept * 3 >= low) & (kept * 3 < high)).sum()
    assert table.where(f"(a >= {low}) & (a < {high})").count() == expected
    table.append({name: values[:10] for name, values in columns().items()})
    assert np.array_equal(table["a"][len(kept) :], np.arange(10) * 3)


@on_each_kernel
def test_in_a_transaction_and_in_nested_tables(
    kernel_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    values = columns()
    given = {"x": values["a"], "n": {"y": values["b"], "z": values["c"]}}
    table = ingot.table(given, tmp_path / "t", chunks=64)
    kept = np.arange(ROWS)
    with table.transaction():
        for rows in (range(3, 900, 50), [0, 1], [700, 971]):
            table.delete(list(rows))
            kept = np.delete(kept, list(rows))
        table.append({"x": [7], "n": {"y": [b"q"], "z": [[1, 2, 3]]}})
    assert np.array_equal(table["x"][:-1], values["a"][kept])
    assert np.array_equal(table["n.y"][:-1], values["b"][kept])
    assert np.array_equal(ingot.open(tmp_path / "t")["n.z"][:-1], values["c"][kept])
    assert table["x"][-1] == 7


@needs_native
def test_chunks_in_front_of_the_first_removed_row_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel("native", monkeypatch)
    table = ingot.table(columns(), tmp_path / "t", chunks=100)
    paths = [tmp_path / f"t/{name}/data/__{n}.blp" for name in CHUNKS for n in range(10)]
    before = [(path.stat().st_ino, path.read_bytes()) for path in paths]
    table.delete([430, 431, 800])
    after = [(path.stat().st_ino, path.read_bytes()) for path in paths]
    same = [
        path.name for path, one, other in zip(paths, before, after, strict=True) if one == other
    ]
    assert sorted(same) == sorted(f"__{n}.blp" for _ in CHUNKS for n in range(4))


@on_each_kernel
@pytest.mark.parametrize("name", ["a", "c"])
def test_a_damaged_chunk_is_named_and_nothing_is_left(
    kernel_name: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    table = ingot.table(columns(), tmp_path / "t", chunks=100)
    path = tmp_path / f"t/{name}/data/__6.blp"
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    before = content(tmp_path / "t")
    with pytest.raises(CorruptionError) as caught:
        table.delete([5, 300])
    assert f"{name}/data/__6.blp" in " ".join(caught.value.__notes__)
    assert content(tmp_path / "t") == before
    table.delete(list(range(750, 1000)))
    assert len(table) == 750
    assert table["b"][-1] == columns()["b"][749]


@needs_native
def test_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tables = [ingot.table({"a": np.arange(n)}, tmp_path / str(n), chunks=10) for n in (100, 97)]
    source, target = (
        engine_of(table["a"]._handle.value.chunks, ingot.Options()).layout() for table in tables
    )
    for removed in ([1, 2], [1, 2, 100], [2, 1, 3], [1, 1, 2], [-1, 2, 3]):
        with pytest.raises(ValueError, match="does not get shorter by the removed rows"):
            source.remove_rows(target, np.array(removed), 0, 1, 1)  # type: ignore[union-attr,arg-type]
    with pytest.raises(ValueError, match="does not get shorter"):
        source.remove_rows(target, np.array([1, 2, 3]), 0, 11, 1)  # type: ignore[union-attr,arg-type]
    images, troubles = source.remove_rows(target, np.array([1, 2, 3]), 0, 10, 1)  # type: ignore[union-attr,arg-type]
    assert (len(images), troubles) == (10, [])
