"""The gateway's metrics."""

from __future__ import annotations

from outrider.mesh.telemetry import counter, distributions, gauge, histogram
from outrider.mesh.telemetry.metrics import TOKEN_SECONDS

_MODEL = ["model"]
_TENANT = ["model", "tenant"]

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
first_token = histogram("gateway_first_token_seconds", "From a request's admission to its first token.", _MODEL)
inter_token = distributions(
    "gateway_inter_token_seconds", "Time between two deliveries of tokens of one answer.", _MODEL, TOKEN_SECONDS
)
output_token = histogram(
    "gateway_output_token_seconds", "Mean time of an answer's tokens after the first.", _MODEL, TOKEN_SECONDS
)
request_seconds = histogram(
    "gateway_request_seconds",
    "From a request's admission to its end, by outcome: stop, length, content_filter, refused, cancelled, timeout, "
    "failed, or moved (another gateway goes on with it).",
    ["model", "outcome"],
)
prompt_tokens = counter("gateway_prompt_tokens", "Tokens of prompts.", _TENANT)
cached_tokens = counter("gateway_cached_tokens", "Tokens of prompts that verifiers found in pages.", _TENANT)
generated_tokens = counter("gateway_generated_tokens", "Generated tokens, counted when a request ends.", _TENANT)
cost = counter("gateway_cost", "Cost of tokens, in the currency of gateway.prices; absent for other models.", _TENANT)
refused = counter(
    "gateway_refused_requests",
    "Requests refused, by cause: limit, queue_full, deadline, authentication, permission, unknown_model, not_found, "
    "filter, invalid, no_verifier (or another service is missing).",
    ["cause"],
)
limit_used = gauge(
    "gateway_limit_used_ratio",
    "Used share of a limit, as this gateway last saw it, for tenants that gateway.metrics_tenants names.",
    ["tenant", "limit"],
)
slo_requests = counter(
    "gateway_slo_requests",
    "Requests by whether they met gateway.slo_first_token_s and slo_output_token_s; requests that clients cancelled or "
    "got wrong are left out.",
    ["model", "met"],
)
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
page_news = counter("gateway_page_news", "Pages in verifiers' news, by what became of them.", ["change"])
page_gaps = counter("gateway_page_gaps", "Times that news of a verifier's pages were missing.")
page_snapshots = counter("gateway_page_snapshots", "Times that a verifier sent all its pages.")
known_pages = gauge("gateway_known_pages", "Pages that verifiers are known to have.")
withdrawn = counter("gateway_withdrawn", "Requests ended because their key, token or tenant was no longer valid.")
filtered = counter(
    "gateway_filtered_answers", "Answers by what a filter did: changed, ended, or failed it.", ["filter", "outcome"]
)
filter_seconds = counter("gateway_filter_seconds", "Time in filters, with the services that they ask.", ["filter"])
