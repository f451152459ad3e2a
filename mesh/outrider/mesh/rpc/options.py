"""Options of channels and servers: how long a message may be, and how soon a frozen peer is noticed.

https://grpc.github.io/grpc/core/group__grpc__arg__keys.html explains the options.
"""

from __future__ import annotations

MESSAGE_BYTES = 64 << 20
"""Bytes of the longest message; a longer one ends its call with RESOURCE_EXHAUSTED."""

_MESSAGES = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
)
_PING_TIMEOUT = (
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 1),
)

CHANNEL = (
    *_MESSAGES,
    *_PING_TIMEOUT,
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Options of a channel, which pings its peer every two seconds and gives it three to answer."""

SERVER = (
    *_MESSAGES,
    *_PING_TIMEOUT,
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
)
"""Options of a server, which accepts as many pings as a channel sends."""

METADATA_BYTES = 16 << 10
STREAMS = 1000
"""Calls that one connection of a client may have at once; its library holds further ones back."""
CALLS = 8000
"""Calls that all clients of a server may have at once; a further one ends with RESOURCE_EXHAUSTED."""
_PING_STRIKES = 20
"""Pings that may come too early before a client's connection is closed."""


def public(message_bytes: int, *, share: bool) -> tuple[tuple[str, int], ...]:
    """Options of a server that strangers may reach: a longer message is refused before it is decoded."""
    bounds = {
        "grpc.max_receive_message_length": message_bytes,
        "grpc.max_metadata_size": METADATA_BYTES,
        "grpc.absolute_max_metadata_size": METADATA_BYTES,
        "grpc.max_concurrent_streams": STREAMS,
        "grpc.http2.max_ping_strikes": _PING_STRIKES,
        "grpc.so_reuseport": int(share),
    }
    return tuple((dict(SERVER) | bounds).items())
