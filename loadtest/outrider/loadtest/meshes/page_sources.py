"""Meshes whose verifiers fetch the pages of prompts from other services; their answers are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.measure.local_mesh import LocalMesh

_FETCHED = "outrider_verifier_kv_fetched_tokens_total"
_SCARCE = {"verifier.pages": "400", "verifier.page_size": "4"}
"""1600 tokens: too few pages to keep a prompt until it is sent again."""
_ALWAYS = {"verifier.kv_cache": "always"}


@dataclass(frozen=True)
class PageSource:
    """A mesh, and the state of the prompts' pages in each of its passes, in order.

    Attributes:
        settings: settings over the defaults.
        processes: numbers of further processes, as parameters of `local_mesh.running`.
        metric: metric of verifiers that counts fetched tokens; None for a mesh that fetches none.
    """

    passes: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None

    def fetched_tokens(self, mesh: LocalMesh) -> float | None:
        """Tokens whose pages were fetched; None for a mesh that fetches none."""
        return None if self.metric is None else mesh.metric("verifier", self.metric) or 0.0


SOURCES = (
    PageSource(("cold", "warm")),
    PageSource(("stored", "fetched"), _SCARCE | _ALWAYS, {"kvcaches": 2}, _FETCHED),
    PageSource(
        ("stored", "fetched as far as they were not evicted"),
        _SCARCE | _ALWAYS | {"kvcache.quotas": "memory=16777216", "verifier.kv_cache_shared": "false"},
        {"kvcaches": 1},
        _FETCHED,
    ),
    PageSource(("computed by another verifier",), {"verifier.handover": "always"}, {"prefills": 1}, _FETCHED),
)
