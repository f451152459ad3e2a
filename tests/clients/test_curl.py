"""curl with the commands of the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.gateway.streaming import Gateway

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl"),
]
BODY = '{"prompt": "def f(", "max_tokens": 20, "seed": 7, "ignore_eos": true, "speculation": "off", "stream": true}'


def curl(*arguments: str) -> str:
    """The output of curl."""
    return subprocess.run(["curl", "-sSN", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_stream_is_begun_taken_up_elsewhere_and_ended(one: Gateway, other: Gateway) -> None:
    output = curl(f"{one.url}/v1/completions", "--json", BODY)
    *chunks, done = output.removesuffix("\n\n").split("\n\n")
    ids = re.findall("^id: (.*)$", output, re.MULTILINE)
    stream = f"{other.url}/v1/streams/{ids[0].partition(':')[0]}"
    assert done.startswith("data: [DONE]")
    assert len(chunks) > 5
    rest = curl(stream, "-H", f"Last-Event-ID: {ids[3]}")
    assert rest.replace("retry: 1000\n", "") == "\n\n".join([*chunks[4:], done]) + "\n\n"
    assert curl(f"{stream}?last_event_id={ids[-1]}", "-w", "%{http_code}") == "204"
    assert curl("-X", "DELETE", stream, "-w", "%{http_code}") == "204"
    assert curl(stream, "-o", "/dev/null", "-w", "%{http_code}") == "404"
