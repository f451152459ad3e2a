"""The tokens of one request, in order and complete: whichever source brings them and whichever verifier dies.

In come frames from the broker and from verifiers; out goes one stream of frames without gaps. Sharing and generation
call it.
"""
