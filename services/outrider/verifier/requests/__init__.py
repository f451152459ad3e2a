"""Turns the wire's message into a checked request and the sequence that answers it.

Takes in a `SubmitRequest`; gives out a `Request` and its `Sequence`. Every room above calls this room.
"""
