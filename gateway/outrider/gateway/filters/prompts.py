"""Filters prompts before they are encoded."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from outrider.gateway.errors import PromptRefused
from outrider.gateway.filters.chain import Chain
from outrider.gateway.request.generation import File, Messages, Prompt, Tokens
from outrider.mesh.errors import InvalidRequest

_ARGUMENTS = "arguments"
"""The member of a call whose text is JSON: templates render what it says, however it is escaped."""

_Read = Callable[[str], Awaitable[str]]


async def filter_prompt(chain: Chain, prompt: Prompt) -> Prompt:
    """``prompt`` as the filters let it pass, each text of a chat and of its template's variables by itself.

    Raises `PromptRefused` if a filter ends a text, `InvalidRequest` for token ids, and as `Chain.feed`.
    """

    async def read(text: str) -> str:
        return await _filter_text(chain, text)

    if isinstance(prompt, Tokens):
        raise InvalidRequest("prompt must be text: prompts of this caller are filtered", param="prompt")
    if isinstance(prompt, Messages):
        messages = await _filter_texts(read, msgspec.json.decode(prompt.json), keys=False)
        variables = prompt.variables and await _filter_json(read, prompt.variables)
        template = prompt.template and await read(prompt.template)
        json_text = msgspec.json.encode(messages).decode()
        return msgspec.structs.replace(prompt, json=json_text, variables=variables, template=template)
    files = tuple([File(await read(file.text), await read(file.filename)) for file in prompt.files])
    suffix = prompt.suffix and await read(prompt.suffix)
    return msgspec.structs.replace(prompt, text=await read(prompt.text), suffix=suffix, files=files)


async def _filter_texts(read: _Read, value: Any, *, keys: bool) -> Any:
    """``value``, decoded JSON, with all its texts filtered, with ``keys`` also the names of members."""
    if isinstance(value, str):
        return await read(value) if value else value
    if isinstance(value, list):
        return [await _filter_texts(read, each, keys=keys) for each in value]
    if isinstance(value, dict):
        return {
            await read(key) if keys and key else key: await _filter_member(read, key, each, keys=keys)
            for key, each in value.items()
        }
    return value


async def _filter_member(read: _Read, key: str, value: Any, *, keys: bool) -> Any:
    if key == _ARGUMENTS and isinstance(value, str):
        value = await _filter_json(read, value)
    return await _filter_texts(read, value, keys=keys)


async def _filter_json(read: _Read, text: str) -> str:
    """``text`` with what it says as JSON filtered; unchanged if nothing of that is, or if it is no JSON."""
    try:
        value = json.loads(text)
        filtered = await _filter_texts(read, value, keys=True)
    except ValueError:
        return text
    except RecursionError:
        raise InvalidRequest("arguments of calls are nested too deeply to be filtered", param="messages") from None
    return text if filtered == value else json.dumps(filtered, ensure_ascii=False)


async def _filter_text(chain: Chain, text: str) -> str:
    shown = ""
    for piece in (text, None):
        passed = await (chain.end() if piece is None else chain.feed(piece))
        if passed.ended:
            raise PromptRefused("the prompt is refused by a filter")
        shown += passed.text
    return shown
