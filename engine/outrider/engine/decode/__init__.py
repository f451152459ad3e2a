"""The engine: one step after another over the target, and each request's answer as it grows.

Takes in requests and trees; gives out frames for readers and outcomes for drafters. Pages, rpc and the service call
this room, in the engine's thread.
"""
