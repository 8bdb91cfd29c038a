"""Messages name the file, the field, the claim and the fact."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from tests.kernels import needs_native
from tests.storage import use_kernel


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "quotes"
    columns = {"day": np.arange(20), "price": np.arange(20) * 1.5, "name": np.array(["ab"] * 20)}
    ingot.table(columns | {"n": {"x": np.arange(20)}}, path, chunks=8)
    return path


def from_documents(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


ROW = {"day": [1], "price": [1.0], "name": ["x"], "n": {"x": [1]}}

USES: dict[str, tuple[Callable[[ingot.Table], Any], type[Exception], str]] = {
    "a column that is not there": (
        lambda table: table["prize"],
        KeyError,
        "there is no column 'prize'; the columns are day, price, name, n.x",
    ),
    "a value for a column": (
        lambda table: table.append(ROW | {"day": 5}),
        ValueError,
        "column 'day' is one value, not an array of them",
    ),
    "items of another shape": (
        lambda table: table.append(ROW | {"day": [[5]]}),
        ValueError,
        "column 'day': values of shape (1, 1) are not rows of items of shape ()",
    ),
    "text that is too long": (
        lambda table: table.append(ROW | {"name": ["xyzzy"]}),
        ValueError,
        "column 'name' of <U2 cannot hold 'xyzzy'",
    ),
    "digits that would be lost": (
        lambda table: table.append(ROW | {"day": [1.5]}),
        ValueError,
        "column 'day' of int64 cannot hold 1.5",
    ),
    "items of different kinds": (
        lambda table: table.add_column("o", [1, "a"] * 10),
        ValueError,
        "column 'o': item 1 is str, item 0 is int",
    ),
    "objects": (
        lambda table: table.add_column("o", np.array([object()] * 20)),
        ingot.errors.UnsafeError,
        "quotes: 'o' is of Python objects, which are stored as pickles",
    ),
    "a name that leads out": (
        lambda table: table.add_column("../o", np.zeros(20)),
        ingot.errors.ArgumentError,
        "'../o' cannot be the name of a column",
    ),
    "half a row": (
        lambda table: table.resize(2.5),  # type: ignore[arg-type]
        TypeError,
        "rows is 2.5, not a whole number",
    ),
}


@pytest.mark.parametrize("name", USES)
def test_wrong_uses(folder: Path, name: str) -> None:
    use, kind, text = USES[name]
    table = ingot.open(folder, "r+")
    with pytest.raises(kind, match=re.escape(text)):
        use(table)
    assert (len(table), table.names) == (20, ("day", "price", "name", "n"))


def flipped(at: int) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / "price/data/__1.blp"
        data = bytearray(path.read_bytes())
        data[at] ^= 16
        path.write_bytes(data)

    return act


CHUNK = "in chunk (1,), key 'price/data/__1.blp', of "

DAMAGES: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "a cut document": (
        lambda folder: os.truncate(folder / "price/meta/sizes", 10),
        "price/meta/sizes: line 1, column 11",
        "in ",
    ),
    "a missing column": (
        lambda folder: shutil.rmtree(folder / "price"),
        "column 'price': nothing is stored in 'price'",
        "in ",
    ),
    "a missing chunk": (
        lambda folder: (folder / "price/data/__1.blp").unlink(),
        "the chunk is missing",
        CHUNK,
    ),
    "a cut chunk": (
        lambda folder: os.truncate(folder / "price/data/__1.blp", 70),
        "chunk trailer: 2 bytes behind the chunk are no trailer",
        CHUNK,
    ),
    "another head": (flipped(0), "chunk file: it begins with b'rlpk', not with b'blpk'", CHUNK),
    "a bit of the length": (
        flipped(20),
        "Blosc chunk: nbytes claims 80 bytes, 8 rows of 8 bytes are due\n",
        CHUNK,
    ),
    "a bit of the data": (flipped(50), "chunk trailer: the CRC-32C of the block 0 is 0x", CHUNK),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(folder: Path, name: str) -> None:
    act, text, place = DAMAGES[name]
    act(folder)
    with pytest.raises(ingot.errors.IngotError) as caught:
        ingot.open(folder).read()
    assert text in from_documents(caught.value)
    assert from_documents(caught.value).count(f"{place}{folder}") == 1


def test_a_table_that_is_removed_while_it_is_open(folder: Path) -> None:
    table = ingot.open(folder)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match=f"{folder}: none of __rootdirs__, meta/sizes"):
        table.read()


def test_damaged_attributes_say_where_they_lie(folder: Path) -> None:
    (folder / "__attrs__").write_bytes(b'{"a')
    with pytest.raises(ingot.errors.FormatError, match=f"{folder}: __attrs__: line 1"):
        dict(ingot.open(folder).attrs)
