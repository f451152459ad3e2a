"""Between the wire's messages and the verifier's own types, checking what comes in."""

from __future__ import annotations

import math
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from outrider.kernels.race_sample import Truncation
from outrider.mesh.errors import InvalidRequest
from outrider.models.sampling import Sampling
from outrider.v1 import sampling_pb2, verifier_pb2
from outrider.verifier.sequence import Request
from outrider.wire.ids import unpack_ids

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_STOPS = 16
_MOST_NODES = 63


@dataclass(frozen=True, slots=True)
class Served:
    """What requests are checked against.

    Attributes:
        vocabulary_size: ids lie below it.
        context_length: most tokens of prompt and answer together.
        eos_ids: the model's end-of-text ids.
        drafters: names of the drafters that a request may ask for.
    """

    vocabulary_size: int
    context_length: int
    eos_ids: frozenset[int]
    drafters: AbstractSet[str]


def sampling_to_proto(sampling: Sampling) -> sampling_pb2.SamplingParams:
    """The draws' parameters on the wire, for a drafter."""
    truncation = sampling.truncation
    return sampling_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_k=truncation.top_k,
        top_p=truncation.top_p,
        min_p=truncation.min_p,
        seed=sampling.seed,
    )


def request_from_proto(message: verifier_pb2.SubmitRequest, served: Served) -> Request:
    """The request in ``message``; `InvalidRequest` names the field that is wrong and what is allowed."""
    _check(_NAME.fullmatch(message.request_id), "request_id", "must be 1 to 64 letters, digits, '-' or '_'")
    _check(_NAME.fullmatch(message.tenant), "tenant", "must be 1 to 64 letters, digits, '-' or '_'")
    prompt, emitted = _ids(message.prompt, "prompt", served), _ids(message.emitted, "emitted", served)
    _check(prompt, "prompt", "must hold at least one token")
    held = len(prompt) + len(emitted)
    _check(
        held < served.context_length or emitted,
        "prompt",
        f"has {len(prompt)} tokens; the model's context of {served.context_length} must leave room for an answer",
    )
    params = message.sampling
    _check(params.max_tokens >= 1, "max_tokens", f"must be at least 1, not {params.max_tokens}")
    eos = frozenset() if params.ignore_eos else served.eos_ids
    return Request(
        id=message.request_id,
        tenant=message.tenant,
        prompt=prompt,
        emitted=emitted,
        sampling=_sampling(params),
        max_tokens=min(params.max_tokens, served.context_length - len(prompt)),
        stop=_stops(params),
        stop_ids=eos | frozenset(_stop_ids(params, served)),
        drafters=_drafters(message.speculation, served),
        max_nodes=_max_nodes(message.speculation),
    )


def _check(holds: object, param: str, why: str) -> None:
    if not holds:
        raise InvalidRequest(f"{param} {why}", param=param)


def _ids(data: bytes, param: str, served: Served) -> list[int]:
    _check(len(data) % 4 == 0, param, "must be whole little-endian int32 ids")
    ids = unpack_ids(data)
    _check(
        not ids or (min(ids) >= 0 and max(ids) < served.vocabulary_size),
        param,
        f"holds an id outside the vocabulary of {served.vocabulary_size}",
    )
    return ids


def _sampling(params: sampling_pb2.SamplingParams) -> Sampling:
    temperature, top_k = params.temperature, params.top_k
    top_p = params.top_p if params.HasField("top_p") else 1.0
    _check(0 <= temperature <= 100, "temperature", f"must be between 0 and 100, not {temperature:g}")
    _check(top_k >= 0, "top_k", f"must be 0 (all) or more, not {top_k}")
    _check(0 < top_p <= 1, "top_p", f"must be above 0 and at most 1, not {top_p:g}")
    _check(0 <= params.min_p <= 1, "min_p", f"must be between 0 and 1, not {params.min_p:g}")
    cold = math.isclose(temperature, 0.0, abs_tol=1e-5)
    return Sampling(0.0 if cold else temperature, Truncation(top_k, top_p, params.min_p), params.seed)


def _stops(params: sampling_pb2.SamplingParams) -> list[str]:
    stops = list(params.stop)
    _check(len(stops) <= _MOST_STOPS, "stop", f"may hold at most {_MOST_STOPS} strings, not {len(stops)}")
    _check(all(stops), "stop", "may not hold an empty string")
    return stops


def _stop_ids(params: sampling_pb2.SamplingParams, served: Served) -> list[int]:
    ids = list(params.stop_token_ids)
    inside = all(0 <= token < served.vocabulary_size for token in ids)
    _check(inside, "stop_token_ids", f"holds an id outside the vocabulary of {served.vocabulary_size}")
    return ids


def _drafters(speculation: sampling_pb2.Speculation, served: Served) -> frozenset[str] | None:
    if speculation.off:
        return frozenset()
    unknown = sorted(set(speculation.drafters) - set(served.drafters))
    there = ", ".join(sorted(served.drafters)) or "none"
    _check(not unknown, "speculation.drafters", f"names {', '.join(unknown)}; there are: {there}")
    return frozenset(speculation.drafters) or None


def _max_nodes(speculation: sampling_pb2.Speculation) -> int:
    nodes = speculation.max_nodes
    _check(0 <= nodes <= _MOST_NODES, "speculation.max_nodes", f"must be between 0 and {_MOST_NODES}, not {nodes}")
    return nodes
