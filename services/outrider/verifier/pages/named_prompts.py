"""Named prompts: read from the mesh's store, computed once, and pinned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from outrider.engine.pages.page_names import chain_hashes
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.target import Target
from outrider.engine.text import TextError
from outrider.engine.text.errors import NotRendered
from outrider.engine.worker import Inbox
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import OutriderError, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.wire.prompts import BUCKET, NamedPrompt, prompt_mark

_EVERY_S = 1.0

_log = get_logger("prompts")
_decode = msgspec.json.Decoder(NamedPrompt).decode


class NamedPrompts:
    """Follows the store of named prompts. Only in the event loop.

    Prompts that exceed the limit on pinned pages, or the share of it that a tenant may have, are left out, the latest
    first. A prompt whose pages a request needed is computed again later.

    Args:
        bus: connection to the store.
        target: the model, its tokenizer and its scheduler.
        inbox: inbox of the engine's thread.
        run: runs a request to its end.
        residency: tag of this verifier.
        tenant_share: largest share of the pages that may be pinned that the prompts of one tenant may take.
    """

    def __init__(
        self,
        bus: Bus,
        target: Target,
        inbox: Inbox,
        run: Callable[[Request], Awaitable[None]],
        residency: str = "",
        tenant_share: float = 1.0,
    ) -> None:
        self._residency = residency
        self._bucket, self._tokenizer, self._model = Bucket(bus, BUCKET), target.tokenizer, target.name
        self._limits, self._pins = target.scheduler.limits, target.scheduler.pins
        self._most_of_tenant = int(self._limits.pinned * tenant_share)
        self._inbox, self._run = inbox, run
        self._encoded: dict[str, tuple[list[int], list[bytes]]] = {}
        self._state: tuple[int, int] | None = None
        self._wanted: dict[str, tuple[NamedPrompt, list[int], list[bytes]]] = {}

    @property
    def pinned(self) -> list[str]:
        """Marks of the prompts that are pinned."""
        return self._pins.names

    async def follow(self) -> None:
        """Keeps prompts computed until cancelled; the prompts read last while the store is unavailable."""
        while True:
            try:
                state = await self._bucket.state()
                if state != self._state:
                    await self._read()
                    self._state = state
                await self._warm()
            except Unavailable as error:
                _log.debug("named prompts cannot be read", why=error.message)
            except OutriderError as error:
                _log.warning("a named prompt was not computed", why=error.message)
            await asyncio.sleep(_EVERY_S)

    async def erase(self, tenant: str) -> None:
        """Unpins the prompts of a tenant; the store has none of them any more."""
        marks = [mark for mark, (prompt, _, _) in self._wanted.items() if prompt.tenant == tenant]
        for mark in marks:
            del self._wanted[mark]
            await asyncio.wrap_future(self._inbox.call(partial(self._pins.drop, mark)))

    async def _read(self) -> None:
        """Reads the wanted prompts, and drops the pins of all others."""
        prompts: dict[str, NamedPrompt] = {}
        for key in await self._bucket.keys():
            if (entry := await self._bucket.get(key)) is not None:
                prompt = _decode(entry.value)
                resides = prompt.residency is None or self._residency in prompt.residency
                if prompt.model in (None, self._model) and resides:
                    prompts[prompt_mark(prompt.tenant, prompt.name, entry.revision)] = prompt
        self._wanted = {}
        self._encoded = {mark: known for mark, known in self._encoded.items() if mark in prompts}
        for mark, prompt in sorted(prompts.items(), key=lambda item: item[1].created):
            await self._want(mark, prompt)
        for mark in set(self.pinned) - self._wanted.keys():
            await asyncio.wrap_future(self._inbox.call(partial(self._pins.drop, mark)))

    async def _want(self, mark: str, prompt: NamedPrompt) -> None:
        try:
            ids, hashes = await self._known(mark, prompt)
        except NotRendered as error:
            raise Unavailable(str(error)) from None
        except TextError as error:
            _log.warning("a named prompt cannot be encoded", tenant=prompt.tenant, name=prompt.name, why=str(error))
            return
        if not self._has_room(prompt, len(ids), hashes):
            _log.warning("a named prompt finds no room", tenant=prompt.tenant, name=prompt.name, pages=len(hashes))
        elif hashes:
            self._wanted[mark] = prompt, ids, hashes

    def _has_room(self, prompt: NamedPrompt, tokens: int, hashes: list[bytes]) -> bool:
        """Whether the prompt fits beside those of all tenants, and beside those of its own."""
        chains = [(other.tenant == prompt.tenant, chain) for other, _, chain in self._wanted.values()]
        everyone = {digest for _, chain in chains for digest in chain}.union(hashes)
        own = {digest for is_own, chain in chains if is_own for digest in chain}.union(hashes)
        fits = len(everyone) <= self._limits.pinned and len(own) <= self._most_of_tenant
        return fits and tokens < self._limits.context_length

    async def _known(self, mark: str, prompt: NamedPrompt) -> tuple[list[int], list[bytes]]:
        """Ids and pages' hashes of a prompt, which is encoded once: any tenant's prompt changes the store."""
        if mark not in self._encoded:
            ids = await asyncio.to_thread(self._encode, prompt)
            fingerprint, size = self._tokenizer.fingerprint.encode(), self._limits.page_size
            self._encoded[mark] = ids, chain_hashes(fingerprint, prompt.tenant, ids, size)
        return self._encoded[mark]

    def _encode(self, prompt: NamedPrompt) -> list[int]:
        if prompt.messages is not None:
            return self._tokenizer.encode_chat(prompt.messages, add_generation_prompt=False)
        return self._tokenizer.encode(prompt.text or "", parse_special=prompt.parse_special)

    async def _warm(self) -> None:
        for mark, (prompt, ids, hashes) in list(self._wanted.items()):
            if mark in self._wanted and mark not in self.pinned and not await self._hold(mark, hashes):
                sampling, alone = Sampling(0.0, seed=0), Speculation(off=True)
                name, residency = f"prompt-{mark}", prompt.residency and frozenset(prompt.residency)
                await self._run(
                    Request(
                        name,
                        prompt.tenant,
                        ids,
                        sampling,
                        0,
                        speculation=alone,
                        priority=prompt.priority,
                        weight=prompt.weight,
                        residency=residency or None,
                    )
                )
                await self._hold(mark, hashes)

    async def _hold(self, mark: str, hashes: list[bytes]) -> bool:
        return await asyncio.wrap_future(self._inbox.call(partial(self._pins.hold, mark, hashes)))
