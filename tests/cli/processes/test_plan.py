"""The processes of a mesh, before they start."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from outrider.cli.processes.options import ONE_EACH, UpOptions
from outrider.cli.processes.plan import Plan, make_plan
from outrider.engine.models import pocket
from outrider.mesh.addresses import hold_port, require_free
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.native import share
from outrider.native.presence import notice

from tests.machines import machine


def test_prefill_verifiers_are_started_beside_the_others(tmp_path: Path) -> None:
    options = UpOptions(port=0, counts={**ONE_EACH, "verifier": 2}, prefills=1, log_dir=tmp_path)
    verifiers = [spec for spec in make_plan(options).services if spec.kind == "verifier"]
    assert ["--role=prefill" in spec.command for spec in verifiers] == [False, False, True]
    assert len({spec.log for spec in verifiers}) == 3


def test_a_level_of_compiled_code_that_there_is_not_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_NATIVE_LEVEL", "mmx")
    with pytest.raises(ConfigError, match="OUTRIDER_NATIVE_LEVEL is 'mmx'"):
        make_plan(UpOptions(port=0, log_dir=tmp_path))


def _gateways(tmp_path: Path, *sets: str) -> UpOptions:
    return UpOptions(port=0, counts={**ONE_EACH, "gateway": 2}, sets=list(sets), log_dir=tmp_path)


def test_gateways_share_the_port_and_nothing_else(tmp_path: Path) -> None:
    plan = make_plan(_gateways(tmp_path, "gateway.metrics_port=9090"))
    first, second = [set(spec.command) for spec in plan.services if spec.kind == "gateway"]
    assert {f"--port={plan.port}", "--share_port=true"} <= first & second
    grpc_port = plan.grpc.rpartition(":")[2]
    assert first - second == {f"--grpc_port={grpc_port}", "--metrics_port=9090"}
    assert second - first == {"--grpc_port=0", "--metrics_port=9091"}


def _ports(plan: Plan, key: str) -> dict[str, list[int]]:
    """Ports by kind, in the order of processes."""
    found: dict[str, list[int]] = {}
    for spec in plan.services:
        ports = [int(part.partition("=")[2]) for part in spec.command if part.startswith(f"--{key}=")]
        found.setdefault(spec.kind, []).extend(ports)
    return found


def test_ports_of_further_processes_count_upwards_past_those_of_others(tmp_path: Path) -> None:
    sets = ["verifier.metrics_port=9101", "proposer.metrics_port=9102", "verifier.port=9200"]
    counts = {**ONE_EACH, "verifier": 2}
    options = UpOptions(port=0, counts=counts, prefills=1, proposers=2, sets=sets, log_dir=tmp_path)
    plan = make_plan(options)
    metrics = _ports(plan, "metrics_port")
    assert (metrics["verifier"], metrics["proposer"], metrics["tokenizer"]) == ([9101, 9103, 9105], [9102, 9104], [])
    assert _ports(plan, "port")["verifier"] == [9200, 9201, 9202]


def test_a_port_for_the_whole_mesh_is_that_of_one_process_and_the_others_count_upwards(tmp_path: Path) -> None:
    http = hold_port()
    options = UpOptions(port=http, sets=[f"mesh.metrics_port={http}"], log_dir=tmp_path)
    plan = make_plan(options)
    ports = [port for ports in _ports(plan, "metrics_port").values() for port in ports]
    assert len(set(ports)) == len(plan.services)
    assert not {http, port_of(plan.grpc)} & set(ports)
    assert max(ports) - http <= len(ports) + 1


def test_ports_that_run_out_are_refused(tmp_path: Path) -> None:
    options = UpOptions(
        port=0, counts={**ONE_EACH, "verifier": 2}, sets=["verifier.metrics_port=65535"], log_dir=tmp_path
    )
    with pytest.raises(ConfigError, match=r"verifier\.metrics_port = 65535"):
        make_plan(options)


@pytest.mark.parametrize(
    ("sets", "names"),
    [
        (["tokenizer.served_name=X"], "'X' by the tokenizer and 'pocket' by the verifier"),
        (["verifier.served_name=X"], "'pocket' by the tokenizer and 'X' by the verifier"),
        ([f"verifier.model={pocket.directory('target')}"], "'pocket' by the tokenizer and 'target' by the verifier"),
    ],
)
def test_a_model_with_two_names_is_refused(tmp_path: Path, sets: list[str], names: str) -> None:
    with pytest.raises(ConfigError, match=f"served as {names}.*tokenizer.served_name and verifier.served_name"):
        make_plan(UpOptions(port=0, sets=sets, log_dir=tmp_path))
    same = [*sets, "tokenizer.served_name=Y", "verifier.served_name=Y"]
    make_plan(UpOptions(port=0, sets=same, log_dir=tmp_path))


def test_aliases_are_further_names_of_the_model_beside_those_that_are_set(tmp_path: Path) -> None:
    sets = ['gateway.aliases={"old":"pocket"}']
    plan = make_plan(UpOptions(port=0, aliases=["gpt-4o", "mine"], sets=sets, log_dir=tmp_path))
    (gateway,) = [spec for spec in plan.services if spec.kind == "gateway"]
    assert '--aliases={"old": "pocket", "gpt-4o": "pocket", "mine": "pocket"}' in gateway.command
    assert plan.model == "pocket"


@pytest.mark.parametrize(
    "sets",
    [["gateway.share_port=false"], ["gateway.auth=keys", "gateway.limit_store=memory"]],
)
def test_settings_that_several_gateways_cannot_share_are_refused(tmp_path: Path, sets: list[str]) -> None:
    with pytest.raises(ConfigError, match="several gateways need"):
        make_plan(_gateways(tmp_path, *sets))
    make_plan(UpOptions(port=0, sets=sets, log_dir=tmp_path))


def _is_free(port: int) -> bool:
    try:
        require_free("127.0.0.1", port)
    except Unavailable:
        return False
    return True


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize(
    ("sets", "sharers"),
    [
        ([], "3"),
        (["verifier.device=cuda"], "3"),
        (["verifier.device=cuda", "proposer.device=cuda:0"], "5"),
        (["verifier.memory_sharers=7"], "7"),
    ],
)
def test_verifiers_share_memory_and_on_a_gpu_with_the_proposers_there(
    tmp_path: Path, sets: list[str], sharers: str
) -> None:
    verifiers, _, _ = _planned(tmp_path, *sets, counts={**UpOptions().counts, "verifier": 3}, proposers=2)
    assert {flags["memory_sharers"] for flags in verifiers} == {sharers}


def test_chosen_ports_are_held_until_their_servers_listen(tmp_path: Path) -> None:
    plan = make_plan(UpOptions(host="127.0.0.1", port=0, log_dir=tmp_path))
    ports = [plan.port, port_of(plan.grpc), port_of(plan.broker.url)]
    assert len(set(ports)) == 3
    for port in ports:
        assert _is_free(port)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))


def test_grpc_listens_at_the_port_after_a_given_port_if_free(tmp_path: Path) -> None:
    port = next(port for port in range(20_000, 30_000) if _is_free(port) and _is_free(port + 1))
    options = UpOptions(host="127.0.0.1", port=port, log_dir=tmp_path)
    assert make_plan(options).grpc == f"127.0.0.1:{port + 1}"
    with socket.create_server(("127.0.0.1", port + 1)):
        assert port_of(make_plan(options).grpc) not in (port, port + 1)


CORES = share.cores()
DRAFT = pocket.directory("draft")
HERE = "The draft model runs inside the verifier: "
THERE = "The draft model runs in a proposer: "


def _planned(
    tmp_path: Path, *sets: str, root: Path = share.ROOT, **options: Any
) -> tuple[list[dict[str, str]], list[dict[str, str]], str]:
    """Flags of each verifier and each proposer, and the notes on them for the user."""
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, sets=list(sets), **options), root)
    flags_by_kind = {"verifier": [], "proposer": []}
    for spec in plan.services:
        if spec.kind in flags_by_kind:
            flags_by_kind[spec.kind].append(
                dict(part[2:].split("=", 1) for part in spec.command if part.startswith("--"))
            )
    notes = [note for note in plan.notes if note != notice()]
    return flags_by_kind["verifier"], flags_by_kind["proposer"], " ".join(notes)


def test_a_given_draft_model_runs_inside_the_verifier_if_both_would_share_cores(tmp_path: Path) -> None:
    [verifier], proposers, note = _planned(tmp_path, draft=DRAFT)
    assert (proposers, verifier["drafters"]) == ([], "auto,model")
    assert verifier["options.model.model"] == f'"{DRAFT}"'
    assert verifier["threads"] == str(CORES)
    assert note == f"{HERE}both would share the CPU's cores; --proposers 1 gives it a process of its own."


def test_options_of_the_proposer_s_draft_model_hold_inside_the_verifier_too(tmp_path: Path) -> None:
    sets = ["proposer.options.children=2", "proposer.options.rounds=3", "verifier.options.model.rounds=1"]
    [verifier], _, _ = _planned(tmp_path, *sets, draft=DRAFT)
    options = {key: value for key, value in verifier.items() if key.startswith("options")}
    assert options == {
        "options.model.model": f'"{DRAFT}"',
        "options.model.children": "2",
        "options.model.rounds": "1",
    }


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (
            ["verifier.device=cuda"],
            "the verifier on cuda, the proposer on cpu; --proposers 0 runs it in the verifier.",
        ),
        (["proposer.device=cuda:1"], "the verifier on cpu, the proposer on cuda:1; --proposers 0"),
        (["verifier.drafters=ngram"], "verifier.drafters names neither auto nor model."),
        (["proposer.options.vocabulary_map=ids.json"], "its vocabulary differs; --proposers 0"),
    ],
)
def test_a_draft_model_has_a_proposer_where_the_verifier_cannot_run_it_as_well(
    tmp_path: Path, sets: list[str], why: str
) -> None:
    [verifier], proposers, note = _planned(tmp_path, *sets, draft=DRAFT)
    assert [proposer["model"] for proposer in proposers] == [str(DRAFT)]
    assert verifier["drafters"] in ("auto,-model", "ngram")
    assert not any(key.startswith("options") for key in verifier)
    assert note.startswith(THERE + why)


def test_the_number_of_proposers_is_an_order(tmp_path: Path) -> None:
    [verifier], proposers, note = _planned(tmp_path, draft=DRAFT, proposers=2)
    assert (len(proposers), verifier["drafters"], note) == (2, "auto,-model", "")
    [verifier], proposers, note = _planned(tmp_path, "verifier.device=cuda", draft=DRAFT, proposers=0)
    assert (proposers, verifier["drafters"], note) == ([], "auto,model", "")
    _, proposers, note = _planned(tmp_path, "verifier.drafters=ngram", draft=DRAFT, proposers=0)
    assert proposers == []
    assert note == "--draft is not used: verifier.drafters names neither auto nor model."


def test_heads_are_read_by_their_drafter_in_the_verifier_unless_proposers_are_asked_for(tmp_path: Path) -> None:
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    (head / "model.safetensors").touch()
    [verifier], proposers, note = _planned(tmp_path, "proposer.options.children=1", "verifier.device=cuda", draft=head)
    assert (proposers, note, verifier["drafters"]) == ([], "", "auto,head")
    assert (verifier["options.head.model"], verifier["options.head.children"]) == (f'"{head}"', "1")
    for sets, more in (((), {"proposers": 1}), (("proposer.drafter=head",), {})):
        [verifier], [proposer], _ = _planned(tmp_path, *sets, draft=head, **more)
        assert (proposer["drafter"], proposer["model"], proposer["target"]) == ("head", str(head), "pocket")
        assert "drafters" not in verifier
    with pytest.raises(ConfigError, match=r"verifier\.options\.head\.model = /a differ"):
        _planned(tmp_path, "verifier.options.head.model=/a", draft=head)
    [verifier], _, _ = _planned(tmp_path, draft=pocket.directory("medusa"))
    assert verifier["drafters"] == "auto,medusa"
    assert verifier["options.medusa.model"] == f'"{pocket.directory("medusa")}"'


def test_a_draft_model_that_the_verifier_was_given_stays_there(tmp_path: Path) -> None:
    given = f"verifier.options.model.model={DRAFT}"
    for options in ({}, {"draft": DRAFT}):
        _, proposers, note = _planned(tmp_path, given, **options)
        assert (proposers, note) == ([], "")
    [verifier], proposers, _ = _planned(tmp_path, given, proposers=1)
    assert len(proposers) == 1
    assert "drafters" not in verifier
    with pytest.raises(ConfigError, match=r"--draft /a and verifier\.options\.model\.model"):
        _planned(tmp_path, given, draft=Path("/a"))


def test_the_shipped_pair_has_its_draft_model_inside_the_verifier_and_a_foreign_target_none(tmp_path: Path) -> None:
    [verifier], proposers, note = _planned(tmp_path)
    assert (proposers, note) == ([], "")
    assert "drafters" not in verifier
    foreign = {"model": pocket.directory("target")}
    assert _planned(tmp_path, **foreign)[1:] == (
        [],
        "No draft model guesses: name one for this target with --draft.",
    )
    for drafter in ("model", "head"):
        assert _planned(tmp_path, f"verifier.options.{drafter}.model={DRAFT}", **foreign)[1:] == ([], "")


@pytest.mark.parametrize(
    ("cores", "verifiers", "proposers", "sets", "threads"),
    [
        (2, 1, 0, [], (2, 2, None)),
        (2, 1, 1, [], (2, 1, 1)),
        (16, 1, 1, [], (16, 8, 8)),
        (16, 2, 2, [], (8, 4, 4)),
        (16, 1, 2, ["proposer.threads=1"], (16, 14, 1)),
        (16, 1, 1, ["verifier.threads=5"], (5, 0, 8)),
        (16, 1, 1, ["verifier.threads_beside=3"], (16, 3, 8)),
        (16, 1, 1, ["proposer.device=cuda"], (16, 16, 8)),
        (1, 2, 2, [], (1, 1, 1)),
    ],
)
def test_verifiers_have_all_cores_and_leave_the_proposers_theirs_while_one_works(
    tmp_path: Path,
    cores: int,
    verifiers: int,
    proposers: int,
    sets: list[str],
    threads: tuple[int, int, int | None],
) -> None:
    counts, root = {**ONE_EACH, "verifier": verifiers}, machine(tmp_path / "machine", affinity=f"0-{cores - 1}")
    verifier, proposer, _ = _planned(tmp_path, *sets, root=root, counts=counts, proposers=proposers)
    alone, beside, proposing = threads
    wanted = {"threads": str(alone), "threads_beside": str(beside)}
    assert all(wanted.items() <= each.items() for each in verifier)
    assert [each["threads"] for each in proposer] == [str(proposing)] * proposers


@pytest.mark.parametrize(("verifiers", "threads"), [(1, "4"), (2, "2")])
def test_a_quota_pays_for_the_threads_of_a_mesh_on_a_machine_of_more_cores(
    tmp_path: Path, verifiers: int, threads: str
) -> None:
    files = {"pod/cpu.max": "450000 100000", "pod/memory.max": str(3 << 30)}
    root = machine(tmp_path / "machine", files, group="/pod")
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, counts={**ONE_EACH, "verifier": verifiers}), root)
    assert plan.share == "4 of 8 cores (a quota of 4.5 CPUs), 3.0 of 16.0 GiB of memory"
    specs = [spec for spec in plan.services if spec.kind == "verifier"]
    assert {f"--threads={threads}" in spec.command for spec in specs} == {True}
    assert {spec.environment["OMP_NUM_THREADS"] for spec in specs} == {threads}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("verifer.pages=8", "did you mean verifier?"),
        ("verifier.pages", "SERVICE.KEY=VALUE"),
        ("verifier.pages=few", "pages"),
        ("verifier.option.model.model=x", "did you mean options?"),
        ("verifier.options.model=x", "expected `key=value`"),
        ("mesh.log_level=loud", "debug, info, warning, error"),
        ("verifier.instance=a", "sets it itself"),
    ],
)
def test_a_setting_that_is_wrong_stops_everything_before_it_starts(given: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        make_plan(UpOptions(port=0, sets=[given], log_dir=tmp_path))


def test_a_program_runs_in_place_of_a_service(tmp_path: Path) -> None:
    plan = make_plan(UpOptions(port=0, programs=["verifier=outrider.benches.verifier.always"], log_dir=tmp_path))
    modules = {spec.kind: spec.command[2] for spec in plan.services}
    assert modules["verifier"] == "outrider.benches.verifier.always"
    assert modules["gateway"] == "outrider.gateway"


@pytest.mark.parametrize("given", ["verifer=module", "verifier", "verifier="])
def test_a_program_of_no_service_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--program {given}"):
        make_plan(UpOptions(port=0, programs=[given], log_dir=tmp_path))


def test_a_password_of_the_broker_is_on_no_command_line(tmp_path: Path) -> None:
    plan = make_plan(UpOptions(port=0, nats_url="nats://user:s3cret@127.0.0.1:1", log_dir=tmp_path))
    assert not [spec.command for spec in plan.services if "s3cret" in " ".join(spec.command)]
    assert all("s3cret" in spec.environment[f"OUTRIDER_{spec.kind.upper()}_NATS_URL"] for spec in plan.services)
