"""From the wire's message to the sequence that answers it, everything checked.

In comes a `SubmitRequest`; out go a `Request` and its `Sequence`. Every room above calls it.
"""
