"""Which pods may connect to which, by NetworkPolicies; the rules are those of networking.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has, with its name."""


class Pod(NamedTuple):
    """Something with an address; who is outside the cluster has no namespace and no labels."""

    name: str
    namespace: str | None
    labels: dict[str, str]


class Policies:
    """All policies of a cluster."""

    def __init__(self, policies: Iterable[dict[str, Any]]) -> None:
        self._policies = list(policies)

    def allow(self, source: Pod, target: Pod, port: int) -> bool:
        """Whether ``source`` may open a TCP connection to a ``port`` of ``target``."""
        return self._lets(source, "Egress", target, port) and self._lets(target, "Ingress", source, port)

    def _lets(self, pod: Pod, direction: str, peer: Pod, port: int) -> bool:
        """Whether ``pod`` is of no policy for the direction, or one of them has a rule for the peer and the port."""
        rules, peers = direction.lower(), "to" if direction == "Egress" else "from"
        own = [each for each in self._policies if direction in each["spec"]["policyTypes"] and _is_of(each, pod)]
        allowing = (rule for each in own for rule in each["spec"].get(rules) or [])
        return not own or any(
            _names_port(rule, port) and _names(rule.get(peers), peer, pod.namespace) for rule in allowing
        )


def _is_of(policy: dict[str, Any], pod: Pod) -> bool:
    return pod.namespace == policy["metadata"]["namespace"] and _matches(policy["spec"]["podSelector"], pod.labels)


def _names_port(rule: dict[str, Any], port: int) -> bool:
    return "ports" not in rule or any(each == {"protocol": "TCP", "port": port} for each in rule["ports"])


def _names(peers: list[dict[str, Any]] | None, pod: Pod, namespace: str | None) -> bool:
    """Whether one of ``peers`` is the pod; no peers are all. A block of addresses is taken to hold any address."""
    return not peers or any("ipBlock" in peer or _is_peer(peer, pod, namespace) for peer in peers)


def _is_peer(peer: dict[str, Any], pod: Pod, namespace: str | None) -> bool:
    if pod.namespace is None:
        return False
    spaces = peer.get("namespaceSelector")
    near = pod.namespace == namespace if spaces is None else _matches(spaces, {NAMESPACE_NAME: pod.namespace})
    return near and _matches(peer.get("podSelector", {}), pod.labels)


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "expressions are not known here"
    return bool(selector.get("matchLabels", {}).items() <= labels.items())
