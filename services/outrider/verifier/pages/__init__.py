"""Pages of keys and values that come from elsewhere or go there.

In come pages that a sequence lacks and pages that are full; out go pages in the pool. KV caches, other verifiers and
named prompts are where they come from. The engine calls it by `PageCache`; the service starts it.
"""
