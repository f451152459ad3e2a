"""What a verifier that is told to go does with its requests: other verifiers go on with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from outrider.engine.decode.engine import Engine
from outrider.engine.requests.sequence import Request
from outrider.engine.worker import Inbox
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.tasks import within
from outrider.mesh.telemetry import get_logger
from outrider.verifier.pages.page_exchange import PageExchange
from outrider.verifier.rpc.publisher import Publisher
from outrider.wire.residency import may_hold

SETTLE_S = 0.5
"""Seconds after which verifiers that are told to go at the same time know it of each other."""
STORE_S = 3.0
"""Most seconds in which a draining verifier sends pages before it leaves its requests, which go on meanwhile."""
_log = get_logger("verifier")


class Departure:
    """Ends the requests of a draining verifier that another ready verifier can continue; waits for the others.

    A request ends without a reason for its readers (`Finish.CANCELLED`), behind exactly the tokens that were decided.
    Its gateway then submits the request and these tokens to another verifier. The target fixes what follows. Before
    that, KV caches get all pages of these requests, from which the other verifier goes on.

    Args:
        instance: the verifier's name in the registry.
        registry: the other verifiers.
        engine: has the requests.
        inbox: inbox of the engine's thread.
        publisher: knows when the engine has no more requests.
        exchange: sends pages to KV caches.
    """

    def __init__(
        self,
        instance: str,
        registry: Registry,
        engine: Engine,
        inbox: Inbox,
        publisher: Publisher,
        exchange: PageExchange,
    ) -> None:
        self._instance, self._registry, self._publisher = instance, registry, publisher
        self._exchange = exchange
        self._engine, self._inbox = engine, inbox
        self._changed = asyncio.Event()

    async def run(self, model: str, vocabulary: str) -> None:
        """Returns when the engine has no more requests of the model and vocabulary that other verifiers announce."""
        forget = self._registry.on_change("verifier", lambda members: self._changed.set())
        ended = asyncio.ensure_future(self._idle())
        try:
            await asyncio.wait({ended}, timeout=SETTLE_S)
            while not ended.done():
                self._changed.clear()
                await self._release(self._successors(model, vocabulary))
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            ended.cancel()
            forget()

    async def _idle(self) -> None:
        await self._publisher.idle()
        await asyncio.wrap_future(self._inbox.call(bool))  # the last submission may still wait in the inbox
        await self._publisher.idle()

    def _successors(self, model: str, vocabulary: str) -> list[Member]:
        """The other verifiers that serve the same and are ready."""
        return [
            member
            for member in self._registry.members("verifier")
            if member.instance != self._instance
            and member.state == State.READY
            and (member.status.get("model"), member.status.get("vocabulary")) == (model, vocabulary)
        ]

    async def _release(self, successors: Sequence[Member]) -> None:
        if not successors:
            return

        def movable(request: Request) -> bool:
            return any(_can_continue(member, request) for member in successors)

        with suppress(TimeoutError):
            await within(STORE_S, self._exchange.store(partial(self._engine.offer_pages, movable)))
        release = partial(self._engine.release, movable)
        released = await asyncio.wrap_future(self._inbox.call(release))
        if released:
            _log.info("other verifiers go on with the requests", requests=released, verifiers=len(successors))


def _can_continue(member: Member, request: Request) -> bool:
    """Whether ``member`` may have the data of ``request``, and room for its longest answer."""
    length = len(request.prompt) + request.max_tokens
    return may_hold(member.status, request.residency) and length <= int(member.status.get("context_length", 0))
