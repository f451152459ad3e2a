"""Calls of functions inside an answer: as a grammar for the verifier, and as calls read from text.

In come tools, formats and text; out go grammars and calls. Generation and the APIs call it.
"""
