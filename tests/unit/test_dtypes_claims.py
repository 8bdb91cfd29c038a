"""Documents of a few hundred bytes that claim items of gigabytes: opening takes little memory."""

import json
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot.dtypes import LARGEST_ITEM
from ingot.errors import LimitError
from tests.kernels import KERNELS
from tests.limited import run_limited

HUGE = 2**31 - 1
GIGABYTE = "|V1000000000"


def zarr1(dtype: object) -> dict[str, object]:
    compression = {"compression": None, "compression_opts": None}
    kept = {"zarr_format": 1, "shape": [4], "chunks": [1], "order": "C", "fill_value": None}
    return {"meta": kept | compression | {"dtype": dtype}, "attrs": {}}


def zarr2(dtype: object) -> dict[str, object]:
    kept = {"zarr_format": 2, "shape": [4], "chunks": [1], "order": "C", "fill_value": None}
    return {".zarray": kept | {"compressor": None, "filters": None, "dtype": dtype}}


def zarr3(dtype: object, fill: object = "") -> dict[str, object]:
    return {
        "zarr.json": {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [4],
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": fill,
            "codecs": [{"name": "bytes"}],
        }
    }


def bcolz(dtype: object) -> dict[str, object]:
    cparams = {"clevel": 5, "shuffle": True, "cname": "lz4", "quantize": 0}
    counts = {"nbytes": 4, "cbytes": 4}
    storage = {"dtype": dtype, "cparams": cparams, "chunklen": 1, "expectedlen": 1, "dflt": ""}
    return {
        "meta/storage": storage | counts,
        "meta/sizes": {"shape": [4]} | counts,
        "__attrs__": {},
    }


def fixed(name: str) -> dict[str, Any]:
    return {"name": name, "configuration": {"length_bytes": HUGE - 3}}


CLAIMS = {
    "zarr1 void": zarr1(f"|V{HUGE}"),
    "zarr1 struct": zarr1([["a", GIGABYTE], ["b", GIGABYTE]]),
    "zarr2 void": zarr2(f"|V{HUGE}"),
    "zarr2 text": zarr2(f"<U{HUGE // 4}"),
    "zarr2 bytes": zarr2(f"|S{HUGE}"),
    "zarr2 struct": zarr2([[str(n), f"|V{2**20}"] for n in range(2000)]),
    "zarr2 sub-array": zarr2([["a", "<i8", [2**14, 2**13]]]),
    "zarr3 raw": zarr3(f"r{8 * HUGE}", [0]),
    "zarr3 text": zarr3(fixed("fixed_length_utf32")),
    "zarr3 bytes": zarr3(fixed("null_terminated_bytes")),
    "bcolz bytes": bcolz(f"|S{HUGE}"),
    "bcolz struct": bcolz(f"[('a', '{GIGABYTE}'), ('b', '{GIGABYTE}')]"),
}

OPEN = """
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    ingot.open(sys.argv[1])
except LimitError as error:
    assert "larger than" in str(error) or "over" in str(error), error
else:
    raise AssertionError
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
"""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", CLAIMS)
def test_items_of_gigabytes_are_refused(tmp_path: Path, name: str, kernel: str) -> None:
    for key, document in CLAIMS[name].items():
        path = tmp_path / key
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
    run_limited(OPEN, kernel, tmp_path)


def test_items_that_cannot_be_opened_are_not_written() -> None:
    for dtype in (f"V{LARGEST_ITEM + 1}", f"U{LARGEST_ITEM // 4 + 1}"):
        with pytest.raises(LimitError, match=str(LARGEST_ITEM)):
            ingot.create(shape=3, dtype=dtype)
