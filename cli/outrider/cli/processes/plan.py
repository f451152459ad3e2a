"""Plans the processes of a mesh from options and settings; checks everything before a process starts."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.processes.broker import BrokerPlan, plan_broker
from outrider.cli.processes.child import ProcessSpec
from outrider.cli.processes.keeper import StartError
from outrider.cli.processes.models import absolute, one_name, pin_models, require_model
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.placement import (
    LAST_PORT,
    SettingsByKind,
    place,
    share_cores,
    share_memory,
    share_ports,
)
from outrider.cli.processes.restarts import alone
from outrider.cli.processes.secure import Secured, secure
from outrider.cli.settings import Flags, effective, parse_sets
from outrider.mesh.addresses import hold_port, join, require_free
from outrider.mesh.config import EffectiveSetting
from outrider.mesh.config.sources import PREFIX
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.mesh.local_meshes import mesh_on
from outrider.native.levels import LevelError
from outrider.native.presence import notice
from outrider.native.share import ROOT, cores, sentence

OWNED = ("nats_url", "instance")
"""Settings that `outrider up` passes to every service itself."""
STOP_S = 10.0
"""Seconds that a service may take to end after it is drained."""


@dataclass(frozen=True)
class Plan:
    """The processes to run.

    Attributes:
        model: the name by which requests ask for the model.
        scheme: http, or https where the gateway has a certificate for its APIs.
        grpc: where the gateway, or the first of several, listens for gRPC.
        patience_s: seconds that each kind may take to drain and end.
        share: the share of the machine that the processes may use.
        secured: what --secure made.
    """

    model: str
    host: str
    port: int
    scheme: str
    grpc: str
    broker: BrokerPlan
    nats_wait_s: float
    services: list[ProcessSpec]
    patience_s: dict[str, float]
    log_dir: Path
    share: str
    notes: list[str]
    secured: Secured | None = None

    @property
    def address(self) -> str:
        """Where the gateway listens."""
        return join(self.host, self.port)

    @property
    def url(self) -> str:
        """Where clients of this machine reach the gateway."""
        return f"{self.scheme}://{join(_reachable(self.host), self.port)}"


def make_plan(options: UpOptions, root: Path = ROOT) -> Plan:
    """The plan for ``options`` on the machine whose ``proc`` and ``sys`` are in ``root``.

    Raises:
        ConfigError: a setting is wrong, or several gateways cannot share it.
        StartError: the gateway's port is taken, or a model is missing or cannot be brought.
    """
    flags = flags_of(options)
    settings = {kind: effective(kind, options.config, flags) for kind in (*options.counts, "proposer")}
    if pin_models(settings, flags):
        settings = {kind: effective(kind, options.config, flags) for kind in settings}
    host, port = _gateway_address(settings)
    grpc_host, grpc_port = _grpc_address(settings, host, port)
    flags["gateway"] |= {"host": host, "port": str(port), "grpc_port": str(grpc_port)}
    placement = place(options.proposers, settings)
    flags["verifier"] |= placement.verifier
    flags["proposer"] |= placement.proposer
    counts, notes = {**options.counts, "proposer": placement.proposers}, [*_compiled_code_notes(), *placement.notes]
    for kind in counts:
        require_model(kind, settings[kind])
    name = one_name(settings)
    if options.aliases:
        known = settings["gateway"]["aliases"].value
        flags["gateway"]["aliases"] = json.dumps(known | dict.fromkeys(options.aliases, name))
    log_dir = options.log_dir or Path(tempfile.mkdtemp(prefix="outrider-"))
    log_dir.mkdir(parents=True, exist_ok=True)
    secured, more = secure(log_dir, host, settings) if options.secure else (None, {})
    for kind, values in more.items():
        flags[kind] |= values
    settings = {kind: effective(kind, options.config, flags) for kind in settings} if secured else settings
    if options.counts["gateway"] > 1:
        _require_sharing(settings["gateway"])
    if settings["gateway"]["share_port"].source == "default":
        flags["gateway"]["share_port"] = "true"  # also of a single gateway: its successor starts beside it
        settings["gateway"] = effective("gateway", options.config, flags)
    broker = plan_broker(options, settings, log_dir)
    if broker.process and not secured and settings["gateway"]["auth"].value == "keys":
        notes = [*notes, f"The gateway asks for keys: `outrider keys create --nats-url {broker.url} ...` makes them."]
    processes, programs = _process_counts(counts, options), _programs(options, settings)
    numbers = processes["verifier"], processes["proposer"]
    threads = share_cores(cores(root), *numbers, settings)
    flags["verifier"] |= {key: str(number) for key, number in share_memory(*numbers, settings).items()}
    ports = share_ports(processes, settings, (port, grpc_port))
    return Plan(
        model=name,
        host=host,
        port=port,
        scheme="https" if settings["gateway"]["door_certificate"].value else "http",
        grpc=join(_reachable(grpc_host), grpc_port),
        broker=broker,
        nats_wait_s=settings["gateway"]["nats_wait_s"].value,
        services=[
            _service_spec(
                kind, number, programs[kind], own_flags, threads.get(kind, {}), options, settings, broker, log_dir
            )
            for kind, own_ports in ports.items()
            for number, own_flags in enumerate(({**flags.get(kind, {}), **each} for each in own_ports), 1)
        ],
        patience_s={kind: values["drain_s"].value + STOP_S for kind, values in settings.items()},
        log_dir=log_dir,
        share=sentence(root),
        notes=notes,
        secured=secured,
    )


def _compiled_code_notes() -> list[str]:
    """A note if compiled code is not available, unless ``OUTRIDER_KERNELS`` asks for none."""
    uses_compiled_code = os.environ.get("OUTRIDER_KERNELS", "auto") in ("auto", "native")
    try:
        return [note] if uses_compiled_code and (note := notice()) else []
    except LevelError as error:
        raise ConfigError(str(error)) from None


def flags_of(options: UpOptions) -> Flags:
    """Settings that options state, by service; `ConfigError` for one that `outrider up` sets itself."""
    flags = parse_sets(options.sets)
    for kind, values in flags.items():
        if reserved := [key for key in OWNED if key in values]:
            raise ConfigError(f"--set {kind}.{reserved[0]}: `outrider up` sets it itself")
    model = absolute(options.model)
    options_by_key = {
        ("gateway", "host"): options.host,
        ("gateway", "port"): options.port,
        ("verifier", "model"): model,
        ("tokenizer", "model"): model,
        ("proposer", "model"): absolute(options.draft),
        ("proposer", "target"): model,
    }
    for (kind, key), value in options_by_key.items():
        if value is not None:
            flags[kind][key] = str(value)
    return flags


def _gateway_address(settings: SettingsByKind) -> tuple[str, int]:
    host, port = settings["gateway"]["host"].value, settings["gateway"]["port"].value
    try:
        require_free(host, port)
        return host, port or hold_port(host)
    except Unavailable as error:
        mesh = mesh_on(port)
        there = f": your mesh of {mesh.model} is there, and `outrider stop --url {mesh.url}` ends it" if mesh else ""
        raise StartError(f"{error.message}{there}; `--port 0` takes a free port") from error


def _grpc_address(settings: SettingsByKind, http_host: str, http_port: int) -> tuple[str, int]:
    """Where gRPC is served: as set; else at the port after a given HTTP port, if free; else at any free port."""
    gateway = settings["gateway"]
    host, port = gateway["grpc_host"].value or http_host, gateway["grpc_port"].value
    preferred = port or (gateway["port"].value and min(http_port + 1, LAST_PORT))
    try:
        require_free(host, preferred)
        return host, preferred or hold_port(host)
    except Unavailable as error:
        if port:
            raise StartError(error.message) from error
        return host, hold_port(host)


def _require_sharing(settings: Mapping[str, EffectiveSetting]) -> None:
    """`ConfigError` if the settings keep several gateways from sharing one port."""
    sharing = settings["share_port"]
    if sharing.source != "default" and not sharing.value:
        raise ConfigError("gateway.share_port = false: several gateways need it true, or left out")
    if settings["auth"].value == "keys" and settings["limit_store"].value == "memory":
        raise ConfigError("gateway.limit_store = memory counts in one process: several gateways need nats")


def _reachable(host: str) -> str:
    """The host by which clients on this machine reach a server that listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _process_counts(counts: Mapping[str, int], options: UpOptions) -> dict[str, int]:
    """Processes by kind; verifiers that compute prompts for others come last among the verifiers."""
    return {**counts, "verifier": counts["verifier"] + options.prefills}


def _programs(options: UpOptions, settings: SettingsByKind) -> dict[str, str]:
    """The module that processes of each kind run."""
    programs = {kind: f"outrider.{kind}" for kind in settings}
    for text in options.programs:
        kind, _, module = text.partition("=")
        if kind not in settings or not module:
            raise ConfigError(
                f"--program {text}: it is written KIND=MODULE, where KIND is one of {', '.join(settings)}"
            )
        programs[kind] = module
    return programs


def _service_spec(
    kind: str,
    number: int,
    program: str,
    flags: Mapping[str, object],
    threads: Mapping[str, int],
    options: UpOptions,
    settings: SettingsByKind,
    broker: BrokerPlan,
    log_dir: Path,
) -> ProcessSpec:
    command = [sys.executable, "-m", program]
    if broker.credentials:
        command.append(f"--nats-credentials={broker.credentials}")
    if options.config:
        command.append(f"--config={options.config}")
    values = {**flags, **threads}
    if kind == "verifier" and number > options.counts[kind]:
        values["role"] = "prefill"
    if kind == "gateway" and number > 1:
        values["grpc_port"] = "0"
    environment = {f"{PREFIX}{kind.upper()}_NATS_URL": broker.url}  # may hold a password, which all users read in `ps`
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads["threads"])
    command += [f"--{key}={value}" for key, value in values.items()]
    return ProcessSpec(kind, command, log_dir / f"{kind}-{number}.log", environment, alone=alone(kind, settings))
