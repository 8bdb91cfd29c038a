"""The client of object stores against servers that lie: errors, and neither memory nor secrets."""

import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import RemoteError
from ingot.options import Options
from ingot.stores import Extent, ObjectStore
from ingot.stores.objects.url import ObjectURL
from tests.kernels import KERNELS
from tests.limited import run_limited

Answer = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, *ignored: object) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append((self.path, dict(self.headers.items())))
        try:
            self.server.answer(self)
        except OSError:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send an answer, with a tag and a time, as all servers do."""
        self.send_response_only(status)
        usual = {"ETag": '"1"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {**usual, "Content-Length": str(len(body)), **named}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    answer: Answer
    seen: list[tuple[str, dict[str, str]]]


@dataclass
class Liar:
    """A server whose answers a test makes."""

    endpoint: str
    server: _Server = field(repr=False)

    def store(self) -> ObjectStore:
        return ObjectStore(ObjectURL.parse("s3://bucket/data", self.storage()))

    def storage(self) -> dict[str, Any]:
        keys = {"access_key_id": "someone", "secret_access_key": "hush"}
        limits = {"retries": 0, "timeout": 5}
        return {"endpoint": self.endpoint, "region": "us-east-1", **keys, **limits}


@pytest.fixture
def liar() -> Iterator[Liar]:
    server = _Server(("127.0.0.1", 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield Liar(f"http://127.0.0.1:{server.server_port}", server)
    server.shutdown()
    thread.join()
    server.server_close()


other = liar


def test_a_redirection_that_never_ends_is_an_error(liar: Liar) -> None:
    liar.server.answer = lambda request: request.send(301, Location=request.path)
    with pytest.raises(RemoteError, match="sends the request elsewhere"):
        liar.store().read([Extent("a")])


def test_credentials_do_not_follow_a_redirection_to_another_host(liar: Liar, other: Liar) -> None:
    away = other.endpoint.replace("127.0.0.1", "localhost")
    liar.server.answer = lambda request: request.send(307, Location=away + request.path)
    other.server.answer = lambda request: request.send(200, b"from elsewhere")
    found = liar.store().read([Extent("a")])
    assert found == [b"from elsewhere"]
    assert other.server.seen
    for _, headers in other.server.seen:
        assert "authorization" not in {name.lower() for name in headers}


@pytest.mark.parametrize(
    "headers",
    [{f"X-{number}": "y" * 60_000 for number in range(30)}, {f"X-{n}": "y" for n in range(3000)}],
    ids=["long", "many"],
)
def test_enormous_headers_are_an_error(liar: Liar, headers: dict[str, str]) -> None:
    liar.server.answer = lambda request: request.send(200, b"{}", **headers)
    with pytest.raises(RemoteError) as error:
        liar.store().read([Extent("a")])
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_length_that_is_a_lie_takes_no_memory(liar: Liar, kernel: str) -> None:
    def answer(request: Handler) -> None:
        request.send(200, b"{" * 100_000, Content_Length=str(1 << 40))
        request.close_connection = True

    liar.server.answer = answer
    code = """
storage = {"endpoint": sys.argv[1], "region": "us-east-1", "retries": 0, "timeout": 5}
storage |= {"access_key_id": "someone", "secret_access_key": "hush"}
try:
    ingot.open("s3://bucket/x.zarr", options=ingot.Options(storage=storage))
except ingot.errors.RemoteError as error:
    assert "cut off" in str(error), error
else:
    raise AssertionError
"""
    run_limited(code, kernel, liar.endpoint)


@pytest.mark.parametrize("sent", ["bytes 5-8/100", "bytes 0-99/100"], ids=["others", "more"])
def test_other_bytes_than_those_asked_for_are_an_error(liar: Liar, sent: str) -> None:
    first, last = map(int, sent.removeprefix("bytes ").partition("/")[0].split("-"))
    body = bytes(range(100))[first : last + 1]
    liar.server.answer = lambda request: request.send(206, body, Content_Range=sent)
    with pytest.raises(RemoteError, match="other bytes than those asked for"):
        liar.store().read([Extent("a", 2, 4)])


def _listing(*keys: str) -> bytes:
    entries = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><ETag>1</ETag>"
        "<LastModified>2015-10-21T07:28:00.000Z</LastModified></Contents>"
        for key in keys
    )
    folders = "".join(
        f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in ("else/", "data/f/")
    )
    return f"<ListBucketResult>{entries}{folders}</ListBucketResult>".encode()


def test_a_listing_that_lies_names_nothing_outside(liar: Liar) -> None:
    keys = ("data/b", "data/../secret", "other/c", "data/.", "data/d\\e", "/etc/passwd", "data/b")
    liar.server.answer = lambda request: request.send(200, _listing(*keys))
    store = liar.store()
    try:
        names = list(store.names())
    except RemoteError:
        return  # obstore refuses some of the keys itself.
    assert set(names) <= {"b", "f/"}


def test_a_listing_of_others_names_is_empty(liar: Liar) -> None:
    liar.server.answer = lambda request: request.send(200, _listing("other/c", "database/d"))
    assert list(liar.store().names()) == ["f/"]
    assert list(liar.store().client.walk()) == []


def test_a_listing_that_is_cut_is_an_error(liar: Liar) -> None:
    whole = _listing("data/a", "data/b")
    liar.server.answer = lambda request: request.send(200, whole[: len(whole) // 2])
    with pytest.raises(RemoteError):
        list(liar.store().names())

    def cut(request: Handler) -> None:
        request.send(200, whole[:50], Content_Length=str(len(whole)))
        request.close_connection = True

    liar.server.answer = cut
    with pytest.raises(RemoteError):
        list(liar.store().names())


def test_a_dataset_behind_a_server_that_says_yes_to_all_is_an_error(liar: Liar) -> None:
    liar.server.answer = lambda request: request.send(200, b"yes")
    with pytest.raises(ingot.errors.IngotError) as error:
        ingot.open("s3://bucket/x.zarr", options=Options(storage=liar.storage()))
    assert "hush" not in f"{error.value!r}"
    with pytest.raises(ingot.errors.IngotError):
        ingot.array(np.arange(3), "s3://bucket/y.zarr", options=Options(storage=liar.storage()))
