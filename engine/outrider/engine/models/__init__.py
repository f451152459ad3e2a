"""Models: their configuration, their weights on a device, and their forward pass over a step's rows.

In: a directory or a GGUF file. Out: a `LlamaModel`, which the runner and drafters call.
"""
