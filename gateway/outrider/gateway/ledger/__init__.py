"""The records by which any gateway can go on with a stream: in JetStream, and at verifiers where the broker lacks them.

In come records of flights; out go the streams that a client can come back to. `request` and the APIs call it.
"""
