"""Trains drafters for a target: heads that guess what it will say, from its own answers and its hidden states.

In: a target and prompts. Out: a directory in a published layout, with a card and a manifest.
"""
