"""Requests that kill verifiers: a drafter plug-in kills its process for certain prompts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from outrider.mesh.addresses import hold_port

from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL, Stack, Streamed, stack
from tests.latch import FEW
from tests.processes import ALWAYS
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

AT_ONCE, AT_WORK = 7, 8
DEADLY = f"""
import os, signal, time
from outrider.engine.speculation import Drafter

class Deadly(Drafter):
    name = "deadly"

    def __init__(self, context):
        self.context_length, self.doomed = context.context_length, set()

    def open(self, session, opening):
        if opening.tokens[0] == {AT_ONCE}:
            os.kill(os.getpid(), signal.SIGKILL)
        if opening.tokens[0] == {AT_WORK}:
            self.doomed.add(session)

    def close(self, session):
        self.doomed.discard(session)

    def draft(self):
        if self.doomed:
            time.sleep(0.3)  # it was taken, and is told so
            os.kill(os.getpid(), signal.SIGKILL)
        return []
"""


@pytest.fixture(scope="module")
def mesh(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three verifiers with the deadly drafter; a request may kill two of them."""
    package = tmp_path_factory.mktemp("installed")
    (package / "deadly.py").write_text(DEADLY)
    info = package / "deadly-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[outrider.drafters]\ndeadly = deadly:Deadly\n")
    with pytest.MonkeyPatch.context() as patch, stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]))
        made.add("gateway", port=made.port, most_deaths=2, place_s=240)
        made.add_model("tokenizer")
        for process in [made.add_model("verifier", drafters='["deadly"]', program=ALWAYS) for _ in range(3)]:
            process.wait_ready()
        made.wait_ready()
        yield made


def _alive(mesh: Stack) -> int:
    return sum(process.alive for process in mesh.processes if process.kind == "verifier")


async def test_a_request_that_verifiers_die_of_is_ended_and_others_go_on(mesh: Stack) -> None:
    others = [Streamed(mesh.url, prompt="def f(", seed=seed, max_tokens=300, coalesce=False) for seed in (1, 1, 1, 1)]
    with mesh.latch.at(FEW):
        reading = asyncio.gather(*(other.run() for other in others))
        await eventually(lambda: all(other.tokens for other in others))
        fatal = await RawStream(mesh.url).begin(prompt=[AT_WORK], max_tokens=9, speculation={})
    assert fatal.events[-2].json["error"] == {
        "message": "2 verifiers in a row died with this request and gave no token of it",
        "type": "server_error",
        "param": None,
        "code": "verifiers_died",
    }
    await reading
    assert _alive(mesh) == 1
    assert len({tuple(other.tokens) for other in others}) == 1
    again = await RawStream(mesh.url).resume(fatal.request)
    assert [event.data for event in again.events] == [event.data for event in fatal.events]
    assert _alive(mesh) == 1


async def test_a_request_that_verifiers_die_of_as_they_take_it_is_ended_too(mesh: Stack) -> None:
    verifiers = [process for process in mesh.processes if process.kind == "verifier"]
    starting = [process for process in verifiers if not process.alive][: max(2 - _alive(mesh), 0)]
    for process in starting:
        process.start()
    for process in starting:
        await asyncio.to_thread(process.wait_ready)
    asked = {"model": MODEL, "prompt": [AT_ONCE], "max_tokens": 9}
    refused = await asyncio.to_thread(httpx.post, f"{mesh.url}/v1/completions", json=asked, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (500, "verifiers_died")


async def test_a_grammar_that_verifiers_died_of_is_refused_by_all_gateways(mesh: Stack) -> None:
    other = f"http://127.0.0.1:{(port := hold_port())}"
    gateway = mesh.add("gateway", port=port)
    verifiers = [process for process in mesh.processes if process.kind == "verifier"]
    for process in verifiers:
        if not process.alive:
            process.start()
    for process in (gateway, *verifiers):
        await asyncio.to_thread(process.wait_ready)
    asked = {"model": MODEL, "max_tokens": 9, "structured_outputs": {"regex": "[ab]{2,9}"}, "coalesce": False}

    async def post(url: str, **more: object) -> httpx.Response:
        return await asyncio.to_thread(httpx.post, f"{url}/v1/completions", json=asked | more, timeout=60)

    def refused(url: str) -> bool:
        return httpx.post(f"{url}/v1/completions", json=asked | {"prompt": "p"}, timeout=60).status_code == 400

    assert [(await post(url, prompt="p")).status_code for url in (mesh.url, other)] == [200, 200]
    fatal = await post(mesh.url, prompt=[AT_ONCE])
    assert (fatal.status_code, fatal.json()["error"]["code"]) == (500, "verifiers_died")
    for url in (mesh.url, other):
        await eventually(lambda url=url: refused(url))
        again = await post(url, prompt=[AT_ONCE])
        assert again.json()["error"] == {
            "message": "structured_outputs.regex is refused for up to 10 minutes: verifiers died with a request for it",
            "type": "invalid_request_error",
            "param": "structured_outputs.regex",
            "code": None,
        }
        assert (await post(url, prompt="p", structured_outputs={"regex": "[ab]{2,8}"})).status_code == 200
    assert _alive(mesh) == 1
