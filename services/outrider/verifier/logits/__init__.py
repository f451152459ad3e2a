"""What changes a row's logits before its token is drawn, and the log-probabilities that a request asks for.

In come a request's penalties, bans and grammar and a tree of guesses; out go edits of logits. Requests, decode and
the service call it.
"""
