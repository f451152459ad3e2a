"""Spans, the time line and distributions of a verifier's steps and requests."""
