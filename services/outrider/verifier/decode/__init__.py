"""The engine: one step after another over the target, and each request's answer as it grows.

In come requests and trees; out go frames for readers and outcomes for drafters. Pages, rpc and the service call it,
in the engine's thread.
"""
