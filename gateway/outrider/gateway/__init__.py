"""The gateway: APIs over HTTP, gRPC and NATS, and the way from a request to its tokens.

Rooms, each of which may import those before it: `admission`, `requests`, `tool_calls`, `routing`, `streams`,
`sharing`, `observer`, `generation`, `api`. `errors`, `metrics` and `settings` lie below all rooms, `service` above.
"""
