"""Decides where a draft model or a head runs, in the verifier or in proposers (decision 34); shares cores and ports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from outrider.engine import store
from outrider.mesh.config import EffectiveSetting
from outrider.mesh.errors import ConfigError

SHIPPED = "pocket"
_MODEL = "model"
"""The drafter that reads draft models; `head` and `medusa` read heads."""
DRAFTERS_BESIDE_PROPOSERS = "auto,-model"
"""The verifier's local drafters when proposers run the draft model."""
NO_DRAFT_NOTE = "No draft model guesses: name one for this target with --draft."
SHARED_CORES_NOTE = (
    "The draft model runs inside the verifier: both would share the CPU's cores; --proposers 1 gives it a process "
    "of its own."
)

LAST_PORT = 65535

SettingsByKind = Mapping[str, Mapping[str, EffectiveSetting]]
Ports = dict[str, int]
"""Ports of one process by setting."""


@dataclass(frozen=True)
class Placement:
    """The number of proposers, and the settings that follow from it.

    Attributes:
        verifier: the verifier's settings of drafters, by key.
        notes: sentences for the user.
        proposer: the proposer's settings, by key.
    """

    proposers: int
    verifier: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    proposer: Mapping[str, str] = field(default_factory=dict)


def place(requested: int | None, settings: SettingsByKind) -> Placement:
    """The placement for ``settings``, by kind, with ``requested`` proposers; None chooses their number by the settings.

    The shipped draft model guesses for the shipped target only.

    Raises:
        ConfigError: the settings name two draft models.
    """
    verifier, draft = settings["verifier"], settings["proposer"]["model"].value
    if draft == SHIPPED:
        return _shipped(requested or 0, settings)
    drafter = _drafter_of(draft)
    verifier_draft = verifier["options"].value.get(drafter, {}).get("model")
    if verifier_draft not in (None, draft):
        raise ConfigError(
            f"--draft {draft} and verifier.options.{drafter}.model = {verifier_draft} differ: leave one of them out"
        )
    if requested:
        return _with_proposers(requested, settings, drafter)
    chosen = requested is not None or verifier_draft is not None
    if not chosen and (reason := _proposer_reason(settings, drafter)):
        return _with_proposers(1, settings, drafter, (reason,))
    if not _allows(verifier, drafter):
        return Placement(0, notes=(f"--draft is not used: verifier.drafters names neither auto nor {drafter}.",))
    return _inside(settings, drafter, () if chosen or drafter != _MODEL else (SHARED_CORES_NOTE,))


def _drafter_of(draft: str) -> str:
    try:
        return store.drafter_of(store.locate(draft))
    except store.ModelError:
        return _MODEL  # `require_model` says why it is not there


def _shipped(proposers: int, settings: SettingsByKind) -> Placement:
    verifier = settings["verifier"]
    if verifier["model"].value != SHIPPED:
        has_own = any(isinstance(own, Mapping) and "model" in own for own in verifier["options"].value.values())
        return Placement(0, notes=() if has_own else (NO_DRAFT_NOTE,))
    return Placement(0) if not proposers else _with_proposers(proposers, settings, _MODEL)


def _with_proposers(proposers: int, settings: SettingsByKind, drafter: str, notes: tuple[str, ...] = ()) -> Placement:
    verifier, proposer = settings["verifier"], settings["proposer"]
    if drafter != _MODEL:
        own = {"drafter": drafter, "target": verifier["model"].value}
        unset = {key: value for key, value in own.items() if proposer[key].source == "default"}
        return Placement(proposers, notes=notes, proposer=unset)
    configured = verifier["drafters"].source != "default" or "model" in verifier["options"].value
    return Placement(proposers, {} if configured else {"drafters": DRAFTERS_BESIDE_PROPOSERS}, notes)


def _inside(settings: SettingsByKind, drafter: str, notes: tuple[str, ...] = ()) -> Placement:
    """The verifier runs the ``drafter`` with the proposer's options; the verifier's own options override them."""
    verifier, proposer = settings["verifier"], settings["proposer"]
    proposer_options = {**proposer["options"].value, "model": proposer["model"].value}
    draft_options = {**proposer_options, **verifier["options"].value.get(drafter, {})}
    overrides = {
        f"options.{drafter}.{key}": json.dumps(value, ensure_ascii=False) for key, value in draft_options.items()
    }
    # auto alone leaves out draft models on a GPU, and Medusa heads everywhere.
    drafters = {"drafters": f"auto,{drafter}"} if verifier["drafters"].source == "default" else {}
    return Placement(0, drafters | overrides, notes)


def _proposer_reason(settings: SettingsByKind, drafter: str) -> str:
    """The reason to run the ``drafter`` in a proposer; empty if the verifier runs it."""
    verifier, proposer = settings["verifier"], settings["proposer"]
    devices = [service["device"].value for service in (verifier, proposer)]
    if proposer["drafter"].value != _MODEL:
        return f"The proposer runs {proposer['drafter'].value}, as proposer.drafter says."
    if drafter != _MODEL:
        return ""
    if not _allows(verifier, drafter):
        return "The draft model runs in a proposer: verifier.drafters names neither auto nor model."
    if "vocabulary_map" in proposer["options"].value:
        return "The draft model runs in a proposer: its vocabulary differs; --proposers 0 runs it in the verifier."
    if devices != ["cpu", "cpu"]:
        where = f"the verifier on {devices[0]}, the proposer on {devices[1]}"
        return f"The draft model runs in a proposer: {where}; --proposers 0 runs it in the verifier."
    return ""


def _allows(verifier: Mapping[str, EffectiveSetting], drafter: str) -> bool:
    drafters = verifier["drafters"]
    named = set(drafters.value)
    return drafters.source == "default" or (not {"auto", drafter}.isdisjoint(named) and f"-{drafter}" not in named)


def share_cores(cores: int, verifiers: int, proposers: int, settings: SettingsByKind) -> dict[str, dict[str, int]]:
    """CPU threads of each verifier and each proposer, by setting.

    Verifiers use all cores, less those of the proposers while a proposer works. Threads that are set stay.
    """
    equal = max(1, cores // (verifiers + proposers))
    proposer_threads = _configured_threads(settings["proposer"], "threads")
    proposer_threads = equal if proposer_threads is None else proposer_threads
    on_cpu = proposers if settings["proposer"]["device"].value == "cpu" else 0
    threads = _configured_threads(settings["verifier"], "threads")
    threads_beside = _configured_threads(settings["verifier"], "threads_beside")
    if threads is None:
        threads = max(1, cores // verifiers)
        threads_beside = (
            max(1, (cores - on_cpu * (proposer_threads or equal)) // verifiers)
            if threads_beside is None
            else threads_beside
        )
    return {
        "verifier": {"threads": threads, "threads_beside": threads_beside or 0},
        "proposer": {"threads": proposer_threads},
    }


def share_memory(verifiers: int, proposers: int, settings: SettingsByKind) -> dict[str, int]:
    """The verifiers' ``memory_sharers``, unless it is set: all verifiers, and on a GPU the proposers beside them."""
    verifier, proposer = settings["verifier"], settings["proposer"]
    if verifier["memory_sharers"].source != "default":
        return {}
    devices = {_gpu(service["device"].value) for service in (verifier, proposer)}
    beside = proposers if len(devices) == 1 and devices != {"cpu"} else 0
    return {"memory_sharers": verifiers + beside}


def own_ports(kind: str) -> tuple[str, ...]:
    """The settings of ports that each process of ``kind`` has for itself."""
    return ("metrics_port",) if kind == "gateway" else ("port", "metrics_port")


def share_ports(counts: Mapping[str, int], settings: SettingsByKind, taken: Iterable[int]) -> dict[str, list[Ports]]:
    """The ports of each process, by kind and setting, where settings say one; others are free ones.

    The first process of a kind has the port that is set; each further one has the next port that no other process has.

    Args:
        taken: ports of HTTP and gRPC, which further gateways share or find for themselves.

    Raises:
        ConfigError: ports end before all processes have one.
    """
    given = {
        (kind, key): port for kind in counts for key in own_ports(kind) if (port := int(settings[kind][key].value))
    }
    ports: dict[str, list[Ports]] = {kind: [{} for _ in range(count)] for kind, count in counts.items()}
    used = set(taken)
    for number in range(max(counts.values())):
        for (kind, key), port in given.items():
            if number < counts[kind]:
                free = next((each for each in range(port, LAST_PORT + 1) if each not in used), None)
                if free is None:
                    raise ConfigError(
                        f"{kind}.{key} = {port} leaves no port for each of {counts[kind]} {kind} processes: they count "
                        "upwards from it, past ports of others"
                    )
                used.add(free)
                ports[kind][number][key] = free
    return ports


def _gpu(device: str) -> str:
    return "cuda:0" if device == "cuda" else device


def _configured_threads(settings: Mapping[str, EffectiveSetting], key: str) -> int | None:
    """A number of threads that is set; None for a default."""
    threads = settings[key]
    return None if threads.source == "default" else int(threads.value)
