"""Filters prompts before they are encoded."""

from __future__ import annotations

from typing import Any

import msgspec
from outrider.gateway.errors import PromptRefused
from outrider.gateway.filters.chain import Chain
from outrider.gateway.requests.request import Messages, Prompt, Tokens
from outrider.mesh.errors import InvalidRequest

_NAMES = frozenset({"role", "type", "id", "tool_call_id"})
"""Members of messages that are no text."""


async def filter_prompt(chain: Chain, prompt: Prompt) -> Prompt:
    """``prompt`` as the filters let it pass, each text of a chat by itself.

    Raises `PromptRefused` if a filter ends a text, `InvalidRequest` for token ids, and as `Chain.feed`.
    """
    if isinstance(prompt, Tokens):
        raise InvalidRequest("prompt must be text: prompts of this caller are filtered", param="prompt")
    if isinstance(prompt, Messages):
        messages = await _filter_texts(chain, msgspec.json.decode(prompt.json))
        return msgspec.structs.replace(prompt, json=msgspec.json.encode(messages).decode())
    return msgspec.structs.replace(prompt, text=await _filter_text(chain, prompt.text))


async def _filter_texts(chain: Chain, value: Any) -> Any:
    """``value``, decoded JSON, with all its texts filtered."""
    if isinstance(value, str):
        return await _filter_text(chain, value)
    if isinstance(value, list):
        return [await _filter_texts(chain, each) for each in value]
    if isinstance(value, dict):
        return {key: each if key in _NAMES else await _filter_texts(chain, each) for key, each in value.items()}
    return value


async def _filter_text(chain: Chain, text: str) -> str:
    shown = ""
    for piece in (text, None):
        passed = await (chain.end() if piece is None else chain.feed(piece))
        if passed.ended:
            raise PromptRefused("the prompt is refused by a filter")
        shown += passed.text
    return shown
