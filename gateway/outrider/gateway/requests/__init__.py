"""One generation as every front door asks for it, and what has to be known of a model to make it token ids.

In comes what a door has read; out goes a `GenerationRequest` with token ids. Streams, generation and the doors call
it.
"""
