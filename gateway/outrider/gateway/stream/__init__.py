"""The answer to one job as a stream of frames, complete and in order, whatever happens to the broker and to verifiers.

In come jobs, and frames from the broker and from verifiers; out goes one stream of frames without gaps, which is
generated for its job alone, shared with equal jobs, or cached. `request` calls it.
"""
