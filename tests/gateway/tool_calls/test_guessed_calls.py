"""Each format of calls through a mesh: guesses change no call and no token, whole and streamed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import tokenizers
from outrider.wire.calls import FORMATS
from tokenizers import AddedToken

from tests.engine.text.makers import byte_level, write
from tests.gateway.stack import CONTEXT, MODEL, Stack, stack
from tests.gateway.tool_calls.formats import template
from tests.processes import ALWAYS
from tests.toy_model import save_toy

pytestmark = pytest.mark.timeout(300)

SEEDS = range(6)
END = 0
FUNCTIONS: dict[str, Any] = {
    "paint": {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "light green"]},
            "coats": {"type": "integer", "minimum": 1, "maximum": 12},
            "note": {"type": "string", "maxLength": 12},
        },
        "required": ["colour", "coats", "note"],
        "additionalProperties": False,
    },
    "wait": {"type": "object", "properties": {}, "additionalProperties": False},
}
ENDS = ("<|return|>", "<|call|>")
"""Of harmony's: without these, ``<|end|>`` would end an answer."""
MARKS = sorted({mark for form in FORMATS.values() for mark in form.marks})
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "paint the wall"}],
    "tools": [{"type": "function", "function": {"name": name, "parameters": made}} for name, made in FUNCTIONS.items()],
    "tool_choice": "required",
    "max_tokens": 400,
    "return_tokens": True,
    "coalesce": False,
}


def _vocabulary() -> tokenizers.Tokenizer:
    """A vocabulary with the marks of all formats."""
    made = byte_level()
    made.add_special_tokens([AddedToken(mark, special=True) for mark in (*MARKS, *ENDS)])
    return made


def _save(directory: Path, form: str) -> Path:
    """Saves the toy target; its chat template is of the format."""
    made = _vocabulary()
    save_toy(directory, made.get_vocab_size(), context=CONTEXT)
    config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": END}
    write(directory, made, chat_template=template(form))
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def formats_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh without a tokenizer; every step asks the drafters."""
    directory = _save(tmp_path_factory.mktemp("model"), "hermes")
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, nats_door="false")
        made.add_model("verifier", drafters='["auto"]', latch=None, program=ALWAYS).wait_ready()
        yield made


@pytest.fixture(params=list(FORMATS))
def form(request: pytest.FixtureRequest, formats_mesh: Stack, tmp_path: Path) -> Iterator[str]:
    """A format of the mesh's model: that of its only tokenizer."""
    name: str = request.param
    while formats_mesh.ready():
        time.sleep(0.05)
    process = formats_mesh.add("tokenizer", model=_save(tmp_path, name), served_name=MODEL, reasoning="off")
    formats_mesh.wait_ready()
    yield name
    process.stop()


async def _streamed(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> tuple[list[tuple[str, str]], str, list[int], int]:
    """Calls, text and tokens of a stream, and most tokens of an event."""
    calls: list[tuple[str, str]] = []
    text, tokens, most = "", list[int](), 0
    async with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            step = event.get("outrider", {}).get("tokens", [])
            tokens, most = tokens + step, max(most, len(step))
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls") or []:
                    if call["index"] == len(calls):
                        calls.append((call["function"]["name"], ""))
                    name, said = calls[call["index"]]
                    calls[call["index"]] = (name, said + call["function"].get("arguments", ""))
    return calls, text, tokens, most


async def test_guesses_change_no_call(form: str, formats_mesh: Stack) -> None:
    made = _vocabulary()
    bias = -100 if FORMATS[form].turns else 50  # marks lead to calls, but those of turns to further turns
    likely = {str(made.token_to_id(mark)): bias for mark in FORMATS[form].marks}

    async def one(client: httpx.AsyncClient, seed: int) -> int:
        """Asks without guesses, then streams twice with them; the most tokens of an event."""
        body = ASKED | {"seed": seed, "temperature": 0.9 * (seed % 3 > 0), "parallel_tool_calls": seed % 2 == 0}
        body |= {"logit_bias": likely}
        answer = await client.post("/v1/chat/completions", json=body | {"speculation": "off"})
        assert answer.is_success, answer.text
        whole = answer.json()
        (choice,), tokens = whole["choices"], whole["outrider"]["tokens"]
        message = choice["message"]
        functions = [call["function"] for call in message.get("tool_calls") or []]
        calls = [(function["name"], function["arguments"]) for function in functions]
        shown = made.decode(tokens, skip_special_tokens=False)
        assert calls, shown
        for name, said in calls if choice["finish_reason"] == "tool_calls" else calls[:-1]:
            assert jsonschema_rs.is_valid(FUNCTIONS[name], json.loads(said)), shown
        steps = []
        for _ in range(2):
            *told, most = await _streamed(client, body)
            assert told == [calls, message["content"] or "", tokens], shown
            steps.append(most)
        return max(steps)

    async with httpx.AsyncClient(base_url=formats_mesh.url, timeout=200, trust_env=False) as client:
        steps = await asyncio.gather(*(one(client, seed) for seed in SEEDS))
    assert max(steps) > 1, steps
