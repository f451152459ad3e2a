"""Requests with deadlines, and a verifier that expects short answers."""

from __future__ import annotations

from typing import Any

import httpx

from tests.gateway.stack import MODEL

SOON_MS = 2000
"""Time for a few tokens on any machine."""


def body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "def f(", "max_tokens": 8, "ignore_eos": True} | more


async def ask(url: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(f"{url}/v1/completions", json=body(**more), headers=headers or {})


async def answers_seem_short(url: str) -> None:
    """Makes the verifier expect short answers: sends it many of one token."""
    for _ in range(20):
        assert (await ask(url, max_tokens=1, n=3)).status_code == 200
