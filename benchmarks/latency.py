"""A server at a distance: a process that forwards connections, and delays what clients send.

    python -m benchmarks.latency http://127.0.0.1:8333 0.010

prints its address. Answers pass at once, so a request takes the delay longer, and the bytes of an
answer take as long as the server needs for them. Nothing is parsed: the process takes little of the
processor that clients are measured on.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["away"]


@contextmanager
def away(endpoint: str, seconds: float) -> Iterator[str]:
    """Run the process, and give the address at which the server is so many seconds away."""
    command = [sys.executable, "-m", "benchmarks.latency", endpoint, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


class _Side(asyncio.Protocol):
    """One side of a connection: what comes in is written to the other side, some time later."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self.transport: asyncio.Transport
        self.other: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._delay or not self.other.done():
            asyncio.get_running_loop().call_later(self._delay, self._pass_on, data)
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.other.done():
            self.other.result().write(data)
        else:
            self.other.add_done_callback(lambda found: found.result().write(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.other.add_done_callback(lambda found: found.result().close())


async def _forward(host: str, port: int, delay: float) -> None:
    loop = asyncio.get_running_loop()

    class Client(_Side):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._connecting = loop.create_task(self._connect())

        async def _connect(self) -> None:
            _, server = await loop.create_connection(lambda: _Side(0.0), host, port)
            server.other.set_result(self.transport)
            self.other.set_result(server.transport)

    listening = await loop.create_server(lambda: Client(delay), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    await listening.serve_forever()


def main() -> None:
    """Forward to the server that is named, with a delay in seconds."""
    endpoint, seconds = sys.argv[1:]
    host, _, port = endpoint.removeprefix("http://").rpartition(":")
    asyncio.run(_forward(host, int(port), float(seconds)))


if __name__ == "__main__":
    main()
