"""Every pod of a mesh, and some that are none of it, tries to reach every other one at every port."""

from __future__ import annotations

from itertools import product

import pytest
from outrider.mesh.rpc.callers import EVERY, MAY_CALL

from tests.deploy.chart import NAMESPACE, VALUES, WORKLOADS, Object, component, labels, of_kind, render
from tests.deploy.policies import Pod, Policies

RPC, METRICS, HTTP, GRPC, NATS, ROUTES, WEB, API, NATS_METRICS = 50051, 9090, 8080, 8081, 4222, 6222, 443, 6443, 7777
PORTS = (RPC, METRICS, HTTP, GRPC, NATS, ROUTES, WEB, API, NATS_METRICS)
SERVED_BY = {
    "Tokenizer": ["tokenizer"],
    "Verifier": ["verifier"],
    "Proposer": ["proposer"],
    "KvCache": ["kvcache", "verifier"],
}
"""The kinds that serve each gRPC service of the mesh."""
NATS_LABELS = {"app.kubernetes.io/name": "nats"}
OUTSIDERS = [
    Pod("stranger", NAMESPACE, {"app": "stranger"}),
    Pod("namesake", "elsewhere", {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "gateway"}),
    Pod("ingress", "ingress", {}),
    Pod("prometheus", "monitoring", {}),
    Pod("nats", NAMESPACE, NATS_LABELS),
    Pod("world", None, {}),
]
"""The world is any address; policies cannot tell it from pods, of which none here listens on ports 443 and 6443."""
Connections = set[tuple[str, str, int]]


def allowed(objects: list[Object]) -> Connections:
    """Who reaches a pod of the mesh, the broker or any address, and at which port."""
    policies = Policies(of_kind(objects, "NetworkPolicy"))
    own = [Pod(component(each), NAMESPACE, labels(each)) for each in of_kind(objects, *WORKLOADS)]
    targets = [*own, *(pod for pod in OUTSIDERS if pod.name in ("nats", "world"))]
    pairs = ((a, b) for a, b in product([*own, *OUTSIDERS], targets) if a in own or b.name != "world")
    return {(a.name, b.name, port) for (a, b), port in product(pairs, PORTS) if policies.allow(a, b, port)}


def calls(kinds: set[str]) -> Connections:
    """Calls of the table of who may call what, between the kinds that a mesh has."""
    called = {name.rpartition(".")[2]: callers for name, callers in MAY_CALL.items() if callers != EVERY}
    pairs = {(caller, kind) for name, callers in called.items() for kind in SERVED_BY[name] for caller in callers}
    return {(caller, kind, RPC) for caller, kind in pairs if {caller, kind} <= kinds}


@pytest.mark.parametrize("values", VALUES)
def test_each_pod_reaches_what_its_work_needs_and_nothing_else(values: str) -> None:
    objects = render(values)
    pods = {component(each) for each in of_kind(objects, *WORKLOADS)}
    services = pods - {"admin", "credentials", "models"}
    downloads = {"tokenizer", "proposer", "verifier"} & services if values == "small-cpu" else set[str]()
    expected = (
        calls(services) | {(kind, "nats", NATS) for kind in services | (pods & {"admin"})} | {("nats", "nats", ROUTES)}
    )
    expected |= {(who, "world", WEB) for who in downloads | (pods & {"models", "credentials"})}
    expected |= {("credentials", "world", API)} if "credentials" in pods else set()
    if values == "production":
        expected |= {("ingress", "gateway", port) for port in (HTTP, GRPC)}
        expected |= {("prometheus", kind, METRICS) for kind in services} | {("prometheus", "nats", NATS_METRICS)}
    else:
        clients = {pod.name for pod in OUTSIDERS} - {"nats"}
        expected |= {(who, "gateway", port) for who in clients for port in (HTTP, GRPC)}
    assert allowed(objects) == expected


def test_without_policies_everybody_reaches_everything() -> None:
    found = allowed(render("small-cpu", "networkPolicy.enabled=false"))
    assert ("world", "verifier", RPC) in found
    assert ("stranger", "nats", NATS) in found
