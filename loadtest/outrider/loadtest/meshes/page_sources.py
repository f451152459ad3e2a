"""Meshes whose verifiers get the pages of their prompts from elsewhere, for answers that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.loadtest.meshes.local_mesh import LocalMesh

_FETCHED = "outrider_verifier_kv_fetched_tokens_total"
_SCARCE = {"verifier.pages": "400", "verifier.page_size": "4"}
"""Too few to remember a prompt until it is asked again: 1600 tokens."""
_ALWAYS = {"verifier.kv_cache": "always"}


@dataclass(frozen=True)
class Source:
    """A mesh, and what the prompts' pages are in each of its passes, one after the other.

    Attributes:
        settings: over the defaults.
        processes: of kinds beside one verifier and its proposer, as `local_mesh.running` takes them.
        metric: of verifiers, which counts the tokens that came from elsewhere; None where none do.
    """

    passes: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None

    def came(self, mesh: LocalMesh) -> float | None:
        """Tokens whose pages came from elsewhere; None where none should."""
        return None if self.metric is None else mesh.metric("verifier", self.metric) or 0.0


SOURCES = (
    Source(("cold", "warm")),
    Source(("stored", "fetched"), _SCARCE | _ALWAYS, {"kvcaches": 2}, _FETCHED),
    Source(
        ("stored", "fetched as far as they were not evicted"),
        _SCARCE | _ALWAYS | {"kvcache.quotas": "memory=16777216", "verifier.kv_cache_shared": "false"},
        {"kvcaches": 1},
        _FETCHED,
    ),
    Source(("handed over",), {"verifier.handover": "always"}, {"prefills": 1}, _FETCHED),
)
