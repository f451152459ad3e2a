"""How models write function calls: one module for each format, a table of texts.

Nothing comes in; out go the tables, by which tokenizers recognize a model's format and gateways ask for it and read it.
"""
