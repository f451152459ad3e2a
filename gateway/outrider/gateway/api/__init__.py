"""The APIs: each turns its own messages into a request of the gateway, and frames into its own answers.

APIs are `openai`, `responses`, `anthropic`, `own` (Outrider's own endpoints), `playground`, `openapi`, `grpc` and
`nats`; `http` (connections, bodies, errors) and `schema` (the parts that these bodies share) lie below them. Only the
service calls them.
"""
