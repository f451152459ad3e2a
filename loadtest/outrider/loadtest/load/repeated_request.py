"""A cheap client: sends the same requests over and over, on connections that stay open.

`python -m outrider.loadtest.load.repeated_request` reads a `RepeatedRequest` as JSON from standard input and writes a
`RepeatedResult` to standard output. The client is a separate process, so that its CPU time is not charged to a measured
process.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class RepeatedRequest(msgspec.Struct, frozen=True):
    """Posts ``bodies`` in turn to ``url`` for ``seconds``, or each once where ``seconds`` is 0.

    With ``rate`` 0 each connection sends its next request when its last one is answered; otherwise ``rate`` requests a
    second are due, answered or not. ``ca`` is a file with the authorities to trust, for https; empty for the system's.
    """

    url: str
    bodies: list[msgspec.Raw]
    seconds: float
    connections: int
    headers: dict[str, str] = {}
    rate: float = 0.0
    ca: str = ""


class RepeatedResult(msgspec.Struct, frozen=True):
    """Seconds of each request since it was due, events of all streams, and seconds of the whole task."""

    latencies: list[float]
    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Seconds within which ``share`` of the requests were answered."""
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def send_repeatedly(task: RepeatedRequest) -> RepeatedResult:
    """Runs ``task`` in a separate process.

    Raises:
        SystemExit: a request was not answered with 200, or a connection broke.
    """
    command = [sys.executable, "-m", "outrider.loadtest.load.repeated_request"]
    done = subprocess.run(command, input=msgspec.json.encode(task), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit("the load client failed: see above")
    return msgspec.json.decode(done.stdout, type=RepeatedResult)


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, client: _Client) -> None:
        self._client, self._received, self._due, self._head = client, bytearray(), 0.0, 0
        self._length: int | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.WriteTransport = transport

    def send(self, due: float) -> None:
        self._received.clear()
        self._due, self._head = due, 0
        self._transport.write(self._client.next_request())

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._head:
            self._read_head()
        if self._head and self._complete():
            self._client.on_answer(self, self._due, self._received.count(b"data: {"))

    def connection_lost(self, error: Exception | None) -> None:
        self._client.on_close(self)

    def _read_head(self) -> None:
        end = self._received.find(_HEAD_END)
        if end < 0:
            return
        self._head = end + len(_HEAD_END)
        head = bytes(self._received[:end]).lower()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            self._client.fail(bytes(self._received[:500]).decode(errors="replace"))
        _, _, rest = head.partition(b"content-length:")
        self._length = int(rest.partition(b"\r\n")[0]) if rest else None

    def _complete(self) -> bool:
        if self._length is None:
            return self._received.endswith(_LAST_CHUNK)
        return len(self._received) >= self._head + self._length


class _Client:
    def __init__(self, task: RepeatedRequest) -> None:
        self._task = task
        parts = urlsplit(task.url)
        headers = {"host": parts.netloc, "content-type": "application/json", **task.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {parts.path} HTTP/1.1\r\n{lines}content-length: "
        self._requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in map(bytes, task.bodies)]
        self._sent = 0
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._tls = ssl.create_default_context(cafile=task.ca or None) if parts.scheme == "https" else None
        self._latencies: list[float] = []
        self._events = 0
        self._free: list[_Connection] = []
        self._open, self._sent_all = task.connections, False
        self._waiting: deque[float] = deque()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> RepeatedResult:
        loop = asyncio.get_running_loop()
        for _ in range(self._task.connections):
            made = loop.create_connection(lambda: _Connection(self), self._host, self._port, ssl=self._tls)
            self._free.append((await made)[1])
        began = time.perf_counter()
        self._until = began + self._task.seconds
        if self._task.rate:
            await self._pace(began)
        else:
            self._sent_all = True
            connections, self._free = self._free, []
            for connection in connections:
                connection.send(time.perf_counter())
        await self._done
        return RepeatedResult(self._latencies, self._events, time.perf_counter() - began)

    async def _pace(self, began: float) -> None:
        for place in range(round(self._task.seconds * self._task.rate)):
            due = began + place / self._task.rate
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            if self._free:
                self._free.pop().send(due)
            else:
                self._waiting.append(due)
        self._sent_all = True
        self._end_if_done()

    def next_request(self) -> bytes:
        """The next of the bodies, with its head."""
        self._sent += 1
        return self._requests[(self._sent - 1) % len(self._requests)]

    def _goes_on(self, now: float) -> bool:
        return now < self._until if self._task.seconds else self._sent < len(self._requests)

    def on_answer(self, connection: _Connection, due: float, events: int) -> None:
        now = time.perf_counter()
        self._latencies.append(now - due)
        self._events += events
        if self._waiting:
            connection.send(self._waiting.popleft())
        elif not self._task.rate and self._goes_on(now):
            connection.send(now)
        else:
            self._free.append(connection)
        self._end_if_done()

    def on_close(self, connection: _Connection) -> None:
        """Drops an idle connection that the server closed; a busy one is an error."""
        if connection in self._free:
            self._free.remove(connection)
            self._open -= 1
        else:
            self.fail("the server closed a connection before it had answered")

    def fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(why))

    def _end_if_done(self) -> None:
        if self._sent_all and len(self._free) == self._open and not self._done.done():
            self._done.set_result(None)


async def _run(task: RepeatedRequest) -> RepeatedResult:
    return await _Client(task).run()


def main() -> int:
    """Runs the task of standard input."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=RepeatedRequest)
    try:
        result = uvloop.run(_run(task))
    except (OSError, ValueError) as error:
        print(f"{Path(__file__).stem}: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
