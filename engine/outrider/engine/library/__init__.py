"""The public Python API: a model in this process, its parameters, streams and results.

Takes in what users write; gives out results. Nothing in the engine imports this room, but `outrider.engine` shows it.
"""
