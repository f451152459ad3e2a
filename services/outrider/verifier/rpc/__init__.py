"""Connects the engine with its callers: gRPC methods, logs of frames, leases, streams to proposers.

Only the service calls this room.
"""
