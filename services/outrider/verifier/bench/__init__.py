"""Measurements of a verifier's parts; the wheel leaves them out."""
