"""A real mesh with the shipped models, as a user starts it; the tests run in order and the last one ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from outrider.engine.models import pocket
from outrider.mesh.addresses import hold_port
from outrider_client import grpc as over_grpc

from tests.cli.calls import CLI
from tests.cli.running import READY, Up

ALWAYS = ("--program", "verifier=outrider.benches.verifier.always")
"""A verifier that asks drafters at every step, so that no test depends on the cost of guesses on its machine."""
PROMPT = "def parse_args("


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    counts = ("--proposers", "1", "--kvcaches", "1", "--gateways", "2")
    up = Up(*counts, *ALWAYS, "--log-dir", str(tmp_path_factory.mktemp("logs")))
    up.wait_for("Ctrl-C drains")
    yield up
    up.kill()


@pytest.fixture(scope="module")
def url(mesh) -> str:
    return mesh.wait_for(r"serves at (\S+)")[0][1]


def alive(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except FileNotFoundError:
        return False


def test_each_process_has_a_line_and_the_gateway_is_ready(mesh, url):
    kinds = [match[1] for match in READY.finditer("".join(mesh.lines))]
    assert sorted(kinds) == ["gateway", "gateway", "kvcache", "nats", "proposer", "tokenizer", "verifier"]
    assert httpx.get(f"{url}/readyz").status_code == 200


def test_the_printed_addresses_of_the_other_apis_answer(mesh):
    grpc_address, nats_url = mesh.wait_for(r"gRPC at (\S+), and over NATS at (\S+)\.")[0].groups()
    with over_grpc.Client(grpc_address) as client:
        assert client.models() == ["pocket"]
    assert nats_url.startswith("nats://127.0.0.1:")


def test_processes_are_known_by_their_names(mesh):
    for kind in ("gateway", "kvcache", "proposer", "tokenizer", "verifier"):
        for pid in mesh.pids(kind):
            assert Path(f"/proc/{pid}/cmdline").read_text().startswith(f"outrider {kind}")


def complete(url: str, *options: str) -> tuple[str, int]:
    """The output of `outrider complete`, and the number of steps."""
    command = [*CLI, "complete", PROMPT, "--url", url, "--max-tokens", "128", "--seed", "7", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, int(re.search(r"(\d+) steps", done.stderr)[1])


def test_a_completion_in_the_terminal_is_the_same_with_and_without_speculation(url):
    plain, steps = complete(url, "--no-speculation")
    assert plain.startswith(PROMPT)
    assert "\x1b" not in plain
    assert steps == 128
    while steps == 128:  # whether guesses pay depends on other work of the machine
        guessed, steps = complete(url)
        assert guessed == plain


def test_a_stream_outlives_the_proposer_and_another_is_started(mesh, url):
    request = {
        "model": "pocket",
        "prompt": PROMPT,
        "max_tokens": 200,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }
    pieces = []
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        expected = client.completions.create(**request).choices[0].text
        for chunk in client.completions.create(**request, stream=True):
            pieces.append(chunk.choices[0].text)
            if len(pieces) == 2:
                os.kill(mesh.pids("proposer")[-1], signal.SIGKILL)
    assert "".join(pieces) == expected
    mesh.wait_for("proposer +ended \\(killed by SIGKILL\\)")
    mesh.wait_for("✓ proposer", count=2)


def test_each_gateway_serves_the_port_while_the_other_is_started_again(mesh, url):
    for count, pid in enumerate(mesh.pids("gateway"), 1):
        os.kill(pid, signal.SIGKILL)
        mesh.wait_for("gateway +ended \\(killed by SIGKILL\\)", count)
        assert httpx.get(f"{url}/healthz").status_code == 200
        mesh.wait_for("✓ gateway", count=2 + count)
    assert complete(url, "--no-speculation")[1] == 128


def test_a_broker_that_is_killed_is_there_again(mesh, url):
    os.kill(mesh.pids("nats")[-1], signal.SIGKILL)
    mesh.wait_for("✓ nats", count=2)
    assert complete(url, "--no-speculation")[1] == 128


def test_a_tokenizer_that_stands_still_is_unready_and_another_is_started(mesh, url):
    pid = mesh.pids("tokenizer")[-1]
    os.kill(pid, signal.SIGSTOP)
    while httpx.get(f"{url}/readyz").status_code == 200:
        time.sleep(0.05)
    mesh.wait_for("tokenizer-\\w+ was not heard for 5 s, and is ended")
    mesh.wait_for("✓ tokenizer", count=2)
    assert not alive(pid)
    assert complete(url, "--no-speculation")[1] == 128
    assert httpx.get(f"{url}/readyz").status_code == 200


def test_a_load_test_reports_both_modes_and_their_ratio(url, tmp_path):
    loads = ["--concurrency", "2", "--rate", "20"]
    small = ["--requests", "2", "--repeats", "1", "--max-tokens", "16"]
    command = [*CLI, "bench", "--url", url, *loads, *small, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "bench.png").exists()
    report = httpx.Response(200, content=(tmp_path / "bench.json").read_bytes()).json()
    assert set(report["ratios"]) == {"concurrency 2", "rate 20/s"}
    assert {each["mode"] for each in report["medians"]} == {"on", "off"}
    assert all(each["summary"]["tokens_per_s"] > 0 for each in report["medians"])
    assert all(each["summary"]["cached_tokens"] == 0 for each in report["medians"])


def test_a_load_test_sends_chats_of_a_kind_and_refuses_others(url, tmp_path):
    small = ["--concurrency", "2", "--requests", "5", "--repeats", "1", "--max-tokens", "4", "--out", str(tmp_path)]
    command = [*CLI, "bench", "--url", url, *small, "--workload"]
    done = subprocess.run([*command, "chat"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    report = httpx.Response(200, content=(tmp_path / "bench.json").read_bytes()).json()
    assert report["settings"]["workload"] == "chat"
    assert all(each["summary"]["tokens_per_s"] > 0 for each in report["medians"])
    done = subprocess.run([*command, "poems"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--workload poems: it is one of edit, code, chat, extract, rag, mixed" in done.stderr


def test_an_open_load_is_reported_and_compared_with_itself(url, tmp_path):
    small = ["--rates", "4", "--seconds", "2", "--warm-up", "0", "--max-tokens", "8", "--out", str(tmp_path)]
    done = subprocess.run([*CLI, "load", "run", "--url", url, *small], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<svg" in (tmp_path / "load.html").read_text()
    same = [str(tmp_path / "load.json")] * 2
    done = subprocess.run([*CLI, "load", "compare", *same], capture_output=True, text=True)
    assert (done.returncode, done.stderr, "0 worse, 0 better" in done.stdout) == (0, "", True)


def test_sigterm_drains_and_leaves_no_process_behind(mesh):
    kinds = ("gateway", "nats", "proposer", "tokenizer", "verifier")
    running = [*mesh.pids("gateway")[-2:], *(mesh.pids(kind)[-1] for kind in kinds[1:])]
    assert all(map(alive, running))
    mesh.process.terminate()
    assert mesh.process.wait(60) == 0
    assert not any(map(alive, running))


def test_a_given_draft_model_guesses_inside_the_verifier(tmp_path):
    draft, probes = pocket.directory("draft"), hold_port()
    sets = ["verifier.options.model.children=3", f"verifier.metrics_port={probes}"]
    options = [*ALWAYS, *(part for each in sets for part in ("--set", each))]
    up = Up("--draft", str(draft), *options, "--log-dir", str(tmp_path))
    try:
        up.wait_for("The draft model runs inside the verifier: .*; --proposers 1 gives it a process of its own")
        url = up.wait_for(r"serves at (\S+)")[0][1]
        assert not up.pids("proposer")
        assert complete(url)[0].startswith(PROMPT)
        metrics = httpx.get(f"http://127.0.0.1:{probes}/metrics").text
        waited = re.search(
            r'^outrider_spec_exposed_drafting_seconds_total{drafter="model",model="pocket"} (\S+)$',
            metrics,
            re.MULTILINE,
        )
        assert float(waited[1]) > 0
    finally:
        up.process.terminate()
        up.process.wait(60)
        up.kill()


def test_a_terminal_that_shows_ascii_only_stops_nothing(tmp_path):
    up = Up("--log-dir", str(tmp_path), PYTHONIOENCODING="ascii")
    try:
        [(url, *_)] = [match.groups() for match in up.wait_for(r"serves at (\S+)")[:1]]
        told = subprocess.run(
            [*CLI, "complete", "def é(", "--url", url, "--max-tokens", "4"],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
        )
        assert (told.returncode, "def ?(" in told.stdout) == (0, True), told.stderr
        up.wait_for(r"\? verifier")
    finally:
        up.process.send_signal(signal.SIGINT)
        up.process.wait()
        up.kill()
