"""Outrider's metrics under the names of vLLM, for dashboards, routers and scalers that read those.

Nothing is counted twice: at each scrape, values of Outrider's metrics are summed over the labels that vLLM lacks.
Names: https://docs.vllm.ai/en/latest/usage/metrics/ and the model server protocol of the Gateway API's inference
extension.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from outrider.mesh.telemetry.metrics import REGISTRY, families
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_MODEL = MappingProxyType({"model": "model_name", "le": "le"})


class Alias(NamedTuple):
    """A metric of vLLM: the metric of Outrider that it is made of, and vLLM's names of the labels that stay.

    ``without`` is a label and a value of it that does not count.
    """

    name: str
    source: str
    labels: Mapping[str, str] = _MODEL
    without: tuple[str, str] = ("", "-")


ALIASES = (
    Alias("num_requests_running", "verifier_running_requests"),
    Alias("num_requests_waiting", "verifier_waiting_requests"),
    Alias("kv_cache_usage_perc", "verifier_kv_utilization"),
    Alias("num_preemptions", "verifier_preemptions"),
    Alias("prefix_cache_queries", "verifier_prefix_tokens"),
    Alias("prefix_cache_hits", "verifier_prefix_tokens", without=("tier", "computed")),
    Alias("request_queue_time_seconds", "verifier_queue_seconds"),
    Alias("request_prefill_time_seconds", "verifier_prefill_seconds"),
    Alias("request_decode_time_seconds", "verifier_decode_seconds"),
    Alias("spec_decode_num_drafts", "spec_drafts"),
    Alias("spec_decode_num_draft_tokens", "spec_bought_tokens"),
    Alias("spec_decode_num_accepted_tokens", "spec_accepted_tokens"),
    Alias("spec_decode_num_accepted_tokens_per_pos", "spec_accepted_tokens", {**_MODEL, "depth": "position"}),
    Alias("time_to_first_token_seconds", "gateway_first_token_seconds"),
    Alias("inter_token_latency_seconds", "gateway_inter_token_seconds"),
    Alias("request_time_per_output_token_seconds", "gateway_output_token_seconds"),
    Alias("e2e_request_latency_seconds", "gateway_request_seconds"),
    Alias("prompt_tokens", "gateway_prompt_tokens"),
    Alias("generation_tokens", "gateway_generated_tokens"),
)


class VllmNames(Collector):
    """Renders `ALIASES`, as far as this process has their sources."""

    def collect(self) -> Iterable[Metric]:
        """The present values."""
        for alias in ALIASES:
            for family in families(alias.source):
                yield _renamed(alias, family)

    def describe(self) -> Iterable[Metric]:
        """Nothing: values are read when they are asked for."""
        return ()


def use_vllm_names() -> None:
    """Has `/metrics` show vLLM's names as well; a second call does nothing."""
    if not _State.used:
        _State.used = True
        REGISTRY.register(VllmNames())


class _State:
    used = False


def _renamed(alias: Alias, family: Metric) -> Metric:
    name = f"vllm:{alias.name}"
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
    label, value = alias.without
    for sample in family.samples:
        suffix = sample.name.removeprefix(family.name)
        if suffix != "_created" and sample.labels.get(label) != value:
            sums[suffix, _labels(alias, sample.labels)] += sample.value
    renamed = Metric(name, family.documentation, family.type)
    for (suffix, labels), total in sums.items():
        renamed.add_sample(name + suffix, dict(labels), total)
    return renamed


def _labels(alias: Alias, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels that stay; a depth, which counts from 1, becomes a position, which counts from 0."""
    kept = ((alias.labels[name], value) for name, value in labels.items() if name in alias.labels)
    return tuple((name, str(int(value) - 1) if name == "position" else value) for name, value in kept)
