"""What a whole mesh tells of a tenant's data, and what an erasure leaves of it; the tests run in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import httpx
import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider_client import OutriderClientError
from outrider_client import grpc as over_grpc
from outrider_client import nats as over_nats

from tests.cli.data_mesh import DataMesh, as_ids

pytestmark = pytest.mark.timeout(300)

MARK = "zyxqvu_17_kwjb"
PROMPT = f"def {MARK}(a, b):\n    return {MARK}(b, a)\n\n" * 8
WRONG_KEY = f"sk-{'0' * 16}-{'secretsecret' * 3}1234567"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataMesh]:
    made = DataMesh(tmp_path_factory.mktemp("data"))
    made.open()
    yield made
    made.close()


@pytest.fixture(scope="module")
def ids(mesh: DataMesh) -> tuple[bytes, bytes]:
    return as_ids(mesh.post("/tokenize", prompt=MARK).json()["tokens"][1:])


def _read_while_the_verifier_dies(mesh: DataMesh) -> str:
    body = {"prompt": PROMPT, "max_tokens": 200, "stream": True, "temperature": 0, "ignore_eos": True}
    headers = {"authorization": f"Bearer {mesh.key}"}
    with httpx.stream("POST", f"{mesh.url}/v1/completions", json=body, headers=headers, timeout=120) as response:
        lines = response.iter_lines()
        first = next(lines)
        os.kill(mesh.up.pids("verifier")[-1], signal.SIGKILL)
        return "".join([first, *lines])


def _ask_every_api(mesh: DataMesh) -> None:
    function = {"name": f"f_{MARK}", "parameters": {"type": "object", "properties": {MARK: {"const": MARK}}}}
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8}
    assert mesh.post("/v1/completions", prompt=PROMPT, max_tokens=8, temperature=0).status_code == 200
    mesh.post("/v1/chat/completions", **chat, tools=[{"type": "function", "function": function}])
    mesh.post("/v1/responses", input=PROMPT, max_output_tokens=8)
    with over_grpc.Client(mesh.grpc, api_key=mesh.key) as client:
        assert client.complete(prompt=PROMPT, max_tokens=8).text
        with pytest.raises(OutriderClientError):
            client.complete(prompt=PROMPT, max_tokens=8, model=MARK)

    async def ask() -> None:
        async with over_nats.AsyncClient(mesh.nats_url, api_key=mesh.key) as client:
            assert (await client.complete(prompt=PROMPT, max_tokens=8)).text
            with pytest.raises(OutriderClientError):
                await client.complete(prompt=PROMPT, max_tokens=8, model=MARK)

    asyncio.run(ask())


def _ask_wrongly(mesh: DataMesh) -> list[int]:
    key = {"authorization": f"Bearer {mesh.key}"}
    url = f"{mesh.url}/v1/completions"
    answers = [
        httpx.post(url, content=f'{{"prompt": "{MARK}', headers=key | {"content-type": "application/json"}),
        httpx.put(f"{mesh.url}/v1/prompts/{MARK}!", json={"prompt": PROMPT}, headers=key),
        mesh.post("/v1/completions", prompt=PROMPT, key=WRONG_KEY),
        mesh.post("/v1/completions", prompt=PROMPT, max_tokens=MARK),
        mesh.post("/v1/completions", prompt=PROMPT, max_tokens=8, structured_outputs={"regex": f"({MARK}"}),
        mesh.post("/v1/completions", prompt=PROMPT * 40, max_tokens=8),
        mesh.post("/v1/completions", prompt=PROMPT, max_tokens=900, timeout_ms=1, ignore_eos=True),
        mesh.post("/v1/completions", prompt=PROMPT, model=MARK),
        mesh.post(f"/v1/{MARK}", prompt=PROMPT),
    ]
    return [answer.status_code for answer in answers]


def secrets(mesh: DataMesh) -> list[str]:
    seeds = [file.read_text() for file in BusDirectory(mesh.logs / "bus").path.glob("*.nk")]
    return [MARK, mesh.key, mesh.key.rpartition("-")[2], WRONG_KEY, *seeds]


def test_requests_and_secrets_are_in_no_metric_and_on_no_command_line(mesh: DataMesh) -> None:
    assert "[DONE]" in _read_while_the_verifier_dies(mesh)
    _ask_every_api(mesh)
    refusals = _ask_wrongly(mesh)
    assert not [status for status in refusals if status < 400], refusals
    assert [(place, each) for place, text in mesh.shown() for each in secrets(mesh) if each in text] == []


def test_an_erasure_leaves_nothing_of_a_tenant_on_disk_or_in_pages(mesh: DataMesh, ids: tuple[bytes, bytes]) -> None:
    headers = {"authorization": f"Bearer {mesh.key}"}
    assert httpx.put(f"{mesh.url}/v1/prompts/p", json={"prompt": PROMPT}, headers=headers).status_code == 200
    patterns = MARK.encode(), *ids
    before = {kind: mesh.in_memory(kind, *patterns) for kind in ("gateway", "proposer")}
    assert len(mesh.on_disk(*patterns)) >= 2, "a search that finds nothing would prove nothing"
    assert mesh.page_files()
    assert all(before.values()), before
    code, told, errors = mesh.command("tenants", "erase", mesh.tenant)
    assert (code, errors) == (0, "")
    for place in ("1 keys", "1 prompts", "kept answers", "records", "frames", "pages in disk", "answers"):
        assert place in told
    assert mesh.on_disk(*patterns) == {}
    assert mesh.page_files() == 0
    assert mesh.in_memory("kvcache", *patterns) == 0
    assert mesh.post("/v1/completions", prompt="a").status_code == 401


def test_requests_and_secrets_are_in_no_log_trace_or_time_line(mesh: DataMesh) -> None:
    mesh.end()
    logged = dict(mesh.logged())
    everything = "".join(logged.values())
    assert '"level": "debug"' in everything
    assert '"status_code": "ERROR"' in everything, "spans of refused requests"
    assert '"event": "a tenant was erased"' in everything
    assert [(place, each) for place, text in logged.items() for each in secrets(mesh) if each in text] == []
