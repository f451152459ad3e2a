"""Prompts and chats of users as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from outrider.engine.errors import RequestError
from outrider.engine.text import TextError, Tokenizer

Prompt = str | Sequence[int]
Message = Mapping[str, Any]
_PROMPTS = "must be a text, token ids, or a list of such prompts"
_MESSAGES = "must be a list of messages like {'role': 'user', 'content': '...'}, or a list of such lists"


def listed_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """The prompts, of which one may stand for itself."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping | bytes):
        raise RequestError(f"prompts {_PROMPTS}", param="prompts")
    each: list[Any] = list(prompts)
    return [each] if each and all(hasattr(token, "__index__") for token in each) else each


def listed_chats(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[Sequence[Message]]:
    """The chats, of which one may stand for itself."""
    chats: list[Any] = list(messages) if isinstance(messages, list | tuple) else []
    if chats and all(isinstance(each, Mapping) for each in chats):
        return [chats]
    if not chats or not all(isinstance(each, list | tuple) and each for each in chats):
        raise RequestError(f"messages {_MESSAGES}", param="messages")
    return chats


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """Ids of a prompt. Names of special tokens in a text become those tokens, and the model's own stand around it."""
    try:
        return tokenizer.encode(prompt, parse_special=True) if isinstance(prompt, str) else list(map(index, prompt))
    except (TypeError, UnicodeEncodeError):
        raise RequestError(f"prompts {_PROMPTS}", param="prompts") from None


def predicted_ids(tokenizer: Tokenizer, prediction: str | Sequence[int] | None) -> list[int]:
    """Ids of a prediction, none without one. Names of special tokens in a text are text."""
    if not isinstance(prediction, str):
        return list(prediction or ())
    try:
        return tokenizer.encode(prediction, add_special=False)
    except (TypeError, UnicodeEncodeError):
        raise RequestError("prediction must be a text or a list of token ids", param="prediction") from None


def chat_ids(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    variables: Mapping[str, Any] | None,
) -> list[int]:
    """Ids of a chat, up to where the assistant's answer begins."""
    try:
        return tokenizer.encode_chat(messages, tools, True, variables)
    except TextError as error:
        raise RequestError(str(error), param="messages") from None
    except TypeError as error:
        raise RequestError(f"messages are no JSON: {error}", param="messages") from None


def word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[tuple[int, ...]]:
    """Token ids of each word, at a text's beginning and after a space, without repeats."""
    forms = list(dict.fromkeys(form for word in words for form in (word, " " + word.lstrip())))
    encoded = tokenizer.encode_batch(forms, add_special=False)
    return [ids for ids in dict.fromkeys(map(tuple, encoded)) if ids]
