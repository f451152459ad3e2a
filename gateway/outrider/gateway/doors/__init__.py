"""The front doors: each turns its own messages into one request, and frames into its own answers.

Doors are `openai`, `responses`, `own` (Outrider's own endpoints), `playground`, `openapi`, `grpc` and `nats`; `http`
(connections, bodies, errors) and `schema` (what OpenAI-shaped bodies have in common) lie below them. Only the service
calls them.
"""
