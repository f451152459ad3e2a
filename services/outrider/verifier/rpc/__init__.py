"""What stands between the engine and its callers: logs of frames, leases, streams to proposers.

Only the service calls it.
"""
