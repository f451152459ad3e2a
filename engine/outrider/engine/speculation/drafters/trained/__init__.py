"""The drafter of heads trained for the target: sessions, keys and values of their own, and trees.

Takes in the target's states and decided tokens, gives out trees. `outrider.engine.speculation.heads` computes.
"""
