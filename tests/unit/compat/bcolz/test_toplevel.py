"""The functions of the bcolz module, against NumPy and bcolz."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ingot.compat import bcolz
from ingot.compat.bcolz import toplevel


@pytest.mark.parametrize(
    "arguments", [(10,), (3, 20), (0, 100, 7), (5, 5), (2, 1_000_000, 3), (0, 10, 0.5), (2, 9.9)]
)
@pytest.mark.parametrize("dtype", [None, "i4", "f8"])
def test_arange_is_that_of_bcolz(arguments: tuple[float, ...], dtype: str | None) -> None:
    peer = pytest.importorskip("bcolz")
    made = toplevel.arange(*arguments, dtype=dtype)
    wanted = peer.arange(*arguments, dtype=dtype)
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made[:], wanted[:])


def test_fill_zeros_ones() -> None:
    assert toplevel.zeros((2, 3), "i2")[:].tolist() == [[0, 0, 0]] * 2
    assert toplevel.ones(3).dtype == np.dtype("f8")
    made = toplevel.fill(3, dflt="ab", dtype="S5")
    made.resize(5)
    assert made[:].tolist() == [b"ab"] * 5
    table = toplevel.zeros(4, "i4,f8")
    assert isinstance(table, bcolz.ctable)
    assert table[:].tolist() == [(0, 0.0)] * 4


@pytest.mark.parametrize("count", [-1, 1000])
def test_fromiter(count: int, tmp_path: Path) -> None:
    made = toplevel.fromiter((n * n for n in range(1000)), "i8", count, rootdir=tmp_path / "a")
    assert made[:].tolist() == [n * n for n in range(1000)]
    table = toplevel.fromiter(((n, n / 2) for n in range(1000)), "i4,f8", count)
    assert table["f1"][:].tolist() == [n / 2 for n in range(1000)]


def test_iterblocks() -> None:
    array = bcolz.carray(np.arange(25), chunklen=10)
    assert [len(block) for block in toplevel.iterblocks(array)] == [10, 10, 5]
    blocks = list(toplevel.iterblocks(array, blen=4, start=3, stop=12))
    assert [block.tolist() for block in blocks] == [[3, 4, 5, 6], [7, 8, 9, 10], [11]]
    assert list(toplevel.iterblocks(array, blen=1, stop=3)) == [0, 1, 2]
    table = bcolz.ctable([array, array], names=["a", "b"])
    assert [len(block) for block in toplevel.iterblocks(table, blen=20)] == [20, 5]


def test_walk_finds_what_lies_below_a_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    bcolz.carray([1], rootdir=tmp_path / "a")
    bcolz.ctable([[1], [2]], rootdir=str(tmp_path / "deep" / "t"))
    bcolz.carray([1], rootdir=tmp_path / "deep" / "deeper" / "b")
    found = [
        (type(each).__name__, Path(str(each.rootdir)).name)
        for each in toplevel.walk(str(tmp_path), mode="r")
    ]
    assert sorted(found) == [("carray", "a"), ("carray", "b"), ("ctable", "t")]
    tables = list(toplevel.walk(str(tmp_path), classname="ctable", mode="r"))
    assert [each.names for each in tables] == [["f0", "f1"]]


def test_open_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        toplevel.open(str(tmp_path / "absent"), mode="r")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        toplevel.open(str(tmp_path / "empty"), mode="r")


def test_threads_are_set_and_returned() -> None:
    before = toplevel.set_nthreads(1)
    assert before >= 1
    assert toplevel.set_nthreads(before) == 1
    with pytest.raises(ValueError, match="at least 1"):
        toplevel.set_nthreads(0)


def test_test_runs_the_suite_of_bcolz() -> None:
    pytest.importorskip("bcolz")
    code = (
        "import subprocess, sys\n"
        "from ingot.compat import bcolz\n"
        "real = subprocess.run\n"
        "def run(command, **settings):\n"
        "    return real([*command, 'attrs'], **settings)\n"
        "subprocess.run = run\n"
        "bcolz.test()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "bcolz version:" in done.stdout
    assert "passed" in done.stdout
