"""Hostile inputs: cases over HTTP, gRPC and NATS, each with the answer that it has to get.

`bodies`, `grammars`, `wire`, `calls` and `messages` have the cases, `table` has all of them. `python -m
outrider.loadtest attack` has several attackers make them while another tenant streams; a test makes each once.
"""
