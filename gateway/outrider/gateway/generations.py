"""From a request to its stream of tokens: the one way in, whatever the front door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from outrider.gateway import metrics
from outrider.gateway.attempts import TRANSIENT, persist
from outrider.gateway.encoder import Encoder
from outrider.gateway.lengths import longest_answer
from outrider.gateway.models import Models, Served
from outrider.gateway.request import LEAST_PRIORITY, Generation
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream import TokenStream
from outrider.gateway.tenants.admission import Admission
from outrider.gateway.tenants.caller import Caller
from outrider.gateway.verifiers import Job, Verifiers
from outrider.mesh.errors import InvalidRequest
from outrider.mesh.service import Mesh

T = TypeVar("T")


class Generations:
    """Starts generations and keeps those in flight."""

    def __init__(self, mesh: Mesh, settings: GatewaySettings) -> None:
        self._bus, self._settings = mesh.bus, settings
        self._verifiers = Verifiers(mesh.registry, mesh.tasks, self._on_lost)
        self._encoder = Encoder(self.models)
        self._streams: set[TokenStream] = set()
        mesh.bus.on_change(self._on_bus)

    @property
    def models(self) -> Models:
        """What can be served."""
        return self._verifiers.models

    def __len__(self) -> int:
        return len(self._streams)

    async def start(self, request_id: str, generation: Generation, admission: Admission) -> list[TokenStream]:
        """Tokenizes, reserves of the caller's limits and submits, a stream for each choice; who asks ends them.

        `UnknownModel`, `InvalidRequest`, `Overloaded` when every verifier is full or a limit is reached, `Unavailable`
        when services are missing for longer than ``place_s``.
        """
        jobs = await self._jobs(request_id, generation, admission.caller)
        await admission.reserve(len(jobs[0].prompt), jobs[0].sampling.max_tokens, len(jobs))
        streams = [TokenStream(job, self._verifiers, self._bus, self._settings) for job in jobs]
        self._streams.update(streams)
        metrics.streams.set(len(self))
        try:
            await _all([stream.open() for stream in streams])
        except BaseException as error:
            admission.settle(0)
            await self.end(streams, admission)
            raise _named(error, generation) from None
        return streams

    async def end(self, streams: Sequence[TokenStream], admission: Admission) -> None:
        """Closes streams, wherever they stand, and settles what they have used."""
        admission.settle(len(streams[0].job.prompt) + sum(stream.spent for stream in streams))
        self._streams.difference_update(streams)
        metrics.streams.set(len(self))
        await asyncio.gather(*(stream.close() for stream in streams))

    async def _jobs(self, request_id: str, generation: Generation, caller: Caller) -> list[Job]:
        served = await self._find(generation.model, caller)
        prompt = await self._persist(lambda: self._encoder.encode(served, generation.prompt))
        most, sampling = longest_answer(served, generation, len(prompt), caller), generation.sampling
        words = await self._bad_words(served, sampling.bad_words)
        return [
            Job(
                request_id=request_id if choice == 0 else f"{request_id}-{choice}",
                served=served,
                prompt=prompt,
                sampling=sampling.to_proto(most, choice, words),
                speculation=generation.speculation.to_proto(),
                caller=caller,
                priority=_priority(generation, caller),
            )
            for choice in range(generation.choices)
        ]

    async def _bad_words(self, served: Served, words: Sequence[str | list[int]]) -> list[list[int]]:
        texts = [word for word in words if isinstance(word, str)]
        encoded = await self._persist(lambda: self._encoder.encode_words(served, texts)) if texts else []
        return encoded + [word for word in words if not isinstance(word, str)]

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await persist(attempt, self._settings.place_s, TRANSIENT)

    async def _find(self, name: str | None, caller: Caller) -> Served:
        """The model; one that was served a moment ago is waited for."""

        async def find() -> Served:
            return self.models.find(name, caller.may_use)

        return await persist(find, self._settings.place_s if self.models.seen(name) else 0.0, TRANSIENT)

    def _on_lost(self, instance: str) -> None:
        for stream in self._streams:
            if stream.verifier == instance:
                stream.follow("lost")

    def _on_bus(self, connected: bool) -> None:
        if not connected:
            for stream in self._streams:
                stream.follow("disconnected")


def _priority(generation: Generation, caller: Caller) -> int:
    """Of its own, a request of a known tenant can only let others pass: else all would be in a hurry."""
    asked = min(generation.priority, 0) if caller.bounds else generation.priority
    return max(caller.priority + asked, LEAST_PRIORITY)


def _named(error: BaseException, generation: Generation) -> BaseException:
    """``error``, by the client's own name of the parameter where a verifier has something against its grammar."""
    structure = generation.sampling.structure
    if structure is None or not isinstance(error, InvalidRequest) or error.param != "grammar":
        return error
    return InvalidRequest(structure.param + error.message.removeprefix("grammar"), param=structure.param)


async def _all(openings: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all; the first failure ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(opening) for opening in openings]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
