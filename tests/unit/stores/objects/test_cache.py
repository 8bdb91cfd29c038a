"""A cache of ranges on the local disk: current bytes only, bounded, and safe when damaged."""

from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import ArgumentError
from ingot.options import Options
from ingot.stores.objects.cache import KeptRange, RangeCache
from ingot.stores.objects.ranges import ObjectRange
from tests import fault_proxy
from tests.fault_proxy import FINE
from tests.seaweed import S3Server

SPAN = ObjectRange("c/0", 5, 9)
KEPT = KeptRange(b"data", '"tag"', "7", 1000)


def test_a_range_is_found_again_by_its_key_and_bounds(tmp_path: Path) -> None:
    cache = RangeCache(str(tmp_path), 1 << 20, "s3://one")
    cache.keep(SPAN, KEPT)
    assert cache.find(SPAN) == KEPT
    for other in (ObjectRange("c/1", 5, 9), ObjectRange("c/0", 5, None), ObjectRange("c/0", 4, 9)):
        assert cache.find(other) is None
    assert RangeCache(str(tmp_path), 1 << 20, "s3://two").find(SPAN) is None
    assert RangeCache(str(tmp_path), 1 << 20, "s3://one").find(SPAN) == KEPT


def test_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    cache = RangeCache(str(tmp_path), 1 << 20, "s3://one")
    cache.keep(SPAN, KEPT)
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert cache.find(SPAN) is None
        file.write_bytes(data[:place])
        assert cache.find(SPAN) is None


def test_the_folder_stays_below_its_limit(tmp_path: Path) -> None:
    cache = RangeCache(str(tmp_path), 20_000, "s3://one")
    for number in range(100):
        cache.keep(ObjectRange("c/0", number, None), KeptRange(bytes(1000), "tag", None, 1))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 20_000
    assert cache.find(ObjectRange("c/0", 99, None)) is not None
    assert cache.find(ObjectRange("c/0", 0, None)) is None
    cache.keep(SPAN, KeptRange(bytes(30_000), "tag", None, 1))
    assert cache.find(SPAN) is None
    with pytest.raises(ArgumentError, match="cache_bytes"):
        RangeCache(str(tmp_path), -1, "s3://one")


def test_bytes_are_fetched_once_and_never_old(tmp_path: Path, s3_server: S3Server) -> None:
    direct = Options(storage=s3_server.storage())
    values = np.random.default_rng(5).integers(0, 2**60, 100_000)
    url = "s3://reading/cached.zarr"
    array = ingot.array(values, url, chunks=20_000, options=direct, overwrite=True)
    with fault_proxy.running(s3_server.endpoint) as proxy:
        proxy.begin(lambda request: FINE)
        storage = s3_server.storage(proxy.endpoint, cache=str(tmp_path / "cache"))
        cached = Options(storage=storage)
        assert (ingot.open(url, options=cached)[:] == values).all()
        first = proxy.sent
        assert first > values.nbytes // 2
        assert (ingot.open(url, options=cached)[:] == values).all()
        assert proxy.sent - first < 20_000
        array[3] = 7
        assert ingot.open(url, options=cached)[:5].tolist() == [*values[:3].tolist(), 7, values[4]]
