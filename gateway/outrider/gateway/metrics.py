"""The gateway's metrics."""

from __future__ import annotations

from outrider.mesh.telemetry import counter, gauge, histogram

requests = counter("gateway_requests", "HTTP requests answered.", ["route", "status"])
calls = counter("gateway_calls", "Calls over gRPC that have ended.", ["method", "code"])
messages = counter("gateway_messages", "Requests over NATS answered.", ["endpoint", "status"])
limited = counter("gateway_limited", "Requests refused because a caller's limit was reached.", ["limit"])
abuse_signals = counter("gateway_abuse_signals", "Callers that looked like abuse, once a window.", ["signal"])
abuse_delays = counter("gateway_abuse_delays", "Requests delayed because their caller looked like abuse.")
limit_writes = counter("gateway_limit_writes", "Writes to ledgers of limits, made or raced by another.", ["outcome"])
streams = gauge("gateway_streams", "Generations in flight.")
unplaced = gauge("gateway_unplaced_requests", "Requests that no verifier has taken yet.", ["model"])
tokens = counter("gateway_tokens", "Generated tokens delivered.")
first_token = histogram("gateway_first_token_seconds", "From the submission of a request to its first token.")
follows = counter("gateway_follows", "Streams taken up over gRPC because the broker did not deliver.", ["reason"])
resumptions = counter("gateway_resumptions", "Streams that went on with another verifier.")
replays = counter("gateway_replays", "Streams that were taken up again by their id.")
unwritten = counter("gateway_unwritten_records", "Records of streams that the broker did not take at once.")
waiting_records = gauge("gateway_waiting_records", "Records of streams that the broker is still to take.")
dropped_records = counter("gateway_dropped_records", "Records that waited for the broker and had to give way.")
ledger_failing = gauge("gateway_ledger_failing", "1 while the broker takes no records of streams.")
recalls = counter("gateway_recalls", "Streams that were found at a verifier, or here, and not at the broker.")
shared = counter("gateway_shared_answers", "Answers that were generated for another request.", ["source"])
breakers = gauge("gateway_breaker_open", "1 where a verifier does not answer and is asked last.", ["verifier"])
breaker_openings = counter("gateway_breaker_openings", "Times that a verifier came to be asked last.")
routed_tokens = counter(
    "gateway_prefix_routed_tokens",
    "Prompt tokens by whether the chosen verifier was known to have their pages.",
    ["pages"],
)
page_news = counter("gateway_page_news", "Pages that verifiers told of, by what became of them.", ["change"])
page_gaps = counter("gateway_page_gaps", "Times that news of a verifier's pages were missing.")
page_snapshots = counter("gateway_page_snapshots", "Times that a verifier told all its pages.")
known_pages = gauge("gateway_known_pages", "Pages that verifiers are known to have.")
withdrawn = counter("gateway_withdrawn", "Requests ended because their key, token or tenant was no longer valid.")
filtered = counter(
    "gateway_filtered_answers", "Answers by what a filter did: changed, ended, or failed it.", ["filter", "outcome"]
)
filter_seconds = counter("gateway_filter_seconds", "Time in filters, with the services that they ask.", ["filter"])
