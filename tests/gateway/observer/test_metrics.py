"""Metrics of a gateway and a verifier after real requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from outrider.mesh.registry import Registry

from tests.gateway.stack import BEGINNING, MODEL, Stack
from tests.gateway.tenants import TenantStore, complete
from tests.waiting import eventually

BODY: dict[str, Any] = {"model": MODEL, "prompt": BEGINNING, "seed": 3, "max_tokens": 6, "ignore_eos": True}
GATEWAY = (
    "outrider_gateway_first_token_seconds_count",
    "outrider_gateway_inter_token_seconds_count",
    "outrider_gateway_output_token_seconds_count",
    'outrider_gateway_request_seconds_count{model="toy",outcome="length"}',
    'outrider_gateway_prompt_tokens_total{model="toy",tenant=""}',
    'outrider_gateway_generated_tokens_total{model="toy",tenant=""}',
    'vllm:time_to_first_token_seconds_count{model_name="toy"}',
    'vllm:inter_token_latency_seconds_count{model_name="toy"}',
    'vllm:e2e_request_latency_seconds_count{model_name="toy"}',
)
VERIFIER = (
    'outrider_verifier_queue_seconds_count{model="toy"}',
    'outrider_verifier_prefill_seconds_count{model="toy"}',
    'outrider_verifier_decode_seconds_count{model="toy"}',
    'outrider_verifier_step_rows_count{model="toy"}',
    'outrider_verifier_step_sequences_count{model="toy"}',
    *(
        f'outrider_verifier_step_part_seconds_total{{model="toy",part="{part}"}}'
        for part in ("schedule", "forward", "sample", "commit", "publish")
    ),
    'outrider_verifier_prefix_tokens_total{model="toy",tier="computed"}',
    'outrider_spec_acceptance_length_count{model="toy"}',
    'vllm:prefix_cache_queries_total{model_name="toy"}',
    'vllm:request_queue_time_seconds_count{model_name="toy"}',
)
STATES = (
    "outrider_build_info",
    "outrider_ready 1.0",
    'outrider_verifier_oldest_wait_seconds{model="toy"} 0.0',
    'vllm:num_requests_running{model_name="toy"}',
    'vllm:num_requests_waiting{model_name="toy"}',
    'vllm:kv_cache_usage_perc{model_name="toy"}',
)


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=body, timeout=60)


def text(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=30).text


def total(shown: str, name: str) -> float:
    """The sum of the series that begin with ``name``."""
    return sum(float(line.split()[-1]) for line in shown.splitlines() if line.startswith(name))


def names_of(shown: str, label: str) -> set[str]:
    """The values of a label."""
    return set(re.findall(rf'[{{,]{label}="([^"]*)"', shown))


@pytest.fixture
async def verifier(registry: Registry) -> Callable[[], str]:
    """Reads the metrics of the shared verifier."""
    await registry.wait_for("verifier", bool, 60)
    member = next(member for member in registry.members("verifier") if member.instance == "verifier")
    return lambda: text(f"http://127.0.0.1:{member.status['metrics_port']}")


async def test_metrics_of_requests_and_steps_move_with_a_request(shared: Stack, verifier: Callable[[], str]) -> None:
    before, steps_before = text(shared.url), verifier()
    prompt = f"{BEGINNING} something else than other tests ask"
    assert post(shared.url, BODY | {"prompt": prompt}).status_code == 200
    shown = text(shared.url)
    assert [name for name in GATEWAY if not total(shown, name) > total(before, name)] == []
    await eventually(lambda: all(total(verifier(), name) > total(steps_before, name) for name in VERIFIER))
    assert [line for line in STATES if line not in verifier()] == []


async def test_names_that_clients_make_up_become_no_labels(
    shared: Stack, urls: list[str], tenant_store: TenantStore
) -> None:
    refused = 'outrider_gateway_refused_requests_total{cause="unknown_model"}'
    assert post(shared.url, BODY).status_code == 200
    before = total(text(shared.url), refused)
    for number in range(3):
        assert post(shared.url, BODY | {"model": f"made-up-{number}"}).status_code == 404
    shown = text(shared.url)
    assert total(shown, refused) == before + 3
    assert names_of(shown, "model") == {MODEL}
    _, key = await tenant_store.key()
    await complete(urls[0], key, model=MODEL)
    shown = text(urls[0])
    assert names_of(shown, "tenant") <= {"measured", "other"}
    assert total(shown, 'outrider_gateway_generated_tokens_total{model="toy",tenant="other"}') > 0
    assert total(shown, 'outrider_gateway_slo_requests_total{met="yes",model="toy"}') > 0
    with pytest.raises(openai.AuthenticationError):
        await complete(urls[0], "wrong")
    assert total(text(urls[0]), 'outrider_gateway_refused_requests_total{cause="authentication"}') > 0


def test_an_answer_tells_of_its_guesses_as_vllm_does(guessing: Stack) -> None:
    body = BODY | {"temperature": 0, "max_tokens": 40, "coalesce": False}
    answer: dict[str, Any] = {}
    while "metrics" not in answer:  # not all drafters are asked at all times
        answer = post(guessing.url, body).json()
    shown, details = answer["metrics"]["speculative_decoding"], answer["usage"]["completion_tokens_details"]
    histogram = shown["acceptance_histogram"]
    accepted = sum(number * steps for number, steps in enumerate(histogram))
    assert shown["num_spec_steps"] == sum(histogram) > 0
    assert shown["num_accepted_draft_tokens"] == accepted == details["accepted_prediction_tokens"]
    assert shown["num_draft_tokens"] == accepted + details["rejected_prediction_tokens"]
    assert shown["mean_acceptance_length"] == 1 + accepted / sum(histogram)
    assert shown["draft_acceptance_rate"] == accepted / shown["num_draft_tokens"]
    assert shown["num_spec_tokens"] == len(histogram) - 1
