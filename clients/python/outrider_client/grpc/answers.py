"""Converts messages of gateways to the types and errors of this package."""

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
    """The answer in a message."""
    return answer(response.choices, chat=chat, whole=True, usage=response.usage)


def answer(choices: Sequence[Any], *, chat: bool, whole: bool, usage: Any = None) -> Answer:
    """An answer, or a part of one, from messages of choices."""
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


def _choice(message: Any, chat: bool, whole: bool) -> Choice:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    thought = message.reasoning or None
    return Choice(
        index=message.choice,
        finish_reason=message.finish or None,
        text=None if chat else message.text,
        message=Message(content=message.text, reasoning_content=thought, tool_calls=calls) if chat and whole else None,
        delta=Delta(content=message.text, reasoning_content=thought, tool_calls=calls) if chat and not whole else None,
        logprobs={"content": [_logprob(entry) for entry in message.logprobs]} if message.logprobs else None,
    )


def _logprob(entry: Any) -> dict[str, Any]:
    return logprob_entry(entry, entry.logprob if entry.HasField("logprob") else None)


def _detail(message: Any) -> Detail:
    ended = bool(message.finish)
    return Detail(
        first_index=message.first_index,
        tokens=list(message.tokens),
        texts=list(message.texts),
        guessed_by=list(message.guessed_by),
        drafts=[draft(tree) for tree in message.drafts],
        steps=message.detail.steps if ended else None,
        seed=message.detail.seed if ended else None,
        verifier=message.detail.verifier if ended else None,
        lossy=message.detail.lossy,
    )


def _usage(usage: Any) -> Usage:
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptDetails(usage.cached_tokens),
        CompletionDetails(usage.accepted_tokens, usage.rejected_tokens, usage.reasoning_tokens),
    )


def id_of(metadata: Any) -> str:
    """The request's id in a call's initial metadata; empty without one."""
    return str(dict(metadata or ()).get("x-request-id", ""))


def failure(error: Any) -> GatewayError | None:
    """The gateway's error that ended a call; None if the gateway was not reached or the call broke off."""
    code = error.code().name
    trailing: Mapping[str, str] = {str(key): str(value) for key, value in error.trailing_metadata() or ()}
    if "outrider-error" not in trailing and code in _LOST:
        return None
    param, retry = trailing.get("outrider-param"), trailing.get("retry-after-ms", "")
    body = ErrorBody(
        message=error.details() or "",
        param=None if param is None else unquote(param),
        code=trailing.get("outrider-code"),
    )
    after = int(retry) / 1000 if retry.isdecimal() else None
    return error_of_status(code, body, id_of(error.initial_metadata()) or None, after)
