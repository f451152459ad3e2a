"""Messages of gateways as the types of this package, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from outrider_client.errors import ErrorBody, GatewayError, error_of_status
from outrider_client.types import (
    Answer,
    Choice,
    CompletionDetails,
    Delta,
    Detail,
    Message,
    PromptDetails,
    Usage,
    draft,
    logprob_entry,
)

_LOST = ("UNAVAILABLE", "UNKNOWN", "INTERNAL", "CANCELLED", "DEADLINE_EXCEEDED")


def whole(response: Any, *, chat: bool) -> Answer:
    """The answer that a message tells."""
    return answer(response.choices, chat=chat, whole=True, usage=response.usage)


def answer(choices: Sequence[Any], *, chat: bool, whole: bool, usage: Any = None) -> Answer:
    """Messages of choices as an answer, or as a part of one."""
    first = choices[0]
    detail = [_detail(choice) for choice in choices]
    return Answer(
        id=first.request_id,
        created=first.detail.created,
        model=first.detail.model,
        choices=[_choice(choice, chat, whole) for choice in choices],
        system_fingerprint=first.detail.fingerprint,
        usage=_usage(usage) if usage is not None else _usage(first.usage) if first.finish else None,
        outrider=detail[0] if len(detail) == 1 else Detail(choices=detail),
    )


def _choice(told: Any, chat: bool, whole: bool) -> Choice:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in told.tool_calls
    ]
    return Choice(
        index=told.choice,
        finish_reason=told.finish or None,
        text=None if chat else told.text,
        message=Message(content=told.text, tool_calls=calls) if chat and whole else None,
        delta=Delta(content=told.text, tool_calls=calls) if chat and not whole else None,
        logprobs={"content": [_logprob(entry) for entry in told.logprobs]} if told.logprobs else None,
    )


def _logprob(entry: Any) -> dict[str, Any]:
    return logprob_entry(entry, entry.logprob if entry.HasField("logprob") else None)


def _detail(told: Any) -> Detail:
    ended = bool(told.finish)
    return Detail(
        first_index=told.first_index,
        tokens=list(told.tokens),
        texts=list(told.texts),
        guessed_by=list(told.guessed_by),
        drafts=[draft(tree) for tree in told.drafts],
        steps=told.detail.steps if ended else None,
        seed=told.detail.seed if ended else None,
        verifier=told.detail.verifier if ended else None,
        lossy=told.detail.lossy,
    )


def _usage(told: Any) -> Usage:
    return Usage(
        told.prompt_tokens,
        told.completion_tokens,
        told.prompt_tokens + told.completion_tokens,
        PromptDetails(told.cached_tokens),
        CompletionDetails(told.accepted_tokens, told.rejected_tokens),
    )


def id_of(metadata: Any) -> str:
    """The request's id in a call's initial metadata, or an empty string."""
    return str(dict(metadata or ()).get("x-request-id", ""))


def failure(error: Any) -> GatewayError | None:
    """What the gateway said that ended a call with ``error``; None where it was not reached, or the call broke off."""
    code = error.code().name
    trailing: Mapping[str, str] = {str(key): str(value) for key, value in error.trailing_metadata() or ()}
    if "outrider-error" not in trailing and code in _LOST:
        return None
    param, retry = trailing.get("outrider-param"), trailing.get("retry-after-ms", "")
    told = ErrorBody(
        message=error.details() or "",
        param=None if param is None else unquote(param),
        code=trailing.get("outrider-code"),
    )
    after = int(retry) / 1000 if retry.isdecimal() else None
    return error_of_status(code, told, id_of(error.initial_metadata()) or None, after)
