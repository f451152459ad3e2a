"""The answer to one job as a stream of frames, complete and in order, whatever happens to the broker and to verifiers.

In come frames from the broker and from verifiers; out goes one stream of frames without gaps. Sharing and generation
call it.
"""
