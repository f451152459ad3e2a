"""Harmful definitions of grammars: they fail their own request at most."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.gateway.stack import MODEL, Stack, Streamed
from tests.processes import ServiceProcess
from tests.waiting import eventually

DEFINITIONS = {f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(1000)}
CHAIN = {"$ref": "#/$defs/d0", "$defs": DEFINITIONS | {"d1000": {"type": "string"}}}
RULES = "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(4000)), 'r4000: "a"', ""])


def _post(mesh: Stack, outputs: dict[str, Any]) -> httpx.Response:
    body = {"model": MODEL, "prompt": "def f(", "max_tokens": 4, "structured_outputs": outputs}
    while _verifier(mesh).alive:
        answer = httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=300)
        if answer.status_code not in (503, 504):  # on a slow machine a definition is compiled for the next try
            return answer
    raise AssertionError("the verifier died")


def _verifier(mesh: Stack) -> ServiceProcess:
    return next(process for process in mesh.processes if process.kind == "verifier")


@pytest.mark.parametrize(
    ("outputs", "status", "said"),
    [
        ({"json": CHAIN}, 200, '"text"'),
        ({"grammar": RULES}, 200, '"text":"a"'),
        ({"regex": "a{1000000}"}, 400, "structured_outputs.regex cannot be compiled: lexer error: too many"),
        ({"regex": "[ab]{2}" + "(" * 100_000}, 400, "structured_outputs.regex cannot be compiled"),
        ({"json": json.dumps(CHAIN | {"description": "a" * (256 << 10)})}, 400, "at most 262144 in all"),
    ],
)
async def test_a_definition_that_is_meant_to_harm_costs_one_request(
    shared: Stack, outputs: dict[str, Any], status: int, said: str
) -> None:
    verifier = _verifier(shared)
    pid, other = verifier.pid, Streamed(shared.url, prompt="def f(", seed=3, max_tokens=900, coalesce=False)
    reading = asyncio.create_task(other.run())
    await eventually(lambda: other.tokens)
    answer = await asyncio.to_thread(_post, shared, outputs)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text[:500]
    assert (await asyncio.to_thread(_post, shared, {"regex": "[ab]{2}"})).status_code == 200
    await reading
    alone = Streamed(shared.url, prompt="def f(", seed=3, max_tokens=900, coalesce=False)
    await alone.run()
    assert other.tokens == alone.tokens
    assert (verifier.pid, verifier.alive) == (pid, True)
