"""Tables of Arrow streams: one commit of rows that are never all in memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, ExistsError, UnsupportedError
from tests.kernels import KERNELS, needs_native
from tests.limited import run_limited
from tests.storage import Place, content

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read streams in many blocks."""
    monkeypatch.setattr("ingot.containers.ingest._STREAM_BYTES", 4000)
    monkeypatch.setattr("ingot.containers.create_table._HELD_BYTES", 2000)


def batches(count: int, rows: int = 100) -> Iterator[Any]:
    for number in range(count):
        a = np.arange(rows) + number * rows
        columns = {"a": a, "b": a / 4, "d": a.astype("M8[s]"), "c": (a % 7).astype("i2")}
        yield pyarrow.record_batch(columns)


def reader(found: Iterator[Any]) -> Any:
    first = next(found)

    def chained() -> Iterator[Any]:
        yield first
        yield from found

    return pyarrow.RecordBatchReader.from_batches(first.schema, chained())


@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_stream_becomes_a_table(place: Place, count: int) -> None:
    table = ingot.table(reader(batches(count)), place, attrs={"x": 1})
    expected = pyarrow.Table.from_batches(list(batches(count)))
    assert table.to_arrow().equals(expected)
    opened = ingot.open(place)
    assert opened.to_arrow().equals(expected)
    assert dict(opened.attrs) == {"x": 1}


def test_one_large_batch_is_cut(place: Place) -> None:
    table = ingot.table(reader(batches(1, 5000)), place, chunks={"a": 300})
    assert table["a"].chunks == (300,)
    assert table["a"][:].tolist() == list(range(5000))


def test_tables_of_tables(place: Place) -> None:
    first = ingot.table(reader(batches(9)))
    second = ingot.table(first.where("a >= 450"), place)
    assert second["a"][:].tolist() == list(range(450, 900))


def test_streams_without_rows() -> None:
    schema = next(batches(1)).schema
    table = ingot.table(pyarrow.RecordBatchReader.from_batches(schema, iter(())))
    assert len(table) == 0
    assert table.to_arrow().schema == schema


def test_text_of_growing_width(place: Place) -> None:
    words = [pyarrow.record_batch({"w": ["x" * n] * 500, "n": [n] * 500}) for n in range(1, 30)]
    table = ingot.table(reader(iter(words)), place)
    assert table["w"][::500].tolist() == ["x" * n for n in range(1, 30)]


def test_nulls_that_come_late(place: Place) -> None:
    parts = [pyarrow.record_batch({"n": list(range(500)), "f": [0.5] * 500})] * 5
    late = pyarrow.record_batch({"n": [1, None], "f": [None, float("nan")]})
    table = ingot.table(reader(iter([*parts, late])), place)
    expected = pyarrow.Table.from_batches([*parts, late])
    assert table.to_arrow()["n"].equals(expected["n"])
    assert table.to_arrow()["f"].is_null().to_pylist() == expected["f"].is_null().to_pylist()
    table.append(reader(iter([*parts, late])))
    assert table.to_arrow()["n"].null_count == 2


def failing() -> Iterator[Any]:
    yield from batches(20)
    raise RuntimeError("the source is gone")


def test_a_failing_stream_makes_no_table(place: Place) -> None:
    with pytest.raises(RuntimeError, match="source is gone"):
        ingot.table(reader(failing()), place)
    assert not any(not key.endswith(".lock") for key in content(place))
    ingot.table({"a": [1]}, place)
    before = content(place)
    with pytest.raises(RuntimeError, match="source is gone"):
        ingot.table(reader(failing()), place, overwrite=True)
    assert content(place) == before


def test_an_existing_table_stays_or_is_replaced(place: Place) -> None:
    ingot.table({"old": [1]}, place)
    with pytest.raises(ExistsError):
        ingot.table(reader(batches(20)), place)
    assert ingot.open(place).names == ("old",)
    ingot.table(reader(batches(20)), place, overwrite=True)
    assert ingot.open(place).names == ("a", "b", "d", "c")
    assert len(ingot.open(place)) == 2000


def test_a_stream_is_appended_by_one_commit(place: Place) -> None:
    table = ingot.table(reader(batches(2)), place)
    table.append(reader(batches(30)))
    assert len(table) == 3200
    assert table["a"][200:].tolist() == list(range(3000))
    table.append(table)
    assert len(table) == 6400
    assert len(ingot.open(place)) == 6400


def test_a_failing_stream_leaves_the_old_table(place: Place) -> None:
    table = ingot.table(reader(batches(2)), place)
    before = content(place)
    with pytest.raises(RuntimeError, match="source is gone"):
        table.append(reader(failing()))
    assert len(table) == 200
    assert content(place) == before
    assert len(ingot.open(place)) == 200


REFUSED: dict[str, Any] = {
    "month": pyarrow.array([(1, 2, 3)], pyarrow.month_day_nano_interval()),
    "map": pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    "union": pyarrow.UnionArray.from_sparse(
        pyarrow.array([0], pyarrow.int8()), [pyarrow.array([1]), pyarrow.array(["x"])]
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_cannot_be_kept_are_refused_by_name(place: Place, name: str) -> None:
    table = pyarrow.table({"fine": [1], name: REFUSED[name]})

    def never() -> Iterator[Any]:
        raise AssertionError("no batch is asked for")
        yield

    stream = pyarrow.RecordBatchReader.from_batches(table.schema, never())
    with pytest.raises((UnsupportedError, ValueError), match=f"'{name}'"):
        ingot.table(stream, place)
    assert content(place) == {}


def lies() -> dict[str, Any]:
    """Arrays of Arrow whose parts contradict each other."""

    def buffer(values: list[int], dtype: str) -> Any:
        return pyarrow.py_buffer(np.array(values, dtype))

    text = pyarrow.py_buffer(b"abc")
    lists = [None, buffer([0, 5, 2], "i4")]
    return {
        "offsets that descend": pyarrow.Array.from_buffers(
            pyarrow.string(), 2, [None, buffer([2, 0, 3], "i4"), text]
        ),
        "offsets beyond the data": pyarrow.Array.from_buffers(
            pyarrow.large_binary(), 2, [None, buffer([0, 900, 3], "i8"), text]
        ),
        "list items that are missing": pyarrow.ListArray.from_buffers(
            pyarrow.list_(pyarrow.int64()), 2, lists, children=[pyarrow.array([1, 2])]
        ),
        "an index beyond the dictionary": pyarrow.DictionaryArray.from_arrays(
            pyarrow.array([0, 9], pyarrow.int32()), pyarrow.array(["a"]), safe=False
        ),
        "text that is no UTF-8": pyarrow.Array.from_buffers(
            pyarrow.string(), 1, [None, buffer([0, 1], "i4"), pyarrow.py_buffer(b"\xff")]
        ),
    }


@pytest.mark.parametrize("name", lies())
def test_producers_that_lie_are_refused(place: Place, name: str) -> None:
    wrong = lies()[name]
    batch = pyarrow.RecordBatch.from_arrays([wrong], ["a"])
    stream = pyarrow.RecordBatchReader.from_batches(batch.schema, iter([batch]))
    for given in (stream, pyarrow.Table.from_batches([batch])):
        with pytest.raises((CorruptionError, ValueError)):
            ingot.table(given, place)
        assert content(place) == {}


_DAMAGED = """
import random
import pyarrow

columns = {
    "n": pyarrow.array(range(50)),
    "t": pyarrow.array(["abc", "z", "x" * 40, "", "y"] * 10),
    "l": pyarrow.array([[1, 2], [3, 4]] * 25, pyarrow.list_(pyarrow.int8(), 2)),
    "w": pyarrow.array(["a", "b", "c", "a", "b"] * 10).dictionary_encode(),
    "s": pyarrow.array([{"x": 1, "y": "p"}] * 50),
}
whole = pyarrow.table(columns)
sink = pyarrow.BufferOutputStream()
with pyarrow.ipc.new_stream(sink, whole.schema) as writer:
    writer.write_table(whole)
good = sink.getvalue().to_pybytes()
assert len(ingot.table(pyarrow.ipc.open_stream(good))) == 50
chance, refused = random.Random(5), 0
for _ in range(int(sys.argv[1])):
    data = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
    try:
        ingot.table(pyarrow.ipc.open_stream(bytes(data)))
    except (pyarrow.ArrowException, IngotError, ValueError, OSError, MemoryError, TypeError):
        refused += 1
assert refused > int(sys.argv[1]) // 8, refused
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_damaged_streams_end_in_errors(kernel: str) -> None:
    run_limited(_DAMAGED, kernel, 400 if kernel == "native" else 40)


_STREAMING = """
import resource, sys
import numpy as np, pyarrow
import ingot

def batches(count):
    for number in range(count):
        a = np.random.default_rng(number).integers(0, 1 << 60, 131_072)
        yield pyarrow.record_batch({"a": a, "b": a / 3, "c": a.astype("i4"), "d": a % 1000})

def made(count, path):
    first = next(batches(1))
    stream = pyarrow.RecordBatchReader.from_batches(first.schema, batches(count))
    table = ingot.table(stream, path, options=ingot.Options(durability="process"))
    table.append(pyarrow.RecordBatchReader.from_batches(first.schema, batches(count)))
    rows = sum(batch.num_rows for batch in ingot.open(path).to_batches())
    assert rows == 2 * count * 131_072, rows
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

folder = sys.argv[1]
few = made(30, folder + "/few.bcolz")
many = made(90, folder + "/many.bcolz")
print(few, many)
assert many < few + 80, (few, many)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Any) -> None:
    # 550 MB of rows, three times: written, appended, read.
    done = subprocess.run(
        [sys.executable, "-c", _STREAMING, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


_FIVE_GIGABYTES = """
import re, sys
import numpy as np, pyarrow
import ingot

ROWS = 1 << 18
COUNT = np.arange(ROWS)
WORDS = pyarrow.array(["word %d" % (number % 100) for number in range(ROWS)])

def batches(count):
    for number in range(count):
        yield pyarrow.record_batch({
            "id": COUNT + number * ROWS,
            "word": WORDS,
            "half": np.full(ROWS, number / 2),
            "small": COUNT.astype("i4"),
            "part": np.full(ROWS, number),
        })

path = sys.argv[1] + "/many.bcolz"
first = next(batches(1))
count = 5_000_000_000 // first.nbytes + 1
stream = pyarrow.RecordBatchReader.from_batches(first.schema, batches(count))
ingot.table(stream, path, options=ingot.Options(durability="process")).close()
for number, batch in enumerate(ingot.open(path).to_batches(batch_rows=ROWS)):
    assert batch.num_rows == ROWS
    assert batch["part"][0].as_py() == batch["part"][-1].as_py() == number
    assert batch["id"][-1].as_py() == (number + 1) * ROWS - 1
    assert batch["word"][ROWS // 2].as_py() == WORDS[ROWS // 2].as_py()
assert number + 1 == count
with open("/proc/self/status") as status:
    peak = int(re.search("VmHWM: *(.*) kB", status.read())[1]) >> 10
assert peak < 300, peak
"""


@pytest.mark.slow
@needs_native
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak is read in /proc")
def test_five_gigabytes_of_rows_pass_through_300_mib(tmp_path: Any) -> None:
    # Rows that compress well: 90 MB on disk.
    done = subprocess.run(
        [sys.executable, "-c", _FIVE_GIGABYTES, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "INGOT_KERNEL": "native"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
