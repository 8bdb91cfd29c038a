"""Servers on loopback that answer as Google Cloud Storage and Azure Blob Storage do.

They have the requests that obstore sends for Ingot, and no others: whole objects and ranges, PUTs
with conditions, removal, listings. There is no emulator of either that runs without a network and
without another runtime. What these servers know of the conditions is from the documents of the two
services; signatures are not checked.
"""

import http.server
import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["azure_storage", "google_storage"]

_TIME = "Wed, 21 Oct 2015 07:28:00 GMT"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
# Google numbers versions by the time in microseconds.
_numbers = itertools.count(1_445_412_480_000_000)


@contextmanager
def google_storage() -> Iterator[dict[str, Any]]:
    """Run a server, and give the settings with which `gs://` reaches it."""
    with _running(_Google) as endpoint:
        yield {"base_url": endpoint, "bearer_token": "hush", "retries": 0}


@contextmanager
def azure_storage() -> Iterator[dict[str, Any]]:
    """Run a server, and give the settings with which `az://` reaches it."""
    with _running(_Azure) as endpoint:
        named = {"account_name": "someone", "account_key": "aHVzaA=="}
        yield {**named, "endpoint": f"{endpoint}/someone", "retries": 0}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type["_Cloud"]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        """The value of each object, and the number of its version."""
        self.lock = threading.Lock()


@contextmanager
def _running(handler: type["_Cloud"]) -> Iterator[str]:
    server = _Server(handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Cloud(http.server.BaseHTTPRequestHandler):
    """What both have in common: objects with tags, ranges, and conditions of reads."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    depth: ClassVar[int]
    """How many parts of a path are in front of the key."""

    def log_message(self, *ignored: object) -> None:
        """Say nothing."""

    def _key(self, path: str) -> str:
        return "/".join(unquote(path).lstrip("/").split("/")[self.depth :])

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self.server.lock:
            status, data, headers = self._answer(self._key(parts.path), query, body)
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", headers.pop("Content-Length", str(len(data))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _answer(
        self, key: str, query: dict[str, str], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        if not key:
            return self._of_bucket(query, body)
        if self.command == "PUT":
            refused = self._refusal(self.server.objects.get(key))
            if refused is not None:
                return refused, b"", {}
            self.server.objects[key] = body, next(_numbers)
            return 201 if self.depth > 1 else 200, b"", self._facts(key)
        if self.command == "DELETE":
            return (404 if self.server.objects.pop(key, None) is None else 204), b"", {}
        return self._read(key)

    def _read(self, key: str) -> tuple[int, bytes, dict[str, str]]:
        if key not in self.server.objects:
            return 404, b"", {}
        data, _ = self.server.objects[key]
        facts = self._facts(key)
        if self.headers.get("if-match") not in (None, facts["ETag"]):
            return 412, b"", {}
        if self.headers.get("if-none-match") == facts["ETag"]:
            return 304, b"", facts
        asked = _RANGE.fullmatch(self.headers.get("range") or "")
        if asked is None:
            return 200, data, facts
        first, last = int(asked[1]), int(asked[2] or len(data))
        part = data[first : last + 1]
        if not part:
            return 416, b"", {}
        place = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        return 206, part, {**facts, "Content-Range": place}

    def _facts(self, key: str) -> dict[str, str]:
        number = self.server.objects[key][1]
        return {"ETag": f'"{number:x}"', "Last-Modified": _TIME, "x-goog-generation": str(number)}

    def _listed(self, query: dict[str, str]) -> tuple[list[str], list[str]]:
        """Return the keys below a prefix, and the folders, if the listing ends at those."""
        lead, delimiter = query.get("prefix", ""), query.get("delimiter")
        keys, folders = [], set()
        for key in sorted(self.server.objects):
            if key.startswith(lead):
                name, slash, _ = key[len(lead) :].partition(delimiter or "\0")
                folders |= {f"{lead}{name}{slash}"} if slash else set()
                keys += [] if slash else [key]
        return keys, sorted(folders)

    def _refusal(self, stored: tuple[bytes, int] | None) -> int | None:
        """Return the status that refuses a PUT whose condition is not true."""
        raise NotImplementedError

    def _of_bucket(self, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        raise NotImplementedError


class _Google(_Cloud):
    depth = 1

    def _refusal(self, stored: tuple[bytes, int] | None) -> int | None:
        wanted = self.headers.get("x-goog-if-generation-match")
        return None if wanted in (None, str(0 if stored is None else stored[1])) else 412

    def _of_bucket(self, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        keys, folders = self._listed(query)
        entries = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[key][0])}</Size>"
            f"<LastModified>2015-10-21T07:28:00.000Z</LastModified><ETag>1</ETag></Contents>"
            for key in keys
        ]
        entries += [
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders
        ]
        return 200, f"<ListBucketResult>{''.join(entries)}</ListBucketResult>".encode(), {}


class _Azure(_Cloud):
    depth = 2

    def _refusal(self, stored: tuple[bytes, int] | None) -> int | None:
        if self.headers.get("if-none-match") == "*" and stored is not None:
            return 409
        wanted = self.headers.get("if-match")
        return None if wanted is None or (stored and wanted == f'"{stored[1]:x}"') else 412

    def _of_bucket(self, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if query.get("comp") == "batch":
            return self._removed(body)
        keys, folders = self._listed(query)
        entries = [
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{_TIME}</Last-Modified>"
            f"<Content-Length>{len(self.server.objects[key][0])}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><Etag>1</Etag></Properties></Blob>"
            for key in keys
        ]
        entries += [f"<BlobPrefix><Name>{escape(each)}</Name></BlobPrefix>" for each in folders]
        blobs = f"<Blobs>{''.join(entries)}</Blobs>"
        return 200, f"<EnumerationResults>{blobs}<NextMarker/></EnumerationResults>".encode(), {}

    def _removed(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Remove the objects that the parts of a batch name, and answer for each."""
        paths = re.findall(rb"DELETE (\S+)", body)
        answers = []
        for number, path in enumerate(paths):
            found = self.server.objects.pop(self._key(path.decode()), None)
            status = "404 The specified blob does not exist." if found is None else "202 Accepted"
            answers.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {status}\r\nx-ms-request-id: 1\r\n\r\n\r\n"
            )
        made = "".join(answers) + "--batch--\r\n"
        return 202, made.encode(), {"Content-Type": "multipart/mixed; boundary=batch"}
