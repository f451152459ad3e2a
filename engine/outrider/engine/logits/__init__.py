"""Edits of a row's logits before its token is drawn, and the log-probabilities that a request asks for.

Takes in a request's penalties, bans and grammar and a tree of guesses; gives out edits of logits. Requests, decode and
the service call this room.
"""
