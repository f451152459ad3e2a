"""`outrider trace-steps`: the time line of a request to a real mesh."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from outrider.cli.commands.time_line.steps import trace
from outrider.mesh.telemetry.timeline import TreeOffer, read_events

from tests.gateway.stack import stack
from tests.latch import FEW
from tests.processes import ALWAYS
from tests.waiting import eventually

CLI = [sys.executable, "-c", "from outrider.cli.main import main; main()"]
TOKENS = 100
LONG = ("--temperature", "1", "--seed", "4")
"""A draw whose answer does not end before `FEW` tokens."""


def outrider(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *arguments], capture_output=True, text=True, timeout=240)


def test_a_request_to_a_mesh_started_for_it_is_drawn_step_by_step(tmp_path: Path) -> None:
    picture, events = tmp_path / "pictures" / "steps.svg", tmp_path / "timeline.jsonl"
    options = ("--proposers", "0", "--max-tokens", str(TOKENS), "--before", "1", "--out", str(picture))
    done = outrider("trace-steps", "def parse_args(", *options, "--events", str(events))
    assert done.returncode == 0, done.stderr
    drawn = re.search(r"request ([0-9a-f]{32}): (\d+) tokens", picture.read_text())
    assert drawn
    assert int(drawn[2]) == TOKENS
    traced = trace(read_events([events]), drawn[1])
    assert sum(step.own.decided for step in traced.steps) == TOKENS
    assert len(re.findall(r"^ *\d+ +\d+ ", done.stdout, re.MULTILINE)) == len(traced.steps)


async def test_trees_that_come_while_the_target_stands_still_are_drawn_as_offers(
    directory: Path, tmp_path: Path
) -> None:
    picture, events = tmp_path / "steps.svg", tmp_path / "timeline.jsonl"
    with stack(directory, tmp_path) as mesh:
        mesh.add("gateway", port=mesh.port, grpc_port=mesh.grpc_port, nats_door="false")
        mesh.add_model("tokenizer")
        mesh.add_model("verifier", program=ALWAYS, timeline=events)
        mesh.add("proposer", model=directory, target=directory, timeline=events).wait_ready()
        mesh.wait_ready()
        options = ("trace-steps", "def f(", "--url", mesh.url, "--events", str(events), "--out", str(picture))
        with mesh.latch.at(FEW):
            asking = asyncio.create_task(asyncio.to_thread(outrider, *options, "--max-tokens", "200", *LONG))
            await eventually(lambda: any(isinstance(event, TreeOffer) for event in read_events([events])))
        done = await asking
    assert done.returncode == 0, done.stderr
    drawn = re.search(r"request ([0-9a-f]{32}):", picture.read_text())
    assert drawn
    traced = trace(read_events([events]), drawn[1])
    assert {flight.what for flight in traced.flights} == {"opens", "commits", "trees"}
    assert all(flight.span.began <= flight.span.ended for flight in traced.flights)
    assert any(each.tree is not None for each in traced.passes)
    assert traced.offers


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--url", "http://127.0.0.1:9"], "--url needs --events"),
        (["--events", "one", "--events", "two"], "--events may be repeated with --url only"),
        (["--out", "steps.doc"], "the name has to end with .png, .svg, .pdf"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(arguments: list[str], sentence: str) -> None:
    done = outrider("trace-steps", "x", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unreachable_mesh_is_one_sentence(unused_tcp_port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    done = outrider("trace-steps", "x", "--url", url, "--events", str(tmp_path / "none"))
    assert done.returncode == 3
    assert done.stderr == f"outrider: nothing answers at {url}: start a mesh with `outrider up`\n"
