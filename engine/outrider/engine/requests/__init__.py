"""A request, checked against the model's limits, the sequence that answers it, and the output for its caller.

Takes in parameters and token ids; gives out a `Request` and its `Sequence`. Every room above calls this room.
"""
