"""The KV cache's metrics."""

from __future__ import annotations

from outrider.mesh.telemetry import counter, gauge

LOOKED_UP = counter("kvcache_lookup_pages", "Pages in lookups, by whether the cache held them.", ["found"])
HIT_TOKENS = counter("kvcache_hit_tokens", "Tokens of pages sent, by tier.", ["tier"])
SENT = counter("kvcache_sent_bytes", "Bytes of pages sent, by transport.", ["transport"])
STORED = counter("kvcache_stored_bytes", "Bytes of pages written, by tier.", ["tier"])
REFUSED = counter("kvcache_refused_pages", "Offered pages refused because of a wrong checksum.")
EVICTED = counter(
    "kvcache_evicted_pages",
    "Pages that left a tier, by cause: quota, tenant (its own quota), ttl, damaged, ended (the process ended).",
    ["tier", "cause"],
)
BYTES = gauge("kvcache_bytes", "Bytes of pages in a tier.", ["tier"])
PAGES = gauge("kvcache_pages", "Pages in a tier.", ["tier"])
