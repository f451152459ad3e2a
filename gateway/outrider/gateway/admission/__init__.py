"""Admits requests and counts what they use: keys, networks, limits, deadlines and charges.

In come keys, tokens, addresses and the most that a request can use; out go a `Caller` and a `Reservation` of its
limits, or an error. Every room above may call it.
"""
