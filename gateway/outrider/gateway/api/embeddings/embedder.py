"""Computes the embeddings of a request's texts, some texts at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from operator import mul

import msgspec
from outrider.gateway.admission.deadlines import NO_DEADLINES, Deadlines
from outrider.gateway.api.embeddings.bodies import NamedPrompt, TextsBody, TextsUsage
from outrider.gateway.api.openai.routes import collect
from outrider.gateway.api.schema.headers import shorter_timeout
from outrider.gateway.request.generation import Generation
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.mesh.errors import InvalidRequest, Overloaded, Unavailable
from outrider.wire.frames import Frame, Usage
from outrider.wire.ids import unpack_floats
from outrider.wire.sampling import SamplingParams, Speculation
from starlette.requests import Request

_AT_ONCE = 64
"""Most texts that are submitted together: as many as a verifier runs at once."""
_PLACE = re.compile(r"prompt(?:\[(\d+)\])?")
Vector = list[float]


class Embedded(msgspec.Struct):
    """Embeddings of texts, by the texts' order; the ``model`` that made them, and the tokens of all texts."""

    vectors: list[Vector]
    model: str
    tokens: int

    @property
    def usage(self) -> TextsUsage:
        """What was used."""
        return TextsUsage(self.tokens, self.tokens)


class Embedder:
    """Embeds texts as requests to verifiers, which compute them beside others in their steps."""

    def __init__(self, generations: Generations, flights: Flights) -> None:
        self._generations, self._flights = generations, flights

    async def embed(self, request: Request, body: TextsBody) -> Embedded:
        """The embeddings of the texts in ``body``.

        Where there is no room for several texts at once, in a queue or a limit, there are fewer at once. Raises as
        `Generations.start`, with the client's names of parameters.
        """
        named, limit = body.prompts(), request.state.admission.caller.lowest("concurrent_streams")
        at_once = _AT_ONCE if limit is None else max(min(_AT_ONCE, limit[0]), 1)
        timeout_ms = shorter_timeout(body.timeout_ms, request)
        deadlines = NO_DEADLINES if timeout_ms is None else Deadlines.within(None, timeout_ms)
        made = Embedded([], "", 0)
        while (done := len(made.vectors)) < len(named):
            group = named[done : done + at_once]
            try:
                await self._add(made, group, request, body, deadlines)
            except Overloaded:
                if len(group) == 1:
                    raise
                at_once = len(group) // 2
        return made

    async def _add(
        self, made: Embedded, group: Sequence[NamedPrompt], request: Request, body: TextsBody, deadlines: Deadlines
    ) -> None:
        sampling = SamplingParams(temperature=0.0, max_tokens=0)
        first, *more = (prompt for _, prompt in group)
        generation = Generation(
            model=body.model,
            prompt=first,
            sampling=sampling,
            speculation=Speculation(off=True),
            priority=-body.priority,
            session=body.user or "",
            deadlines=deadlines,
            more=tuple((prompt, 0) for prompt in more),
            embed=True,
        )
        name = f"{request.state.request_id}-{len(made.vectors)}x{len(group)}"
        try:
            flight = await self._generations.start(
                name, generation, b"", request.state.admission, resumable=False, lingers=False
            )
        except InvalidRequest as error:
            raise _renamed(error, [name for name, _ in group]) from None
        try:
            frames = await collect(flight)
        finally:
            await self._flights.end(flight)
        made.model = flight.record.served.name
        made.vectors += map(_vector, frames)
        made.tokens += sum((frame.usage or Usage(0, 0)).prompt_tokens for frame in frames)


def cosine(one: Vector, two: Vector) -> float:
    """The cosine of the angle between two vectors of length 1."""
    return math.fsum(map(mul, one, two))


def shortened(vector: Vector, dimensions: int | None) -> Vector:
    """The first ``dimensions`` of a vector, divided by their length; raises `InvalidRequest` if there are fewer."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        why = f"dimensions must be at most {len(vector)}, as many as this model's embeddings have, not {dimensions}"
        raise InvalidRequest(why, param="dimensions")
    length = math.hypot(*vector[:dimensions]) or 1.0
    return [value / length for value in vector[:dimensions]]


def _vector(frame: Frame) -> Vector:
    if frame.embedding is None:
        raise Unavailable("the verifier is of a version without embeddings", retry_after=1.0)
    return unpack_floats(frame.embedding)


def _renamed(error: InvalidRequest, names: Sequence[str]) -> InvalidRequest:
    """``error`` with the client's name of the text that it is about."""
    found = _PLACE.match(error.param or "")
    if found is None:
        return error
    place = found[1] if len(names) > 1 else "0"
    name = names[0].partition("[")[0] if place is None else names[int(place)]
    error.message, error.param = name + error.message.removeprefix(found[0]), name
    return error
