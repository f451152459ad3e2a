"""Values that the chart refuses, and the sentence that says why."""

from __future__ import annotations

import pytest

from tests.deploy.chart import template

POOL = "verifiers.pocket"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["gateway.replicas=two"], "at '/gateway/replicas': got string, want integer"),
        (["gatway.replicas=2"], "additional properties 'gatway' not allowed"),
        (["credentials.source=vault"], "value must be one of 'managed', 'existing', 'none'"),
        (["nats.url=http://nats"], "does not match pattern '^(nats|tls)://'"),
        ([f"{POOL}.role=both,{POOL}.modle=x"], 'a verifier has no value "modle": there are affinity'),
        ([f"{POOL}.gpuClass=h100"], 'verifiers.pocket.gpuClass is "h100", and gpuClasses has: '),
        ([f"{POOL}.model=other"], 'verifiers.pocket serves the model "other", and no block of tokenizers does'),
        (["verifiers.a.role=prefill"], "at '/verifiers/a': missing property 'model'"),
        ([f"{POOL}.scaling.min=3", f"{POOL}.scaling.max=2"], "verifiers.pocket.scaling.min is 3, and max is 2"),
        (["gateway.scaling.min=0", "gateway.scaling.max=2"], "gateway.scaling.min is 0: only verifiers"),
        (
            [f"{POOL}.scaling.min=1", f"{POOL}.scaling.max=2", f"{POOL}.scaling.targets.wiat=1"],
            "verifiers.pocket.scaling.targets.wiat is no trigger: there are kv, requests, wait",
        ),
        (["kvcaches.a.scaling.min=1", "kvcaches.a.scaling.max=2"], "there is nothing to scale it by"),
        (["gateway.settings.port=80"], "the setting port of gateway is the chart's own"),
        (["models.pull={org/model}"], "models.pull needs a volume that outlives the Job"),
        (["inference.enabled=true"], "inference.picker.name is empty"),
        (["verifiers=null"], "a mesh needs a block in tokenizers and one in verifiers"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_wrong_value_is_refused_with_a_sentence(wrong: list[str], sentence: str) -> None:
    done = template("small-cpu", *wrong)
    assert done.returncode != 0
    assert sentence in done.stderr
