"""What the chart makes of each values file."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from outrider.cli.settings import effective

from tests.deploy.chart import (
    CHART,
    HELM,
    RELEASE,
    VALUES,
    WORKLOADS,
    Object,
    component,
    containers,
    labels,
    named,
    of_kind,
    pod,
    render,
    values_file,
    variables,
)
from tests.deploy.schemas import mistakes

EXTENSIONS = {
    "Certificate": "cert-manager.io/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "InferenceObjective": "llm-d.ai/v1alpha2",
    "InferencePool": "inference.networking.k8s.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "ScaledObject": "keda.sh/v1alpha1",
}
"""Kinds that a cluster has only with an operator; no schema of them is at hand here."""
OLDEST, NEWEST = "1.30", "1.37"
MODEL, SMALL_MODEL = "Qwen/Qwen2.5-Coder-1.5B-Instruct", "Qwen/Qwen2.5-Coder-0.5B-Instruct"

values = pytest.mark.parametrize("values", VALUES)


def services(objects: list[Object]) -> list[Object]:
    return [each for each in of_kind(objects, "Deployment") if component(each) not in ("admin", "credentials")]


def selects(selector: dict[str, Any], workload: Object) -> bool:
    return bool(selector["matchLabels"].items() <= labels(workload).items())


@values
def test_lint_finds_nothing(values: str) -> None:
    command = [str(HELM), "lint", "--strict", str(CHART), "-f", str(values_file(values))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@values
def test_every_object_fits_the_schema_of_its_kind(values: str, version: str) -> None:
    for each in render(values):
        if each["kind"] in EXTENSIONS:
            assert each["apiVersion"] == EXTENSIONS[each["kind"]]
        else:
            assert not mistakes(each, version), each


def test_an_object_with_an_unknown_field_does_not_fit() -> None:
    service = json.loads(json.dumps(of_kind(render("small-cpu"), "Service")[0]))
    service["spec"]["prots"] = []
    assert mistakes(service, NEWEST)


@values
def test_every_variable_is_a_setting_of_its_service(values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for workload in services(render(values)):
        with monkeypatch.context() as patch:
            for name, value in variables(workload).items():
                patch.setenv(name, value)
            read = {key: setting.value for key, setting in effective(component(workload), None, {}).items()}
        assert read["nats_credentials"] == "/credentials"
        grace = pod(workload)["terminationGracePeriodSeconds"]
        assert grace >= read["drain_s"] + 10


@values
def test_no_container_has_rights_over_its_node(values: str) -> None:
    for workload in of_kind(render(values), *WORKLOADS):
        about = pod(workload)["securityContext"]
        assert (about["runAsNonRoot"], about["runAsUser"], about["runAsGroup"]) == (True, 10001, 10001)
        assert about["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod(workload).keys()
        assert not [volume for volume in pod(workload)["volumes"] if "hostPath" in volume]
        for container in containers(workload):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


@values
def test_only_the_pod_that_writes_secrets_has_a_token_and_may_patch_named_secrets_alone(values: str) -> None:
    objects = render(values)
    with_token = [each for each in of_kind(objects, *WORKLOADS) if pod(each)["automountServiceAccountToken"]]
    assert {component(each) for each in with_token} <= {"credentials"}
    made = {each["metadata"]["name"] for each in of_kind(objects, "Secret")}
    assert bool(with_token) == bool(made)
    for role in of_kind(objects, "Role"):
        [rule] = role["rules"]
        assert (rule["resources"], rule["verbs"]) == (["secrets"], ["patch"])
        assert set(rule["resourceNames"]) == made


@values
def test_a_service_sees_its_own_credentials_only(values: str) -> None:
    for workload in services(render(values)):
        kind = component(workload)
        [volume] = [each for each in pod(workload)["volumes"] if each["name"] == "credentials"]
        sources = [source["secret"] for source in volume["projected"]["sources"]]
        assert {source["name"] for source in sources} <= {f"{RELEASE}-outrider-{kind}{end}" for end in ("", "-tls")}
        files = {item["path"] for source in sources for item in source["items"]}
        assert files - {"issuer.nk"} == {"ca.crt", f"{kind}.crt", f"{kind}.key", f"{kind}.nk"}
        assert ("issuer.nk" in files) == (kind == "gateway")


@values
def test_every_budget_monitor_and_scaler_is_of_one_deployment(values: str) -> None:
    objects = render(values)
    deployments = of_kind(objects, "Deployment")
    for each in of_kind(objects, "PodDisruptionBudget", "PodMonitor"):
        own = [workload for workload in deployments if selects(each["spec"]["selector"], workload)]
        assert [workload["metadata"]["name"] for workload in own] == [each["metadata"]["name"]]
    for each in of_kind(objects, "ScaledObject"):
        scaled = named(objects, "Deployment", each["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in scaled["spec"]
        jobs = {
            f"{each['metadata']['namespace']}/{monitor['metadata']['name']}"
            for monitor in of_kind(objects, "PodMonitor")
        }
        for trigger in each["spec"]["triggers"]:
            assert any(f'job="{job}"' in trigger["metadata"]["query"] for job in jobs)
    for deployment in services(objects):
        assert named(objects, "PodDisruptionBudget", deployment["metadata"]["name"])


def test_a_pod_may_take_an_hour_to_fetch_its_model_and_is_watched_afterwards() -> None:
    [verifier] = pod(named(render("small-cpu"), "Deployment", "mesh-outrider-verifier-pocket"))["containers"]
    probe = verifier["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 3600
    assert probe["httpGet"] == verifier["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert verifier["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert {"name": "metrics", "containerPort": 9090} in verifier["ports"]


def test_a_pool_of_a_gpu_class_asks_for_gpus_of_its_nodes() -> None:
    workload = named(render("gpu"), "Deployment", "mesh-outrider-verifier-small-l4")
    [container] = containers(workload)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["image"].endswith("-cuda")
    assert variables(workload)["OUTRIDER_VERIFIER_DEVICE"] == "cuda"
    assert pod(workload)["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    assert pod(workload)["runtimeClassName"] == "nvidia"
    assert workload["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_verifier_of_a_class_of_several_gpus_shares_its_model_out() -> None:
    objects = render("gpu", "gpuClasses.l4.count=2")
    verifier, proposer = (
        named(objects, "Deployment", f"mesh-outrider-{name}") for name in ("verifier-small-l4", "proposer-coder")
    )
    assert containers(verifier)[0]["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert variables(verifier)["OUTRIDER_VERIFIER_TENSOR_PARALLEL"] == "2"
    assert not [name for name in variables(proposer) if "TENSOR" in name]
    one = named(render("gpu"), "Deployment", "mesh-outrider-verifier-small-l4")
    assert "OUTRIDER_VERIFIER_TENSOR_PARALLEL" not in variables(one)


def test_models_are_pulled_into_the_volume_that_services_read_without_a_network() -> None:
    objects = render("gpu")
    [job] = of_kind(objects, "Job")
    pulled = [container["command"] for container in pod(job)["initContainers"]]
    assert [
        ["outrider", "models", "pull", name] for name in ("Qwen/Qwen2.5-Coder-1.5B-Instruct", SMALL_MODEL)
    ] == pulled
    workload = named(objects, "Deployment", "mesh-outrider-verifier-small-l4")
    claims = [each for each in pod(workload)["volumes"] if "persistentVolumeClaim" in each]
    assert claims == [each for each in pod(job)["volumes"] if "persistentVolumeClaim" in each]
    assert variables(workload)["HF_HUB_OFFLINE"] == "1"


def test_gateways_hold_requests_for_the_model_whose_verifiers_may_all_end() -> None:
    objects = render("production")
    gateway = named(objects, "Deployment", "mesh-outrider-gateway")
    assert json.loads(variables(gateway)["OUTRIDER_GATEWAY_COLD_MODELS"]) == [SMALL_MODEL]
    scaler = named(objects, "ScaledObject", "mesh-outrider-verifier-small")["spec"]
    assert scaler["minReplicaCount"] == 0
    [waking] = [each["metadata"] for each in scaler["triggers"] if each["metadata"]["activationThreshold"] == "0"]
    assert (
        f'outrider_gateway_unplaced_requests{{job="llm/mesh-outrider-gateway",model="{SMALL_MODEL}"}}'
        in waking["query"]
    )


def test_requests_of_the_inference_pool_go_to_gateways() -> None:
    objects = render("production")
    pool = named(objects, "InferencePool", "mesh-outrider")["spec"]
    chosen = [each for each in of_kind(objects, "Deployment") if selects(pool["selector"], each)]
    assert [each["metadata"]["name"] for each in chosen] == ["mesh-outrider-gateway"]
    assert {"name": "http", "containerPort": pool["targetPorts"][0]["number"]} in containers(chosen[0])[0]["ports"]
