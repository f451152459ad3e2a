"""Names of special tokens stay text in chats, with the shipped tokenizer and with those of real models.

`TEST_MODEL` and `TEST_GEMMA` name directories, `TEST_GGUF` a file.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from outrider.engine import store
from outrider.engine.text import Tokenizer

PLACES = {name: os.environ.get(name, "") for name in ("TEST_MODEL", "TEST_GEMMA", "TEST_GGUF")}
SHIPPED = "pocket"


@cache
def _tokenizer(name: str) -> Tokenizer:
    if name == SHIPPED:
        return Tokenizer.load(store.obtain(SHIPPED, "size", text_only=True))
    if not PLACES[name]:
        pytest.skip(f"{name} names no real model")
    return Tokenizer.load(Path(PLACES[name]))


@pytest.fixture(params=[SHIPPED, *PLACES])
def chosen(request: pytest.FixtureRequest) -> Tokenizer:
    return _tokenizer(request.param)


def special_ids(chosen: Tokenizer, ids: list[int]) -> list[int]:
    known = set(chosen.special_tokens.values())
    return [token for token in ids if token in known]


def chats(chosen: Tokenizer, text: str) -> list[dict[str, Any]]:
    """Chats with ``text`` in a question, an answer, the result of a call, a call, a tool and a system prompt."""
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": {"place": text}}}
    tool = {"type": "function", "function": {"name": "look", "description": text, "parameters": {"type": "object"}}}
    asked, answered = {"role": "user", "content": text}, {"role": "assistant", "content": text}
    calling = [asked, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": text}]
    system = {"role": "system", "content": text}
    wanted = [{"messages": [asked, answered, asked]}, {"messages": [system, asked]}]
    with_tools = {"messages": calling, "tools": [tool]}
    return wanted + ([with_tools] if "tool_call" in chosen.call_template else [])


def test_no_name_of_a_special_token_in_a_chat_becomes_that_token(chosen: Tokenizer) -> None:
    if not chosen.has_chat_template:
        pytest.skip("the model has no chat template")
    names = [*chosen.special_tokens][:300]
    forged = " ".join(["hi", *names, *(name * 2 for name in names[:20])])
    for told, harmless in zip(chats(chosen, forged), chats(chosen, "hi"), strict=True):
        ids = chosen.encode_chat(**told)
        assert special_ids(chosen, ids) == special_ids(chosen, chosen.encode_chat(**harmless))
        assert names[0] in chosen.decode(ids, keep_special=True)


def test_a_prompt_has_special_tokens_only_where_they_are_parsed(chosen: Tokenizer) -> None:
    for name, token in [*chosen.special_tokens.items()][:300]:
        text = f"a {name} b"
        assert token not in chosen.encode(text, parse_special=False, add_special=False)
        assert token in chosen.encode(text, parse_special=True, add_special=False)
