"""A connection to NATS on which messages go from the socket straight to a function, and out without a queue in between.

nats-py's own way, a queue and a task for each subscription and a regular expression or two for each message, costs more
than all else that a gateway does with a token, or a verifier beside its model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from nats.aio.client import Client
from nats.aio.subscription import Subscription as Inner
from nats.aio.transport import TcpTransport
from nats.protocol.command import pub_cmd, sub_cmd, unsub_cmd
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser
from outrider.mesh.telemetry import get_logger

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

Take = Callable[[bytes], None]
"""Is called with a message's payload."""

_PATIENCE_S = 2.0
_FAREWELL_S = 0.02
_BEHIND = 1 << 20
"""Bytes on their way to the broker beyond which it does not keep up."""
_END, _PING = b"\r\n", b"PING\r\n"

_log = get_logger("bus")


class DirectClient(Client):
    """nats-py's client, with `listen` beside ``subscribe`` and `post` beside ``publish``."""

    def __init__(self) -> None:
        super().__init__()
        self.takers: dict[int, Take] = {}
        self._ps = _Parser(self)
        self._commands: list[bytes] = []
        self._posted = 0
        self._sending: asyncio.Handle | None = None
        self._patient = False
        self._asked: asyncio.Future[None] | None = None

    def listen(self, subject: str, take: Take) -> int:
        """Has ``take`` called for each message on ``subject``; the number of the subscription."""
        self._sid += 1
        self._subs[self._sid] = Inner(self, self._sid, subject)  # so that it is made again on another connection
        self.takers[self._sid] = take
        self._commands.append(sub_cmd(subject, "", self._sid))
        self._send_within(0.0)
        return self._sid

    @property
    def keeps_up(self) -> bool:
        """Whether what is posted now is sent in this turn of the loop, behind all that was published."""
        if not self.is_connected or self._pending_data_size or not isinstance(self._transport, TcpTransport):
            return False
        writer = self._transport._io_writer
        return writer is not None and writer.transport.get_write_buffer_size() + self._posted < _BEHIND

    def post(self, subject: str, data: bytes) -> None:
        """Publishes ``data``, with all else that is posted in this turn of the loop."""
        self._commands.append(pub_cmd(subject, "", data))
        self._posted += len(data)
        self._send_within(0.0)

    def leave(self, number: int) -> None:
        """Ends what `listen` began."""
        self._subs.pop(number, None)
        self.takers.pop(number, None)
        self._commands.append(unsub_cmd(number, 0))
        self._send_within(_FAREWELL_S)

    async def settled(self) -> None:
        """Returns when the broker knows of all that was listened for, or does not answer."""
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
            self._send_within(0.0)
        await asyncio.shield(self._asked)

    def _send_within(self, seconds: float) -> None:
        """What is told in one turn of the loop goes together; nobody waits for the end of a subscription."""
        if self._sending is None or (not seconds and self._patient):
            if self._sending is not None:
                self._sending.cancel()
            self._patient = bool(seconds)
            loop = asyncio.get_running_loop()
            self._sending = loop.call_later(seconds, self._send) if seconds else loop.call_soon(self._send)

    def _send(self) -> None:
        """Sends at once, or has nats-py send it when there is a connection."""
        self._sending = None
        commands, self._commands, self._posted = b"".join(self._commands), [], 0
        asked, self._asked = self._asked, None
        if self.is_connected and self._transport:
            if asked is not None:
                asyncio.get_running_loop().call_later(_PATIENCE_S, _give_up, asked)
                self._pongs.append(asked)
            self._transport.write(commands + (_PING if asked else b""))
            return
        self._pending.append(commands)
        self._pending_data_size += len(commands)
        if asked is not None:
            asked.set_result(None)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        take = self.takers.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            take(data)


class _Parser(Parser):
    """Takes whole messages of takers off the stream and leaves all else to nats-py's parser."""

    nc: DirectClient

    def reset(self) -> None:
        super().reset()
        self._rest = b""

    async def parse(self, data: bytes = b"") -> None:
        if not self.buf and self.state == AWAITING_CONTROL_LINE:
            data = self._rest + data
            self._rest = b""
            start, partial = self._take(data)
            if partial:
                self._rest = data[start:]
                return
            data = data[start:]
        if data:
            await super().parse(data)

    def _take(self, data: bytes) -> tuple[int, bool]:
        """How far takers have had it, and whether the beginning of a message for one follows."""
        start = 0
        while data.startswith(b"MSG ", start):
            end = data.find(_END, start)
            _, _, number, *_, size = data[start:end].split(b" ") if end > 0 else (b"",) * 4
            take = self.nc.takers.get(int(number)) if number else None
            if take is None:
                break
            first = end + len(_END)
            last = first + int(size)
            if last + len(_END) > len(data):
                return start, True
            take(data[first:last])
            start = last + len(_END)
        return start, False


def _give_up(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


class Listening:
    """Calls ``take`` with the payload of each message on a subject, until it is stopped; made by `Bus.listen`.

    An exception in it is logged and costs only the message.
    """

    def __init__(self, bus: Bus, subject: str, take: Take) -> None:
        self._bus, self._subject, self._take = bus, subject, take
        self._client: DirectClient | None = None
        self._number = 0

    async def attach(self, client: DirectClient) -> None:
        """Listens on ``client``, once; the bus calls it again for a client that takes another's place."""
        self.listen(client)

    def listen(self, client: DirectClient) -> None:
        """As `attach`."""
        if self._client is not client:
            self._client, self._number = client, client.listen(self._subject, self._deliver)

    def stop(self) -> None:
        """Stops delivery at once. May be called twice."""
        self._bus.forget(self)
        if self._client is not None:
            self._client.leave(self._number)
            self._client = None

    def _deliver(self, data: bytes) -> None:
        try:
            self._take(data)
        except Exception:
            _log.exception("a subscriber failed", subject=self._subject)
