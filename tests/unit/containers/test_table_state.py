"""What the changes of a table cost: what need not be written anew is not."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import CorruptionError
from tests.kernels import needs_native

ROWS = 1000


def made(path: Path) -> ingot.Table:
    return ingot.table({"a": np.arange(ROWS), "n": {"x": np.arange(ROWS) * 2}}, path, chunks=100)


def files(folder: Path) -> dict[str, int]:
    """Return which file each name below a folder leads to."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_ino for path in found}


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in found
    }


def test_an_append_writes_as_much_to_a_long_table_as_to_a_short_one(tmp_path: Path) -> None:
    """The last chunk of each column and its length: no more, however many chunks there are."""
    changed = {}
    for rows in (150, 100_150):
        path = tmp_path / f"{rows}"
        table = ingot.table({"a": np.arange(rows), "b": np.arange(rows)}, path, chunks=100)
        before = contents(path)
        for number in range(30):
            table.append({"a": [number], "b": [number]})
        after = contents(path)
        last = rows // 100
        names = {key for key in after if before.get(key) != after[key]}
        changed[rows] = {key.replace(f"__{last}.", "__last.") for key in names}
        assert len(table) == rows + 30
        assert table["b"][-31:].tolist() == [rows - 1, *range(30)]
    both = {f"{name}/{key}" for name in "ab" for key in ("data/__last.blp", "meta/sizes")}
    assert changed[150] == changed[100_150] == both


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("n", "m")])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_column_keeps_its_files_under_another_name(
    tmp_path: Path, old: str, new: str, grouped: bool
) -> None:
    table = made(tmp_path / "table")
    before = files(tmp_path / "table" / old)
    if grouped:
        with table.transaction():
            table.rename_column(old, "between")
            table.rename_column("between", new)
    else:
        table.rename_column(old, new)
    assert files(tmp_path / "table" / new) == before
    assert not list((tmp_path / "table").rglob(".g-*"))
    assert files(tmp_path / "table" / old) == {}
    again = ingot.open(tmp_path / "table")
    leaf = new if old == "a" else f"{new}.x"
    assert again[leaf][:].tolist() == (np.arange(ROWS) * (1 if old == "a" else 2)).tolist()


def test_files_are_copied_where_they_cannot_have_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no links here")

    table = made(tmp_path / "table")
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, refuse})
    table.rename_column("a", "b")
    assert table["b"][:].tolist() == list(range(ROWS))
    assert not list((tmp_path / "table").rglob(".g-*"))


def test_what_an_earlier_try_left_is_not_in_the_way(tmp_path: Path) -> None:
    """A writer that died after preparing leaves second names of the files themselves."""
    folder = tmp_path / "table"
    table = made(folder)
    for path in [each for each in (folder / "a").rglob("*") if each.is_file()]:
        place = folder / "b" / path.relative_to(folder / "a")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, place)
    table.rename_column("a", "b")
    assert table["b"][:].tolist() == list(range(ROWS))
    assert not list(folder.rglob(".g-*"))


def test_a_rename_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "table"
    table = made(folder)
    link, calls = os.link, []

    def fail_later(*names: object, **places: object) -> None:
        calls.append(names)
        if len(calls) == 5:
            raise KeyboardInterrupt
        link(*names, **places)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", fail_later)
    monkeypatch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, fail_later})
    with pytest.raises(KeyboardInterrupt):
        table.rename_column("a", "b")
    assert table.names == ("a", "n")
    assert files(folder / "b") == {}
    assert table["a"][:].tolist() == list(range(ROWS))


FIVE = {
    "a": np.arange(10),
    "b": np.arange(10) / 2,
    "c": np.arange(10).astype("u1"),
    "d": np.array([f"row {n}" for n in range(10)]),
    "e": np.arange(20, dtype="i2").reshape(10, 2),
}


@needs_native
def test_an_append_to_many_columns_is_three_native_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingot.table(FIVE, tmp_path / "table")
    calls = counted(monkeypatch, "begin_turn", "stage_arrays", "run_steps")
    table.append(FIVE)
    assert calls == ["begin_turn", "stage_arrays", "run_steps"]
    calls.clear()
    table.update(slice(3, 5), {"a": [7, 8], "b": [0.5, 1.5], "e": [[1, 2], [3, 4]]})
    assert calls == ["begin_turn", "stage_arrays", "run_steps"]
    for name, values in FIVE.items():
        expected = np.concatenate([values, values])
        if name in "abe":
            expected[3:5] = {"a": [7, 8], "b": [0.5, 1.5], "e": [[1, 2], [3, 4]]}[name]
        np.testing.assert_array_equal(ingot.open(tmp_path / "table")[name][...], expected)


def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Return a list that gets the name of each native function when it is called."""
    calls: list[str] = []
    for name in names:
        real = getattr(native, name)

        def call(*given: Any, name: str = name, real: Callable[..., Any] = real) -> Any:
            calls.append(name)
            return real(*given)

        monkeypatch.setattr(native, name, call)
    return calls


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("column", FIVE)
def test_a_column_that_fails_leaves_nothing_of_the_others(tmp_path: Path, column: str) -> None:
    table = ingot.table(FIVE, tmp_path / "table", chunks=100)
    chunk = tmp_path / "table" / column / "data" / "__0.blp"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:20] + b"damage" + whole[26:])
    before = contents(tmp_path / "table")
    with pytest.raises(CorruptionError, match=r"__0\.blp"):
        table.append(FIVE)
    assert contents(tmp_path / "table") == before
    chunk.write_bytes(whole)
    table.append(FIVE)
    for name, values in FIVE.items():
        np.testing.assert_array_equal(table[name][...], np.concatenate([values, values]))


@pytest.mark.usefixtures("kernel")
def test_columns_that_only_python_codes_change_with_the_others(tmp_path: Path) -> None:
    options = ingot.Options(allow_pickle=True)
    rows = {**FIVE, "o": np.array([{n} for n in range(10)], object)}
    table = ingot.table(rows, tmp_path / "table", options=options)
    table.append(rows)
    assert len(table) == 20
    assert table["o"][...].tolist() == [*rows["o"], *rows["o"]]
    np.testing.assert_array_equal(table["b"][...], np.concatenate([FIVE["b"], FIVE["b"]]))
    before = contents(tmp_path / "table")
    unfit = np.array([lambda: None] * 10, object)
    with pytest.raises(Exception, match="pickle"):
        table.append({**FIVE, "o": unfit})
    assert contents(tmp_path / "table") == before
