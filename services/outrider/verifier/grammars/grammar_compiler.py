"""Compiles the grammars of requests: cached ones at once, new ones after a trial in another process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from hashlib import sha256
from weakref import WeakValueDictionary

from outrider.engine.errors import RequestError
from outrider.engine.logits.deep_threads import in_deep_thread
from outrider.engine.logits.grammar import Grammar, Grammars
from outrider.engine.requests.parameters import GrammarText
from outrider.mesh.errors import Internal, InvalidRequest, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.verifier.grammars.grammar_trial import Trial

_REMEMBERED = 1024

_log = get_logger("grammars")


class Compiler:
    """Compiles each new definition first in another process. Called from the event loop.

    One definition is tried at a time. Each tenant has at most one definition in the queue, so that a tenant with many
    definitions gets no more turns than others. No tenant gets what was compiled, or refused, for another.
    """

    def __init__(self, grammars: Grammars, trial: Trial | None = None) -> None:
        self._grammars = grammars
        self._trial = trial or Trial(grammars.tokenizer, grammars.vocabulary, grammars.eos_ids)
        self._refused: OrderedDict[tuple[str, bytes], RequestError] = OrderedDict()
        self._turn = asyncio.Lock()
        self._tenants: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def compile(self, source: GrammarText, tenant: str) -> Grammar:
        """The compiled grammar of ``source``.

        `InvalidRequest` if it cannot be compiled or takes too much time or memory, `Unavailable` if it cannot be tried,
        `Internal` if a thread gave another grammar back.
        """
        try:
            grammar = await self._compiled(source, tenant)
        except RequestError as error:
            raise InvalidRequest(error.message, param=error.param) from None
        if not grammar.made_for(source, tenant):
            _log.error("a thread gave another grammar back than was asked for")
            raise Internal
        return grammar

    async def _compiled(self, source: GrammarText, tenant: str) -> Grammar:
        if (grammar := self._find(source, tenant)) is not None:
            return grammar
        self._grammars.check(source)
        own = self._tenants.setdefault(tenant, asyncio.Lock())
        async with own:
            await self._turn.acquire()
            if (grammar := self._find_in_turn(source, tenant)) is not None:
                return grammar
            compiling = asyncio.create_task(self._compile(source, tenant))
            compiling.add_done_callback(self._done)
            return await asyncio.shield(compiling)

    async def clear(self) -> None:
        """Drops all compiled and refused definitions, and ends the process that has tried them."""
        async with self._turn:
            self.expire()
            self._trial.kill()

    def expire(self) -> None:
        """Drops all compiled and refused definitions; they are compiled anew if they are asked for."""
        self._refused.clear()
        self._grammars.clear()

    def stop(self) -> None:
        """Ends the process that tries definitions."""
        self._trial.kill()

    def _find(self, source: GrammarText, tenant: str) -> Grammar | None:
        if (why := self._refused.get((tenant, _digest(source)))) is not None:
            raise RequestError(why.message, param=why.param)
        return self._grammars.find(source, tenant)

    def _find_in_turn(self, source: GrammarText, tenant: str) -> Grammar | None:
        """As `_find`; keeps the turn only if the grammar has to be compiled."""
        grammar = None
        try:
            grammar = self._find(source, tenant)
        except RequestError:
            self._turn.release()
            raise
        if grammar is not None:
            self._turn.release()
        return grammar

    def _done(self, compiling: asyncio.Task[Grammar]) -> None:
        self._turn.release()
        if not compiling.cancelled():
            compiling.exception()  # marks it as retrieved: the caller may have left

    async def _compile(self, source: GrammarText, tenant: str) -> Grammar:
        try:
            return await asyncio.wrap_future(in_deep_thread(partial(self._try, source, tenant)))
        except RequestError as why:
            self._refused[tenant, _digest(source)] = why
            while len(self._refused) > _REMEMBERED:
                self._refused.popitem(last=False)
            raise
        except RuntimeError as error:
            raise Unavailable(f"no grammar can be compiled at the moment: {error}", retry_after=1.0) from None

    def _try(self, source: GrammarText, tenant: str) -> Grammar:
        return self._grammars.compile(source, self._trial.run(source.kind, source.text), tenant)


def _digest(source: GrammarText) -> bytes:
    return sha256(f"{source.kind}:{source.text}".encode()).digest()
