"""A model that nobody serves when its first request comes."""

from __future__ import annotations

import asyncio

import httpx
from outrider.mesh.addresses import hold_port

from tests.gateway.stack import Stack

COLD = "cold"


async def until_unplaced(http: httpx.AsyncClient, number: int) -> None:
    """Returns when ``number`` requests for the cold model wait for a verifier; `TimeoutError` after a minute."""
    line = f'outrider_gateway_unplaced_requests{{model="{COLD}"}} {number:.1f}'
    async with asyncio.timeout(60):
        while line not in (await http.get("/metrics")).text.splitlines():
            await asyncio.sleep(0.02)


async def test_a_request_for_a_cold_model_is_counted_while_it_waits_and_answered_once_a_verifier_is_there(
    shared: Stack,
) -> None:
    port = hold_port()
    gateway = shared.add("gateway", port=port, cold_models=COLD, nats_door="false")
    gateway.wait_ready()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=240) as http:
        assert COLD in (await http.get("/readyz")).json()["models"]
        [listed] = [each for each in (await http.get("/v1/models")).json()["data"] if each["id"] == COLD]
        assert "max_model_len" not in listed
        body = {"model": COLD, "prompt": "x", "max_tokens": 2, "ignore_eos": True}
        leaving, staying = (asyncio.create_task(http.post("/v1/completions", json=body)) for _ in range(2))
        await until_unplaced(http, 2)
        leaving.cancel()
        await until_unplaced(http, 1)
        started = [shared.add(kind, model=shared.directory, served_name=COLD) for kind in ("tokenizer", "verifier")]
        answer = await staying
        assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 2)
        await until_unplaced(http, 0)
    for process in (*started, gateway):
        process.stop()
