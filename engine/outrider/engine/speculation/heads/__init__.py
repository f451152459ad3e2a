"""Heads trained for a target: EAGLE-3, DFlash and DSpark, as modules over tensors that serve and that can be trained.

Takes in directories of config.json and safetensors, in the layouts that are published; gives out heads. Imports no
drafter: those and training stand on this room.
"""
