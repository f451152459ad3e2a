"""Measurements of a verifier's parts; not in the wheel."""
