"""Files of other writers, packed beside the tests that read them, and how answers are compared.

Knows how an archive is unpacked, and when items are the same. Refuses to know any format.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ingot

__all__ = ["assert_parts", "assert_same_items", "below", "unpacked"]


@cache
def unpacked(name: str) -> dict[str, bytes]:
    """Return the files in the folder of an archive that both have the same name."""
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.xz")) as tar:
        members = [member for member in tar if member.isfile()]
        return {
            member.name.removeprefix(f"{name}/"): tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in members
        }


def below(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """Return the files below a folder, by their names there; all of them below none."""
    lead = f"{folder}/" if folder else ""
    return {name.removeprefix(lead): data for name, data in files.items() if name.startswith(lead)}


def assert_same_items(found: NDArray[Any], name: str, data: bytes) -> None:
    """Compare to the last bit, in whichever byte order the answer was noted down."""
    if name.endswith(".npy"):
        expected = np.load(io.BytesIO(data), allow_pickle=False)
        assert found.shape == expected.shape
        assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert found.astype(expected.dtype).tobytes() == expected.tobytes()
        return
    answer = json.loads(data)
    assert list(found.shape) == answer["shape"]
    items = found.reshape(-1).tolist()
    if answer.get("kind", "").startswith("ragged:"):
        assert {item.dtype for item in items} == {np.dtype(answer["kind"].partition(":")[2])}
        items = [item.tolist() for item in items]
    assert items == answer["values"]


def assert_parts(array: ingot.Array) -> None:
    """Check that parts of an array are those of all of it."""
    whole = array[...]
    inner = tuple(slice(length // 3, length - length // 4) for length in whole.shape)
    backwards = tuple(slice(None, None, -2) for _ in whole.shape)
    last = tuple(length - 1 for length in whole.shape) if whole.size else ...
    picked = np.arange(whole.shape[0])[::-1][:5]
    for key in (inner, backwards, last, picked):
        found, expected = np.asarray(array[key]), np.asarray(whole[key])
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tolist() == expected.tolist() or found.tobytes() == expected.tobytes()
