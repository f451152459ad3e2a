"""Streams behind a real nginx, which cuts answers that are silent for as long as ``proxy_read_timeout``."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from outrider.mesh.addresses import hold_port

from tests.gateway.stack import MODEL, Stack
from tests.latch import FEW
from tests.waiting import eventually

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"),
]
DEFAULT_S = 60
"""nginx's own ``proxy_read_timeout``."""
ASKED: dict[str, Any] = {"model": MODEL, "max_tokens": 2 * FEW}
SAID: Any = [{"role": "user", "content": "def f("}]
CONFIGURATION = """
daemon off; pid {at}/pid; error_log {at}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off; client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
    uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{gateway}; {more} }}
    }}
}}
"""


@contextmanager
def nginx(directory: Path, gateway: int, timeout_s: float) -> Iterator[str]:
    """The URL of an nginx in front of the port ``gateway``."""
    directory.mkdir()
    port, file = hold_port(), directory / "nginx.conf"
    more = "" if timeout_s == DEFAULT_S else f"proxy_read_timeout {timeout_s}s;"
    file.write_text(CONFIGURATION.format(at=directory, port=port, gateway=gateway, more=more))
    process = subprocess.Popen(["nginx", "-p", directory, "-c", file])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    """Whether a gateway answers behind ``url``."""
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


async def chat(url: str) -> int:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, timeout=300) as client:
        stream = await client.chat.completions.create(
            messages=SAID, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True}, **ASKED
        )
        usages = [chunk.usage async for chunk in stream]
    return usages[-1].completion_tokens if usages[-1] else 0


async def response(url: str) -> int:
    asked = {"model": MODEL, "input": "def f(", "max_output_tokens": 2 * FEW, "extra_body": {"ignore_eos": True}}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, timeout=300) as client:
        events = [event async for event in await client.responses.create(stream=True, **asked)]
    return events[-1].response.usage.output_tokens  # type: ignore[no-any-return]


async def message(url: str) -> int:
    asked = ASKED | {"messages": SAID, "extra_body": {"ignore_eos": True}}
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="-", max_retries=0, timeout=300) as client,
        client.messages.stream(**asked) as stream,
    ):
        return (await stream.get_final_message()).usage.output_tokens


@pytest.mark.parametrize(("timeout_s", "keepalive_s"), [(3, 1), (DEFAULT_S, 10)], ids=["short", "defaults"])
async def test_a_silent_stream_ends_well_and_is_cut_without_signs_of_life(
    shared: Stack, tmp_path: Path, timeout_s: float, keepalive_s: float
) -> None:
    ports = [hold_port(), hold_port()]
    gateways = [
        shared.add("gateway", port=port, keepalive_s=seconds, nats_door="false")
        for port, seconds in zip(ports, [0, keepalive_s], strict=True)
    ]
    try:
        for gateway in gateways:
            gateway.wait_ready()
        with (
            nginx(tmp_path / "mute", ports[0], timeout_s) as mute,
            nginx(tmp_path / "alive", ports[1], timeout_s) as alive,
        ):
            for url in (mute, alive):
                await eventually(partial(answers, url))
            with shared.latch.at(FEW):
                lived = [asyncio.create_task(read(alive)) for read in (chat, response, message)]
                with pytest.raises(openai.APIConnectionError):
                    await chat(mute)
                await asyncio.sleep(timeout_s / 2)
            assert await asyncio.gather(*lived) == [2 * FEW] * 3
    finally:
        for gateway in gateways:
            gateway.stop()
