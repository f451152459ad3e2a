"""Turns a request of any API into a flight."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TypeVar

import msgspec
from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.deadlines import NO_DEADLINES
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.ledger.record import Key, Record, choice_id
from outrider.gateway.observer.span import GenAiSpan
from outrider.gateway.request.biases import with_biases
from outrider.gateway.request.encoder import Encoder
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.generation import (
    LEAST_PRIORITY,
    Generation,
    Messages,
    Prompt,
    Structure,
    Text,
    choice_seed,
    samples_of,
    with_parse_special,
)
from outrider.gateway.request.grammar_tokens import named_token
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.models import Models, ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.tool_calls.grammar import call_structure, with_function_name
from outrider.mesh.attempts import TRANSIENT, persist
from outrider.mesh.errors import ContextExceeded, InvalidRequest, OutriderError
from outrider.mesh.telemetry import kept_span
from outrider.v1.tokenizer_pb2 import DescribeTokenizerResponse
from outrider.wire.bounds import INT32
from outrider.wire.sampling import SamplingParams

T = TypeVar("T")


class Generations:
    """Starts generations."""

    def __init__(self, flights: Flights, settings: GatewaySettings) -> None:
        self._flights, self._settings = flights, settings
        self._encoder = Encoder(self.models)

    @property
    def models(self) -> Models:
        """The models that the mesh serves."""
        return self._flights.verifiers.models

    async def start(
        self,
        request_id: str,
        generation: Generation,
        shape: bytes,
        admission: Admission,
        *,
        resumable: bool,
        lingers: bool,
        background: bool = False,
    ) -> Flight:
        """Tokenizes the prompts, reserves the caller's limits, and submits a job for each choice.

        The API that calls this ends or leaves the flight. ``shape`` is the form of the answer, which a resuming API
        gets back. A flight that is left goes on for a while if it ``lingers``, and to its end in the ``background``.

        Raises `UnknownModel`, `InvalidRequest`, `Overloaded` if every verifier is full or a limit is reached,
        `DeadlineUnmeetable` or `DeadlinePassed` if a deadline cannot be met or has passed, and `Unavailable` if
        services are missing for longer than ``place_s``.
        """
        if kept_span() is None:
            return await self._start(request_id, generation, shape, admission, resumable, lingers, background)
        there = {model.name for model in self.models.all()} & {generation.model}
        span = GenAiSpan(request_id, generation, next(iter(there), None))
        try:
            with span.entered():
                flight = await self._start(request_id, generation, shape, admission, resumable, lingers, background)
        except BaseException as error:
            span.fail(error)
            raise
        span.placed([stream.job for stream in flight.streams], 1 + len(generation.more))
        flight.observer.span = span
        return flight

    async def _start(
        self,
        request_id: str,
        generation: Generation,
        shape: bytes,
        admission: Admission,
        resumable: bool,
        lingers: bool,
        background: bool,
    ) -> Flight:
        key, seed = Key(admission.caller.tenant, request_id), generation.sampling.seed
        async with nullcontext() if generation.deadlines is NO_DEADLINES else generation.deadlines.until_first():
            await admission.pace(samples_of(generation))
            jobs, created = await self._jobs(request_id, generation, admission.caller), int(time.time())
            record = Record.of(
                jobs,
                created=created,
                seed=seed,
                lingers=lingers,
                shape=shape,
                background=background,
                prompts=1 + len(generation.more),
            )
            try:
                return await self._flights.begin(
                    key, jobs, record, admission, resumable=resumable, operation=generation.operation
                )
            except OutriderError as error:
                raise _with_client_param(error, generation) from None

    async def find(self, name: str | None, caller: Caller) -> ServedModel:
        """The model called ``name``, as `Models.wait_for`."""
        return await self.models.wait_for(name, caller.may_use, self._settings.place_s)

    async def encode(self, served: ServedModel, prompt: Prompt, caller: Caller) -> list[int]:
        """As `Encoder.encode`, with the settings of ``caller``; waits for tokenizers."""
        return (await self._encode_all(served, [prompt], caller))[0]

    async def decode(self, served: ServedModel, ids: Sequence[int], *, keep_special: bool = True) -> str:
        """As `Encoder.decode`; waits for tokenizers."""
        return await self._persist(lambda: self._encoder.decode(served, ids, keep_special=keep_special))

    async def describe(self, served: ServedModel) -> DescribeTokenizerResponse:
        """As `Encoder.describe`; waits for tokenizers."""
        return await self._persist(lambda: self._encoder.describe(served))

    async def _jobs(self, request_id: str, generation: Generation, caller: Caller) -> list[Job]:
        """A job for each choice; the choices of one prompt are adjacent."""
        filtering = self._flights.filtering if self._has_filters(caller) else None
        filters = () if filtering is None or generation.embed else filtering.names(generation, caller)
        self._check_tokens(generation.structure, caller)
        self._check_template(generation.prompt)
        served = await self.find(generation.model, caller)
        sampling = await self._sampling(generation, served)
        seeded_prompts = [(generation.prompt, sampling.seed), *generation.more]
        texts: Sequence[Prompt] = [prompt for prompt, _ in seeded_prompts]
        if filtering is not None:
            texts = await filtering.prompts(request_id, texts, caller)
        predicted = [Text(generation.prediction, False, False, "prediction")] if generation.prediction else []
        most = 0 if generation.keep_last is None else INT32
        encoded = await self._encode_all(served, [*texts, *predicted], caller, most)
        prompts, prediction = encoded[: len(texts)], [token for ids in encoded[len(texts) :] for token in ids]
        prompts = [_last(served, generation, prompt, caller) for prompt in prompts]
        lengths = _longest(served, generation, prompts, caller)
        speculation = generation.speculation
        if generation.cache_salt or not caller.learning:
            speculation = msgspec.structs.replace(speculation, private=True)
        choice_indices = range(generation.choices)
        choices = [
            (prompt, msgspec.structs.replace(sampling, seed=choice_seed(seed, choice), max_tokens=most).to_proto())
            for prompt, (_, seed), most in zip(prompts, seeded_prompts, lengths, strict=True)
            for choice in choice_indices
        ]
        return [
            Job(
                request_id=choice_id(request_id, place),
                served=served,
                prompt=prompt,
                sampling=parameters,
                speculation=speculation.to_proto(),
                caller=caller,
                priority=effective_priority(generation, caller),
                session=generation.session,
                deadlines=generation.deadlines,
                coalesce=generation.coalesce,
                filters=filters,
                calls=generation.call_rules is not None,
                prediction=prediction,
                cache_salt=generation.cache_salt,
                embed=generation.embed,
            )
            for place, (prompt, parameters) in enumerate(choices)
        ]

    def _has_filters(self, caller: Caller) -> bool:
        """Whether there are filters for the caller."""
        return bool(self._settings.filters) or any(owned.limits.filters for owned in caller.limits)

    def _check_tokens(self, structure: Structure | None, caller: Caller) -> None:
        """Raises `InvalidRequest` for a grammar that names a special token, unless its caller may do that."""
        may = self._settings.grammar_tokens if caller.grammar_tokens is None else caller.grammar_tokens
        if may or structure is None:
            return
        if (token := named_token(structure.grammar.context_free)) is not None:
            why = f"names the special token {token}, which grammars of this caller may not: write texts in quotes"
            raise InvalidRequest(f"{structure.param} {why}", param=structure.param)

    def _check_template(self, prompt: Prompt) -> None:
        """Raises `InvalidRequest` for a chat with a template of its own, unless the settings take such."""
        if isinstance(prompt, Messages) and prompt.template and not self._settings.chat_templates:
            why = "may not be given here: this gateway renders chats with the model's template alone"
            raise InvalidRequest(f"chat_template {why}", param="chat_template")

    async def _encode_all(
        self, served: ServedModel, prompts: Sequence[Prompt], caller: Caller, most: int = 0
    ) -> list[list[int]]:
        with_options = [with_parse_special(prompt, caller.parse_special) for prompt in prompts]
        return await self._persist(lambda: self._encoder.encode_all(served, with_options, most))

    async def _sampling(self, generation: Generation, served: ServedModel) -> SamplingParams:
        """How the target draws, with bad words as the model's tokens and the structure as a grammar."""
        words, structure = generation.bad_words, _structure(generation, served)
        sampling = generation.sampling
        if isinstance(generation.prompt, Text) and generation.prompt.suffix is not None:
            if served.infill_ends is None:
                why = "this model has no tokens for a prompt with a suffix"
                raise InvalidRequest(f"suffix may not be given: {why}", param="suffix")
            ends = (*sampling.stop_token_ids, *served.infill_ends)
            sampling = msgspec.structs.replace(sampling, stop_token_ids=ends)
        if served.sampling:
            left = {name: value for name, value in served.sampling if name in generation.unnamed}
            sampling = msgspec.structs.replace(sampling, **left)
        if served.thoughts is not None and (generation.splits or generation.thought_budget is not None):
            thought = served.thoughts.to_proto(generation.thought_budget)
            sampling = msgspec.structs.replace(sampling, thought=thought)
        if generation.biases:
            sampling = with_biases(sampling, await self._biases(generation, served))
        if not words and structure is None:
            return sampling
        texts = [word for word in words if isinstance(word, str)]
        encoded = await self._persist(lambda: self._encoder.encode_words(served, texts)) if texts else []
        return msgspec.structs.replace(
            sampling,
            bad_words=(*sampling.bad_words, *encoded, *(word for word in words if not isinstance(word, str))),
            grammar=None if structure is None else structure.grammar,
        )

    async def _biases(self, generation: Generation, served: ServedModel) -> list[tuple[Sequence[int], float | None]]:
        """The biases that the client lists, of texts as the biases of their tokens."""
        texts = [Text(what, False, False, "logit_bias") for what, _ in generation.biases if isinstance(what, str)]
        encoded = iter(await self._persist(lambda: self._encoder.encode_all(served, texts)) if texts else [])
        return [(next(encoded) if isinstance(what, str) else [what], bias) for what, bias in generation.biases]

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await persist(attempt, self._settings.place_s, TRANSIENT)


def _longest(served: ServedModel, generation: Generation, prompts: Sequence[list[int]], caller: Caller) -> list[int]:
    """The most tokens of an answer to each prompt, as `longest_answer`; an error names its prompt among several."""
    lengths: list[int] = []
    for place, prompt in enumerate(prompts):
        try:
            lengths.append(longest_answer(served, generation, len(prompt), caller))
        except InvalidRequest as error:
            raise error if len(prompts) == 1 else error.at_index(place) from None
    return lengths


def longest_answer(served: ServedModel, generation: Generation, prompt: int, caller: Caller) -> int:
    """The most tokens of an answer to a prompt of ``prompt`` tokens: as many as asked for and as the context has left.

    Raises `ContextExceeded` for a prompt that fills the context of the model or of the caller, unless there is to be no
    answer, and `InvalidRequest` for an empty prompt or for an answer longer than the caller may have.
    """
    room = _room(served, generation, prompt, caller)
    requested, limit = generation.sampling.max_tokens, caller.lowest("max_output_tokens")
    if limit is None:
        return room if requested is None else min(room, requested)
    if requested is not None and requested > limit[0]:
        raise InvalidRequest(
            f"max_tokens: {requested} is more than {limit[1]} may have generated, {limit[0]} tokens an answer",
            param="max_tokens",
        )
    return min(room, limit[0] if requested is None else requested)


def _room(served: ServedModel, generation: Generation, prompt: int, caller: Caller) -> int:
    """Tokens that the context has left for an answer."""
    param = "messages" if isinstance(generation.prompt, Messages) else "prompt"
    if prompt == 0:
        raise InvalidRequest(f"{param} must hold at least one token", param=param)
    context, whose = _context(served, caller)
    if prompt > context or (prompt == context and generation.sampling.max_tokens != 0):
        raise ContextExceeded(
            f"{param}: {prompt} tokens leave no room for an answer; {whose} maximum context length is {context} tokens",
            param=param,
        )
    return context - prompt


def _context(served: ServedModel, caller: Caller) -> tuple[int, str]:
    """Most tokens of prompt and answer, and whose bound that is."""
    limit = caller.lowest("max_context_tokens")
    if limit is not None and limit[0] < served.context_length:
        return limit[0], f"{limit[1]}'s"
    return served.context_length, "this model's"


def _last(served: ServedModel, generation: Generation, prompt: list[int], caller: Caller) -> list[int]:
    """The part of ``prompt`` that counts, by ``keep_last``."""
    keep = generation.keep_last
    if keep is None:
        return prompt
    if keep < 0:
        answer = generation.sampling.max_tokens
        keep = max(_context(served, caller)[0] - (1 if answer is None else answer), 1)
    return prompt[max(len(prompt) - keep, 0) :]


def _structure(generation: Generation, served: ServedModel) -> Structure | None:
    """The structure of the answer; tool calls get a grammar of the model's own format."""
    rules, structure = generation.call_rules, generation.structure
    return structure if rules is None else call_structure(rules, served.calls, structure)


def effective_priority(generation: Generation, caller: Caller) -> int:
    """The request's priority plus the caller's; a caller with limits can only lower the priority of a request."""
    priority = min(generation.priority, 0) if caller.limits else generation.priority
    return max(caller.priority + priority, LEAST_PRIORITY)


def _with_client_param(error: OutriderError, generation: Generation) -> OutriderError:
    """``error``, with the client's own name of the parameter if a verifier refused its grammar."""
    source = generation.call_rules or generation.structure
    if source is None or not isinstance(error, InvalidRequest) or error.param != "grammar":
        return error
    message = source.param + error.message.removeprefix("grammar")
    if generation.call_rules is not None:
        message = with_function_name(message, generation.call_rules)
    return InvalidRequest(message, param=source.param)
