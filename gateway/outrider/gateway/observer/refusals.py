"""Why requests are refused, in few words for a label."""

from __future__ import annotations

from outrider.gateway import metrics
from outrider.gateway.errors import PromptRefused, UnknownModel
from outrider.mesh.errors import (
    AlreadyExists,
    DeadlineExceeded,
    DeadlineUnmeetable,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    OutriderError,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

_LIMITS = frozenset({"rate_limit_exceeded", "too_many_failures"})
"""Reasons of errors by which limits refuse a request; other full things are queues."""
_CAUSES: tuple[tuple[type[OutriderError], str], ...] = (
    (DeadlineUnmeetable, "deadline"),
    (DeadlineExceeded, "deadline"),
    (Overloaded, "queue_full"),
    (Unauthenticated, "authentication"),
    (PermissionDenied, "permission"),
    (UnknownModel, "unknown_model"),
    (NotFound, "not_found"),
    (PromptRefused, "filter"),
    (InvalidRequest, "invalid"),
    (AlreadyExists, "invalid"),
    (FailedPrecondition, "invalid"),
    (Unavailable, "no_verifier"),
)


def count_refusal(error: OutriderError) -> None:
    """Counts a refused request by its cause; does nothing for a failure, or a cancellation."""
    if (cause := cause_of(error)) is not None:
        metrics.refused.labels(cause).inc()


def cause_of(error: OutriderError) -> str | None:
    """The cause of a refusal; None for an error that is no refusal."""
    if getattr(error, "reason", None) in _LIMITS:
        return "limit"
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), None)
