"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

import msgspec
from outrider.wire.frames import Frame, Likelihood


class TopLogprob(msgspec.Struct):
    """One of the likeliest tokens, in chats."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct):
    """One token, in chats."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """``logprobs`` of a chat's choice."""

    content: list[TokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    """``logprobs`` of a completion's choice: one entry a token in each list."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


def chat_logprobs(frame: Frame) -> ChatLogprobs | None:
    """Log-probabilities of ``frame`` in the shape of chats; ``bytes`` identifies tokens that are not text alone."""
    if frame.likelihoods is None:
        return None
    return ChatLogprobs(
        [
            TokenLogprob(
                _text(entry.data),
                entry.logprob or 0.0,
                list(entry.data),
                [TopLogprob(_text(other.data), other.logprob, list(other.data)) for other in entry.top],
            )
            for entry in frame.likelihoods
        ]
    )


def text_logprobs(frame: Frame, offset: int) -> TextLogprobs | None:
    """Log-probabilities of ``frame`` in the shape of completions; ``offset`` is the number of characters before it."""
    if frame.likelihoods is None:
        return None
    logprobs = TextLogprobs([], [], [], [])
    for text, entry in zip(frame.texts, frame.likelihoods, strict=True):
        logprobs.text_offset.append(offset)
        logprobs.token_logprobs.append(entry.logprob)
        logprobs.tokens.append(token_name(entry.data))
        logprobs.top_logprobs.append(_top(entry))
        offset += len(text)
    return logprobs


def _top(entry: Likelihood) -> dict[str, float] | None:
    """The likeliest tokens by name, and the token itself; of tokens with one name, the likeliest."""
    if entry.logprob is None:
        return None
    by_name: dict[str, float] = {}
    for other in entry.top:
        by_name.setdefault(token_name(other.data), other.logprob)
    by_name.setdefault(token_name(entry.data), entry.logprob)
    return by_name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def token_name(data: bytes) -> str:
    """The text of a token with these bytes, or ``bytes:\\x..`` if they are a part of a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
