"""Tables in HDF5 files, by PyTables."""

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.compat.bcolz.ctable import ctable
from ingot.errors import UnsafeError, UnsupportedError
from ingot.interop import hdf5

tables = pytest.importorskip("tables")


class Touch:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def test_tables_and_attributes_come_back(tmp_path: Path) -> None:
    data = np.zeros(100_000, [("a", "i8"), ("b", "f4"), ("c", "S5"), ("d", "?")])
    data["a"], data["c"] = np.arange(len(data)), b"xyz"
    table = ctable(data)
    table.attrs["unit"] = "EUR"
    table.attrs["levels"] = [1, 2, 3]
    table.tohdf5(tmp_path / "table.h5", nodepath="/mine", cname="zlib")
    with tables.open_file(str(tmp_path / "table.h5")) as file:
        np.testing.assert_array_equal(file.root.mine[:], data)
    again = ctable.fromhdf5(tmp_path / "table.h5", nodepath="/mine", rootdir=str(tmp_path / "t"))
    np.testing.assert_array_equal(again[:], data)
    assert again.attrs["unit"] == "EUR"
    assert list(again.attrs["levels"]) == [1, 2, 3]
    with pytest.raises(OSError, match="already exists"):
        table.tohdf5(tmp_path / "table.h5")


def enemy(path: Path, target: Path) -> None:
    with tables.open_file(str(path), "w") as file:
        made = file.create_table("/", "ctable", np.dtype([("a", "i4")]))
        made.append([(1,), (2,)])
        made.attrs["trap"] = Touch(str(target))
        made.attrs["plain"] = {"a": (1, 2.5, "x")}


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    enemy(tmp_path / "enemy.h5", tmp_path / "touched")
    with pytest.raises(UnsafeError, match="would run code"):
        ctable.fromhdf5(tmp_path / "enemy.h5")
    assert not (tmp_path / "touched").exists()
    # The trap is one: PyTables itself walks into it, also after the file was refused.
    with tables.open_file(str(tmp_path / "enemy.h5")) as file:
        assert file.root.ctable.attrs["plain"] == {"a": (1, 2.5, "x")}
        file.root.ctable.attrs["trap"]
    assert (tmp_path / "touched").exists()


def test_other_threads_are_not_concerned(tmp_path: Path) -> None:
    enemy(tmp_path / "enemy.h5", tmp_path / "touched")
    with tables.open_file(str(tmp_path / "good.h5"), "w") as file:
        file.create_table("/", "ctable", np.dtype([("a", "i4")])).append([(1,)])

    def load() -> None:
        hdf5._guard.loads(pickle.dumps(Touch(str(tmp_path / "touched"))))

    with hdf5.opened(str(tmp_path / "good.h5"), "/ctable") as found:
        assert len(found) == 1
        with pytest.raises(pickle.UnpicklingError):
            load()
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
    assert (tmp_path / "touched").exists()


def test_other_nodes_are_refused(tmp_path: Path) -> None:
    with tables.open_file(str(tmp_path / "array.h5"), "w") as file:
        file.create_array("/", "ctable", np.arange(3))
    with (
        pytest.raises(UnsupportedError, match="no table"),
        hdf5.opened(str(tmp_path / "array.h5"), "/ctable"),
    ):
        pass
