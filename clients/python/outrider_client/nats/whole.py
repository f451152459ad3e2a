"""A stream's chunks as one answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outrider_client.nats.stream import AsyncStream
from outrider_client.types import Answer, Choice, Chunk, CompletionDetails, Detail, Message, Usage


async def whole(stream: AsyncStream, *, chat: bool) -> Answer:
    """Reads a stream to its end."""
    parts: dict[int, list[Chunk]] = {}
    async with stream:
        async for chunk in stream:
            parts.setdefault(chunk.choices[0].index, []).append(chunk)
    chunks = [parts[place] for place in sorted(parts)]
    details = [_detail([chunk.outrider or Detail() for chunk in each]) for each in chunks]
    last = chunks[0][-1]
    return msgspec.structs.replace(
        last,
        choices=[_choice(each, chat) for each in chunks],
        usage=_usage([each[-1].usage or Usage(0, 0, 0) for each in chunks]),
        outrider=details[0] if len(details) == 1 else Detail(choices=details),
    )


def _choice(chunks: Sequence[Chunk], chat: bool) -> Choice:
    text, last = "".join(chunk.text for chunk in chunks), chunks[-1].choices[0]
    told = [entry for chunk in chunks for entry in (chunk.choices[0].logprobs or {}).get("content", [])]
    return msgspec.structs.replace(
        last,
        text=None if chat else text,
        message=Message(content=text) if chat else None,
        logprobs={"content": told} if told else None,
    )


def _detail(parts: Sequence[Detail]) -> Detail:
    return msgspec.structs.replace(
        parts[-1],
        first_index=parts[0].first_index,
        tokens=[token for part in parts for token in part.tokens],
        texts=[text for part in parts for text in part.texts],
        guessed_by=[name for part in parts for name in part.guessed_by],
        drafts=[draft for part in parts for draft in part.drafts],
    )


def _usage(parts: Sequence[Usage]) -> Usage:
    """What all choices have cost: one prompt, and what each generated."""
    first, generated = parts[0], sum(part.completion_tokens for part in parts)
    details = [part.completion_tokens_details for part in parts]
    return Usage(
        first.prompt_tokens,
        generated,
        first.prompt_tokens + generated,
        first.prompt_tokens_details,
        CompletionDetails(
            sum(each.accepted_prediction_tokens for each in details),
            sum(each.rejected_prediction_tokens for each in details),
        ),
    )
