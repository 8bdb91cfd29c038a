"""Any changes of a Bloscpack file, step by step beside a NumPy array.

Files of any length grow in place here, so that short ones show what long ones do.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

import ingot
from ingot.formats.bloscpack import array as bloscpack_array
from ingot.formats.bloscpack import offsets
from ingot.formats.bloscpack.header import CHECKSUMS
from ingot.stores import FileStore, Store
from ingot.stores.store import Extent
from tests.kernels import needs_native
from tests.property.array_life import ArrayLife, shapes, short
from tests.property.array_strategies import FIXED, Shape, items

OPTIONS = ingot.Options(durability="process")


class Life(ArrayLife):
    """The rules of files: only the slowest axis changes its length."""

    file_name = "array.blp"
    options = OPTIONS

    def __init__(self) -> None:
        super().__init__()
        self.patch.setattr(bloscpack_array, "_SMALLEST_IN_PLACE", 0)

    @initialize(
        shape=shapes,
        dtype=st.sampled_from(FIXED),
        start=st.integers(0, 60),
        order=st.sampled_from("CF"),
        chunk=st.integers(1, 60),
        checksum=st.sampled_from(list(CHECKSUMS)),
    )
    def create(
        self, shape: Shape, dtype: Any, start: int, order: str, chunk: int, checksum: str
    ) -> None:
        self.layout = {
            "order": order,
            "chunk_bytes": chunk,
            "checksum": checksum,
            "format": "bloscpack",
            "options": OPTIONS,
        }
        self.axis = 0 if order == "C" else len(shape) - 1
        self.data = items(np.dtype(dtype), shape, start)
        self.array = ingot.array(self.data, self.place, **self.layout)
        self.attrs: dict[str, Any] = {}

    @rule(length=st.integers(0, 5), start=st.integers(1, 60))
    def append(self, length: int, start: int) -> None:
        shape = list(self.data.shape)
        shape[self.axis] = length
        more = items(self.data.dtype, tuple(shape), start)
        self.array.append(more, self.axis)
        self.data = np.concatenate([self.data, more], self.axis).astype(self.data.dtype)

    @rule(length=short)
    def resize(self, length: int) -> None:
        shape = list(self.data.shape)
        shape[self.axis] = length
        resized = np.zeros(shape, self.data.dtype)
        kept = tuple(slice(min(a, b)) for a, b in zip(shape, self.data.shape, strict=True))
        resized[kept] = self.data[kept]
        self.data = resized
        self.array.resize(tuple(shape))

    @rule(start=st.integers(1, 60), length=st.integers(0, 5))
    def transact(self, start: int, length: int) -> None:
        with self.array.transaction():
            self.append(length, start)
            self.describe("a", start)
            self.append(length, start)

    @rule()
    def overwrite(self) -> None:
        self.array = ingot.array(self.data, self.place, overwrite=True, **self.layout)
        self.attrs = {}

    @invariant()
    def chunks_stand_one_behind_the_other(self) -> None:
        if not hasattr(self, "data"):
            return
        store: Store
        if isinstance(self.place, Path):
            store = FileStore(self.place)
            key = self.place.name
        else:
            store, key = self.place, "data.blp"
        file = bloscpack_array.BloscpackFile.read(store, key)
        places = file.row.start, file.row.cbytes + file.header.digest_bytes
        assert (places[0][1:] == (places[0] + places[1])[:-1]).all()
        assert file.row.start[0] == file.begin
        table = store.read([Extent(key, file.begin - file.header.table_bytes)])[0] or b""
        assert offsets.parse(table, len(file.row)).tolist() == file.row.start.tolist()
        assert file.end == file.size == len(store.read([Extent(key)])[0] or b"")


def machine(place: str, kernel: str) -> type[Life]:
    return type("Lived", (Life,), {"place_name": place, "kernel_name": kernel})


@pytest.mark.parametrize("place", ["memory", "local"])
@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "python"])
def test_a_file_lives_like_a_numpy_array(place: str, kernel: str) -> None:
    run_state_machine_as_test(
        machine(place, kernel),
        settings=settings(max_examples=25, stateful_step_count=15, deadline=None),
    )
