"""Named prompts, kept computed: read from the mesh's store, run once, and pinned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import OutriderError, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.models.sampling import Sampling
from outrider.models.text import TextError, Tokenizer
from outrider.verifier.decode.engine_thread import EngineThread
from outrider.verifier.requests.sequence import Request
from outrider.verifier.scheduling.pins import Pins
from outrider.verifier.scheduling.scheduler import Limits
from outrider.wire.prefixes import chain_hashes
from outrider.wire.prompts import BUCKET, NamedPrompt, prompt_mark
from outrider.wire.sampling import Speculation

_EVERY_S = 1.0

_log = get_logger("prompts")
_decode = msgspec.json.Decoder(NamedPrompt).decode


class NamedPrompts:
    """Follows the store; only in the event loop.

    What does not fit into the pins' share is left out, the latest prompts first. What a request needed the room of is
    computed again later.

    Args:
        bus: where the store is.
        tokenizer: of the model.
        model: its name.
        limits: tokens a page and of the context, and most pages that are kept.
        pins: of the engine, which runs in ``thread``.
        run: has a request run to its end.
    """

    def __init__(
        self,
        bus: Bus,
        tokenizer: Tokenizer,
        model: str,
        limits: Limits,
        pins: Pins,
        thread: EngineThread,
        run: Callable[[Request], Awaitable[None]],
    ) -> None:
        self._bucket, self._tokenizer, self._model = Bucket(bus, BUCKET), tokenizer, model
        self._limits = limits
        self._pins, self._thread, self._run = pins, thread, run
        self._seen: tuple[int, int] | None = None
        self._wanted: dict[str, tuple[NamedPrompt, list[int], list[bytes]]] = {}

    @property
    def kept(self) -> list[str]:
        """Marks of the prompts that are computed and stay so."""
        return self._pins.names

    async def follow(self) -> None:
        """Keeps prompts for ever; while the store is away, those that are known."""
        while True:
            try:
                seen = await self._bucket.state()
                if seen != self._seen:
                    await self._read()
                    self._seen = seen
                await self._warm()
            except Unavailable as error:
                _log.debug("named prompts cannot be read", why=error.message)
            except OutriderError as error:
                _log.warning("a named prompt was not computed", why=error.message)
            await asyncio.sleep(_EVERY_S)

    async def _read(self) -> None:
        """Notes which prompts are wanted, and lets go of others."""
        found: dict[str, NamedPrompt] = {}
        for key in await self._bucket.keys():
            if (entry := await self._bucket.get(key)) is not None:
                prompt = _decode(entry.value)
                if prompt.model in (None, self._model):
                    found[prompt_mark(prompt.tenant, prompt.name, entry.revision)] = prompt
        self._wanted = {}
        for mark, prompt in sorted(found.items(), key=lambda item: item[1].created):
            self._want(mark, prompt)
        for mark in set(self.kept) - self._wanted.keys():
            await asyncio.wrap_future(self._thread.call(partial(self._pins.drop, mark)))

    def _want(self, mark: str, prompt: NamedPrompt) -> None:
        try:
            ids = self._encode(prompt)
        except TextError as error:
            _log.warning("a named prompt is none here", tenant=prompt.tenant, name=prompt.name, why=str(error))
            return
        hashes = chain_hashes(self._tokenizer.fingerprint.encode(), prompt.tenant, ids, self._limits.page_size)
        others = {each for _, _, chain in self._wanted.values() for each in chain}
        if len(others.union(hashes)) > self._limits.pinned or len(ids) >= self._limits.context_length:
            _log.warning("a named prompt finds no room", tenant=prompt.tenant, name=prompt.name, pages=len(hashes))
        elif hashes:
            self._wanted[mark] = prompt, ids, hashes

    def _encode(self, prompt: NamedPrompt) -> list[int]:
        if prompt.messages is not None:
            return self._tokenizer.encode_chat(prompt.messages, add_generation_prompt=False)
        return self._tokenizer.encode(prompt.text or "", parse_special=prompt.parse_special)

    async def _warm(self) -> None:
        for mark, (prompt, ids, hashes) in list(self._wanted.items()):
            if mark not in self.kept and not await self._hold(mark, hashes):
                sampling, alone = Sampling(0.0, seed=0), Speculation(off=True)
                await self._run(Request(f"prompt-{mark}", prompt.tenant, ids, sampling, 0, speculation=alone))
                await self._hold(mark, hashes)

    async def _hold(self, mark: str, hashes: list[bytes]) -> bool:
        return await asyncio.wrap_future(self._thread.call(partial(self._pins.hold, mark, hashes)))
