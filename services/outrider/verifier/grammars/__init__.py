"""Compiles the grammars of requests, each new definition first in a process that a bad one may kill.

In: the definition that a request carries. Out: its compiled grammar, or a refusal.
"""
