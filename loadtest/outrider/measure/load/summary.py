"""Figures of one pass of a load test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec
from outrider.measure.load.arrivals import Sample
from outrider.measure.load.client import Reply


class Summary(msgspec.Struct, frozen=True):
    """One pass. Latencies are in milliseconds; tokens are completion tokens as the gateway counts them.

    ``itl`` is a request's mean time per token after its first chunk; ``pause`` is the time between two chunks, each of
    which holds the tokens of at least one step. ``tokens_a_step`` is the acceptance length.
    """

    requests: int
    failed: int
    wall_s: float
    tokens_per_s: float
    request_tokens_per_s: float
    ttft_ms: float
    ttft_p99_ms: float
    itl_ms: float
    itl_p99_ms: float
    pause_p99_ms: float
    tokens_a_step: float
    accepted_share: float
    prompt_tokens: float
    cached_tokens: float


def percentile(values: Iterable[float], share: float) -> float:
    """Smallest value that at least ``share`` of ``values`` do not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def summarize(samples: Sequence[Sample]) -> Summary:
    """Summary of one pass from its samples."""
    done = [(sample.due, sample.reply) for sample in samples if sample.reply]
    replies = [reply for _, reply in done]
    tokens = sum(reply.completion_tokens for reply in replies)
    wall = max((r.arrivals[-1] for r in replies), default=math.nan) - min(sample.due for sample in samples)
    first = [1e3 * (reply.arrivals[0] - due) for due, reply in done]
    itl = [1e3 * _inter_token_s(reply) for reply in replies if reply.completion_tokens > 1]
    accepted = sum(reply.accepted_tokens for reply in replies)
    return Summary(
        requests=len(samples),
        failed=len(samples) - len(replies),
        wall_s=wall,
        tokens_per_s=tokens / wall,
        request_tokens_per_s=percentile((r.completion_tokens / (r.arrivals[-1] - due) for due, r in done), 0.5),
        ttft_ms=percentile(first, 0.5),
        ttft_p99_ms=percentile(first, 0.99),
        itl_ms=percentile(itl, 0.5),
        itl_p99_ms=percentile(itl, 0.99),
        pause_p99_ms=percentile((1e3 * pause for reply in replies for pause in _pauses(reply)), 0.99),
        tokens_a_step=_ratio(tokens, sum(reply.steps for reply in replies)),
        accepted_share=_ratio(accepted, accepted + sum(reply.rejected_tokens for reply in replies)),
        prompt_tokens=percentile((reply.prompt_tokens for reply in replies), 0.5),
        cached_tokens=sum(reply.cached_tokens for reply in replies),
    )


def median(summaries: Sequence[Summary]) -> Summary:
    """The median of each figure over repeats of one pass; failures are added up."""
    figures = {
        name: statistics.median(getattr(summary, name) for summary in summaries) for name in Summary.__struct_fields__
    }
    figures["failed"] = sum(summary.failed for summary in summaries)
    return Summary(**figures)


def _inter_token_s(reply: Reply) -> float:
    return (reply.arrivals[-1] - reply.arrivals[0]) / (reply.completion_tokens - 1)


def _pauses(reply: Reply) -> list[float]:
    return [after - before for before, after in zip(reply.arrivals, reply.arrivals[1:], strict=False)]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
