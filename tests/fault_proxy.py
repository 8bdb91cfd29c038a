"""A proxy on loopback that makes requests fail: answers are lost, delayed, cut or replaced.

It forwards HTTP to a server and asks a plan what to do with each request. The host stays that of
the client, since signatures cover it.
"""

import http.client
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))


@dataclass(frozen=True)
class Fault:
    """What is done to a request; by default nothing."""

    delay: float = 0.0
    """Seconds before the request is forwarded."""
    forward: bool = True
    """Whether the server gets the request."""
    answer: bool = True
    """Whether the client gets an answer; without one the connection is closed."""
    status: int | None = None
    """Answer with this status instead of that of the server."""
    cut: bool = False
    """Send half of the body of the answer, then close the connection."""
    without: tuple[str, ...] = ()
    """Headers of the request that the server does not get, in lower case."""


FINE = Fault()
LOST = Fault(answer=False)
DEAD = Fault(forward=False, answer=False)


@dataclass(frozen=True)
class Request:
    """A request as plans see it."""

    number: int
    method: str
    path: str
    headers: dict[str, str]


Plan = Callable[[Request], Fault]


@dataclass
class FaultProxy:
    """A running proxy; `plan` may be replaced at any time."""

    endpoint: str
    plan: Plan = lambda request: FINE
    requests: list[Request] = field(default_factory=list)
    sent: int = 0
    """How many bytes of bodies were sent to clients."""
    _lock: Any = field(default_factory=threading.Lock)

    def begin(self, plan: Plan) -> None:
        """Use another plan, and number requests anew."""
        with self._lock:
            self.requests.clear()
            self.plan = plan

    def fault(self, method: str, path: str, headers: dict[str, str]) -> Fault:
        """Return what the plan does to the next request."""
        with self._lock:
            request = Request(len(self.requests), method, path, headers)
            self.requests.append(request)
            return self.plan(request)


@contextmanager
def running(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy in front of a server."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream = upstream.removeprefix("http://")
    server.proxy = FaultProxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    upstream: str
    proxy: FaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that die are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else the system waits 40 ms before it sends a short body behind its head.
    disable_nagle_algorithm = True
    server: _Server
    _upstream: http.client.HTTPConnection | None = None

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def log_message(self, *ignored: object) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = self.server.proxy.fault(self.command, self.path, headers)
        if fault.delay:
            time.sleep(fault.delay)
        status, answer, data = fault.status or 500, [], b""
        if fault.forward and fault.status is None:
            status, answer, data = self._forwarded(headers, body, fault.without)
        if not fault.answer:
            self.close_connection = True
            return
        self.send_response_only(fault.status or status)
        for name, value in answer:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = next((v for n, v in answer if n.lower() == "content-length"), str(len(data)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.server.proxy.sent += len(data)
            self.wfile.write(data[: len(data) // 2] if fault.cut else data)
        if fault.cut:
            self.close_connection = True

    def _forwarded(
        self, headers: dict[str, str], body: bytes, without: tuple[str, ...]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        assert self._upstream is not None
        kept = {name: value for name, value in headers.items() if name not in without}
        kept["content-length"] = str(len(body))
        kept.pop("connection", None)
        for attempt in range(2):
            try:
                self._upstream.request(self.command, self.path, body, kept)
                answer = self._upstream.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (http.client.HTTPException, OSError):
                # The server closed a connection that was kept; nothing of the request arrived.
                self._upstream.close()
                if attempt:
                    raise
        raise AssertionError

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle


def main() -> None:
    """Run a proxy that delays every request, and print its address: `UPSTREAM SECONDS`."""
    upstream, seconds = sys.argv[1:]
    with running(upstream) as proxy:
        proxy.begin(lambda request: Fault(delay=float(seconds)))
        print(proxy.endpoint, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
