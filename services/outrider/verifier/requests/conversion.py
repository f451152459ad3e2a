"""Converts between the wire's messages and the verifier's own types, and checks requests."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

from outrider.models.sampling import Sampling
from outrider.v1 import sampling_pb2, verifier_pb2
from outrider.verifier.requests.parameters import Parameters, check, known
from outrider.verifier.requests.sequence import Request
from outrider.wire.ids import unpack_ids

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_NODES = 63
_MOST_PRIORITY, _MOST_WEIGHT = 1000, 1000


@dataclass(frozen=True, slots=True)
class Served:
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


def request_from_proto(message: verifier_pb2.SubmitRequest, served: Served, now: float) -> Request:
    """The request in ``message``, without its grammar; ``now`` is its arrival on the scheduler's clock, in seconds.

    `InvalidRequest` names the wrong field and what the field may hold.
    """
    check(_NAME.fullmatch(message.request_id), "request_id", "must be 1 to 64 letters, digits, '-' or '_'")
    check(_NAME.fullmatch(message.tenant), "tenant", "must be 1 to 64 letters, digits, '-' or '_'")
    prompt, emitted = _ids(message.prompt, "prompt", served), _ids(message.emitted, "emitted", served)
    check(prompt, "prompt", "must hold at least one token")
    total = len(prompt) + len(emitted)
    check(
        total < served.context_length or emitted,
        "prompt",
        f"has {len(prompt)} tokens; the model's context of {served.context_length} must leave room for an answer",
    )
    params = message.sampling
    max_tokens = min(params.max_tokens, served.context_length - len(prompt))
    parameters = Parameters(params, served.vocabulary_size)
    parameters.check_lengths(max_tokens)
    parameters.check_grammar()
    return Request(
        id=message.request_id,
        tenant=message.tenant,
        prompt=prompt,
        emitted=emitted,
        sampling=parameters.sampling(),
        max_tokens=max_tokens,
        stop=parameters.stops(),
        stop_ids=frozenset(parameters.stop_ids()) | (frozenset() if params.ignore_eos else served.eos_ids),
        drafters=_drafters(message.speculation, served),
        max_nodes=_max_nodes(message.speculation),
        edits=parameters.edits(),
        logprobs=parameters.logprobs(),
        echo=params.echo,
        priority=_priority(message),
        weight=_weight(message),
        first_by=now + _within(message.ttft_ms, "ttft_ms"),
        end_by=now + _within(message.timeout_ms, "timeout_ms"),
        return_drafts=message.speculation.return_drafts,
    )


def lease_seconds(message: verifier_pb2.SubmitRequest) -> float:
    """Seconds that the request lives without a renewal; 0 for no limit."""
    check(message.lease_ms >= 0, "lease_ms", f"must be at least 0, not {message.lease_ms}")
    return message.lease_ms / 1e3


def _within(milliseconds: int, param: str) -> float:
    """Seconds of a deadline; infinity for no deadline."""
    check(milliseconds >= 0, param, f"must be at least 0, not {milliseconds}")
    return milliseconds / 1e3 if milliseconds else inf


def _ids(data: bytes, param: str, served: Served) -> list[int]:
    check(len(data) % 4 == 0, param, "must be whole little-endian int32 ids")
    return known(unpack_ids(data), param, served.vocabulary_size)


def _drafters(speculation: sampling_pb2.Speculation, served: Served) -> frozenset[str] | None:
    if speculation.off:
        return frozenset()
    unknown = sorted(set(speculation.drafters) - set(served.drafters))
    drafters = ", ".join(sorted(served.drafters)) or "none"
    check(not unknown, "speculation.drafters", f"names {', '.join(unknown)}; there are: {drafters}")
    return frozenset(speculation.drafters) or None


def _priority(message: verifier_pb2.SubmitRequest) -> int:
    priority, most = message.priority, _MOST_PRIORITY
    check(-most <= priority <= most, "priority", f"must be between {-most} and {most}, not {priority}")
    return priority


def _weight(message: verifier_pb2.SubmitRequest) -> float:
    weight = message.weight if message.HasField("weight") else 1.0
    check(0 < weight <= _MOST_WEIGHT, "weight", f"must be above 0 and at most {_MOST_WEIGHT}, not {weight:g}")
    return weight


def _max_nodes(speculation: sampling_pb2.Speculation) -> int:
    nodes = speculation.max_nodes
    check(0 <= nodes <= _MOST_NODES, "speculation.max_nodes", f"must be between 0 and {_MOST_NODES}, not {nodes}")
    return nodes
