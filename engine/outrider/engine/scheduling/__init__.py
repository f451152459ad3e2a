"""Chooses the sequences, rows and pages of each step, and estimates how long a new request will take.

Takes in sequences; gives out a `Plan`. Speculation reads plans; the engine drives this room.
"""
