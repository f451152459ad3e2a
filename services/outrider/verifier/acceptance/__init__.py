"""Rules that decide which guesses are accepted, and the walk through a verified tree.

Rules are plug-ins of the group `outrider.acceptance`. In come a tree, the target's logits and its draws; out go the
decided tokens. The runner and the engine call it.
"""
