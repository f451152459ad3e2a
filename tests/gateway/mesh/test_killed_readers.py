"""A reader's process is killed in mid-stream; another one resumes elsewhere, RESUME_AFTER_S seconds later."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL
from tests.gateway.streaming import Gateway

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

AFTER_S = float(os.environ.get("RESUME_AFTER_S", 0.3))
LENGTH, HAD = 400, 50
ASKED = {"model": MODEL, "stream": True, "seed": 7, "ignore_eos": True, "speculation": "off", "return_tokens": True}
READER = """
import os, signal, sys, urllib.request

url, body, had, wish = sys.argv[1:]
headers = {"content-type": "application/json", "x-outrider-on-disconnect": wish}
with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)) as answer:
    for line in answer:
        print(line.decode().strip(), flush=True)
        if line.startswith(b"id: ") and line.strip().endswith(b":" + had.encode()):
            os.kill(os.getpid(), signal.SIGKILL)
"""


def _read_until_killed(url: str, wish: str) -> tuple[list[int], str]:
    """The tokens that a process had received when it was killed, and the id of its last event."""
    body = json.dumps(ASKED | {"prompt": "def f(", "max_tokens": LENGTH})
    command = [sys.executable, "-c", READER, f"{url}/v1/completions", body, str(HAD), wish]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -9, killed.stderr
    events = [dict(line.split(": ", 1) for line in event.split("\n")) for event in killed.stdout.strip().split("\n\n")]
    return [token for event in events for token in json.loads(event["data"])["outrider"]["tokens"]], events[-1]["id"]


@pytest.mark.parametrize("wish", ["continue", "cancel"])
async def test_the_next_reader_gets_the_rest_and_nothing_twice(one: Gateway, other: Gateway, wish: str) -> None:
    whole = await RawStream(other.url).begin(max_tokens=LENGTH, return_tokens=True)
    had, last = await asyncio.to_thread(_read_until_killed, one.url, wish)
    await asyncio.sleep(AFTER_S)
    rest = await RawStream(other.url).resume(last.partition(":")[0], last)
    assert len(had) == HAD
    assert had + _tokens(rest) == _tokens(whole)
    assert len(rest.events) == LENGTH - HAD + 1


def _tokens(raw: RawStream) -> list[int]:
    return [token for event in raw.events[:-1] for token in event.json["outrider"]["tokens"]]
