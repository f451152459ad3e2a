"""Which sequences run in a step, with how many rows and on which pages, and how long a new request will take.

In come sequences; out goes a `Plan`. Speculation reads plans; the engine drives it.
"""
