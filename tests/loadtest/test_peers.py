"""What is made of a peer's speed, and of a peer that ends."""

from __future__ import annotations

import subprocess
import sys

import pytest
from outrider.loadtest.peer_process import Peer, Spoken
from outrider.loadtest.peers import Speed, judge

ANSWERS_TWICE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    tokens = [[asked["streams"]] * asked["max_tokens"] for _ in asked["prompts"]]
    print(json.dumps({"seconds": 0.5, "tokens": tokens}), flush=True)
    if asked["mode"] == "lookup":
        break
"""


def test_a_peer_answers_line_by_line_and_its_end_is_told() -> None:
    command = [sys.executable, "-c", ANSWERS_TWICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        peer = Peer(process)
        assert peer.complete("plain", 1, ["a", "b"], 3) == Spoken(0.5, [[1, 1, 1], [1, 1, 1]])
        assert peer.complete("lookup", 8, ["a"], 4).tokens_per_s == 8.0
        process.wait(30)
        with pytest.raises(SystemExit, match="the peer ended"):
            peer.complete("plain", 1, ["a"], 1)


def test_the_best_median_of_each_side_is_compared() -> None:
    def speeds(engine: str, way: str, *values: float) -> list[Speed]:
        return [Speed(engine, way, 1, repeat, value) for repeat, value in enumerate(values)]

    found = [
        *speeds("Outrider", "strict", 240, 250, 900),
        *speeds("Outrider", "fast", 100, 100, 100),
        *speeds("Outrider", "fast, off", 50, 50, 50),
        *speeds("OpenVINO GenAI", "plain", 100, 900, 100),
        *speeds("OpenVINO GenAI", "lookup", 200, 200, 200),
    ]
    bar = judge(found, 1)
    assert bar.value == 1.25
    assert bar.met
