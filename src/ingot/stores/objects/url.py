"""Addresses of object stores: `s3://`, `gs://`, `az://`, `http(s)://` and `memory://`.

Credentials come from the environment, as obstore reads it, or from the options of the caller. They
are never part of an address: an address with a user name, a password or a query is refused, and the
message does not repeat it.
"""

import functools
import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from ingot.errors import ArgumentError, UnsafeError, UnsupportedError
from ingot.stores.objects.client import obstore_module
from ingot.stores.store import check_key

__all__ = ["SETTINGS", "ObjectURL", "is_url"]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_STORES: Final = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_READ_ONLY: Final = ("http", "https")
_ENDPOINTS: Final = (
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    *("GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
)
_ENDPOINT: Final = re.compile("endpoint|base_url", re.IGNORECASE)

SETTINGS: Final = frozenset(
    (
        *("single_writer", "lease", "unchanging"),
        *("cache", "cache_bytes", "first_bytes"),
        *("timeout", "retries", "concurrency"),
    )
)
"""The settings of `Options.storage` that are Ingot's own; all others are those of obstore."""

_TIMEOUT: Final = 30.0
_RETRIES: Final = 10
_CONCURRENCY: Final = 64


def is_url(path: object) -> bool:
    """Return whether a path is an address with a scheme.

    >>> is_url("s3://data/prices"), is_url("data/prices")
    (True, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


@dataclass(frozen=True, slots=True)
class ObjectURL:
    """An address in an object store, with the settings to reach it, which are never shown.

    >>> ObjectURL.parse("s3://data/2024/prices.zarr", {"secret_access_key": "xyz"})
    ObjectURL(scheme='s3', bucket='data', path='2024/prices.zarr')
    >>> ObjectURL.parse("s3://me:xyz@data/prices")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: an address with a user name or a password: give them by the options...
    """

    scheme: str
    bucket: str
    path: str
    storage: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def parse(cls, url: str, storage: Mapping[str, object] | None = None) -> "ObjectURL":
        """Return the address that a text is."""
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower()
        if scheme not in (*_STORES, *_READ_ONLY, "memory"):
            known = ", ".join(f"{each}://" for each in (*_STORES, *_READ_ONLY, "memory"))
            raise UnsupportedError(f"{scheme}://: not a store that is known; there are {known}")
        bucket, _, path = rest.partition("/")
        if "@" in bucket:
            raise UnsafeError(
                "an address with a user name or a password: give them by the options or by the "
                "environment"
            )
        if "?" in rest or "#" in rest:
            raise UnsafeError("an address with a query or a fragment, which may be a secret")
        if scheme in _READ_ONLY:
            path = urllib.parse.unquote(path)
        path = path.strip("/")
        if path:
            check_key(path)
        if not bucket:
            raise UnsupportedError(f"{scheme}://: an address without the name of a bucket")
        return cls(scheme, bucket, path, dict(storage or {}))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}".removesuffix("/")

    @property
    def writable(self) -> bool:
        """Whether objects can be written to the store at all."""
        return self.scheme not in _READ_ONLY

    @property
    def lists(self) -> bool:
        """Whether the names of objects can be listed."""
        return self.scheme not in _READ_ONLY

    def setting(self, name: str, default: Any) -> Any:
        """Return one of Ingot's own settings."""
        return self.storage.get(name, default)

    def at(self, path: str) -> "ObjectURL":
        """Return the address of another path in the same store.

        >>> str(ObjectURL.parse("s3://data/a/b").at("a"))
        's3://data/a'
        """
        return ObjectURL(self.scheme, self.bucket, path, self.storage)

    def store(self) -> Any:
        """Return the store of obstore for the whole bucket; one for all who use the same settings.

        Connections stay open in it.
        """
        own = {name: value for name, value in self.storage.items() if name not in SETTINGS}
        limits = (
            float(self.setting("timeout", _TIMEOUT)),
            int(self.setting("retries", _RETRIES)),
        )
        return _store(self.scheme, self.bucket, tuple(sorted(own.items())), limits)

    @property
    def concurrency(self) -> int:
        """How many requests are sent at a time."""
        return int(self.setting("concurrency", _CONCURRENCY))


@functools.lru_cache(maxsize=64)
def _store(
    scheme: str,
    bucket: str,
    config: tuple[tuple[str, object], ...],
    limits: tuple[float, int],
) -> Any:
    obstore = obstore_module()
    stores = obstore.store
    if scheme == "memory":
        return stores.MemoryStore()
    timeout, retries = limits
    named: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=timeout),
            "connect_timeout": timedelta(seconds=min(timeout, 5.0)),
            "allow_http": scheme == "http" or _is_plain(dict(config)),
        },
        "retry_config": {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=2 * timeout),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
    }
    try:
        if scheme in _READ_ONLY:
            return stores.HTTPStore.from_url(f"{scheme}://{bucket}", **named)
        return getattr(stores, _STORES[scheme])(bucket, **dict(config), **named)
    except obstore.exceptions.UnknownConfigurationKeyError:
        names = ", ".join(repr(name) for name, _ in config)
        raise ArgumentError(f"storage: one of {names} is not a setting of {scheme}://") from None
    except obstore.exceptions.BaseError:
        # The text may repeat what is secret.
        raise ArgumentError(f"{scheme}://{bucket}: the settings of the store do not fit") from None


def _is_plain(config: Mapping[str, object]) -> bool:
    """Return whether the caller has named an address without encryption."""
    named = [value for name, value in config.items() if _ENDPOINT.search(name)]
    named += [os.environ[name] for name in _ENDPOINTS if name in os.environ]
    return bool(named) and str(named[0]).lower().startswith("http://")
