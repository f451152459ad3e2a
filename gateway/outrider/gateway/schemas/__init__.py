"""JSON Schemas of clients, rewritten for the compiler of grammars, which lacks some keywords.

In comes a client's schema; out go a schema that allows every value of it, and the places of what is not enforced. Every
API of the gateway calls it.
"""
