"""Converts between the wire's messages and the verifier's own types, and checks requests."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from outrider.kernels.race_sample import Truncation
from outrider.mesh.errors import InvalidRequest
from outrider.models.sampling import Sampling
from outrider.v1 import sampling_pb2, verifier_pb2
from outrider.verifier.requests.sequence import Request
from outrider.wire.bounds import OutOfBounds, Priority, Weight, checked
from outrider.wire.sampling import UNSIGNED, SamplingParameters, Speculation, ids_of

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The limits that requests are checked against.

    Attributes:
        vocabulary_size: number of ids; every id is below it.
        context_length: most tokens of prompt and answer together.
        eos_ids: the model's end-of-text ids.
        drafters: names of the drafters that a request may name.
    """

    vocabulary_size: int
    context_length: int
    eos_ids: frozenset[int]
    drafters: AbstractSet[str]

    def require_known(self, ids: Collection[int], param: str) -> None:
        """Raises `InvalidRequest` for an id outside the vocabulary."""
        inside = not ids or (min(ids) >= 0 and max(ids) < self.vocabulary_size)
        check(inside, param, f"holds an id outside the vocabulary of {self.vocabulary_size}")


def check(holds: object, param: str, why: str) -> None:
    """Raises `InvalidRequest` about ``param`` unless the condition ``holds``."""
    if not holds:
        raise InvalidRequest(f"{param} {why}", param=param)


def sampling_to_proto(sampling: Sampling) -> sampling_pb2.SamplingParams:
    """The sampling parameters as a message for a drafter."""
    truncation = sampling.truncation
    return sampling_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_k=truncation.top_k,
        top_p=truncation.top_p,
        min_p=truncation.min_p,
        seed=sampling.seed,
    )


def request_from_proto(message: verifier_pb2.SubmitRequest, limits: ModelLimits, now: float) -> Request:
    """The request in ``message``, without its grammar; ``now`` is its arrival on the scheduler's clock, in seconds.

    `InvalidRequest` names the wrong field and what the field may hold.
    """
    try:
        return _request(message, limits, now)
    except OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None


def _request(message: verifier_pb2.SubmitRequest, limits: ModelLimits, now: float) -> Request:
    check(_NAME.fullmatch(message.request_id), "request_id", "must be 1 to 64 letters, digits, '-' or '_'")
    check(_NAME.fullmatch(message.tenant), "tenant", "must be 1 to 64 letters, digits, '-' or '_'")
    parameters = SamplingParameters.from_proto(message.sampling, temperature=0.0)
    prompt, emitted = _tokens(message, limits, 0 if parameters.max_tokens == 0 else 1)
    speculation = Speculation.from_proto(message.speculation)
    max_tokens = min(parameters.max_tokens or 0, limits.context_length - len(prompt))
    _check_ends(parameters, max_tokens)
    _check_ids(parameters, limits)
    _check_drafters(speculation, limits)
    return Request(
        id=message.request_id,
        tenant=message.tenant,
        prompt=prompt,
        sampling=_sampling(parameters),
        max_tokens=max_tokens,
        emitted=emitted,
        stop_ids=frozenset(parameters.stop_token_ids) | (frozenset() if parameters.ignore_eos else limits.eos_ids),
        parameters=parameters,
        speculation=speculation,
        priority=checked("priority", message.priority, Priority),
        weight=checked("weight", message.weight, Weight) if message.HasField("weight") else 1.0,
        first_by=now + _within(message.ttft_ms, "ttft_ms"),
        end_by=now + _within(message.timeout_ms, "timeout_ms"),
        filtered=message.filtered,
        residency=frozenset(message.residency) or None,
    )


def lease_seconds(message: verifier_pb2.SubmitRequest) -> float:
    """Seconds that the request lives without a renewal; 0 for no limit."""
    check(message.lease_ms >= 0, "lease_ms", f"must be at least 0, not {message.lease_ms}")
    return message.lease_ms / 1e3


def _tokens(message: verifier_pb2.SubmitRequest, limits: ModelLimits, least: int) -> tuple[list[int], list[int]]:
    """Prompt and emitted tokens, which leave room for an answer of ``least`` tokens."""
    prompt, emitted = ids_of(message.prompt, "prompt"), ids_of(message.emitted, "emitted")
    limits.require_known(prompt, "prompt")
    limits.require_known(emitted, "emitted")
    check(prompt, "prompt", "must hold at least one token")
    check(
        len(prompt) + len(emitted) + least <= limits.context_length or emitted,
        "prompt",
        f"has {len(prompt)} tokens; the model's context of {limits.context_length} must leave room for an answer",
    )
    return prompt, emitted


def _sampling(parameters: SamplingParameters) -> Sampling:
    cold = math.isclose(parameters.temperature, 0.0, abs_tol=1e-5)
    truncation = Truncation(parameters.top_k, 1.0 if parameters.top_p is None else parameters.top_p, parameters.min_p)
    return Sampling(0.0 if cold else parameters.temperature, truncation, parameters.seed & UNSIGNED)


def _check_ends(parameters: SamplingParameters, max_tokens: int) -> None:
    """Checks how short and how long the answer may be; ``max_tokens`` is what the context has room for."""
    check(parameters.max_tokens or parameters.echo, "max_tokens", "must be at least 1, not 0")
    check(
        parameters.min_tokens <= max_tokens,
        "min_tokens",
        f"must be at most the {max_tokens} tokens that the answer may have, not {parameters.min_tokens}",
    )
    if parameters.grammar is not None:
        why = "may not be given with a grammar: the grammar decides where the answer may end"
        check(not parameters.ignore_eos, "ignore_eos", why)
        check(not parameters.min_tokens, "min_tokens", why)


def _check_ids(parameters: SamplingParameters, limits: ModelLimits) -> None:
    limits.require_known(parameters.stop_token_ids, "stop_token_ids")
    limits.require_known(parameters.logit_bias, "logit_bias")
    for word in parameters.bad_words:
        limits.require_known(word, "bad_words")


def _check_drafters(speculation: Speculation, limits: ModelLimits) -> None:
    unknown = [] if speculation.off else sorted(set(speculation.drafters) - set(limits.drafters))
    there = ", ".join(sorted(limits.drafters)) or "none"
    check(not unknown, "speculation.drafters", f"names {', '.join(unknown)}; there are: {there}")


def _within(milliseconds: int, param: str) -> float:
    """Seconds of a deadline; infinity for no deadline."""
    check(milliseconds >= 0, param, f"must be at least 0, not {milliseconds}")
    return milliseconds / 1e3 if milliseconds else math.inf
