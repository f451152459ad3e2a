"""Converts between the wire's messages and the engine's own types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, cast

import msgspec
from outrider.engine.errors import RequestError
from outrider.engine.requests.model_limits import ModelLimits
from outrider.engine.requests.output import Draft, Likelihood, Output, Usage
from outrider.engine.requests.parameters import (
    GrammarKind,
    GrammarText,
    Mark,
    SamplingParams,
    Speculation,
    Thought,
)
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import sampling_pb2, verifier_pb2
from outrider.wire import frames
from outrider.wire import sampling as wire
from outrider.wire.bounds import OutOfBounds, Priority, Weight, checked

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check(holds: object, param: str, why: str) -> None:
    """Raises `InvalidRequest` about ``param`` unless the condition ``holds``."""
    if not holds:
        raise InvalidRequest(f"{param} {why}", param=param)


@contextmanager
def invalid_requests() -> Iterator[None]:
    """Turns refusals of the engine and of the wire's bounds into `InvalidRequest`."""
    try:
        yield
    except RequestError as error:
        raise InvalidRequest(error.message, param=error.param) from None
    except OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None


def sampling_to_proto(sampling: Sampling) -> sampling_pb2.SamplingParams:
    """The parameters of draws as a message for a proposer."""
    cut = sampling.truncation
    return wire.SamplingParams(
        temperature=sampling.temperature, top_k=cut.top_k, top_p=cut.top_p, min_p=cut.min_p, seed=sampling.seed
    ).to_proto()


def request_from_proto(message: verifier_pb2.SubmitRequest, limits: ModelLimits, now: float) -> Request:
    """The request in ``message``, its grammar not compiled; ``now`` is its arrival in seconds on the scheduler's clock.

    `InvalidRequest` names the wrong field and what the field may hold.
    """
    with invalid_requests():
        check(_NAME.fullmatch(message.request_id), "request_id", "must be 1 to 64 letters, digits, '-' or '_'")
        check(_NAME.fullmatch(message.tenant), "tenant", "must be 1 to 64 letters, digits, '-' or '_'")
        return limits.request(
            message.request_id,
            message.tenant,
            wire.ids_of(message.prompt, "prompt"),
            _parameters(message.sampling),
            Speculation(**msgspec.structs.asdict(wire.Speculation.from_proto(message.speculation))),
            wire.ids_of(message.emitted, "emitted"),
            wire.ids_of(message.prediction, "prediction"),
            embeds=message.embed,
            priority=checked("priority", message.priority, Priority),
            weight=checked("weight", message.weight, Weight) if message.HasField("weight") else 1.0,
            first_by=now + _within(message.ttft_ms, "ttft_ms"),
            end_by=now + _within(message.timeout_ms, "timeout_ms"),
            filtered=message.filtered,
            residency=frozenset(message.residency) or None,
            cache_salt=message.cache_salt,
        )


def lease_seconds(message: verifier_pb2.SubmitRequest) -> float:
    """Seconds that the request lives without a renewal; 0 for no limit."""
    check(message.lease_ms >= 0, "lease_ms", f"must be at least 0, not {message.lease_ms}")
    return message.lease_ms / 1e3


def frame(output: Output, verifier: str) -> frames.Frame:
    """The frame that tells an output to readers; the last one names the ``verifier``."""
    if output.finish is None and output.likelihoods is None and output.drafts is None:
        return frames.Frame(
            output.request, output.first_index, output.tokens, output.texts, output.guessed_by, thought=output.thought
        )
    return frames.Frame(
        output.request,
        output.first_index,
        output.tokens,
        output.texts,
        output.guessed_by,
        None if output.finish is None else frames.Finish(output.finish),
        None if output.usage is None else frames.Usage(**_fields(output.usage)),
        output.error,
        None if output.likelihoods is None else [_likelihood(each) for each in output.likelihoods],
        None if output.finish is None else verifier,
        None if output.drafts is None else [frames.Draft(**_fields(draft)) for draft in output.drafts],
        output.thought,
        output.stop,
        output.embedding,
    )


def _likelihood(likelihood: Likelihood) -> frames.Likelihood:
    top = [frames.Alternative(*each) for each in likelihood.top]
    return frames.Likelihood(likelihood.logprob, likelihood.data, top, likelihood.rank)


def _fields(value: Usage | Draft) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _parameters(message: sampling_pb2.SamplingParams) -> SamplingParams:
    values = msgspec.structs.asdict(wire.SamplingParams.from_proto(message))
    values["grammar"] = grammar_from_proto(message.grammar) if message.HasField("grammar") else None
    values["thought"] = _thought(message.thought) if message.HasField("thought") else None
    return SamplingParams(**values)


def _thought(message: sampling_pb2.Thought) -> Thought:
    plain = _mark(message.plain) if message.HasField("plain") else None
    budget = message.budget if message.HasField("budget") else None
    return Thought(_mark(message.start), _mark(message.end), plain, budget)


def _mark(message: sampling_pb2.Mark) -> Mark:
    return Mark(tuple(wire.ids_of(message.ids, "thought")), message.text)


def grammar_from_proto(message: sampling_pb2.Grammar) -> GrammarText:
    """The grammar's definition in ``message``; `InvalidRequest` if there is none."""
    kind = message.WhichOneof("kind")
    check(
        kind is not None and (kind != "choice" or message.choice.texts),
        "grammar",
        "must be a JSON Schema, a regular expression, a context-free grammar or at least one text",
    )
    text = json.dumps(list(message.choice.texts)) if kind == "choice" else getattr(message, str(kind))
    return GrammarText(cast(GrammarKind, kind), text)


def _within(milliseconds: int, param: str) -> float:
    """Seconds of a deadline; infinity for no deadline."""
    check(milliseconds >= 0, param, f"must be at least 0, not {milliseconds}")
    return milliseconds / 1e3 if milliseconds else math.inf
