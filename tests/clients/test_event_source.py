"""A browser's EventSource whose gateway is killed and restarted while it reads."""

from __future__ import annotations

import asyncio
import json
import os
import shutil

import httpx
import pytest

from tests.gateway.stack import Stack
from tests.gateway.streaming import Gateway
from tests.latch import FEW

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: pip install playwright")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ASKED = {"prompt": "def f(", "seed": 7, "max_tokens": 1500, "ignore_eos": True, "return_tokens": True}
READING = """id => new Promise((resolve, reject) => {
  const [source, heard] = [new EventSource(`/v1/streams/${id}`), []];
  let opened = 0;
  source.onopen = () => { opened += 1; };
  source.onerror = () => source.readyState === EventSource.CLOSED && reject(new Error(`gave up after ${heard.length}`));
  source.onmessage = ({ data, lastEventId }) => {
    heard.push(data);
    if (heard.length === 1) restart();
    if (data !== "[DONE]") return;
    source.close();
    resolve({ heard, opened, lastEventId });
  };
})"""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(BROWSER is None, reason="there is no browser: chromium is not installed"),
]


async def _left(gateway: Gateway) -> str:
    """The id of a stream that continues after its client has gone away."""
    headers = {"x-outrider-on-disconnect": "continue"}
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream(
            "POST", f"{gateway.url}/v1/completions", json=ASKED | {"stream": True}, headers=headers
        ) as response,
    ):
        assert response.status_code == 200
        await anext(response.aiter_bytes())
        return str(response.headers["x-request-id"])


async def test_an_event_source_resumes_without_missing_or_repeated_tokens(streaming: Stack, one: Gateway) -> None:
    gateway = Gateway(streaming)

    async def restart() -> None:
        await asyncio.to_thread(gateway.process.kill)
        streaming.latch.lift()
        gateway.process.start()

    await gateway.ready()
    sandbox = [] if os.getuid() else ["--no-sandbox"]
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=BROWSER, args=["--disable-dev-shm-usage", *sandbox])
        page = await browser.new_page()
        await page.expose_function("restart", restart)
        await page.goto(f"{gateway.url}/healthz")
        with streaming.latch.at(FEW):
            result = await page.evaluate(READING, await _left(gateway))
        await browser.close()
    chunks = [json.loads(data) for data in result["heard"][:-1]]
    tokens = [token for chunk in chunks for token in chunk["outrider"]["tokens"]]
    async with httpx.AsyncClient(timeout=60) as http:
        whole = (await http.post(f"{one.url}/v1/completions", json=ASKED)).json()["outrider"]["tokens"]
    assert result["opened"] == 2
    assert tokens == whole
    gateway.process.stop()
