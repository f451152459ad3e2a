"""The processes of a mesh, before they start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from outrider.cli.options import ONE_EACH, UpOptions
from outrider.cli.plan import make_plan
from outrider.mesh.addresses import parted, require_free
from outrider.mesh.errors import ConfigError, Unavailable


def test_verifiers_that_compute_prompts_come_beside_those_that_are_asked_for(tmp_path: Path) -> None:
    options = UpOptions(port=0, counts={**ONE_EACH, "verifier": 2}, prefills=1, log_dir=tmp_path)
    verifiers = [spec for spec in make_plan(options).services if spec.kind == "verifier"]
    assert ["--role=prefill" in spec.command for spec in verifiers] == [False, False, True]
    assert len({spec.log for spec in verifiers}) == 3


def _gateways(tmp_path: Path, *sets: str) -> UpOptions:
    return UpOptions(port=0, counts={**ONE_EACH, "gateway": 2}, sets=list(sets), log_dir=tmp_path)


def test_gateways_share_the_port_and_nothing_else(tmp_path: Path) -> None:
    plan = make_plan(_gateways(tmp_path, "gateway.metrics_port=9090"))
    first, second = [set(spec.command) for spec in plan.services if spec.kind == "gateway"]
    assert {f"--port={plan.port}", "--share_port=true"} <= first & second
    grpc_port = plan.grpc.rpartition(":")[2]
    assert first - second == {f"--grpc_port={grpc_port}", "--metrics_port=9090"}
    assert second - first == {"--grpc_port=0", "--metrics_port=0"}


@pytest.mark.parametrize(
    "sets",
    [["gateway.share_port=false"], ["gateway.auth=keys", "gateway.limit_store=memory"]],
)
def test_what_several_gateways_cannot_have_is_refused(tmp_path: Path, sets: list[str]) -> None:
    with pytest.raises(ConfigError, match="several gateways need"):
        make_plan(_gateways(tmp_path, *sets))
    make_plan(UpOptions(port=0, sets=sets, log_dir=tmp_path))


def _is_free(port: int) -> bool:
    try:
        require_free("127.0.0.1", port)
    except Unavailable:
        return False
    return True


def test_ports_that_were_not_asked_for_are_held_until_their_servers_listen(tmp_path: Path) -> None:
    plan = make_plan(UpOptions(host="127.0.0.1", port=0, log_dir=tmp_path))
    ports = [plan.port, parted(plan.grpc)[1], parted(plan.nats_url)[1]]
    assert len(set(ports)) == 3
    for port in ports:
        assert _is_free(port)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))


def test_grpc_is_beside_the_port_that_was_asked_for_where_that_is_free(tmp_path: Path) -> None:
    port = next(port for port in range(20_000, 30_000) if _is_free(port) and _is_free(port + 1))
    options = UpOptions(host="127.0.0.1", port=port, log_dir=tmp_path)
    assert make_plan(options).grpc == f"127.0.0.1:{port + 1}"
    with socket.create_server(("127.0.0.1", port + 1)):
        assert parted(make_plan(options).grpc)[1] not in (port, port + 1)
