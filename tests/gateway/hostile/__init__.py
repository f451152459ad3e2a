"""Hostile inputs: cases over HTTP, gRPC and NATS, each with the answer that it has to get.

`bodies`, `grammars`, `wire`, `calls` and `messages` have the cases, `table` has all of them; a test makes each once.
"""
