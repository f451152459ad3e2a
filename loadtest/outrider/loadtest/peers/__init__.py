"""Outrider beside other engines on the same requests."""
