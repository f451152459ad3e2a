"""Measures requests: their times, tokens, cost and outcome, by model and by tenants that may be named.

A flight has a meter. Labels are bounded: models are those that the registry knows, tenants those that a setting names.
"""
