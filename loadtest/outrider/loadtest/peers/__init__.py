"""Compares Outrider with other engines on the same requests."""
