"""The store class on which xarray's own tests of storage are run; see `test_xarray_suite`."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import xarray
from xarray.tests.test_backends import CFEncodedBase

from ingot.interop.xarray import IngotBackendEntrypoint


class TestIngot(CFEncodedBase):  # type: ignore[misc]
    """Datasets are stored by `ds.ingot.to` and opened by the engine.

    xarray names its files ``.nc``, which Ingot does not give to a dataset: a suffix is added.
    """

    def save(self, dataset: Any, path: Any, **settings: Any) -> None:
        settings.pop("unlimited_dims", None)
        dataset.ingot.to(f"{path}.zarr", **settings)

    @contextlib.contextmanager
    def open(self, path: Any, **settings: Any) -> Iterator[Any]:
        place = f"{path}.zarr"
        with xarray.open_dataset(place, engine=IngotBackendEntrypoint, **settings) as dataset:
            yield dataset

    def test_load_async(self) -> None:
        # The test itself, without a plugin that runs coroutines.
        asyncio.run(super().test_load_async())
