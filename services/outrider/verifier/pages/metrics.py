"""The verifier's metrics of exchanged pages."""

from __future__ import annotations

from outrider.mesh.telemetry import counter, gauge

FETCHING = gauge("verifier_kv_fetching_requests", "Requests that wait for pages from a KV cache.")
CACHES = gauge("verifier_kv_caches", "KV caches in use.")
FETCHES = counter(
    "verifier_kv_fetches",
    "Requests by outcome of asking a KV cache: hit, miss, slower (than computing), late (for the deadline), failed, "
    "cancelled.",
    ["outcome"],
)
FETCHED_TOKENS = counter("verifier_kv_fetched_tokens", "Tokens of fetched pages, by tier.", ["tier"])
FETCHED_BYTES = counter("verifier_kv_fetched_bytes", "Bytes of fetched pages, by transport.", ["transport"])
FETCH_SECONDS = counter("verifier_kv_fetch_seconds", "Time that requests waited for a KV cache.")
SAVED_SECONDS = counter("verifier_kv_recompute_seconds", "Time that computing the fetched pages would have taken.")
OFFERED = counter(
    "verifier_kv_offered_pages",
    "Full pages by outcome of offering them: sent, dropped (too busy), failed.",
    ["outcome"],
)
REMOTE_PREFILLS = counter(
    "verifier_kv_handovers",
    "Prompts by outcome of asking another verifier for their pages: hit, slower (than computing here), busy, "
    "late, failed, cancelled.",
    ["outcome"],
)
REMOTE_PREFILL_SECONDS = counter(
    "verifier_kv_handover_seconds", "Time that requests waited for another verifier's pages."
)
GIVERS = gauge("verifier_kv_givers", "Verifiers that may be asked for pages.")
HANDED = counter("verifier_kv_handed_tokens", "Tokens of pages handed to other verifiers.")
