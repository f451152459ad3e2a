"""Rules that decide which guesses are accepted, and the walk through a verified tree.

Rules are plug-ins of the group `outrider.acceptance`. A rule takes a tree, the target's logits and its draws, and
returns the decided tokens. The runner and the engine call this room.
"""
