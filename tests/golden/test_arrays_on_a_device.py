"""Arrays of other writers, read onto a device: the items, or the error, of a read without one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot.engine.device import device_dtype
from ingot.errors import IngotError, UnsafeError, UnsupportedError
from tests.golden.archive import unpacked
from tests.host_device import DEVICES
from tests.property.test_device_reads import Make, same_items

ARCHIVES = {"zarr2": 60, "zarr3": 70, "zarr-early": 55, "bcolz": 130, "bloscpack": 70}
"""The archives, and how many arrays of numbers are in each, at least."""


def datasets(folder: Path) -> Iterator[Any]:
    """Yield everything below a folder that opens, but nothing inside of an array or a table."""
    for path in sorted(folder.iterdir()):
        try:
            found = ingot.open(path)
        except IngotError:
            found = None
        if isinstance(found, ingot.Array | ingot.Table):
            yield found
        elif path.is_dir():
            yield from datasets(path)


def arrays(folder: Path) -> Iterator[ingot.Array]:
    """Yield the arrays of numbers below a folder, and the columns of tables that are such."""
    for found in datasets(folder):
        parts = [found] if isinstance(found, ingot.Array) else [found[n] for n in found.columns]
        for part in parts:
            if isinstance(part, ingot.Array) and is_for_a_device(part):
                yield part


def is_for_a_device(array: ingot.Array) -> bool:
    """Return whether a device can hold the items: numbers without nulls."""
    try:
        device_dtype(array.dtype)
        return not getattr(array, "has_nulls", False)
    except (UnsafeError, UnsupportedError):
        return False


@pytest.mark.parametrize("make", DEVICES)
@pytest.mark.parametrize("name", ARCHIVES)
def test_arrays_are_read_as_without_a_device(make: Make, name: str, tmp_path: Path) -> None:
    for file, data in unpacked(name).items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    device, count = make(), 0
    for array in arrays(tmp_path):
        count += 1
        for key in (..., tuple(slice(n // 3, n - n // 4, 2) for n in array.shape)):
            try:
                expected = array[key]
            except IngotError as error:
                with pytest.raises(type(error)):
                    array.read(key, device=device)
            else:
                assert same_items(array.read(key, device=device), expected), array
    assert count >= ARCHIVES[name]
