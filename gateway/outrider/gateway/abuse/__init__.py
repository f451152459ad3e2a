"""Notices callers whose requests look like abuse, by plain counts of the last minute, and may slow them down.

In come refused requests and samples of accepted ones; out go metrics, lines of the audit log, and delays.
"""
