"""Thoughts in front of answers: how a model marks them off, which text is theirs, and what may be drawn in them.

In come a request's marks and tokens; out go texts, each of the thought or of the answer, and masks. Requests and
answers call it, and only where a request has marks.
"""
