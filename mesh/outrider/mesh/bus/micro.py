"""A service that answers requests over NATS and can be discovered there (NATS's services protocol, ADR-32)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.micro import add_service
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER, Request
from nats.micro.service import Service, ServiceConfig
from outrider.mesh.bus.login import INBOXES

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_LINE = 400


class Query:
    """A request that arrived; header names are in lower case."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._reply: str = request._msg.reply
        self.subject, self.data = request.subject, request.data
        self.headers = {key.lower(): value for key, value in (request.headers or {}).items()}

    async def answer(self, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Sends ``data`` to the requester; each call sends another message. Does nothing while the broker is away.

        A request is answered only where its reply subject is an inbox: a requester must not have this process publish
        on subjects that are forbidden to the requester.
        """
        if not self._reply.startswith(INBOXES):
            return
        with suppress(nats.errors.Error, ValueError):
            await self._request.respond(data, dict(headers or {}) or None)

    async def refuse(self, code: int, why: str, data: bytes, headers: Mapping[str, str]) -> None:
        """Answers with an error of the services protocol, whose description is one line of ASCII."""
        line = " ".join(why.split()).encode("ascii", "backslashreplace").decode()[:_LINE]
        await self.answer(data, {**headers, ERROR_HEADER: line, ERROR_CODE_HEADER: str(code)})


class Endpoint(NamedTuple):
    """A subject and the ``handler`` of its requests, which returns at once: the next request waits for it."""

    name: str
    subject: str
    handler: Callable[[Query], Awaitable[None]]


class MicroService:
    """Answers requests to the ``endpoints``; all members of ``queue`` share the requests."""

    def __init__(
        self, bus: Bus, name: str, version: str, description: str, queue: str, endpoints: Sequence[Endpoint]
    ) -> None:
        self._bus, self._endpoints = bus, endpoints
        self._about = ServiceConfig(name=name, version=version, description=description, queue_group=queue)
        self._client: Client | None = None
        self._inner: Service | None = None

    async def open(self) -> None:
        """Answers from now on, over any connection of the bus."""
        await self._bus.add_listener(self)

    async def attach(self, client: Client) -> None:
        """Answers on ``client``, once; the bus calls it again for each new client."""
        if self._client is client:
            return
        self._client = client
        self._inner = await add_service(client, self._about)
        for endpoint in self._endpoints:
            await self._inner.add_endpoint(
                name=endpoint.name, subject=endpoint.subject, handler=_handler(endpoint.handler)
            )

    async def close(self) -> None:
        """Takes no more requests."""
        self._bus.remove_listener(self)
        with suppress(nats.errors.Error):
            if self._inner is not None:
                await self._inner.stop()


def _handler(handle: Callable[[Query], Awaitable[None]]) -> Callable[[Request], Awaitable[None]]:
    async def handler(request: Request) -> None:
        await handle(Query(request))

    return handler
