"""How the engines of one machine share its cores."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.mesh.config import Effective

Known = Mapping[str, Mapping[str, Effective]]


def share_cores(cores: int, verifiers: int, proposers: int, known: Known) -> dict[str, dict[str, int]]:
    """CPU threads of each verifier and each proposer, by setting.

    Verifiers have all cores, and leave the proposers' to them while a proposer works. What is set stays as it is.
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


def _set(settings: Mapping[str, Effective], key: str) -> int | None:
    """What is set of a number of threads; None where nothing is."""
    found = settings[key]
    return None if found.source == "default" else int(found.value)
