"""Where the draft model runs: inside the verifier or in proposers (decision 34), and how both share the cores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.mesh.config import EffectiveSetting
from outrider.mesh.errors import ConfigError

SHIPPED = "pocket"
WITH_PROPOSERS = "ngram,suffix"
"""The verifier's local drafters when proposers run the draft model."""
INSIDE = "auto,model"
"""The verifier's local drafters when it runs a given draft model; ``auto`` alone means none on a GPU."""
NO_DRAFT = "No draft model guesses: name one for this target with --draft."
SHARED = (
    "The draft model runs inside the verifier: both would share the CPU's cores; --proposers 1 gives it a process "
    "of its own."
)
NOT_USED = "The draft model is not used: --proposers is 0, and verifier.drafters names neither auto nor model."

Known = Mapping[str, Mapping[str, EffectiveSetting]]


@dataclass(frozen=True)
class Placement:
    """How many proposers run, and what follows for the verifier.

    Attributes:
        verifier: the verifier's settings of drafters, by key.
        notes: sentences for the user.
    """

    proposers: int
    verifier: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def place(ordered: int | None, known: Known) -> Placement:
    """The placement for the settings ``known``, with ``ordered`` proposers; None chooses their number by the settings.

    The shipped draft model guesses for the shipped target only.

    Raises:
        ConfigError: the settings name two draft models.
    """
    verifier, draft = known["verifier"], known["proposer"]["model"].value
    inside = verifier["options"].value.get("model", {}).get("model")
    if draft == SHIPPED:
        return _shipped(ordered or 0, verifier, inside is not None)
    if inside not in (None, draft):
        raise ConfigError(f"--draft {draft} and verifier.options.model.model = {inside} differ: leave one of them out")
    if ordered:
        return _with_proposers(ordered, verifier)
    if ordered is None and not inside:
        return _with_proposers(1, verifier, (why,)) if (why := _why_proposers(known)) else _inside(known, (SHARED,))
    return _inside(known) if _takes_models(verifier) else Placement(0, notes=(NOT_USED,))


def _shipped(proposers: int, verifier: Mapping[str, EffectiveSetting], inside: bool) -> Placement:
    if verifier["model"].value != SHIPPED:
        return Placement(0, notes=() if inside else (NO_DRAFT,))
    return Placement(0) if not proposers else _with_proposers(proposers, verifier)


def _with_proposers(proposers: int, verifier: Mapping[str, EffectiveSetting], notes: tuple[str, ...] = ()) -> Placement:
    own = verifier["drafters"].source != "default" or "model" in verifier["options"].value
    return Placement(proposers, {} if own else {"drafters": WITH_PROPOSERS}, notes)


def _inside(known: Known, notes: tuple[str, ...] = ()) -> Placement:
    """The verifier runs the draft model with the proposer's options; the verifier's own options override them."""
    verifier, proposer = known["verifier"], known["proposer"]
    given = {**proposer["options"].value, "model": proposer["model"].value}
    options = {**given, **verifier["options"].value.get("model", {})}
    settings = {f"options.model.{key}": json.dumps(value, ensure_ascii=False) for key, value in options.items()}
    drafters = {"drafters": INSIDE} if verifier["drafters"].source == "default" else {}
    return Placement(0, drafters | settings, notes)


def _why_proposers(known: Known) -> str:
    """Why a proposer runs the draft model; empty if the verifier runs it."""
    verifier, proposer = known["verifier"], known["proposer"]
    devices = [settings["device"].value for settings in (verifier, proposer)]
    if proposer["drafter"].value != "model":
        return f"The proposer runs {proposer['drafter'].value}, as proposer.drafter says."
    if not _takes_models(verifier):
        return "The draft model runs in a proposer: verifier.drafters names neither auto nor model."
    if "vocabulary_map" in proposer["options"].value:
        return "The draft model runs in a proposer: its vocabulary differs; --proposers 0 runs it in the verifier."
    if devices != ["cpu", "cpu"]:
        where = f"the verifier on {devices[0]}, the proposer on {devices[1]}"
        return f"The draft model runs in a proposer: {where}; --proposers 0 runs it in the verifier."
    return ""


def _takes_models(verifier: Mapping[str, EffectiveSetting]) -> bool:
    drafters = verifier["drafters"]
    return drafters.source == "default" or not {"auto", "model"}.isdisjoint(drafters.value)


def share_cores(cores: int, verifiers: int, proposers: int, known: Known) -> dict[str, dict[str, int]]:
    """CPU threads of each verifier and each proposer, by setting.

    Verifiers use all cores, less those of the proposers while a proposer works. Threads that are set stay.
    """
    equal = max(1, cores // (verifiers + proposers))
    proposing = _set(known["proposer"], "threads")
    proposing = equal if proposing is None else proposing
    on_cpu = proposers if known["proposer"]["device"].value == "cpu" else 0
    alone = _set(known["verifier"], "threads")
    beside = _set(known["verifier"], "threads_beside")
    if alone is None:
        alone = max(1, cores // verifiers)
        beside = max(1, (cores - on_cpu * (proposing or equal)) // verifiers) if beside is None else beside
    return {"verifier": {"threads": alone, "threads_beside": beside or 0}, "proposer": {"threads": proposing}}


def _set(settings: Mapping[str, EffectiveSetting], key: str) -> int | None:
    """A number of threads that is set; None for a default."""
    threads = settings[key]
    return None if threads.source == "default" else int(threads.value)
