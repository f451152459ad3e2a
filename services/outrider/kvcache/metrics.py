"""What a KV cache measures of itself."""

from __future__ import annotations

from outrider.mesh.telemetry import counter, gauge

LOOKED_UP = counter("kvcache_lookup_pages", "Pages asked for by lookups, by whether they were held.", ["found"])
HIT_TOKENS = counter("kvcache_hit_tokens", "Tokens of pages that were handed out, by the tier they were in.", ["tier"])
SENT = counter("kvcache_sent_bytes", "Bytes of pages handed out, by transport.", ["transport"])
STORED = counter("kvcache_stored_bytes", "Bytes of pages written, by tier.", ["tier"])
REFUSED = counter("kvcache_refused_pages", "Pages offered that were not what their checksum says.")
EVICTED = counter(
    "kvcache_evicted_pages",
    "Pages that left a tier, by cause: quota, tenant (its own quota), ttl, damaged, ended (the process did).",
    ["tier", "cause"],
)
BYTES = gauge("kvcache_bytes", "Bytes of pages in a tier.", ["tier"])
PAGES = gauge("kvcache_pages", "Pages in a tier.", ["tier"])
