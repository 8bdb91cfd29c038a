"""What a server refuses or does not answer is an error: never fill, never damage that is mended."""

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from obstore.exceptions import PermissionDeniedError

import ingot
from ingot.errors import AccessError, UnsafeError
from ingot.options import Options
from ingot.stores.objects.client import ObjectClient
from ingot.stores.objects.url import ObjectURL


def _group(url: str) -> Any:
    group = ingot.group(url)
    group["m"] = np.arange(4)
    group.consolidate()
    return group


DATASETS: dict[str, Callable[[str], Any]] = {
    "zarr3": lambda url: ingot.array(np.arange(40), url, chunks=10, attrs={"a": 1}),
    "shards": lambda url: ingot.array(np.arange(40), url, chunks=5, shards=20),
    "manifest": lambda url: ingot.array(np.arange(40), url, chunks=10, manifest=True),
    "zarr2": lambda url: ingot.array(np.arange(40), url, chunks=10, format="zarr2"),
    "bcolz": lambda url: ingot.array(np.arange(40), url, chunks=10, format="bcolz"),
    "blsk": lambda url: ingot.array(np.arange(40), url, chunks=10, format="blsk"),
    "table": lambda url: ingot.table({"n": [1, 2, 3], "t": ["a", "b", None]}, url, format="bcolz"),
    "blsk table": lambda url: ingot.table({"n": [1, 2], "t": ["a", "b"]}, url, format="blsk"),
    "items": lambda url: ingot.ragged(["a", "bc", None], url, format="bcolz"),
    "group": _group,
}


class Refused(PermissionDeniedError):
    """An answer with the status 403."""


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Let the store refuse to hand over the object with a key."""
    refused: list[str] = []
    read = ObjectClient._get_once

    def get(client: ObjectClient, wanted: Any, *more: Any) -> Any:
        if client.prefix + wanted.span.key in refused:
            raise client._failed(Refused("status: 403 Forbidden"), wanted.span.key)
        return read(client, wanted, *more)

    monkeypatch.setattr(ObjectClient, "_get_once", get)

    def change(key: str | None) -> None:
        refused[:] = [] if key is None else [key]

    return change


def content(url: str) -> dict[str, bytes]:
    """Return all objects below an address but the record of commits, whose number may move."""
    store = ObjectURL.parse(url).store()
    found: dict[str, bytes] = {}
    for batch in store.list(ObjectURL.parse(url).path):
        for each in batch:
            if not each["path"].endswith("/.commit"):
                found[each["path"]] = bytes(store.get(each["path"]).bytes())
    return found


@pytest.mark.parametrize("name", DATASETS)
def test_a_refused_object_is_neither_damage_nor_mended(
    name: str, refuse: Callable[[str | None], None]
) -> None:
    url = f"memory://{secrets.token_hex(6)}/data/x"
    DATASETS[name](url)
    before = content(url)
    assert len(before) > 1
    assert ingot.check(url).findings == ()
    noticed = 0
    for key in before:
        refuse(key)
        try:
            report = ingot.check(url)
        except AccessError:
            noticed += 1
            with pytest.raises(AccessError):
                ingot.repair(url, drop=True)
        else:
            # What no read needs says nothing.
            assert report.findings == ()
            ingot.repair(url, drop=True)
        refuse(None)
        assert content(url) == before
    assert noticed > 1
    assert ingot.check(url).findings == ()


@pytest.mark.parametrize("format", ["zarr3", "bcolz", "blsk"])
def test_chunks_that_may_be_damaged_may_not_be_refused(
    format: str, refuse: Callable[[str | None], None]
) -> None:
    url = f"memory://{secrets.token_hex(6)}/data/x"
    ingot.array(np.arange(40), url, chunks=10, format=format)
    lenient = ingot.open(url, options=Options(damaged="fill"))
    assert lenient[:].tolist() == list(range(40))
    refuse(max(key for key in content(url) if "json" not in key and "meta" not in key))
    with pytest.raises(AccessError):
        lenient[:]


def test_settings_reach_checks_and_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    parse = ObjectURL.parse

    def parsed(url: str, storage: Any = None) -> ObjectURL:
        asked.append(dict(storage or {}))
        return parse(url, storage)

    url = f"memory://{secrets.token_hex(6)}/x.zarr"
    ingot.array([1, 2], url)
    monkeypatch.setattr(ObjectURL, "parse", parsed)
    options = Options(storage={"lease": 20})
    assert ingot.check(url, options=options).datasets == 1
    assert ingot.repair(url, options=options).ok
    assert asked
    assert all(storage == {"lease": 20} for storage in asked)


@pytest.mark.parametrize("call", [ingot.check, ingot.repair])
def test_an_address_with_a_secret_is_not_repeated(call: Callable[[str], Any]) -> None:
    for url in ("s3://me:hush@data/a.zarr", "https://data/a.zarr?token=hush"):
        with pytest.raises(UnsafeError) as caught:
            call(url)
        assert "hush" not in str(caught.value)
